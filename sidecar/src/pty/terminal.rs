//! One terminal: its life from the first prompt to the end of the last process.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sandbox_protocol::limits::PTY_KEPT_BYTES;
use sandbox_protocol::pty::{PtyBody, PtyCause, PtyEnd};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::screen::{Held, Screen, Size};
use super::tty::Tty;
use crate::exec::{Record, Reports, tree};
use crate::limits::{PTY_CLOSED_PAUSE, PTY_HANGUP_MAX, PTY_READ_BYTES, PTY_STALL_MAX};

/// A terminal, shared by its viewers and the task that keeps it.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) id: String,
    command: Option<String>,
    pub(super) tty: Tty,
    screen: Mutex<Screen>,
    /// Told whenever somebody may have something to do.
    pub(super) changed: watch::Sender<()>,
    pub(super) viewers: watch::Sender<usize>,
    /// Why it is to end.
    closing: watch::Sender<Option<PtyCause>>,
    /// It has ended, with all its processes.
    pub(super) over: CancellationToken,
    /// It is not in the table any more.
    pub(super) forgotten: CancellationToken,
}

/// The process behind a terminal: a supervisor, and what it reports.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) supervisor: Child,
    pub(super) report: Reports,
}

impl Terminal {
    pub(super) fn new(id: String, command: Option<String>, tty: Tty, size: Size) -> Self {
        Self {
            id,
            command,
            tty,
            screen: Mutex::new(Screen::new(size)),
            changed: watch::Sender::new(()),
            viewers: watch::Sender::new(0),
            closing: watch::Sender::new(None),
            over: CancellationToken::new(),
            forgotten: CancellationToken::new(),
        }
    }

    pub(super) fn body(&self) -> PtyBody {
        let screen = self.screen();
        let ((kept_from, offset), size) = (screen.offsets(), screen.size());
        PtyBody {
            id: self.id.clone(),
            command: self.command.clone(),
            cols: size.cols,
            rows: size.rows,
            kept_from,
            offset,
            viewers: screen.viewers(),
            writer: screen.has_writer(),
            ended: screen.ended(),
        }
    }

    /// Has it end, unless it is ending already.
    pub(super) fn close(&self, cause: PtyCause) {
        self.closing.send_if_modified(|closing| closing.is_none().then(|| *closing = Some(cause)).is_some());
        self.screen().ending();
        self.changed.send_replace(());
    }

    /// Whether nobody would miss it.
    pub(super) fn is_remembered_only(&self) -> bool {
        let screen = self.screen();
        screen.ended().is_some() && screen.viewers() == 0
    }

    /// No code panics while it holds the lock but for a broken invariant of the screen's own.
    pub(super) fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Screen)) {
        change(&mut self.screen());
        self.changed.send_replace(());
    }

    /// Gives the terminal a size.
    pub(super) fn resize(&self, screen: &mut Screen, size: Size) {
        match self.tty.resize(size) {
            Ok(()) => screen.resized(size),
            Err(error) => tracing::warn!(id = self.id, %error, "a terminal was not resized"),
        }
    }

    /// Keeps the terminal until all its processes have ended: by themselves, because it is closed, or because nobody has
    /// viewed it for the time `keep`.
    pub(super) async fn live(&self, mut shell: Shell, keep: Duration) -> PtyEnd {
        let gone = CancellationToken::new();
        let ending = async {
            let end = self.ending(&mut shell, keep).await;
            // An id is there as long as nobody has waited for the child to its end.
            if let Some(supervisor) = shell.supervisor.id().and_then(|id| i32::try_from(id).ok())
                && let Err(undead) = tree::end(Pid::from_raw(supervisor)).await
            {
                tracing::warn!(id = self.id, %undead, "a terminal left processes behind");
            }
            if let Err(error) = shell.supervisor.wait().await {
                tracing::warn!(id = self.id, %error, "the end of a terminal's supervisor was lost");
            }
            gone.cancel();
            end
        };
        let (end, ()) = tokio::join!(ending, self.show_all(&gone));
        self.change(|screen| screen.end(end));
        self.over.cancel();
        end
    }

    /// Waits for the shell's end, or for a reason to end it and then a little for it to end by itself.
    async fn ending(&self, shell: &mut Shell, keep: Duration) -> PtyEnd {
        let mut closing = self.closing.subscribe();
        let cause = tokio::select! {
            biased;
            end = reported(&mut shell.report) => {
                self.change(Screen::ending);
                return end;
            }
            closing = closing.wait_for(Option::is_some) => closing.ok().and_then(|cause| *cause).unwrap_or(PtyCause::Stopped),
            () = self.abandoned(keep) => PtyCause::Abandoned,
        };
        self.close(cause);
        self.tty.hang_up();
        let ended = timeout(PTY_HANGUP_MAX, reported(&mut shell.report)).await;
        let killed = PtyEnd { cause, exit_code: None, signal: Some(Signal::SIGKILL as i32) };
        ended.map_or(killed, |end| PtyEnd { cause, ..end })
    }

    async fn abandoned(&self, keep: Duration) {
        let mut viewers = self.viewers.subscribe();
        while viewers.wait_for(|viewers| *viewers == 0).await.is_ok() {
            if timeout(keep, viewers.wait_for(|viewers| *viewers > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Reads what the terminal shows until all its processes are `gone`, and then what they left.
    async fn show_all(&self, gone: &CancellationToken) {
        let mut buffer = vec![0; PTY_READ_BYTES];
        while gone.run_until_cancelled(self.show_some(&mut buffer)).await.is_some() {
            consume_budget().await;
        }
        let mut left = PTY_KEPT_BYTES;
        while let Ok(read @ 1..) = self.tty.read_now(&mut buffer)
            && left > 0
        {
            self.change(|screen| screen.show(&buffer[..read]));
            left = left.saturating_sub(read);
        }
    }

    async fn show_some(&self, buffer: &mut [u8]) {
        self.room().await;
        match self.tty.read(buffer).await {
            Ok(read @ 1..) => self.change(|screen| screen.show(&buffer[..read])),
            // No process has the terminal open now; the shell, whose it is, can open it again.
            Ok(0) => sleep(PTY_CLOSED_PAUSE).await,
            Err(error) => {
                if error.raw_os_error() != Some(Errno::EIO as i32) {
                    tracing::warn!(id = self.id, %error, "a terminal cannot be read");
                }
                sleep(PTY_CLOSED_PAUSE).await;
            }
        }
    }

    /// Waits as long as viewers may hold up the terminal's programs.
    async fn room(&self) {
        if self.screen().held() == Held::No {
            return;
        }
        let (mut changed, patience) = (self.changed.subscribe(), Instant::now() + PTY_STALL_MAX);
        loop {
            let held = self.screen().held();
            let waited = match held {
                Held::No => return,
                Held::ByAll => changed.changed().await.is_ok(),
                Held::BySome => timeout_at(patience, changed.changed()).await.is_ok(),
            };
            if !waited {
                return self.screen().let_go();
            }
        }
    }
}

/// How the shell ended; nothing is known of one whose supervisor ended first.
async fn reported(report: &mut Reports) -> PtyEnd {
    let status = loop {
        match report.next().await {
            Some(Record::Begun { .. }) => {}
            Some(Record::Ended { status, .. }) => break Some(ExitStatus::from_raw(status)),
            Some(Record::Over { .. }) | None => break None,
        }
    };
    PtyEnd {
        cause: PtyCause::Exited,
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    }
}
