//! The users of a sandbox besides root, whose ids every image has.

/// Who commands run as: `agent`, with a group of the same number.
pub const AGENT_UID: u32 = 1_000;
/// A second user of customers, `runner`, with a group of the same number: reserved for work that the agent's own
/// processes must not reach. Nothing runs as it yet, and nobody may have it as the agent.
pub const RUNNER_UID: u32 = 1_001;

const _: () = assert!(AGENT_UID != RUNNER_UID);
