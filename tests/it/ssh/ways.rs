//! Ways through a sandbox: out of it under its rules, into its programs, and from them to the customer's own machine.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::node::free_port;
use sandbox_tests::wait::until;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{BOUND, Guests, Stay, Way};

/// A server inside: a line for a line.
const SERVER: &str = r#"exec perl -MIO::Socket::INET -e '
    my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 9) or die;
    print "listening\n"; STDOUT->flush;
    while (my $client = $server->accept) { print $client "echo " . <$client>; close $client }'"#;

/// An address of this machine that is not its loopback's: nobody's own, seen from a sandbox.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent by that.
    socket.connect("198.51.100.1:9").context("this machine has no way out")?;
    Ok(socket.local_addr()?.ip())
}

/// A server that says `reached` to whoever connects.
async fn origin(address: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((address, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(b"reached\n").await);
        }
    });
    Ok(port)
}

/// What is read at a port of this machine, after `said`.
async fn answer(port: u16, said: &[u8]) -> Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(said).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(BOUND, asking).await.context("no answer")?
}

/// What a SOCKS client says to reach a place by its name.
fn socks(host: &str, port: u16) -> Vec<u8> {
    let (name, port) = (host.as_bytes(), port.to_be_bytes());
    [&[5, 1, 0, 5, 1, 0, 3, name.len() as u8][..], name, &port].concat()
}

impl Way {
    /// A connection that carries others; it has begun once the sandbox has answered on it.
    async fn carrying(&self, options: &[&str]) -> Result<Stay> {
        let mut stay =
            Stay::begin(self.ssh(&[&["-o", "ExitOnForwardFailure=yes"], options].concat(), "echo ready; exec cat"))?;
        while stay.line().await? != "ready" {}
        Ok(stay)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_out_is_the_sandboxs_and_programs_inside_are_reached_and_reach_back() -> Result<()> {
    let own = own_address()?;
    let (open, shut) = (origin(own).await?, origin(own).await?);
    let allowed = format!("{own}:{open}");
    let guests = Guests::with(|node| {
        node.set("EGRESS_POLICY", format!("{allowed},{own}:{shut}"));
        node.set("PRIVATE_ADDRESSES_ALLOWED", allowed.clone());
    });
    let guests = guests.await?;
    let key = guests.key("mine")?;
    let sandbox = guests.create(CreateBuilder::new().env("SANDBOX_EGRESS_ALLOW", &allowed)).await?;
    let way = guests.way(sandbox, &key).await?;
    let shut_in = guests.way(guests.sandbox, &key).await?;

    let (code, said, complaints) = way.runs(&["-W", &allowed], "").await?;
    assert_eq!((code, said.as_str()), (Some(0), "reached\n"), "{complaints}");
    let metadata = "169.254.169.254:80";
    for (way, place) in [(&shut_in, &allowed), (&way, &format!("{own}:{shut}")), (&way, &metadata.to_owned())] {
        let (code, said, complaints) = way.runs(&["-W", place], "").await?;
        assert_eq!((code, said.as_str()), (Some(255), ""), "{place}");
        assert!(complaints.contains("administratively prohibited"), "{place}: {complaints}");
    }
    out_by_socks(&way, (&own.to_string(), open, shut)).await?;
    in_and_back(&way).await?;

    drop((way, shut_in));
    audited(&guests).await
}

/// As browsers go out.
async fn out_by_socks(way: &Way, (host, open, shut): (&str, u16, u16)) -> Result<()> {
    let port = free_port()?.port();
    let _carrying = way.carrying(&["-D", &port.to_string()]).await?;
    assert!(answer(port, &socks(host, open)).await?.ends_with("reached\n"));
    assert!(!answer(port, &socks(host, shut)).await?.contains("reached"));
    Ok(())
}

async fn in_and_back(way: &Way) -> Result<()> {
    let mut server = Stay::begin(way.ssh(&[], SERVER))?;
    assert_eq!(server.line().await?, "listening");
    let port = free_port()?.port();
    let _carrying = way.carrying(&["-L", &format!("{port}:localhost:8000")]).await?;
    assert_eq!(answer(port, b"hello\n").await?, "echo hello\n");
    let (code, said, _) = way.runs(&["-W", "localhost:8001"], "").await?;
    assert_eq!((code, said.as_str()), (Some(255), ""), "nobody listens there");

    let here = origin(IpAddr::from([127, 0, 0, 1])).await?;
    let _back = way.carrying(&["-R", &format!("9000:127.0.0.1:{here}")]).await?;
    assert_eq!(way.says("bash -c 'cat < /dev/tcp/127.0.0.1/9000'").await?, "reached\n");
    Ok(())
}

/// What happened is in the audit, and nobody has changed a line of it.
async fn audited(guests: &Guests) -> Result<()> {
    let file = guests.world.node.dir().join("data/ssh-audit.log");
    let all_left = || async {
        let lines = lines_of(&file).ok()?;
        let count = |event: &str| lines.iter().filter(|line| line["event"]["event"] == event).count();
        (count("entered") > 0 && count("entered") == count("left")).then_some(lines)
    };
    let lines = until("everybody to leave", BOUND, all_left).await?;
    let opened = |kind: &str, detail: &str| {
        lines.iter().any(|line| {
            let event = &line["event"];
            event["event"] == "opened"
                && event["kind"] == kind
                && event["detail"].as_str().is_some_and(|said| said.contains(detail))
        })
    };
    assert!(opened("command", "exec cat") && opened("port", "localhost:8000") && opened("outside", ":"), "{lines:#?}");
    let closed = lines.iter().filter(|line| line["event"]["event"] == "closed").count();
    assert!(closed >= lines.iter().filter(|line| line["event"]["event"] == "opened").count(), "{lines:#?}");
    let entered = lines.iter().find(|line| line["event"]["event"] == "entered").context("nobody entered")?;
    assert!(entered["key"].as_str().is_some_and(|key| key.starts_with("SHA256:")), "{entered}");
    assert!(entered["event"]["client"].as_str().is_some_and(|client| client.contains("OpenSSH")), "{entered}");
    Ok(())
}

/// The lines of an audit, each of which has the hash of the one before.
fn lines_of(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file)?;
    let mut previous = "0".repeat(64);
    let mut lines = Vec::new();
    for line in text.lines() {
        let parsed: Value = serde_json::from_str(line)?;
        ensure!(parsed["previous"] == previous, "the chain is broken at {line}");
        previous = hex::encode(Sha256::digest(line));
        lines.push(parsed);
    }
    Ok(lines)
}
