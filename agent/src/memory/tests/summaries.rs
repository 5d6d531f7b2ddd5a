//! When a summary is made, of what, and what happens when it is not.

use super::*;
use crate::limits::SUMMARY_TOKENS_MAX;

/// A message of so many tokens, its frame among them.
fn of_tokens(word: &str, tokens: usize) -> Message {
    user(long(word, tokens - 4))
}

fn summary_of(memory: &Memory) -> Option<Summary> {
    memory.inner.session().summary.clone()
}

#[tokio::test]
async fn a_summary_is_made_past_4000_tokens_and_not_before() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 1_000); 4]).await.unwrap();
    memory.settle().await;
    assert_eq!((desk.scribe.asked(), summary_of(&memory)), (0, None));
    memory.append(vec![user("fact2")]).await.unwrap();
    memory.settle().await;
    assert_eq!(desk.scribe.asked(), 1);
    assert_eq!(summary_of(&memory).unwrap().text, "Facts: fact1 fact1 fact1 fact1 fact2");
    // The next one comes as many tokens later.
    memory.append(vec![of_tokens("fact3", 1_000); 4]).await.unwrap();
    memory.settle().await;
    assert_eq!(desk.scribe.asked(), 1);
}

#[tokio::test]
async fn a_summary_is_replaced_by_one_of_everything() {
    let desk = Desk::new();
    let memory = desk.open("a");
    for number in 0..100 {
        memory.append(vec![of_tokens(&format!("fact{number}"), 500)]).await.unwrap();
        memory.settle().await;
    }
    let summary = summary_of(&memory).unwrap();
    assert!(summary.through > 90, "{}", summary.through);
    let facts: Vec<String> = (0..summary.through).map(|number| format!("fact{number}")).collect();
    assert_eq!(summary.text, format!("Facts: {}", facts.join(" ")));
    // What no summary covers is recent.
    let context = memory.build("").await.unwrap();
    assert!(context.recent_messages[0].id <= summary.through as u64);
}

#[tokio::test]
async fn no_call_is_longer_than_a_context_and_no_word_is_left_out() {
    let desk = Desk::new();
    let memory = desk.open("a");
    // One message of many chunks, with a fact in each of them.
    let huge: String = (0..200).map(|number| format!("fact{number} {}", "ab ".repeat(150))).collect();
    memory.append(vec![user(huge)]).await.unwrap();
    memory.settle().await;
    let text = summary_of(&memory).unwrap().text;
    let missing: Vec<usize> = (0..200).filter(|number| !text.contains(&format!("fact{number}"))).collect();
    // One may stand where two pieces meet.
    assert!(missing.len() < 6, "{missing:?} of {text}");
    let asks = desk.scribe.asks.borrow();
    assert!(asks.len() > 5);
    for ask in asks.iter() {
        let tokens: usize = ask.messages.iter().map(|message| message_tokens(&Estimate, message)).sum();
        assert!(tokens <= 8_000, "{tokens}");
    }
}

#[tokio::test]
async fn a_digest_is_made_once() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append((0..100).map(|number| of_tokens(&format!("fact{number}"), 500)).collect()).await.unwrap();
    memory.settle().await;
    // 11 messages are a chunk of 6,000: nine full ones, the rest, and all of them together.
    assert_eq!(desk.scribe.asked(), 9 + 1 + 1);
    memory.append((0..9).map(|number| of_tokens(&format!("more{number}"), 500)).collect()).await.unwrap();
    memory.settle().await;
    // None of the nine again; the rest, and all of them together.
    assert_eq!(desk.scribe.asked(), 11 + 1 + 1);
    drop(memory);
    let memory = desk.open("a");
    memory.append((0..9).map(|number| of_tokens(&format!("even{number}"), 500)).collect()).await.unwrap();
    memory.settle().await;
    assert_eq!(desk.scribe.asked(), 13 + 1 + 2, "digests do not outlast a restart");
}

#[tokio::test]
async fn a_summary_that_is_too_long_is_cut_to_2000_tokens() {
    let desk = Desk::new();
    desk.scribe.filler_words.store(9_000, Ordering::SeqCst);
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    memory.settle().await;
    let summary = summary_of(&memory).unwrap();
    assert!(summary.tokens <= SUMMARY_TOKENS_MAX && summary.tokens > SUMMARY_TOKENS_MAX - 100, "{}", summary.tokens);
}

#[tokio::test]
async fn at_most_one_summary_is_made_at_a_time_and_nobody_waits_for_it() {
    let desk = Desk { scribe: Scribe::silent(), ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    desk.scribe.is_asked(1).await;
    let appending = (0..20).map(|_| memory.append(vec![of_tokens("fact2", 1_000)]));
    for appended in futures::future::join_all(appending).await {
        appended.unwrap();
    }
    assert!(memory.build("").await.unwrap().summary.is_none());
    assert_eq!(desk.scribe.asked(), 1);
    assert_eq!(*memory.inner.busy.borrow(), 1, "others wait for their turn");
    desk.scribe.gate.add_permits(1_000);
    memory.settle().await;
    assert_eq!(desk.scribe.most_running.load(Ordering::SeqCst), 1);
    assert_eq!(summary_of(&memory).unwrap().through, 21);
}

#[tokio::test]
async fn a_summary_that_was_due_at_a_crash_is_made_on_resume_once() {
    let desk = Desk { scribe: Scribe::silent(), ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    desk.scribe.is_asked(1).await;
    drop(memory);
    let memory = desk.open("a");
    desk.scribe.is_asked(2).await;
    memory.append(vec![user("fact2")]).await.unwrap();
    desk.scribe.gate.add_permits(1_000);
    memory.settle().await;
    assert_eq!((desk.scribe.asked(), summary_of(&memory).unwrap().text.as_str()), (2, "Facts: fact1"));
}

#[tokio::test]
async fn a_summary_outlasts_a_restart() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    memory.settle().await;
    let made = summary_of(&memory);
    drop(memory);
    let memory = desk.open("a");
    memory.settle().await;
    assert_eq!((summary_of(&memory), desk.scribe.asked()), (made, 1));
}

#[tokio::test]
async fn a_failing_model_leaves_the_summary_as_it_was_and_is_not_asked_at_each_message() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    memory.settle().await;
    desk.scribe.fails.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        memory.append(vec![of_tokens("fact2", 1_000)]).await.unwrap();
        memory.settle().await;
    }
    assert_eq!(desk.scribe.asked(), 2);
    assert_eq!(memory.build("").await.unwrap().summary.unwrap(), "Facts: fact1");
    desk.scribe.fails.store(false, Ordering::SeqCst);
    memory.append(vec![of_tokens("fact3", 2_001)]).await.unwrap();
    memory.settle().await;
    assert!(summary_of(&memory).unwrap().text.ends_with("fact3"));
}

#[tokio::test]
async fn calls_that_wait_for_their_answer_are_not_summarised() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![of_tokens("fact1", 4_001), calling("fact2", &["one"])]).await.unwrap();
    memory.settle().await;
    assert_eq!(summary_of(&memory).unwrap().through, 1);
}

#[tokio::test]
async fn a_smaller_budget_has_no_gap_between_its_tiers() {
    let desk = Desk { budget_tokens: 1_000, ..Desk::new() };
    let memory = desk.open("a");
    for number in 0..40 {
        memory.append(vec![of_tokens(&format!("fact{number}"), 100)]).await.unwrap();
        memory.settle().await;
        let context = memory.build("").await.unwrap();
        let through = summary_of(&memory).map_or(0, |summary| summary.through);
        assert!(context.recent_messages[0].place() <= through, "{number}: a gap from {through}");
    }
}

#[tokio::test]
async fn a_session_goes_on_with_another_model_and_budget() {
    let desk = Desk::new();
    let memory = desk.open("a");
    desk.scribe.filler_words.store(9_000, Ordering::SeqCst);
    memory.append(vec![of_tokens("fact1", 4_001)]).await.unwrap();
    memory.settle().await;
    drop(memory);
    let desk = Desk { tokenizer: Arc::new(O200k), budget_tokens: 2_000, ..desk };
    let memory = desk.open("a");
    let context = memory.build("fact1").await.unwrap();
    let counted: usize = context.messages("").iter().map(|message| message_tokens(&O200k, message)).sum();
    assert_eq!(counted, context.total_tokens);
    assert!(summary_of(&memory).unwrap().tokens <= 600);
}
