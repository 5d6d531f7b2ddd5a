//! Language-model work from the command line to a provider and back: prompts, tasks, negotiations. The provider is a real server
//! with a script, reached from inside by the name that the operator gave it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_protocol::CallKey;
use sandbox_protocol::agent::negotiation::NegotiationResult;
use sandbox_tests::engine;
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::models::{self, KEY};
use sandbox_tests::wait::until;
use scripted_provider::{Provider, Reply, Script};
use serde_json::json;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(120);

/// A world whose sandboxes have a model.
pub(crate) struct Studio {
    pub(crate) world: World,
    pub(crate) provider: Provider,
}

impl Studio {
    pub(crate) async fn new(script: Script) -> Result<Self> {
        let provider = Provider::start(script).await?;
        let mut offered = Ok(());
        let world = World::with(|node| offered = models::offer(node, &provider)).await?;
        offered?;
        Ok(Self { world, provider })
    }

    /// A file beside the node's.
    fn file(&self, name: &str, content: &serde_json::Value) -> Result<String> {
        let path = self.world.node.dir().join(name);
        std::fs::write(&path, content.to_string())?;
        Ok(path.display().to_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_by_the_operators_model_whose_key_never_enters() -> Result<()> {
    let studio = Studio::new(Script::echo()).await?;
    let (customer, sandbox) = (&studio.world.customer, studio.world.create().await?);
    assert_eq!(customer.text(&["prompt", &sandbox, "hello over HTTP"]).await?, "hello over HTTP");
    assert_eq!(customer.text(&["prompt", &sandbox, "hello by a job", "--job"]).await?, "hello by a job");
    for request in studio.provider.requests() {
        assert_eq!(request.key(), Some(KEY));
    }
    let container = engine::containers(&studio.world.node.run_dir())?.pop().context("no container")?;
    let search = format!("grep -ral {KEY} /storage /workspace /home /tmp /run 2> /dev/null; cat /proc/[0-9]*/environ");
    let found = engine::docker_text(&["exec", &container, "sh", "-c", &search])?;
    ensure!(!found.contains(KEY) && found.contains("MODEL=scripted"), "{found}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_works_in_the_sandbox_and_a_session_goes_on() -> Result<()> {
    let write = json!({"path": "answer.txt", "content": "42"}).to_string();
    let studio = Studio::new(Script::queue([
        Reply::call("c1", "write_file", write),
        Reply::call("c2", "shell", json!({"command": "cat answer.txt; id -un"}).to_string()),
        Reply::text("written"),
        Reply::text("you know it"),
    ]))
    .await?;
    let (customer, sandbox) = (&studio.world.customer, studio.world.create().await?);
    let task = ["task", &sandbox, "write the answer", "--session", "s1"];
    assert_eq!(customer.text(&task).await?, "written");
    assert_eq!(customer.text(&["exec", &sandbox, "--", "cat answer.txt"]).await?, "42");
    let told = studio.provider.requests();
    let last = serde_json::to_string(&told.last().context("no request")?.body)?;
    ensure!(last.contains("42agent"), "{last}");
    assert_eq!(customer.text(&["prompt", &sandbox, "what was it?", "--session", "s1"]).await?, "you know it");
    let told = studio.provider.requests();
    let last = serde_json::to_string(&told.last().context("no request")?.body)?;
    ensure!(last.contains("write the answer") && last.contains("what was it?"), "{last}");
    Ok(())
}

/// Who tells a stranger of these words: files of the operator's records, its log, the calls on chain.
async fn tellers(studio: &Studio, words: &str) -> Result<Vec<String>> {
    let holds = |bytes: &[u8]| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    let mut told = Vec::new();
    let (disks, mut left) = (studio.world.node.disks_dir(), vec![studio.world.node.dir().join("data")]);
    while let Some(path) = left.pop() {
        if path == disks {
            continue;
        }
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(&path)?
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<Result<Vec<_>, _>>()?,
            );
        } else if path.is_file() && holds(&std::fs::read(&path)?) {
            told.push(path.display().to_string());
        }
    }
    if studio.world.node.log().contains(words) {
        told.push("the log".to_owned());
    }
    let chain = studio.world.ground.account(CUSTOMER).await?.chain().clone();
    for call in 0..2 {
        let key = CallKey { service: studio.world.service, call };
        let inputs = chain.submission(key).await?.context("no such call")?.inputs;
        told.extend(holds(&inputs).then(|| format!("the inputs of call {call}")));
    }
    Ok(told)
}

fn moves(studio: &Studio, count: usize) -> Result<String> {
    let content = |number: usize| format!("Move {number}: buy the competitor of the steppe wolf.");
    let moves: Vec<_> =
        (1..=count).map(|number| json!({"move_id": format!("m{number}"), "content": content(number)})).collect();
    studio.file("moves.json", &json!(moves))
}

fn result(studio: &Studio) -> Result<NegotiationResult> {
    let bytes = std::fs::read(studio.world.node.dir().join("out/result.json"))?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn out(studio: &Studio) -> PathBuf {
    studio.world.node.dir().join("out")
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_are_argued_about_each_in_a_sandbox_of_its_own_that_is_gone_afterwards() -> Result<()> {
    let studio = Studio::new(Script::negotiation()).await?;
    let (customer, sandbox) = (&studio.world.customer, studio.world.create().await?);
    let (file, out) = (moves(&studio, 3)?, out(&studio).display().to_string());
    let args = ["negotiate", &sandbox, &file, "--ticker", "ACME", "--rounds", "2", "--concurrency", "2", "--out", &out];
    let output = customer.run(&args).await?;
    assert_eq!(output.status.code(), Some(0), "{:?}", shown(&output));
    let result = result(&studio)?;
    let ids: Vec<&str> = result.policy_scores.iter().map(|score| score.move_id.as_str()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"]);
    assert_eq!((result.ledger.logical_calls, studio.provider.calls()), (39, 39));
    assert_eq!((result.errors.len(), result.warnings.as_slice()), (0, &[][..]));
    assert!(result.isolation.values().all(|isolation| isolation == "runc"), "{:?}", result.isolation);
    assert!(result.conversation_logs.iter().all(|logs| logs.i1.len() == 4 && logs.i3.len() == 4));
    ensure!(std::fs::read_to_string(self::out(&studio).join("report.md"))?.contains("ACME"));
    assert_eq!(tellers(&studio, "steppe wolf").await?, Vec::<String>::new());
    let run_dir = studio.world.node.run_dir();
    until("the moves' sandboxes are gone", BOUND, async || {
        (engine::containers(&run_dir).ok()?.len() == 1).then_some(())
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_in_the_middle_of_a_negotiation_has_no_call_repeated() -> Result<()> {
    let studio = Studio::new(Script::negotiation()).await?;
    let mut studio = studio;
    let sandbox = studio.world.create().await?;
    let (file, out) = (moves(&studio, 2)?, out(&studio).display().to_string());
    let args = ["negotiate", &sandbox, &file, "--ticker", "ACME", "--concurrency", "1", "--out", &out];
    let child = studio.world.customer.start(&args)?;
    until("some calls are made", BOUND, async || (studio.provider.calls() > 20).then_some(())).await?;
    studio.world.node.kill()?;
    studio.world.node.start().await?;
    let output = tokio::time::timeout(BOUND, child.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(0), "{:?}", shown(&output));
    let result = result(&studio)?;
    assert_eq!((result.errors.len(), result.ledger.logical_calls), (0, 122), "{:?}", result.errors);
    // Those that were on their way when the operator's proxy died had no answer.
    assert!((122..=125).contains(&studio.provider.calls()), "{}", studio.provider.calls());
    Ok(())
}
