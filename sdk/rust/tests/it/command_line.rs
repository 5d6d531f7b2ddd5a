//! The program as people and scripts use it: what it prints, where, and how it ends.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};

use alloy::hex;
use alloy::primitives::B256;
use sandbox_protocol::CallKey;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::{devchain, operators};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::fake_operator::{FakeOperator, Manner};
use crate::world::{API_URL, CUSTOMER, World, profile};

/// A world with an operator that answers, and a directory with the addresses file.
struct Terminal {
    world: World,
    _operator: FakeOperator,
    directory: tempfile::TempDir,
    settings: BTreeMap<&'static str, String>,
}

/// How a run ended.
struct Run {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Run {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap().trim()
    }

    #[track_caller]
    fn check(&self, code: i32, stderr: &str) {
        assert_eq!((self.code, self.stderr.trim()), (code, stderr), "{}", String::from_utf8_lossy(&self.stdout));
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { code: output.status.code().unwrap(), stdout: output.stdout, stderr }
    }
}

impl Terminal {
    async fn open(manner: Manner) -> Self {
        let world = World::start().await;
        let operator = FakeOperator::start(world.account(1).await, manner).await;
        let directory = tempfile::tempdir().unwrap();
        let addresses = directory.path().join("addresses.json");
        world.deployment.save(&addresses).unwrap();
        let settings = BTreeMap::from([
            ("SANDBOX_DEPLOYMENT", addresses.display().to_string()),
            ("SANDBOX_KEY", hex::encode(devchain::KEYS[CUSTOMER])),
        ]);
        Self { world, _operator: operator, directory, settings }
    }

    /// A terminal whose customer has a service, and the service's id.
    async fn with_service(manner: Manner) -> (Self, u64) {
        let mut terminal = Self::open(manner).await;
        let (_, service) = terminal.world.customer().await;
        terminal.settings.insert("SANDBOX_SERVICE", service.to_string());
        (terminal, service)
    }

    async fn run(&self, words: &[&str]) -> Run {
        self.run_with(words, "").await
    }

    async fn run_with(&self, words: &[&str], stdin: &str) -> Run {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .args(words)
            .env_clear()
            .envs(&self.settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(stdin.as_bytes()).await.unwrap();
        drop(input);
        child.wait_with_output().await.unwrap().into()
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

#[tokio::test]
async fn a_sandbox_is_created_used_deleted_and_its_answers_are_proven() {
    let (terminal, service) = Terminal::with_service(Manner::Honest).await;
    let created = terminal.run(&["create", "--cpu", "1", "--env", "A=1"]).await;
    created.check(0, "");
    let id = format!("sbx-{service}-0-0");
    assert_eq!(created.text(), id);

    let saved = terminal.path("answer.json");
    let words = ["run", &id, "--cwd", "/tmp", "--env", "B=2", "--stdin", "-", "--save", &saved, "--", "echo", "a b"];
    let executed = terminal.run_with(&words, "typed").await;
    executed.check(3, "warned");
    assert_eq!(executed.stdout, [br#"echo 'a b'|/tmp|{"B":"2"}|typed"#.as_slice(), &[0xff]].concat());

    let proven = terminal.run(&["verify", &saved]).await;
    proven.check(0, "");
    let operator = devchain::key(1).address();
    let expected =
        format!("proven: call {service}/1, outcome done, operator {operator}; signed, and recorded on chain");
    assert_eq!(proven.text(), expected);
    terminal.run(&["verify", &format!("{service}/1")]).await.check(0, "");
    terminal.run(&["verify", &saved, "--offline"]).await.check(0, "");

    let removed = terminal.run(&["rm", &id]).await;
    removed.check(0, "");
    assert_eq!(removed.text(), format!("{id} gone"));
    let again = terminal.run(&["run", &id, "--", "true"]).await;
    again.check(121, &format!("sandbox: no live sandbox {id} in this service"));
}

#[tokio::test]
async fn what_cannot_be_sealed_is_not_sent_unless_it_may_be_public() {
    let (terminal, _) = Terminal::with_service(Manner::Honest).await;
    let operator = terminal.world.account(1).await;
    let url = operator.chain().operator(operator.address()).await.unwrap().apiUrl;
    let keyless = OperatorProfile { sealKey: B256::ZERO, ..profile(&url) };
    operators::register(&operator, &keyless).await.unwrap();
    let refused = terminal.run(&["create", "--env", "A=1"]).await;
    let who = operator.address();
    refused.check(121, &format!(
        "sandbox: operator {who} publishes no seal key, so everybody could read the environment or prompt; send it plain to allow that"
    ));
    terminal.run(&["create"]).await.check(0, "");
    terminal.run(&["create", "--plain", "--env", "A=1"]).await.check(0, "");
}

#[tokio::test]
async fn a_sandbox_is_of_use_as_soon_as_its_creation_ends() {
    let (terminal, service) = Terminal::with_service(Manner::Eager).await;
    for call in 0..3 {
        let created = terminal.run(&["create"]).await;
        created.check(0, "");
        let id = format!("sbx-{service}-{}-0", call * 2);
        assert_eq!(created.text(), id);
        terminal.run(&["run", &id, "--", "true"]).await.check(3, "warned");
    }
}

#[tokio::test]
async fn a_job_that_was_not_done_says_whose_matter_it_is() {
    let (terminal, service) = Terminal::with_service(Manner::Honest).await;
    terminal.run(&["create"]).await.check(0, "");
    let id = format!("sbx-{service}-0-0");

    let late = terminal.run(&["run", &id, "--", "never-ends"]).await;
    late.check(124, "warned\nsandbox: the command's time was over and it was killed");
    assert!(late.stdout.starts_with(b"never-ends|"), "what it wrote until then is printed");

    let failed = terminal.run(&["run", &id, "--json", "--", "no-engine"]).await;
    failed.check(123, r#"{"code":"engine","message":"the container engine failed","retryable":true}"#);

    let shown = terminal.run(&["call", "show", &format!("{service}/2"), "--wait", "--json"]).await;
    shown.check(0, "");
    let body: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&body["status"], &body["answer"]["failure"]), (&"settled".into(), &"engine".into()));
}

#[tokio::test]
async fn a_tampered_answer_is_not_proven() {
    let (terminal, _) = Terminal::with_service(Manner::Honest).await;
    let saved = terminal.path("answer.json");
    terminal.run(&["create", "--save", &saved]).await.check(0, "");
    let text = std::fs::read_to_string(&saved).unwrap().replace("\"duration_ms\": 1", "\"duration_ms\": 2");
    std::fs::write(&saved, text).unwrap();
    for words in [["verify", &saved].as_slice(), &["verify", &saved, "--offline"]] {
        let run = terminal.run(words).await;
        assert_eq!(run.code, 119);
        assert!(run.stderr.contains("signed by") || run.stderr.contains("not valid"), "{}", run.stderr);
    }
}

#[tokio::test]
async fn an_answer_that_is_forged_or_late_is_not_taken_for_one() {
    let (terminal, service) = Terminal::with_service(Manner::Forging).await;
    let forged = terminal.run(&["create"]).await;
    assert_eq!(forged.code, 119);
    assert!(forged.stderr.starts_with(&format!("sandbox: the answer to call {service}/0 is not proven: ")));

    let (terminal, service) = Terminal::with_service(Manner::Idle).await;
    let late = terminal.run(&["create", "--within", "1"]).await;
    late.check(125, &format!("sandbox: call {service}/0 has no answer after 1 s"));
}

#[tokio::test]
async fn a_service_is_requested_drawn_and_shown() {
    let terminal = Terminal::open(Manner::Honest).await;
    let requested = terminal.run(&["service", "request", "--count", "1", "--ttl", "7200", "--no-wait", "--json"]).await;
    requested.check(0, "");
    let body: serde_json::Value = serde_json::from_slice(&requested.stdout).unwrap();
    let request = body["request"].as_u64().unwrap();
    operators::approve(&terminal.world.account(1).await, request).await.unwrap();

    let shown = terminal.run(&["service", "show", "1"]).await;
    shown.check(0, "");
    assert!(shown.text().starts_with("service    1\nstate      active\n"), "{}", shown.text());
    let foreign = terminal.run(&["service", "show", "0"]).await;
    let blueprint = terminal.world.deployment.blueprint_id;
    foreign.check(121, &format!("sandbox: service 0 is of blueprint 0, not of blueprint {blueprint}"));

    let many = terminal.run(&["service", "request", "--count", "2", "--seed", &B256::ZERO.to_string()]).await;
    many.check(121, "sandbox: 2 operators asked for, 1 are eligible");
    let late = terminal.run(&["service", "request", "--count", "1", "--within", "0"]).await;
    late.check(125, &format!("sandbox: service request {} has 0 of 1 approvals after 0 s", request + 1));
}

#[tokio::test]
async fn settings_that_are_missing_or_wrong_stop_the_run_before_anything_is_sent() {
    let (mut terminal, _) = Terminal::with_service(Manner::Honest).await;
    let short = terminal.run(&["create", "--memory-mb", "1"]).await;
    short.check(2, "sandbox: memory_mb is 1, allowed is 64 to 1048576, or 0 for the default");
    let elsewhere = terminal.run(&["service", "show", "1", "--rpc-url", "http://127.0.0.1:9"]).await;
    assert_eq!(elsewhere.code, 125, "{}", elsewhere.stderr);

    terminal.settings.insert("SANDBOX_KEY", "not-a-key".into());
    terminal.run(&["create"]).await.check(2, "sandbox: SANDBOX_KEY holds no private key of 64 hex digits");
    let file = terminal.path("key");
    std::fs::write(&file, format!("{}\n", devchain::KEYS[CUSTOMER])).unwrap();
    terminal.run(&["create", "--key-file", &file]).await.check(0, "");
    terminal.settings.remove("SANDBOX_KEY");
    terminal.run(&["create"]).await.check(2, "sandbox: SANDBOX_KEY is not set");
    terminal.settings.remove("SANDBOX_DEPLOYMENT");
    terminal.run(&["service", "show", "1"]).await.check(2, "sandbox: SANDBOX_DEPLOYMENT is not set");
    assert_eq!(terminal.run(&["create", "--no-such-option"]).await.code, 2);
}

#[tokio::test]
async fn a_price_is_shown_before_anything_is_sent_and_a_quote_says_what_it_lacks() {
    let (terminal, service) = Terminal::with_service(Manner::Honest).await;
    let shown = terminal.run(&["price", "exec"]).await;
    shown.check(0, "");
    assert_eq!(shown.text(), "0.00005 coin");
    let shown = terminal.run(&["price", "0", "--json"]).await;
    let body: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&body["job"], &body["amount"]), (&"sandbox_create".into(), &"500000000000000".into()));
    terminal.run(&["price", "exec", "--service", "99"]).await.check(121, "sandbox: there is no service 99");
    terminal.run(&["quote", "--job", "exec"]).await.check(2, "sandbox: a quote of job exec needs --sandbox");
    terminal.run(&["quote", "--job", "prompt"]).await.check(2, "sandbox: a quote of job prompt needs --inputs");
    assert_eq!(terminal.run(&["create", "--max-price", "1"]).await.code, 2, "a bound is on quotes");

    operators::register(&terminal.world.account(1).await, &profile(API_URL)).await.unwrap();
    let nobody = terminal.run(&["create", "--quote"]).await;
    let operator = devchain::key(1).address();
    let expected = format!("sandbox: no operator quotes: {operator}: the operator at {API_URL} did not answer");
    nobody.check(125, &expected);
    let calls = terminal.world.account(CUSTOMER).await.chain().job_call(CallKey { service, call: 0 }).await.unwrap();
    assert!(calls.is_none(), "nothing was sent");
}
