//! Bounds of backends that are programs of others.

use std::time::Duration;

/// Length of one line that a program says; a longer one is left out.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What is kept of the last that a program complained of.
pub const COMPLAINT_BYTES_MAX: usize = 4 * 1024;
/// Bytes that a program may write in one run, both streams together.
pub const PROGRAM_OUTPUT_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Time in which a program that was ended is gone.
pub const PROGRAM_END_MAX: Duration = Duration::from_secs(5);
/// Time of a small command: a file is written, a directory removed.
pub const CHORE_MAX: Duration = Duration::from_secs(30);
/// How often a provider is asked for one answer: once, and three times again.
pub const PROVIDER_ATTEMPTS_MAX: u32 = 4;
/// Sessions of one backend whose conversations are known; the ones that are unused longest are forgotten.
pub const SESSIONS_MAX: usize = 1_000;
/// Length of the file that they are in.
pub const SESSIONS_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Tokens that a model takes where nobody says so: programs of others have long instructions of their own.
pub const CONTEXT_TOKENS_DEFAULT: u32 = 128_000;
/// Tokens of one answer that a program asks for.
pub const ANSWER_TOKENS_MAX: u32 = 16_000;
/// Length of a failure's words.
pub const FAILURE_BYTES_MAX: usize = 1_000;
