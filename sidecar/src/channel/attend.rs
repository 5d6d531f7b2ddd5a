//! A program's life: with an operator's connection, and without one after it.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::unistd::Pid;
use sandbox_protocol::channel::{Exit, FromProgram, ToProgram, stderr_head, stdout_head};
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::output::{Closes, Source, Teller, pump};
use super::program::{Control, Ends, Program};
use super::stdin::{Queue, feed};
use super::{Place, frames};
use crate::exec::{Record, Reports, tree};
use crate::limits::FAREWELL_MAX;

/// Why a program has no connection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It has ended.
    Ended,
    /// The operator is gone; the program may go on.
    Alone,
}

impl Program {
    /// Carries the program's streams until it has ended or the operator is gone, and sees it to its end.
    pub(crate) async fn attend<S>(mut self, connection: S, place: Place, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let (root, end) = (self.root(), CancellationToken::new());
        let left = self.converse(connection, &end, &stop).await;
        if let (Left::Alone, Ends::Terminal(tty)) = (left, &self.ends) {
            tty.hang_up();
        }
        drop(place);
        if left == Left::Alone && end.is_cancelled() {
            kill(root).await;
        }
        self.go_on(stop).await;
    }

    /// Both directions at once, so that neither waits for the other.
    async fn converse<S>(&mut self, connection: S, end: &CancellationToken, stop: &CancellationToken) -> Left
    where
        S: AsyncRead + AsyncWrite + Send,
    {
        let (root, stdin) = (self.root(), self.ends.take_stdin());
        let (reports, ends, control) = (&mut self.reports, &self.ends, Control::new(self.leader, &self.ends));
        let (mut reader, writer) = split(connection);
        let (teller, queue, ended) = (Teller::new(writer), Queue::default(), CancellationToken::new());
        if teller.tell(&FromProgram::Started).await.is_err() {
            return Left::Alone;
        }
        let told = async {
            let exit = async {
                let exit = exit(reports).await;
                ended.cancel();
                exit
            };
            let (exit, shown) = tokio::join!(exit, show(ends, &teller, &ended));
            shown?;
            teller.tell(&FromProgram::Exit(exit)).await?;
            teller.close().await
        };
        let fed = async {
            match (&stdin, ends) {
                (Some(pipe), _) => feed(pipe, &queue, &teller).await?,
                (None, Ends::Terminal(tty)) => feed(tty.typed(), &queue, &teller).await?,
                (None, Ends::Pipes { .. }) => {}
            }
            // Now a pipe has its end. A terminal has none that is not typed.
            drop(stdin);
            io::Result::Ok(())
        };
        let killed = async {
            tokio::select! {
                () = end.cancelled() => {}
                () = stop.cancelled() => {}
            }
            kill(root).await;
            // Time for the operator to hear of it.
            sleep(FAREWELL_MAX).await;
        };
        let heard = hear(&mut reader, &queue, control, end);
        tokio::select! {
            told = told => if told.is_ok() { Left::Ended } else { Left::Alone },
            Err(_) = fed => Left::Alone,
            () = heard => Left::Alone,
            () = killed => Left::Ended,
        }
    }

    /// Waits for the end of the program, however long that takes; the sidecar's own end brings it about.
    async fn go_on(self, stop: CancellationToken) {
        let root = self.root();
        let Self { mut supervisor, reports, ends, .. } = self;
        // A program that reads or writes hears by this that nobody is there.
        drop((reports, ends));
        let waited = match stop.run_until_cancelled(supervisor.wait()).await {
            Some(waited) => waited,
            None => {
                kill(root).await;
                supervisor.wait().await
            }
        };
        if let Err(error) = waited {
            tracing::warn!(%error, "the end of a program's supervisor was lost");
        }
    }
}

/// Ends everything below the supervisor `root`, for which nobody has waited yet.
async fn kill(root: Option<Pid>) {
    if let Some(root) = root
        && let Err(undead) = tree::end(root).await
    {
        tracing::warn!(%root, %undead, "a program left processes behind");
    }
}

/// Passes on what the program writes, until it has `ended` and all of it has been.
async fn show<S: AsyncWrite>(ends: &Ends, teller: &Teller<S>, ended: &CancellationToken) -> io::Result<()> {
    match ends {
        Ends::Pipes { stdout, stderr, .. } => {
            let stdout = Source { pipe: stdout, head: stdout_head, closes: Closes::ForGood };
            let stderr = Source { pipe: stderr, head: stderr_head, closes: Closes::ForGood };
            tokio::try_join!(pump(stdout, teller, ended), pump(stderr, teller, ended)).map(|((), ())| ())
        }
        Ends::Terminal(tty) => {
            let shown = Source { pipe: tty.shown(), head: stdout_head, closes: Closes::ForNow };
            pump(shown, teller, ended).await
        }
    }
}

/// Does what the operator says, until it says no more or what makes no sense.
async fn hear(reader: &mut (impl AsyncRead + Unpin), queue: &Queue, control: Control<'_>, end: &CancellationToken) {
    loop {
        match frames::next(reader).await {
            Ok(ToProgram::Stdin(bytes)) => {
                if let Err(overrun) = queue.push(bytes) {
                    tracing::warn!(%overrun, "a channel was ended");
                    return;
                }
            }
            Ok(ToProgram::StdinEof) => queue.end(),
            Ok(ToProgram::Signal(signal)) => control.signal(signal),
            Ok(ToProgram::Resize(size)) => control.resize(size),
            Ok(ToProgram::End) => end.cancel(),
            Ok(ToProgram::Start(_)) => {
                tracing::warn!("a channel was ended: a second program for it");
                return;
            }
            Err(broken) => {
                tracing::debug!(error = &broken as &dyn std::error::Error, "a channel was left");
                return;
            }
        }
    }
}

/// Waits for the program's end; nothing is known of one whose supervisor ended first.
async fn exit(reports: &mut Reports) -> Exit {
    loop {
        match reports.next().await {
            Some(Record::Begun { .. }) => {}
            Some(Record::Ended { status, .. }) => {
                let status = ExitStatus::from_raw(status);
                let (exit_code, signal, core_dumped) = (status.code(), status.signal(), status.core_dumped());
                return Exit { exit_code, signal, core_dumped };
            }
            Some(Record::Over { .. }) | None => {
                return Exit { exit_code: None, signal: None, core_dumped: false };
            }
        }
    }
}
