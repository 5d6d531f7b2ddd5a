//! What a command cannot reach: the sidecar's secrets, its descriptors, its process.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::geteuid;
use sandbox_protocol::exec::ExecBody;

use crate::harness::{Sidecar, body, text};

/// Whether the change of user can be tested; says so where it cannot.
fn is_root(test: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("{test}: left out, needs root");
    }
    root
}

#[tokio::test]
async fn the_environment_holds_nothing_of_the_sidecars() {
    let env = [("GIVEN".to_owned(), "a b".to_owned()), ("LANG".to_owned(), "C".to_owned())].into();
    let sidecar = Sidecar::start();
    let reply = sidecar.exec(&ExecBody { env, ..body("env | sort") }).await.unwrap();
    let workspace = sidecar.workspace();
    let expected = format!(
        "GIVEN=a b\nHOME=/home/agent\nLANG=C\nLOGNAME=agent\n\
         PATH=/home/agent/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD={}\nSHELL=/bin/sh\nUSER=agent\n",
        workspace.display()
    );
    assert_eq!(text(&reply.stdout), expected);
}

#[tokio::test]
async fn a_command_has_three_descriptors_even_where_others_are_inheritable() {
    let leaked = File::open("/").unwrap();
    fcntl(&leaked, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let command = "fd=0; while [ $fd -lt 256 ]; do [ -e /proc/$$/fd/$fd ] && echo $fd; fd=$((fd + 1)); done";
    let reply = Sidecar::start().sh(command).await;
    assert_eq!(text(&reply.stdout), "0\n1\n2\n");
    drop(leaked);
}

#[tokio::test]
async fn a_directory_behind_a_descriptor_of_the_sidecars_cannot_be_entered() {
    let sidecar = Sidecar::start();
    let leaked = File::open("/").unwrap();
    symlink(format!("/proc/self/fd/{}", leaked.as_raw_fd()), sidecar.workspace().join("out")).unwrap();
    for cwd in ["out", "/proc/self/fd/7", "/proc/self/cwd", "../.."] {
        let refusal = sidecar.refusal(&ExecBody { cwd: cwd.to_owned(), ..body("pwd") }).await;
        assert_eq!(refusal, (400, "bad_request".to_owned()), "{cwd}");
    }
}

#[tokio::test]
async fn a_command_gains_no_privileges_and_leads_its_own_session() {
    let reply = Sidecar::start()
        .sh("grep NoNewPrivs /proc/self/status; read pid name state parent group session rest < /proc/$$/stat
             [ $pid = $$ ] && [ $group = $$ ] && [ $session = $$ ] && echo leads; ulimit -c; cat /proc/self/oom_score_adj")
        .await;
    assert_eq!(text(&reply.stdout), "NoNewPrivs:\t1\nleads\n0\n500\n");
}

#[tokio::test]
async fn no_signal_is_blocked_or_ignored_for_a_command() {
    let reply = Sidecar::start().sh("kill -HUP $$").await;
    assert_eq!(reply.exit_code, 128 + 1);
    let reply = Sidecar::start().sh("sed -nE 's/^Sig(Blk|Ign):.*(.{8})$/\\1 \\2/p' /proc/self/status").await;
    // The upper half are real-time signals; some libraries keep two of them to themselves.
    let [blocked, ignored] = text(&reply.stdout).lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((blocked, u32::from_str_radix(&ignored[4..], 16).unwrap() & 0x7fff_ffff), ("Blk 00000000", 0));
}

#[tokio::test]
async fn a_command_runs_as_the_agent_without_groups_or_capabilities() {
    if !is_root("a_command_runs_as_the_agent_without_groups_or_capabilities") {
        return;
    }
    let reply = Sidecar::start().sh("grep -E '^(Uid|Gid|Groups|CapPrm|CapEff|CapAmb)' /proc/self/status").await;
    let none = "0000000000000000";
    let id = "54321\t54321\t54321\t54321";
    let expected = format!("Uid:\t{id}\nGid:\t{id}\nGroups:\t \nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\n");
    assert_eq!(text(&reply.stdout), expected);
}

#[tokio::test]
async fn a_command_can_neither_read_nor_signal_nor_dial_the_sidecar() {
    if !is_root("a_command_can_neither_read_nor_signal_nor_dial_the_sidecar") {
        return;
    }
    let sidecar = Sidecar::start();
    let own = std::process::id();
    // The supervisor is the parent of the command; killing it would let the command slip away.
    for pid in [own.to_string(), "$PPID".to_owned()] {
        for attempt in [
            format!("cat /proc/{pid}/environ"),
            format!("head -c 1 /proc/{pid}/mem"),
            format!("ls /proc/{pid}/fd/0"),
            format!("kill -0 {pid}"),
            format!("kill -KILL {pid}"),
            format!("kill -STOP {pid}"),
        ] {
            let reply = sidecar.sh(&attempt).await;
            assert!(reply.exit_code != 0 && reply.stdout.0.is_empty(), "{attempt}");
        }
    }
    let reply = sidecar.sh(&format!("cat {}", sidecar.socket.display())).await;
    assert!(text(&reply.stderr).contains("No such device") || text(&reply.stderr).contains("Permission denied"));
    assert_eq!(text(&sidecar.sh(&format!("stat -c '%a %u' {}", sidecar.socket.display())).await.stdout), "600 0\n");
}
