//! What a step does: as its workflow wrote it, and with its expressions replaced.

use std::collections::BTreeMap;

use sandbox_protocol::abi::{ExecRequest, PromptRequest, TaskRequest};
use sandbox_protocol::limits::SNAPSHOT_S_MAX;
use sandbox_protocol::workflow::body::{self, ExecWith, Kind, NegotiationWith, SnapshotWith, TaskWith};
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};

use super::place::Place;
use super::template::{Names, Rendering, Shape, Template, TooLong};
use crate::ports::Turns;
use crate::request::{self, Command, Errand, ErrandKind, SnapshotWish};

/// Stands in for the run's own sandbox until that is known.
const OWN: SandboxId = SandboxId { origin: CallKey { service: 0, call: 0 }, slot: 0 };
/// Stands in for texts that are not known yet, where something must stand.
const SOMETHING: &str = "-";
/// Stands in for a destination that is not known yet.
const SOMEWHERE: &str = "s3://bucket/key";
/// Stands in for a negotiation that is not known yet.
const ARGUMENT: &str = r#"{"kind":"negotiation","ticker":"-","moves":[{"move_id":"-","content":"-"}]}"#;

/// What is to be done: expressions replaced, bounds kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A command.
    Exec(Command),
    /// A prompt or task.
    Agent {
        /// How many.
        turns: Turns,
        /// What.
        errand: Errand,
    },
    /// A snapshot.
    Snapshot(SnapshotWish),
    /// A negotiation.
    Negotiation(Errand),
}

/// What a step does, as its workflow wrote it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    pub(super) kind: Kind,
    /// As written: 0 is the default of the kind.
    timeout_ms: u64,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Exec {
        line: String,
        cwd: String,
        env: BTreeMap<String, Template>,
        stdin: Template,
    },
    Agent {
        turns: Turns,
        prompt: Template,
        session_id: Template,
        max_turns: u64,
        context: Shape,
        model: String,
        agent: String,
    },
    Snapshot {
        destination: Template,
        workspace: bool,
        state: bool,
    },
    Negotiation {
        context: Shape,
        model: String,
    },
}

/// An action, and the milliseconds that it may take.
pub(super) type Timed = (Action, u64);

impl Action {
    /// The same in this sandbox: the run's own.
    #[must_use]
    pub fn at(self, sandbox: SandboxId) -> Self {
        match self {
            Self::Exec(command) => Self::Exec(Command { sandbox, ..command }),
            Self::Agent { turns, errand } => Self::Agent { turns, errand: Errand { sandbox, ..errand } },
            Self::Snapshot(wish) => Self::Snapshot(wish),
            Self::Negotiation(errand) => Self::Negotiation(Errand { sandbox, ..errand }),
        }
    }
}

impl Work {
    /// Reads what a step does, and refuses what can be known to be refused before there is a run.
    pub(super) fn read(
        work: body::Work,
        timeout_ms: u64,
        place: Place<'_>,
        names: &dyn Names,
    ) -> Result<Self, Failure> {
        let kind = work.kind();
        let form = match work {
            body::Work::Exec(with) => Form::exec(with, place, names),
            body::Work::Prompt(with) => {
                let body::PromptWith { sandbox_id, prompt, session_id, context, model, agent } = with;
                let with = TaskWith { sandbox_id, prompt, session_id, max_turns: 0, context, model, agent };
                Form::agent(Turns::One, with, place, names)
            }
            body::Work::Task(with) => Form::agent(Turns::Many, with, place, names),
            body::Work::Snapshot(with) => Form::snapshot(&with, place, names),
            body::Work::Negotiation(with) => Form::negotiation(with, place, names),
        };
        let read = Self { kind, timeout_ms, form: form? };
        read.action(None, &mut Rendering::dry()).map_err(|refused| place.refused(&refused))?;
        Ok(read)
    }

    /// What is to be done; `None`: in the run's own sandbox.
    ///
    /// # Errors
    /// What the expressions came to is refused.
    pub(super) fn action(&self, sandbox: Option<SandboxId>, rendering: &mut Rendering<'_>) -> Result<Timed, Failure> {
        let endpoint = sandbox.unwrap_or(OWN).to_string();
        match &self.form {
            Form::Exec { line, cwd, env, stdin } => {
                let mut values = BTreeMap::new();
                for (name, value) in env {
                    values.insert(name, rendering.text(value, "").map_err(too_long)?);
                }
                let request = ExecRequest {
                    sidecar_endpoint: endpoint,
                    command: line.clone(),
                    cwd: cwd.clone(),
                    env_json: serde_json::to_string(&values).unwrap_or_default(),
                    stdin: rendering.text(stdin, "").map_err(too_long)?,
                    timeout_ms: self.timeout_ms,
                };
                let command = request::command(request)?;
                let timeout_ms = command.timeout_ms;
                Ok((Action::Exec(command), timeout_ms))
            }
            Form::Agent { turns, prompt, session_id, max_turns, context, model, agent } => {
                let request = TaskRequest {
                    sidecar_endpoint: endpoint,
                    prompt: rendering.text(prompt, SOMETHING).map_err(too_long)?,
                    session_id: rendering.text(session_id, SOMETHING).map_err(too_long)?,
                    max_turns: *max_turns,
                    timeout_ms: self.timeout_ms,
                    context_json: context_json(context, rendering)?.unwrap_or_default(),
                    model: model.clone(),
                };
                run(*turns, request, agent)
            }
            Form::Snapshot { destination, workspace, state } => {
                let destination = rendering.text(destination, SOMEWHERE).map_err(too_long)?;
                let wish = SnapshotWish::parse(&destination, *workspace, *state)?;
                Ok((Action::Snapshot(wish), snapshot_ms(self.timeout_ms)?))
            }
            Form::Negotiation { context, model } => {
                let context_json = context_json(context, rendering)?.unwrap_or_else(|| ARGUMENT.to_owned());
                let (model, timeout_ms) = (model.clone(), self.timeout_ms);
                let asked = TaskRequest {
                    sidecar_endpoint: endpoint,
                    context_json,
                    model,
                    timeout_ms,
                    ..TaskRequest::default()
                };
                run(Turns::Many, asked, "")
            }
        }
    }
}

impl Form {
    fn exec(with: ExecWith, place: Place<'_>, names: &dyn Names) -> Result<Self, Failure> {
        let ExecWith { sandbox_id: _, command, cwd, env, stdin } = with;
        let line = place.fixed("command", command, "an expression would be code there: take it in by env or stdin")?;
        let template = |(name, value): (String, String)| {
            let value = Template::parse(&value, names).map_err(|bad| place.bad(&format!("env.{name}"), bad))?;
            Ok((name, value))
        };
        Ok(Self::Exec {
            line,
            cwd: place.fixed("cwd", cwd, NO_EXPRESSIONS)?,
            env: env.into_iter().map(template).collect::<Result<_, Failure>>()?,
            stdin: Template::parse(&stdin, names).map_err(|bad| place.bad("stdin", bad))?,
        })
    }

    fn agent(turns: Turns, with: TaskWith, place: Place<'_>, names: &dyn Names) -> Result<Self, Failure> {
        let TaskWith { sandbox_id: _, prompt, session_id, max_turns, context, model, agent } = with;
        Ok(Self::Agent {
            turns,
            prompt: Template::parse(&prompt, names).map_err(|bad| place.bad("prompt", bad))?,
            session_id: Template::parse(&session_id, names).map_err(|bad| place.bad("session_id", bad))?,
            max_turns,
            context: place.context(&context, names)?,
            model: place.fixed("model", model, NO_EXPRESSIONS)?,
            agent: place.fixed("agent", agent, NO_EXPRESSIONS)?,
        })
    }

    fn snapshot(with: &SnapshotWith, place: Place<'_>, names: &dyn Names) -> Result<Self, Failure> {
        let destination = Template::parse(&with.destination, names).map_err(|bad| place.bad("destination", bad))?;
        Ok(Self::Snapshot { destination, workspace: with.include_workspace, state: with.include_state })
    }

    fn negotiation(with: NegotiationWith, place: Place<'_>, names: &dyn Names) -> Result<Self, Failure> {
        let NegotiationWith { sandbox_id: _, mut context, model } = with;
        context.entry("kind").or_insert_with(|| "negotiation".into());
        let context = place.context(&context, names)?;
        Ok(Self::Negotiation { context, model: place.fixed("model", model, NO_EXPRESSIONS)? })
    }
}

const NO_EXPRESSIONS: &str = "no expressions here";

fn too_long(error: TooLong) -> Failure {
    Failure::new(FailureCode::BadRequest, error.to_string())
}

/// The context as it is sent; `None` where it is not known yet.
fn context_json(context: &Shape, rendering: &mut Rendering<'_>) -> Result<Option<String>, Failure> {
    let is_empty = matches!(context, Shape::Object(shapes) if shapes.is_empty());
    let value = rendering.value(context).map_err(too_long)?;
    Ok(value.map(|value| if is_empty { String::new() } else { value.json() }))
}

fn run(turns: Turns, asked: TaskRequest, agent: &str) -> Result<Timed, Failure> {
    let mut errand = match turns {
        Turns::Many => request::task(asked)?,
        Turns::One => {
            let TaskRequest { sidecar_endpoint, prompt, session_id, max_turns: _, timeout_ms, context_json, model } =
                asked;
            request::prompt(PromptRequest { sidecar_endpoint, prompt, session_id, timeout_ms, context_json, model })?
        }
    };
    let profile = &mut errand.agent.profile;
    if !agent.is_empty() && !profile.is_empty() && profile != agent {
        return Err(Failure::new(FailureCode::BadRequest, "agent: context.agent_identifier names another"));
    }
    if !agent.is_empty() {
        agent.clone_into(profile);
    }
    let timeout_ms = errand.timeout_ms;
    let action = match errand.kind {
        ErrandKind::Prompt | ErrandKind::Task => Action::Agent { turns, errand },
        ErrandKind::Negotiation(_) => Action::Negotiation(errand),
    };
    Ok((action, timeout_ms))
}

fn snapshot_ms(asked: u64) -> Result<u64, Failure> {
    let most = SNAPSHOT_S_MAX * 1_000;
    match asked {
        0 => Ok(most),
        asked if asked <= most => Ok(asked),
        _ => Err(Failure::new(FailureCode::BadRequest, format!("timeout_ms is at most {most}"))),
    }
}
