//! Session channels: a program inside the sandbox, whose streams are the client's.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use russh::Sig;
use sandbox_process::upgrade::Stream as Upgraded;
use sandbox_protocol::channel::{Exit, FromProgram, Program, Start, ToProgram, stdin_head};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::limits::{CHANNEL_FRAME_BYTES_MAX, CHANNEL_WINDOW_BYTES};
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::backlog::Intake;
use crate::guest::{Guest, Served, Word};
use crate::limits::DRAIN_MAX;
use crate::listening;
use crate::outlet::{Gone, Outlet, Stream};
use crate::sidecar::{SidecarError, read_frame, write_with_head};

/// Where programs look for an agent.
const AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// What a client is told of a program that could not be run, as its own program tells it of a connection that failed.
const NOT_RUN: u32 = 255;

/// A session channel whose program has not been named yet.
pub(crate) struct Pending {
    pub(crate) served: Served,
    /// The way to the sidecar, which is paved while the client makes up its mind.
    pub(crate) dialled: AbortOnDropHandle<Result<Upgraded, SidecarError>>,
    pub(crate) start: Start,
    /// Whether the program may use the client's agent.
    pub(crate) agent: bool,
}

/// How serving a program ended.
enum End {
    Exited(Exit),
    NotRun(SidecarError),
    Closed,
    Expelled,
}

/// Serves the channel with `pending.start.program` until that has ended or the client has closed it.
pub(crate) async fn serve(guest: Arc<Guest>, pending: Pending) {
    let Pending { mut served, dialled, mut start, agent } = pending;
    guest.opened(served.id, kind(&start.program), detail(&start.program));
    if agent {
        match listening::agent(&guest).await {
            Ok(path) => {
                start.env.insert(AGENT_VARIABLE.to_owned(), path);
            }
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "no way to an agent"),
        }
    }
    start.env.extend(guest.name.ends.env());
    let end = carry(&guest, &mut served, dialled, start).await;
    let told = tell(&served, &end).await;
    let text = match (end, told) {
        (End::Exited(Exit { signal: Some(signal), .. }), _) => format!("signal {signal}"),
        (End::Exited(Exit { exit_code, .. }), _) => format!("exit {}", exit_code.unwrap_or_default()),
        (End::NotRun(error), _) => error.to_string(),
        (End::Closed, _) => "closed".to_owned(),
        (End::Expelled, _) => "expelled".to_owned(),
    };
    guest.done(&served, text).await;
}

const fn kind(program: &Program) -> &'static str {
    match program {
        Program::Shell => "shell",
        Program::Command { .. } => "command",
        Program::Sftp => "sftp",
    }
}

fn detail(program: &Program) -> String {
    match program {
        Program::Command { command: ByteText(command) } => String::from_utf8_lossy(command).into_owned(),
        Program::Shell | Program::Sftp => String::new(),
    }
}

async fn carry(
    guest: &Guest,
    served: &mut Served,
    dialled: AbortOnDropHandle<Result<Upgraded, SidecarError>>,
    start: Start,
) -> End {
    let closed = served.closed.clone();
    let Served { outlet, intake, words, .. } = served;
    let drained = async {
        closed.cancelled().await;
        sleep(DRAIN_MAX).await;
    };
    let carrying = async {
        let stream = match dialled.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return End::NotRun(error),
            Err(error) => return End::NotRun(std::io::Error::other(error).into()),
        };
        let (mut reader, mut writer) = split(stream);
        if let Err(error) = begin(&mut reader, &mut writer, start).await {
            return End::NotRun(error);
        }
        let credit = Semaphore::new(CHANNEL_WINDOW_BYTES);
        let upwards = Up { guest, intake, closed: &closed, credit: &credit };
        tokio::select! {
            end = down(guest, outlet, &closed, &mut reader, &credit) => end,
            end = upwards.carry(words, &mut writer) => end,
        }
    };
    tokio::select! {
        end = carrying => end,
        () = drained => End::Closed,
        () = guest.left.cancelled() => End::Closed,
    }
}

async fn begin(
    reader: &mut ReadHalf<Upgraded>,
    writer: &mut WriteHalf<Upgraded>,
    start: Start,
) -> Result<(), SidecarError> {
    let mut bytes = BytesMut::new();
    ToProgram::Start(start).encode(&mut bytes);
    writer.write_all(&bytes).await?;
    match read_frame(reader).await? {
        Some(FromProgram::Started) => Ok(()),
        Some(FromProgram::Refused(refused)) => {
            Err(SidecarError::Refused { code: Some(refused.code), message: refused.message })
        }
        Some(_) | None => Err(broken()),
    }
}

fn broken() -> SidecarError {
    SidecarError::Unreachable(std::io::ErrorKind::UnexpectedEof.into())
}

/// Passes on what the program writes, until it has ended. Where the client has closed the channel it is read all the same:
/// the program may have to write before it reads what the client sent.
async fn down(
    guest: &Guest,
    outlet: &Outlet,
    closed: &CancellationToken,
    reader: &mut ReadHalf<Upgraded>,
    credit: &Semaphore,
) -> End {
    loop {
        let sent = match read_frame(reader).await {
            Ok(Some(FromProgram::Stdout(bytes))) => outlet.send(Stream::Data, bytes).await,
            Ok(Some(FromProgram::Stderr(bytes))) => outlet.send(Stream::Stderr, bytes).await,
            Ok(Some(FromProgram::Taken(count))) => {
                let room = CHANNEL_WINDOW_BYTES.saturating_sub(credit.available_permits());
                credit.add_permits(room.min(count as usize));
                continue;
            }
            Ok(Some(FromProgram::Exit(exit))) => return End::Exited(exit),
            Ok(Some(FromProgram::Started | FromProgram::Refused(_)) | None) => return End::NotRun(broken()),
            Err(error) => return End::NotRun(error),
        };
        guest.room.touch();
        if sent.is_err() && !closed.is_cancelled() {
            return End::Closed;
        }
    }
}

/// What passes on what a client says.
struct Up<'a> {
    guest: &'a Guest,
    intake: &'a Intake,
    closed: &'a CancellationToken,
    credit: &'a Semaphore,
}

impl Up<'_> {
    /// Until the client has closed the channel and all is passed on. Signals and sizes do not wait for bytes that the
    /// program does not read.
    async fn carry(&self, words: &mut mpsc::Receiver<Word>, writer: &mut WriteHalf<Upgraded>) -> End {
        let (mut held, mut ended): (Option<Bytes>, bool) = (None, false);
        loop {
            let wanted = held.as_ref().map_or(0, Bytes::len);
            let wrote = tokio::select! {
                biased;
                () = self.guest.expelled.cancelled() => {
                    let told = say(writer, &ToProgram::End).await;
                    tracing::debug!(?told, "a program is ended with its guest");
                    return End::Expelled;
                }
                Some(word) = words.recv() => say(writer, &said(word)).await,
                next = self.intake.next(CHANNEL_FRAME_BYTES_MAX), if held.is_none() && !ended => match next {
                    Some(bytes) => {
                        held = Some(bytes);
                        Ok(())
                    }
                    None => {
                        ended = true;
                        say(writer, &ToProgram::StdinEof).await
                    }
                },
                Ok(permit) = self.credit.acquire_many(wanted as u32), if held.is_some() => {
                    permit.forget();
                    let bytes = held.take().unwrap_or_default();
                    write_with_head(writer, &stdin_head(bytes.len()), &bytes).await
                }
                () = self.closed.cancelled(), if ended => return End::Closed,
            };
            if wrote.is_err() {
                // How the program ended comes the other way.
                std::future::pending::<()>().await;
            }
        }
    }
}

fn said(word: Word) -> ToProgram {
    match word {
        Word::Resize(size) => ToProgram::Resize(size),
        Word::Signal(signal) => ToProgram::Signal(signal),
    }
}

async fn say(writer: &mut WriteHalf<Upgraded>, frame: &ToProgram) -> std::io::Result<()> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    writer.write_all(&bytes).await
}

async fn tell(served: &Served, end: &End) -> Result<(), Gone> {
    let outlet = &served.outlet;
    match end {
        End::Exited(Exit { signal: Some(signal), core_dumped, .. }) => {
            outlet.end().await?;
            outlet.killed(named(*signal), *core_dumped).await
        }
        End::Exited(Exit { exit_code, .. }) => {
            outlet.end().await?;
            outlet.exited(exit_code.unwrap_or_default().cast_unsigned()).await
        }
        End::NotRun(error) => {
            outlet.send(Stream::Stderr, Bytes::from(format!("sandbox: {error}\r\n"))).await?;
            outlet.end().await?;
            outlet.exited(NOT_RUN).await
        }
        End::Closed | End::Expelled => Ok(()),
    }
}

/// A signal's name as RFC 4254 section 6.10 has it; others are told as the kernel calls them.
fn named(signal: i32) -> Sig {
    match signal {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        12 => Sig::Custom("USR2".to_owned()),
        5 => Sig::Custom("TRAP@openssh.com".to_owned()),
        7 => Sig::Custom("BUS@openssh.com".to_owned()),
        31 => Sig::Custom("SYS@openssh.com".to_owned()),
        other => Sig::Custom(format!("SIG{other}@openssh.com")),
    }
}
