//! What an auditor's tool says of what the gateway speaks.

use std::process::Stdio;

use tokio::process::Command;

use crate::harness::{Stage, run, text};

/// What a version of the tool from before these were made does not know.
const YOUNG: [&str; 3] = ["mlkem768x25519-sha256", "kex-strict-s-v00@openssh.com", "ext-info-s"];

async fn audited(stage: &Stage, options: &[&str]) -> String {
    let mut command = Command::new("ssh-audit");
    command.args(options).args(["-t", "30", "-p", &stage.address.port().to_string(), "127.0.0.1"]);
    command.env("HOME", stage.outside()).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = run(command, b"").await;
    assert!(output.stderr.is_empty(), "{output:?}");
    text(&output.stdout)
}

#[tokio::test]
async fn nothing_that_the_gateway_speaks_is_weak() {
    let stage = Stage::start().await;
    let everything = audited(&stage, &["-b", "-n"]).await;
    for name in ["(kex) curve25519-sha256", "(key) ssh-ed25519", "(enc) chacha20-poly1305@openssh.com"] {
        assert!(everything.contains(name), "{everything}");
    }
    let told = audited(&stage, &["-b", "-n", "-l", "warn"]).await;
    let weak: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("[warn]") || line.contains("[fail]"))
        .filter(|line| !(line.contains("unknown algorithm") && YOUNG.iter().any(|name| line.contains(name))))
        .collect();
    assert!(weak.is_empty(), "{weak:#?}");
    assert_eq!(stage.sh("echo in").await, "in\n");
}
