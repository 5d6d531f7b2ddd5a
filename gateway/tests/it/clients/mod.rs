//! Clients that share no code with the gateway's library, nor with each other.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::harness::{PATIENCE, SANDBOX, Stage, run, run_within, text, until};

/// A program that keeps what it knows in a directory of its own.
fn program(stage: &Stage, name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("HOME", stage.outside()).current_dir(stage.outside()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The customer's key as other programs have it.
async fn converted(stage: &Stage, converter: &str, before: &[&str], between: &[&str], name: &str) -> PathBuf {
    let file = stage.outside().join(name);
    let mut command = program(stage, converter);
    command.args(before).arg(&stage.key.file).args(between).arg(&file);
    let output = run(command, b"").await;
    assert!(output.status.success(), "{output:?}");
    file
}

/// An agent that has the customer's key, and where it is.
async fn agent(stage: &Stage) -> (Child, PathBuf) {
    let socket = stage.outside().join("agent");
    let mut command = Command::new("ssh-agent");
    let agent = command.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    until(|| socket.exists()).await;
    let mut add = program(stage, "ssh-add");
    add.arg(&stage.key.file).env("SSH_AUTH_SOCK", &socket);
    assert!(run(add, b"").await.status.success());
    (agent, socket)
}

async fn dropbear(stage: &Stage, options: &[&str], rest: &[&str]) -> Command {
    let key = converted(stage, "dropbearconvert", &["openssh", "dropbear"], &[], "id.dropbear").await;
    let known = stage.outside().join(".ssh");
    std::fs::create_dir_all(&known).unwrap();
    std::fs::write(known.join("known_hosts"), format!("127.0.0.1 {}\n", stage.host_key)).unwrap();
    let mut command = program(stage, "dbclient");
    command.arg("-i").arg(key).args(["-p", &stage.address.port().to_string()]).args(options);
    command.arg(format!("{SANDBOX}@127.0.0.1")).args(rest);
    command
}

#[tokio::test]
async fn dropbears_client_runs_commands_and_reaches_ports() {
    let stage = Stage::start().await;
    let output = run(dropbear(&stage, &[], &["cat; echo err >&2; exit 7"]).await, b"in").await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("in", "err\n"));
    let bytes = vec![b'x'; 8 << 20];
    let output = run(dropbear(&stage, &[], &["cat"]).await, &bytes).await;
    assert!(output.status.success() && output.stdout == bytes);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("localhost:{}", listener.local_addr().unwrap().port());
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"through").await.unwrap();
    });
    let output = run(dropbear(&stage, &["-B", &to], &[]).await, b"").await;
    assert_eq!(text(&output.stdout), "through", "{output:?}");
    answering.await.unwrap();
}

#[tokio::test]
async fn dropbears_client_refuses_another_host_key() {
    let stage = Stage::start().await;
    let command = dropbear(&stage, &[], &["true"]).await;
    let other = &stage.key.public;
    std::fs::write(stage.outside().join(".ssh/known_hosts"), format!("127.0.0.1 {other}\n")).unwrap();
    let output = run(command, b"").await;
    assert!(!output.status.success() && stage.house.audit().is_empty(), "{output:?}");
}

/// One of PuTTY's programs, which is told whom to expect.
async fn putty(stage: &Stage, name: &str, options: &[&str]) -> Command {
    let key = converted(stage, "puttygen", &[], &["-O", "private", "-o"], "id.ppk").await;
    let mut command = program(stage, name);
    command.args(["-batch", "-noagent", "-hostkey", &stage.host_key.fingerprint(), "-i"]).arg(key);
    command.args(["-P", &stage.address.port().to_string()]).args(options);
    command
}

#[tokio::test]
async fn puttys_plink_runs_commands_and_shells() {
    let stage = Stage::start().await;
    let host = format!("{SANDBOX}@127.0.0.1");
    let output = run(putty(&stage, "plink", &["-ssh", &host, "cat; echo err >&2; exit 7"]).await, b"in").await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(text(&output.stdout) == "in" && text(&output.stderr).contains("err\n"), "{output:?}");
    let output = run(putty(&stage, "plink", &["-ssh", "-T", &host]).await, b"echo in $0; exit 3\n").await;
    assert!(output.status.code() == Some(3) && text(&output.stdout).contains("in -"), "{output:?}");
    let bytes = vec![b'x'; 8 << 20];
    let output = run(putty(&stage, "plink", &["-ssh", &host, "cat"]).await, &bytes).await;
    assert!(output.status.success() && output.stdout == bytes);
}

#[tokio::test]
async fn puttys_programs_for_files_copy_them() {
    let stage = Stage::start().await;
    let (outside, host) = (stage.outside(), format!("{SANDBOX}@127.0.0.1"));
    let bytes: Vec<u8> = (0..3u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::create_dir(outside.join("tree")).unwrap();
    std::fs::write(outside.join("tree/two words"), &bytes).unwrap();
    let batch = "mkdir place\nput -r tree place/tree\nmv \"place/tree/two words\" place/moved\nls place\n\
                 get place/moved back\nrmdir place/tree\nquit\n";
    std::fs::write(outside.join("batch"), batch).unwrap();
    let output = run(putty(&stage, "psftp", &["-b", "batch", &host]).await, b"").await;
    assert!(output.status.success(), "{output:?}");
    let place = stage.workspace().join("place");
    assert!(std::fs::read(outside.join("back")).unwrap() == bytes && !place.join("tree").exists());
    for (number, mode) in ["-sftp", "-scp"].into_iter().enumerate() {
        let [there, back] = [format!("there-{number}"), format!("back-{number}")];
        // The first mode takes a directory into another only.
        stage.sh(&format!("mkdir {there}")).await;
        std::fs::create_dir(outside.join(&back)).unwrap();
        let up = putty(&stage, "pscp", &[mode, "-r", "-p", "tree", &format!("{host}:{there}")]).await;
        let output = run(up, b"").await;
        assert!(output.status.success(), "{mode} {output:?}");
        assert!(std::fs::read(stage.workspace().join(&there).join("tree/two words")).unwrap() == bytes, "{mode}");
        let down = putty(&stage, "pscp", &[mode, "-r", "-p", &format!("{host}:{there}/tree"), &back]).await;
        let output = run(down, b"").await;
        assert!(output.status.success(), "{mode} {output:?}");
        assert!(std::fs::read(outside.join(&back).join("tree/two words")).unwrap() == bytes, "{mode}");
    }
}

/// A script beside this file that says `done` when all went well.
async fn script(stage: &Stage, name: &str) {
    let (_agent, socket) = agent(stage).await;
    // Debian's, which has Debian's packages.
    let mut command = program(stage, "/usr/bin/python3");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name);
    command.arg(file).args(["127.0.0.1", &stage.address.port().to_string(), SANDBOX]);
    command.arg(&stage.key.file).arg(stage.host_key.to_string()).env("SSH_AUTH_SOCK", socket);
    let output = run_within(command, b"", 3 * PATIENCE).await;
    assert!(
        output.status.success() && text(&output.stdout) == "done\n",
        "{} {:?}",
        text(&output.stderr),
        stage.house.audit().last()
    );
}

#[tokio::test]
async fn what_paramiko_can_do_works() {
    script(&Stage::start().await, "with_paramiko.py").await;
}

#[tokio::test]
async fn what_asyncssh_can_do_works() {
    script(&Stage::start().await, "with_asyncssh.py").await;
}
