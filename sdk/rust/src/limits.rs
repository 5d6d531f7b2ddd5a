//! Every bound of this client. What two sides must agree on stands in `sandbox_protocol::limits`.

use std::time::Duration;

use sandbox_protocol::limits::{
    BATCH_ENDPOINTS_MAX, BATCH_PART_BYTES_MAX, BATCH_REPORT_BYTES_MAX, BATCH_REPORT_PARTS_MAX, BATCH_SANDBOXES_MAX,
    EVENT_HEARTBEAT_S, EXEC_OUTPUT_BYTES_MAX, PROMPT_TIMEOUT_MS_MAX, PTY_WINDOW_BYTES, RUN_BODY_BYTES_MAX,
    SIGNATURE_LIFETIME_S_MAX, TASK_TIMEOUT_MS_DEFAULT, TASK_TIMEOUT_MS_MAX, WAIT_S_MAX, WORKFLOW_OUTPUT_BYTES_MAX,
    WORKFLOW_STEPS_MAX,
};

/// Length of the name of a host that is connected to over SSH: as long as a name in DNS may be.
pub const SSH_HOST_NAME_BYTES_MAX: usize = 253;
/// Operators of a service: the contract's own bound.
pub const SERVICE_OPERATORS_MAX: u32 = 32;
/// The least that the core takes as payment, in the smallest units of the asset: less could not be split.
pub const PAYMENT_UNITS_MIN: u64 = 100;
/// Decimals of a token that amounts can be written in: 10 to this power still fits a word.
pub const TOKEN_DECIMALS_MAX: u8 = 77;

/// Time for one request to a node.
pub const RPC_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a node is asked a question that it breaks off, in all.
pub const ASK_TRIES_MAX: usize = 5;
/// Pause before it is asked the second time, doubled from then on.
pub const ASK_PAUSE_MIN: Duration = Duration::from_millis(25);
/// Time from the first try after which there is no further one: silence has cost enough by then.
pub const ASK_AGAIN_WITHIN: Duration = Duration::from_secs(5);
/// How long a transaction is waited for, unless the caller says otherwise.
pub const MINED_WITHIN_DEFAULT: Duration = Duration::from_secs(120);
/// Pause between two looks at something that is awaited on chain, doubled from the least to the most: chains that make a
/// block per transaction have it at once, others in seconds.
pub const CHAIN_PAUSE_MIN: Duration = Duration::from_millis(2);
/// See [`CHAIN_PAUSE_MIN`].
pub const CHAIN_PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long a transaction is waited for before it is replaced by one that pays more, unless the caller says otherwise.
pub const BUMP_AFTER_DEFAULT: Duration = Duration::from_secs(20);
/// How often a node is sent a transaction that it does not acknowledge, or finds too cheap.
pub const BROADCAST_TRIES_MAX: usize = 20;
/// How often a nonce is asked for that somebody else takes in between.
pub const NONCE_TRIES_MAX: usize = 5;
/// Gas beyond the estimate. The core's best-effort hooks may take 500,000 each and fail in silence when they get less,
/// so the least gas at which a transaction succeeds is not enough for it to do all it should.
pub const HOOK_GAS_RESERVE: u64 = 1_100_000;
/// Blocks that a node is asked about at once when logs of a known second are looked for.
pub const LOG_WINDOW_BLOCKS: u64 = 256;
/// Blocks that one question for the receipts of a call goes over; nodes refuse more than some thousands.
pub const RECEIPT_SPAN_BLOCKS: u64 = 2_000;

/// Time to connect to an operator.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Time that an operator has to answer beyond what it was asked to wait.
pub const ANSWER_GRACE: Duration = Duration::from_secs(15);
/// Life of a caller's proof: longer than a long-poll, and short enough for clocks that differ by minutes.
pub const PROOF_LIFETIME_S: u64 = 120;
/// Seconds in which the contract expects the answers to a batch of commands, and a minute more.
pub const BATCH_EXEC_ANSWER_S: u64 = 1_860;
/// The same of a batch of tasks.
pub const BATCH_TASK_ANSWER_S: u64 = 3_660;
/// Pause between two looks at a batch that is watched.
pub const BATCH_WATCH_PAUSE: Duration = Duration::from_secs(2);
/// Parts of a batch, or rows of its sandboxes, that are asked for at the same time.
pub const BATCH_ASKED_MAX: usize = 16;
/// Bytes of JSON that one of a text may take: `\u0001`.
pub const JSON_BYTES_PER_BYTE_MAX: usize = 6;
/// An item of a batch without what it wrote: ids, states and numbers, in words of the ABI or as JSON.
pub const BATCH_ITEM_REST_BYTES_MAX: usize = 1024;
/// Body of an operator's report of a batch: what its items wrote, half as much again for what most of them answered, the items
/// themselves, and the rest.
pub const BATCH_REPORT_BODY_BYTES_MAX: usize = JSON_BYTES_PER_BYTE_MAX * (BATCH_REPORT_BYTES_MAX * 3 / 2)
    + BATCH_REPORT_PARTS_MAX * BATCH_SANDBOXES_MAX as usize * BATCH_ITEM_REST_BYTES_MAX
    + 1024 * 1024;
/// Answer to a command: both streams as hex, twice (as bytes and readable).
const EXEC_ANSWER_BYTES_MAX: usize = 2 * 2 * 2 * EXEC_OUTPUT_BYTES_MAX;
/// Answer to a batch of commands or tasks: all that an operator's items wrote as hex, and readable.
const BATCH_ANSWER_BYTES_MAX: usize =
    (2 + JSON_BYTES_PER_BYTE_MAX) * (BATCH_PART_BYTES_MAX + BATCH_ENDPOINTS_MAX * BATCH_ITEM_REST_BYTES_MAX);
/// Answer to a job 23: a report as hex, and as a text of JSON, in which nothing but quotes and backslashes is written longer.
const BATCH_COLLECT_ANSWER_BYTES_MAX: usize = (2 + 2) * BATCH_REPORT_BODY_BYTES_MAX;
/// Body of an answer: the longest, and the rest.
pub const ANSWER_BODY_BYTES_MAX: usize =
    larger(EXEC_ANSWER_BYTES_MAX, larger(BATCH_ANSWER_BYTES_MAX, BATCH_COLLECT_ANSWER_BYTES_MAX)) + 1024 * 1024;
/// Time for an operator to answer a question about sandboxes, calls or tokens.
pub const API_WITHIN: Duration = Duration::from_secs(30);
/// Time for an operator to do something to a sandbox, or to say that it goes on by itself.
pub const API_ACT_WITHIN: Duration = Duration::from_secs(WAIT_S_MAX + 30);
/// A kept token that ends sooner is as good as none.
pub const TOKEN_LEFT_S_MIN: u64 = 30;
/// Time for an operator to take a snapshot.
pub const SNAPSHOT_WITHIN: Duration = Duration::from_secs(3_600);
/// Body of such an answer.
pub const API_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Outputs of a workflow's step that are as long as one may be.
pub const WORKFLOW_STEP_OUTPUTS_MAX: usize = 4;
/// Body of a workflow's run: the outputs of all its steps, twice since JSON writes some letters longer, and the rest.
pub const WORKFLOW_RUN_BODY_BYTES_MAX: usize =
    2 * WORKFLOW_STEPS_MAX * WORKFLOW_STEP_OUTPUTS_MAX * WORKFLOW_OUTPUT_BYTES_MAX + API_BODY_BYTES_MAX;
/// Runs that are shown beside a workflow.
pub const WORKFLOW_RUNS_SHOWN: u64 = 5;
/// How long a new workflow's operator is asked for its secret, which it has once it has read the chain.
pub const HOOK_SECRET_WITHIN: Duration = Duration::from_secs(60);
/// Pages of one list.
pub const API_PAGES_MAX: usize = 1_000;
/// An event of a stream, with what came along with it.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;
/// Silence after which a stream of events counts as broken: signs of life that did not come.
pub const EVENT_SILENCE: Duration = Duration::from_secs(4 * EVENT_HEARTBEAT_S);
/// An event of a run; what a tool said or a task came to is in it.
pub const RUN_EVENT_BYTES_MAX: usize = 4 * RUN_BODY_BYTES_MAX;
/// Attempts in a row at a stream of a run that breaks before it tells anything.
pub const RUN_TRIES_MAX: u32 = 10;
/// Time of a prompt or task that is given none, in seconds as the command line counts it.
pub const TASK_TIMEOUT_S_DEFAULT: u64 = TASK_TIMEOUT_MS_DEFAULT / 1_000;
/// Most time of a prompt.
pub const PROMPT_TIMEOUT_S_MAX: u64 = PROMPT_TIMEOUT_MS_MAX / 1_000;
/// Most time of a task.
pub const TASK_TIMEOUT_S_MAX: u64 = TASK_TIMEOUT_MS_MAX / 1_000;
/// Bytes of stdin that the command line reads at a time.
pub const STDIN_PIECE_BYTES: usize = 64 * 1024;
/// Pieces of stdin that wait to be sent.
pub const STDIN_PIECES_MAX: usize = 4;
/// Time between two pieces of a file that is read or written.
pub const FILE_PIECE_WITHIN: Duration = Duration::from_secs(60);
/// Time in which a connection into a sandbox is open; the operator may have to start the sandbox.
pub const OPEN_WITHIN: Duration = API_ACT_WITHIN;
/// Silence of an operator after which a terminal's connection counts as broken; it is asked after half of that.
pub const TERMINAL_SILENCE: Duration = Duration::from_secs(30);
/// Attempts at a terminal whose connection broke.
pub const TERMINAL_TRIES_MAX: u32 = 10;
/// Bytes of a terminal that were shown before the sidecar is told so.
pub const TERMINAL_ACK_BYTES: u64 = PTY_WINDOW_BYTES / 4;
/// Pause between two attempts at an operator that fails, doubled from the least to the most.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
/// See [`RETRY_PAUSE_MIN`].
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Age at which the core takes a quote no more.
pub const QUOTE_AGE_S_MAX: u64 = 3_600;
/// Quotes of one operator for the very same work in one second.
pub const QUOTE_ROUNDS_MAX: u64 = 8;
/// Quotes of one operator in one second: what bounds the memory and the time that strangers cost.
pub const QUOTES_PER_SECOND_MAX: usize = 1_024;
/// Seconds beyond their life that quotes are good for, to be told apart.
pub const QUOTE_SPREAD_S_MAX: u64 = (QUOTE_ROUNDS_MAX + 1) * SERVICE_OPERATORS_MAX as u64;
/// Steps back of a clock that are waited out.
pub const CLOCK_STEP_S_MAX: u64 = 60;
/// Time for an operator to quote.
pub const QUOTE_WITHIN: Duration = Duration::from_secs(20);
/// Body of a quote.
pub const QUOTE_BODY_BYTES_MAX: usize = 16 * 1024;
/// Entries of a page of the contract's lists; its own bound is not lower.
pub const PAGE_ENTRIES_MAX: u64 = 100;

const fn larger(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

const _: () = assert!(QUOTE_SPREAD_S_MAX < QUOTE_AGE_S_MAX);
const _: () = assert!(PROOF_LIFETIME_S > WAIT_S_MAX && PROOF_LIFETIME_S < SIGNATURE_LIFETIME_S_MAX);

/// Blocks that a local chain is asked for at a time: what it makes within the time for an answer, on a busy machine too.
pub const DEV_BLOCKS_AT_ONCE_MAX: u64 = 100;

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256, Signature, U256};
    use alloy::sol_types::SolValue as _;
    use sandbox_protocol::abi::{
        BatchCollectResponse, BatchExecResponse, BatchTaskResponse, ExecResponse, TaskResponse,
    };
    use sandbox_protocol::batch::{
        Aggregation, BatchReport, BatchStatus, ItemExec, ItemReport, ItemState, ItemTask, Majority, OtherPart,
        PartReport, share,
    };
    use sandbox_protocol::exec::ByteText;
    use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus, response_json};
    use sandbox_protocol::limits::RUN_ID_BYTES_MAX;
    use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt};
    use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome, SandboxId};

    use super::*;

    /// What JSON writes longest.
    const LONG: &str = "\u{1}";

    /// A response as an operator sends it.
    fn sent(job: Job, response: &[u8]) -> usize {
        let receipt = SandboxReceipt {
            operator: Address::repeat_byte(0xff),
            service: u64::MAX,
            call: u64::MAX,
            job: job.id(),
            caller: Address::repeat_byte(0xff),
            inputs_hash: B256::repeat_byte(0xff),
            response_hash: B256::repeat_byte(0xff),
            outcome: 0,
            detail: U256::MAX,
            failure: String::new(),
            runtime: "runsc".into(),
            image_digest: "sha256:".to_owned() + &"f".repeat(64),
            started_block: u64::MAX,
            ended_block: u64::MAX,
            duration_ms: u64::MAX,
        };
        let answer = AnswerBody {
            outcome: Outcome::Done,
            failure: None,
            response: response.to_vec().into(),
            response_json: response_json(job, None, response).unwrap(),
            receipt: SignedReceipt {
                chain_id: u64::MAX,
                core: Address::repeat_byte(0xff),
                receipt,
                signature: Signature::test_signature(),
            },
            transaction: Some(B256::repeat_byte(0xff)),
        };
        let (service, call, status) = (u64::MAX, u64::MAX, CallStatus::Settled);
        let body = CallBody { service, call, job: job.id(), status, run: None, answer: Some(answer) };
        serde_json::to_vec(&body).unwrap().len()
    }

    #[test]
    fn answers_of_as_many_items_as_there_may_be_that_wrote_all_they_may_are_read() {
        let each = share(BATCH_PART_BYTES_MAX, BATCH_ENDPOINTS_MAX);
        let batch_id = "b".repeat(64);
        let (succeeded, failed) = (u32::MAX, u32::MAX);
        let stream = || vec![1; each].into();
        let result = ExecResponse {
            exit_code: i32::MIN,
            stdout: stream(),
            stderr: stream(),
            truncated: true,
            duration_ms: u64::MAX,
        };
        let results = vec![result; BATCH_ENDPOINTS_MAX];
        let exec = BatchExecResponse { batch_id: batch_id.clone(), results, succeeded, failed };
        assert!(sent(Job::BatchExec, &exec.abi_encode()) <= BATCH_ANSWER_BYTES_MAX);
        let id = "i".repeat(RUN_ID_BYTES_MAX);
        let result = TaskResponse {
            success: true,
            result: LONG.repeat(each),
            error: LONG.repeat(each),
            trace_id: id.clone(),
            turns_used: u32::MAX,
            duration_ms: u64::MAX,
            input_tokens: u32::MAX,
            output_tokens: u32::MAX,
            session_id: id,
        };
        let results = vec![result; BATCH_ENDPOINTS_MAX];
        let task = BatchTaskResponse { batch_id, results, succeeded, failed };
        let length = sent(Job::BatchTask, &task.abi_encode());
        assert!(length <= BATCH_ANSWER_BYTES_MAX && length > EXEC_ANSWER_BYTES_MAX, "{length}");
    }

    /// A report of so many parts with so many items each, each of which wrote as much as is told.
    fn report(parts: usize, items: u32) -> BatchReport {
        let each = share(BATCH_REPORT_BYTES_MAX, parts * items as usize);
        let id = "i".repeat(RUN_ID_BYTES_MAX);
        let task = ItemTask {
            success: false,
            result: LONG.repeat(each),
            error: LONG.repeat(each),
            trace_id: id.clone(),
            turns_used: u32::MAX,
            duration_ms: u64::MAX,
            input_tokens: u32::MAX,
            output_tokens: u32::MAX,
            session_id: id,
        };
        let item = |index| ItemReport {
            index,
            sandbox: Some(SandboxId { origin: CallKey { service: u64::MAX, call: u64::MAX }, slot: u8::MAX }),
            state: ItemState::Succeeded,
            failure: Some(Failure::new(FailureCode::ResourcesOutOfRange, "the task ran into a limit of its own")),
            exec: Some(ItemExec { stdout: ByteText::default(), ..ItemExec::default() }),
            task: Some(task.clone()),
        };
        let majority = Majority { answer: LONG.repeat(each), items: (0..items).collect(), of: items, tied: false };
        let part = PartReport {
            call: u64::MAX,
            job: Job::BatchTask.id(),
            operator: Address::repeat_byte(0xff),
            aggregation: Some(Aggregation::Majority),
            is_over: true,
            items: (0..items).map(item).collect(),
            left_out: 0,
            majority: Some(majority),
            kept_until_ms: Some(u64::MAX),
        };
        let head = PartReport { items: Vec::new(), left_out: items, majority: None, ..part.clone() };
        let other = OtherPart {
            call: u64::MAX,
            operator: Address::repeat_byte(0xff),
            outcome: Some(Outcome::Operator),
            is_silent: false,
        };
        let batch_id = "b".repeat(64).parse().unwrap();
        let parts = vec![part; parts].into_iter().chain(vec![head; 256]).collect();
        let others = vec![other; BATCH_REPORT_PARTS_MAX * SERVICE_OPERATORS_MAX as usize];
        BatchReport { batch_id, service: u64::MAX, status: BatchStatus::Running, parts, others }
    }

    #[test]
    fn a_report_of_as_much_as_is_told_is_read_by_itself_and_in_an_answer() {
        for (parts, items) in [(1, 1), (1, 128), (BATCH_REPORT_PARTS_MAX, 1), (BATCH_REPORT_PARTS_MAX, 128)] {
            let report = report(parts, items);
            let results_json = serde_json::to_string(&report).unwrap();
            assert!(results_json.len() <= BATCH_REPORT_BODY_BYTES_MAX, "{parts} {items}: {}", results_json.len());
            let batch_id = report.batch_id.to_string();
            let response = BatchCollectResponse { batch_id, status: "running".into(), results_json };
            let length = sent(Job::BatchCollect, &response.abi_encode());
            assert!(length <= BATCH_COLLECT_ANSWER_BYTES_MAX, "{parts} {items}: {length}");
        }
    }

    #[test]
    fn the_contract_takes_as_many_operators() {
        let solidity = include_str!("../../../contracts/src/Operators.sol");
        let line = format!("OPERATORS_MAX = {SERVICE_OPERATORS_MAX};");
        assert!(solidity.contains(&line), "Operators.sol lacks `{line}`");
    }
}
