//! All events of an execution, added up.

use bytes::{Bytes, BytesMut};
use sandbox_protocol::fsp::{Ended, Status, Stream, Usage};

use crate::connection::Event;

/// Adds up the events of one execution, and keeps so many bytes of each stream at most.
#[derive(Debug)]
pub struct Accumulator {
    bytes_max: usize,
    status: Option<Status>,
    stdout: BytesMut,
    stderr: BytesMut,
    dropped_bytes: u64,
    received_bytes: u64,
    lost_bytes: u64,
    ended: Option<Ended>,
}

/// What became of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Exit code; `None` for a program that was killed.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended it, where the sandbox tells.
    pub signal: Option<i32>,
    /// What it wrote, as much as was kept.
    pub stdout: Bytes,
    /// What it wrote, as much as was kept.
    pub stderr: Bytes,
    /// Bytes of both that came and were not kept.
    pub dropped_bytes: u64,
    /// Bytes of both that the sandbox had forgotten before they came.
    pub lost_bytes: u64,
    /// Wall-clock time.
    pub duration_ms: u64,
    /// What it took, as far as the kernel told.
    pub usage: Option<Usage>,
}

impl Accumulator {
    /// Keeps at most `bytes_max` of each stream.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            status: None,
            stdout: BytesMut::new(),
            stderr: BytesMut::new(),
            dropped_bytes: 0,
            received_bytes: 0,
            lost_bytes: 0,
            ended: None,
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Status(status) => self.status = Some(status),
            Event::Output(stream, data) => self.keep(stream, &data),
            Event::Gap { bytes, .. } => self.lost_bytes = bytes.saturating_sub(self.received_bytes),
            Event::Ended(ended) => self.ended = Some(ended),
            Event::Ack | Event::Detached => {}
        }
    }

    /// Whether the state has come that a result follows.
    pub fn is_terminal(&self) -> bool {
        self.status.is_some_and(Status::is_terminal)
    }

    /// What was kept of stdout and stderr, whatever became of it.
    pub fn output(self) -> (Bytes, Bytes) {
        (self.stdout.freeze(), self.stderr.freeze())
    }

    /// What became of it; `None` where no result has come.
    pub fn outcome(self) -> Option<Outcome> {
        let Ended { exit_code, signal, duration_ms, resource_usage } = self.ended?;
        // The state may lie in a gap.
        let told = if exit_code == Some(0) { Status::Completed } else { Status::Failed };
        Some(Outcome {
            status: self.status.filter(|status| status.is_terminal()).unwrap_or(told),
            exit_code,
            signal,
            stdout: self.stdout.freeze(),
            stderr: self.stderr.freeze(),
            dropped_bytes: self.dropped_bytes,
            lost_bytes: self.lost_bytes,
            duration_ms,
            usage: resource_usage,
        })
    }

    fn keep(&mut self, stream: Stream, data: &[u8]) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = data.len().min(self.bytes_max - kept.len());
        kept.extend_from_slice(&data[..room]);
        self.dropped_bytes += (data.len() - room) as u64;
        self.received_bytes += data.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i32>) -> Event {
        Event::Ended(Ended { exit_code, signal: None, duration_ms: 7, resource_usage: None })
    }

    fn added(bytes_max: usize, events: impl IntoIterator<Item = Event>) -> Accumulator {
        let mut accumulator = Accumulator::new(bytes_max);
        events.into_iter().for_each(|event| accumulator.add(event));
        accumulator
    }

    #[test]
    fn streams_are_joined_apart_and_cut_at_the_bound() {
        let output = |stream, text: &'static str| Event::Output(stream, Bytes::from(text));
        let events = [
            Event::Ack,
            Event::Status(Status::Running),
            output(Stream::Stdout, "abc"),
            output(Stream::Stderr, "x"),
            output(Stream::Stdout, "def"),
            Event::Gap { from_seq: 6, to_seq: 9, bytes: 18 },
            Event::Status(Status::Failed),
            ended(Some(3)),
        ];
        let outcome = added(5, events).outcome().unwrap();
        assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"abcde"[..], &b"x"[..]));
        assert_eq!((outcome.dropped_bytes, outcome.lost_bytes), (1, 11));
        assert_eq!((outcome.status, outcome.exit_code, outcome.duration_ms), (Status::Failed, Some(3), 7));
    }

    #[test]
    fn without_a_result_there_is_no_outcome() {
        let running = added(9, [Event::Status(Status::Running)]);
        assert!(!running.is_terminal() && running.outcome().is_none());
        let told = added(9, [Event::Status(Status::Oom)]);
        assert!(told.is_terminal() && told.outcome().is_none());
    }

    #[test]
    fn a_result_tells_the_state_that_was_lost() {
        assert_eq!(added(9, [ended(Some(0))]).outcome().unwrap().status, Status::Completed);
        assert_eq!(added(9, [ended(None)]).outcome().unwrap().status, Status::Failed);
    }
}
