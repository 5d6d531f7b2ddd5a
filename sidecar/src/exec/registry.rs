//! Which executions there are, which have ended, and what a repeat of an id means. Starts nothing itself.
//!
//! An execution is forgotten when it came to nothing for want of room (it may then be asked for again) or when newer
//! ended ones need its place; the oldest ended goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sandbox_protocol::limits::{EXEC_FINISHED_BYTES_MAX, EXEC_FINISHED_MAX, FSP_QUEUED_MAX, FSP_RUNNING_MAX};

use super::error::ExecError;
use super::execution::Execution;
use super::request::Mode;

/// What the registry answers to an order.
#[derive(Debug)]
pub(super) enum Admission {
    /// The id is new: run it, and [`end`](Registry::end) it.
    Start(Arc<Execution>),
    /// It is known: it runs or ran.
    Known(Arc<Execution>),
}

/// All executions that a sidecar knows.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// By their ids; `true` for those that have ended.
    entries: HashMap<String, (Arc<Execution>, bool)>,
    /// Ids of the ended ones, oldest first.
    ended: VecDeque<String>,
    ended_bytes: usize,
    closed: bool,
}

impl Registry {
    /// Decides about an order for `id`; one that is to start is counted from here on.
    pub(super) fn admit(
        &mut self,
        id: &str,
        fingerprint: u64,
        mode: Mode,
        new: impl FnOnce() -> Execution,
    ) -> Result<Admission, ExecError> {
        if let Some((execution, _)) = self.entries.get(id) {
            let same = execution.fingerprint() == fingerprint;
            return if same { Ok(Admission::Known(Arc::clone(execution))) } else { Err(ExecError::Conflict) };
        }
        if mode == Mode::AttachOnly {
            return Err(ExecError::Unknown);
        }
        if self.closed {
            return Err(ExecError::Ending);
        }
        if self.living() >= FSP_RUNNING_MAX + FSP_QUEUED_MAX {
            return Err(ExecError::Full);
        }
        let execution = Arc::new(new());
        self.entries.insert(id.to_owned(), (Arc::clone(&execution), false));
        Ok(Admission::Start(execution))
    }

    /// The execution of an id.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Execution>, ExecError> {
        self.entries.get(id).map(|(execution, _)| Arc::clone(execution)).ok_or(ExecError::Unknown)
    }

    /// All that live, then all that have ended, each oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Execution>> {
        let of = |id: &String| self.entries.get(id).map(|(execution, _)| Arc::clone(execution));
        let living = self.entries.values().filter(|(_, ended)| !ended);
        let mut all: Vec<_> = living.map(|(execution, _)| Arc::clone(execution)).collect();
        all.sort_by_key(|execution| execution.accepted());
        all.extend(self.ended.iter().filter_map(of));
        all
    }

    /// Takes note of an end; what is not to be remembered is forgotten.
    pub(super) fn end(&mut self, id: &str, remember: bool) {
        let Some((execution, ended)) = self.entries.get_mut(id) else { return };
        if *ended {
            return;
        }
        if !remember {
            self.entries.remove(id);
            return;
        }
        *ended = true;
        self.ended_bytes += execution.kept_bytes();
        self.ended.push_back(id.to_owned());
        while self.ended.len() > EXEC_FINISHED_MAX || self.ended_bytes > EXEC_FINISHED_BYTES_MAX {
            self.forget_oldest();
        }
    }

    /// From here on nothing new starts.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// How many have not ended.
    pub(super) fn living(&self) -> usize {
        self.entries.len() - self.ended.len()
    }

    /// What has ended tells nothing more, so its bytes are what they were.
    fn forget_oldest(&mut self) {
        let Some(id) = self.ended.pop_front() else { return };
        if let Some((execution, _)) = self.entries.remove(&id) {
            self.ended_bytes = self.ended_bytes.saturating_sub(execution.kept_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt as _;
    use sandbox_protocol::fsp::Stream;
    use sandbox_protocol::limits::FSP_CHUNK_BYTES_MAX;

    use super::super::feed::Keep;
    use super::*;

    fn start(registry: &mut Registry, id: &str) -> Arc<Execution> {
        match registry.admit(id, 1, Mode::Start, || Execution::for_test(id, 1, Keep::Yes)) {
            Ok(Admission::Start(execution)) => execution,
            other => panic!("{id}: {other:?}"),
        }
    }

    fn run(registry: &mut Registry, id: &str, bytes: usize) {
        let execution = start(registry, id);
        for chunk in vec![0; bytes].chunks(FSP_CHUNK_BYTES_MAX) {
            execution.feed().write(Stream::Stdout, Bytes::copy_from_slice(chunk)).now_or_never().unwrap();
        }
        registry.end(id, true);
    }

    fn remembers(registry: &Registry, id: &str) -> bool {
        registry.get(id).is_ok()
    }

    #[test]
    fn a_repeat_attaches_while_it_runs_and_after() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        for ended in [false, true] {
            for mode in [Mode::Start, Mode::AttachOnly] {
                let admission = registry.admit("a", 1, mode, || unreachable!());
                assert!(matches!(admission, Ok(Admission::Known(_))), "{ended}");
            }
            registry.end("a", true);
        }
    }

    #[test]
    fn another_request_under_a_known_id_is_a_conflict() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        assert!(matches!(registry.admit("a", 2, Mode::Start, || unreachable!()), Err(ExecError::Conflict)));
        registry.end("a", true);
        assert!(matches!(registry.admit("a", 2, Mode::AttachOnly, || unreachable!()), Err(ExecError::Conflict)));
    }

    #[test]
    fn an_execution_that_came_to_nothing_may_be_asked_for_again() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        registry.end("a", false);
        assert_eq!(registry.living(), 0);
        start(&mut registry, "a");
    }

    #[test]
    fn as_many_live_as_may_run_and_wait_and_not_one_more() {
        let mut registry = Registry::default();
        for index in 0..FSP_RUNNING_MAX + FSP_QUEUED_MAX {
            start(&mut registry, &index.to_string());
        }
        let more = registry.admit("more", 1, Mode::Start, || unreachable!());
        assert!(matches!(more, Err(ExecError::Full)));
        assert!(matches!(registry.admit("0", 1, Mode::Start, || unreachable!()), Ok(Admission::Known(_))));
        registry.end("0", true);
        start(&mut registry, "more");
    }

    #[test]
    fn the_oldest_ended_is_forgotten_first_by_count() {
        let mut registry = Registry::default();
        for index in 0..EXEC_FINISHED_MAX {
            run(&mut registry, &index.to_string(), 0);
        }
        assert!(remembers(&registry, "0"));
        run(&mut registry, "more", 0);
        assert!(!remembers(&registry, "0") && remembers(&registry, "1"));
    }

    #[test]
    fn the_oldest_ended_is_forgotten_first_by_bytes() {
        let mut registry = Registry::default();
        let each = 1024 * 1024;
        for index in 0..EXEC_FINISHED_BYTES_MAX / each + 1 {
            run(&mut registry, &index.to_string(), each);
        }
        assert!(!remembers(&registry, "0") && remembers(&registry, "2"));
        assert!(registry.ended_bytes <= EXEC_FINISHED_BYTES_MAX);
    }

    #[test]
    fn a_closed_registry_attaches_but_starts_nothing() {
        let mut registry = Registry::default();
        start(&mut registry, "a");
        registry.close();
        assert!(matches!(registry.admit("a", 1, Mode::Start, || unreachable!()), Ok(Admission::Known(_))));
        assert!(matches!(registry.admit("b", 1, Mode::Start, || unreachable!()), Err(ExecError::Ending)));
    }
}
