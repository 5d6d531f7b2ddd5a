//! The real `opencode`, for both of the protocols that it is driven over.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox_agent::model::Usage;
use sandbox_agent::profile::Policy;
use sandbox_agentd::backend::Backend as _;
use sandbox_agentd::backends::Opencode;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{ProviderKind, RunFailure};
use scripted_provider::{Failure, Reply, Script};

use super::stage::{KEY, PATIENCE, Stage, profile};

const PROGRAM: &str = "opencode-linux-x64-baseline/bin/opencode";

async fn stage(script: Script) -> (Stage, Opencode) {
    stage_of(ProviderKind::Openai, script).await
}

async fn stage_of(kind: ProviderKind, script: Script) -> (Stage, Opencode) {
    let stage = Stage::set(kind, script).await;
    let backend = Opencode::new(stage.programs.clone(), stage.settings(PROGRAM));
    (stage, backend)
}

/// Has the model write a file, and then say that it has.
fn writes(folder: &Path) -> [Reply; 2] {
    let path = folder.join("made.txt");
    let arguments = serde_json::json!({ "filePath": path, "content": "made\n" }).to_string();
    [
        Reply::call("call_1", "write", arguments).reasoning("A file, then.").usage(100, 7),
        Reply::text("Done.").usage(120, 3),
    ]
}

#[tokio::test]
async fn a_question_is_answered_and_the_next_one_knows_it() {
    let (stage, opencode) =
        stage(Script::queue([Reply::text("It is blue.").usage(90, 5), Reply::text("Very."), Reply::text("Who asks?")]))
            .await;
    let mut order = stage.order("Which colour is the sky?");
    order.profile.system_prompt = "You speak as a painter.".to_owned();
    let outcome = stage.run(&opencode, &order).await;
    assert_eq!((outcome.failure, outcome.result.as_str(), outcome.turns), (None, "It is blue.", 1));
    assert_eq!(outcome.usage, Usage { input_tokens: 90, output_tokens: 5 });
    let requests = stage.provider.requests();
    assert_eq!((requests.len(), requests[0].key()), (1, Some(KEY)), "one call, without any for a title");
    assert!(requests[0].system.contains("You speak as a painter."));

    (order.id, order.prompt, order.continues) = ("run-2".to_owned(), "Really?".to_owned(), true);
    let outcome = stage.run(&opencode, &order).await;
    assert_eq!((outcome.failure, outcome.result.as_str(), outcome.turns), (None, "Very.", 1));
    let second = &stage.provider.requests()[1];
    let said: Vec<_> = second.messages.iter().map(|said| (said.role.as_str(), said.content.trim())).collect();
    assert_eq!(said, [("user", "Which colour is the sky?"), ("assistant", "It is blue."), ("user", "Really?")]);

    opencode.forget(&order.session).await.unwrap();
    (order.id, order.continues) = ("run-3".to_owned(), false);
    assert_eq!(stage.run(&opencode, &order).await.result, "Who asks?");
    assert_eq!(stage.provider.requests()[2].messages.len(), 1, "nothing is left of a session that is forgotten");
}

#[tokio::test]
async fn a_tool_is_used_and_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let (stage, opencode) = stage(Script::queue(writes(directory.path()))).await;
    let outcome = stage.run(&opencode, &stage.order("Make the file.")).await;
    assert_eq!((outcome.failure, outcome.result.as_str(), outcome.turns), (None, "Done.", 2));
    assert_eq!(outcome.usage, Usage { input_tokens: 220, output_tokens: 10 });
    assert_eq!(std::fs::read_to_string(directory.path().join("made.txt")).unwrap(), "made\n");
    let told = stage.desk.told();
    assert!(told.iter().any(|told| matches!(told, Told::Reasoning { text } if text == "A file, then.")), "{told:?}");
    let called = |told: &Told| matches!(told, Told::ToolCall { id, arguments, .. } if id == "call_1" && arguments["content"] == "made\n");
    assert!(told.iter().any(called), "{told:?}");
    assert_eq!(stage.desk.results(), [("write".to_owned(), false)]);
}

#[tokio::test]
async fn what_a_profile_refuses_or_wants_asked_is_not_done() {
    for (policy, warned) in [(Policy::Deny, false), (Policy::Ask, true)] {
        let call = Reply::call("call_1", "bash", r#"{"command": "touch made.txt", "description": "d"}"#);
        let (stage, opencode) = stage(Script::queue([call, Reply::text("So be it.")])).await;
        let mut order = stage.order("Run it.");
        order.profile = profile("shell", policy);
        let outcome = stage.run(&opencode, &order).await;
        assert_eq!((outcome.failure, outcome.turns), (None, 2));
        assert!(!stage.workspace().join("made.txt").exists());
        assert_eq!(stage.desk.results(), [("bash".to_owned(), true)]);
        assert_eq!(stage.desk.warned("cannot ask its customer, so these tools are refused: bash"), warned);
    }
}

#[tokio::test]
async fn a_files_policies_do_not_outdo_the_profiles() {
    let call = Reply::call("call_1", "bash", r#"{"command": "touch made.txt", "description": "d"}"#);
    let (stage, opencode) = stage(Script::queue([call, Reply::text("So be it.")])).await;
    let lax = r#"{"permission": {"bash": "allow"}, "agent": {"build": {"permission": {"bash": "allow"}}}}"#;
    std::fs::write(stage.workspace().join("opencode.json"), lax).unwrap();
    let mine = stage.settings(PROGRAM).home.join(".opencode");
    std::fs::create_dir(&mine).unwrap();
    std::fs::write(mine.join("opencode.json"), lax).unwrap();
    let mut order = stage.order("Run it.");
    order.profile = profile("shell", Policy::Deny);
    stage.run(&opencode, &order).await;
    assert_eq!(stage.desk.results(), [("bash".to_owned(), true)]);
    assert!(!stage.workspace().join("made.txt").exists());
}

#[tokio::test]
async fn anthropics_protocol_is_spoken_too() {
    let (stage, opencode) = stage_of(ProviderKind::Anthropic, Script::queue([Reply::text("Yes.").usage(40, 2)])).await;
    let outcome = stage.run(&opencode, &stage.order("Is it?")).await;
    assert_eq!((outcome.failure, outcome.result.as_str()), (None, "Yes."));
    assert_eq!(outcome.usage, Usage { input_tokens: 40, output_tokens: 2 });
    assert_eq!(stage.provider.requests()[0].header("x-api-key"), Some(KEY));
}

#[tokio::test]
async fn the_key_is_for_the_agents_eyes_only() {
    let (stage, opencode) = stage(Script::always(Reply::text("Yes."))).await;
    stage.run(&opencode, &stage.order("Is it?")).await;
    let mut found = Vec::new();
    let mut folders = vec![stage.settings(PROGRAM).home];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).contains(KEY) {
                found.push((entry.file_name(), entry.metadata().unwrap().permissions().mode() & 0o777));
            }
        }
    }
    assert_eq!(found, [("key".into(), 0o600)]);
}

#[tokio::test]
async fn all_turns_are_taken_and_none_more() {
    let call = Reply::call("call_1", "bash", r#"{"command": "true", "description": "d"}"#);
    let (stage, opencode) = stage(Script::always(call)).await;
    let mut order = stage.order("Go on.");
    order.max_turns = 2;
    let outcome = stage.run(&opencode, &order).await;
    assert_eq!((outcome.failure.map(|(failure, _)| failure), outcome.turns), (Some(RunFailure::TurnLimit), 2));
}

#[tokio::test]
async fn a_key_that_is_not_accepted_is_said_to_be() {
    let (stage, opencode) = stage(Script::always(Reply::failure(Failure::Unauthorized))).await;
    let outcome = stage.run(&opencode, &stage.order("Is it?")).await;
    let (failure, words) = outcome.failure.unwrap();
    assert_eq!((failure, words.contains(KEY)), (RunFailure::ProviderRefused, false));
    assert_eq!(outcome.turns, 0);
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_four_times() {
    let busy = Reply::rate_limited(Some(Duration::from_millis(10)));
    let (stage, opencode) = stage(Script::always(busy)).await;
    let outcome = stage.run(&opencode, &stage.order("Is it?")).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::ProviderFailed));
    // The program may have begun once more before it was ended.
    assert!((4..=5).contains(&stage.provider.calls()), "{}", stage.provider.calls());
}

#[tokio::test]
async fn nothing_of_it_is_left_once_it_is_cancelled() {
    let call = Reply::call("call_1", "bash", r#"{"command": "sleep 600 & sleep 600", "description": "d"}"#);
    let (stage, opencode) = stage(Script::always(call)).await;
    let outcome = stage.cancelled(&opencode, &stage.order("Sleep.")).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::Cancelled));
    assert_eq!(stage.programs.alive(), Vec::<String>::new());
}

#[tokio::test]
async fn a_provider_that_says_nothing_is_not_waited_for_beyond_the_deadline() {
    let (stage, opencode) = stage(Script::always(Reply::failure(Failure::Silence))).await;
    let mut order = stage.order("Is it?");
    order.deadline = Instant::now() + Duration::from_secs(6);
    let begun = Instant::now();
    let outcome = stage.run(&opencode, &order).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::Timeout));
    assert!(begun.elapsed() < PATIENCE / 2 && stage.programs.alive().is_empty());
}

#[tokio::test]
async fn an_image_without_the_program_has_no_such_backend() {
    let stage = Stage::set(ProviderKind::Openai, Script::always(Reply::default())).await;
    let mut settings = stage.settings(PROGRAM);
    settings.program = "no-such-program".to_owned();
    let outcome = stage.run(&Opencode::new(stage.programs.clone(), settings), &stage.order("Is it?")).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::UnknownBackend));
}

#[tokio::test]
async fn a_conversation_that_is_lost_is_not_begun_anew_in_silence() {
    let (stage, opencode) = stage(Script::always(Reply::text("Yes."))).await;
    let mut order = stage.order("Is it?");
    stage.run(&opencode, &order).await;
    std::fs::remove_dir_all(stage.settings(PROGRAM).home.join(".local")).unwrap();
    order.continues = true;
    let outcome = stage.run(&opencode, &order).await;
    let (failure, words) = outcome.failure.unwrap();
    assert!(failure == RunFailure::BadRequest && words.starts_with("session_id"), "{words}");
    assert_eq!(stage.run(&opencode, &order).await.failure, None);
    assert!(stage.desk.warned("what this session said before is not known"));
}

#[tokio::test]
async fn a_run_of_a_former_life_is_not_done_again() {
    let (stage, opencode) = stage(Script::always(Reply::text("Yes."))).await;
    let mut order = stage.order("Is it?");
    order.resumed = true;
    let outcome = opencode.run(&order, &stage.desk).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::Interrupted));
    assert_eq!(stage.provider.calls(), 0);
}
