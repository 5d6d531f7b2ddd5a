//! Tools: what a model may have done, how a call is checked, and how it is carried out.
//!
//! A [`Tool`] says what it takes as a table of [`Field`]s and does its work through what its [`SandboxMode`] gives it. The
//! [`Toolbox`] carries calls out: whatever goes wrong, a panic too, comes back as a [`ToolError`](crate::ToolError).
//!
//! Not here: whether a call may be carried out at all, which is decided in [`crate::task`].

mod cut;
mod edit;
mod failure;
pub mod fakes;
mod fields;
mod files;
pub mod ports;
mod programs;
mod search;
mod toolbox;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_protocol::fsp::Language;
use sandbox_protocol::limits::FSP_MEMORY_MB_DEFAULT;
use serde::de::DeserializeOwned;

pub use self::failure::Failure;
pub use self::fields::Field;
use self::ports::{Execution, Files, Ran, Sandbox};
pub use self::toolbox::{Call, Toolbox};
use crate::limits::TOOL_TIMEOUT_MS_DEFAULT;
use crate::model::ToolSpec;

/// Something that a model may have done.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What it is called with: with `deny_unknown_fields`, and what [`Tool::fields`] lets through.
    type Arguments: DeserializeOwned + Send + Sync + 'static;

    /// What models call it.
    fn name(&self) -> &str;

    /// What it does, in words for the model.
    fn about(&self) -> &str;

    /// What it takes.
    fn fields(&self) -> &[Field];

    /// As a model is told of it.
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name().to_owned(),
            description: self.about().to_owned(),
            parameters: fields::schema(self.fields()),
        }
    }

    /// Where its work is done. Asked at every call.
    fn sandbox_mode(&self) -> SandboxMode {
        SandboxMode::None
    }

    /// What is done with a call that began and whose end nobody saw.
    fn repeat(&self) -> Repeat {
        Repeat::Never
    }

    /// Time of a call.
    fn timeout_ms(&self, _arguments: &Self::Arguments) -> u64 {
        TOOL_TIMEOUT_MS_DEFAULT
    }

    /// Carries a call out.
    ///
    /// # Errors
    /// Why it did not do what it is for.
    async fn execute(&self, arguments: Self::Arguments, context: &Context) -> Result<String, Failure>;
}

/// Where a tool's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SandboxMode {
    /// In this process, which may reach the files.
    None,
    /// As a program in the sandbox.
    External,
}

/// What is done with a call that began and whose end nobody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// It is carried out again: twice is the same as once.
    Again,
    /// The sandbox is asked what came of it.
    Attach,
    /// The model is told that nobody knows.
    Never,
}

/// What all programs of a task are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Added to their environment.
    pub env: BTreeMap<String, String>,
    /// Memory of a program that is given as code. Commands have the sandbox's.
    pub memory_mb: u64,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { env: BTreeMap::new(), memory_mb: FSP_MEMORY_MB_DEFAULT }
    }
}

/// What a call can reach.
pub struct Context {
    key: String,
    attach_only: bool,
    timeout_ms: u64,
    surroundings: Arc<Surroundings>,
    reach: Reach,
}

enum Reach {
    Files(Arc<dyn Files>),
    Sandbox(Arc<dyn Sandbox>),
}

/// A program that a tool wants run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Of `code`.
    pub language: Language,
    /// Source code.
    pub code: String,
    /// As [`Execution::cwd`].
    pub cwd: Option<String>,
    /// What it reads.
    pub stdin: Option<String>,
    /// Added to what all programs are given.
    pub env: BTreeMap<String, String>,
    /// As [`Execution::memory_mb`].
    pub memory_mb: u64,
}

impl Context {
    /// Time of the call.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// What all programs are given.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The files, for a tool of [`SandboxMode::None`].
    ///
    /// # Errors
    /// The tool is of another mode.
    pub fn files(&self) -> Result<&dyn Files, Failure> {
        match &self.reach {
            Reach::Files(files) => Ok(files.as_ref()),
            Reach::Sandbox(_) => Err(Failure::OutOfReach),
        }
    }

    /// Runs a program under the call's key, for a tool of [`SandboxMode::External`]; a call runs one.
    ///
    /// # Errors
    /// The tool is of another mode, or nothing is known of the program's end.
    pub async fn run(&self, program: Program) -> Result<Ran, Failure> {
        let Reach::Sandbox(sandbox) = &self.reach else { return Err(Failure::OutOfReach) };
        let Program { language, code, cwd, stdin, env, memory_mb } = program;
        let mut all = self.surroundings.env.clone();
        all.extend(env);
        let (id, timeout_ms, attach_only) = (self.key.clone(), self.timeout_ms, self.attach_only);
        let execution = Execution { id, language, code, cwd, stdin, env: all, timeout_ms, memory_mb, attach_only };
        Ok(sandbox.run(execution).await?)
    }
}
