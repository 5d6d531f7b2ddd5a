//! The real `claude`.

use std::time::{Duration, Instant};

use sandbox_agent::model::Usage;
use sandbox_agent::profile::Policy;
use sandbox_agentd::backends::ClaudeAgent;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, ProviderKind, RunFailure};
use scripted_provider::{Failure, Reply, Script};

use super::stage::{KEY, Stage, profile};

const PROGRAM: &str = "@anthropic-ai/claude-code-linux-x64/claude";

async fn stage(script: Script) -> (Stage, ClaudeAgent) {
    let stage = Stage::set(ProviderKind::Anthropic, script).await;
    let backend = ClaudeAgent::new(stage.programs.clone(), stage.settings(PROGRAM));
    (stage, backend)
}

fn touches() -> Reply {
    Reply::call("toolu_1", "Bash", r#"{"command": "touch made.txt", "description": "d"}"#).usage(100, 7)
}

#[tokio::test]
async fn a_question_is_answered_in_pieces_and_the_next_one_knows_it() {
    let (stage, claude) = stage(Script::queue([Reply::text("It is blue.").usage(90, 5), Reply::text("Very.")])).await;
    let mut order = stage.order("Which colour is the sky?");
    order.profile.system_prompt = "You speak as a painter.".to_owned();
    let outcome = stage.run(&claude, &order).await;
    assert_eq!((outcome.failure, outcome.result.as_str(), outcome.turns), (None, "It is blue.", 1));
    assert_eq!(outcome.usage, Usage { input_tokens: 90, output_tokens: 5 });
    let pieces = stage.desk.told().iter().filter(|told| matches!(told, Told::Message { .. })).count();
    assert_eq!(pieces, 3, "as many as the provider sent");
    let first = &stage.provider.requests()[0];
    assert_eq!((stage.provider.calls(), first.key()), (1, Some(KEY)));
    assert!(first.system.contains("You speak as a painter."));

    (order.id, order.prompt, order.continues) = ("run-2".to_owned(), "Really?".to_owned(), true);
    let outcome = stage.run(&claude, &order).await;
    assert_eq!((outcome.failure, outcome.result.as_str()), (None, "Very."));
    let second = &stage.provider.requests()[1];
    let says = |part: &str| second.messages.iter().any(|said| said.content.contains(part));
    assert!(says("Which colour is the sky?") && says("It is blue.") && says("Really?"), "{:?}", second.messages);
}

#[tokio::test]
async fn a_tool_is_used_and_told_of() {
    let (stage, claude) = stage(Script::queue([touches(), Reply::text("Done.").usage(120, 3)])).await;
    let outcome = stage.run(&claude, &stage.order("Make the file.")).await;
    assert_eq!((outcome.failure, outcome.result.as_str(), outcome.turns), (None, "Done.", 2));
    assert_eq!(outcome.usage, Usage { input_tokens: 220, output_tokens: 10 });
    assert!(stage.workspace().join("made.txt").exists() && stage.desk.asked().is_empty());
    assert_eq!(stage.desk.results(), [("Bash".to_owned(), false)]);
}

#[tokio::test]
async fn the_customer_is_asked_and_their_word_holds() {
    for decision in [Decision::Allow, Decision::Deny] {
        let (mut stage, claude) = stage(Script::queue([touches(), Reply::text("So be it.")])).await;
        stage.desk.decision = decision;
        let mut order = stage.order("Run it.");
        order.profile = profile("shell", Policy::Ask);
        let outcome = stage.run(&claude, &order).await;
        assert_eq!((outcome.failure, outcome.turns), (None, 2));
        let asked = stage.desk.asked();
        assert_eq!((asked.len(), asked[0].id.as_str(), asked[0].name.as_str()), (1, "toolu_1", "Bash"));
        assert_eq!(asked[0].arguments["command"], "touch made.txt");
        let is_refused = decision == Decision::Deny;
        assert_eq!(stage.workspace().join("made.txt").exists(), !is_refused);
        assert_eq!(stage.desk.results(), [("Bash".to_owned(), is_refused)]);
    }
}

#[tokio::test]
async fn reading_is_asked_about_too_where_the_profile_wants_it() {
    let (stage, claude) = stage(Script::of(|request| match request.last().contains("Read it.") {
        true => Reply::call("toolu_1", "Read", r#"{"file_path": "secret.txt"}"#),
        false => Reply::text("So be it."),
    }))
    .await;
    std::fs::write(stage.workspace().join("secret.txt"), "a secret of the customer's").unwrap();
    let mut order = stage.order("Read it.");
    order.profile = profile("read_file", Policy::Ask);
    stage.run(&claude, &order).await;
    assert_eq!(stage.desk.asked().len(), 1);
    let requests = stage.provider.requests();
    assert!(requests.iter().all(|request| !request.body.to_string().contains("a secret of the customer's")));
}

#[tokio::test]
async fn what_a_profile_refuses_is_not_done() {
    let (stage, claude) = stage(Script::queue([touches(), Reply::text("So be it.")])).await;
    let lax = r#"{"permissions": {"allow": ["Bash"]}}"#;
    std::fs::create_dir(stage.workspace().join(".claude")).unwrap();
    std::fs::write(stage.workspace().join(".claude/settings.json"), lax).unwrap();
    let mut order = stage.order("Run it.");
    order.profile = profile("shell", Policy::Deny);
    stage.run(&claude, &order).await;
    assert!(!stage.workspace().join("made.txt").exists() && stage.desk.asked().is_empty());
    assert_eq!(stage.desk.results(), [("Bash".to_owned(), true)]);
}

#[tokio::test]
async fn all_turns_are_taken_and_none_more() {
    let (stage, claude) = stage(Script::always(touches())).await;
    let mut order = stage.order("Go on.");
    order.max_turns = 1;
    let outcome = stage.run(&claude, &order).await;
    assert_eq!((outcome.failure.map(|(failure, _)| failure), outcome.turns), (Some(RunFailure::TurnLimit), 1));
    assert_eq!(stage.provider.calls(), 1);
}

#[tokio::test]
async fn a_key_that_is_not_accepted_is_said_to_be() {
    let (stage, claude) = stage(Script::always(Reply::failure(Failure::Unauthorized))).await;
    let outcome = stage.run(&claude, &stage.order("Is it?")).await;
    let (failure, words) = outcome.failure.unwrap();
    assert_eq!((failure, words.contains(KEY)), (RunFailure::ProviderRefused, false));
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_four_times() {
    let (stage, claude) = stage(Script::always(Reply::status(500, "over"))).await;
    let outcome = stage.run(&claude, &stage.order("Is it?")).await;
    let (failure, words) = outcome.failure.unwrap();
    assert!(failure == RunFailure::ProviderFailed && words.contains("500"), "{words}");
    assert_eq!((stage.provider.calls(), outcome.turns), (4, 0));
    assert!(stage.desk.warned("is asked again"));
}

#[tokio::test]
async fn nothing_of_it_is_left_once_it_is_cancelled() {
    let call = Reply::call("toolu_1", "Bash", r#"{"command": "sleep 600 & sleep 600", "description": "d"}"#);
    let (stage, claude) = stage(Script::always(call)).await;
    let outcome = stage.cancelled(&claude, &stage.order("Sleep.")).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::Cancelled));
    assert_eq!(stage.programs.alive(), Vec::<String>::new());
}

#[tokio::test]
async fn a_provider_that_says_nothing_is_not_waited_for_beyond_the_deadline() {
    let (stage, claude) = stage(Script::always(Reply::failure(Failure::Silence))).await;
    let mut order = stage.order("Is it?");
    order.deadline = Instant::now() + Duration::from_secs(3);
    let outcome = stage.run(&claude, &order).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::Timeout));
    assert_eq!(stage.programs.alive(), Vec::<String>::new());
}

#[tokio::test]
async fn another_protocol_than_anthropics_is_refused() {
    let stage = Stage::set(ProviderKind::Openai, Script::always(Reply::default())).await;
    let claude = ClaudeAgent::new(stage.programs.clone(), stage.settings(PROGRAM));
    let outcome = stage.run(&claude, &stage.order("Is it?")).await;
    assert_eq!(outcome.failure.map(|(failure, _)| failure), Some(RunFailure::BadRequest));
    assert_eq!(stage.provider.calls(), 0);
}
