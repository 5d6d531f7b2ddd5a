//! Clients that exchange keys as they should, and mind no rule from there on. What they do is in `with_packets.py`.

use std::path::Path;
use std::process::Stdio;

use sandbox_gateway::limits::{
    CHANNELS_PER_CONNECTION_MAX, ENV_BYTES_MAX, ENV_MAX, LISTENERS_PER_CONNECTION_MAX, LOGIN_TRIES_MAX,
};
use sandbox_gateway::ports::AuditEvent;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::{Key, PATIENCE, SANDBOX, Stage, run_within, text, until};

fn attacker(stage: &Stage, attack: &str) -> Command {
    let other = Key::new(&stage.outside(), "other");
    let limits = format!(
        r#"{{"tries": {LOGIN_TRIES_MAX}, "channels": {CHANNELS_PER_CONNECTION_MAX}, "env": {ENV_MAX},
            "env_bytes": {ENV_BYTES_MAX}, "listeners": {LISTENERS_PER_CONNECTION_MAX}}}"#
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hostile/with_packets.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-u").arg(script).args(["127.0.0.1", &stage.address.port().to_string(), SANDBOX]);
    command.arg(&stage.key.file).arg(&other.file).arg(limits).arg(attack);
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The attack goes as its script expects, and others get in afterwards.
async fn survives(attack: &str) -> Stage {
    let stage = Stage::start().await;
    let output = run_within(attacker(&stage, attack), b"", 3 * PATIENCE).await;
    let last = stage.house.audit().last().cloned();
    assert!(text(&output.stdout).ends_with("done\n"), "{} {last:?}", text(&output.stderr));
    assert_eq!(stage.sh("echo in").await, "in\n");
    stage
}

fn nobody_entered(stage: &Stage) -> bool {
    let entered = stage.house.audit().iter().filter(|event| matches!(event, AuditEvent::Entered { .. })).count();
    // The one who came afterwards.
    entered == 1 && !stage.workspace().join("entered").exists()
}

#[tokio::test]
async fn methods_other_than_keys_fail_and_there_are_so_many_tries() {
    survives("passwords").await;
}

#[tokio::test]
async fn there_are_so_many_keys_to_be_tried() {
    survives("many_keys").await;
}

#[tokio::test]
async fn signatures_by_another_key_or_over_something_else_open_nothing() {
    assert!(nobody_entered(&survives("confused_keys").await));
}

#[tokio::test]
async fn channels_of_those_who_have_proven_nothing_are_not_opened() {
    assert!(nobody_entered(&survives("channels_of_strangers").await));
}

#[tokio::test]
async fn services_may_be_asked_for_again_and_again() {
    survives("services").await;
}

#[tokio::test]
async fn who_exchanges_keys_for_ever_has_to_leave() {
    survives("keys_exchanged_for_ever").await;
}

#[tokio::test]
async fn who_sends_more_than_the_window_has_to_leave() {
    survives("more_than_the_window").await;
}

#[tokio::test]
async fn a_connection_has_so_many_channels() {
    survives("many_channels").await;
}

#[tokio::test]
async fn a_channel_that_is_closed_makes_room_for_another() {
    survives("channels_opened_and_closed").await;
}

#[tokio::test]
async fn channels_of_other_kinds_and_to_nowhere_are_refused() {
    survives("odd_channels").await;
}

#[tokio::test]
async fn a_channel_has_so_many_variables_of_such_a_length() {
    survives("variables").await;
}

#[tokio::test]
async fn global_requests_that_nobody_knows_are_refused_however_many_they_are() {
    survives("global_requests").await;
}

#[tokio::test]
async fn a_connection_has_so_many_listeners() {
    survives("listeners").await;
}

#[tokio::test]
async fn terminals_of_absurd_sizes_and_modes_are_terminals() {
    survives("terminals").await;
}

#[tokio::test]
async fn a_request_that_is_cut_short_is_not_served() {
    survives("terminals_cut_short").await;
}

#[tokio::test]
async fn requests_that_are_refused_leave_a_channel_as_it_was() {
    survives("requests").await;
}

#[tokio::test]
async fn words_on_channels_that_are_not_there_reach_nobody() {
    let stage = survives("channels_that_are_not_there").await;
    assert!(!stage.workspace().join("entered").exists());
}

#[tokio::test]
async fn windows_beyond_all_bounds_harm_nobody() {
    survives("windows_beyond_all_bounds").await;
}

#[tokio::test]
async fn who_sends_a_second_stream_has_to_leave() {
    survives("a_second_stream").await;
}

#[tokio::test]
async fn messages_that_nobody_knows_harm_nobody() {
    survives("unknown_messages").await;
}

#[tokio::test]
async fn who_says_goodbye_and_stays_is_left_and_its_programs_with_it() {
    let stage = Stage::start().await;
    let mut child = attacker(&stage, "leaving_in_the_midst").stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.expect("it does not leave").unwrap();
    assert_eq!(line.as_deref(), Some("left"));
    until(|| stage.house.audit().iter().any(|event| matches!(event, AuditEvent::Left { .. }))).await;
    assert_eq!(stage.sh("echo in").await, "in\n");
}
