//! What a model is told at most, and how long is waited for whom.

/// Tokens of a conversation that each call of the model is given.
pub const CONTEXT_TOKENS_DEFAULT: usize = 8_000;
/// Time in which a customer answers a call that asks.
pub const APPROVAL_TIMEOUT_MS_DEFAULT: u64 = 300_000;

/// Length of an error's message.
pub const MESSAGE_BYTES_MAX: usize = 2_000;
/// Length of a text in an error's context, also of another service's body.
pub const CONTEXT_TEXT_BYTES_MAX: usize = 1_000;
/// Entries of a map or list in an error's context; the rest is left out.
pub const CONTEXT_ENTRIES_MAX: usize = 32;
/// Levels of an error's context; what lies deeper is left out.
pub const CONTEXT_LEVELS_MAX: usize = 6;
/// Length of an error's whole context, as it is shown.
pub const CONTEXT_BYTES_MAX: usize = 4_000;
/// As much of a text as is searched for secrets; what lies behind it is never shown.
pub const SEARCHED_BYTES_MAX: usize = 64 * 1024;
/// Length from which a word behind `Bearer` or `Basic` is one that no sentence would have there.
pub const CREDENTIAL_BYTES_MIN: usize = 8;

/// Length of an entry of a negotiation; what lies behind it is cut off.
pub const NEGOTIATION_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Beginnings of objects in an answer that are tried, from its end on, where scores are looked for.
pub const NEGOTIATION_SCORE_OBJECTS_MAX: usize = 64;
/// Length of the record of a move's calls: three times as many answers as the most rounds have, as long as JSON can make them.
pub const NEGOTIATION_RECORD_BYTES_MAX: u64 = 144 * 1024 * 1024;
/// Last rounds of a conversation that a model is shown word for word, however long it grows.
pub const NEGOTIATION_LAST_ROUNDS_KEPT: u32 = 3;
/// Tokens that a model's context leaves for an answer, where it is not so small that this would be more than a quarter.
pub const NEGOTIATION_ANSWER_TOKENS_MIN: usize = 1_024;
/// Tokens by which a provider frames two messages, and by which counts differ.
pub const NEGOTIATION_FRAME_TOKENS: usize = 32;

const _: () = assert!(MESSAGE_BYTES_MAX <= SEARCHED_BYTES_MAX && CONTEXT_TEXT_BYTES_MAX <= SEARCHED_BYTES_MAX);
