//! The baseline of a sandbox: the same container, made by the engine's own command line.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use sandbox_tests::engine::{IMAGE, docker, docker_text, inspect};
use serde_json::Value;
use tempfile::TempDir;

/// What the two host configurations must have in common.
const SAME: [&str; 15] = [
    "NetworkMode",
    "ReadonlyRootfs",
    "Privileged",
    "CapDrop",
    "CapAdd",
    "SecurityOpt",
    "Init",
    "IpcMode",
    "PidsLimit",
    "Memory",
    "MemorySwap",
    "NanoCpus",
    "Ulimits",
    "Tmpfs",
    "LogConfig",
];

/// A container like a sandbox's, with the socket of its sidecar in a directory of ours.
pub(crate) struct Twin {
    pub(crate) name: String,
    pub(crate) token: String,
    dir: TempDir,
}

impl Twin {
    /// Names a container; nothing is made.
    pub(crate) fn new(number: usize) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("sbx").tempdir().context("no directory")?;
        let name = format!("bench-twin-{}-{number}", std::process::id());
        Ok(Self { name, token: "bench-token-of-no-consequence".into(), dir })
    }

    /// The socket of its sidecar.
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("sidecar.sock")
    }

    /// `docker create` with the sandbox's host configuration.
    pub(crate) fn create(&self) -> Result<()> {
        let mounts = self.mounts();
        let token = format!("SIDECAR_AUTH_TOKEN={}", self.token);
        let hardening = "--network none --read-only --cap-drop ALL --cap-add CHOWN --cap-add KILL --cap-add SETGID \
             --cap-add SETUID --security-opt no-new-privileges:true --init --ipc private --pids-limit 1024 \
             --memory 1024m --memory-swap 1024m --cpus 1 --ulimit nofile=16384:16384 \
             --tmpfs /tmp:rw,nosuid,nodev,size=256m,mode=1777 --log-driver json-file --log-opt max-size=1m \
             --log-opt max-file=1 --user 0:0 --no-healthcheck --env AGENT_WORKSPACE_ROOT=/workspace \
             --env SIDECAR_SOCKET=/run/sandbox/sidecar.sock";
        let mut args = vec!["create", "--name", &self.name, "--env", &token];
        args.extend(hardening.split_whitespace());
        args.extend(mounts.iter().flat_map(|mount| ["--mount", mount.as_str()]));
        args.push(IMAGE);
        docker_text(&args).map(drop)
    }

    /// `docker start`.
    pub(crate) fn start(&self) -> Result<()> {
        docker_text(&["start", &self.name]).map(drop)
    }

    /// `docker exec … true`.
    pub(crate) fn exec_true(&self) -> Result<()> {
        docker_text(&["exec", &self.name, "true"]).map(drop)
    }

    /// Refuses a comparison of unlike containers.
    pub(crate) fn must_equal(&self, container: &str) -> Result<()> {
        let (ours, twin) = (inspect(container)?, inspect(&self.name)?);
        for key in SAME {
            let (ours, twin) = (&ours["HostConfig"][key], &twin["HostConfig"][key]);
            ensure!(sorted(ours) == sorted(twin), "unlike containers: {key} is {ours}, the baseline's {twin}");
        }
        Ok(())
    }

    fn mounts(&self) -> [String; 3] {
        let volume = |kind: &str, target: &str| format!("type=volume,source={}-{kind},target={target}", self.name);
        let socket = format!("type=bind,source={},target=/run/sandbox", path(self.dir.path()));
        [volume("workspace", "/workspace"), volume("home", "/home/agent"), socket]
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let volumes = ["workspace", "home"].map(|kind| format!("{}-{kind}", self.name));
        let removed = docker(&["rm", "--force", "--volumes", &self.name])
            .and_then(|_| docker(&["volume", "rm", "--force", &volumes[0], &volumes[1]]));
        if let Err(error) = removed {
            eprintln!("clean-up: {error:#}");
        }
    }
}

/// A setting whatever its order and spelling: the command line adds a prefix to capabilities.
fn sorted(value: &Value) -> Vec<String> {
    let items = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let mut items: Vec<String> = items.iter().map(|item| item.to_string().replace("CAP_", "")).collect();
    items.sort();
    items
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
