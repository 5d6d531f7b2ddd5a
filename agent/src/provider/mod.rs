//! Providers of language models: the adapter of [`crate::model`] over HTTP.
//!
//! What is said on the wire is genai's business; what is settled here is where and with whose key, how long is waited, what
//! is tried again, when an answer is whole, and what a failure means. Nothing here reads the environment, and no error holds
//! a key or more than a few of the provider's words.
//!
//! Around genai: it neither tells a stream that ends early from one that ends (Ollama), nor bounds what it collects, and
//! it takes parts of a model's name for settings. So an answer is put together here, from pieces, and counts as whole only
//! once the provider has said so.

mod answer;
mod calls;
mod client;
mod embed;
mod failure;
mod ledger;
mod request;
mod retry;
mod settings;
mod words;

pub use self::answer::ProviderModel;
pub use self::client::{HttpSettings, http_client};
pub use self::embed::ProviderEmbedder;
pub use self::ledger::{Ledger, Price, Prices};
pub use self::settings::{Layers, ProviderLimits, ProviderSettings, SettingsError, resolve};
