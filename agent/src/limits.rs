//! What a model is told at most, and how long is waited for whom.

/// Tokens of a conversation that each call of the model is given.
pub const CONTEXT_TOKENS_DEFAULT: usize = 8_000;
/// Fewest of them: below it not even one short message would be sure to stand in its tier.
pub const CONTEXT_TOKENS_MIN: usize = 256;
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
/// Time for which a call waits until something gets out of the sandbox again: that of an operator's start.
pub const PROVIDER_SHUT_IN_MS_MAX: u64 = 120_000;
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

/// Time of a tool call that asks for none.
pub const TOOL_TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// Time beyond a program's own, in which the sandbox must have told how it ended.
pub const SANDBOX_GRACE_MS: u64 = 15_000;
/// Length of what a model is told of one call; the middle of a longer one is left out.
pub const TOOL_RESULT_BYTES_MAX: usize = 32 * 1024;
/// As much of a result is told however little room there is.
pub const TOOL_RESULT_BYTES_MIN: usize = 1_024;
/// Length of a tool's name, of those that a model makes up too.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Calls of one answer that are carried out; the rest is refused.
pub const TOOL_CALLS_MAX: usize = 32;
/// Length of a file that is read, written or edited at once.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Length of a path.
pub const PATH_BYTES_MAX: usize = 4_095;
/// Lines of a file that are read where a call does not say how many.
pub const READ_LINES_DEFAULT: u64 = 2_000;
/// Lines of a file that are read at once, and the last that reading may begin at.
pub const READ_LINES_MAX: u64 = 1_000_000;
/// Entries of a directory that are told.
pub const LIST_ENTRIES_MAX: usize = 500;
/// Length of what is searched for.
pub const SEARCH_PATTERN_BYTES_MAX: usize = 1_024;
/// Lines that a search tells.
pub const SEARCH_LINES_MAX: usize = 200;
/// Length of each of them.
pub const SEARCH_LINE_BYTES_MAX: usize = 400;
/// Times that a call may have the same outcome before its model is told so; one more ends the task.
pub const REPEATS_MAX: u32 = 3;
/// Time in which an ended task leaves its conversation in order.
pub const CLOSING_MS: u64 = 2_000;
/// Length of a log of what was done; one that is full takes no more.
pub const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

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
const _: () = assert!(TOOL_RESULT_BYTES_MIN < TOOL_RESULT_BYTES_MAX && REPEATS_MAX > 1);
