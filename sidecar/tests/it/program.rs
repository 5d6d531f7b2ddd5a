//! The program as it is started and stopped: settings, token, health check, signals, first process.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use hyper::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::harness::{PATIENCE, TOKEN, body, lives, post, until};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbox-sidecar");

/// A sidecar in a process of its own, with a directory that is also its workspace.
pub(crate) struct Program {
    directory: TempDir,
    child: Child,
}

impl Program {
    /// Starts `command`, which is the sidecar or something that becomes it, and waits for its socket.
    pub(crate) async fn start(command: &str, arguments: &[&str], token: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), geteuid().is_root().then_some(1000), None).unwrap();
        let mut command = Command::new(command);
        command.args(arguments).env_clear().envs(settings(directory.path())).process_group(0);
        command.envs(token.map(|token| ("SIDECAR_AUTH_TOKEN", token)));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let program = Self { directory, child };
        until(|| program.socket().exists()).await;
        program
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("sidecar.sock")
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap() as i32)
    }

    async fn sh(&self, command: &str) -> StatusCode {
        post(&self.socket(), TOKEN, serde_json::to_vec(&body(command)).unwrap()).await.0
    }

    async fn file(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        let text = || std::fs::read_to_string(&path).unwrap_or_default();
        until(|| text().ends_with('\n')).await;
        text().trim_end().to_owned()
    }

    /// Sends `signal` and waits for the end.
    pub(crate) async fn end(self, signal: Signal) -> (TempDir, Output) {
        kill(self.pid(), signal).unwrap();
        let output = timeout(PATIENCE, self.child.wait_with_output()).await.expect("did not end");
        (self.directory, output.unwrap())
    }
}

fn settings(directory: &Path) -> [(&'static str, PathBuf); 2] {
    [("SIDECAR_SOCKET", directory.join("sidecar.sock")), ("AGENT_WORKSPACE_ROOT", directory.to_owned())]
}

async fn healthy(directory: &Path) -> bool {
    let check =
        Command::new(PROGRAM).arg("--healthcheck").env_clear().envs(settings(directory)).output().await.unwrap();
    check.status.success()
}

#[tokio::test]
async fn a_sidecar_is_healthy_from_when_its_socket_is_there_until_it_is_told_to_end() {
    let program = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    assert!(healthy(program.directory.path()).await);
    let (directory, output) = program.end(Signal::SIGTERM).await;
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(!directory.path().join("sidecar.sock").exists() && !healthy(directory.path()).await);
}

#[tokio::test]
async fn a_token_that_was_not_given_is_made_and_told_once() {
    let (_, output) = Program::start(PROGRAM, &[], None).await.end(Signal::SIGINT).await;
    let told = String::from_utf8(output.stdout).unwrap();
    let token = told.strip_prefix("SIDECAR_AUTH_TOKEN=").unwrap().trim_end();
    assert_eq!((token.len(), told.lines().count()), (64, 1));
    assert!(!String::from_utf8(output.stderr).unwrap().contains(token));
}

#[tokio::test]
async fn a_running_command_ends_with_the_sidecar() {
    let program = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    let socket = program.socket();
    let request = serde_json::to_vec(&body("setsid sleep 1000 & echo $! > pid; sleep 1000")).unwrap();
    let caller = tokio::spawn(async move { post(&socket, TOKEN, request).await.0 });
    let pid = program.file("pid").await;
    let (_, output) = program.end(Signal::SIGTERM).await;
    assert!(output.status.success() && !lives(&pid));
    assert_eq!(caller.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_bad_setting_stops_the_start_by_name() {
    let output = Command::new(PROGRAM).env_clear().env("SIDECAR_PORT", "many").output().await.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("SIDECAR_PORT=\"many\""));
}

#[tokio::test]
async fn a_file_in_the_place_of_the_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sidecar.sock");
    std::fs::write(&path, "mine").unwrap();
    let output = Command::new(PROGRAM).env_clear().envs(settings(directory.path())).output().await.unwrap();
    assert!(!output.status.success());
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
}

#[tokio::test]
async fn as_the_first_process_it_waits_for_orphans_and_passes_signals_on() {
    if !geteuid().is_root() {
        eprintln!("left out, needs root: as_the_first_process_it_waits_for_orphans_and_passes_signals_on");
        return;
    }
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child", PROGRAM];
    let mut program = Program::start("/usr/bin/unshare", &unshare, Some(TOKEN)).await;
    program.sh("(setsid sh -c 'echo $$ > orphan; until [ -e go ]; do sleep 0.01; done' &); until [ -s orphan ]; do sleep 0.01; done").await;
    let reaped = "touch go; read orphan < orphan; until [ ! -e /proc/$orphan ]; do sleep 0.01; done; echo yes > reaped";
    assert_eq!(program.sh(reaped).await, StatusCode::OK);
    assert_eq!(program.file("reaped").await, "yes");
    kill(only_child(program.pid()), Signal::SIGTERM).unwrap();
    until(|| !program.socket().exists()).await;
    let ended = timeout(PATIENCE, program.child.wait()).await.expect("did not end");
    assert!(ended.unwrap().success());
}

fn only_child(parent: Pid) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap())
}
