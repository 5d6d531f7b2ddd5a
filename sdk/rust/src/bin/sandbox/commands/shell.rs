//! `shell`: this terminal as one of a sandbox.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbox_protocol::limits::{PTY_COLS_MAX, PTY_INPUT_BYTES_MAX, PTY_ROWS_MAX};
use sandbox_protocol::pty::{COLS_DEFAULT, OpenQuery, ROWS_DEFAULT};
use sandbox_protocol::session::Scope;
use sandbox_sdk::api::inside::{Terminal, Told};
use sandbox_sdk::requests::shell_quoted;
use tokio::signal::unix::SignalKind;

use super::sessions::inside;
use super::streams::{self, heard};
use crate::args::ShellArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn shell(args: ShellArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("stdin is no terminal; `exec` runs commands without one".into()));
    }
    let inside = inside(args.id, Scope::SandboxesPty, settings).await?;
    let size = size();
    let mut terminal = match &args.attach {
        Some(id) => inside.attach_terminal(id, size).await?,
        None => inside.open_terminal(&query_of(&args.command, size, settings)).await?,
    };
    let raw = Raw::enter()?;
    let shown = show(&mut terminal).await;
    drop(raw);
    if shown.is_err() {
        output.notice(&format!("\nsandbox: come back with `shell {} --attach {}`", args.id, terminal.id()));
    }
    shown
}

fn query_of(command: &[String], (cols, rows): (u16, u16), settings: &Settings) -> OpenQuery {
    let command = match command {
        [] => None,
        [script] => Some(script.clone()),
        words => Some(words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" ")),
    };
    let base = OpenQuery::default();
    let term = settings.terminal().unwrap_or_else(|| base.term.clone());
    OpenQuery { cols, rows, command, term, ..base }
}

/// Passes everything on until the terminal ends.
async fn show(terminal: &mut Terminal) -> Result<ExitCode, Failure> {
    let mut keys = streams::stdin();
    let mut resized = heard(SignalKind::window_change())?;
    let mut typing = true;
    loop {
        tokio::select! {
            told = terminal.next() => match told? {
                Told::Bytes(bytes) => write(&bytes)?,
                Told::Gap(bytes) => write(format!("\r\n[{bytes} bytes are lost]\r\n").as_bytes())?,
                Told::Writer(true) => {}
                Told::Writer(false) => write(b"\r\n[somebody else types now]\r\n")?,
                Told::Back => write(b"\r\n[connected again]\r\n")?,
                Told::Exit { exit_code, signal } => return exit_of(exit_code, signal),
            },
            key = keys.recv(), if typing => match key {
                Some(Ok(mut bytes)) => while !bytes.is_empty() {
                    terminal.type_in(bytes.split_to(bytes.len().min(PTY_INPUT_BYTES_MAX))).await;
                },
                Some(Err(error)) => return Err(Failure::local(format!("cannot read the terminal: {error}"))),
                None => typing = false,
            },
            _ = resized.recv() => terminal.resize(size()).await,
        }
    }
}

fn exit_of(exit_code: Option<i32>, signal: Option<i32>) -> Result<ExitCode, Failure> {
    match exit_code.or(signal.map(|signal| 128 + signal)) {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        None => {
            let message = "the terminal was ended".to_owned();
            Err(Failure { exit: Exit::Caller, code: "ended".into(), message, retryable: false })
        }
    }
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| Failure::local(format!("cannot write to the terminal: {error}")))
}

/// Columns and rows of this terminal.
fn size() -> (u16, u16) {
    match tcgetwinsize(std::io::stdin()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (size.ws_col.min(PTY_COLS_MAX), size.ws_row.min(PTY_ROWS_MAX))
        }
        Ok(_) | Err(_) => (COLS_DEFAULT, ROWS_DEFAULT),
    }
}

/// This terminal, passing every key on, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> Result<Self, Failure> {
        let failed = |error| Failure::local(format!("cannot set the terminal: {error}"));
        let before = tcgetattr(std::io::stdin()).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0) {
            tracing::warn!(%error, "the terminal stays as it was set");
        }
    }
}
