//! A fresh environment for each execution, in each language, and nothing left of it.

use nix::unistd::geteuid;
use serde_json::json;

use super::link::{Link, execute, with};
use crate::harness::{Sidecar, lives, until};

async fn output(fields: serde_json::Value) -> (String, serde_json::Value) {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&with(execute("one", "true"), fields)).await;
    let story = link.story("one").await;
    assert!(story.stderr.is_empty(), "{story:?}");
    (story.stdout, story.last)
}

#[tokio::test]
async fn python_javascript_and_shell_run_with_stdin_and_environment() {
    let common = json!({ "stdin": "in", "env": { "GIVEN": "env" } });
    for (language, code) in [
        ("python", "import os, sys; print(sys.stdin.read(), os.environ['GIVEN'])"),
        ("javascript", "console.log(require('fs').readFileSync(0, 'utf8'), process.env.GIVEN)"),
        ("shell", "echo $(cat) $GIVEN"),
    ] {
        let (stdout, last) = output(with(common.clone(), json!({ "language": language, "code": code }))).await;
        assert_eq!((stdout.as_str(), &last["exit_code"]), ("in env\n", &json!(0)), "{language}");
    }
}

#[tokio::test]
async fn an_error_shows_the_line_of_the_code_it_comes_from() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&with(execute("trace", "x = 1\nraise ValueError(x)"), json!({ "language": "python" }))).await;
    let story = link.story("trace").await;
    assert!(story.stderr.contains("main.py\", line 2") && story.stderr.contains("raise ValueError(x)"), "{story:?}");
}

#[tokio::test]
async fn every_execution_has_a_directory_of_its_own_that_goes_with_it() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    let mut seen = Vec::new();
    for id in ["a", "b"] {
        let code = "pwd; [ \"$HOME\" = \"$PWD\" ] && [ \"$TMPDIR\" = \"$PWD\" ] && ls -A; mkdir -p d/e; touch d/e/f; chmod 0 d; stat -c %a .";
        link.say(&execute(id, code)).await;
        let story = link.story(id).await;
        let [directory, mode] = story.stdout.lines().collect::<Vec<_>>().try_into().expect("not empty at first");
        assert_eq!(mode, "700");
        seen.push(directory.to_owned());
    }
    assert_ne!(seen[0], seen[1]);
    until(|| seen.iter().all(|directory| !std::path::Path::new(directory).exists())).await;
}

#[tokio::test]
async fn what_an_execution_leaves_running_ends_with_it() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("left", "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 0.1; echo end")).await;
    let story = link.story("left").await;
    assert_eq!(story.steps(), ["ack", "status:running", "stdout", "status:completed", "result"]);
    let pid = story.stdout.lines().next().unwrap().to_owned();
    assert!(!lives(&pid), "{story:?}");
}

#[tokio::test]
async fn processor_time_of_all_processes_counts() {
    let spin = "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done";
    let one = output(json!({ "code": spin })).await.1["resource_usage"]["cpu_time_ms"].as_u64().unwrap();
    let code = format!("(setsid sh -c '{spin}' &); (setsid sh -c '{spin}; {spin}' > done &); sleep 3");
    let both = output(json!({ "code": code })).await.1["resource_usage"]["cpu_time_ms"].as_u64().unwrap();
    assert!(both >= 2 * one, "{both} {one}");
}

#[tokio::test]
async fn code_may_be_longer_than_an_argument() {
    let long = format!("echo ran #{}", "x".repeat(1024 * 1024 - 10));
    let (stdout, _) = output(json!({ "code": long })).await;
    assert_eq!(stdout, "ran\n");
}

#[tokio::test]
async fn it_runs_as_the_agent_in_a_session_of_its_own() {
    let code =
        "id -u; read pid name state parent group session rest < /proc/$$/stat; [ $pid = $session ] && echo leads";
    let (stdout, _) = output(json!({ "code": code })).await;
    let expected = if geteuid().is_root() { 54_321 } else { geteuid().as_raw() };
    assert_eq!(stdout, format!("{expected}\nleads\n"));
}
