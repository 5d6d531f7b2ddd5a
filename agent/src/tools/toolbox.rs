//! All tools of a task, and the one function that carries a call out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::cut::cut;
use super::edit::EditFile;
use super::failure::unknown;
use super::files::{ListFiles, ReadFile, WriteFile};
use super::ports::{Files, Sandbox};
use super::programs::{Code, Shell};
use super::search::Search;
use super::{Context, Failure, Reach, Repeat, SandboxMode, Surroundings, Tool, fields};
use crate::limits::{SANDBOX_GRACE_MS, TOOL_NAME_BYTES_MAX};
use crate::model::ToolSpec;
use crate::redact::cleaned;
use crate::{Detail, ToolError};

/// All tools of a task.
#[derive(Clone)]
pub struct Toolbox {
    tools: BTreeMap<String, Arc<dyn AnyTool>>,
    sandbox: Arc<dyn Sandbox>,
    files: Arc<dyn Files>,
    surroundings: Arc<Surroundings>,
}

/// A call that is to be carried out.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Of the tool.
    pub name: &'a str,
    /// As the model gave them.
    pub arguments: &'a Value,
    /// By which a sandbox knows it again.
    pub key: &'a str,
    /// It began before, and nobody saw its end.
    pub begun: bool,
    /// Length of its result.
    pub result_bytes_max: usize,
}

impl Toolbox {
    /// The tools that every agent has.
    pub fn new(sandbox: Arc<dyn Sandbox>, files: Arc<dyn Files>, surroundings: Surroundings) -> Self {
        Self { tools: BTreeMap::new(), sandbox, files, surroundings: Arc::new(surroundings) }
            .with(Shell)
            .with(Code)
            .with(ReadFile)
            .with(WriteFile)
            .with(EditFile)
            .with(ListFiles)
            .with(Search)
    }

    /// The same, with one tool more, or another one of its name.
    #[must_use]
    pub fn with(mut self, tool: impl Tool) -> Self {
        self.tools.insert(tool.name().to_owned(), Arc::new(tool));
        self
    }

    /// What a model is told of the tools that it may use.
    pub fn specs(&self, allowed: impl Fn(&str) -> bool) -> Vec<ToolSpec> {
        self.tools.iter().filter(|(name, _)| allowed(name)).map(|(_, tool)| tool.spec()).collect()
    }

    /// Carries a call out: checks its arguments, goes where the tool's mode says at this moment, bounds its time and its
    /// result. Whoever drops this ends the call.
    ///
    /// # Errors
    /// Every failure, in the words that a model is told.
    pub async fn execute(&self, call: Call<'_>) -> Result<String, ToolError> {
        let tool = self.tools.get(call.name).ok_or_else(|| self.unknown(call.name))?;
        let Prepared { timeout_ms, work } = Arc::clone(tool).prepare(call.arguments)?;
        let attach_only = match (call.begun, tool.repeat()) {
            (true, Repeat::Never) => return Err(unknown(call.name)),
            (begun, Repeat::Attach) => begun,
            (_, Repeat::Again) | (false, Repeat::Never) => false,
        };
        let (reach, bound_ms) = match tool.sandbox_mode() {
            SandboxMode::None => (Reach::Files(Arc::clone(&self.files)), timeout_ms),
            SandboxMode::External => (Reach::Sandbox(Arc::clone(&self.sandbox)), timeout_ms + SANDBOX_GRACE_MS),
        };
        let surroundings = Arc::clone(&self.surroundings);
        let context = Context { key: call.key.to_owned(), attach_only, timeout_ms, surroundings, reach };
        // A task of its own, so that a panic ends it alone.
        let task = AbortOnDropHandle::new(tokio::spawn(work(context)));
        let result = match tokio::time::timeout(Duration::from_millis(bound_ms), task).await {
            Err(_) => Err(ToolError::timeout(call.name, timeout_ms)),
            Ok(Err(ended)) => Err(ToolError::from_join(call.name, ended)),
            Ok(Ok(result)) => result.map_err(|failure| failure.told(call.name)),
        };
        result.map(|text| cut(text, call.result_bytes_max))
    }

    fn unknown(&self, name: &str) -> ToolError {
        let names = self.tools.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let name = cleaned(name, TOOL_NAME_BYTES_MAX);
        ToolError::validation(&name, &format!("there is no such tool; there are {names}"))
    }
}

/// A tool whose arguments' type is forgotten.
trait AnyTool: Send + Sync {
    fn spec(&self) -> ToolSpec;
    fn sandbox_mode(&self) -> SandboxMode;
    fn repeat(&self) -> Repeat;
    fn prepare(self: Arc<Self>, arguments: &Value) -> Result<Prepared, ToolError>;
}

/// A call whose arguments are right.
struct Prepared {
    timeout_ms: u64,
    work: Box<dyn FnOnce(Context) -> BoxFuture<'static, Result<String, Failure>> + Send>,
}

impl<T: Tool> AnyTool for T {
    fn spec(&self) -> ToolSpec {
        Tool::spec(self)
    }

    fn sandbox_mode(&self) -> SandboxMode {
        Tool::sandbox_mode(self)
    }

    fn repeat(&self) -> Repeat {
        Tool::repeat(self)
    }

    fn prepare(self: Arc<Self>, arguments: &Value) -> Result<Prepared, ToolError> {
        let refused =
            |message: &str| ToolError::validation(self.name(), message).with("params", Detail::from(arguments));
        let faults = fields::faults(self.fields(), arguments);
        if !faults.is_empty() {
            return Err(refused(&faults.join("; ")));
        }
        let typed: T::Arguments =
            serde_json::from_value(arguments.clone()).map_err(|error| refused(&error.to_string()))?;
        let timeout_ms = self.timeout_ms(&typed);
        let work = move |context| async move { self.execute(typed, &context).await }.boxed();
        Ok(Prepared { timeout_ms, work: Box::new(work) })
    }
}

#[cfg(test)]
mod tests;
