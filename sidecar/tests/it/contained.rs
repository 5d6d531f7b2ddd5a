//! The sidecar in a container with the hardening that operators apply, where there is an engine and the image.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use sandbox_protocol::exec::{ExecBody, ExecReply};
use tempfile::TempDir;

use crate::harness::{TOKEN, body, post, send, text, until};

const IMAGE: &str = "agent-sandbox-sidecar:dev";
const PORT: u16 = 8080;

/// A running container; it is removed with this.
pub(crate) struct Contained {
    name: String,
    directory: TempDir,
}

impl Drop for Contained {
    fn drop(&mut self) {
        docker(&["rm", "--force", "--volumes", &self.name]);
    }
}

fn docker(arguments: &[&str]) -> Option<Output> {
    Command::new("docker").args(arguments).output().ok()
}

impl Contained {
    /// A sidecar of this build in a container whose workspace holds 16 MiB; `None`, said aloud, where there is no engine
    /// or no image.
    pub(crate) async fn start(test: &str) -> Option<Self> {
        Self::of(IMAGE, test).await
    }

    /// The same of another image.
    pub(crate) async fn of(image: &str, test: &str) -> Option<Self> {
        if !docker(&["image", "inspect", image]).is_some_and(|output| output.status.success()) {
            eprintln!("{test}: left out, needs a Docker engine and the image {image}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let name = format!("sandbox-survival-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let program = format!("{}:/usr/local/bin/sandbox-sidecar:ro", env!("CARGO_BIN_EXE_sandbox-sidecar"));
        let socket = format!("{}:/run/sandbox", directory.path().display());
        let (token, port) = (format!("SIDECAR_AUTH_TOKEN={TOKEN}"), format!("SIDECAR_PORT={PORT}"));
        let hardened = [
            "run",
            "--detach",
            "--init",
            "--network",
            "none",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--cap-add",
            "CHOWN",
            "--cap-add",
            "KILL",
            "--cap-add",
            "SETGID",
            "--cap-add",
            "SETUID",
            "--security-opt",
            "no-new-privileges",
            "--pids-limit",
            "1024",
            "--memory",
            "512m",
            "--memory-swap",
            "512m",
            "--cpus",
            "1",
            "--ulimit",
            "nofile=16384:16384",
            "--tmpfs",
            "/tmp:size=16m",
            "--tmpfs",
            "/workspace:size=16m,uid=1000,gid=1000,mode=755",
            "--tmpfs",
            "/home/agent:size=16m,uid=1000,gid=1000,mode=755",
        ];
        let own = [
            "--name",
            &name,
            "--volume",
            &program,
            "--volume",
            &socket,
            "--env",
            "SIDECAR_SOCKET=/run/sandbox/s.sock",
            "--env",
            &port,
            "--env",
            &token,
            image,
        ];
        let started = docker(&[&hardened[..], &own].concat()).unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        let contained = Self { name, directory };
        until(|| contained.socket().exists()).await;
        Some(contained)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s.sock")
    }

    /// Of the sidecar, as the host numbers it.
    pub(crate) fn process(&self) -> u32 {
        let init = docker(&["inspect", "--format", "{{.State.Pid}}", &self.name]).unwrap();
        let init = String::from_utf8(init.stdout).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", init.trim());
        std::fs::read_to_string(children).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) async fn exec(&self, request: &ExecBody) -> (StatusCode, Vec<u8>) {
        let (status, bytes) = post(&self.socket(), TOKEN, serde_json::to_vec(request).unwrap()).await;
        (status, bytes.to_vec())
    }

    /// What a command that can be started writes to stdout.
    pub(crate) async fn sh(&self, command: &str) -> String {
        let (status, bytes) = self.exec(&body(command)).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
        let reply: ExecReply = serde_json::from_slice(&bytes).unwrap();
        text(&reply.stdout).to_owned()
    }

    /// How long the sidecar takes to say that it is well.
    pub(crate) async fn health(&self) -> Duration {
        let begun = Instant::now();
        let (status, _) = send(&self.socket(), Method::GET, "/health", &[], Vec::new()).await;
        assert_eq!(status, StatusCode::OK);
        begun.elapsed()
    }
}
