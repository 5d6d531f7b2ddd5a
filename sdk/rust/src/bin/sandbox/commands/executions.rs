//! `exec`, `logs`, `ps`, `kill`: commands in a sandbox, live.

use std::process::ExitCode;

use bytes::Bytes;
use rand::Rng as _;
use sandbox_fsp::{Accumulator, Control, Event, Execution, FspError, Outcome, Place};
use sandbox_protocol::SandboxId;
use sandbox_protocol::exec::ExecSummary;
use sandbox_protocol::fsp::{Ended, Execute, Extra, Language, Limits, Status, Stream};
use sandbox_protocol::limits::{
    EXEC_DETACHED_TIMEOUT_MS_MAX, EXEC_OUTPUT_BYTES_MAX, EXEC_TIMEOUT_MS_DEFAULT, FSP_CPU_SHARES_DEFAULT,
    FSP_OUTPUT_BYTES_MAX,
};
use sandbox_protocol::session::Scope;
use sandbox_sdk::requests::shell_quoted;
use serde::Serialize;

use super::sessions::inside;
use super::streams::{self, Signals};
use crate::args::{ExecArgs, KillArgs};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::settings::Settings;

/// What programs are told of a command.
#[derive(Serialize)]
struct Ran {
    id: String,
    status: Status,
    exit_code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    dropped_bytes: u64,
    lost_bytes: u64,
    duration_ms: u64,
}

#[derive(Serialize)]
struct Left<'a> {
    id: &'a str,
}

pub(crate) async fn exec(args: ExecArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let connection = inside(args.id, Scope::SandboxesExec, settings).await?.executions().await?;
    let (detach, stdin) = (args.detach, !args.no_stdin && !args.detach);
    let execution = connection.execute(request_of(args, stdin)).await?;
    if detach {
        return left(execution, output).await;
    }
    let control = execution.control();
    let followed = follow(execution, Role::Master { stdin }, output).await;
    if followed.is_err() {
        // Who does not hear it any more does not want it to go on. It may have ended by itself.
        control.cancel().await.unwrap_or_default();
    }
    followed
}

pub(crate) async fn logs(
    (id, execution): (SandboxId, &str),
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let connection = inside(id, Scope::SandboxesExec, settings).await?.executions().await?;
    follow(connection.attach(execution, Place::default(), None).await?, Role::Watcher, output).await
}

pub(crate) async fn list(id: SandboxId, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let executions = inside(id, Scope::SandboxesExec, settings).await?.list_executions().await?;
    let lines: Vec<_> = executions.iter().map(line).collect();
    output.result(&lines.join("\n"), &executions)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn kill(args: KillArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    inside(args.id, Scope::SandboxesExec, settings).await?.kill(&args.execution, args.signal).await?;
    output.result(&args.execution, &Left { id: &args.execution })?;
    Ok(ExitCode::SUCCESS)
}

fn request_of(args: ExecArgs, stdin: bool) -> Execute {
    let code = match args.command.as_slice() {
        [script] => script.clone(),
        words => words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let default_ms = if args.detach { EXEC_DETACHED_TIMEOUT_MS_MAX } else { EXEC_TIMEOUT_MS_DEFAULT };
    Execute {
        id: format!("cli-{:016x}", rand::rng().random::<u64>()),
        language: Language::Shell,
        code,
        stdin: None,
        env: args.env.into_iter().collect(),
        limits: Limits {
            timeout_ms: args.timeout.unwrap_or(default_ms),
            memory_mb: 0,
            cpu_shares: FSP_CPU_SHARES_DEFAULT,
            max_output_bytes: FSP_OUTPUT_BYTES_MAX,
        },
        extra: Extra { cwd: Some(args.cwd), stream_stdin: stdin, detach: args.detach, credit_bytes: None },
    }
}

/// Waits until the sandbox has it, and prints its id.
async fn left(mut execution: Execution, output: &Output) -> Result<ExitCode, Failure> {
    while let Some(event) = execution.next().await? {
        if event == Event::Ack {
            output.result(execution.id(), &Left { id: execution.id() })?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    Err(FspError::Ended.into())
}

/// What this program is to an execution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It started it: signals are passed on, and stdin if there is to be one.
    Master { stdin: bool },
    /// It listens.
    Watcher,
}

/// Prints what a command writes as it does, and ends as it does.
async fn follow(mut execution: Execution, role: Role, output: &Output) -> Result<ExitCode, Failure> {
    let control = execution.control();
    let mut signals = if role == Role::Watcher { None } else { Some(Signals::new()?) };
    let mut typing = std::pin::pin!(type_in(control.clone()));
    let mut types = role == Role::Master { stdin: true };
    let (mut kept, mut status) = (Accumulator::new(EXEC_OUTPUT_BYTES_MAX), None);
    loop {
        let event = tokio::select! {
            event = execution.next() => event?,
            signal = async { match &mut signals { Some(signals) => signals.next().await, None => std::future::pending().await } } => {
                control.signal(signal).await?;
                continue;
            }
            typed = &mut typing, if types => {
                types = false;
                typed?;
                continue;
            }
        };
        let Some(event) = event else { return Err(FspError::Ended.into()) };
        match &event {
            Event::Output(stream, data) if !output.is_json() => print(*stream, data, output)?,
            Event::Gap { bytes, .. } => output.notice(&format!("sandbox: {bytes} bytes of output are lost")),
            Event::Status(told) => status = Some(*told),
            Event::Ack | Event::Output(..) | Event::Ended(_) | Event::Detached => {}
        }
        let ended = if let Event::Ended(ended) = &event { Some(ended.clone()) } else { None };
        if output.is_json() || ended.is_some() {
            kept.add(event);
        }
        if let Some(ended) = ended {
            if output.is_json()
                && let Some(outcome) = kept.outcome()
            {
                output.result("", &ran(execution.id(), outcome))?;
            }
            return exit_of(status, &ended);
        }
    }
}

fn print(stream: Stream, data: &[u8], output: &Output) -> Result<(), Failure> {
    match stream {
        Stream::Stdout => output.streams(data, &[]),
        Stream::Stderr => output.streams(&[], data),
    }
}

/// Sends this program's stdin to its end.
async fn type_in(control: Control) -> Result<(), Failure> {
    let mut pieces = streams::stdin();
    while let Some(piece) = pieces.recv().await {
        let piece = piece.map_err(|error| Failure::local(format!("cannot read stdin: {error}")))?;
        match control.stdin(piece, false).await {
            Ok(()) => {}
            // It needs no more: how it ended is told by its events.
            Err(FspError::Ended) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    match control.stdin(Bytes::new(), true).await {
        Ok(()) | Err(FspError::Ended) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// As shells have it: the code, or 128 and the signal.
fn exit_of(status: Option<Status>, ended: &Ended) -> Result<ExitCode, Failure> {
    let failure = |exit, code: &str, message: &str| {
        Err(Failure { exit, code: code.to_owned(), message: message.to_owned(), retryable: false })
    };
    match (status, ended) {
        (Some(Status::Timeout), _) => {
            failure(Exit::TimedOut, "timeout", "the command's time was over and it was killed")
        }
        (Some(Status::Oom), _) => failure(Exit::Caller, "oom", "the command's memory was used up and it was killed"),
        (_, Ended { exit_code: Some(code), .. }) => Ok(ExitCode::from(u8::try_from(*code).unwrap_or(u8::MAX))),
        (_, Ended { signal: Some(signal), .. }) => Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
        (Some(Status::Cancelled), _) => failure(Exit::Caller, "cancelled", "the command was cancelled"),
        _ => failure(Exit::Operator, "killed", "the command was killed"),
    }
}

fn ran(id: &str, outcome: Outcome) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        id: id.to_owned(),
        status: outcome.status,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        stdout: text(&outcome.stdout),
        stderr: text(&outcome.stderr),
        dropped_bytes: outcome.dropped_bytes,
        lost_bytes: outcome.lost_bytes,
        duration_ms: outcome.duration_ms,
    }
}

fn line(execution: &ExecSummary) -> String {
    let state = match (&execution.status, &execution.error) {
        (_, Some(error)) => error.code.clone(),
        (Some(status), None) => word(*status).to_owned(),
        (None, None) => "waiting".to_owned(),
    };
    let code = execution.ended.as_ref().and_then(|ended| ended.exit_code);
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    let command = execution.command.lines().next().unwrap_or_default();
    format!("{}  {state}{code}  {} s  {}", execution.id, execution.age_ms / 1_000, command.escape_debug())
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
        Status::Timeout => "timeout",
        Status::Oom => "oom",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i32>, signal: Option<i32>) -> Ended {
        Ended { exit_code, signal, duration_ms: 1, resource_usage: None }
    }

    #[test]
    fn a_command_ends_this_program_as_a_shell_would() {
        let code = |status, ended: Ended| format!("{:?}", exit_of(Some(status), &ended).unwrap());
        assert_eq!(code(Status::Completed, ended(Some(0), None)), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(Status::Failed, ended(Some(7), None)), format!("{:?}", ExitCode::from(7)));
        assert_eq!(code(Status::Failed, ended(None, Some(9))), format!("{:?}", ExitCode::from(137)));
    }

    #[test]
    fn what_struck_a_command_is_told_apart() {
        let exit = |status| exit_of(Some(status), &ended(None, Some(9))).unwrap_err().exit;
        assert_eq!((exit(Status::Timeout), exit(Status::Oom)), (Exit::TimedOut, Exit::Caller));
    }
}
