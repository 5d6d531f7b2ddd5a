//! Commands, files and terminals by the programs that people have, and the host that they know.

use anyhow::{Context, Result, ensure};
use sandbox_protocol::ssh::PublicKey;
use sandbox_tests::engine::FULL_IMAGE;
use sandbox_tests::ground::{Ground, OPERATOR};
use tokio::process::Command;

use super::{BOUND, Guests, Stay, Way, fed, finished};
use crate::world::shown;

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_runs_commands_and_terminals_over_ssh_and_copies_both_ways() -> Result<()> {
    let guests = Guests::new().await?;
    let (customer, id) = (&guests.world.customer, guests.sandbox.to_string());
    let script = r#"cat; echo "in $PWD" >&2; exit 7"#;
    let mut child = customer.start(&["ssh", &id, "--", script])?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"one\n\xff\n").await?;
    drop(stdin);
    let output = tokio::time::timeout(BOUND, child.wait_with_output()).await??;
    let (code, _, complaints) = shown(&output);
    assert_eq!((code, &output.stdout[..]), (Some(7), &b"one\n\xff\n"[..]), "{complaints}");
    assert!(complaints.ends_with("in /workspace\n"), "{complaints}");
    // Several words reach the program as they are.
    let words = customer.text(&["ssh", &id, "--", "printf", "<%s>", "a b", "$HOME", "it's"]).await?;
    assert_eq!(words, "<a b><$HOME><it's>");

    let shell = customer.in_terminal(&format!("ssh -o RequestTTY=force {id} -- 'tty; exit 4'")).await?;
    let (code, text, _) = shown(&shell);
    assert!(code == Some(4) && text.contains("/dev/pts/"), "{code:?}: {text}");

    let (near, back) = (guests.file("near.bin"), guests.file("back.bin"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&near, &bytes)?;
    customer.text(&["cp", &near.display().to_string(), &format!("{id}:far.bin")]).await?;
    assert_eq!(customer.text(&["ssh", &id, "--", "stat -c '%s %U' /workspace/far.bin"]).await?, "3000000 agent");
    customer.text(&["cp", &format!("{id}:far.bin"), &back.display().to_string()]).await?;
    assert!(std::fs::read(&back)? == bytes, "the file came back changed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn openssh_comes_in_by_a_block_of_configuration_and_knows_the_host_by_its_signed_answer() -> Result<()> {
    let guests = Guests::new().await?;
    let key = guests.key("mine")?;
    let (admitted, _) = guests.provision(&key.public, 0).await?;
    let way = guests.way(guests.sandbox, &key).await?;
    assert_eq!(presented(admitted.ssh_port).await?, admitted.host_key, "the proven answer names who answers");

    let output = fed(way.ssh(&[], "cat; echo \"in $PWD\" >&2; exit 7"), b"one\n\xff\n").await?;
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"one\n\xff\n"[..]));
    assert_eq!(shown(&output).2, "in /workspace\n");
    let (code, ..) = way.runs(&[], "kill -TERM $$").await?;
    assert_eq!(code, Some(255), "as ssh tells a signal");

    terminals(&way).await?;
    files(&guests, &way).await?;
    one_connection_is_shared(&guests, &way).await?;
    another_host_is_refused(&guests, &way).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rsync_mirrors_a_tree_into_a_sandbox_of_the_full_image_and_back() -> Result<()> {
    let guests = Guests::with(|node| node.set("SANDBOX_IMAGE", FULL_IMAGE)).await?;
    let way = guests.way(guests.sandbox, &guests.key("mine")?).await?;
    let (near, back) = (guests.file("near"), guests.file("back"));
    std::fs::create_dir_all(near.join("deep"))?;
    std::fs::write(near.join("deep/note"), "kept")?;
    let over = format!("ssh -F {}", way.config.display());
    let mirrored = async |from: &str, to: &str| {
        let mut rsync = Command::new("rsync");
        rsync.args(["--archive", "--delete", "--itemize-changes", "-e", &over, from, to]);
        let (code, changes, complaints) = shown(&finished(rsync.kill_on_drop(true)).await?);
        ensure!(code == Some(0), "{complaints}");
        Ok(changes)
    };
    let (here, there) = (format!("{}/", near.display()), format!("{}:tree/", way.host));
    assert!(mirrored(&here, &there).await?.contains("deep/note"));
    assert_eq!(mirrored(&here, &there).await?, "", "what is there is not sent again");
    way.says("rm tree/deep/note; echo new > tree/new").await?;
    mirrored(&there, &format!("{}/", back.display())).await?;
    assert_eq!(std::fs::read_to_string(back.join("new"))?, "new\n");
    assert!(!back.join("deep/note").exists());
    Ok(())
}

/// The key by which the host proves itself.
async fn presented(port: u16) -> Result<String> {
    let mut scan = Command::new("ssh-keyscan");
    scan.args(["-t", "ed25519", "-p", &port.to_string(), "127.0.0.1"]);
    let (_, lines, complaints) = shown(&finished(&mut scan).await?);
    let line = lines.lines().find(|line| !line.starts_with('#')).with_context(|| complaints.clone())?;
    Ok(line.split_once(' ').context("no key")?.1.to_owned())
}

/// A terminal has the size of the one that is looked at, and a shell in one reads what is typed.
async fn terminals(way: &Way) -> Result<()> {
    let config = way.config.display();
    let line = format!("stty rows 30 cols 100; ssh -tt -F {config} {} -- 'tty; stty size; exit 4'", way.host);
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
    terminal.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let (code, text, _) = shown(&finished(&mut terminal).await?);
    ensure!(code == Some(4) && text.contains("/dev/pts/") && text.contains("30 100"), "{code:?}: {text}");

    let typed = fed(way.ssh(&["-tt"], ""), b"echo $((6 * 7)) in $PWD on $(tty)\nexit 5\n").await?;
    let (code, text, _) = shown(&typed);
    ensure!(code == Some(5) && text.contains("42 in /workspace on /dev/pts/"), "{code:?}: {text}");
    Ok(())
}

async fn files(guests: &Guests, way: &Way) -> Result<()> {
    let (near, back) = (guests.file("near"), guests.file("back"));
    std::fs::create_dir_all(near.join("deep"))?;
    std::fs::write(near.join("deep/note"), "kept")?;
    let mut there = way.program("scp");
    there.arg("-r").arg(&near).arg(format!("{}:copied", way.host));
    let (code, _, complaints) = shown(&finished(&mut there).await?);
    ensure!(code == Some(0), "{complaints}");
    assert_eq!(way.says("cat copied/deep/note").await?, "kept");
    let mut and_back = way.program("scp");
    and_back.arg("-r").arg(format!("{}:copied", way.host)).arg(&back);
    let (code, _, complaints) = shown(&finished(&mut and_back).await?);
    ensure!(code == Some(0), "{complaints}");
    assert_eq!(std::fs::read_to_string(back.join("deep/note"))?, "kept");

    let mut sftp = way.program("sftp");
    sftp.args(["-b", "-", &way.host]);
    let batch = format!(
        "pwd\nput {} put\nchmod 600 put\nrename put renamed\nls -l renamed\n",
        near.join("deep/note").display()
    );
    let (code, listed, complaints) = shown(&fed(sftp, batch.as_bytes()).await?);
    ensure!(code == Some(0), "{complaints}");
    ensure!(listed.contains("Remote working directory: /workspace") && listed.contains("-rw-------"), "{listed}");
    Ok(())
}

/// Whoever does not have the announced key is not spoken to.
async fn another_host_is_refused(guests: &Guests, way: &Way) -> Result<()> {
    let operator = Ground::address(OPERATOR);
    let known = guests.world.customer.config_dir().join("ssh").join(format!("known_hosts-{operator:#x}"));
    let former = std::fs::read_to_string(&known)?;
    let other: PublicKey = guests.key("other")?.public;
    std::fs::write(&known, format!("sandbox-operator-{operator:#x} {other}\n"))?;
    let (code, said, complaints) = way.runs(&[], "echo reached").await?;
    assert_eq!((code, said.as_str()), (Some(255), ""), "{complaints}");
    assert!(complaints.contains("Host key verification failed"), "{complaints}");
    std::fs::write(&known, former)?;
    assert_eq!(way.says("echo reached").await?, "reached\n");
    Ok(())
}

/// Many at a time over one connection, as editors come.
async fn one_connection_is_shared(guests: &Guests, way: &Way) -> Result<()> {
    let control = guests.file("control").display().to_string();
    let shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=30", "-S", &control];
    let mut first = Stay::begin(way.ssh(&shared, "echo begun; cat"))?;
    assert_eq!(first.line().await?, "begun");
    let (code, said, _) = way.runs(&shared, "echo beside").await?;
    assert_eq!((code, said.as_str()), (Some(0), "beside\n"));
    first.tell("still\n").await?;
    assert_eq!(first.line().await?, "still");
    let (code, ..) = way.runs(&["-S", &control, "-O", "exit"], "").await?;
    assert_eq!(code, Some(0));
    Ok(())
}
