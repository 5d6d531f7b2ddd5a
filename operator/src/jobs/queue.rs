//! The way from the chain to the job router: calls come out by turns, each when there is a place for it.
//!
//! [`super::fair`] decides; here are the lock, the waiting and the places. A place is held from the moment a call comes
//! out until its [`Hold`] is dropped, and whoever holds it is told when the call is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use sandbox_protocol::{CallKey, Job, SandboxId};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::fair::{Bounds, Fair, Manner, Offered, Ticket};
use crate::limits::{CALLS_WAITING_EACH_MAX, CALLS_WAITING_MAX, JOBS_PER_SANDBOX_MAX};
use crate::records::CallRecord;

/// The queue. Clones share it.
#[derive(Clone)]
pub(crate) struct JobQueue(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Something may have become ready.
    ready: Notify,
    /// Counts the calls that were let go of.
    ended: watch::Sender<u64>,
}

struct State {
    fair: Fair,
    /// Calls that came out and are not let go of; whether somebody holds them, and how he is told to stop.
    out: HashMap<CallKey, (bool, CancellationToken)>,
    /// Calls that were left for another time.
    left: HashMap<CallKey, Ticket>,
    /// Whether some calls found no room and wait on disk.
    is_spilled: bool,
}

/// The right to work on a call; dropping it frees its place.
pub(crate) struct Hold {
    queue: JobQueue,
    key: CallKey,
    given_up: CancellationToken,
}

impl JobQueue {
    /// An empty queue for so many jobs at a time.
    pub(crate) fn new(jobs: usize) -> Self {
        let bounds = Bounds::of_jobs(jobs, JOBS_PER_SANDBOX_MAX, CALLS_WAITING_MAX, CALLS_WAITING_EACH_MAX);
        let state = State { fair: Fair::new(bounds), out: HashMap::new(), left: HashMap::new(), is_spilled: false };
        Self(Arc::new(Shared { state: Mutex::new(state), ready: Notify::new(), ended: watch::Sender::new(0) }))
    }

    /// Has a call wait for its turn. One that waits already, or is worked on, is not worked on twice.
    pub(crate) fn offer(&self, call: &CallRecord) {
        let Some(ticket) = ticket(call) else {
            return tracing::warn!(call = %call.key, job = call.job, "a call of an unknown job is left alone");
        };
        let mut state = self.state();
        if state.left.contains_key(&call.key) {
            return;
        }
        if state.fair.offer(ticket) == Offered::Full {
            tracing::debug!(call = %call.key, "the queue is full; the call waits on disk");
            state.is_spilled = true;
        }
        drop(state);
        self.0.ready.notify_one();
    }

    /// The calls by their turns. One stream takes them all.
    pub(crate) fn stream(&self) -> impl Stream<Item = Ticket> + Send + use<> {
        futures::stream::unfold(self.clone(), |queue| async {
            let ticket = queue.next().await;
            Some((ticket, queue))
        })
    }

    async fn next(&self) -> Ticket {
        loop {
            if let Some(ticket) = self.take() {
                return ticket;
            }
            self.0.ready.notified().await;
        }
    }

    fn take(&self) -> Option<Ticket> {
        let mut state = self.state();
        let ticket = state.fair.next()?;
        state.out.insert(ticket.key, (false, CancellationToken::new()));
        Some(ticket)
    }

    /// Takes hold of a call that came out; `None` where somebody has, or where it did not come out.
    pub(crate) fn hold(&self, key: CallKey) -> Option<Hold> {
        let mut state = self.state();
        let (is_held, given_up) = state.out.get_mut(&key).filter(|(is_held, _)| !is_held)?;
        *is_held = true;
        Some(Hold { queue: self.clone(), key, given_up: given_up.clone() })
    }

    /// Takes a call back, whether it waits or is worked on, and returns when nobody works on it any more.
    pub(crate) async fn withdraw(&self, key: CallKey) {
        let mut ended = self.0.ended.subscribe();
        {
            let mut state = self.state();
            state.left.remove(&key);
            state.fair.withdraw(key);
            if let Some((_, given_up)) = state.out.get(&key) {
                given_up.cancel();
            }
        }
        // The sender is this queue's own, so there is always another end to wait for.
        while self.state().fair.is_running(key) && ended.changed().await.is_ok() {}
    }

    /// Has the calls that were left for another time take their turn again. Whether there are others on disk that found no
    /// room, and would find some now.
    pub(crate) fn refill(&self) -> bool {
        let mut state = self.state();
        for (key, ticket) in std::mem::take(&mut state.left) {
            if state.fair.offer(ticket) == Offered::Full {
                state.left.insert(key, ticket);
            }
        }
        let has_room = state.is_spilled && state.fair.waiting() < CALLS_WAITING_EACH_MAX / 2;
        state.is_spilled &= !has_room;
        drop(state);
        self.0.ready.notify_one();
        has_room
    }

    /// How many calls are worked on.
    pub(crate) fn running(&self) -> usize {
        self.state().fair.running()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// The call.
    pub(crate) const fn key(&self) -> CallKey {
        self.key
    }

    /// Cancelled when the call is given up: nothing of it may be written any more.
    pub(crate) const fn given_up(&self) -> &CancellationToken {
        &self.given_up
    }

    /// Leaves the call for another time.
    pub(crate) fn leave(self, call: &CallRecord) {
        if let Some(ticket) = ticket(call)
            && !self.given_up.is_cancelled()
        {
            self.queue.state().left.insert(self.key, ticket);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.out.remove(&self.key);
        state.fair.done(self.key);
        drop(state);
        self.queue.0.ready.notify_one();
        self.queue.0.ended.send_modify(|ended| *ended += 1);
    }
}

/// The place of a call in the queue; `None` where its job is none of ours.
fn ticket(call: &CallRecord) -> Option<Ticket> {
    let job = Job::from_id(call.job)?;
    let (sandbox, manner) = match job {
        Job::SandboxCreate => (Some(SandboxId { origin: call.key, slot: 0 }), Manner::InTurn),
        Job::SandboxStop | Job::SandboxResume | Job::SandboxDelete | Job::SandboxSnapshot => {
            (sandbox_of(&call.inputs), Manner::InTurn)
        }
        Job::Exec | Job::Prompt | Job::Task => (sandbox_of(&call.inputs), Manner::Beside),
        Job::SshProvision | Job::SshRevoke => (sandbox_of(&call.inputs), Manner::Aside),
        Job::BatchCreate
        | Job::BatchTask
        | Job::BatchExec
        | Job::BatchCollect
        | Job::WorkflowCreate
        | Job::WorkflowTrigger
        | Job::WorkflowCancel => (None, Manner::Beside),
    };
    // What names no sandbox is refused by its handler, and changes nothing.
    let manner = if sandbox.is_none() { Manner::Beside } else { manner };
    Some(Ticket { key: call.key, job: call.job, caller: call.caller, sandbox, manner })
}

/// The sandbox that the first field of a request names. All requests that name one have it there, as text.
fn sandbox_of(inputs: &[u8]) -> Option<SandboxId> {
    const WORD: usize = 32;
    let number = |at: usize| {
        let word = inputs.get(at..at.checked_add(WORD)?)?;
        let (zeros, low) = word.split_at(WORD - size_of::<u32>());
        let low = u32::from_be_bytes(*low.first_chunk()?);
        zeros.iter().all(|byte| *byte == 0).then_some(low as usize)
    };
    let text = WORD + number(WORD)?;
    let begin = text + WORD;
    let bytes = inputs.get(begin..begin.checked_add(number(text)?)?)?;
    SandboxId::from_endpoint(std::str::from_utf8(bytes).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;
    use alloy::sol_types::SolValue as _;
    use futures::{FutureExt as _, StreamExt as _};
    use sandbox_protocol::abi::{ExecRequest, SandboxIdRequest, SshRevokeRequest};

    use super::*;

    fn call(number: u64, job: Job, inputs: Vec<u8>) -> CallRecord {
        CallRecord::seen(CallKey { service: 1, call: number }, job.id(), Address::ZERO, inputs.into(), 1)
    }

    fn delete(number: u64) -> CallRecord {
        call(number, Job::SandboxDelete, SandboxIdRequest { sandbox_id: "sbx-1-0-0".into() }.abi_encode())
    }

    #[test]
    fn a_call_waits_for_others_of_the_sandbox_that_it_names() {
        let id = SandboxId { origin: CallKey { service: 1, call: 7 }, slot: 3 };
        let exec = ExecRequest {
            sidecar_endpoint: "https://operator.example/sandboxes/sbx-1-7-3".into(),
            command: "true".into(),
            ..ExecRequest::default()
        };
        let found = ticket(&call(9, Job::Exec, exec.abi_encode())).unwrap();
        assert_eq!((found.sandbox, found.manner), (Some(id), Manner::Beside));
        let found = ticket(&call(9, Job::SandboxCreate, Vec::new())).unwrap();
        assert_eq!(found.sandbox, Some(SandboxId { origin: CallKey { service: 1, call: 9 }, slot: 0 }));
    }

    #[test]
    fn keys_are_nobodys_turn_but_their_own() {
        let request = SshRevokeRequest { sandbox_id: "sbx-1-7-3".into(), ..SshRevokeRequest::default() };
        let found = ticket(&call(9, Job::SshRevoke, request.abi_encode())).unwrap();
        let id = SandboxId { origin: CallKey { service: 1, call: 7 }, slot: 3 };
        assert_eq!((found.sandbox, found.manner), (Some(id), Manner::Aside));
    }

    #[test]
    fn inputs_that_name_no_sandbox_are_nobodys_turn() {
        let whole = SandboxIdRequest { sandbox_id: "sbx-1-0-0".into() }.abi_encode();
        assert!(sandbox_of(&whole).is_some());
        for length in 0..whole.len() {
            let cut = sandbox_of(&whole[..length]);
            assert!(cut.is_none() || length >= 96 + 9, "{length}");
        }
        assert_eq!(sandbox_of(&[0xff; 128]), None);
    }

    #[tokio::test]
    async fn a_call_comes_out_once_and_the_next_when_it_is_let_go_of() {
        let queue = JobQueue::new(4);
        queue.offer(&delete(1));
        queue.offer(&delete(2));
        let mut calls = std::pin::pin!(queue.stream());
        assert_eq!(calls.next().await.unwrap().key.call, 1);
        queue.offer(&delete(1));
        assert!(calls.next().now_or_never().is_none());
        let hold = queue.hold(delete(1).key).unwrap();
        assert!(queue.hold(delete(1).key).is_none());
        drop(hold);
        assert_eq!(calls.next().await.unwrap().key.call, 2);
    }

    #[tokio::test]
    async fn a_call_that_is_taken_back_while_it_is_worked_on_is_told_so_and_waited_for() {
        let queue = JobQueue::new(4);
        queue.offer(&delete(1));
        let _ticket = queue.next().await;
        let hold = queue.hold(delete(1).key).unwrap();
        let mut withdrawing = std::pin::pin!(queue.withdraw(delete(1).key));
        assert!(futures::poll!(withdrawing.as_mut()).is_pending());
        assert!(hold.given_up().is_cancelled());
        hold.leave(&delete(1));
        withdrawing.await;
        assert!(!queue.refill());
        assert!(queue.next().now_or_never().is_none(), "it does not come again");
    }

    #[tokio::test]
    async fn a_call_that_was_left_comes_again() {
        let queue = JobQueue::new(4);
        queue.offer(&delete(1));
        let _ticket = queue.next().await;
        queue.hold(delete(1).key).unwrap().leave(&delete(1));
        assert!(queue.next().now_or_never().is_none());
        queue.refill();
        assert_eq!(queue.next().await.key, delete(1).key);
    }
}
