//! What is found again, and in which order it stands.

use super::*;

/// A session in which everything after the first messages is filler.
async fn said(memory: &Memory, first: &[&str]) {
    memory.append(first.iter().map(|text| user(*text)).collect()).await.unwrap();
    for _ in 0..9 {
        memory.append(vec![assistant(long("filler", 490))]).await.unwrap();
    }
    memory.append(vec![user("go on")]).await.unwrap();
    memory.settle().await;
}

async fn found(memory: &Memory, query: &str) -> Vec<u64> {
    ids(&memory.build(query).await.unwrap().semantic_messages)
}

#[tokio::test]
async fn what_is_like_the_question_is_found_again_in_order_of_time() {
    let desk = Desk::new();
    let memory = desk.open("a");
    said(&memory, &["the key is under the mat", "cats are grey", "the mat is in the hall with the key of the mat"])
        .await;
    assert_eq!(found(&memory, "mat key").await, [0, 2]);
    assert_eq!(found(&memory, "grey").await, [1]);
    assert!(found(&memory, "").await.is_empty());
    assert!(found(&memory, "zebra").await.is_empty());
}

#[tokio::test]
async fn what_is_recent_is_not_found_again() {
    let desk = Desk::new();
    let memory = desk.open("a");
    said(&memory, &["the key is old"]).await;
    memory.append(vec![user("where is the key?")]).await.unwrap();
    let context = memory.build("where is the key?").await.unwrap();
    assert_eq!(ids(&context.semantic_messages), [0]);
    assert_eq!(context.recent_messages.last().unwrap().id, 11);
}

#[tokio::test]
async fn finding_ends_at_the_first_that_has_no_room() {
    let desk = Desk::new();
    let memory = desk.open("a");
    let long = format!("needle needle needle needle {}", "needle ".repeat(900));
    said(&memory, &["a needle", &long, "one needle here"]).await;
    // The long one is the best.
    assert!(found(&memory, "needle").await.is_empty());
}

#[tokio::test]
async fn at_most_twenty_messages_are_found_again() {
    let desk = Desk::new();
    let memory = desk.open("a");
    said(&memory, &["needle"; 30]).await;
    assert_eq!(found(&memory, "needle").await, (10..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn with_vectors_meaning_is_found_and_not_only_words() {
    let texts = ["my car is red", "the weather is fine", "a boat for two"];
    let desk = Desk::new();
    let memory = desk.open("words");
    said(&memory, &texts).await;
    assert!(found(&memory, "automobile").await.is_empty());

    let desk = Desk { embedder: Some(Arc::default()), ..desk };
    let memory = desk.open("vectors");
    said(&memory, &texts).await;
    assert_eq!(found(&memory, "automobile").await, [0]);
    assert_eq!(desk.embedder.unwrap().texts.load(Ordering::SeqCst), 13 + 1);
}

#[tokio::test]
async fn vectors_outlast_a_restart() {
    let bag = Arc::<Bag>::default();
    let desk = Desk { embedder: Some(bag.clone()), ..Desk::new() };
    said(&desk.open("a"), &["my car is red"]).await;
    let memory = desk.open("a");
    memory.settle().await;
    assert_eq!(found(&memory, "automobile").await, [0]);
    assert_eq!(bag.texts.load(Ordering::SeqCst), 11 + 1);
}

#[tokio::test]
async fn a_failing_embedder_fails_nothing_and_is_asked_again() {
    let bag = Arc::<Bag>::default();
    bag.fails.store(true, Ordering::SeqCst);
    let desk = Desk { embedder: Some(bag.clone()), ..Desk::new() };
    let memory = desk.open("a");
    said(&memory, &["my car is red"]).await;
    assert_eq!(found(&memory, "car").await, [0]);
    bag.fails.store(false, Ordering::SeqCst);
    memory.append(vec![user("go on")]).await.unwrap();
    memory.settle().await;
    assert_eq!(found(&memory, "automobile").await, [0]);
}

#[tokio::test(start_paused = true)]
async fn an_embedder_that_hangs_is_not_waited_for() {
    let bag = Arc::<Bag>::default();
    bag.hangs.store(true, Ordering::SeqCst);
    let desk = Desk { embedder: Some(bag.clone()), ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![user("my car is red"), assistant(long("filler", 3_990)), user("go on")]).await.unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(found(&memory, "car").await, [0]);
    assert_eq!(before.elapsed(), Duration::from_millis(QUESTION_EMBEDDING_MS_MAX));
    // The same question is not tried again.
    assert_eq!(found(&memory, "car").await, [0]);
    assert_eq!(before.elapsed(), Duration::from_millis(QUESTION_EMBEDDING_MS_MAX));
}

#[tokio::test]
async fn what_has_no_vector_yet_is_found_by_its_words() {
    let bag = Arc::<Bag>::default();
    let desk = Desk { embedder: Some(bag.clone()), ..Desk::new() };
    let memory = desk.open("a");
    memory.append(vec![user("my car is red")]).await.unwrap();
    memory.settle().await;
    bag.hangs.store(true, Ordering::SeqCst);
    memory.append(vec![user("the zebra is striped"), assistant(long("filler", 3_990)), user("go on")]).await.unwrap();
    bag.hangs.store(false, Ordering::SeqCst);
    let context = memory.build("zebra automobile").await.unwrap();
    assert_eq!(ids(&context.semantic_messages), [0, 1]);
}
