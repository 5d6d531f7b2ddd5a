//! What a model is told at most, and how long is waited for whom.

/// Tokens of a conversation that each call of the model is given.
pub const CONTEXT_TOKENS_DEFAULT: usize = 8_000;
/// Time in which a customer answers a call that asks.
pub const APPROVAL_TIMEOUT_MS_DEFAULT: u64 = 300_000;

/// Time for a connection to a provider, in milliseconds.
pub const PROVIDER_CONNECT_MS_MAX: u64 = 10_000;
/// Time that a connection to a provider is kept without a call, in milliseconds.
pub const PROVIDER_IDLE_MS_MAX: u64 = 90_000;
/// Time that a provider has to close an answer's body after its last word, in milliseconds; then its connection is not kept.
pub const PROVIDER_LINGER_MS_MAX: u64 = 250;
/// Time for the first piece of an answer, in milliseconds: a long conversation is read before a word is said.
pub const PROVIDER_FIRST_MS_MAX: u64 = 120_000;
/// Time for each further piece, in milliseconds.
pub const PROVIDER_PIECE_MS_MAX: u64 = 60_000;
/// Time for a whole answer, in milliseconds.
pub const PROVIDER_ANSWER_MS_MAX: u64 = 600_000;
/// Attempts of a call of a model, the first one included.
pub const PROVIDER_ATTEMPTS_MAX: u32 = 4;
/// Widest pause before the second attempt, in milliseconds; it doubles with each further one.
pub const PROVIDER_BACKOFF_MS: u64 = 500;
/// Widest pause before any attempt, in milliseconds.
pub const PROVIDER_BACKOFF_MS_MAX: u64 = 8_000;
/// Longest time that a provider may ask to be left alone before a call is given up instead, in milliseconds.
pub const PROVIDER_RETRY_AFTER_MS_MAX: u64 = 60_000;
/// Length of a provider's words in an error.
pub const PROVIDER_WORDS_BYTES_MAX: usize = 500;
/// Length of an answer: its words, its thoughts and the arguments of its calls together.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Calls of tools in one answer.
pub const ANSWER_CALLS_MAX: usize = 128;
/// Texts that a provider is given at once to make vectors of.
pub const EMBED_TEXTS_MAX: usize = 128;

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

const _: () = assert!(MESSAGE_BYTES_MAX <= SEARCHED_BYTES_MAX && CONTEXT_TEXT_BYTES_MAX <= SEARCHED_BYTES_MAX);
