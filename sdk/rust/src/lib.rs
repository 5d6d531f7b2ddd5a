//! Client library: what customers, deployers and operators say to the chain, and how an answer is fetched and proven.
//!
//! | module | what it is |
//! |---|---|
//! | [`contracts`] | bindings of the Tangle core and of our blueprint |
//! | [`deployment`] | where one blueprint lives: the addresses file |
//! | [`calls`] | every transaction as calldata, for senders of any kind |
//! | [`chain`] | a checked client of one blueprint, and an account that sends |
//! | [`reverts`] | what the chain refused, in one sentence each |
//! | [`deploy`] | putting the blueprint on a chain |
//! | [`operators`] | staking, registering, approving |
//! | [`quotes`] | signed prices: asked for, checked, redeemed |
//! | [`requests`] | job inputs, built and bounded |
//! | [`ssh`] | into a sandbox with the SSH programs that one has |
//! | [`sealing`] | what is not to be public, sealed to who may answer |
//! | [`answers`] | fetching answers from operators |
//! | [`batches`] | many sandboxes at once: planned, sent, waited for, proven part by part |
//! | [`api`] | an operator's API for who signed in |
//! | [`verify`] | proving them, offline and against the chain |
//! | [`workflows`] | workflows as chain and operators tell of them; webhooks as their senders sign them |
//! | [`limits`] | every bound of this client |
//! | [`devchain`] | a local chain that holds the real Tangle core |
//!
//! Not here: the command line (`src/bin/sandbox`), configuration, printing. Nothing here reads the environment.

pub mod answers;
pub mod api;
pub mod batches;
pub mod calls;
pub mod chain;
pub mod contracts;
pub mod deploy;
pub mod deployment;
pub mod devchain;
pub mod limits;
pub mod operators;
pub mod quotes;
pub mod requests;
pub mod reverts;
pub mod sealing;
pub mod ssh;
pub mod verify;
pub mod workflows;

pub use chain::{Account, Chain};
pub use deployment::Deployment;
pub use reverts::Refusal;
pub use sealing::Sealing;
