//! Commands over the execution protocol: begun once, and taken up again by their ids.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sandbox_fleet::ports::SidecarError;
use sandbox_fleet::sandbox::Instance;
use sandbox_fsp::{
    Accumulator, Endpoint, Execution, FspError, Lease, Outcome, Place, Pool, PoolSettings, Token, UnixSocket,
};
use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::fsp::{ErrorCode, Execute, Extension, Extensions, Extra, Language, Limits, Status};
use sandbox_protocol::limits::{EXEC_OUTPUT_BYTES_MAX, EXEC_TIMEOUT_MS_DEFAULT};
use tokio::time::Instant;

use crate::limits::SIDECAR_POOL_IDLE_MAX;
use crate::places::Places;

/// Exit code of what was killed by the sandbox: that of a shell whose command got SIGKILL.
const KILLED: i32 = 128 + 9;

/// What is asked of a sidecar beyond version 1.
const WANTED: [Extension; 5] =
    [Extension::Replay, Extension::Credit, Extension::Binary, Extension::Signal, Extension::Cwd];

/// Connections to the sidecars of this host, by vessel.
#[derive(Debug, Default)]
pub(super) struct Pools(Mutex<HashMap<String, (Pool, Instant)>>);

impl Pools {
    /// The connections to a sidecar. Those that nobody has asked for in a while are closed.
    fn of(&self, places: &Places, instance: &Instance) -> Pool {
        let now = Instant::now();
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, (_, used)| now.duration_since(*used) < SIDECAR_POOL_IDLE_MAX);
        let (pool, used) = pools.entry(instance.vessel.clone()).or_insert_with(|| {
            let socket = UnixSocket::new(places.socket(&instance.vessel));
            let token = Token::fixed(instance.token.reveal());
            let endpoint = Endpoint::new(socket, token, WANTED.into_iter().collect::<Extensions>());
            (Pool::new(endpoint, PoolSettings::default()), now)
        });
        *used = now;
        pool.clone()
    }
}

/// The reply to `body`; `None` from a sidecar that does not speak the protocol.
pub(super) async fn exec(
    pools: &Pools,
    places: &Places,
    instance: &Instance,
    body: &ExecBody,
) -> Result<Option<ExecReply>, SidecarError> {
    let lease = match pools.of(places, instance).checkout().await {
        Ok(lease) => lease,
        Err(FspError::Refused { status: 404, .. }) => return Ok(None),
        Err(FspError::PoolExhausted { .. } | FspError::Refused { status: 429, .. }) => return Err(SidecarError::Busy),
        Err(error @ FspError::Refused { .. }) => return Err(SidecarError::Unreachable(error.into())),
        Err(error) => return Err(SidecarError::NotSent(error.into())),
    };
    let id = body.id.clone().unwrap_or_default();
    let execution = begun(&lease, id.clone(), body).await.map_err(meaning)?;
    gathered(execution, id).await.map(Some)
}

async fn begun(lease: &Lease, id: String, body: &ExecBody) -> Result<Execution, FspError> {
    let timeout_ms = if body.timeout_ms == 0 { EXEC_TIMEOUT_MS_DEFAULT } else { body.timeout_ms };
    if body.attach_only {
        return lease.attach(&id, Place::default(), Some(timeout_ms)).await;
    }
    let limits = Limits { timeout_ms, memory_mb: 0, ..Limits::default() };
    let execute = Execute {
        id,
        language: Language::Shell,
        code: body.command.clone(),
        // It came as text, so nothing of it is changed.
        stdin: Some(String::from_utf8_lossy(&body.stdin.0).into_owned()),
        env: body.env.clone(),
        limits,
        extra: Extra { cwd: Some(body.cwd.clone()), ..Extra::default() },
    };
    lease.execute(execute).await
}

async fn gathered(mut execution: Execution, id: String) -> Result<ExecReply, SidecarError> {
    let begun = Instant::now();
    let mut story = Accumulator::new(EXEC_OUTPUT_BYTES_MAX);
    loop {
        match execution.next().await {
            Ok(Some(event)) => story.add(event),
            Ok(None) => break,
            Err(FspError::Server { code: ErrorCode::OutputLimit, .. }) => {
                let (stdout, stderr) = story.output();
                let (stdout, stderr) = (ByteText(stdout.into()), ByteText(stderr.into()));
                let (ended, exit_code) = (ExecEnd::Exited, KILLED);
                // Its `error` has no time: as long as it was listened to is what is known.
                let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Ok(ExecReply { id, ended, exit_code, stdout, stderr, truncated: true, duration_ms });
            }
            Err(error) => return Err(meaning(error)),
        }
    }
    let outcome = story.outcome().ok_or(SidecarError::Lost)?;
    Ok(reply(id, outcome))
}

fn reply(id: String, outcome: Outcome) -> ExecReply {
    let killed_by = outcome.signal.map(|signal| 128 + signal);
    ExecReply {
        id,
        ended: match outcome.status {
            Status::Running | Status::Completed | Status::Failed => ExecEnd::Exited,
            Status::Timeout => ExecEnd::TimedOut,
            Status::Cancelled => ExecEnd::Cancelled,
            Status::Oom => ExecEnd::OutOfMemory,
        },
        exit_code: outcome.exit_code.or(killed_by).unwrap_or(KILLED),
        stdout: ByteText(outcome.stdout.into()),
        stderr: ByteText(outcome.stderr.into()),
        truncated: outcome.dropped_bytes + outcome.lost_bytes > 0,
        duration_ms: outcome.duration_ms,
    }
}

/// What an error means to whoever asked for the command. Once it was said, it may have run.
fn meaning(error: FspError) -> SidecarError {
    match error {
        FspError::Lost { .. } => SidecarError::Lost,
        FspError::Server { code, message, .. } => match code {
            ErrorCode::UnknownExecution | ErrorCode::InternalError => SidecarError::Lost,
            ErrorCode::SandboxOverloaded | ErrorCode::Timeout | ErrorCode::Oom => SidecarError::Busy,
            ErrorCode::InvalidRequest | ErrorCode::LanguageNotSupported | ErrorCode::OutputLimit => {
                SidecarError::Refused(message)
            }
            ErrorCode::NetworkError => SidecarError::Unreachable(message.into()),
        },
        FspError::NotGranted(_) => SidecarError::Outdated,
        FspError::TooMany | FspError::IdInUse => SidecarError::Busy,
        FspError::Unreachable { .. }
        | FspError::ConnectTimeout { .. }
        | FspError::Refused { .. }
        | FspError::Handshake { .. }
        | FspError::Disconnected { .. }
        | FspError::Unavailable { .. }
        | FspError::PoolExhausted { .. }
        | FspError::Malformed { .. }
        | FspError::TimedOut { .. }
        | FspError::StdinBroken
        | FspError::Ended => SidecarError::Unreachable(error.into()),
    }
}
