//! What a customer does inside a sandbox from the command line: live commands, files, ports, terminals.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_tests::wait::until;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::world::{World, shown};

const PATIENCE: Duration = Duration::from_secs(60);

/// The first line that a program prints.
async fn first_line(child: &mut Child) -> Result<String> {
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let line = timeout(PATIENCE, lines.next_line()).await??.context("nothing was printed")?;
    // What follows is read by nobody, and must not break the program.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(line)
}

async fn signal(name: &str, child: &Child) -> Result<()> {
    let id = child.id().context("it has ended")?.to_string();
    let status = Command::new("kill").args(["-s", name, &id]).status().await?;
    ensure!(status.success(), "kill: {status}");
    Ok(())
}

async fn fed(mut child: Child, bytes: &[u8]) -> Result<Output> {
    let mut stdin = child.stdin.take().context("no stdin")?;
    stdin.write_all(bytes).await?;
    drop(stdin);
    Ok(timeout(PATIENCE, child.wait_with_output()).await??)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_seen_as_it_runs_fed_signalled_and_ends_this_program_as_it_ends() -> Result<()> {
    let world = World::new().await?;
    let (customer, sandbox) = (&world.customer, world.create().await?);

    let script = r#"cat; echo "$WORD in $PWD" >&2; exit 7"#;
    let args = ["exec", "--cwd", "sub", "--env", "WORD=hi", &sandbox, "--", script];
    customer.text(&["exec", &sandbox, "--", "mkdir", "sub"]).await?;
    let output = fed(customer.start(&args)?, b"one\n\xff\n").await?;
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"one\n\xff\n"[..]));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "hi in /workspace/sub\n");

    let late = customer.run(&["exec", "--timeout", "500", &sandbox, "--", "echo begun; sleep 60"]).await?;
    assert_eq!((late.status.code(), &late.stdout[..]), (Some(124), &b"begun\n"[..]), "{:?}", shown(&late));

    let trap = "trap 'exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = customer.start(&["exec", &sandbox, "--", trap])?;
    assert_eq!(first_line(&mut child).await?, "ready");
    signal("INT", &child).await?;
    assert_eq!(timeout(PATIENCE, child.wait()).await??.code(), Some(9));

    let ran = customer.json(&["exec", "-n", &sandbox, "--", "echo out"]).await?;
    assert_eq!((&ran["stdout"], &ran["exit_code"], &ran["status"]), (&"out\n".into(), &0.into(), &"completed".into()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_left_running_is_listed_followed_and_killed() -> Result<()> {
    let world = World::new().await?;
    let (customer, sandbox) = (&world.customer, world.create().await?);

    let brief = customer.text(&["exec", "--detach", &sandbox, "--", "echo kept; exit 3"]).await?;
    let logs = customer.run(&["logs", &sandbox, &brief]).await?;
    assert_eq!(shown(&logs), (Some(3), "kept\n".into(), String::new()));
    let again = customer.run(&["logs", &sandbox, &brief]).await?;
    assert_eq!(shown(&again), shown(&logs));

    let endless = customer.text(&["exec", "--detach", &sandbox, "--", "sleep 300"]).await?;
    let listed = customer.text(&["ps", &sandbox]).await?;
    let line = |id: &str| listed.lines().find(|line| line.starts_with(id)).map(str::to_owned);
    assert!(line(&endless).context("not listed")?.contains("running"), "{listed}");
    assert!(line(&brief).context("not listed")?.contains("failed (3)"), "{listed}");

    customer.text(&["kill", "--signal", "TERM", &sandbox, &endless]).await?;
    let ended = customer.run(&["logs", &sandbox, &endless]).await?;
    assert_eq!(ended.status.code(), Some(128 + 15), "{:?}", shown(&ended));
    let unknown = customer.run(&["logs", &sandbox, "nobody"]).await?;
    assert_eq!(unknown.status.code(), Some(122), "{:?}", shown(&unknown));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_ports_and_terminals_of_a_sandbox_are_at_hand() -> Result<()> {
    let world = World::new().await?;
    let (customer, sandbox) = (&world.customer, world.create().await?);

    let (near, back) = (world.node.dir().join("near.bin"), world.node.dir().join("back.bin"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&near, &bytes)?;
    let (near, back) = (near.display().to_string(), back.display().to_string());
    customer.text(&["files", "put", "--parents", &sandbox, &near, "deep/far.bin"]).await?;
    customer.text(&["files", "get", &sandbox, "deep/far.bin", &back]).await?;
    assert!(std::fs::read(&back)? == bytes, "the file came back changed");
    let listed = customer.text(&["files", "ls", &sandbox, "deep"]).await?;
    assert!(listed.contains("3000000 far.bin"), "{listed}");
    assert_eq!(customer.text(&["files", "rm", "--recursive", &sandbox, "deep"]).await?, "2 removed");
    let gone = customer.run(&["files", "get", &sandbox, "deep/far.bin", &back]).await?;
    assert_eq!(gone.status.code(), Some(121), "{:?}", shown(&gone));

    let shell = customer.in_terminal(&format!("shell {sandbox} -- 'tty; stty size; exit 4'")).await?;
    let (code, text, _) = shown(&shell);
    assert!(code == Some(4) && text.contains("/dev/pts/") && text.contains("24 80"), "{code:?}: {text}");

    let server = r#"exec perl -MIO::Socket::INET -e '
        my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 9) or die;
        while (my $client = $server->accept) { print $client "echo " . <$client>; close $client }'"#;
    customer.text(&["exec", "--detach", &sandbox, "--", server]).await?;
    let mut forward = customer.start(&["port", &sandbox, "0:8000"])?;
    let line = first_line(&mut forward).await?;
    let address = line.split(' ').next().context("no address")?.to_owned();
    let asked = || async {
        let mut stream = TcpStream::connect(&address).await.ok()?;
        stream.write_all(b"hello\n").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer).filter(|answer| !answer.is_empty())
    };
    assert_eq!(until("the server inside", PATIENCE, asked).await?, "echo hello\n");
    signal("INT", &forward).await?;
    assert_eq!(timeout(PATIENCE, forward.wait()).await??.code(), Some(0));
    Ok(())
}
