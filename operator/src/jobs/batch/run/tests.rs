//! What is answered of a part.

use sandbox_protocol::batch::{ItemExec, ItemTask, share};
use sandbox_protocol::exec::ByteText;
use sandbox_protocol::http::response_json;
use sandbox_protocol::limits::{BATCH_ENDPOINTS_MAX, BATCH_PART_BYTES_MAX};
use sandbox_sdk::limits::ANSWER_BODY_BYTES_MAX;

use super::super::bare;
use super::*;

fn command(index: u32, exit_code: i32, stdout: &str) -> ItemReport {
    let exec = ItemExec { exit_code, stdout: ByteText(stdout.as_bytes().to_vec()), ..ItemExec::default() };
    let state = if exit_code == 0 { ItemState::Succeeded } else { ItemState::Failed };
    ItemReport { exec: Some(exec), ..bare(index, None, state) }
}

fn not_done(index: u32, state: ItemState, code: FailureCode) -> ItemReport {
    ItemReport { failure: Some(Failure::new(code, "why")), ..bare(index, None, state) }
}

#[test]
fn results_stand_where_their_endpoints_do_and_say_whose_the_others_are() {
    let items = [
        command(1, 0, "a"),
        command(3, 7, "b"),
        not_done(4, ItemState::Failed, FailureCode::SandboxLost),
        not_done(5, ItemState::Cancelled, FailureCode::Cancelled),
    ];
    let results = exec_results(6, &items);
    let shown: Vec<(i32, &[u8], &[u8])> =
        results.iter().map(|one| (one.exit_code, one.stdout.as_ref(), one.stderr.as_ref())).collect();
    assert_eq!(
        shown,
        [
            (-1, b"".as_slice(), b"elsewhere".as_slice()),
            (0, b"a", b""),
            (-1, b"", b"elsewhere"),
            (7, b"b", b""),
            (-1, b"", b"sandbox_lost: why"),
            (-1, b"", b"cancelled: why"),
        ]
    );
    assert_eq!(counts(&items), (1, 3));
}

#[test]
fn the_answer_of_as_many_items_as_there_may_be_is_one_that_customers_read() {
    let each = share(BATCH_PART_BYTES_MAX, BATCH_ENDPOINTS_MAX);
    // JSON writes nothing longer.
    let words = || "\u{1}".repeat(each);
    let task = ItemTask { result: words(), error: words(), session_id: "s1".into(), ..ItemTask::default() };
    let item = |index| ItemReport { task: Some(task.clone()), ..bare(index, None, ItemState::Failed) };
    let items: Vec<_> = (0..).take(BATCH_ENDPOINTS_MAX).map(item).collect();
    let results = task_results(BATCH_ENDPOINTS_MAX, &items);
    let response = BatchTaskResponse { batch_id: "b".into(), results, succeeded: 0, failed: 128 }.abi_encode();
    let readable = response_json(Job::BatchTask, None, &response).unwrap().to_string();
    assert!(2 * response.len() + readable.len() < ANSWER_BODY_BYTES_MAX);
}

#[test]
fn results_of_tasks_are_the_same_in_their_words() {
    let task = ItemTask { success: true, result: "done".into(), session_id: "s1".into(), ..ItemTask::default() };
    let done = ItemReport { task: Some(task), ..bare(0, None, ItemState::Succeeded) };
    let results = task_results(3, &[done, not_done(2, ItemState::Failed, FailureCode::SandboxBusy)]);
    let shown: Vec<_> = results.iter().map(|one| (one.success, one.result.as_str(), one.error.as_str())).collect();
    assert_eq!(shown, [(true, "done", ""), (false, "", "elsewhere"), (false, "", "sandbox_busy: why")]);
    assert_eq!(results[0].session_id, "s1");
}

#[test]
fn a_majority_is_of_the_successful_and_only_where_it_is_asked_for() {
    let items = [command(0, 1, "bad"), command(1, 1, "bad"), command(2, 0, " x\n"), command(5, 0, "x")];
    let found = majority_of(Aggregation::Majority, &items).unwrap();
    assert_eq!((found.answer.as_str(), found.items, found.of, found.tied), ("x", vec![2, 5], 2, false));
    assert_eq!(majority_of(Aggregation::All, &items), None);
    assert_eq!(majority_of(Aggregation::Majority, &items[..2]), None);
}

#[test]
fn another_operators_success_is_one_that_is_on_chain() {
    let me = alloy::primitives::Address::repeat_byte(1);
    let part = |operator: u8, answered, outcome| Part {
        operator: alloy::primitives::Address::repeat_byte(operator),
        answered,
        outcome,
        firstSlot: 0,
        slots: 0,
    };
    assert!(has_winner(&[part(1, false, 0), part(2, true, 0)], me));
    for others in [part(2, false, 0), part(2, true, 1), part(2, true, 2), part(1, true, 0)] {
        assert!(!has_winner(&[others], me));
    }
}

#[test]
fn a_part_without_the_success_that_it_was_to_have_keeps_its_response() {
    let none = work(vec![1], Upshot::NoSuccess);
    assert_eq!((none.limit, none.response), (Some(FailureCode::NoSuccess), vec![1]));
    assert_eq!(work(vec![1], Upshot::Done).limit, None);
}
