//! Batches over three operators on one chain: each does its own part, and all of them together what was asked for.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::sol_types::SolValue;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::{
    BatchCollectRequest, BatchCollectResponse, BatchCreateRequest, BatchCreateResponse, BatchExecRequest,
    BatchExecResponse, SandboxCreateRequest,
};
use sandbox_protocol::batch::{Aggregation, BatchReport, BatchStatus, ItemState};
use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus};
use sandbox_protocol::session::Scope;
use sandbox_protocol::{CallKey, FailureCode, Job, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::api::sign_in;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;
use sandbox_sdk::requests::JobRequest;
use sandbox_sdk::verify;
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, SECOND_OPERATOR, STRANGER};
use sandbox_tests::liar::Liar;
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;

use crate::world::shown;

const BOUND: Duration = Duration::from_secs(60);
/// Time for an answer to be on chain.
const ANSWERED_WITHIN: Duration = Duration::from_secs(180);
/// Another operator that is staked in the snapshot.
const THIRD_OPERATOR: usize = 4;
const KEYS: [usize; 3] = [OPERATOR, SECOND_OPERATOR, THIRD_OPERATOR];
/// Whom commands in sandboxes run as.
const INSIDER: &str = "1000:1000";
/// Of a sandbox.
const MEMORY_MB: u64 = 64;

/// Three operators who serve one customer.
struct Trio {
    ground: Ground,
    account: Account,
    service: u64,
    nodes: [Node; 3],
    tokens: Vec<String>,
}

impl Trio {
    /// With settings of the second operator changed before its start.
    async fn with(set: impl FnOnce(&mut Node)) -> Result<Self> {
        let ground = Ground::new().await?;
        let [first, mut second, third] = [ground.node(KEYS[0])?, ground.node(KEYS[1])?, ground.node(KEYS[2])?];
        set(&mut second);
        let mut nodes = [first, second, third];
        let [one, two, three] = &mut nodes;
        tokio::try_join!(one.start(), two.start(), three.start())?;
        let service = ground.client(CUSTOMER)?.service(&KEYS.map(Ground::address)).await?;
        let account = ground.account(CUSTOMER).await?;
        let mut trio = Self { ground, account, service, nodes, tokens: Vec::new() };
        for place in 0..trio.nodes.len() {
            let token = trio.token(place, &trio.account).await?;
            trio.tokens.push(token);
        }
        Ok(trio)
    }

    async fn token(&self, place: usize, account: &Account) -> Result<String> {
        let operator = Ground::address(KEYS[place]);
        let url = account.chain().operator(operator).await?.apiUrl;
        let session = sign_in(account, (operator, &url), &[Scope::CallsRead]).await?;
        Ok(session.token().token.clone())
    }

    async fn submit(&self, job: Job, request: &impl SolValue) -> Result<CallKey> {
        let request = JobRequest { job, inputs: request.abi_encode().into() };
        Ok(self.account.submit_job(self.service, request).await?.key)
    }

    async fn create(&self, count: u32, distribution: &str, memory_mb: u64) -> Result<CallKey> {
        let template = SandboxCreateRequest { cpu_cores: 1, memory_mb, disk_gb: 1, ..SandboxCreateRequest::default() };
        let request = BatchCreateRequest { count, template, operators: Vec::new(), distribution: distribution.into() };
        self.submit(Job::BatchCreate, &request).await
    }

    async fn exec(&self, batch: &str, endpoints: &[String], how: (&str, bool, Aggregation)) -> Result<CallKey> {
        let (command, parallel, aggregation) = how;
        let request = BatchExecRequest {
            batch_id: batch.into(),
            sidecar_endpoints: endpoints.to_vec(),
            command: command.into(),
            parallel,
            aggregation: aggregation.to_string(),
            timeout_ms: 300_000,
            ..BatchExecRequest::default()
        };
        self.submit(Job::BatchExec, &request).await
    }

    /// The proven answer of one of the operators, once it is on chain.
    async fn answer(&self, place: usize, key: CallKey) -> Result<AnswerBody> {
        let url = format!("{}/v1/services/{}/calls/{}", self.nodes[place].api_url(), key.service, key.call);
        let look = async || {
            let asking = reqwest::Client::new().get(&url).bearer_auth(&self.tokens[place]);
            let asked = asking.query(&[("wait", "60"), ("until", "settled")]).send().await.ok()?;
            let body: CallBody = asked.error_for_status().ok()?.json().await.ok()?;
            body.answer.filter(|_| body.status == CallStatus::Settled)
        };
        let answer = until(&format!("operator {place}'s answer to {key}"), ANSWERED_WITHIN, look).await?;
        verify::offline(&answer)?;
        Ok(answer)
    }

    /// What all three answered: whether they did it, why not, and the response.
    async fn answers<T>(&self, key: CallKey) -> Result<Vec<(u8, Option<FailureCode>, T)>>
    where
        T: SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
    {
        let (one, two, three) = tokio::try_join!(self.answer(0, key), self.answer(1, key), self.answer(2, key))?;
        let decoded = |answer: AnswerBody| {
            anyhow::Ok((answer.receipt.receipt.outcome, answer.failure, T::abi_decode(&answer.response)?))
        };
        [one, two, three].into_iter().map(decoded).collect()
    }

    /// What an operator shows of a batch; nothing where it has none.
    async fn report(&self, place: usize, token: &str, batch: &str) -> Result<Option<BatchReport>> {
        let url = format!("{}/v1/services/{}/batches/{batch}", self.nodes[place].api_url(), self.service);
        let answered = reqwest::Client::new().get(url).bearer_auth(token).send().await?;
        if answered.status().as_u16() == 404 {
            return Ok(None);
        }
        Ok(Some(answered.error_for_status()?.json().await?))
    }

    /// Waits until an operator shows a batch in which its items are so.
    async fn shows(&self, place: usize, batch: &str, states: &[ItemState]) -> Result<()> {
        let look = async || {
            let report = self.report(place, &self.tokens[place], batch).await.ok()??;
            let found: Vec<_> = report.parts.iter().flat_map(|part| &part.items).map(|item| item.state).collect();
            (found == states).then_some(())
        };
        until(&format!("{states:?} at operator {place}"), BOUND, look).await
    }

    /// What the operators that run tell of a batch by job 23.
    async fn collected(&self, batch: &str, places: &[usize]) -> Result<Vec<BatchReport>> {
        let key = self.submit(Job::BatchCollect, &BatchCollectRequest { batch_id: batch.into() }).await?;
        let mut reports = Vec::new();
        for place in places {
            let response = BatchCollectResponse::abi_decode(&self.answer(*place, key).await?.response)?;
            let report: BatchReport = serde_json::from_str(&response.results_json)?;
            ensure!(response.status == report.status.name(), "{}", response.status);
            reports.push(report);
        }
        Ok(reports)
    }

    fn container(&self, place: usize, sandbox: &str) -> Result<String> {
        let found = engine::containers(&self.nodes[place].run_dir())?;
        found.into_iter().find(|name| name.starts_with(sandbox)).with_context(|| format!("no container of {sandbox}"))
    }

    /// Runs a script in a sandbox past its operator.
    fn inside(&self, place: usize, sandbox: &str, script: &str) -> Result<String> {
        let container = self.container(place, sandbox)?;
        let args = ["exec", "--user", INSIDER, "--workdir", "/workspace", &container, "sh", "-c", script];
        engine::docker_text(&args)
    }

    /// Waits until a process with this command line runs in a sandbox, or none does.
    async fn runs(&self, place: usize, sandbox: &str, (process, does): (&str, bool)) -> Result<()> {
        let container = self.container(place, sandbox)?;
        let look = async || (engine::docker_text(&["top", &container]).ok()?.contains(process) == does).then_some(());
        until(&format!("{process} in {sandbox}: {does}"), BOUND, look).await
    }
}

fn slot(origin: CallKey, slot: u8) -> String {
    SandboxId { origin, slot }.to_string()
}

fn said(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("no text")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_distribution_goes_with_every_aggregation() -> Result<()> {
    let trio = Trio::with(|_| {}).await?;
    for distribution in ["round_robin", "cheapest", "random"] {
        let created = trio.create(3, distribution, MEMORY_MB).await?;
        let answers = trio.create_answers(created).await?;
        let mut endpoints: Vec<String> = answers.iter().flat_map(|made| made.endpoints.clone()).collect();
        ensure!(endpoints.len() == 3, "{distribution}: {endpoints:?}");
        let shares: Vec<usize> = answers.iter().map(|made| made.endpoints.len()).collect();
        if distribution != "cheapest" {
            assert_eq!(shares, [1, 1, 1], "{distribution}");
        }
        endpoints.push("nowhere".into());
        for aggregation in Aggregation::ALL {
            trio.execute(&endpoints, &shares, (distribution, aggregation)).await?;
        }
    }
    let stranger = trio.ground.account(STRANGER).await?;
    let token = trio.token(0, &stranger).await?;
    assert!(trio.report(0, &token, "cheapest-all").await?.is_none(), "a stranger's is no batch");
    assert!(trio.report(0, &trio.tokens[0], "cheapest-all").await?.is_some());
    let unknown = trio.collected("never-asked-for", &[0, 1, 2]).await?;
    assert!(unknown.iter().all(|report| report.status == BatchStatus::Unknown && report.parts.is_empty()));
    Ok(())
}

impl Trio {
    /// What each operator made of a batch create, none where it had no part.
    async fn create_answers(&self, key: CallKey) -> Result<Vec<BatchCreateResponse>> {
        let parts = self.account.chain().parts(key).await?;
        let mut made = vec![BatchCreateResponse::default(); self.nodes.len()];
        for (place, made) in made.iter_mut().enumerate() {
            if parts.iter().any(|part| part.operator == Ground::address(KEYS[place])) {
                let answer = self.answer(place, key).await?;
                ensure!(answer.failure.is_none(), "{}", answer.response_json);
                *made = BatchCreateResponse::abi_decode(&answer.response)?;
            }
        }
        Ok(made)
    }

    /// Runs a command in the sandboxes of `endpoints`, the last of which is nobody's, and checks what comes back.
    async fn execute(
        &self,
        endpoints: &[String],
        shares: &[usize],
        (distribution, aggregation): (&str, Aggregation),
    ) -> Result<()> {
        let batch = format!("{distribution}-{aggregation}");
        let key = self.exec(&batch, endpoints, ("echo  $((40 + 2))", true, aggregation)).await?;
        let answers = self.answers::<BatchExecResponse>(key).await?;
        let mut done = vec![0; endpoints.len()];
        for (place, (outcome, failure, response)) in answers.iter().enumerate() {
            ensure!(response.batch_id == batch && response.results.len() == endpoints.len(), "{batch}");
            let own: Vec<_> = response.results.iter().filter(|one| said(&one.stderr) != "elsewhere").collect();
            let holds_nobodys = usize::from(place == 0);
            ensure!(own.len() == shares[place] + holds_nobodys, "{batch}: operator {place} has {} items", own.len());
            ensure!((response.succeeded + response.failed) as usize == own.len(), "{batch}");
            for (index, result) in response.results.iter().enumerate() {
                if result.exit_code == 0 {
                    done[index] += 1;
                    ensure!(said(&result.stdout) == "42\n", "{:?}", result.stdout);
                }
            }
            match (aggregation, response.succeeded) {
                // It may have been cancelled by another's success, or have had nothing to cancel.
                (Aggregation::FirstSuccess, 0) if *outcome == 1 => {
                    ensure!(*failure == Some(FailureCode::NoSuccess), "{failure:?}");
                }
                _ => ensure!(*outcome == 0, "{batch}: operator {place}: {failure:?}"),
            }
        }
        let successes: usize = done.iter().sum();
        match aggregation {
            Aggregation::FirstSuccess => ensure!((1..=3).contains(&successes), "{batch}: {done:?}"),
            Aggregation::All | Aggregation::Majority => ensure!(done == [1, 1, 1, 0], "{batch}: {done:?}"),
        }
        let nobodys = said(&answers[0].2.results[3].stderr);
        ensure!(nobodys.starts_with("bad_request: ") || nobodys.starts_with("cancelled: "), "{batch}: {nobodys}");
        let report = self.report(0, &self.tokens[0], &batch).await?.context("no report")?;
        ensure!(report.status == BatchStatus::Done && report.others.len() == 2, "{report:?}");
        let majority = report.parts[0].majority.as_ref().map(|majority| (majority.answer.as_str(), majority.tied));
        let expected = (aggregation == Aggregation::Majority && shares[0] > 0).then_some(("42", false));
        ensure!(majority == expected, "{batch}: {majority:?}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_is_named_nothing_is_repeated_after_a_kill_and_who_is_silent_is_known() -> Result<()> {
    let mut trio = Trio::with(|second| second.set("CAPACITY_MEMORY_MB", "512")).await?;
    let created = trio.create(6, "round_robin", 300).await?;
    let answers = trio.create_answers(created).await?;
    assert_eq!(answers.iter().map(|made| made.sandbox_ids.len()).collect::<Vec<_>>(), [2, 1, 2], "no room for one");
    let detail = trio.account.chain().assignment(created).await?.context("no assignment")?.detail;
    let made: Vec<u8> = (0..6).filter(|slot| detail.bit(usize::from(*slot))).collect();
    assert_eq!(made.len(), 5);
    for place in 0..6 {
        let state = trio.account.chain().sandbox(SandboxId { origin: created, slot: place }).await?.state;
        let expected = if made.contains(&place) { SandboxState::Live } else { SandboxState::Failed };
        assert_eq!(state, expected, "slot {place}");
    }
    assert_eq!(detail, made.iter().fold(U256::ZERO, |bits, slot| bits | U256::ONE << usize::from(*slot)));
    let own = trio.report(1, &trio.tokens[1], &format!("batch-{}-{}", created.service, created.call)).await?;
    let failed: Vec<_> = own.context("no report")?.parts.remove(0).items;
    let failed: Vec<_> = failed.iter().filter_map(|item| item.failure.as_ref()).map(|failure| failure.code).collect();
    assert_eq!(failed, [FailureCode::NoCapacity]);

    trio.killed_and_restarted([answers[0].sandbox_ids.clone(), answers[2].sandbox_ids.clone()].concat()).await?;
    trio.silent(&answers[0].sandbox_ids[..1]).await
}

impl Trio {
    /// The first operator dies between two items of its own, and takes up what it left.
    async fn killed_and_restarted(&mut self, sandboxes: Vec<String>) -> Result<()> {
        let script = "echo x >> begun; while [ ! -e go ]; do sleep 0.05; done";
        let key = self.exec("killed", &sandboxes, (script, false, Aggregation::All)).await?;
        self.shows(0, "killed", &[ItemState::Running, ItemState::Waiting]).await?;
        self.inside(0, &sandboxes[0], "touch go")?;
        self.shows(0, "killed", &[ItemState::Succeeded, ItemState::Running]).await?;
        let begun = async || self.inside(0, &sandboxes[1], "cat begun").ok();
        until("the second item to begin", BOUND, begun).await?;
        self.nodes[0].kill()?;
        self.nodes[0].start().await?;
        for (place, sandbox) in [(0, &sandboxes[1]), (2, &sandboxes[2]), (2, &sandboxes[3])] {
            self.inside(place, sandbox, "touch go")?;
        }
        let answers = self.answers::<BatchExecResponse>(key).await?;
        let succeeded: Vec<u32> = answers.iter().map(|(_, _, response)| response.succeeded).collect();
        assert_eq!((succeeded.as_slice(), answers[0].0), ([2, 0, 2].as_slice(), 0));
        for (place, sandbox) in [(0, &sandboxes[0]), (0, &sandboxes[1]), (2, &sandboxes[2]), (2, &sandboxes[3])] {
            assert_eq!(self.inside(place, sandbox, "cat begun")?.trim(), "x", "begun once in {sandbox}");
        }
        Ok(())
    }

    /// The third operator does not answer; the others name it once its time is over.
    async fn silent(&mut self, sandboxes: &[String]) -> Result<()> {
        self.nodes[2].stop().await?;
        let key = self.exec("silent", sandboxes, ("true", true, Aggregation::All)).await?;
        tokio::try_join!(self.answer(0, key), self.answer(1, key))?;
        let silent = |reports: &[BatchReport]| -> Vec<bool> {
            let third = Ground::address(KEYS[2]);
            let others = reports.iter().flat_map(|report| &report.others).filter(|other| other.operator == third);
            others.map(|other| other.is_silent).collect()
        };
        assert_eq!(silent(&self.collected("silent", &[0, 1]).await?), [false, false]);
        let deadline = self.account.chain().assignment(key).await?.context("no assignment")?.deadlineBlock;
        let head = self.account.chain().head().await?;
        self.ground.chain.mine(deadline + 1 - head.min(deadline)).await?;
        assert_eq!(silent(&self.collected("silent", &[0, 1]).await?), [true, true]);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_success_anywhere_ends_the_commands_everywhere_and_a_batch_is_shown_while_it_runs() -> Result<()> {
    let trio = Trio::with(|_| {}).await?;
    let created = trio.create(3, "round_robin", MEMORY_MB).await?;
    trio.create_answers(created).await?;
    let sandboxes = [0, 1, 2].map(|place| slot(created, place));
    let parts = trio.account.chain().parts(created).await?;
    let place_of = |sandbox: usize| KEYS.iter().position(|key| Ground::address(*key) == parts[sandbox].operator);
    let places = [0, 1, 2].map(|sandbox| place_of(sandbox).unwrap_or_default());
    trio.inside(places[0], &sandboxes[0], "touch quick")?;
    let script = "if [ -e quick ]; then while [ ! -e go ]; do sleep 0.05; done; else sleep 601; fi";
    let key = trio.exec("race", &sandboxes, (script, true, Aggregation::FirstSuccess)).await?;
    for place in [1, 2] {
        trio.runs(places[place], &sandboxes[place], ("sleep 601", true)).await?;
    }
    trio.shows(places[0], "race", &[ItemState::Running]).await?;
    let running = trio.collected("race", &[0, 1, 2]).await?;
    assert!(running.iter().all(|report| report.status == BatchStatus::Running && report.parts[0].items.len() == 1));

    trio.inside(places[0], &sandboxes[0], "touch go")?;
    let answers = trio.answers::<BatchExecResponse>(key).await?;
    assert_eq!(answers.iter().map(|(outcome, ..)| *outcome).collect::<Vec<_>>(), [0, 0, 0]);
    for (sandbox, place) in places.into_iter().enumerate() {
        let result = &answers[place].2.results[sandbox];
        let cancelled = said(&result.stderr).starts_with("cancelled: an item of another operator's had succeeded");
        assert_eq!((result.exit_code, cancelled), if sandbox == 0 { (0, false) } else { (-1, true) });
    }
    for place in [1, 2] {
        trio.runs(places[place], &sandboxes[place], ("sleep 601", false)).await?;
    }
    let done = trio.collected("race", &[0, 1, 2]).await?;
    assert!(done.iter().all(|report| report.status == BatchStatus::Done && report.others.len() == 2));
    assert!(done.iter().flat_map(|report| &report.others).all(|other| other.outcome.is_some() && !other.is_silent));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_whose_answer_is_not_what_it_attested_to_is_named_and_not_believed() -> Result<()> {
    let mut liar = None;
    let trio = Trio::with(|second| {
        liar = Liar::before(second.api_url(), "honest", "forged").ok();
        second.set("API_URL", liar.as_ref().map_or_else(String::new, |liar| liar.url().to_owned()));
    })
    .await?;
    let customer = trio.ground.client(CUSTOMER)?;
    let (service, memory_mb) = (trio.service.to_string(), MEMORY_MB.to_string());
    let create = ["batch", "create", "--service", &service, "--count", "3", "--memory-mb", &memory_mb, "--id", "night"];
    customer.text(&[&create[..], &["--within", "60"]].concat()).await?;
    let exec = ["batch", "exec", "--service", &service, "--batch", "night", "--within", "60", "--", "echo honest"];
    let (code, stdout, stderr) = shown(&customer.run(&exec).await?);
    assert_eq!(code, Some(119), "{stdout}{stderr}");
    let rows = |state: &str| stdout.lines().filter(|line| line.contains(state)).count();
    assert_eq!((rows("succeeded"), rows("disproved")), (2, 1), "{stdout}");
    ensure!(!stdout.contains("forged"), "{stdout}");
    ensure!(stderr.contains(&format!("operator {} lies: ", Ground::address(KEYS[1]))), "{stderr}");
    ensure!(stderr.matches(" lies: ").count() == 1, "{stderr}");
    Ok(())
}
