//! What a workflow's run comes to, step by step. Nothing here acts: time and results arrive as arguments, and what is to be
//! done leaves as [`Advance`].
//!
//! | module | what it is |
//! |---|---|
//! | `plan` | a `workflow_json` that can be carried out: its graph in order, its expressions read |
//! | `graph` | which steps need which |
//! | `names` | what expressions may name, and what that stands for in a run |
//! | `place` | where something is wrong, and how that is said |
//! | `work` | what a step does, before and after its expressions are replaced |
//! | `template` | texts with `${{ }}` in them |
//! | [`expression`] | the language between the braces, and of `when` |
//! | `value` | what expressions are about |
//! | `state` | a run: what an operator keeps of it on disk |
//! | `result` | what came of an attempt |
//! | `retry` | which attempts are followed by another, and when |
//! | `key` | what an attempt is called where it is carried out |
//!
//! A crash costs nothing: [`RunState`] is written before a step is begun, an attempt has a [key](step_key) under which a sandbox
//! does it once, and what was running is taken up again by [`RunState::running`].

pub mod expression;
mod graph;
mod key;
mod names;
mod place;
mod plan;
mod result;
mod retry;
mod state;
mod template;
mod value;
mod work;

pub use self::key::step_key;
pub use self::plan::{Plan, StepIndex};
pub use self::result::StepResult;
pub use self::state::{Advance, Attempt, RunState, Start, StepPhase, StepState, TriggerData};
pub use self::value::{Outputs, Value};
pub use self::work::Action;
