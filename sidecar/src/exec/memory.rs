//! How much memory executions have, by adding up what `/proc` tells of their processes.
//!
//! This is for where there is no control group of an execution's own. It looks every [`LOOK_PAUSE_MIN`] at the earliest,
//! so a program may have more than its limit for that long, and at most what the sandbox has. What counts is memory
//! that is nobody's file: shared pages of forked processes count once for each, so the sum is believed only as far as
//! the whole sandbox has as much.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nix::unistd::{Pid, SysconfVar, sysconf};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::tree::{self, Process};
use crate::limits::{LOOK_PAUSE_MIN, LOOK_SHARE};

/// Files in which the kernel tells what a whole sandbox has, in the two layouts of control groups.
const STAT_FILES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory.stat", "anon"), ("/sys/fs/cgroup/memory/memory.stat", "total_rss")];
/// Files in which the kernel counts whom it ended for want of memory.
const KILL_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

/// Those whose memory is looked at. Clones share everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    open: Mutex<HashMap<i32, Open>>,
    opened: Notify,
}

#[derive(Debug, Clone)]
struct Open {
    limit_bytes: u64,
    peak_bytes: Arc<AtomicU64>,
    over: CancellationToken,
}

/// The account of one execution, closed by dropping it.
#[derive(Debug)]
pub(super) struct Account {
    accounts: Accounts,
    root: i32,
    open: Open,
}

impl Accounts {
    /// Looks at what is below `supervisor` from now on.
    pub(super) fn open(&self, supervisor: Pid, limit_bytes: u64) -> Account {
        let (peak_bytes, over) = (Arc::default(), CancellationToken::new());
        let (root, open) = (supervisor.as_raw(), Open { limit_bytes, peak_bytes, over });
        self.all().insert(root, open.clone());
        self.0.opened.notify_one();
        Account { accounts: self.clone(), root, open }
    }

    /// Looks as long as there is anything to look at, and waits otherwise.
    pub(super) async fn keep(self) {
        let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
        let page_bytes = page_bytes.unwrap_or(4_096);
        loop {
            let open = self.all().clone();
            if open.is_empty() {
                self.0.opened.notified().await;
                continue;
            }
            let begun = Instant::now();
            look(&open, page_bytes);
            sleep(LOOK_PAUSE_MIN.max(begun.elapsed() * LOOK_SHARE)).await;
        }
    }

    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Open>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Returns once it has more than it may.
    pub(super) async fn over(&self) {
        self.open.over.cancelled().await;
    }

    /// Most that it was seen to have.
    pub(super) fn peak_bytes(&self) -> u64 {
        self.open.peak_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.accounts.all().remove(&self.root);
    }
}

fn look(open: &HashMap<i32, Open>, page_bytes: u64) {
    let family = tree::Family::of(tree::listed());
    for (root, account) in open {
        let pages: u64 = family.below(*root).iter().map(anonymous_pages).sum();
        let mut bytes = pages * page_bytes;
        if bytes > account.limit_bytes {
            bytes = bytes.min(of_the_sandbox().unwrap_or(u64::MAX));
        }
        account.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        if bytes > account.limit_bytes {
            account.over.cancel();
        }
    }
}

/// Pages of a process that are no file's; none for one that has gone.
fn anonymous_pages(process: &Process) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", process.pid)).unwrap_or_default();
    let mut fields = text.split_ascii_whitespace().skip(1).map(|field| field.parse::<u64>().unwrap_or_default());
    let (resident, shared) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    resident.saturating_sub(shared)
}

/// What all processes of the sandbox have together, where the kernel tells.
fn of_the_sandbox() -> Option<u64> {
    STAT_FILES.iter().find_map(|(path, name)| field(path, name))
}

/// How many processes the kernel has ended for want of memory, where it tells.
pub(super) fn kills() -> Option<u64> {
    KILL_FILES.iter().find_map(|path| field(path, "oom_kill"))
}

/// The number after a name that a line begins with.
pub(super) fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
