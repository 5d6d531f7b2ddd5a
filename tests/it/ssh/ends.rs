//! How stays in a sandbox end: the words, the time that it takes, and who is let in afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::Outcome;
use sandbox_protocol::ssh::PublicKey;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{self, CreateBuilder};
use sandbox_tests::wait::until;

use super::{BOUND, Guests, Stay, Way};

/// In which a stay ends, once the operator knows that it is over: a second is promised, the others are a busy machine's. What it
/// really takes is printed.
const AT_ONCE: Duration = Duration::from_secs(10);
const DENIED: &str = "Permission denied (publickey).";

impl Stay {
    /// Has ended as ssh ends when it is cut off, told `why`. Returns when.
    async fn ended_by(self, why: &str) -> Result<Instant> {
        let (code, complaints) = self.ended().await?;
        let at = Instant::now();
        ensure!(code == Some(255) && complaints.contains(why), "{code:?}, not {why:?}: {complaints}");
        Ok(at)
    }
}

impl Way {
    async fn refused(&self, why: &str) -> Result<()> {
        let (code, said, complaints) = self.runs(&[], "echo reached").await?;
        ensure!(
            code == Some(255) && said.is_empty() && complaints.contains(why),
            "{code:?}, not {why:?}: {complaints}"
        );
        Ok(())
    }

    /// Whether a program that was given this as its argument runs in the sandbox.
    async fn sees(&self, marker: &str) -> Result<bool> {
        let all = self.says("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true").await?;
        Ok(all.contains(&format!("sleep {marker} ")))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_opens_no_more_ends_its_stays_at_once_and_no_others() -> Result<()> {
    let guests = Guests::new().await?;
    let (mine, other, brief) = (guests.key("mine")?, guests.key("other")?, guests.key("brief")?);
    let way = guests.way(guests.sandbox, &mine).await?;
    let others = guests.way(guests.sandbox, &other).await?;
    guests.provision(&brief.public, 5).await?;
    let briefly = guests.way(guests.sandbox, &brief).await?;

    let stranger = guests.key("stranger")?;
    let strange = guests.way_with(&way, &mine, &stranger)?;
    strange.refused(DENIED).await?;

    let mut beside = Stay::begin(others.ssh(&[], "exec cat"))?;
    let stay = way.stays(&[], "4001").await?;
    assert!(others.sees("4001").await?);
    revoked(&guests, stay, &mine.public).await?;
    let gone = || async { (!others.sees("4001").await.ok()?).then_some(()) };
    until("the program to end", AT_ONCE, gone).await?;
    beside.tell("still here\n").await?;
    assert_eq!(beside.line().await?, "still here");
    way.refused(DENIED).await?;

    let stay = briefly.stays(&[], "4002").await?;
    guests.world.ground.chain.mine(6).await?;
    let (mined, ended) = (Instant::now(), stay.ended_by("the key has expired").await?);
    let took = ended.saturating_duration_since(mined);
    println!("expiry: {} ms from the block to the end of ssh", took.as_millis());
    assert!(took < AT_ONCE, "{took:?}");
    assert!(!others.sees("4002").await?);
    briefly.refused("the key expired at block ").await?;

    assert!(beside.goes_on()?);
    let stay = others.stays(&[], "4010").await?;
    guests.session().await?.revoke_ssh_key(guests.sandbox, &other.public.fingerprint()).await?;
    at_once("revocation over HTTP", stay, "the key was revoked").await?;
    beside.ended_by("the key was revoked").await?;
    Ok(())
}

/// Revokes a key by a job, which ends this stay.
async fn revoked(guests: &Guests, stay: Stay, key: &PublicKey) -> Result<()> {
    let request = requests::ssh_revoke(guests.sandbox, key)?;
    let submitted = guests.account.submit_job(guests.world.service, request).await?;
    let mined = Instant::now();
    let answers = Answers::new(guests.account.clone())?;
    let answering = async {
        let answer = answers.wait_for(&submitted, BOUND).await?.answer.context("no answer")?;
        ensure!(answer.outcome == Outcome::Done, "{}", answer.response_json);
        Ok(Instant::now())
    };
    let (answered, ended) = tokio::try_join!(answering, stay.ended_by("the key was revoked"))?;
    let (from_block, from_answer) = (ended.saturating_duration_since(mined), ended.saturating_duration_since(answered));
    println!(
        "revocation: {} ms from the block to the end of ssh, {} ms after its answer was seen",
        from_block.as_millis(),
        from_answer.as_millis()
    );
    ensure!(from_answer < AT_ONCE && from_block < AT_ONCE, "{from_block:?}, {from_answer:?} after the answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_rests_or_ends_is_left_and_one_at_rest_is_resumed_by_who_asks_for_it() -> Result<()> {
    let guests = Guests::new().await?;
    let key = guests.key("mine")?;
    let way = guests.way(guests.sandbox, &key).await?;
    let stranger = guests.way_with(&way, &key, &guests.key("stranger")?)?;
    way.says("echo kept > note").await?;
    let session = guests.session().await?;

    let stay = way.stays(&[], "4003").await?;
    session.stop(guests.sandbox).await?;
    at_once("stop", stay, "the sandbox does not run any more").await?;
    way.refused("the sandbox is stopped; resume it, or connect as user <id>+resume").await?;
    stranger.refused(DENIED).await?;
    let user = format!("User={}+resume", guests.sandbox);
    let (code, said, complaints) = way.runs(&["-o", &user], "cat note").await?;
    assert_eq!((code, said.as_str()), (Some(0), "kept\n"), "{complaints}");
    session.stop(guests.sandbox).await?;
    let identity = key.file.display().to_string();
    let by_command = ["ssh", "--resume", "--identity", &identity, &way.host, "--", "cat note"];
    assert_eq!(guests.world.customer.text(&by_command).await?, "kept");

    let brief = guests.create(CreateBuilder::new().ttl_blocks(40)).await?;
    let briefly = guests.way(brief, &key).await?;
    let stay = briefly.stays(&[], "4004").await?;
    guests.world.ground.chain.mine(41).await?;
    at_once("end of its time", stay, "the sandbox does not run any more").await?;
    briefly.refused("").await?;

    let stay = way.stays(&[], "4005").await?;
    session.delete(guests.sandbox).await?;
    at_once("delete", stay, "the sandbox does not run any more").await?;
    let (code, _, complaints) = way.runs(&[], "true").await?;
    assert!(code == Some(255) && (complaints.contains(DENIED) || complaints.contains("does not run")), "{complaints}");
    Ok(())
}

/// What was just done ends this stay.
async fn at_once(what: &str, stay: Stay, why: &str) -> Result<()> {
    let done = Instant::now();
    let took = stay.ended_by(why).await?.saturating_duration_since(done);
    println!("{what}: ssh ended {} ms after it was answered", took.as_millis());
    ensure!(took < AT_ONCE, "{took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_ends_says_so_and_keys_open_again_in_its_next_life() -> Result<()> {
    let mut guests = Guests::new().await?;
    let key = guests.key("mine")?;
    let way = guests.way(guests.sandbox, &key).await?;
    let revoked = guests.key("revoked")?;
    let barred = guests.way(guests.sandbox, &revoked).await?;
    guests.answer(requests::ssh_revoke(guests.sandbox, &revoked.public)?).await?;
    let stay = way.stays(&[], "4006").await?;
    let (stopped, ended) =
        tokio::join!(guests.world.node.stop(), stay.ended_by("the operator is ending; connect again"));
    stopped?;
    ended?;
    guests.world.node.start().await?;
    assert_eq!(way.says("echo again").await?, "again\n");
    barred.refused(DENIED).await?;

    // One that is killed says nothing, and the key opens again all the same.
    let stay = way.stays(&[], "4007").await?;
    guests.world.node.kill()?;
    let (code, _) = stay.ended().await?;
    assert_eq!(code, Some(255));
    guests.world.node.start().await?;
    assert_eq!(way.says("echo again").await?, "again\n");
    Ok(())
}
