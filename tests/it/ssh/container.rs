//! What a guest is inside the container: the agent and nobody else, within its disk.

use anyhow::{Context as _, Result, ensure};
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::wait::until;
use tokio::process::Command;

use super::{BOUND, Guests, Key, Way, fed, finished};
use crate::world::shown;

/// Asks the agent that `SSH_AUTH_SOCK` names for its keys, and prints the first one's comment.
const ASK_AGENT: &str = r#"perl -MIO::Socket::UNIX -e '
    my $agent = IO::Socket::UNIX->new(Peer => $ENV{SSH_AUTH_SOCK}) or die "no agent: $!";
    syswrite $agent, pack("N C", 1, 11);
    sysread $agent, my $head, 9;
    my ($length, $kind, $keys) = unpack "N C N", $head;
    sysread $agent, my $body, $length - 5;
    my ($key, $comment) = unpack "N/a N/a", $body;
    print "$kind $keys $comment\n"'"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_the_agent_without_rights_and_ends_at_the_sandboxs_disk() -> Result<()> {
    let guests = Guests::new().await?;
    let key = guests.key("mine")?;
    let sandbox = guests.create(CreateBuilder::new().disk_gb(1)).await?;
    let way = guests.way(sandbox, &key).await?;
    // The same as of a command that came by the operator's own road.
    let who = "id; pwd; echo $HOME $USER; grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status; umask";
    let own = shown(&guests.world.customer.run(&["exec", &way.host, "--", who]).await?);
    let said = way.says(who).await?;
    assert_eq!(said, own.1, "{own:?}");
    for line in
        ["uid=1000(agent) gid=1000(agent)", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"]
    {
        assert!(said.contains(line), "{line} in {said}");
    }
    let (code, ..) = way.runs(&[], "echo no > /etc/no || exit 3").await?;
    assert_eq!(code, Some(3));
    agent(&guests, &way, &key).await?;
    full(&guests, &way).await
}

/// The customer's own agent is at hand inside, where and as long as the customer wants it.
async fn agent(guests: &Guests, way: &Way, key: &Key) -> Result<()> {
    let socket = guests.file("agent.sock");
    let mut command = Command::new("ssh-agent");
    command.arg("-D").arg("-a").arg(&socket).stdout(std::process::Stdio::null()).kill_on_drop(true);
    let _agent = command.spawn().context("no ssh-agent")?;
    let added = || async {
        let mut add = Command::new("ssh-add");
        let adding = finished(add.arg(&key.file).env("SSH_AUTH_SOCK", &socket)).await;
        adding.ok()?.status.success().then_some(())
    };
    until("the agent", BOUND, added).await?;
    let mut with = way.ssh(&["-A"], ASK_AGENT);
    let (code, said, complaints) = shown(&finished(with.env("SSH_AUTH_SOCK", &socket)).await?);
    assert_eq!((code, said.as_str()), (Some(0), "12 1 mine\n"), "{complaints}");
    assert_eq!(way.says("echo ${SSH_AUTH_SOCK-none}").await?, "none\n");

    // Where there is an agent, its key is the one that one comes with: no file of it is needed.
    let kept_elsewhere = key.file.with_extension("away");
    std::fs::rename(&key.file, &kept_elsewhere)?;
    let mut ssh = guests.world.customer.program();
    ssh.env("SSH_AUTH_SOCK", &socket).args(["ssh", &way.host, "--", "echo by agent"]);
    let (code, said, complaints) = shown(&finished(&mut ssh).await?);
    assert_eq!((code, said.as_str()), (Some(0), "by agent\n"), "{complaints}");
    std::fs::rename(&kept_elsewhere, &key.file)?;
    Ok(())
}

/// Who uploads more than there is room for is told so, and what is there is kept.
async fn full(guests: &Guests, way: &Way) -> Result<()> {
    let near = guests.file("much");
    std::fs::File::create(&near)?.set_len(64 << 20)?;
    way.says("echo kept > note; head -c 2G /dev/zero > big 2>/dev/null; truncate -s -16M big; sync").await?;
    let mut ssh = way.ssh(&[], "cat > much");
    let much = std::fs::File::open(&near)?;
    let (code, _, complaints) = shown(&finished(ssh.stdin(much)).await?);
    ensure!(code == Some(1) && complaints.contains("No space left on device"), "64 MB fit into 16: {complaints}");
    // Their protocol has no word for it, so the reason comes beside it.
    let mut scp = way.program("scp");
    scp.arg(&near).arg(format!("{}:more", way.host));
    let mut sftp = way.program("sftp");
    sftp.args(["-b", "-", &way.host]);
    let put = format!("put {} more\n", near.display());
    for told in [finished(&mut scp).await?, fed(sftp, put.as_bytes()).await?] {
        let (code, _, complaints) = shown(&told);
        let is_told = complaints.contains("write remote") && complaints.contains("No space left on device");
        ensure!(code == Some(1) && is_told, "{code:?} {complaints}");
    }
    assert_eq!(way.says("cat note; rm big much more; head -c 1M /dev/zero > fits && echo fits").await?, "kept\nfits\n");
    Ok(())
}
