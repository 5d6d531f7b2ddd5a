//! Words of the command line that mean something.

use sandbox_protocol::fsp::Signal;
use sandbox_protocol::sandbox_id::NotASandboxId;
use sandbox_protocol::{CallKey, Job, SandboxId};

/// A word of the command line that is not of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WordError {
    #[error("expected NAME=VALUE")]
    Variable,
    #[error("expected SERVICE/CALL, two numbers")]
    Call,
    #[error("expected a job such as create, exec or 10")]
    Job,
    #[error("expected LOCAL:REMOTE, two ports, or one")]
    Ports,
    #[error("expected a signal such as INT or TERM")]
    Signal,
}

pub(super) fn variable(text: &str) -> Result<(String, String), WordError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(WordError::Variable),
    }
}

pub(super) fn sandbox(text: &str) -> Result<SandboxId, NotASandboxId> {
    SandboxId::from_endpoint(text)
}

/// A job by its name, by the rest of it behind `sandbox_`, or by its id.
pub(super) fn job(text: &str) -> Result<Job, WordError> {
    let is_named = |job: &Job| job.name() == text || job.name().strip_prefix("sandbox_") == Some(text);
    let by_id = || Job::from_id(text.parse().ok()?);
    Job::ALL.into_iter().find(is_named).or_else(by_id).ok_or(WordError::Job)
}

/// A call as [`CallKey`] prints it.
pub(crate) fn call_key(text: &str) -> Result<CallKey, WordError> {
    let number = |text: &str| text.parse().map_err(|_| WordError::Call);
    let (service, call) = text.split_once('/').ok_or(WordError::Call)?;
    Ok(CallKey { service: number(service)?, call: number(call)? })
}

/// Ports here and there: one number is both.
pub(super) fn ports(text: &str) -> Result<(u16, u16), WordError> {
    let (here, there) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| WordError::Ports);
    match (number(here)?, number(there)?) {
        (_, 0) => Err(WordError::Ports),
        ports => Ok(ports),
    }
}

/// A signal by its name, with or without `SIG`.
pub(super) fn signal(text: &str) -> Result<Signal, WordError> {
    let name = text.to_ascii_uppercase();
    name.strip_prefix("SIG").unwrap_or(&name).parse().map_err(|_| WordError::Signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_written_as_it_is_printed() {
        let key = CallKey { service: 3, call: 14 };
        assert_eq!(call_key(&key.to_string()), Ok(key));
        assert!(call_key("3").is_err() && call_key("3/x").is_err());
    }

    #[test]
    fn a_value_may_hold_an_equals_sign() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(variable("A").is_err() && variable("=b").is_err());
    }

    #[test]
    fn a_job_has_a_name_a_short_name_and_an_id() {
        for text in ["sandbox_create", "create", "0"] {
            assert_eq!(job(text), Ok(Job::SandboxCreate));
        }
        assert_eq!((job("exec"), job("12"), job("ssh_revoke")), (Ok(Job::Exec), Ok(Job::Task), Ok(Job::SshRevoke)));
        assert!(job("5").is_err() && job("256").is_err() && job("").is_err());
    }

    #[test]
    fn ports_are_two_or_one() {
        assert_eq!((ports("8080:80"), ports("22"), ports("0:22")), (Ok((8080, 80)), Ok((22, 22)), Ok((0, 22))));
        for text in ["", ":", "80:", "80:0", "0", "1:2:3", "65536"] {
            assert_eq!(ports(text), Err(WordError::Ports), "{text}");
        }
    }

    #[test]
    fn a_signal_is_named_in_any_way() {
        assert_eq!((signal("INT"), signal("sigterm")), (Ok(Signal::Int), Ok(Signal::Term)));
        assert_eq!(signal("9"), Err(WordError::Signal));
    }
}
