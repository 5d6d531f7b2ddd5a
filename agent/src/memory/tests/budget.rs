//! Whatever is said: a context keeps to its budget, its tiers and its pairs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::limits::CONTEXT_TOKENS_MIN;

/// Something that is said, by its number of words.
#[derive(Debug, Clone)]
enum Turn {
    User(usize),
    Assistant(usize),
    /// Calls, how many of them are answered, words of each answer and of each argument.
    Calls(usize, usize, usize, usize),
    /// What came of a call that nobody made.
    Orphan(usize),
}

fn words() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0_usize..60, 2 => 60_usize..300, 1 => 300_usize..1_500]
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => words().prop_map(Turn::User),
        3 => words().prop_map(Turn::Assistant),
        3 => (1_usize..5, 0_usize..8, words(), words()).prop_map(|(calls, answers, text, arguments)| {
            // Most calls are answered.
            Turn::Calls(calls, if answers > 1 { calls } else { answers.min(calls) }, text, arguments)
        }),
        1 => words().prop_map(Turn::Orphan),
    ]
}

/// Words of several scripts; the first is found nowhere else.
fn text(number: usize, words: usize) -> String {
    const WORDS: [&str; 6] = ["alpha", "\"quoted\\path\"", "東京", "fn main() {}", "\n\n", "überprüfen"];
    let others = (0..words).map(|word| WORDS[(word * 7 + number) % WORDS.len()]);
    std::iter::once(format!("unique{number}q").as_str()).chain(others).collect::<Vec<_>>().join(" ")
}

fn said(turns: &[Turn]) -> Vec<Message> {
    let mut messages = Vec::new();
    for turn in turns {
        let number = messages.len();
        match *turn {
            Turn::User(words) => messages.push(user(text(number, words))),
            Turn::Assistant(words) => messages.push(assistant(text(number, words))),
            Turn::Orphan(words) => messages.push(Message::of_tool("nobodys", text(number, words))),
            Turn::Calls(calls, answers, words, arguments) => {
                let ids: Vec<String> = (0..calls).map(|call| format!("call-{number}-{call}")).collect();
                let mut message = calling("", &ids.iter().map(String::as_str).collect::<Vec<_>>());
                for call in &mut message.tool_calls {
                    call.arguments = json!({ "content": text(number, arguments) });
                }
                messages.push(message);
                for id in ids.iter().take(answers) {
                    messages.push(Message::of_tool(id, text(messages.len(), words)));
                }
            }
        }
    }
    messages
}

/// Each call is followed by what came of it, and nothing else comes of a call.
fn check_pairs(messages: &[Message]) {
    let mut waiting: Vec<&str> = Vec::new();
    for message in messages {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap();
            let at = waiting.iter().position(|waiting| *waiting == id).expect("nobody made this call");
            waiting.remove(at);
        } else {
            assert!(waiting.is_empty(), "calls without answer: {waiting:?}");
            waiting = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
        }
    }
    assert!(waiting.is_empty(), "calls without answer: {waiting:?}");
}

fn check_context(context: &Context, said: &[Message], tokenizer: &dyn Tokenizer, budget_tokens: usize) {
    let messages = context.messages("");
    let counted: usize = messages.iter().map(|message| message_tokens(tokenizer, message)).sum();
    assert_eq!(counted, context.total_tokens);
    assert!(counted <= budget_tokens, "{counted} of {budget_tokens}");
    let budget = Budget::of(budget_tokens);
    let tier = |tier: &[Remembered]| tier.iter().map(|one| one.tokens).sum::<usize>();
    assert!(tier(&context.recent_messages) <= budget.recent && tier(&context.semantic_messages) <= budget.semantic);
    check_pairs(&messages);
    for tier in [&context.recent_messages, &context.semantic_messages] {
        assert!(ids(tier).is_sorted_by(|one, other| one < other), "not in order: {:?}", ids(tier));
    }
    let recent: BTreeSet<u64> = ids(&context.recent_messages).into_iter().collect();
    assert!(ids(&context.semantic_messages).iter().all(|id| !recent.contains(id)), "twice");
    for one in &context.recent_messages {
        assert!(one.is_cut || one.message == said[one.place()]);
    }
    for one in &context.semantic_messages {
        let content = one.message.content.strip_prefix(ATTRIBUTION).and_then(|rest| rest.strip_prefix('\n'));
        assert_eq!(content, Some(said[one.place()].content.as_str()));
    }
    if let Some(question) = said.iter().rposition(|message| message.role == Role::User) {
        assert!(recent.contains(&(question as u64)), "what the customer said last is missing");
    }
}

/// Each message is recent, covered, or found by its own word; some of them are looked for.
async fn check_nothing_is_lost(memory: &Memory, said: &[Message], budget_tokens: usize) {
    let covered = memory.inner.session().summary.as_ref().map_or(0, |summary| summary.through);
    let open = said.len() - memory.inner.session().settled();
    let uncovered = said.len() - open - covered;
    for place in (covered..said.len() - open).step_by(1 + uncovered / 6) {
        let context = memory.build(&format!("unique{place}q")).await.unwrap();
        let shown = ids(&context.recent_messages).into_iter().chain(ids(&context.semantic_messages));
        let is_shown = shown.collect::<Vec<_>>().contains(&(place as u64));
        let session = memory.inner.session();
        let unit = &session.units[session.units.partition_point(|unit| unit.range.end <= place)];
        let has_room = unit.attributed_tokens <= Budget::of(budget_tokens).semantic;
        assert!(is_shown || !has_room || !unit.is_sound(), "message {place} is nowhere");
    }
}

async fn check(turns: &[Turn], tokenizer: Arc<dyn Tokenizer>, budget_tokens: usize) {
    let desk = Desk { tokenizer: tokenizer.clone(), budget_tokens, ..Desk::new() };
    desk.scribe.filler_words.store(5_000, Ordering::SeqCst);
    let memory = desk.open("any");
    let said = said(turns);
    // Some of it before there is a summary, some after.
    let (before, after) = said.split_at(said.len() / 2);
    for part in [before, after] {
        memory.append(part.to_vec()).await.unwrap();
        for query in ["", "alpha 東京", "unique0q unique3q"] {
            let context = memory.build(query).await.unwrap();
            check_context(&context, &said[..memory.len()], &*tokenizer, budget_tokens);
        }
        memory.settle().await;
    }
    check_context(&memory.build("alpha main").await.unwrap(), &said, &*tokenizer, budget_tokens);
    check_nothing_is_lost(&memory, &said, budget_tokens).await;
}

fn tokenizer(number: usize) -> Arc<dyn Tokenizer> {
    match number {
        0 => Arc::new(O200k),
        1 => Arc::new(Cl100k),
        _ => Arc::new(Estimate),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_context_keeps_its_budget_its_tiers_and_its_pairs(
        turns in proptest::collection::vec(turn(), 1..40),
        number in 0_usize..3,
        budget_tokens in prop_oneof![CONTEXT_TOKENS_MIN..600, 600_usize..9_000],
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(check(&turns, tokenizer(number), budget_tokens));
    }
}

#[tokio::test]
async fn tiers_have_50_30_and_20_percent_of_the_budget() {
    assert_eq!(Budget::of(8_000), Budget { recent: 4_000, summary: 2_400, semantic: 1_600 });
    let desk = Desk::new();
    let memory = desk.open("a");
    // 4 of frame each: 40 of them are the recent tier.
    for number in 0..60 {
        memory.append(vec![user(long(&format!("same{number}"), 96))]).await.unwrap();
    }
    let context = memory.build("ab").await.unwrap();
    assert_eq!(ids(&context.recent_messages), (20..60).collect::<Vec<_>>());
    assert_eq!(context.recent_messages.iter().map(|one| one.tokens).sum::<usize>(), 4_000);
    // The attribution is in the budget: 31 bytes more.
    assert_eq!(context.metadata.semantic_count, 1_600 / 111);
    assert_eq!(context.semantic_messages[0].tokens, 111);
}

#[tokio::test]
async fn a_budget_has_a_least_size() {
    let desk = Desk { budget_tokens: CONTEXT_TOKENS_MIN, ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![user(long("question", 10_000))]).await.unwrap();
    assert_eq!(memory.build("").await.unwrap().metadata.recent_count, 1);
    let desk = Desk { budget_tokens: CONTEXT_TOKENS_MIN - 1, ..desk };
    assert!(matches!(Memory::open(desk.settings("b")), Err(MemoryError::Budget(255))));
}

#[tokio::test]
async fn a_huge_question_is_cut_in_its_middle_and_never_dropped() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let question = format!("{} so what is it?", long("begins", 20_000));
    memory.append(vec![user("before"), user(question.clone())]).await.unwrap();
    let context = memory.build(&question).await.unwrap();
    let [shown] = &context.recent_messages[..] else { panic!("{:?}", ids(&context.recent_messages)) };
    assert!(shown.is_cut && shown.tokens <= 4_000 && shown.tokens > 3_800, "{}", shown.tokens);
    let content = &shown.message.content;
    assert!(content.starts_with("begins ") && content.ends_with("so what is it?"), "{content}");
    assert!(content.contains("bytes left out …]"), "{content}");
}

#[tokio::test]
async fn what_the_customer_said_last_stays_however_much_the_tools_say() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user("Find the bug, please.")]).await.unwrap();
    for number in 0..20 {
        let id = format!("call-{number}");
        memory.append(vec![calling("", &[&id]), Message::of_tool(&id, long("output", 700))]).await.unwrap();
    }
    let context = memory.build("Find the bug, please.").await.unwrap();
    assert_eq!(ids(&context.recent_messages), [0, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40]);
    assert!(context.recent_messages.iter().all(|one| !one.is_cut));
}

#[tokio::test]
async fn a_huge_result_keeps_its_call_and_the_question() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let calls = calling("", &["one", "two"]);
    let results = [Message::of_tool("one", long("output", 9_000)), Message::of_tool("two", "small")];
    memory.append(vec![user("Look at it."), calls]).await.unwrap();
    memory.append(results.to_vec()).await.unwrap();
    let context = memory.build("Look at it.").await.unwrap();
    assert_eq!(ids(&context.recent_messages), [0, 1, 2, 3]);
    let cut: Vec<bool> = context.recent_messages.iter().map(|one| one.is_cut).collect();
    assert_eq!(cut, [false, false, true, false]);
    check_pairs(&context.messages(""));
}

#[tokio::test]
async fn huge_arguments_are_cut_and_stay_an_object() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let mut call = calling("", &["one"]);
    call.tool_calls[0].arguments = json!({ "content": long("\"quoted\"", 9_000) });
    let said = [user("Write it."), call, Message::of_tool("one", "done")];
    memory.append(said.to_vec()).await.unwrap();
    let context = memory.build("").await.unwrap();
    let arguments = &context.recent_messages[1].message.tool_calls[0].arguments;
    assert!(arguments["shortened"].as_str().unwrap().contains("bytes left out"), "{arguments}");
    check_context(&context, &said, &Estimate, 8_000);
}

#[tokio::test]
async fn a_pair_stands_whole_in_a_tier_or_not_at_all() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let pair = [calling("", &["one"]), Message::of_tool("one", long("needle", 400))];
    memory.append(pair.to_vec()).await.unwrap();
    // One token more than leaves room for both.
    let call = memory.inner.session().units[0].tokens - 405;
    memory.append(vec![user(long("question", 4_000 - 405 - call - 4 + 1))]).await.unwrap();
    let context = memory.build("needle").await.unwrap();
    assert_eq!((ids(&context.recent_messages), ids(&context.semantic_messages)), (vec![2], vec![0, 1]));
}

#[tokio::test]
async fn a_call_that_a_crash_left_unanswered_is_not_shown() {
    let desk = Desk::new();
    let memory = desk.open("a");
    memory.append(vec![user("Go."), calling("I look.", &["one", "two"]), Message::of_tool("one", "1")]).await.unwrap();
    memory.append(vec![user("And now?"), Message::of_tool("two", "late")]).await.unwrap();
    let context = memory.build("").await.unwrap();
    assert_eq!(ids(&context.recent_messages), [0, 1, 2, 3]);
    let shown = &context.recent_messages[1];
    assert!(shown.is_cut && shown.message.tool_calls.len() == 1 && shown.message.tool_calls[0].id == "one");
    check_pairs(&context.messages(""));
}

#[tokio::test]
async fn a_context_is_told_in_the_documents_order() {
    let desk = Desk { budget_tokens: 1_000, ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![user("fact1 needle"), assistant(long("noted", 450)), user("later")]).await.unwrap();
    memory.append(vec![assistant(long("filler", 400))]).await.unwrap();
    memory.settle().await;
    let context = memory.build("needle").await.unwrap();
    let told: Vec<(Role, String)> =
        context.messages("Be brief.").into_iter().map(|one| (one.role, one.content)).collect();
    let told: Vec<(Role, &str)> =
        told.iter().map(|(role, content)| (*role, &content[..content.len().min(60)])).collect();
    assert_eq!(
        told[..4],
        [
            (Role::System, "Be brief."),
            (Role::System, "[Conversation Summary]\nFacts: fact1"),
            (Role::User, "[From earlier in conversation]\nfact1 needle"),
            (Role::User, "later"),
        ]
    );
    assert_eq!(told.len(), 5);
    assert_eq!(context.session_id, "a");
    assert!(context.metadata.has_summary && context.metadata.built_at <= SystemTime::now());
    assert_eq!((context.metadata.recent_count, context.metadata.semantic_count), (2, 1));
}
