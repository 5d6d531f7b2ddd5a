//! Which executions run, which have finished, and what a repeat of an id means. Starts nothing itself.
//!
//! An execution is forgotten when it failed to give a reply (it may then be asked for again) or when newer finished
//! ones need its room; the oldest finished goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sandbox_protocol::exec::ExecReply;
use sandbox_protocol::limits::{EXEC_FINISHED_BYTES_MAX, EXEC_FINISHED_MAX, EXEC_RUNNING_MAX};
use tokio::sync::watch;

use super::error::ExecError;
use super::request::Mode;

/// How an execution ended for those who wait for it.
pub(super) type Ending = Result<Arc<ExecReply>, ExecError>;

/// Tells the ending of a running execution, once there is one.
pub(super) type Awaited = watch::Receiver<Option<Ending>>;

/// What the registry answers to a request.
#[derive(Debug)]
pub(super) enum Admission {
    /// The id is new: run it, and publish its ending here after [`Registry::finish`].
    Start(watch::Sender<Option<Ending>>),
    /// It runs.
    Running(Awaited),
    /// It ran.
    Finished(Arc<ExecReply>),
}

#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Running(Awaited),
    Finished(Arc<ExecReply>),
}

/// All executions that a sidecar knows.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: HashMap<String, Entry>,
    /// Ids of the finished ones, oldest first.
    finished: VecDeque<String>,
    finished_bytes: usize,
    closed: bool,
}

impl Registry {
    /// Decides about a request for `id`; one that is to start counts as running from here on.
    pub(super) fn admit(&mut self, id: &str, fingerprint: u64, mode: Mode) -> Result<Admission, ExecError> {
        if let Some(entry) = self.entries.get(id) {
            return entry.attach(fingerprint);
        }
        if mode == Mode::AttachOnly {
            return Err(ExecError::Unknown);
        }
        if self.closed {
            return Err(ExecError::Ending);
        }
        if self.running() >= EXEC_RUNNING_MAX {
            return Err(ExecError::Full);
        }
        let (publish, awaited) = watch::channel(None);
        self.entries.insert(id.to_owned(), Entry { fingerprint, state: State::Running(awaited) });
        Ok(Admission::Start(publish))
    }

    /// Takes the ending of a running execution into memory, or forgets the execution where it has no reply.
    pub(super) fn finish(&mut self, id: &str, ending: &Ending) {
        let Ok(reply) = ending else {
            self.entries.remove(id);
            return;
        };
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.state = State::Finished(Arc::clone(reply));
        self.finished.push_back(id.to_owned());
        self.finished_bytes += kept_bytes(reply);
        while self.finished.len() > EXEC_FINISHED_MAX || self.finished_bytes > EXEC_FINISHED_BYTES_MAX {
            self.forget_oldest();
        }
    }

    /// From here on nothing new starts.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// How many executions run.
    pub(super) fn running(&self) -> usize {
        self.entries.len() - self.finished.len()
    }

    fn forget_oldest(&mut self) {
        let Some(id) = self.finished.pop_front() else { return };
        if let Some(Entry { state: State::Finished(reply), .. }) = self.entries.remove(&id) {
            self.finished_bytes -= kept_bytes(&reply);
        }
    }
}

impl Entry {
    fn attach(&self, fingerprint: u64) -> Result<Admission, ExecError> {
        if self.fingerprint != fingerprint {
            return Err(ExecError::Conflict);
        }
        Ok(match &self.state {
            State::Running(awaited) => Admission::Running(awaited.clone()),
            State::Finished(reply) => Admission::Finished(Arc::clone(reply)),
        })
    }
}

fn kept_bytes(reply: &ExecReply) -> usize {
    reply.stdout.0.len() + reply.stderr.0.len()
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::exec::{ByteText, ExecEnd};
    use sandbox_protocol::limits::EXEC_OUTPUT_BYTES_MAX;

    use super::*;

    fn reply(stdout_bytes: usize) -> Ending {
        Ok(Arc::new(ExecReply {
            id: String::new(),
            ended: ExecEnd::Exited,
            exit_code: 0,
            stdout: ByteText(vec![0; stdout_bytes]),
            stderr: ByteText::default(),
            truncated: false,
            duration_ms: 0,
        }))
    }

    fn start(registry: &mut Registry, id: &str) {
        assert!(matches!(registry.admit(id, 1, Mode::Start), Ok(Admission::Start(_))), "{id}");
    }

    fn run(registry: &mut Registry, id: &str, stdout_bytes: usize) {
        start(registry, id);
        registry.finish(id, &reply(stdout_bytes));
    }

    fn remembers(registry: &mut Registry, id: &str) -> bool {
        !matches!(registry.admit(id, 1, Mode::AttachOnly), Err(ExecError::Unknown))
    }

    #[test]
    fn a_repeat_attaches_while_it_runs_and_is_answered_after() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        for mode in [Mode::Start, Mode::AttachOnly] {
            assert!(matches!(registry.admit("a", 1, mode), Ok(Admission::Running(_))));
        }
        registry.finish("a", &reply(0));
        for mode in [Mode::Start, Mode::AttachOnly] {
            assert!(matches!(registry.admit("a", 1, mode), Ok(Admission::Finished(_))));
        }
    }

    #[test]
    fn another_request_under_a_known_id_is_a_conflict() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        assert!(matches!(registry.admit("a", 2, Mode::Start), Err(ExecError::Conflict)));
        registry.finish("a", &reply(0));
        assert!(matches!(registry.admit("a", 2, Mode::AttachOnly), Err(ExecError::Conflict)));
    }

    #[test]
    fn an_execution_without_a_reply_may_be_asked_for_again() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        registry.finish("a", &Err(ExecError::NoRoom));
        assert_eq!(registry.running(), 0);
        start(&mut registry, "a");
    }

    #[test]
    fn as_many_run_as_may_and_not_one_more() {
        let mut registry = Registry::default();
        for index in 0..EXEC_RUNNING_MAX {
            start(&mut registry, &index.to_string());
        }
        assert!(matches!(registry.admit("more", 1, Mode::Start), Err(ExecError::Full)));
        assert!(matches!(registry.admit("0", 1, Mode::Start), Ok(Admission::Running(_))));
        registry.finish("0", &reply(0));
        start(&mut registry, "more");
    }

    #[test]
    fn the_oldest_finished_is_forgotten_first_by_count() {
        let mut registry = Registry::default();
        for index in 0..EXEC_FINISHED_MAX {
            run(&mut registry, &index.to_string(), 0);
        }
        assert!(remembers(&mut registry, "0"));
        run(&mut registry, "more", 0);
        assert!(!remembers(&mut registry, "0") && remembers(&mut registry, "1"));
    }

    #[test]
    fn the_oldest_finished_is_forgotten_first_by_bytes() {
        let mut registry = Registry::default();
        for index in 0..EXEC_FINISHED_BYTES_MAX / EXEC_OUTPUT_BYTES_MAX {
            run(&mut registry, &index.to_string(), EXEC_OUTPUT_BYTES_MAX);
        }
        assert!(remembers(&mut registry, "0"));
        run(&mut registry, "more", 1);
        assert!(!remembers(&mut registry, "0") && remembers(&mut registry, "1"));
        assert!(registry.finished_bytes <= EXEC_FINISHED_BYTES_MAX);
    }

    #[test]
    fn a_closed_registry_attaches_but_starts_nothing() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        registry.close();
        assert!(matches!(registry.admit("a", 1, Mode::Start), Ok(Admission::Running(_))));
        assert!(matches!(registry.admit("b", 1, Mode::Start), Err(ExecError::Ending)));
    }
}
