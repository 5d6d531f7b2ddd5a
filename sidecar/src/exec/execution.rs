//! One execution as others see it: its name, what it tells, and what may be done to it.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::signal::{self, killpg};
use nix::unistd::Pid;
use sandbox_protocol::fsp::{Ended, Signal, Status};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::ExecError;
use super::feed::{Budget, Event, Feed, Keep, Reader};
use super::order::Order;
use super::output::Meter;
use super::stdin::{Inlet, NotTaken, Pieces};
use crate::limits::SUMMARY_CHARS_MAX;

/// A signal as the kernel knows it.
pub(crate) const fn of_the_kernel(signal: Signal) -> signal::Signal {
    match signal {
        Signal::Hup => signal::SIGHUP,
        Signal::Int => signal::SIGINT,
        Signal::Quit => signal::SIGQUIT,
        Signal::Kill => signal::SIGKILL,
        Signal::Usr1 => signal::SIGUSR1,
        Signal::Usr2 => signal::SIGUSR2,
        Signal::Term => signal::SIGTERM,
        Signal::Cont => signal::SIGCONT,
        Signal::Stop => signal::SIGSTOP,
    }
}

/// An execution that was accepted.
#[derive(Debug)]
pub struct Execution {
    id: String,
    fingerprint: u64,
    keep: Keep,
    /// The beginning of its code.
    headline: String,
    accepted: Instant,
    feed: Feed,
    pub(super) meter: Meter,
    pub(super) cancelled: CancellationToken,
    inlet: Option<Inlet>,
    pieces: Mutex<Option<Pieces>>,
    /// Process that leads its group; 0 while there is none.
    leader: AtomicI32,
    standing: Mutex<Standing>,
}

/// How far an execution has come.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// `None` while it waits for a place.
    pub status: Option<Status>,
    /// How it ended.
    pub ended: Option<Ended>,
    /// Why it has no result.
    pub error: Option<ExecError>,
    /// When it ended, either way.
    pub over_at: Option<Instant>,
}

/// A signal that reached nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("signal: nothing runs that could get it")]
pub struct NotRunning;

impl Execution {
    pub(super) fn new(id: &str, fingerprint: u64, order: &Order, keep: Keep, budget: Budget) -> Self {
        let (inlet, pieces) = order.stream_stdin.then(Inlet::new).unzip();
        Self {
            id: id.to_owned(),
            fingerprint,
            keep,
            headline: order.code.chars().take(SUMMARY_CHARS_MAX).collect(),
            accepted: Instant::now(),
            feed: Feed::new(keep, budget),
            meter: Meter::new(order.limits.output),
            cancelled: CancellationToken::new(),
            inlet,
            pieces: Mutex::new(pieces),
            leader: AtomicI32::new(0),
            standing: Mutex::default(),
        }
    }

    /// What it goes by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The beginning of its code.
    pub fn headline(&self) -> &str {
        &self.headline
    }

    /// When it was accepted.
    pub fn accepted(&self) -> Instant {
        self.accepted
    }

    /// Whether it is remembered, and outlives who asked for it.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Something was written that is not told, for it was too much.
    pub fn was_cut(&self) -> bool {
        self.meter.has_cut()
    }

    /// How far it has come.
    pub fn standing(&self) -> Standing {
        self.standing_now().clone()
    }

    /// Number of the last event that it told.
    pub fn last_seq(&self) -> u64 {
        self.feed.last()
    }

    /// Reads what it tells after the event of this number.
    pub fn reader(&self, after: u64) -> Reader {
        self.feed.reader(after)
    }

    /// Ends it with all that it started. Repeatable.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Sends a signal to its process group.
    ///
    /// # Errors
    /// It does not run, or has left its group.
    pub fn signal(&self, signal: Signal) -> Result<(), NotRunning> {
        let signal = of_the_kernel(signal);
        match self.leader.load(Ordering::Relaxed) {
            0 => Err(NotRunning),
            leader => killpg(Pid::from_raw(leader), signal).map_err(|_: Errno| NotRunning),
        }
    }

    /// Hands over stdin.
    ///
    /// # Errors
    /// Nothing was taken.
    pub fn send_stdin(&self, data: Bytes, eof: bool) -> Result<(), NotTaken> {
        self.inlet.as_ref().ok_or(NotTaken::Closed)?.send(data, eof)
    }

    /// Bytes of stdin that may be sent anew, once there are any; never where it is not streamed.
    pub async fn stdin_granted(&self) -> u64 {
        match &self.inlet {
            Some(inlet) => inlet.granted().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.feed.weight()
    }

    /// Where stdin is streamed from; once.
    pub(super) fn streamed(&self) -> Option<(&Inlet, Pieces)> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        self.inlet.as_ref().map(|inlet| (inlet, pieces))
    }

    pub(super) fn led_by(&self, leader: i32) {
        self.leader.store(leader, Ordering::Relaxed);
    }

    pub(super) fn tell_status(&self, status: Status) {
        self.standing_now().status = Some(status);
        self.feed.tell(Event::Status(status));
    }

    pub(super) fn tell_result(&self, status: Status, ended: Ended) {
        let mut standing = self.standing_now();
        (standing.status, standing.ended) = (Some(status), Some(ended.clone()));
        standing.over_at = Some(Instant::now());
        drop(standing);
        self.feed.tell(Event::Status(status));
        self.feed.tell(Event::Result(ended));
    }

    pub(super) fn tell_error(&self, error: ExecError) {
        let mut standing = self.standing_now();
        standing.error = Some(error.clone());
        standing.over_at = Some(Instant::now());
        drop(standing);
        self.feed.tell(Event::Failed(error));
    }

    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn standing_now(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn for_test(id: &str, fingerprint: u64, keep: Keep) -> Self {
        use super::order::{Limits, OutputLimit, Place};
        let order = Order {
            language: sandbox_protocol::fsp::Language::Shell,
            code: "true".into(),
            place: Place::Fresh,
            env: Default::default(),
            stdin: Bytes::new(),
            stream_stdin: false,
            limits: Limits::of_command(std::time::Duration::from_secs(1), OutputLimit::End(1)),
        };
        Self::new(id, fingerprint, &order, keep, Budget::default())
    }
}
