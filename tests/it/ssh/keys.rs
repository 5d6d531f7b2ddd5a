//! Keys by jobs and over HTTP, what their answers prove, and what the command line makes of it.

use std::path::Path;
use std::process::Command;
use std::str::FromStr as _;

use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::{self, SandboxStatusResponse, SshProvisionResponse};
use sandbox_protocol::holdings::{SshKeyRequest, SshKeysBody};
use sandbox_protocol::limits::SSH_KEYS_MAX;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{FailureCode, Outcome, SandboxId};
use sandbox_sdk::requests;
use sandbox_tests::ground::{CUSTOMER, OPERATOR, STRANGER};
use sandbox_tests::wait::until;

use super::{BOUND, Guests};
use crate::world::{World, shown};

#[allow(clippy::expect_used)] // of a form that is taken
fn key(number: u8) -> PublicKey {
    let part = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    PublicKey::from_wire(&[part(b"ssh-ed25519"), part(&[number; 32])].concat()).expect("a key")
}

/// What OpenSSH makes of a block of configuration.
fn openssh_reads(file: &Path, block: &str, host: &str) -> Result<String> {
    std::fs::write(file, block)?;
    let read = Command::new("ssh").arg("-G").arg("-F").arg(file).arg(host).output().context("no ssh")?;
    let (code, stdout, stderr) = shown(&read);
    ensure!(code == Some(0), "{stderr}");
    Ok(stdout)
}

fn ends(keys: &SshKeysBody) -> Vec<(PublicKey, Option<u64>, bool)> {
    keys.keys.iter().map(|entry| (entry.key.clone(), entry.expires_at_block, entry.expired)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_admitted_and_revoked_by_jobs_whose_answers_prove_the_host() -> Result<()> {
    let guests = Guests::told(2222).await?;
    let (admitted, answer) = guests.provision(&key(1), 5).await?;
    let SshProvisionResponse { ssh_host, ssh_port, ssh_user, host_key, expires_at_block } = admitted;
    assert_eq!((ssh_host.as_str(), ssh_port, ssh_user), ("127.0.0.1", 2222, guests.sandbox.to_string()));
    assert_eq!(expires_at_block, answer.receipt.receipt.started_block + 5);
    assert_eq!(guests.host_keys("show")?["host_keys"], serde_json::json!([host_key]));
    assert_eq!(answer.receipt.receipt.runtime, "runc");

    let session = guests.session().await?;
    assert_eq!(session.ssh().await?.host_keys, [host_key.parse()?]);
    assert_eq!(ends(&session.ssh_keys(guests.sandbox).await?), [(key(1), Some(expires_at_block), false)]);
    guests.world.ground.chain.mine(6).await?;
    let expired = || async { session.ssh_keys(guests.sandbox).await.ok()?.keys[0].expired.then_some(()) };
    until("the key to expire", BOUND, expired).await?;

    // The next host key is announced while the present one still signs, to a node that runs.
    let next = guests.host_keys("rotate")?["next"].as_str().context("no key")?.to_owned();
    let (again, _) = guests.provision(&key(1), 0).await?;
    assert_eq!((again.host_key, again.expires_at_block), (format!("{host_key}\n{next}"), 0));
    assert_eq!(ends(&session.ssh_keys(guests.sandbox).await?), [(key(1), None, false)]);
    for _ in 0..2 {
        let answer = guests.answer(requests::ssh_revoke(guests.sandbox, &key(1))?).await?;
        let status: SandboxStatusResponse = abi::decode(&answer.response)?;
        assert_eq!((status.sandbox_id, status.state.as_str()), (guests.sandbox.to_string(), "running"));
    }
    assert_eq!(ends(&session.ssh_keys(guests.sandbox).await?), []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_one_too_many_or_not_ones_own_is_refused_with_the_reason() -> Result<()> {
    let guests = Guests::told(2222).await?;
    let id = guests.sandbox.to_string();
    for (line, reason) in [
        ("ssh-rsa AAAAB3NzaC1yc2E=", "ssh_public_key: the SSH key is of a kind that is not taken"),
        ("ssh-ed25519 AAAA", "ssh_public_key: the SSH key's second word is no key of its kind"),
        ("", "ssh_public_key: an SSH key is one line"),
    ] {
        let (failure, message) = guests.refused(&id, line).await?;
        assert_eq!(failure, Some(FailureCode::BadRequest));
        assert!(message.starts_with(reason), "{message}");
    }
    let session = guests.session().await?;
    let most = SSH_KEYS_MAX as u8;
    for number in 1..=most {
        let asked = SshKeyRequest { key: key(number).to_string(), ttl_blocks: 0 };
        let admitted = || async { session.admit_ssh_key(guests.sandbox, &asked).await.ok() };
        until("a key to be admitted", BOUND, admitted).await?;
    }
    let (failure, message) = guests.refused(&id, &key(most + 1).to_string()).await?;
    assert_eq!(failure, Some(FailureCode::BadRequest));
    assert!(message.contains("64 keys open the sandbox"), "{message}");
    guests.provision(&key(most), 9).await?;

    let stranger = guests.world.ground.account(STRANGER).await?;
    let foreign = requests::ssh_provision(guests.sandbox, &key(1), 0)?;
    assert!(stranger.submit_job(guests.world.service, foreign).await.is_err(), "the contract refuses it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_without_a_gateway_admits_nobody_and_revokes_all_the_same() -> Result<()> {
    let world = World::new().await?;
    let sandbox: SandboxId = world.create().await?.parse().context("no id")?;
    let account = world.ground.account(CUSTOMER).await?;
    let guests = Guests { world, sandbox, account };
    let (failure, message) = guests.refused(&sandbox.to_string(), &key(1).to_string()).await?;
    assert_eq!(failure, Some(FailureCode::Unsupported), "{message}");
    let revoked = guests.answer(requests::ssh_revoke(sandbox, &key(1))?).await?;
    assert_eq!(revoked.outcome, Outcome::Done);
    let asked = guests.world.customer.run(&["ssh-config", &sandbox.to_string()]).await?;
    assert!(shown(&asked).2.contains("this operator lets nobody in over SSH"), "{:?}", shown(&asked));
    let created = guests.world.customer.create(guests.world.service, &["--ssh"]).await;
    assert!(created.is_err_and(|refused| refused.to_string().contains("ssh_enabled")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_configuration_names_the_host_that_was_announced_and_no_other_later() -> Result<()> {
    let mut guests = Guests::told(2222).await?;
    let dir = guests.world.customer.config_dir();
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("mine.pub");
    std::fs::write(&file, format!("{} me@here\n", key(7)))?;
    let file = file.display().to_string();
    let (customer, service) = (guests.world.customer.clone(), guests.world.service.to_string());
    let created = customer.json(&["create", "--service", &service, "--within", "60", "--ssh-key", &file]).await?;
    let response = &created["answer"]["response_json"];
    let id = response["sandbox_id"].as_str().context("no id")?;
    assert_eq!((&response["ssh_user"], &response["ssh_port"]), (&id.into(), &2222.into()), "{response}");
    assert!(customer.text(&["ssh-key", "ls", id]).await?.starts_with(&key(7).fingerprint()));

    let config = customer.json(&["ssh-config", id, "--identity", &file]).await?;
    let block = config["config"].as_str().context("no block")?;
    let operator = format!("{:#x}", sandbox_tests::ground::Ground::address(OPERATOR));
    let known = dir.join("ssh").join(format!("known_hosts-{operator}"));
    for line in [
        format!("Host {id}"),
        "    HostName 127.0.0.1".into(),
        "    Port 2222".into(),
        format!("    UserKnownHostsFile \"{}\"", known.display()),
        "    StrictHostKeyChecking yes".into(),
        format!("    IdentityFile \"{file}\""),
    ] {
        assert!(block.lines().any(|found| found == line), "{line} in {block}");
    }
    let read = openssh_reads(&dir.join("block"), block, id)?;
    let user = format!("user {id}");
    let file_of_host = format!("userknownhostsfile {}", known.display());
    for line in ["hostname 127.0.0.1", "port 2222", &user, "stricthostkeychecking true", &file_of_host] {
        assert!(read.lines().any(|found| found == line), "{line} in {read}");
    }
    let announced = guests.host_keys("show")?["host_keys"][0].as_str().context("no key")?.to_owned();
    assert_eq!(std::fs::read_to_string(&known)?, format!("sandbox-operator-{operator} {announced}\n"));
    customer.text(&["ssh-key", "rm", id, &key(7).fingerprint()]).await?;
    assert_eq!(customer.text(&["ssh-key", "ls", id]).await?, "");

    // Who has no key gets one, which is kept.
    customer.text(&["ssh-config", id, "--ttl-blocks", "50"]).await?;
    let own = PublicKey::from_str(&std::fs::read_to_string(dir.join("ssh/id_ed25519.pub"))?)?;
    let listed = customer.text(&["ssh-key", "ls", id]).await?;
    assert!(listed.starts_with(&own.fingerprint()) && listed.contains("until block "), "{listed}");
    let kept = customer.text(&["ssh-config", id]).await?;
    assert!(kept.contains(&dir.join("ssh/id_ed25519").display().to_string()), "{kept}");
    assert_eq!(customer.text(&["ssh-key", "ls", id]).await?, listed, "its end is not moved unasked");
    customer.text(&["ssh-key", "rm", id, &dir.join("ssh/id_ed25519").display().to_string()]).await?;

    // A restart changes nothing; another key without a rotation is somebody else.
    guests.world.node.stop().await?;
    guests.world.node.start().await?;
    assert_eq!(guests.host_keys("show")?["host_keys"][0], announced.as_str());
    customer.text(&["ssh-config", id, "--identity", &file]).await?;
    assert!(customer.text(&["ssh-key", "ls", id]).await?.starts_with(&key(7).fingerprint()), "it is admitted again");
    guests.world.node.stop().await?;
    std::fs::remove_file(guests.world.node.dir().join("data/ssh-host-keys.json"))?;
    guests.world.node.start().await?;
    let refused = shown(&customer.run(&["ssh-config", id, "--identity", &file]).await?);
    assert_eq!(refused.0, Some(119), "{refused:?}");
    let proven = customer.text(&["ssh-config", id, "--identity", &file, "--job"]).await?;
    assert!(proven.starts_with(&format!("Host {id}\n")), "a proven answer is believed: {proven}");
    assert!(!std::fs::read_to_string(&known)?.contains(&announced));
    Ok(())
}
