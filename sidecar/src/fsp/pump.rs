//! Tells a client of one execution, within the bytes that it granted, until the last event or until it wants no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_protocol::fsp::{Extension, Extensions, Frame, Kind, ServerBody, ServerMessage, Stream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::sending::{Gone, Outgoing, text};
use super::words;
use crate::exec::{Event, Execution, Reader, Told};

/// Bytes of output that may be sent. A message is sent whole as soon as there is one byte left, so it may end below
/// nought; the next waits until it is above again.
#[derive(Debug, Clone, Default)]
pub(super) struct Credit(Arc<Account>);

#[derive(Debug, Default)]
struct Account {
    left: AtomicI64,
    granted: Notify,
}

impl Credit {
    pub(super) fn of(bytes: u64) -> Self {
        let credit = Self::default();
        credit.grant(bytes);
        credit
    }

    /// A grant beyond all that can be sent is as good as that.
    pub(super) fn grant(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 2).min(i64::MAX / 2);
        let added = |left: i64| Some(left.saturating_add(bytes).min(i64::MAX / 2));
        // The closure never gives up, so neither does this.
        let _previous = self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        self.0.granted.notify_waiters();
    }

    async fn spend(&self, bytes: usize) {
        loop {
            let granted = self.0.granted.notified();
            if self.0.left.load(Ordering::Relaxed) > 0 {
                self.0.left.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
                return;
            }
            granted.await;
        }
    }
}

/// What a client is told of, and how.
pub(super) struct Pump {
    /// What the client calls it.
    pub(super) id: String,
    pub(super) execution: Arc<Execution>,
    pub(super) reader: Reader,
    pub(super) credit: Option<Credit>,
    pub(super) extensions: Extensions,
    pub(super) out: Outgoing,
    /// Cancelled when the client wants no more of it.
    pub(super) detached: CancellationToken,
}

impl Pump {
    /// Tells, with `first` before everything else.
    pub(super) async fn run(mut self, first: ServerBody) -> Result<(), Gone> {
        self.say(None, first).await?;
        loop {
            let execution = Arc::clone(&self.execution);
            let detached = self.detached.clone();
            let told = tokio::select! {
                biased;
                () = detached.cancelled() => return self.say(None, ServerBody::Detached).await,
                told = self.reader.next() => told,
                bytes = execution.stdin_granted(), if self.extensions.has(Extension::Stdin) => {
                    self.say(None, ServerBody::StdinCredit { bytes }).await?;
                    continue;
                }
            };
            let Some(told) = told else { return Ok(()) };
            match told {
                Told::Gap { from_seq, to_seq, bytes } => {
                    self.say(None, ServerBody::Gap { from_seq, to_seq, bytes }).await?;
                }
                Told::Event { seq, event } => {
                    let spent = detached.run_until_cancelled(self.tell(seq, event));
                    spent.await.unwrap_or(Ok(()))?;
                }
            }
        }
    }

    async fn tell(&self, seq: u64, event: Event) -> Result<(), Gone> {
        let body = match event {
            Event::Output(stream, bytes) => {
                if let Some(credit) = &self.credit {
                    credit.spend(bytes.len()).await;
                }
                return self.output(seq, stream, bytes).await;
            }
            Event::Status(status) => ServerBody::Status(status),
            Event::Result(mut ended) => {
                if !self.extensions.has(Extension::Signal) {
                    ended.signal = None;
                }
                ServerBody::Result(ended)
            }
            Event::Failed(error) => words::body(&error),
        };
        self.say(Some(seq), body).await
    }

    async fn output(&self, seq: u64, stream: Stream, data: Bytes) -> Result<(), Gone> {
        if !self.extensions.has(Extension::Binary) {
            return self.say(Some(seq), ServerBody::Output(stream, data)).await;
        }
        let frame = Frame { kind: Kind::Output(stream), id: self.id.clone(), seq: self.numbered(seq), data };
        self.out.tell(Message::Binary(frame.encode())).await
    }

    async fn say(&self, seq: Option<u64>, body: ServerBody) -> Result<(), Gone> {
        let seq = seq.and_then(|seq| self.numbered(seq));
        self.out.tell(text(&ServerMessage { id: Some(self.id.clone()), seq, body })).await
    }

    fn numbered(&self, seq: u64) -> Option<u64> {
        self.extensions.has(Extension::Replay).then_some(seq)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn one_byte_of_credit_sends_a_message_and_none_sends_nothing() {
        let credit = Credit::of(1);
        assert!(credit.spend(100).now_or_never().is_some());
        assert!(credit.spend(1).now_or_never().is_none());
        credit.grant(99);
        assert!(credit.spend(1).now_or_never().is_none());
        credit.grant(1);
        assert!(credit.spend(1).now_or_never().is_some());
    }

    #[test]
    fn a_grant_without_bound_does_not_turn_over() {
        let credit = Credit::of(u64::MAX);
        credit.grant(u64::MAX);
        assert!(credit.spend(usize::MAX / 8).now_or_never().is_some());
        assert!(credit.spend(1).now_or_never().is_some());
    }
}
