// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

// Every word that a job carries, once: ids, request and response structs, receipts.
// The Rust side is generated from this file (`protocol/src/abi.rs`), so a field is renamed here or nowhere.
// Requests and responses travel as `abi.encode(struct)`: one tuple, hence one leading offset word for dynamic structs.

// ─── Job ids ────────────────────────────────────────────────────────────────────────────────────────────────────────
// A job id is an index into the blueprint's job array, so all 42 of 0–41 are declared; those not named here are reserved.

uint8 constant JOB_SANDBOX_CREATE = 0;
uint8 constant JOB_SANDBOX_STOP = 1;
uint8 constant JOB_SANDBOX_RESUME = 2;
uint8 constant JOB_SANDBOX_DELETE = 3;
uint8 constant JOB_SANDBOX_SNAPSHOT = 4;
uint8 constant JOB_EXEC = 10;
uint8 constant JOB_PROMPT = 11;
uint8 constant JOB_TASK = 12;
uint8 constant JOB_BATCH_CREATE = 20;
uint8 constant JOB_BATCH_TASK = 21;
uint8 constant JOB_BATCH_EXEC = 22;
uint8 constant JOB_BATCH_COLLECT = 23;
uint8 constant JOB_WORKFLOW_CREATE = 30;
uint8 constant JOB_WORKFLOW_TRIGGER = 31;
uint8 constant JOB_WORKFLOW_CANCEL = 32;
uint8 constant JOB_SSH_PROVISION = 40;
uint8 constant JOB_SSH_REVOKE = 41;

// Length of the job table: ids 0–41.
uint8 constant JOB_COUNT = 42;

// ─── Selection and registration ─────────────────────────────────────────────────────────────────────────────────────

/// `requestInputs` of a service request.
struct SelectionRequest {
    uint32 operatorCount;
    bytes32 seed;
    bool enforceDeterministic;
}

/// `registrationInputs` of an operator, replaced whole by a preference update.
struct OperatorProfile {
    uint32 capacity; // sandboxes it will hold at once, over all its services
    uint256 pricePerHour; // wei for one core-hour, the base of its quotes
    bytes32 sealKey; // X25519 public key that sealed fields are addressed to; zero: does not open sealed fields
    string apiUrl; // https://host[:port] of its HTTP API
}

// ─── Receipts ───────────────────────────────────────────────────────────────────────────────────────────────────────

// Done as asked; also a command that ended with a non-zero exit code.
uint8 constant OUTCOME_DONE = 0;
// The caller's: bad input that only execution shows, or the caller's own limit reached.
uint8 constant OUTCOME_CALLER = 1;
// The operator's: engine, capacity, promised image, internal.
uint8 constant OUTCOME_OPERATOR = 2;

/// The result of every job, and all of it that goes on chain. Three static words.
struct JobReceipt {
    uint8 outcome;
    bytes32 responseHash; // keccak256 of the ABI-encoded response, or of the JobError
    uint256 detail; // creates: bitmap of the slots created; otherwise 0
}

/// The response of a job whose outcome is not OUTCOME_DONE.
struct JobError {
    string code;
    string message;
    bool retryable;
}

// ─── Sandbox lifecycle ──────────────────────────────────────────────────────────────────────────────────────────────

struct SandboxCreateRequest {
    uint64 cpu_cores;
    uint64 memory_mb;
    uint64 disk_gb;
    string agent_backend;
    string agent_identifier;
    string env_json;
    bool ssh_enabled;
    string ssh_public_key;
    uint64 ttl_blocks;
    uint64 idle_timeout_seconds;
    string snapshot_destination;
}

struct SandboxCreateResponse {
    string sandbox_id;
    string sidecar_endpoint;
    string ssh_host;
    uint16 ssh_port;
    string ssh_user;
    string stream_endpoint;
    uint64 expires_at_block;
}

/// Jobs 1 (stop) and 3 (delete).
struct SandboxIdRequest {
    string sandbox_id;
}

/// Job 2. An empty `snapshot_uri` resumes what was stopped.
struct ResumeRequest {
    string sandbox_id;
    string snapshot_uri;
}

/// Jobs 1, 2 and 3.
struct SandboxStatusResponse {
    string sandbox_id;
    string state;
    uint64 expires_at_block;
}

struct SandboxSnapshotRequest {
    string sidecar_endpoint;
    string destination;
    bool include_workspace;
    bool include_state;
}

struct SandboxSnapshotResponse {
    bool success;
    string snapshot_uri;
    uint64 size_bytes;
}

// ─── Execution ──────────────────────────────────────────────────────────────────────────────────────────────────────

struct ExecRequest {
    string sidecar_endpoint;
    string command;
    string cwd;
    string env_json;
    string stdin;
    uint64 timeout_ms;
}

struct ExecResponse {
    int32 exit_code;
    bytes stdout;
    bytes stderr;
    bool truncated;
    uint64 duration_ms;
}

struct PromptRequest {
    string sidecar_endpoint;
    string prompt;
    string session_id;
    uint64 timeout_ms;
    string context_json;
    string model;
}

struct PromptResponse {
    bool success;
    string result;
    string error;
    string trace_id;
    uint32 turns_used;
    uint64 duration_ms;
    uint32 input_tokens;
    uint32 output_tokens;
    string session_id;
}

struct TaskRequest {
    string sidecar_endpoint;
    string prompt;
    string session_id;
    uint64 max_turns;
    uint64 timeout_ms;
    string context_json;
    string model;
}

struct TaskResponse {
    bool success;
    string result;
    string error;
    string trace_id;
    uint32 turns_used;
    uint64 duration_ms;
    uint32 input_tokens;
    uint32 output_tokens;
    string session_id;
}

// ─── Batches ────────────────────────────────────────────────────────────────────────────────────────────────────────

struct BatchCreateRequest {
    uint32 count;
    SandboxCreateRequest template;
    address[] operators;
    string distribution;
}

struct BatchCreateResponse {
    string batch_id;
    string[] sandbox_ids;
    string[] endpoints;
}

struct BatchTaskRequest {
    string batch_id;
    string[] sidecar_endpoints;
    string prompt;
    bool parallel;
    string aggregation;
}

struct BatchTaskResponse {
    string batch_id;
    TaskResponse[] results;
    uint32 succeeded;
    uint32 failed;
}

struct BatchExecRequest {
    string batch_id;
    string[] sidecar_endpoints;
    string command;
    string cwd;
    string env_json;
    uint64 timeout_ms;
    bool parallel;
    string aggregation;
}

struct BatchExecResponse {
    string batch_id;
    ExecResponse[] results;
    uint32 succeeded;
    uint32 failed;
}

struct BatchCollectRequest {
    string batch_id;
}

struct BatchCollectResponse {
    string batch_id;
    string status;
    string results_json;
}

// ─── Workflows ──────────────────────────────────────────────────────────────────────────────────────────────────────

struct WorkflowCreateRequest {
    string name;
    string workflow_json;
    string trigger_type;
    string trigger_config;
    string sandbox_config_json;
}

struct WorkflowCreateResponse {
    uint64 workflow_id;
    string status;
}

/// Jobs 31 (trigger) and 32 (cancel).
struct WorkflowControlRequest {
    uint64 workflow_id;
}

// ─── SSH ────────────────────────────────────────────────────────────────────────────────────────────────────────────

struct SshProvisionRequest {
    string sandbox_id;
    string ssh_public_key;
    uint64 ttl_blocks;
}

struct SshProvisionResponse {
    string ssh_host;
    uint16 ssh_port;
    string ssh_user;
    string host_key;
    uint64 expires_at_block;
}

struct SshRevokeRequest {
    string sandbox_id;
    string ssh_public_key;
}
