//! What a command ends with when it is not done: one sentence, a code for programs, an exit code for scripts.

use std::error::Error;
use std::fmt;

use sandbox_fsp::FspError;
use sandbox_process::source::ConfigError;
use sandbox_protocol::agent::{RunFailure, RunReply};
use sandbox_protocol::fsp::ErrorCode;
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::{FailureCode, Outcome};
use sandbox_sdk::answers::AnswerError;
use sandbox_sdk::api::ApiError;
use sandbox_sdk::api::inside::OpenError;
use sandbox_sdk::batches::BatchError;
use sandbox_sdk::chain::{ConnectError, CustomerError, ReadError, SendError};
use sandbox_sdk::deploy::{AmountError, AssetError, DeployError, PriceError, ReleaseError};
use sandbox_sdk::deployment::DeploymentError;
use sandbox_sdk::quotes::AskError;
use sandbox_sdk::requests::RequestError;
use sandbox_sdk::sealing::SealingError;
use sandbox_sdk::ssh::SshError;
use sandbox_sdk::verify::Unproven;
use sandbox_sdk::workflows::WorkflowError;

/// Kinds of failures. The numbers are documented in `args`; none of them is one that shells give by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Usage = 2,
    Unsuccessful = 118,
    Unproven = 119,
    Local = 120,
    Refused = 121,
    Caller = 122,
    Operator = 123,
    TimedOut = 124,
    Unavailable = 125,
    Interrupted = 130,
}

/// A command that was not done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
}

impl Failure {
    fn new(exit: Exit, code: &str, error: &dyn Error, retryable: bool) -> Self {
        Self { exit, code: code.to_owned(), message: with_causes(error), retryable }
    }

    pub(crate) fn usage(message: String) -> Self {
        Self { exit: Exit::Usage, code: "usage".into(), message, retryable: false }
    }

    pub(crate) fn local(message: String) -> Self {
        Self { exit: Exit::Local, code: "local".into(), message, retryable: false }
    }

    /// What is asked is more than the caller would pay.
    pub(crate) fn too_dear(message: String) -> Self {
        Self { exit: Exit::Refused, code: "too_dear".into(), message, retryable: true }
    }

    /// The failure that an answer reports; `None` where the job was done.
    pub(crate) fn of_answer(answer: &AnswerBody) -> Option<Self> {
        let code = answer.failure;
        let exit = match (answer.outcome, code) {
            (Outcome::Done, _) => return None,
            (Outcome::Caller, Some(FailureCode::Timeout)) => Exit::TimedOut,
            (Outcome::Caller, _) => Exit::Caller,
            (Outcome::Operator, _) => Exit::Operator,
        };
        let said = answer.response_json.get("message").and_then(|message| message.as_str());
        let message = said.map_or_else(|| standing_in(exit, code), str::to_owned);
        let name = code.map_or_else(|| "not_done".into(), |code| code.to_string());
        Some(Self { exit, code: name, message, retryable: code.is_some_and(FailureCode::retryable) })
    }
}

/// How an agent's work ended without success: its own matter, unless a job would have been refused for it.
pub(crate) fn of_run(reply: &RunReply) -> Option<Failure> {
    if reply.success {
        return None;
    }
    let code = reply.failure.and_then(RunFailure::code);
    let exit = match code {
        None => Exit::Unsuccessful,
        Some(FailureCode::Timeout) => Exit::TimedOut,
        Some(code) if code.outcome() == Outcome::Operator => Exit::Operator,
        Some(_) => Exit::Caller,
    };
    let name = match reply.failure {
        Some(failure) => serde_json::json!(failure).as_str().unwrap_or_default().to_owned(),
        None => "unsuccessful".to_owned(),
    };
    let said = if reply.error.is_empty() { "the agent ended without success" } else { &reply.error };
    Some(Failure { exit, code: name, message: said.to_owned(), retryable: code.is_some_and(FailureCode::retryable) })
}

/// The sentence for an answer that carries output instead of one.
fn standing_in(exit: Exit, code: Option<FailureCode>) -> String {
    match code {
        Some(FailureCode::Timeout) => "the command's time was over and it was killed".into(),
        Some(FailureCode::MemoryLimit) => "the command used up the memory and was killed".into(),
        Some(FailureCode::OutputLimit) => "the command wrote more than is kept".into(),
        _ if exit == Exit::Operator => "the operator could not do it".into(),
        _ => "the request could not be done".into(),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, "settings", &error, false)
    }
}

impl From<DeploymentError> for Failure {
    fn from(error: DeploymentError) -> Self {
        Self::new(Exit::Usage, "deployment", &error, false)
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::new(Exit::Usage, "request", &error, false)
    }
}

impl From<SshError> for Failure {
    fn from(error: SshError) -> Self {
        let (exit, code) = match &error {
            SshError::Changed { .. } => (Exit::Unproven, "host_key_changed"),
            SshError::NoHost(_) => (Exit::Operator, "no_ssh"),
            SshError::Path(_) => (Exit::Usage, "usage"),
        };
        Self::new(exit, code, &error, false)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let reachable = !matches!(error, ConnectError::Unreachable { .. });
        let (exit, code) = if reachable { (Exit::Usage, "deployment") } else { (Exit::Unavailable, "chain") };
        Self::new(exit, code, &error, !reachable)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Refused(refusal) => Self::new(Exit::Refused, "refused", &error, refusal.retryable()),
            ReadError::Call { .. } | ReadError::Node { .. } => Self::new(Exit::Unavailable, "chain", &error, true),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let (exit, code) = of_send(&error);
        Self::new(exit, code, &error, error.retryable())
    }
}

const fn of_send(error: &SendError) -> (Exit, &'static str) {
    match error {
        SendError::Refused(_) | SendError::Reverted { .. } => (Exit::Refused, "refused"),
        SendError::Simulate(_) | SendError::Broadcast(_) | SendError::Receipt { .. } => (Exit::Unavailable, "chain"),
        SendError::NotMined { .. } | SendError::NoEvent { .. } | SendError::TooMuchGas { .. } => {
            (Exit::Unavailable, "chain")
        }
    }
}

impl From<DeployError> for Failure {
    fn from(error: DeployError) -> Self {
        let (exit, code, retryable) = match &error {
            DeployError::Step { source, .. } | DeployError::TooLarge { source, .. } => {
                let (exit, code) = of_send(source);
                (exit, code, source.retryable())
            }
            DeployError::Read(ReadError::Refused(_)) => (Exit::Refused, "refused", false),
            DeployError::Read(_) | DeployError::Waiting { .. } | DeployError::Stuck(_) => {
                (Exit::Unavailable, "chain", true)
            }
            DeployError::Check(ConnectError::Unreachable { .. }) => (Exit::Unavailable, "chain", true),
            DeployError::ForeignContract { .. } | DeployError::ForeignBlueprint { .. } => {
                (Exit::Refused, "not_owner", false)
            }
            _ => (Exit::Usage, "deployment", false),
        };
        Self::new(exit, code, &error, retryable)
    }
}

impl From<AssetError> for Failure {
    fn from(error: AssetError) -> Self {
        Self::new(Exit::Usage, "asset", &error, false)
    }
}

impl From<AmountError> for Failure {
    fn from(error: AmountError) -> Self {
        Self::new(Exit::Usage, "usage", &error, false)
    }
}

impl From<PriceError> for Failure {
    fn from(error: PriceError) -> Self {
        Self::new(Exit::Usage, "prices", &error, false)
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        Self::new(Exit::Usage, "release", &error, false)
    }
}

impl From<CustomerError> for Failure {
    fn from(error: CustomerError) -> Self {
        match error {
            CustomerError::Read(error) => error.into(),
            CustomerError::Send(error) => error.into(),
            CustomerError::NoService(_)
            | CustomerError::ForeignService { .. }
            | CustomerError::NotQuotable(_)
            | CustomerError::Rejected(_) => Self::new(Exit::Refused, "service", &error, false),
            CustomerError::Sealing(error) => error.into(),
            CustomerError::Quote(_) | CustomerError::TooDear => Self::new(Exit::Refused, "quote", &error, false),
            CustomerError::NotActivated { .. } => Self::new(Exit::Unavailable, "not_activated", &error, true),
            CustomerError::Lost(_) => Self::new(Exit::Unavailable, "chain", &error, false),
        }
    }
}

impl From<SealingError> for Failure {
    fn from(error: SealingError) -> Self {
        match error {
            SealingError::Read(error) => error.into(),
            SealingError::NoKey(_) | SealingError::Field { .. } => {
                Self::new(Exit::Refused, "not_sealed", &error, false)
            }
            SealingError::TooLarge(_) => Self::new(Exit::Usage, "request", &error, false),
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let retryable = error.retryable();
        let (exit, code) = match error {
            AskError::Read(error) => return error.into(),
            AskError::Service(error) => return (*error).into(),
            AskError::Client(_) => (Exit::Local, "local"),
            AskError::Worthless(_) | AskError::Asset { .. } => (Exit::Unproven, "unproven"),
            AskError::Refused { .. } => (Exit::Refused, "operator_refused"),
            AskError::NoUrl { .. } | AskError::Unreachable { .. } | AskError::Garbled { .. } => {
                (Exit::Unavailable, "operator")
            }
        };
        Self::new(exit, code, &error, retryable)
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        let retryable = error.retryable();
        let (exit, code) = match error {
            AnswerError::Read(error) => return error.into(),
            AnswerError::Stream(error) => return error.into(),
            AnswerError::Unproven { source: Unproven::Read(error), .. } => return error.into(),
            AnswerError::Unproven { .. } => (Exit::Unproven, "unproven"),
            AnswerError::NoCall(_) => (Exit::Refused, "no_call"),
            AnswerError::Refused { .. } => (Exit::Refused, "operator_refused"),
            AnswerError::Client(_) | AnswerError::Sign(_) => (Exit::Local, "local"),
            AnswerError::TooLate { .. } => (Exit::Unavailable, "no_answer"),
            AnswerError::Withheld { .. } => (Exit::Unavailable, "withheld"),
            AnswerError::NoUrl { .. } | AnswerError::Unreachable { .. } | AnswerError::Garbled { .. } => {
                (Exit::Unavailable, "operator")
            }
        };
        Self::new(exit, code, &error, retryable)
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        let code = match error {
            BatchError::Read(error) => return error.into(),
            BatchError::Request(error) => return error.into(),
            BatchError::Sealing(error) => return error.into(),
            BatchError::Customer(error) => return error.into(),
            BatchError::Ask(error) => return error.into(),
            BatchError::Answer(error) => return error.into(),
            BatchError::Api(error) => return error.into(),
            BatchError::NotOfService { .. } => "not_of_service",
            BatchError::NoRoom { .. } => "no_room",
            BatchError::Unquoted { .. } | BatchError::Nobody(_) => "no_quote",
            BatchError::NoSandbox(_) => "no_sandbox",
            BatchError::Unknown { .. } | BatchError::NotABatch(_) => "no_batch",
            // An answer may still come.
            BatchError::Unattested { .. } => return Self::new(Exit::Unproven, "unproven", &error, true),
        };
        Self::new(Exit::Refused, code, &error, false)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let retryable = error.retryable();
        let (exit, code) = match &error {
            ApiError::Client(_) | ApiError::Sign(_) | ApiError::Tls(_) => (Exit::Local, "local"),
            ApiError::Elsewhere { .. } => (Exit::Unproven, "elsewhere"),
            ApiError::Refused { status, .. } if *status >= 500 => (Exit::Unavailable, "operator"),
            ApiError::Refused { .. } => (Exit::Refused, "operator_refused"),
            ApiError::NoUrl { .. }
            | ApiError::Unreachable { .. }
            | ApiError::Broken { .. }
            | ApiError::Garbled { .. } => (Exit::Unavailable, "operator"),
        };
        Self::new(exit, code, &error, retryable)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Api(error) => error.into(),
            OpenError::Fsp(error) => error.into(),
        }
    }
}

impl From<FspError> for Failure {
    fn from(error: FspError) -> Self {
        let retryable = error.retryable();
        let (exit, code) = match &error {
            FspError::TimedOut { .. } => (Exit::TimedOut, "timeout"),
            FspError::Refused { status, .. } if *status >= 500 => (Exit::Unavailable, "operator"),
            FspError::Refused { .. } => (Exit::Refused, "operator_refused"),
            FspError::Server { code: ErrorCode::InternalError | ErrorCode::NetworkError, .. } => {
                (Exit::Operator, "sandbox")
            }
            FspError::Server { code: ErrorCode::SandboxOverloaded, .. } => (Exit::Operator, "busy"),
            FspError::Server { .. } => (Exit::Caller, "refused"),
            _ => (Exit::Unavailable, "operator"),
        };
        Self::new(exit, code, &error, retryable)
    }
}

impl From<WorkflowError> for Failure {
    fn from(error: WorkflowError) -> Self {
        match error {
            WorkflowError::Read(error) => error.into(),
            WorkflowError::None(_) => Self::new(Exit::Refused, "no_workflow", &error, false),
            WorkflowError::Lost(_) => Self::new(Exit::Unavailable, "chain", &error, true),
            WorkflowError::Changed(_) => Self::new(Exit::Unproven, "unproven", &error, false),
        }
    }
}

impl From<Unproven> for Failure {
    fn from(error: Unproven) -> Self {
        match error {
            Unproven::Read(error) => error.into(),
            Unproven::NotSettled(_) => Self::new(Exit::Unproven, "not_settled", &error, true),
            other => Self::new(Exit::Unproven, "unproven", &other, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_success_is_told_from_a_job_that_was_not_done() {
        let exit = |failure| {
            let failure = of_run(&RunReply { failure, ..RunReply::default() }).unwrap();
            (failure.exit, failure.code)
        };
        assert_eq!(exit(None), (Exit::Unsuccessful, "unsuccessful".into()));
        assert_eq!(exit(Some(RunFailure::TurnLimit)), (Exit::Unsuccessful, "turn_limit".into()));
        assert_eq!(exit(Some(RunFailure::Cancelled)), (Exit::Unsuccessful, "cancelled".into()));
        assert_eq!(exit(Some(RunFailure::Timeout)), (Exit::TimedOut, "timeout".into()));
        assert_eq!(exit(Some(RunFailure::ProviderRefused)), (Exit::Caller, "provider_refused".into()));
        assert_eq!(exit(Some(RunFailure::OperatorKeyRefused)), (Exit::Operator, "operator_key_refused".into()));
        assert!(of_run(&RunReply { success: true, ..RunReply::default() }).is_none());
    }
}
