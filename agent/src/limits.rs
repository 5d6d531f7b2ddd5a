//! What a model is told at most, and how long is waited for whom.

/// Tokens of a conversation that each call of the model is given.
pub const CONTEXT_TOKENS_DEFAULT: usize = 8_000;
/// Fewest of them: below it not even one short message would be sure to stand in its tier.
pub const CONTEXT_TOKENS_MIN: usize = 256;
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

/// Shares of a context: what was said last, word for word; the summary; what is found again.
pub const CONTEXT_PERCENT: [usize; 3] = [50, 30, 20];
/// Messages of a session.
pub const MEMORY_MESSAGES_MAX: usize = 10_000;
/// Length of a remembered message: its words, and the arguments of its calls.
pub const MEMORY_MESSAGE_BYTES_MAX: usize = 512 * 1024;
/// Length of all of a session, as it is written down.
pub const MEMORY_SESSION_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Time that opening a session waits for the handle before it, which may be storing still.
pub const MEMORY_LOCK_WAIT_MS_MAX: u64 = 200;
/// Tokens that no summary covers; past them one is made.
pub const UNSUMMARISED_TOKENS_MAX: usize = 4_000;
/// Tokens of a summary.
pub const SUMMARY_TOKENS_MAX: usize = 2_000;
/// Summaries of summaries of summaries: each level is an eighth of the one below.
pub const SUMMARY_LEVELS_MAX: usize = 16;
/// Messages that are looked at when something is found again.
pub const RETRIEVED_MESSAGES_MAX: usize = 20;
/// Texts in one call of the embedder.
pub const EMBEDDED_TEXTS_MAX: usize = 64;
/// As much of a text as is made a vector of.
pub const EMBEDDED_TEXT_BYTES_MAX: usize = 8 * 1024;
/// Numbers of a vector.
pub const EMBEDDING_NUMBERS_MAX: usize = 8_192;
/// Time in which a question becomes a vector; then its words alone are searched for.
pub const QUESTION_EMBEDDING_MS_MAX: u64 = 2_000;
/// Attempts at shortening one text to its tokens.
pub const SHORTENINGS_MAX: usize = 16;

const _: () = assert!(CONTEXT_PERCENT[0] + CONTEXT_PERCENT[1] + CONTEXT_PERCENT[2] == 100);
const _: () = assert!(MEMORY_MESSAGE_BYTES_MAX >= sandbox_protocol::limits::PROMPT_BYTES_MAX);
const _: () = assert!(MESSAGE_BYTES_MAX <= SEARCHED_BYTES_MAX && CONTEXT_TEXT_BYTES_MAX <= SEARCHED_BYTES_MAX);
