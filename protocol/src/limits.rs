//! Every bound that two sides must agree on. Names end in their unit and `_MAX`, `_MIN` or `_DEFAULT`.

use crate::batch::{CUT, share};

/// Processor cores of a sandbox that asks for 0.
pub const CPU_CORES_DEFAULT: u64 = 1;
/// Most cores that a request may name; an operator's own bound may be lower.
pub const CPU_CORES_MAX: u64 = 128;
/// Memory of a sandbox that asks for 0.
pub const MEMORY_MB_DEFAULT: u64 = 1_024;
/// Least memory in which the sidecar and a shell are of use.
pub const MEMORY_MB_MIN: u64 = 64;
/// Most memory that a request may name.
pub const MEMORY_MB_MAX: u64 = 1_048_576;
/// Disk of a sandbox that asks for 0.
pub const DISK_GB_DEFAULT: u64 = 10;
/// Most disk that a request may name.
pub const DISK_GB_MAX: u64 = 16_384;
/// Processes and threads in a sandbox.
pub const PIDS_MAX: i64 = 1_024;
/// Open files of one process in a sandbox.
pub const OPEN_FILES_MAX: i64 = 16_384;

/// Time of a command that asks for 0.
pub const EXEC_TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// Most time that a command may ask for.
pub const EXEC_TIMEOUT_MS_MAX: u64 = 300_000;
/// Most time of a command that nobody waits for.
pub const EXEC_DETACHED_TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;
/// Bytes kept of each of stdout and stderr; what goes beyond is dropped and marked.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Finished executions that a sidecar still answers for, by id.
pub const EXEC_FINISHED_MAX: usize = 256;
/// Bytes that a sidecar keeps of the output of finished executions, all together.
pub const EXEC_FINISHED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Length of a command, also with its stdin: what fits an exec request.
pub const EXEC_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Length of the command itself: the kernel gives one argument 128 KiB with its end mark.
pub const EXEC_COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;
/// Length of a working directory's path: the kernel's own bound, less the end mark.
pub const EXEC_CWD_BYTES_MAX: usize = 4_095;
/// Length of an execution's id.
pub const EXEC_ID_BYTES_MAX: usize = 128;
/// Environment variables of one command or sandbox.
pub const ENV_VARS_MAX: usize = 256;
/// Length of an environment variable's name and value together.
pub const ENV_VAR_BYTES_MAX: usize = 32 * 1024;

/// Memory of an execution for whose client the protocol's default is enough.
pub const FSP_MEMORY_MB_DEFAULT: u64 = 256;
/// Most memory that an execution may be given of its own.
pub const FSP_MEMORY_MB_MAX: u64 = 1_024;
/// Weight of an execution that names none.
pub const FSP_CPU_SHARES_DEFAULT: u64 = 512;
/// Least weight: the kernel's bound.
pub const FSP_CPU_SHARES_MIN: u64 = 2;
/// Most weight: the kernel's bound.
pub const FSP_CPU_SHARES_MAX: u64 = 262_144;
/// Bytes that an execution may write, stdout and stderr together, where it names no number.
pub const FSP_OUTPUT_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Most bytes that an execution may be allowed to write: they flow, so only its client's patience is at stake.
pub const FSP_OUTPUT_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// Length of an execution's code.
pub const FSP_CODE_BYTES_MAX: usize = 1024 * 1024;
/// Length of the stdin that comes with an `execute`.
pub const FSP_STDIN_BYTES_MAX: usize = 1024 * 1024;
/// Length of a client's message. A longer one is refused and the connection goes on.
pub const FSP_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Length at which a client's message is not read any further: the connection ends.
pub const FSP_CUT_BYTES_MAX: usize = 2 * FSP_MESSAGE_BYTES_MAX;
/// Bytes of output in one message.
pub const FSP_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Output that a client with `credit` may be sent before it grants any, where it names no number.
pub const FSP_CREDIT_BYTES_DEFAULT: u64 = 256 * 1024;
/// Streamed stdin that a sandbox holds for a program that does not read: what a client may send before it is granted more.
pub const FSP_STDIN_WINDOW_BYTES: u64 = 256 * 1024;
/// Executions that run in one sandbox at a time; with a supervisor, a shell and a child each they leave a quarter of
/// [`PIDS_MAX`].
pub const FSP_RUNNING_MAX: usize = 256;
/// Executions that wait for a place; the next is refused.
pub const FSP_QUEUED_MAX: usize = 256;
/// Connections of a client to one sandbox that are kept.
pub const FSP_POOL_SIZE_DEFAULT: usize = 5;
/// Connections beyond those that bursts may open.
pub const FSP_POOL_OVERFLOW_DEFAULT: usize = 10;

/// Terminals of a sandbox, those that have ended and are still remembered among them.
pub const PTY_TERMINALS_MAX: usize = 16;
/// Viewers of a terminal.
pub const PTY_VIEWERS_MAX: usize = 8;
/// Columns of a terminal.
pub const PTY_COLS_MAX: u16 = 1_000;
/// Rows of a terminal.
pub const PTY_ROWS_MAX: u16 = 1_000;
/// Length of the name in `TERM`.
pub const PTY_TERM_BYTES_MAX: usize = 64;
/// Bytes that a terminal has shown and that are kept for viewers that are behind or come back.
pub const PTY_KEPT_BYTES: usize = 512 * 1024;
/// Bytes that a viewer may be behind before its terminal's programs are held up for it.
pub const PTY_WINDOW_BYTES: u64 = 256 * 1024;
/// Time for which one viewer that is behind holds up others that are not.
pub const PTY_STALL_MS_MAX: u64 = 250;
/// Length of a viewer's message.
pub const PTY_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a terminal in one message.
pub const PTY_CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Time that a terminal goes on without a viewer, and that it is remembered after its end.
pub const PTY_KEEP_S: u64 = 600;

/// Tunnels to ports of one sandbox at a time; the next is refused.
pub const TUNNELS_MAX: usize = 256;
/// Length of a client's message in a tunnel that is a WebSocket.
pub const TUNNEL_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Length of a frame of a channel to a program.
pub const CHANNEL_FRAME_BYTES_MAX: usize = 256 * 1024;
/// Bytes of stdin that are on their way to a program of a channel, or wait until it reads them.
pub const CHANNEL_WINDOW_BYTES: usize = 1024 * 1024;
/// Channels to programs of one sandbox at a time; the next is refused.
pub const CHANNELS_MAX: usize = 512;
/// Sockets of one sandbox at a time that its sidecar listens at for an operator; the next is refused.
pub const LISTENERS_MAX: usize = 128;
/// Seconds that a connection waits to be fetched.
pub const CHANNEL_ARRIVAL_S: u64 = 10;
/// Connections to one of these sockets that wait to be fetched; the next is closed.
pub const CHANNEL_ARRIVALS_MAX: usize = 64;

/// A line that names an SSH key.
pub const SSH_KEY_LINE_BYTES_MAX: usize = 1024;
/// SSH keys that open one sandbox; the next is refused.
pub const SSH_KEYS_MAX: usize = 64;

/// Events that a sidecar keeps for readers that come back.
pub const EVENTS_KEPT_MAX: usize = 1_000;
/// Readers of a sidecar's events at a time; the next is refused.
pub const EVENT_READERS_MAX: usize = 64;
/// Time between two signs of life in a stream of events that has nothing to tell.
pub const EVENT_HEARTBEAT_S: u64 = 15;
/// Length of a ticket for a sidecar: all scopes, the last second, and the seal.
pub const TICKET_BYTES_MAX: usize = 128;
/// Entries of a page of a directory that names no number.
pub const FILES_PAGE_ENTRIES_DEFAULT: u64 = 200;
/// Most entries of a page of a directory.
pub const FILES_PAGE_ENTRIES_MAX: u64 = 1_000;
/// Directories that one watch of files sees into.
pub const FILES_WATCHED_DIRECTORIES_MAX: u64 = 4_096;
/// Requests about files, watches among them, that one sandbox serves at a time.
pub const FILES_RUNNING_MAX: usize = 32;

/// Time of a prompt or task that asks for 0.
pub const TASK_TIMEOUT_MS_DEFAULT: u64 = 600_000;
/// Most time that a prompt may ask for: within what the contract gives for its answer.
pub const PROMPT_TIMEOUT_MS_MAX: u64 = 1_500_000;
/// Most time that a task may ask for: within what the contract gives for its answer.
pub const TASK_TIMEOUT_MS_MAX: u64 = 3_300_000;
/// Calls of the model in one task; 0 asks for so many.
pub const TASK_TURNS_MAX: u64 = 200;
/// Length of a prompt.
pub const PROMPT_BYTES_MAX: usize = 256 * 1024;
/// Length of a `context_json`.
pub const CONTEXT_JSON_BYTES_MAX: usize = 1024 * 1024;
/// As much of an unknown field's name as a refusal repeats.
pub const FIELD_BYTES_MAX: usize = 64;
/// Length of the body of a prompt, task or move.
pub const RUN_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Length of the id of a run or session.
pub const RUN_ID_BYTES_MAX: usize = 128;
/// Runs of one sandbox at a time; the next wait.
pub const RUNS_RUNNING_MAX: usize = 8;
/// Runs that wait; the next is refused.
pub const RUNS_QUEUED_MAX: usize = 32;
/// Runs that have ended and are remembered.
pub const RUNS_KEPT_MAX: usize = 256;

/// Letters of a ticker.
pub const TICKER_BYTES_MAX: usize = 16;
/// Letters of a move's name.
pub const MOVE_ID_BYTES_MAX: usize = 32;
/// Length of a move.
pub const MOVE_CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Length of a persona's system prompt.
pub const PERSONA_BYTES_MAX: usize = 16 * 1024;
/// Letters of a reason in a report's table; the whole of it stands in the JSON.
pub const REASON_CHARS_MAX: usize = 300;
/// Moves of one negotiation.
pub const NEGOTIATION_MOVES_MAX: usize = 64;
/// Rounds of a negotiation that names no number.
pub const NEGOTIATION_ROUNDS_DEFAULT: u32 = 10;
/// Most rounds of a negotiation.
pub const NEGOTIATION_ROUNDS_MAX: u32 = 20;
/// Moves at a time of a negotiation that names no number.
pub const NEGOTIATION_CONCURRENCY_DEFAULT: u32 = 5;
/// Most moves at a time.
pub const NEGOTIATION_CONCURRENCY_MAX: u32 = 15;

/// Time in which a snapshot is made or taken; it is broken off then.
pub const SNAPSHOT_S_MAX: u64 = 1_800;

/// Inputs of a job; the contract refuses more.
pub const JOB_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Operators that a field may be sealed to: as many as a service may have.
pub const SEALED_RECIPIENTS_MAX: usize = 32;

/// How far ahead a caller's signature on an HTTP request may expire.
pub const SIGNATURE_LIFETIME_S_MAX: u64 = 300;
/// Longest wait of a long-poll.
pub const WAIT_S_MAX: u64 = 60;
/// Length of a sign-in message.
pub const SIWE_MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Letters and digits of a sign-in message's nonce, at the least.
pub const SIWE_NONCE_LETTERS_MIN: usize = 8;
/// Resources of a sign-in message.
pub const SIWE_RESOURCES_MAX: usize = 16;
/// Length of a contract wallet's signature.
pub const WALLET_SIGNATURE_BYTES_MAX: usize = 4 * 1024;
/// Life of a token, unless its message says less or its operator something else.
pub const TOKEN_LIFE_S_DEFAULT: u64 = 3_600;
/// Most life of a token.
pub const TOKEN_LIFE_S_MAX: u64 = 24 * 3_600;
/// Entries of a page of a list that names no number.
pub const PAGE_ENTRIES_DEFAULT: u64 = 50;
/// Most entries of a page of a list.
pub const PAGE_ENTRIES_MAX: u64 = 100;

/// Length of a batch's id.
pub const BATCH_ID_BYTES_MAX: usize = 64;
/// Sandboxes of a batch create; the contract refuses more.
pub const BATCH_SANDBOXES_MAX: u32 = 200;
/// Endpoints of a batch of tasks or commands; the contract refuses more.
pub const BATCH_ENDPOINTS_MAX: usize = 128;
/// Length of what an item of a batch keeps of each of a command's streams, and of a task's words.
pub const BATCH_ITEM_BYTES_MAX: usize = 64 * 1024;
/// Texts of an item that may be so long: both streams of a command, or a task's result and error.
pub const BATCH_ITEM_TEXTS_MAX: usize = 2;
/// Length of what the items of an operator's part of a call keep of such texts together; they share it alike.
pub const BATCH_PART_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Length of what a report of a batch tells of such texts: the items of all its parts share it alike.
pub const BATCH_REPORT_BYTES_MAX: usize = 512 * 1024;
/// Parts of which a report tells item by item, the newest; of the others it says how many items they have.
pub const BATCH_REPORT_PARTS_MAX: usize = 16;

/// Length of a workflow's name.
pub const WORKFLOW_NAME_BYTES_MAX: usize = 128;
/// Length of a `workflow_json`.
pub const WORKFLOW_BODY_BYTES_MAX: usize = 48 * 1024;
/// Length of a `trigger_config`; the contract refuses more.
pub const TRIGGER_CONFIG_BYTES_MAX: usize = 192;
/// Steps of a workflow.
pub const WORKFLOW_STEPS_MAX: usize = 64;
/// Length of a step's id.
pub const WORKFLOW_STEP_ID_BYTES_MAX: usize = 40;
/// Length of a condition or expression.
pub const WORKFLOW_EXPRESSION_BYTES_MAX: usize = 1024;
/// Times that a step is begun.
pub const WORKFLOW_ATTEMPTS_MAX: u32 = 10;
/// First pause before a step is tried again, where none is named; it doubles.
pub const WORKFLOW_BACKOFF_MS_DEFAULT: u64 = 1_000;
/// Longest pause before a step is tried again.
pub const WORKFLOW_BACKOFF_MS_MAX: u64 = 3_600_000;
/// Steps at a time of a run that names no number.
pub const WORKFLOW_CONCURRENCY_DEFAULT: u32 = 8;
/// Most steps at a time of a run.
pub const WORKFLOW_CONCURRENCY_MAX: u32 = 32;
/// Files that a step names as its artifacts.
pub const WORKFLOW_ARTIFACTS_MAX: usize = 16;
/// Time of a run that names none.
pub const WORKFLOW_RUN_TIMEOUT_MS_DEFAULT: u64 = 3_600_000;
/// Most time of a run.
pub const WORKFLOW_RUN_TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;
/// Length of one output of a step; more of it is cut.
pub const WORKFLOW_OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Length of all outputs of a run; what comes later is cut to nothing.
pub const WORKFLOW_OUTPUTS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Indexed fields of a contract's event, besides its signature.
pub const EVENT_FIELDS_MAX: usize = 3;
/// Most seconds that a firing is put off on purpose.
pub const WORKFLOW_JITTER_S_MAX: u32 = 3_600;
/// Instants that are made up for after nobody could fire.
pub const WORKFLOW_CATCH_UP_MAX: usize = 100;
/// How far a webhook's timestamp may be from the operator's clock.
pub const HOOK_WINDOW_S_MAX: u64 = 300;
/// Length of a webhook's body.
pub const HOOK_BODY_BYTES_MAX: usize = 256 * 1024;

const _: () = assert!(EXEC_TIMEOUT_MS_DEFAULT <= EXEC_TIMEOUT_MS_MAX);
const _: () = assert!(MEMORY_MB_MIN <= MEMORY_MB_DEFAULT && MEMORY_MB_DEFAULT <= MEMORY_MB_MAX);
const _: () = assert!(EXEC_OUTPUT_BYTES_MAX * 2 <= EXEC_FINISHED_BYTES_MAX);
const _: () = assert!(TOKEN_LIFE_S_DEFAULT <= TOKEN_LIFE_S_MAX && PAGE_ENTRIES_DEFAULT <= PAGE_ENTRIES_MAX);
const _: () = assert!(FILES_PAGE_ENTRIES_DEFAULT <= FILES_PAGE_ENTRIES_MAX);
const _: () = assert!(EXEC_COMMAND_BYTES_MAX < EXEC_BODY_BYTES_MAX);
const _: () = assert!(FSP_CODE_BYTES_MAX + FSP_STDIN_BYTES_MAX < FSP_MESSAGE_BYTES_MAX);
const _: () = assert!(PTY_WINDOW_BYTES + PTY_CHUNK_BYTES_MAX as u64 <= PTY_KEPT_BYTES as u64);
const _: () = assert!(share(BATCH_PART_BYTES_MAX, BATCH_ENDPOINTS_MAX) >= 4 * 1024);
const _: () =
    assert!(share(BATCH_REPORT_BYTES_MAX, BATCH_REPORT_PARTS_MAX * BATCH_SANDBOXES_MAX as usize) >= 8 * CUT.len());
const _: () = assert!(WORKFLOW_CONCURRENCY_DEFAULT <= WORKFLOW_CONCURRENCY_MAX);
const _: () = assert!(WORKFLOW_BACKOFF_MS_DEFAULT <= WORKFLOW_BACKOFF_MS_MAX);
const _: () = assert!(WORKFLOW_RUN_TIMEOUT_MS_DEFAULT <= WORKFLOW_RUN_TIMEOUT_MS_MAX);
const _: () = assert!(EXEC_ID_BYTES_MAX <= u8::MAX as usize && FSP_RUNNING_MAX * 3 <= PIDS_MAX as usize);

#[cfg(test)]
mod tests {
    #[test]
    fn solidity_gives_inputs_the_same_bound() {
        let solidity = include_str!("../../contracts/src/State.sol").replace('_', "");
        assert!(solidity.contains(&format!("INPUTSMAX = {};", super::JOB_INPUT_BYTES_MAX)));
    }

    #[test]
    fn solidity_bounds_batches_and_triggers_alike() {
        let state = include_str!("../../contracts/src/State.sol").replace('_', "");
        assert!(state.contains(&format!("SANDBOXESMAX = {};", super::BATCH_SANDBOXES_MAX)), "{state}");
        assert!(state.contains(&format!("ENDPOINTSMAX = {};", super::BATCH_ENDPOINTS_MAX)));
        let workflows = include_str!("../../contracts/src/Workflows.sol");
        assert!(workflows.contains(&format!("TRIGGER_CONFIG_BYTES_MAX = {};", super::TRIGGER_CONFIG_BYTES_MAX)));
    }

    #[test]
    fn a_field_can_be_sealed_to_all_operators_of_any_service() {
        let solidity = include_str!("../../contracts/src/Operators.sol");
        assert!(solidity.contains(&format!("OPERATORS_MAX = {};", super::SEALED_RECIPIENTS_MAX)));
    }
}
