//! A model provider for tests: real HTTP, three wire protocols, scripted replies.
//!
//! It speaks what OpenAI, Anthropic and Ollama speak, also when it refuses, fails, stammers, breaks off or says nothing.
//! What it answers is decided by a [`Script`] and by nothing else: no clock, no chance. Not here: a model.

mod builtin;
mod limits;
mod listener;
mod provider;
mod reply;
mod request;
mod script;
mod wire;

pub use self::provider::{Place, Provider};
pub use self::reply::{Call, Ending, Failure, Reply, Tokens};
pub use self::request::{Protocol, Request, Said};
pub use self::script::{Rule, Script, ScriptFile, When};
