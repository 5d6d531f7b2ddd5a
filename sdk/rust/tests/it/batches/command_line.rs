//! `batch` as people and scripts use it.

use std::collections::BTreeMap;
use std::process::Stdio;

use alloy::hex;
use sandbox_sdk::devchain;
use serde_json::Value;
use tokio::process::Command;

use super::{Conduct, OPERATORS, Three, address};
use crate::agents::token;
use crate::world::CUSTOMER;

struct Terminal {
    three: Three,
    directory: tempfile::TempDir,
    settings: BTreeMap<&'static str, String>,
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Terminal {
    async fn open(conducts: [Conduct; 3]) -> Self {
        let three = Three::start(conducts).await;
        let directory = tempfile::tempdir().unwrap();
        let addresses = directory.path().join("addresses.json");
        let deployment = &three.world.deployment;
        deployment.save(&addresses).unwrap();
        let door = |index| {
            let (customer, operator) = (devchain::key(CUSTOMER).address(), address(index));
            (format!("{}/{}/{customer}/{operator}", deployment.chain_id, deployment.core), token())
        };
        let kept = BTreeMap::from(OPERATORS.map(door));
        std::fs::write(directory.path().join("tokens.json"), serde_json::to_string(&kept).unwrap()).unwrap();
        let settings = BTreeMap::from([
            ("SANDBOX_DEPLOYMENT", addresses.display().to_string()),
            ("SANDBOX_KEY", hex::encode(devchain::KEYS[CUSTOMER])),
            ("SANDBOX_SERVICE", three.service.to_string()),
            ("SANDBOX_CONFIG_DIR", directory.path().display().to_string()),
        ]);
        Self { three, directory, settings }
    }

    async fn run(&self, words: &str) -> Run {
        let output = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .arg("batch")
            .args(words.split(' '))
            .env_clear()
            .envs(&self.settings)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    #[track_caller]
    fn check(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, self.stdout.trim_end()), (code, stdout), "{}", self.stderr);
    }
}

#[tokio::test]
async fn a_batch_is_created_used_shown_and_collected() {
    let terminal = Terminal::open([Conduct::Honest; 3]).await;
    let (service, [a, b, c]) = (terminal.three.service, OPERATORS.map(address));
    let created = terminal.run("create --count 3 --id night --env A=1").await;
    let row = |item: u8, operator, state, result: &str| {
        format!("{item}  sbx-{service}-0-{item}  {operator}  {state}  {result}").trim_end().to_owned()
    };
    let made = [row(0, a, "succeeded", ""), row(1, b, "succeeded", ""), row(2, c, "succeeded", "")].join("\n");
    created.check(0, &made);
    assert!(created.stderr.contains("batch night\n"), "{}", created.stderr);

    let words = "exec --batch night --aggregation majority -- echo hi";
    let said = terminal.run(words).await;
    let lines = [
        row(0, a, "succeeded", "echo hi[2J"),
        row(1, b, "succeeded", "echo hi[2J"),
        row(2, c, "succeeded", "echo hi[2J"),
    ];
    said.check(0, &(lines.join("\n") + "\nmajority: 3 of 3 items that succeeded (0, 1, 2): echo hi[2J"));

    let saved = terminal.directory.path().join("answers");
    let first = format!("exec --batch batch-{service}-1 --within 20 -- odd");
    terminal.run(&first).await.check(2, "");
    let odd =
        format!("exec --sandbox sbx-{service}-0-0,sbx-{service}-0-1 --within 20 --save {} -- odd", saved.display());
    let odd = terminal.run(&odd).await;
    let second = format!("1  sbx-{service}-0-1  {b}  failed     (1) odd[2J");
    odd.check(118, &format!("{}\n{second}", row(0, a, "succeeded", "odd[2J")));
    assert!(odd.stderr.contains("1 of 2 items ended without success"), "{}", odd.stderr);
    assert_eq!(std::fs::read_dir(&saved).unwrap().count(), 3, "every operator has answered");

    let shown = terminal.run("show night --watch").await;
    assert_eq!((shown.code, shown.stdout.lines().last()), (0, Some("batch night is done")), "{}", shown.stderr);
    let collected = terminal.run("collect night").await;
    collected.check(0, &made);
    let nobody = terminal.run("show morning").await;
    let sentence = format!("sandbox: no operator of service {service} knows a batch morning of this account");
    assert_eq!((nobody.code, nobody.stderr.trim()), (121, sentence.as_str()));
}

#[tokio::test]
async fn what_is_missing_of_a_batch_is_said_and_nothing_of_it_steers_the_terminal() {
    let terminal = Terminal::open([Conduct::Short, Conduct::Boasting, Conduct::Silent]).await;
    let created = terminal.run("create --count 6 --id night --within 6").await;
    assert_eq!(created.code, 119, "{}", created.stderr);
    assert!(created.stderr.contains("2 of 6 items have answers that do not hold"), "{}", created.stderr);
    assert!(created.stderr.contains(&format!("operator {} lies: it claims to have made", address(2))));
    terminal.three.pass_deadline(0).await;

    let collected = terminal.run("collect night --within 6").await;
    assert_eq!(collected.code, 119, "{}", collected.stderr);
    assert!(
        collected.stdout.contains("engine: [2Jdown") && !collected.stdout.contains('\u{1b}'),
        "{}",
        collected.stdout
    );
    assert!(collected.stderr.contains(&format!("operator {} is silent: no receipt until block", address(4))));
    let json = terminal.run("collect night --within 6 --json").await;
    let body: Value = serde_json::from_str(&json.stdout).unwrap();
    let states: Vec<_> = body["items"].as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "failed", "disproved", "disproved", "silent", "silent"]);
    assert_eq!((&body["is_success"], &body["is_over"]), (&false.into(), &true.into()));
}

#[tokio::test]
async fn a_command_runs_in_no_sandbox_that_an_operator_alone_says_is_meant() {
    let terminal = Terminal::open([Conduct::Honest, Conduct::Luring, Conduct::Honest]).await;
    let service = terminal.three.service;
    assert_eq!(terminal.run("create --count 3 --id night --env A=1").await.code, 0);
    let other = terminal.run("create --count 3 --id morning --env A=1").await;
    assert_eq!(other.code, 119, "{}", other.stderr);
    let lie = format!("operator {} lies: it answers to a batch \"night\"", address(2));
    assert!(other.stderr.contains(&lie), "{}", other.stderr);
    let meant = terminal.run("exec --batch night -- x").await;
    assert_eq!((meant.code, meant.stdout.lines().count()), (0, 3), "{}{}", meant.stdout, meant.stderr);
    let left_out = format!("call {service}/1 is left out: it is said to be of batch night, and not proven to be\n");
    assert!(meant.stderr.contains(&left_out), "{}", meant.stderr);
}

#[tokio::test]
async fn a_batch_paid_by_quote_costs_no_more_than_one_would_pay() {
    let terminal = Terminal::open([Conduct::Honest; 3]).await;
    let dear = terminal.run("create --count 3 --quote --max-price 0.000000000002").await;
    let sentence = "sandbox: the quotes of 3 operators are 0.000000000003 coin together";
    assert_eq!((dear.code, dear.stderr.trim()), (121, sentence));
    let paid = terminal.run("create --count 3 --quote --max-price 0.000000000003 --json").await;
    let body: Value = serde_json::from_str(&paid.stdout).unwrap();
    assert_eq!((paid.code, body["items"].as_array().unwrap().len()), (0, 3), "{}", paid.stderr);
    let calls: std::collections::BTreeSet<_> =
        body["items"].as_array().unwrap().iter().map(|item| item["call"].as_u64().unwrap()).collect();
    assert_eq!(calls.len(), 3, "one call for each operator");
    let full = terminal.run("create --count 13").await;
    let sentence = "sandbox: 13 sandboxes are more than the 9 that the operators have room for";
    assert_eq!((full.code, full.stderr.trim()), (121, sentence));
}
