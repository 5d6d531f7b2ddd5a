//! Ends every process of an execution.
//!
//! Every execution has a supervisor (see `leader`) that adopts whatever its descendants leave behind, so all of them,
//! also those with a session of their own, stay below it in the tree of parents that `/proc` shows. The tree is first
//! held still, so that what forks cannot outrun the walk, then killed. The limit of it: a process that waits inside
//! the kernel cannot be killed by anyone, and where commands run as the sidecar's own user they can kill the
//! supervisor and so slip away.

use std::collections::{HashMap, HashSet};
use std::io;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::limits::{FREEZE_PASSES_MAX, KILL_MAX, KILL_PAUSE};

/// A process as its `/proc/<pid>/stat` describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    state: State,
}

/// Processes by their parents.
pub(super) struct Family(HashMap<i32, Vec<Process>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Moving,
    Stopped,
    Dead,
}

/// What is left of a tree that would not die in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{left} processes outlived SIGKILL by {} s", KILL_MAX.as_secs())]
pub(crate) struct Undead {
    left: usize,
}

/// Kills everything below `supervisor`, which must not have been waited for yet, and lets it tell and end.
pub(crate) async fn end(supervisor: Pid) -> Result<(), Undead> {
    // Stopped, it still adopts; running, it would follow its command out and let go of the rest.
    signal(supervisor, Signal::SIGSTOP);
    let ended = end_below(supervisor.as_raw()).await;
    signal(supervisor, if ended.is_ok() { Signal::SIGCONT } else { Signal::SIGKILL });
    ended
}

async fn end_below(root: i32) -> Result<(), Undead> {
    let deadline = Instant::now() + KILL_MAX;
    let mut passes = 0;
    loop {
        let left = look_below(root);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Undead { left: left.len() });
        }
        let frozen = left.iter().all(|process| process.state == State::Stopped);
        let next = if frozen || passes >= FREEZE_PASSES_MAX { Signal::SIGKILL } else { Signal::SIGSTOP };
        for process in &left {
            signal(Pid::from_raw(process.pid), next);
        }
        passes += 1;
        sleep(KILL_PAUSE).await;
    }
}

/// An id cannot have passed to another process since the look: ids come round only after all others were used.
fn signal(pid: Pid, signal: Signal) {
    if let Err(errno) = kill(pid, signal) {
        tracing::debug!(%pid, %signal, %errno, "a process of a tree was not signalled");
    }
}

/// Reads on the thread that it is called on: a sandbox full of processes has none to spare, and it takes milliseconds.
fn look_below(root: i32) -> Vec<Process> {
    Family::of(listed()).below(root)
}

/// All there are, or none where they cannot be listed.
pub(super) fn listed() -> Vec<Process> {
    all().unwrap_or_else(|error| {
        tracing::error!(%error, "cannot list processes");
        Vec::new()
    })
}

fn all() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // One that has gone since the listing has no file any more.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        processes.extend(parse(pid, &stat));
    }
    Ok(processes)
}

impl Family {
    pub(super) fn of(processes: Vec<Process>) -> Self {
        let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in processes {
            children.entry(process.parent).or_default().push(process);
        }
        Self(children)
    }

    /// The living among the descendants of `root`.
    pub(super) fn below(&self, root: i32) -> Vec<Process> {
        let mut found = Vec::new();
        let mut seen = HashSet::from([root]);
        let mut open = vec![root];
        while let Some(parent) = open.pop() {
            for process in self.0.get(&parent).into_iter().flatten() {
                if seen.insert(process.pid) {
                    open.push(process.pid);
                    found.push(*process);
                }
            }
        }
        found.retain(|process| process.state != State::Dead);
        found
    }
}

/// Reads `pid (name) state parent … threads …`; the name may hold anything, also `)`.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(15)?.parse().ok()?;
    let state = match state {
        // The first thread may be dead while others of the process go on.
        "Z" if threads > 1 => State::Moving,
        "Z" | "X" | "x" => State::Dead,
        "T" | "t" => State::Stopped,
        _ => State::Moving,
    };
    Some(Process { pid, parent, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stat: &str, expected: Option<(i32, State)>) {
        let found = parse(7, stat.as_bytes()).map(|process| (process.parent, process.state));
        assert_eq!(found, expected, "{stat:?}");
    }

    fn process(pid: i32, parent: i32, state: State) -> Process {
        Process { pid, parent, state }
    }

    fn pids(root: i32, processes: &[Process]) -> Vec<i32> {
        let mut pids: Vec<_> = Family::of(processes.to_vec()).below(root).iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let rest = "7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99";
        check(&format!("7 (sh) S 3 {rest}"), Some((3, State::Moving)));
        check(&format!("7 (a) R 1 (b) T 3 {rest}"), Some((3, State::Stopped)));
        check(&format!("7 (sh) t 3 {rest}"), Some((3, State::Stopped)));
        check(&format!("7 (sh) Z 3 {rest}"), Some((3, State::Dead)));
        check("7 (sh) S", None);
        check("", None);
    }

    #[test]
    fn a_process_whose_first_thread_alone_has_died_is_not_dead() {
        check("7 (sh) Z 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 99", Some((3, State::Moving)));
    }

    #[test]
    fn a_tree_holds_the_living_of_all_generations_and_no_others() {
        let processes = [
            process(2, 1, State::Moving),
            process(3, 2, State::Moving),
            process(4, 3, State::Dead),
            process(5, 4, State::Stopped),
            process(6, 1, State::Moving),
            process(7, 6, State::Moving),
        ];
        assert_eq!(pids(2, &processes), [3, 5]);
        assert_eq!(pids(6, &processes), [7]);
        assert_eq!(pids(7, &processes), [0; 0]);
    }

    #[test]
    fn a_listing_that_runs_in_a_circle_ends() {
        let processes = [process(2, 3, State::Moving), process(3, 2, State::Moving)];
        assert_eq!(pids(2, &processes), [3]);
    }
}
