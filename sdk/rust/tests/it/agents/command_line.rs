//! `prompt`, `task`, `negotiate`, `runs` and `sessions` as people and scripts use them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;

use alloy::hex;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunFailure};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::{devchain, operators};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use super::token;
use crate::fake_agent::{FakeAgent, Faults, Step, done, failed};
use crate::world::{CUSTOMER, World, profile};

/// A world with an operator that has an agent, a customer's sandbox there, and a terminal.
struct Terminal {
    world: World,
    agent: FakeAgent,
    directory: tempfile::TempDir,
    settings: BTreeMap<&'static str, String>,
    sandbox: String,
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
}

impl Terminal {
    async fn open(script: Vec<Step>, faults: Faults) -> Self {
        let world = World::start().await;
        let operator = world.account(1).await;
        let agent = FakeAgent::start(script, faults, Some(operator.clone())).await;
        operators::register(&operator, &profile(&agent.url)).await.unwrap();
        let (customer, service) = world.customer().await;
        let directory = tempfile::tempdir().unwrap();
        let addresses = directory.path().join("addresses.json");
        world.deployment.save(&addresses).unwrap();
        let (chain_id, core) = (world.deployment.chain_id, world.deployment.core);
        let name = format!("{chain_id}/{core}/{}/{}", customer.address(), operator.address());
        let kept = BTreeMap::from([(name, token())]);
        std::fs::write(directory.path().join("tokens.json"), serde_json::to_string(&kept).unwrap()).unwrap();
        let settings = BTreeMap::from([
            ("SANDBOX_DEPLOYMENT", addresses.display().to_string()),
            ("SANDBOX_KEY", hex::encode(devchain::KEYS[CUSTOMER])),
            ("SANDBOX_SERVICE", service.to_string()),
            ("SANDBOX_CONFIG_DIR", directory.path().display().to_string()),
            ("PROVIDER_KEY", "sk-canary".to_owned()),
        ]);
        let mut terminal = Self { world, agent, directory, settings, sandbox: String::new() };
        let created = terminal.run(&["create", "--agent-backend", "native", "--agent", "coder"]).await;
        created.check(0, &format!("sbx-{service}-0-0"));
        terminal.sandbox = created.stdout.trim().to_owned();
        terminal
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        let words = words.iter().map(|word| if *word == "SANDBOX" { &self.sandbox } else { *word });
        command.args(words).env_clear().envs(&self.settings).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program; `SANDBOX` stands for the sandbox's id.
    async fn run(&self, words: &[&str]) -> Run {
        let output = self.command(words).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, content: &Value) -> String {
        let path = self.path(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.display().to_string()
    }
}

fn say(told: Told) -> Step {
    Step::Say(told)
}

fn started() -> Step {
    say(Told::Started {
        run: "r1".into(),
        trace_id: "t".into(),
        session_id: "s1".into(),
        backend: "native".into(),
        model: "m".into(),
    })
}

fn ended(result: &str) -> Step {
    say(Told::Done { reply: done(result) })
}

fn asks() -> Vec<Step> {
    let question = Told::ApprovalRequired {
        id: "call_1".into(),
        name: "shell".into(),
        arguments: json!({"command": "rm -r build"}),
        default: Decision::Deny,
        timeout_ms: 60_000,
    };
    vec![started(), say(question), Step::Ask("call_1"), ended("removed")]
}

#[tokio::test]
async fn a_task_tells_what_it_does_and_scripts_get_its_result_alone() {
    let arguments = json!({"command": "ls"});
    let content = "src\ntests".to_owned();
    let script = vec![
        started(),
        say(Told::Message { text: "I look".into() }),
        say(Told::ToolCall { id: "c".into(), name: "shell".into(), arguments }),
        say(Told::ToolResult { id: "c".into(), name: "shell".into(), content, is_error: false, duration_ms: 3 }),
        ended("two directories"),
    ];
    let terminal = Terminal::open(script, Faults { carried: Some(2), ..Faults::default() }).await;
    let context = terminal.file("context.json", &json!({"goal": "tidy"}));
    let words = ["task", "SANDBOX", "look around", "--session", "s1", "--agent", "coder", "--max-turns", "7"];
    let more = ["--context", &context, "--model", "m", "--timeout", "9", "--provider-key-env", "PROVIDER_KEY"];
    let run = terminal.run(&[words.as_slice(), &more].concat()).await;
    run.check(0, "two directories");
    let expected = "run r1, session s1, native m\n> shell {\"command\":\"ls\"}\n< shell, 3 ms: src tests\n\
                    1 turn, 0 tokens in, 0 out, 0.0 s; session s1\n";
    assert_eq!(run.stderr, expected);
    let body = terminal.agent.seen().bodies.remove(0);
    assert_eq!(
        (body.prompt.as_str(), body.session_id.as_str(), body.agent_identifier.as_str()),
        ("look around", "s1", "coder")
    );
    assert_eq!((body.max_turns, body.timeout_ms, body.model.as_str()), (7, 9_000, "m"));
    let context: Value = serde_json::from_str(&body.context_json).unwrap();
    assert_eq!(context, json!({"goal": "tidy", "provider": {"api_key": "sk-canary"}}));

    let run = terminal.run(&["runs", "SANDBOX", "r1", "--follow", "--json"]).await;
    assert_eq!((run.code, run.stdout.lines().count()), (0, 5), "an event a line: {}", run.stdout);
    let run = terminal.run(&["prompt", "SANDBOX", "again", "--json"]).await;
    let reply: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &reply["result"], run.stderr.as_str()), (0, &json!("two directories"), ""));
}

#[tokio::test]
async fn an_option_answers_for_who_is_not_there() {
    for (option, decision, word) in [("--approve", Decision::Allow, "allowed"), ("--deny", Decision::Deny, "denied")] {
        let terminal = Terminal::open(asks(), Faults::default()).await;
        let run = terminal.run(&["task", "SANDBOX", "clean up", option]).await;
        run.check(0, "removed");
        assert!(run.stderr.contains(&format!("? shell {{\"command\":\"rm -r build\"}}\n{word}\n")), "{}", run.stderr);
        assert_eq!(terminal.agent.seen().decisions["call_1"], decision);
    }
}

#[tokio::test]
async fn without_anybody_the_default_stands() {
    let mut script = asks();
    script[2] = say(Told::ApprovalDecided { id: "call_1".into(), decision: Decision::Deny, answered: false });
    let terminal = Terminal::open(script, Faults::default()).await;
    let run = terminal.run(&["task", "SANDBOX", "clean up"]).await;
    run.check(0, "removed");
    assert!(run.stderr.contains("denied, as nobody answered\n"), "{}", run.stderr);
    assert!(terminal.agent.seen().decisions.is_empty());
}

/// Both ends of a new terminal.
pub(crate) fn pty() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = File::options().read(true).write(true).open(name).unwrap();
    (File::from(master), slave)
}

/// Reads a terminal until this is on it.
pub(crate) fn read_until(master: &mut File, text: &str) -> String {
    let (mut seen, mut piece) = (String::new(), [0; 1_024]);
    while !seen.contains(text) {
        let read = master.read(&mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    seen
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked() {
    for (typed, decision) in [("y\n", Decision::Allow), ("\n", Decision::Deny)] {
        let terminal = Terminal::open(asks(), Faults::default()).await;
        let (mut master, slave) = pty();
        let ours = |slave: &File| Stdio::from(OwnedFd::from(slave.try_clone().unwrap()));
        let mut command = terminal.command(&["task", "SANDBOX", "clean up"]);
        let child = command.stdin(ours(&slave)).stderr(ours(&slave)).spawn().unwrap();
        drop(command);
        let typing = tokio::task::spawn_blocking(move || {
            let seen = read_until(&mut master, "[y/N] ");
            master.write_all(typed.as_bytes()).unwrap();
            (seen, master)
        });
        let (seen, _master) = typing.await.unwrap();
        assert!(seen.contains("allow shell {\"command\":\"rm -r build\"} ? [y/N] "), "{seen}");
        let output = child.wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"removed\n".as_slice()));
        assert_eq!(terminal.agent.seen().decisions["call_1"], decision);
    }
}

/// The program with its stderr, once it has said this.
pub(crate) async fn once_said(mut child: Child, text: &str) -> (Child, BufReader<ChildStderr>) {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    said(&mut stderr, text).await;
    (child, stderr)
}

async fn said(stderr: &mut BufReader<ChildStderr>, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(stderr.read_line(&mut line).await.unwrap() > 0, "it never said {text:?}");
    }
}

pub(crate) fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

#[tokio::test]
async fn an_interrupt_ends_the_run() {
    let terminal = Terminal::open(vec![started(), Step::Wait], Faults::default()).await;
    let child = terminal.command(&["task", "SANDBOX", "wait"]).spawn().unwrap();
    let (mut child, mut stderr) = once_said(child, "run r1").await;
    interrupt(&child);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(118), "{rest}");
    assert!(rest.ends_with("sandbox: it was cancelled\n"), "{rest}");
    assert!(terminal.agent.seen().cancelled);
}

#[tokio::test]
async fn a_second_interrupt_leaves_at_once() {
    let faults = Faults { deaf: true, ..Faults::default() };
    let terminal = Terminal::open(vec![started(), Step::Wait], faults).await;
    let child = terminal.command(&["task", "SANDBOX", "wait"]).spawn().unwrap();
    let (mut child, mut stderr) = once_said(child, "run r1").await;
    interrupt(&child);
    said(&mut stderr, "cancelling the run").await;
    interrupt(&child);
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn how_an_agent_fails_decides_how_the_program_ends() {
    let cases = [
        (RunFailure::TurnLimit, 118),
        (RunFailure::Timeout, 124),
        (RunFailure::ProviderRefused, 122),
        (RunFailure::OperatorKeyRefused, 123),
    ];
    for (failure, code) in cases {
        let reply = failed(failure, "so it is");
        let terminal = Terminal::open(vec![say(Told::Done { reply })], Faults::default()).await;
        let run = terminal.run(&["prompt", "SANDBOX", "hi"]).await;
        assert_eq!((run.code, run.stderr.lines().last()), (code, Some("sandbox: so it is")), "{failure:?}");
    }
}

#[tokio::test]
async fn runs_and_sessions_are_listed_ended_and_deleted() {
    let terminal = Terminal::open(Vec::new(), Faults::default()).await;
    terminal.run(&["runs", "SANDBOX"]).await.check(0, "r1  task  running  session s1");
    let run = terminal.run(&["runs", "SANDBOX", "r1", "--cancel"]).await;
    assert_eq!((run.code, run.stdout.lines().nth(2)), (0, Some("state    failed: it was cancelled")));
    terminal.run(&["sessions", "SANDBOX"]).await.check(0, "s1  native  4 messages");
    terminal.run(&["sessions", "SANDBOX", "--delete", "s1"]).await.check(0, "s1");
    assert_eq!(terminal.agent.requests().last().unwrap(), "DELETE sessions/s1");
    let unknown = terminal.run(&["runs", "SANDBOX", "unknown", "--follow"]).await;
    assert_eq!(unknown.code, 121, "{}", unknown.stderr);
}

#[tokio::test]
async fn by_a_job_the_answer_is_proven_and_what_was_asked_is_sealed() {
    let terminal = Terminal::open(Vec::new(), Faults::default()).await;
    let saved = terminal.path("answer.json").display().to_string();
    let words = ["prompt", "SANDBOX", "hi", "--job", "--model", "m", "--backend", "native", "--save", &saved];
    let run = terminal.run(&words).await;
    run.check(0, r#"hi|{"agent_backend":"native"}|m"#);
    assert!(run.stderr.contains("proven: call ") && run.stderr.contains("recorded on chain"), "{}", run.stderr);
    let verified = terminal.run(&["verify", &saved]).await;
    assert_eq!(verified.code, 0, "{}", verified.stderr);

    let run = terminal.run(&["task", "SANDBOX", "hi", "--job"]).await;
    run.check(118, "half");
    assert!(run.stderr.ends_with("sandbox: it gave up\n"), "{}", run.stderr);
    let run = terminal.run(&["task", "SANDBOX", "hi", "--job", "--plain", "--provider-key-env", "PROVIDER_KEY"]).await;
    run.check(2, "");
    assert_eq!(run.stderr, "sandbox: with --plain the provider's key would be public on chain\n");
    let run = terminal.run(&["task", "SANDBOX", "hi", "--quote"]).await;
    assert_eq!((run.code, run.stderr.as_str()), (2, "sandbox: --quote is for jobs: add --job\n"));
}

#[tokio::test]
async fn a_negotiation_is_priced_seen_ranked_and_kept() {
    let round = |round, status: &str| say(Told::SandboxRound { move_id: "m1".into(), round, status: status.into() });
    let script = vec![
        round(1, "critic_responded"),
        round(1, "dm_responded"),
        say(Told::SandboxScored { move_id: "m1".into(), score: 12, breakdown: json!({}) }),
    ];
    let terminal = Terminal::open(script, Faults::default()).await;
    let moves = json!([{"id": "m1", "content": "Buy a rival"}, {"move_id": "m2", "content": "Cut prices"}]);
    let (moves, out) = (terminal.file("moves.json", &moves), terminal.path("out").display().to_string());
    let options = ["--ticker", "ACME", "--rounds", "2", "--provider-key-env", "PROVIDER_KEY", "--out", &out];
    let run = terminal.run(&[["negotiate", "SANDBOX", &moves].as_slice(), &options].concat()).await;
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, " 1  m2   24/120  D1 8  D2 8  D3 8\n 2  m1   12/120  D1 4  D2 4  D3 4\n");
    let expected = [
        "2 moves, 2 rounds each, 5 at a time: 26 calls of the model, 13 a move",
        "the job's list price is ",
        "m1 round 1 of 2: critic responded\nm1 round 1 of 2: dm responded\nm1 scored 12 of 120\n",
        "transcript ab12\nproven: call ",
    ];
    for text in expected {
        assert!(run.stderr.contains(text), "{text:?} is not in {}", run.stderr);
    }
    let call = CallKey { service: terminal.settings["SANDBOX_SERVICE"].parse().unwrap(), call: 1 };
    let submission = terminal.world.account(CUSTOMER).await.chain().submission(call).await.unwrap().unwrap();
    assert_eq!(submission.job, Job::Task.id());
    for secret in ["sk-canary", "Buy a rival", "ACME"] {
        assert!(!hex::encode(&submission.inputs).contains(&hex::encode(secret)), "{secret} is public");
    }
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(terminal.path("out/result.json")).unwrap()).unwrap();
    assert_eq!(result["policy_scores"][0]["move_id"], "m1", "as they were given");
    let report = std::fs::read_to_string(terminal.path("out/report.md")).unwrap();
    assert!(report.contains("| 1 | m2 | 24 / 120 | 8 | 8 | 8 | Cut prices |"), "{report}");

    let refused = terminal.run(&["negotiate", "SANDBOX", &moves]).await;
    refused.check(2, "");
    assert_eq!(refused.stderr, "sandbox: the moves are of no company: name it with --ticker\n");
}

#[tokio::test]
async fn a_person_sees_the_table_of_a_negotiation_fill() {
    let round = |round| say(Told::SandboxRound { move_id: "m1".into(), round, status: "dm_responded".into() });
    let terminal = Terminal::open(vec![round(1), round(2)], Faults::default()).await;
    let moves = terminal.file("moves.json", &json!([{"id": "m1", "content": "a"}, {"id": "m2", "content": "b"}]));
    let (mut master, slave) = pty();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut command = terminal.command(&["negotiate", "SANDBOX", &moves, "--ticker", "ACME", "--rounds", "2"]);
    let child = command.stderr(Stdio::from(OwnedFd::from(slave))).spawn().unwrap();
    drop(command);
    let reading = tokio::task::spawn_blocking(move || (read_until(&mut master, "proven: call "), master));
    let (seen, _master) = reading.await.unwrap();
    assert!(seen.contains("\x1b[2A\x1b[Jm1  #.  argued\r\nm2  ..  waiting\r\n"), "{seen:?}");
    assert!(seen.contains("\x1b[2A\x1b[Jm1  ##  argued\r\nm2  ..  waiting\r\n"), "{seen:?}");
    assert_eq!(child.wait_with_output().await.unwrap().status.code(), Some(0));
}
