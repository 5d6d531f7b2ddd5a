//! Executions in control groups of their own, where the kernel has them to hand over.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::unistd::geteuid;
use sandbox_protocol::fsp::{Ended, Execute, Extra, Language, Limits, Status};
use sandbox_sidecar::events::Events;
use sandbox_sidecar::exec::{Engine, Event, Keep, Mode, Told};
use tempfile::TempDir;

const CGROUPS: &str = "/sys/fs/cgroup";

/// A group of this test's, handed over; gone when it is dropped.
struct HandedOver {
    root: TempDir,
    made: Vec<PathBuf>,
}

impl HandedOver {
    /// Version 1 where `memory` is a hierarchy of its own; says so where there is none that may be used.
    fn new(test: &str) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let mut made = Vec::new();
        for controller in ["memory", "cpu", "cpuacct"] {
            let group = Path::new(CGROUPS).join(controller).join(format!("{test}-{}", std::process::id()));
            if geteuid().is_root() && fs::create_dir(&group).is_ok() {
                symlink(&group, root.path().join(controller)).unwrap();
                made.push(group);
            }
        }
        if !root.path().join("memory/cgroup.procs").exists() {
            eprintln!("{test}: left out, needs root and control groups of version 1");
            return None;
        }
        Some(Self { root, made })
    }

    fn groups(&self) -> usize {
        let entries = fs::read_dir(self.root.path().join("memory")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count()
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        for group in &self.made {
            fs::remove_dir(group).unwrap_or_else(|error| eprintln!("{}: {error}", group.display()));
        }
    }
}

/// How code of this language ends that may have so much memory.
async fn ended(groups: &HandedOver, language: Language, code: &str, memory_mb: u64) -> (Status, Ended) {
    let events = Events::new(SystemTime::now());
    let handed_over = (events, groups.root.path());
    let engine = Engine::with_groups("/tmp", None, [].into(), handed_over).unwrap();
    let execute = Execute {
        id: "one".into(),
        language,
        code: code.into(),
        stdin: None,
        env: [].into(),
        limits: Limits { memory_mb, ..Limits::default() },
        extra: Extra::default(),
    };
    let order = engine.order(execute).unwrap();
    let execution = engine.begin("one", order, Mode::Start, Keep::Yes).unwrap().execution;
    let mut reader = execution.reader(0);
    let mut last = Status::Running;
    loop {
        match reader.next().await.unwrap() {
            Told::Event { event: Event::Status(status), .. } => last = status,
            Told::Event { event: Event::Result(ended), .. } => return (last, ended),
            other => eprintln!("{other:?}"),
        }
    }
}

const GREEDY: &str = "x = []\nwhile True: x.append(bytearray(4 << 20))";

#[tokio::test]
async fn the_kernel_holds_the_limit_and_tells_who_passed_it() {
    let Some(groups) = HandedOver::new("limit") else { return };
    let (status, ended) = ended(&groups, Language::Python, GREEDY, 64).await;
    assert_eq!((status, ended.exit_code), (Status::Oom, None));
    // To the page: what a program in a loop of allocations had, never was more.
    assert_eq!(ended.resource_usage.unwrap().peak_memory_mb, 64);
    assert_eq!(groups.groups(), 0);
}

#[tokio::test]
async fn a_child_that_the_kernel_ended_for_want_of_memory_ends_the_execution_as_that() {
    let Some(groups) = HandedOver::new("child") else { return };
    let code = format!("python3 -c '{GREEDY}'; echo went on");
    let (status, _) = ended(&groups, Language::Shell, &code, 64).await;
    assert_eq!(status, Status::Oom);
}

#[tokio::test]
async fn a_kill_that_was_not_the_kernels_is_a_failure_and_usage_is_the_groups() {
    let Some(groups) = HandedOver::new("kill") else { return };
    let code = "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; kill -KILL $$";
    let (status, ended) = ended(&groups, Language::Shell, code, 64).await;
    assert_eq!((status, ended.signal), (Status::Failed, Some(9)));
    let usage = ended.resource_usage.unwrap();
    // The group's own books do not count what forked the program.
    assert!(usage.peak_memory_mb < 10 && usage.cpu_time_ms > 0, "{usage:?}");
    assert_eq!(groups.groups(), 0);
}
