//! `prompt`, `task`, `runs`, `sessions`: work for the agent of a sandbox, live or as a job.

mod context;
mod follow;
mod held;
mod tell;

use std::path::Path;
use std::process::ExitCode;

use sandbox_protocol::abi::{PromptResponse, TaskResponse};
use sandbox_protocol::agent::{RunReply, TaskBody};
use sandbox_protocol::http::{AnswerBody, CallBody};
use sandbox_protocol::session::Scope;
use sandbox_protocol::{Job, SandboxId};
use sandbox_sdk::requests::AgentBuilder;

use self::context::Asked;
pub(super) use self::context::{confided, of_negotiation as context_of_negotiation};
use self::follow::{Approvals, Role, follow};
pub(crate) use self::held::{runs, sessions};
pub(super) use self::tell::shown;
use super::call::answer_of;
use super::sandboxes::{answered, decoded, read_text, unreadable};
use super::sessions::inside;
use crate::args::{AgentArgs, PromptArgs, TaskArgs, answer_within};
use crate::failure::{Failure, of_run};
use crate::output::Output;
use crate::settings::Settings;

/// What is asked for, with what tells a prompt from a task.
struct Work {
    args: AgentArgs,
    job: Job,
    timeout_s: Option<u64>,
    turns_max: u64,
}

pub(crate) async fn prompt(args: PromptArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let PromptArgs { agent, timeout } = args;
    work(Work { args: agent, job: Job::Prompt, timeout_s: timeout, turns_max: 0 }, settings, output).await
}

pub(crate) async fn task(args: TaskArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let TaskArgs { agent, timeout, max_turns } = args;
    let turns_max = max_turns.unwrap_or(0);
    work(Work { args: agent, job: Job::Task, timeout_s: timeout, turns_max }, settings, output).await
}

async fn work(mut work: Work, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    if work.args.text == "-" {
        if work.args.context.as_deref() == Some(Path::new("-")) {
            return Err(Failure::usage("the text and its context cannot both be stdin".into()));
        }
        work.args.text = read_text(Path::new("-"))?;
    }
    if work.args.job { by_job(work, settings, output).await } else { live(work, settings, output).await }
}

/// Over the operator's API, event by event.
async fn live(work: Work, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let Work { args, job, timeout_s, turns_max } = work;
    if args.pay.quote {
        return Err(Failure::usage("--quote is for jobs: add --job".into()));
    }
    let key = args.model.provider_key_env.as_deref().map(|name| settings.secret(name)).transpose()?;
    let asked = Asked { backend: "", agent: "", key };
    let body = TaskBody {
        context_json: context::of(args.context.as_deref(), asked)?,
        prompt: args.text,
        session_id: args.session,
        max_turns: turns_max,
        timeout_ms: timeout_s.unwrap_or(0) * 1_000,
        model: args.model.model,
        agent_backend: args.backend,
        agent_identifier: args.agent,
        ..TaskBody::default()
    };
    let inside = inside(args.id, Scope::SandboxesExec, settings).await?;
    let events = if job == Job::Prompt { inside.follow_prompt(body) } else { inside.follow_task(body) };
    let role = Role::Master { sandbox: args.id };
    let reply = follow((&inside, events), role, Approvals::new(args.approvals), output).await?;
    match reply.as_ref().and_then(of_run) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// On chain, with a receipt.
async fn by_job(work: Work, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let Work { args, job, timeout_s, turns_max } = work;
    let key = args.model.provider_key_env.as_deref().map(|name| settings.secret(name)).transpose()?;
    let asked = Asked { backend: &args.backend, agent: &args.agent, key };
    let context = context::of(args.context.as_deref(), asked)?;
    context::confided(&context, settings)?;
    let builder = match job {
        Job::Prompt => AgentBuilder::prompt(args.id, args.text),
        _ => AgentBuilder::task(args.id, args.text, turns_max),
    };
    let builder = builder.session(args.session).model(args.model.model).context_json(context);
    let request = builder.timeout_ms(timeout_s.unwrap_or(0) * 1_000).build()?;
    let answer = answer_within(args.within, timeout_s, args.save);
    let body = answered(args.id.origin.service, request, (&args.pay, &answer), (settings, output)).await?;
    let reply = reply_of(answer_of(&body)?)?;
    output.result(&reply.result, &body)?;
    output.aside(&(tell::end(&reply) + "\n"));
    output.notice(&proven(&body)?);
    ended(&body, &reply)
}

/// What a job's answer says of the agent's work. One that its limit struck has come to something too.
pub(super) fn reply_of(answer: &AnswerBody) -> Result<RunReply, Failure> {
    if answer.failure.is_some_and(|code| !code.keeps_response()) {
        return Err(Failure::of_answer(answer).unwrap_or_else(unreadable));
    }
    let response =
        if answer.receipt.receipt.job == Job::Prompt.id() { of_one_turn(decoded(answer)?) } else { decoded(answer)? };
    let TaskResponse { success, result, error, trace_id, turns_used, .. } = response;
    let TaskResponse { duration_ms, input_tokens, output_tokens, session_id, .. } = response;
    let reply = RunReply { success, result, error, trace_id, turns_used, duration_ms, ..RunReply::default() };
    Ok(RunReply { input_tokens, output_tokens, session_id, ..reply })
}

fn of_one_turn(response: PromptResponse) -> TaskResponse {
    let PromptResponse { success, result, error, trace_id, turns_used, .. } = response;
    let PromptResponse { duration_ms, input_tokens, output_tokens, session_id, .. } = response;
    TaskResponse { success, result, error, trace_id, turns_used, duration_ms, input_tokens, output_tokens, session_id }
}

/// A job that was not done is that; one that was is as successful as its agent, whose word for it is told.
pub(super) fn ended(body: &CallBody, reply: &RunReply) -> Result<ExitCode, Failure> {
    let not_done = Failure::of_answer(answer_of(body)?);
    let told = |failure: Failure| match reply.error.as_str() {
        "" => failure,
        error => Failure { message: error.to_owned(), ..failure },
    };
    match not_done.map(told).or_else(|| of_run(reply)) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The sentence about a receipt that was checked.
pub(super) fn proven(body: &CallBody) -> Result<String, Failure> {
    let receipt = &answer_of(body)?.receipt.receipt;
    let (key, operator) = (receipt.key(), receipt.operator);
    Ok(format!("proven: call {key}, operator {operator}; signed, and recorded on chain"))
}

/// How one comes back to a run that goes on without being seen.
fn way_back(sandbox: SandboxId, run: &str) -> String {
    format!("sandbox: it goes on by itself; see it with `runs {sandbox} {run} --follow`")
}
