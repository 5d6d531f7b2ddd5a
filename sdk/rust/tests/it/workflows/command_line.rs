//! `workflow` as people and scripts use it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use alloy::hex;
use rustix::termios::{Winsize, tcsetwinsize};
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{RunStatus, StepStatus};
use sandbox_sdk::{devchain, operators};
use serde_json::Value;
use tokio::process::Command;

use crate::agents::command_line::{interrupt, once_said, pty, read_until};
use crate::agents::token;
use crate::fake_workflows::{FakeWorkflows, entry, step};
use crate::world::{API_URL, CUSTOMER, World, profile};

/// A world with an operator that tells of workflows, a customer's service there, and a terminal.
struct Terminal {
    world: World,
    operator: FakeWorkflows,
    directory: tempfile::TempDir,
    settings: BTreeMap<&'static str, String>,
    service: u64,
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    #[track_caller]
    fn check(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, self.stdout.trim()), (code, stdout), "{}", self.stderr);
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl Terminal {
    async fn open() -> Self {
        let world = World::start().await;
        let account = world.account(1).await;
        let operator = FakeWorkflows::start(Some(account.clone())).await;
        operators::register(&account, &profile(&operator.url)).await.unwrap();
        let (customer, service) = world.customer().await;
        let directory = tempfile::tempdir().unwrap();
        let addresses = directory.path().join("addresses.json");
        world.deployment.save(&addresses).unwrap();
        let (chain_id, core) = (world.deployment.chain_id, world.deployment.core);
        let name = format!("{chain_id}/{core}/{}/{}", customer.address(), account.address());
        let kept = BTreeMap::from([(name, token())]);
        std::fs::write(directory.path().join("tokens.json"), serde_json::to_string(&kept).unwrap()).unwrap();
        let settings = BTreeMap::from([
            ("SANDBOX_DEPLOYMENT", addresses.display().to_string()),
            ("SANDBOX_KEY", hex::encode(devchain::KEYS[CUSTOMER])),
            ("SANDBOX_SERVICE", service.to_string()),
            ("SANDBOX_CONFIG_DIR", directory.path().display().to_string()),
            ("TZ", "Europe/Berlin".to_owned()),
        ]);
        Self { world, operator, directory, settings, service }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        command.arg("workflow").args(words).env_clear().envs(&self.settings).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, words: &[&str]) -> Run {
        let output = self.command(words).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// A workflow of this terminal's customer.
    async fn created(&self, words: &[&str]) -> String {
        let run = self.run(&[&["create", "--prompt", "tidy", "--own-sandbox"], words].concat()).await;
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.trim().to_owned()
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

#[tokio::test]
async fn a_workflow_is_created_listed_shown_paused_resumed_and_cancelled() {
    let terminal = Terminal::open().await;
    let (service, who) = (terminal.service, devchain::key(1).address());
    let body = terminal
        .file("w.json", r#"{"steps":[{"id":"a","kind":"exec","with":{"command":"ls"}}],"sandbox_id":"sbx-1-9-0"}"#);
    let words = ["create", &body, "--name", "nightly", "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin"];
    let run = terminal.run(&words).await;
    let id = format!("{service}/0");
    run.check(0, &id);
    assert!(run.stderr.ends_with(&format!("fired by operator {who} at {}\n", terminal.operator.url)), "{}", run.stderr);

    let unheard =
        format!("{id}  nightly  active  cron 0 9 * * 1-5 Europe/Berlin  ! its operator does not know of it yet");
    terminal.run(&["ls"]).await.check(0, &unheard);
    let owner = devchain::key(CUSTOMER).address();
    terminal.operator.change(|seen| seen.entries = vec![entry((service, 0), owner, Some(1_761_436_800))]);
    let next = "2025-10-26 02:00:00 CEST (00:00:00 UTC)";
    let heard = format!("{id}  nightly  active  cron 0 9 * * 1-5 Europe/Berlin  next {next}");
    terminal.run(&["ls"]).await.check(0, &heard);

    let shown = terminal.run(&["show", &id]).await;
    for line in [format!("next       {next}"), "body       stored by the contract; its hash holds".to_owned()] {
        assert!(shown.stdout.lines().any(|found| found == line), "{line:?} is not in {}", shown.stdout);
    }
    let shown = terminal.run(&["show", &id, "--json"]).await.json();
    assert_eq!((&shown["workflow_json"]["steps"][0]["id"], &shown["origin"]), (&"a".into(), &"row".into()));
    assert_eq!((&shown["status"], &shown["next_slot_s"]), (&"active".into(), &1_761_436_800.into()));

    terminal.run(&["pause", &id]).await.check(0, &format!("{id} paused"));
    let paused = terminal.run(&["ls", "--json"]).await.json();
    assert_eq!((&paused[0]["status"], &paused[0]["next_slot_s"]), (&"paused".into(), &Value::Null));
    let twice = terminal.run(&["pause", &id]).await;
    assert_eq!(
        (twice.code, twice.stderr),
        (121, format!("sandbox: workflow {id} is paused, which does not allow this\n"))
    );
    terminal.run(&["resume", &id]).await.check(0, &format!("{id} active"));
    terminal.run(&["cancel", &id]).await.check(0, &format!("{id} cancelled"));
    let shown = terminal.run(&["show", &id, "--json"]).await.json();
    assert_eq!((&shown["status"], &shown["next_slot_s"]), (&"cancelled".into(), &Value::Null));
    let unknown = terminal.run(&["show", &format!("{service}/77")]).await;
    assert_eq!((unknown.code, unknown.stderr), (121, format!("sandbox: there is no workflow {service}/77\n")));
}

#[tokio::test]
async fn what_a_sandbox_of_a_runs_own_is_given_is_sealed() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&["--env", "TOKEN=canary", "--image", "base"]).await;
    let key = CallKey { service: terminal.service, call: 0 };
    let submission = terminal.world.account(CUSTOMER).await.chain().submission(key).await.unwrap().unwrap();
    assert!(!hex::encode(&submission.inputs).contains(&hex::encode("canary")), "it is public");
    let shown = terminal.run(&["show", &id]).await;
    assert!(shown.stdout.contains("sandbox    one of each run's own, sealed\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains("from the log of block "), "{}", shown.stdout);
}

#[tokio::test]
async fn a_webhook_is_fired_by_the_line_that_its_creation_prints() {
    let terminal = Terminal::open().await;
    terminal.operator.change(|seen| seen.unknown = 1);
    let run = terminal.run(&["create", "--prompt", "tidy", "--own-sandbox", "--webhook"]).await;
    let id = format!("{}/0", terminal.service);
    run.check(0, &id);
    let line = run.stderr.lines().find(|line| line.contains("openssl")).unwrap();
    let sent = Command::new("sh").args(["-c", line]).output().await.unwrap();
    let answer: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(answer, serde_json::json!({"run": 1, "is_repeat": false}));

    let secret = terminal.run(&["secret", &id, "--json"]).await.json();
    let replaced = terminal.run(&["secret", &id, "--replace", "--json"]).await.json();
    assert!(secret["url"] == replaced["url"] && secret["secret"] != replaced["secret"], "{secret} {replaced}");
    let refused = Command::new("sh").args(["-c", line]).output().await.unwrap();
    assert!(String::from_utf8(refused.stdout).unwrap().contains("the signature is not the workflow's"));
}

#[tokio::test]
async fn a_triggered_run_is_told_change_by_change_and_ends_the_program_as_itself() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&[]).await;
    terminal.run(&["trigger", &id]).await.check(0, "run 1 running");

    let states = |build, test| vec![step("build", build, &[]), step("test", test, &[])];
    terminal.operator.run(RunStatus::Running, states(StepStatus::Running, StepStatus::Waiting));
    let child = terminal.command(&["trigger", &id, "--follow"]).spawn().unwrap();
    terminal.operator.asked_after(1).await;
    terminal.operator.run(RunStatus::Running, states(StepStatus::Succeeded, StepStatus::Running));
    terminal.operator.asked_after(2).await;
    terminal.operator.run(RunStatus::Failed, states(StepStatus::Succeeded, StepStatus::Failed));
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(118));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "run 1 running\nrun 1 failed\n");
    let expected = "run 1 running\nbuild running\nbuild succeeded\ntest running\ntest failed\n\
                    sandbox: run 1 failed: step test failed\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);

    terminal.operator.run(RunStatus::Succeeded, states(StepStatus::Succeeded, StepStatus::Succeeded));
    let followed = terminal.run(&["runs", &id, "1", "--follow", "--json"]).await.json();
    assert_eq!((&followed["status"], &followed["version"]), (&"succeeded".into(), &4.into()));
}

#[tokio::test]
async fn who_only_looks_on_leaves_the_run_as_it_is() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&[]).await;
    terminal.operator.run(RunStatus::Running, vec![step("build", StepStatus::Running, &[])]);
    let child = terminal.command(&["runs", &id, "1", "--follow"]).spawn().unwrap();
    let (mut child, _stderr) = once_said(child, "build running").await;
    interrupt(&child);
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    assert!(!terminal.operator.seen().requests.iter().any(|request| request.starts_with("POST")));
    terminal.run(&["cancel-run", &id, "1"]).await.check(0, "run 1 cancelled");
}

#[tokio::test]
async fn what_an_operator_says_of_its_refusal_steers_no_terminal() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&[]).await;
    let refused = terminal.run(&["runs", &id, "2"]).await;
    assert_eq!(refused.code, 121, "{}", refused.stderr);
    assert!(refused.stderr.contains("no [2Jsuch thing"), "{}", refused.stderr);
    assert!(!refused.stderr.trim_end().contains(char::is_control), "{:?}", refused.stderr);
}

#[tokio::test]
async fn a_person_sees_the_steps_of_a_run_as_a_table() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&[]).await;
    let states = |build, test| vec![step("build", build, &[]), step("test", test, &[])];
    terminal.operator.run(RunStatus::Running, states(StepStatus::Running, StepStatus::Waiting));
    let (mut master, slave) = pty();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut command = terminal.command(&["runs", &id, "1", "--follow"]);
    let child = command.stderr(Stdio::from(OwnedFd::from(slave))).spawn().unwrap();
    drop(command);
    terminal.operator.asked_after(1).await;
    terminal.operator.run(RunStatus::Succeeded, states(StepStatus::Succeeded, StepStatus::Skipped));
    let reading = tokio::task::spawn_blocking(move || (read_until(&mut master, "skipped"), master));
    let (seen, _master) = reading.await.unwrap();
    assert!(seen.contains("run 1 running, by call 9\r\nbuild  exec  running\r\ntest   exec  waiting\r\n"), "{seen:?}");
    let redrawn = "\x1b[3A\x1b[Jrun 1 succeeded, by call 9\r\nbuild  exec  succeeded  1.5 s\r\ntest   exec  skipped";
    assert!(seen.contains(redrawn), "{seen:?}");
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"run 1 succeeded\n".as_slice()));
}

#[tokio::test]
async fn runs_are_listed_and_what_their_steps_wrote_goes_where_they_wrote_it() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&[]).await;
    let build = step("build", StepStatus::Succeeded, &[("stdout", "built\n"), ("stderr", "warned")]);
    let ask = step("ask", StepStatus::Succeeded, &[("result", "all is \u{1b}[31mwell")]);
    terminal.operator.run(RunStatus::Succeeded, vec![build, ask]);
    let listed = terminal.run(&["runs", &id, "--limit", "7"]).await;
    listed.check(0, "1  succeeded  by call 9  took 2.5 s");
    assert_eq!(listed.stderr, "there are more: --before 1\n");
    let query = format!("GET /v1/services/{}/workflows/0/runs?limit=7", terminal.service);
    assert_eq!(terminal.operator.seen().requests.last(), Some(&query));
    let shown = terminal.run(&["runs", &id, "1"]).await;
    assert!(shown.stdout.contains("\ntook     2.5 s\nbuild  exec  succeeded  1.5 s\n"), "{}", shown.stdout);

    let logs = terminal.run(&["logs", &id, "1"]).await;
    logs.check(0, "built\nall is \u{1b}[31mwell");
    let expected = "== build  exec  succeeded  1.5 s\nwarned\n== ask  exec  succeeded  1.5 s\n";
    assert_eq!(logs.stderr, expected);
    terminal.run(&["logs", &id, "1", "build"]).await.check(0, "built");
    let unknown = terminal.run(&["logs", &id, "1", "deploy"]).await;
    assert_eq!(
        (unknown.code, unknown.stderr.as_str()),
        (2, "sandbox: the run has no step \"deploy\"; it has build, ask\n")
    );

    let (mut master, slave) = pty();
    let mut command = terminal.command(&["logs", &id, "1", "ask"]);
    let child = command.stdout(Stdio::from(OwnedFd::from(slave))).spawn().unwrap();
    drop(command);
    let reading = tokio::task::spawn_blocking(move || (read_until(&mut master, "well"), master));
    let (seen, _master) = reading.await.unwrap();
    assert_eq!(seen.trim(), "all is [31mwell", "a terminal obeys no step");
    assert!(child.wait_with_output().await.unwrap().status.success());
}

#[tokio::test]
async fn what_an_operator_would_refuse_is_refused_before_it_is_paid() {
    let terminal = Terminal::open().await;
    let file = terminal.file("w.json", "{");
    let cases: [(&[&str], &str); 5] = [
        (&["create", "--prompt", "x", "--own-sandbox", "--cron", "* *"], "trigger_config: cron: 2 fields"),
        (&["create", &file], "workflow_json: "),
        (&["create", "--prompt", "x"], "a prompt needs --sandbox, or --own-sandbox"),
        (&["create", "--prompt", "x", "--own-sandbox", "--event", "{}"], "trigger_config: missing field"),
        (&["create", "--prompt", "x", "--sandbox", "sbx-99-0-0", "--service", "1"], "sandbox sbx-99-0-0 is not of"),
    ];
    for (words, sentence) in cases {
        let run = terminal.run(words).await;
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.starts_with(&format!("sandbox: {sentence}")), "{}", run.stderr);
    }
    let key = CallKey { service: terminal.service, call: 0 };
    assert!(terminal.world.account(CUSTOMER).await.chain().job_call(key).await.unwrap().is_none(), "nothing was sent");
    assert_eq!(terminal.run(&["schema", "--json"]).await.json(), serde_json::json!({"type": "object"}));
}

#[tokio::test]
async fn an_operator_that_does_not_answer_is_named_and_the_chain_still_tells() {
    let terminal = Terminal::open().await;
    let id = terminal.created(&["--name", "tidy"]).await;
    let account = terminal.world.account(1).await;
    operators::register(&account, &profile(API_URL)).await.unwrap();
    let listed = terminal.run(&["ls"]).await;
    let silent = format!("the operator at {API_URL} did not answer");
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(
        listed.stdout.starts_with(&format!("{id}  active  manual  ! its operator tells nothing: {silent}")),
        "{}",
        listed.stdout
    );
    assert!(
        listed.stderr.contains(&format!("operator {} tells nothing, of paused workflows neither", account.address()))
    );
    let shown = terminal.run(&["show", &id]).await;
    assert!(shown.stdout.contains("name       tidy\nstate      active\n"), "{}", shown.stdout);
    assert!(shown.stdout.contains(&format!("problem    its operator tells nothing: {silent}")), "{}", shown.stdout);
}
