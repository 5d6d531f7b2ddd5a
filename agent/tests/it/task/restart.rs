//! A task whose process dies, at every moment, and is taken up again.

use std::collections::BTreeSet;

use sandbox_agent::model::{Message, Role};
use sandbox_agent::task::TaskPorts;
use sandbox_agent::task::journal::{FileJournal, Journal as _, Step};
use sandbox_protocol::agent::RunFailure;
use serde_json::json;

use super::ground::{Ground, USAGE, call};

const UNSURE: &str = "The agent was restarted while this call was under way.";

/// A task that uses every kind of tool, with something of another task before it in its conversation.
fn ground() -> Ground {
    let ground = Ground::new()
        .calls([
            call("a", "shell", json!({ "command": "make" })),
            call("b", "write_file", json!({ "path": "f", "content": "x" })),
        ])
        .calls([call("c", "edit_file", json!({ "path": "f", "old": "x", "new": "xx" }))])
        .calls([call("d", "fly", json!({}))])
        .says("Done.");
    let earlier = [Message::new(Role::User, "Hello."), Message::new(Role::User, "Anyone?")];
    ground.talk.messages.lock().unwrap().extend(earlier);
    ground
}

/// The task as it is without deaths.
async fn undisturbed() -> Vec<Message> {
    let ground = ground();
    assert_eq!(ground.run().await.failure, None);
    ground.messages()
}

/// Whatever happened, the conversation is the undisturbed one, save that a result may be that nobody knows; nothing was done
/// twice.
fn check(ground: &Ground, undisturbed: &[Message], deaths: &str) {
    let messages = ground.messages();
    assert_eq!(messages.len(), undisturbed.len(), "{deaths}: {messages:#?}");
    for (message, expected) in messages.iter().zip(undisturbed) {
        let unsure = message.role == Role::Tool && message.content.contains(UNSURE);
        assert!(
            message == expected || (unsure && message.tool_call_id == expected.tool_call_id),
            "{deaths}: {message:?}"
        );
    }
    let effects = ground.effects();
    assert_eq!(effects.iter().collect::<BTreeSet<_>>().len(), effects.len(), "{deaths}: {effects:?}");
    assert!(["x", "xx"].contains(&ground.files.get("f").unwrap().as_str()), "{deaths}");
}

/// Lets the process die at this moment of its life; whether it did.
async fn dies(ground: &Ground, ports: TaskPorts<'_>, moment: usize) -> bool {
    ground.fate.die_at(Some(moment));
    let end = ground.live(ports).await;
    ground.fate.die_at(None);
    end.is_none()
}

#[tokio::test]
async fn death_at_any_moment_and_again_at_any_moment_repeats_nothing() {
    let expected = undisturbed().await;
    let mut pairs = 0;
    for first in 0.. {
        for second in 0.. {
            let ground = ground();
            let died = dies(&ground, ground.ports(), first).await;
            let again = dies(&ground, ground.ports(), second).await;
            let end = ground.run().await;
            let deaths = format!("deaths at {first} and {second}");
            assert_eq!((end.result.as_str(), end.failure, end.turns), ("Done.", None, 4), "{deaths}");
            check(&ground, &expected, &deaths);
            pairs += 1;
            if !died {
                assert!(first > 40 && pairs > 1_000, "{first} moments, {pairs} pairs");
                return;
            }
            if !again {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_journal_on_disk_carries_a_task_over_every_death() {
    let expected = undisturbed().await;
    for moment in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let ground = ground();
        let life = || FileJournal::new(directory.path().join("journal"));
        let first = life();
        let died = dies(&ground, TaskPorts { journal: &first, ..ground.ports() }, moment).await;
        let second = life();
        let end = ground.live(TaskPorts { journal: &second, ..ground.ports() }).await.unwrap();
        assert_eq!((end.result.as_str(), end.failure, end.turns), ("Done.", None, 4), "death at {moment}");
        check(&ground, &expected, &format!("death at {moment}"));
        if !died {
            assert!(moment > 20, "{moment}");
            break;
        }
    }
}

/// A task of one command, whose process died after the command had run and before anybody knew of it.
async fn died_behind_a_command() -> Ground {
    for moment in 0.. {
        let ground = Ground::new().calls([call("a", "shell", json!({ "command": "make" }))]).says("Done.");
        assert!(dies(&ground, ground.ports(), moment).await);
        if !ground.effects().is_empty() {
            assert!(matches!(ground.journal.steps.lock().unwrap().last(), Some(Step::ToolBegun { .. })));
            return ground;
        }
    }
    unreachable!()
}

#[tokio::test]
async fn a_command_that_ran_behind_a_dead_task_is_attached_to() {
    let ground = died_behind_a_command().await;
    assert_eq!(ground.run().await.result, "Done.");
    assert_eq!(ground.results(), ["exit code: 0\nstdout:\nmake"]);
    let asked: Vec<bool> = ground.sandbox.fake.asked().iter().map(|execution| execution.attach_only).collect();
    assert_eq!((asked, ground.effects().len()), (vec![false, true], 1));
}

#[tokio::test]
async fn what_the_sandbox_has_forgotten_too_is_told_as_unsure_and_not_done_again() {
    let ground = died_behind_a_command().await;
    ground.sandbox.fake.forget();
    assert_eq!(ground.run().await.result, "Done.");
    assert!(ground.results()[0].contains(UNSURE));
    assert_eq!(ground.effects().len(), 1);
}

#[tokio::test]
async fn a_task_that_is_cancelled_while_nobody_ran_it_tells_what_it_had_used() {
    let ground = ground();
    let answers = |ground: &Ground| {
        let steps = ground.journal.steps.lock().unwrap();
        steps.iter().filter(|step| matches!(step, Step::AnswerStored { .. })).count()
    };
    let mut moment = 0;
    while answers(&ground) < 2 {
        assert!(dies(&ground, ground.ports(), moment).await);
        moment += 1;
    }
    ground.order.cancel.cancel();
    let end = ground.run().await;
    assert_eq!((end.failure.unwrap().0, end.turns), (RunFailure::Cancelled, 2));
    assert_eq!(end.usage.input_tokens, 2 * USAGE.input_tokens);
}

#[tokio::test]
async fn steps_on_disk_are_read_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let ground = ground();
    ground.run().await;
    let steps = ground.journal.steps.lock().unwrap().clone();
    let journal = FileJournal::new(&path);
    for step in &steps {
        journal.record(step.clone()).await.unwrap();
    }
    assert_eq!(FileJournal::new(&path).load().await.unwrap(), steps);
}
