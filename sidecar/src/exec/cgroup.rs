//! A control group of its own for each execution, beneath a group that was handed over to the sidecar.
//!
//! With one the kernel keeps the books: the limit holds to the page, what was killed for want of memory is known, and so
//! is the peak. Both layouts are spoken: of version 2, one directory; of version 1, a directory with `memory` in it, and
//! `cpu` and `cpuacct` where they were handed over too. Without any, `memory` adds up.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::memory::field;
use super::order::Limits;

/// Range of the weights of version 2, and of the shares that they stand for.
const WEIGHTS: (u64, u64) = (1, 10_000);
const SHARES: (u64, u64) = (2, 262_144);

/// A group that was handed over.
#[derive(Debug, Clone)]
pub(super) struct Delegation {
    root: PathBuf,
    layout: Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Version 2.
    Unified,
    /// Version 1.
    Split { cpu: bool, cpuacct: bool },
}

/// An execution's group. It goes when it is dropped, which its processes must have done before.
#[derive(Debug)]
pub(super) struct Group {
    delegation: Delegation,
    name: String,
}

impl Delegation {
    /// What was handed over at `root`.
    ///
    /// # Errors
    /// It is no such group, or cannot be used.
    pub(super) fn at(root: &Path) -> io::Result<Self> {
        let layout = if root.join("cgroup.controllers").exists() {
            fs::write(root.join("cgroup.subtree_control"), "+memory +cpu")?;
            Layout::Unified
        } else {
            let handed_over = |controller: &str| root.join(controller).join("cgroup.procs").exists();
            if !handed_over("memory") {
                return Err(io::Error::new(io::ErrorKind::NotFound, "neither version 2, nor memory of version 1"));
            }
            Layout::Split { cpu: handed_over("cpu"), cpuacct: handed_over("cpuacct") }
        };
        let delegation = Self { root: root.to_owned(), layout };
        drop(delegation.group("probe".to_owned(), None)?);
        Ok(delegation)
    }

    /// A new group of this name, with these limits.
    ///
    /// # Errors
    /// The kernel does not make it so.
    pub(super) fn group(&self, name: String, limits: Option<&Limits>) -> io::Result<Group> {
        let group = Group { delegation: self.clone(), name };
        for directory in group.directories() {
            fs::create_dir(directory)?;
        }
        if let Some(limits) = limits {
            group.limit(limits)?;
        }
        Ok(group)
    }
}

impl Group {
    /// Files by which a process joins, by writing `0`.
    pub(super) fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |directory: PathBuf| OpenOptions::new().write(true).open(directory.join("cgroup.procs"));
        self.directories().into_iter().map(|directory| open(directory).map(OwnedFd::from)).collect()
    }

    /// How many of its processes the kernel killed for want of memory.
    pub(super) fn kills(&self) -> u64 {
        let file = match self.delegation.layout {
            Layout::Unified => self.file("", "memory.events"),
            Layout::Split { .. } => self.file("memory", "memory.oom_control"),
        };
        field(&file.to_string_lossy(), "oom_kill").unwrap_or_default()
    }

    /// Most bytes that its processes had, where the kernel tells.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        number(&match self.delegation.layout {
            Layout::Unified => self.file("", "memory.peak"),
            Layout::Split { .. } => self.file("memory", "memory.max_usage_in_bytes"),
        })
    }

    /// Processor time of its processes in microseconds, where the kernel tells.
    pub(super) fn cpu_us(&self) -> Option<u64> {
        match self.delegation.layout {
            Layout::Unified => field(&self.file("", "cpu.stat").to_string_lossy(), "usage_usec"),
            Layout::Split { cpuacct: true, .. } => {
                number(&self.file("cpuacct", "cpuacct.usage")).map(|nanos| nanos / 1_000)
            }
            Layout::Split { cpuacct: false, .. } => None,
        }
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        match self.delegation.layout {
            Layout::Unified => {
                if let Some(bytes) = limits.memory_bytes {
                    fs::write(self.file("", "memory.max"), bytes.to_string())?;
                    // Where there is no swap there is nothing to forbid.
                    unless_absent(fs::write(self.file("", "memory.swap.max"), "0"))?;
                    unless_absent(fs::write(self.file("", "memory.oom.group"), "1"))?;
                }
                fs::write(self.file("", "cpu.weight"), weight(limits.cpu_shares).to_string())
            }
            Layout::Split { cpu, .. } => {
                if let Some(bytes) = limits.memory_bytes {
                    fs::write(self.file("memory", "memory.limit_in_bytes"), bytes.to_string())?;
                    unless_absent(fs::write(self.file("memory", "memory.memsw.limit_in_bytes"), bytes.to_string()))?;
                }
                if cpu { fs::write(self.file("cpu", "cpu.shares"), limits.cpu_shares.to_string()) } else { Ok(()) }
            }
        }
    }

    fn directories(&self) -> Vec<PathBuf> {
        let controllers: &[(&str, bool)] = match self.delegation.layout {
            Layout::Unified => &[("", true)],
            Layout::Split { cpu, cpuacct } => &[("memory", true), ("cpu", cpu), ("cpuacct", cpuacct)],
        };
        let used = controllers.iter().filter(|(_, used)| *used);
        used.map(|(controller, _)| self.delegation.root.join(controller).join(&self.name)).collect()
    }

    fn file(&self, controller: &str, name: &str) -> PathBuf {
        self.delegation.root.join(controller).join(&self.name).join(name)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in self.directories() {
            if let Err(error) = fs::remove_dir(&directory)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(directory = %directory.display(), %error, "an execution's control group is left behind");
            }
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn unless_absent(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

/// The weight of version 2 that these shares of version 1 stand for, as container engines have it.
const fn weight(shares: u64) -> u64 {
    WEIGHTS.0 + (shares.saturating_sub(SHARES.0) * (WEIGHTS.1 - WEIGHTS.0)) / (SHARES.1 - SHARES.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::order::OutputLimit;
    use super::*;

    fn limits() -> Limits {
        let limits = Limits::of_command(Duration::from_secs(1), OutputLimit::End(1));
        Limits { memory_bytes: Some(1 << 20), ..limits }
    }

    #[test]
    fn shares_and_weights_have_the_same_ends() {
        assert_eq!((weight(2), weight(262_144), weight(1_024)), (1, 10_000, 39));
    }

    #[test]
    fn version_2_is_told_by_its_files_and_given_its_limits() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        let delegation = Delegation { root: root.path().into(), layout: Layout::Unified };
        let group = delegation.group("one".into(), None).unwrap();
        group.limit(&limits()).unwrap();
        let written = |name: &str| fs::read_to_string(group.file("", name)).unwrap();
        assert_eq!((written("memory.max"), written("memory.swap.max")), ("1048576".into(), "0".into()));
        assert_eq!((written("memory.oom.group"), written("cpu.weight")), ("1".into(), "20".into()));
        fs::write(group.file("", "memory.events"), "low 0\noom 4\noom_kill 3\n").unwrap();
        fs::write(group.file("", "memory.peak"), "4096\n").unwrap();
        fs::write(group.file("", "cpu.stat"), "usage_usec 17\nuser_usec 9\n").unwrap();
        assert_eq!((group.kills(), group.peak_bytes(), group.cpu_us()), (3, Some(4_096), Some(17)));
    }

    #[test]
    fn a_directory_that_is_no_group_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Delegation::at(root.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
