//! What is on disk, and who may touch it.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use super::*;
use crate::limits::{MEMORY_MESSAGES_MAX, MEMORY_SESSION_BYTES_MAX};

fn file_of(desk: &Desk, session: &str) -> PathBuf {
    desk.directory.path().join(session).join("messages.jsonl")
}

async fn said(memory: &Memory) -> Vec<String> {
    let context = memory.build("").await.unwrap();
    context.recent_messages.into_iter().map(|one| one.message.content).collect()
}

#[tokio::test]
async fn messages_outlast_a_restart_word_for_word() {
    let desk = Desk::new();
    let messages = vec![user("näher\n\"dran\""), calling("", &["one"]), Message::of_tool("one", "\u{0}")];
    desk.open("a").append(messages.clone()).await.unwrap();
    let memory = desk.open("a");
    let context = memory.build("").await.unwrap();
    assert_eq!(context.messages(""), messages);
    assert_eq!((memory.len(), memory.is_empty()), (3, false));
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_the_session_goes_on() {
    let desk = Desk::new();
    desk.open("a").append(vec![user("one"), user("two")]).await.unwrap();
    let whole = fs::read(file_of(&desk, "a")).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for torn in second..whole.len() {
        fs::write(file_of(&desk, "a"), &whole[..torn]).unwrap();
        let memory = desk.open("a");
        assert_eq!(said(&memory).await, ["one"], "torn at {torn}");
    }
    let memory = desk.open("a");
    memory.append(vec![user("three")]).await.unwrap();
    drop(memory);
    assert_eq!(said(&desk.open("a")).await, ["one", "three"]);
}

#[tokio::test]
async fn a_last_line_of_rubbish_is_cut_off() {
    let desk = Desk::new();
    desk.open("a").append(vec![user("one")]).await.unwrap();
    let mut file = fs::File::options().append(true).open(file_of(&desk, "a")).unwrap();
    file.write_all(b"\0\0\0\0\n").unwrap();
    assert_eq!(said(&desk.open("a")).await, ["one"]);
}

#[tokio::test]
async fn a_damaged_line_before_others_is_told_and_nothing_is_cut() {
    let desk = Desk::new();
    desk.open("a").append(vec![user("one"), user("two")]).await.unwrap();
    let damaged = fs::read_to_string(file_of(&desk, "a")).unwrap().replacen('{', "[", 1);
    fs::write(file_of(&desk, "a"), &damaged).unwrap();
    assert!(matches!(Memory::open(desk.settings("a")), Err(MemoryError::Damaged { line: 1, .. })));
    assert_eq!(fs::read_to_string(file_of(&desk, "a")).unwrap(), damaged);
}

#[tokio::test]
async fn a_damaged_summary_is_made_again() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user(long("fact1", 4_001))]).await.unwrap();
    memory.settle().await;
    drop(memory);
    fs::write(desk.directory.path().join("a/summary.json"), "{").unwrap();
    let memory = desk.open("a");
    memory.settle().await;
    assert_eq!(memory.build("").await.unwrap().summary.unwrap(), "Facts: fact1");
}

#[tokio::test]
async fn a_summary_of_messages_that_are_not_there_is_forgotten() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user("first"), user(long("fact1", 4_001))]).await.unwrap();
    memory.settle().await;
    drop(memory);
    let whole = fs::read_to_string(file_of(&desk, "a")).unwrap();
    fs::write(file_of(&desk, "a"), whole.lines().next().unwrap().to_string() + "\n").unwrap();
    let memory = desk.open("a");
    assert_eq!(memory.build("").await.unwrap().messages(""), [user("first")]);
}

#[tokio::test]
async fn an_append_that_nobody_waits_for_is_whole() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let mut appending = Box::pin(memory.append(vec![user("one"), user("two")]));
    assert!(futures::poll!(&mut appending).is_pending());
    drop(appending);
    memory.append(vec![user("three")]).await.unwrap();
    assert_eq!(said(&memory).await, ["one", "two", "three"]);
    drop(memory);
    assert_eq!(desk.open("a").len(), 3);
}

#[tokio::test]
async fn messages_said_at_once_are_all_kept() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let appending =
        (0..50).map(|number| memory.append(vec![user(format!("{number}")), assistant(format!("{number}"))]));
    futures::future::join_all(appending).await.into_iter().for_each(|appended| appended.unwrap());
    let now = said(&memory).await;
    // What was appended together stands together.
    assert!(now.len() == 100 && now.chunks(2).all(|pair| pair[0] == pair[1]));
    drop(memory);
    assert_eq!(said(&desk.open("a")).await, now);
}

#[tokio::test]
async fn one_handle_at_a_time_has_a_session() {
    let desk = Desk::new();
    let memory = desk.open("a");
    assert!(matches!(Memory::open(desk.settings("a")), Err(MemoryError::Busy)));
    assert!(matches!(delete(desk.directory.path(), "a"), Err(MemoryError::Busy)));
    let other = memory.clone();
    drop(memory);
    assert!(matches!(Memory::open(desk.settings("a")), Err(MemoryError::Busy)));
    drop(other);
    desk.open("a");
}

#[tokio::test]
async fn sessions_know_nothing_of_each_other() {
    let desk = Desk::new();
    let (one, other) = (desk.open("one"), desk.open("other"));
    one.append(vec![user(long("fact1 secret", 4_001))]).await.unwrap();
    one.settle().await;
    other.append(vec![user("where is the secret?")]).await.unwrap();
    let context = other.build("secret fact1").await.unwrap();
    assert_eq!(context.messages(""), [user("where is the secret?")]);
}

#[tokio::test]
async fn sessions_are_listed_oldest_first_and_deleted() {
    let desk = Desk::new();
    let root = desk.directory.path();
    assert!(sessions(&root.join("none")).unwrap().is_empty());
    for (number, id) in ["b", "a", "c"].into_iter().enumerate() {
        let memory = desk.open(id);
        memory.append(vec![user("x"); number + 1]).await.unwrap();
        // A session's age is told in milliseconds.
        let began = now_ms();
        while now_ms() == began {
            tokio::task::yield_now().await;
        }
    }
    fs::write(root.join("a file"), "").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let listed = |root| -> Vec<(String, u64)> {
        sessions(root).unwrap().into_iter().map(|session| (session.id, session.messages)).collect()
    };
    assert_eq!(listed(root), [("b".into(), 1), ("a".into(), 2), ("c".into(), 3)]);
    assert!(delete(root, "a").unwrap());
    assert!(!delete(root, "a").unwrap());
    assert_eq!(listed(root), [("b".into(), 1), ("c".into(), 3)]);
    assert!(desk.open("a").is_empty());
}

#[tokio::test]
async fn an_id_cannot_leave_its_directory() {
    let desk = Desk::new();
    let long = "x".repeat(129);
    for id in ["", ".", "..", "../a", "a/b", "/a", ".hidden", "a\0b", "a b", "ä", "a\\b", &long] {
        assert!(matches!(Memory::open(desk.settings(id)), Err(MemoryError::SessionId)), "{id:?}");
        assert!(matches!(delete(desk.directory.path(), id), Err(MemoryError::SessionId)), "{id:?}");
    }
    for id in ["a", "A-1_b.c", "a..b", &long[1..]] {
        desk.open(id);
    }
}

#[tokio::test]
async fn a_message_has_a_longest_length_and_a_batch_is_taken_whole_or_not() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user("x".repeat(MEMORY_MESSAGE_BYTES_MAX))]).await.unwrap();
    let refused = memory.append(vec![user("one"), user("x".repeat(MEMORY_MESSAGE_BYTES_MAX + 1))]).await;
    assert!(matches!(refused, Err(MemoryError::MessageTooLong(bytes)) if bytes == MEMORY_MESSAGE_BYTES_MAX + 1));
    assert_eq!(memory.len(), 1);
    memory.append(Vec::new()).await.unwrap();
    assert_eq!(memory.len(), 1);
}

#[tokio::test]
async fn a_session_has_a_most_of_messages() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user("x"); MEMORY_MESSAGES_MAX - 1]).await.unwrap();
    assert!(matches!(memory.append(vec![user("x"); 2]).await, Err(MemoryError::Full)));
    memory.append(vec![user("x")]).await.unwrap();
    assert!(matches!(memory.append(vec![user("x")]).await, Err(MemoryError::Full)));
    assert_eq!(memory.len(), MEMORY_MESSAGES_MAX);
}

#[test]
fn a_session_has_a_most_of_bytes() {
    let desk = Desk::new();
    let place = Place::of(desk.directory.path(), "a").unwrap();
    let (mut journal, _) = Journal::open(&place).unwrap();
    let empty = serde_json::to_vec(&counted(&Estimate, 1, user(""))).unwrap().len() + 1;
    let line = usize::try_from(MEMORY_SESSION_BYTES_MAX / 8).unwrap();
    let mut stored = counted(&Estimate, 1, user(""));
    stored.message.content = "x".repeat(line - empty);
    (0..7).for_each(|_| journal.add(std::slice::from_ref(&stored)).unwrap());
    let mut longer = stored.clone();
    longer.message.content.push('x');
    assert!(matches!(journal.add(&[longer]), Err(MemoryError::Full)));
    journal.add(&[stored]).unwrap();
    assert!(matches!(journal.add(&[counted(&Estimate, 1, user(""))]), Err(MemoryError::Full)));
    assert_eq!(fs::metadata(file_of(&desk, "a")).unwrap().len(), MEMORY_SESSION_BYTES_MAX);
}
