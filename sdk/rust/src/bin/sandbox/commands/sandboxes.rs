//! `create`, `run`, `stop`, `resume`, `snapshot`, `restore`, `rm`: submit a job, wait for its proven answer, print what it says.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sandbox_protocol::abi::{
    self, ExecResponse, SandboxCreateResponse, SandboxSnapshotResponse, SandboxStatusResponse,
};
use sandbox_protocol::http::{AnswerBody, CallBody};
use sandbox_protocol::{Job, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::requests::{self, Contents, CreateBuilder, ExecBuilder, JobRequest};

use super::call::{answer_of, save};
use super::quotes;
use super::ssh::public_key;
use crate::args::{
    ANSWER_S, AnswerArgs, CreateArgs, PayArgs, RemoveArgs, RestoreArgs, ResumeArgs, RunArgs, SnapshotArgs, SpecArgs,
};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

/// At the list price.
const LISTED: PayArgs = PayArgs { quote: false, max_price: None };

pub(crate) async fn create(args: CreateArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    created(None, args, (settings, output)).await
}

pub(crate) async fn restore(args: RestoreArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    created(Some(args.snapshot), args.create, (settings, output)).await
}

async fn created(
    snapshot: Option<String>,
    args: CreateArgs,
    (settings, output): (&Settings, &Output),
) -> Result<ExitCode, Failure> {
    let service = settings.service(args.service)?;
    let builder = sandbox_of(args.spec)?;
    let request = match snapshot {
        Some(uri) => builder.snapshot(uri).build()?,
        None => builder.build()?,
    };
    let body = answered(service, request, (&args.pay, &args.answer), (settings, output)).await?;
    finish(&body, output, |response: SandboxCreateResponse| response.sandbox_id)
}

/// The sandbox that these options ask for.
pub(super) fn sandbox_of(spec: SpecArgs) -> Result<CreateBuilder, Failure> {
    let mut builder = CreateBuilder::new()
        .cpu_cores(spec.cpu)
        .memory_mb(spec.memory_mb)
        .disk_gb(spec.disk_gb)
        .ttl_blocks(spec.ttl_blocks)
        .idle_timeout_s(spec.idle_timeout)
        .labels(&spec.labels);
    for (name, value) in spec.env {
        builder = builder.env(name, value);
    }
    if let Some(backend) = spec.agent_backend {
        builder = builder.agent_backend(backend);
    }
    if let Some(profile) = spec.agent {
        builder = builder.agent_identifier(profile);
    }
    if let Some(name) = spec.name {
        builder = builder.name(name);
    }
    if spec.ssh {
        builder = builder.ssh();
    }
    if let Some(file) = spec.ssh_key {
        builder = builder.ssh_key(&public_key(&file)?);
    }
    Ok(match spec.image {
        Some(image) => builder.image(image),
        None => builder,
    })
}

/// The command of these words.
pub(super) fn command_of(sandbox: SandboxId, words: &[String]) -> ExecBuilder {
    match words {
        [script] => ExecBuilder::new(sandbox, script),
        words => ExecBuilder::of_words(sandbox, words),
    }
}

pub(crate) async fn remove(args: RemoveArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    changed((args.id, requests::delete(args.id)), &args.answer, (settings, output)).await
}

pub(crate) async fn stop(args: RemoveArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    changed((args.id, requests::stop(args.id)), &args.answer, (settings, output)).await
}

pub(crate) async fn resume(args: ResumeArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    changed((args.id, requests::resume(args.id, args.from)?), &args.answer, (settings, output)).await
}

/// Has something done to a sandbox and prints what became of it.
async fn changed(
    (id, request): (SandboxId, JobRequest),
    answer: &AnswerArgs,
    (settings, output): (&Settings, &Output),
) -> Result<ExitCode, Failure> {
    let body = answered(id.origin.service, request, (&LISTED, answer), (settings, output)).await?;
    finish(&body, output, |response: SandboxStatusResponse| format!("{} {}", response.sandbox_id, response.state))
}

/// Has a job done at the list price, and prints what its proven answer says.
pub(super) async fn proven<T>(
    (id, request): (SandboxId, JobRequest),
    (settings, output): (&Settings, &Output),
    text: impl FnOnce(T) -> String,
) -> Result<ExitCode, Failure>
where
    T: alloy::sol_types::SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
{
    let answer = AnswerArgs { within: ANSWER_S, save: None };
    let body = answered(id.origin.service, request, (&LISTED, &answer), (settings, output)).await?;
    finish(&body, output, text)
}

/// Has a job done at the list price; what its proven answer says.
pub(super) async fn proven_answer<T>(
    (id, request): (SandboxId, JobRequest),
    (settings, output): (&Settings, &Output),
) -> Result<T, Failure>
where
    T: alloy::sol_types::SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
{
    let answer = AnswerArgs { within: ANSWER_S, save: None };
    let body = answered(id.origin.service, request, (&LISTED, &answer), (settings, output)).await?;
    let answer = answer_of(&body)?;
    match Failure::of_answer(answer) {
        Some(failure) => Err(failure),
        None => decoded(answer),
    }
}

pub(crate) async fn snapshot(args: SnapshotArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let contents = match (args.state, args.no_workspace) {
        (true, true) => Contents::State,
        (true, false) => Contents::Both,
        (false, _) => Contents::Workspace,
    };
    let request = requests::snapshot(args.id, args.to, contents)?;
    let body = answered(args.id.origin.service, request, (&LISTED, &args.answer), (settings, output)).await?;
    finish(&body, output, |response: SandboxSnapshotResponse| response.snapshot_uri)
}

pub(crate) async fn run(args: RunArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let mut builder = command_of(args.id, &args.command).cwd(args.cwd).timeout_ms(args.timeout);
    for (name, value) in args.env {
        builder = builder.env(name, value);
    }
    if let Some(path) = &args.stdin {
        builder = builder.stdin(read_text(path)?);
    }
    let (service, request) = (args.id.origin.service, builder.build()?);
    let body = answered(service, request, (&args.pay, &args.answer), (settings, output)).await?;
    finish_exec(&body, output)
}

/// The proven answer to a job. That of a job which changes what the chain holds is waited for on chain too, since the next
/// job is judged by that.
pub(super) async fn answered(
    service: u64,
    request: JobRequest,
    (pay, args): (&PayArgs, &AnswerArgs),
    (settings, output): (&Settings, &Output),
) -> Result<CallBody, Failure> {
    let answers = settings.answers().await?;
    let submitted = submitted((service, request), pay, (answers.account(), output)).await?;
    awaited(&answers, &submitted, args).await
}

/// The job, paid for and in a block.
pub(super) async fn submitted(
    (service, request): (u64, JobRequest),
    pay: &PayArgs,
    (account, output): (&Account, &Output),
) -> Result<SubmittedJob, Failure> {
    let submitted = if pay.quote {
        quotes::submit_cheapest(service, request, pay.max_price.as_deref(), (account, output)).await?
    } else {
        output.progress(&format!("submitting {} to service {service}", request.job.name()));
        account.submit_job(service, request).await?
    };
    output.progress(&format!("call {} is in block {}, waiting for its operator", submitted.key, submitted.block));
    Ok(submitted)
}

/// Its proven answer.
pub(super) async fn awaited(
    answers: &Answers,
    submitted: &SubmittedJob,
    args: &AnswerArgs,
) -> Result<CallBody, Failure> {
    let within = Duration::from_secs(args.within);
    let body = match submitted.request.job {
        Job::Exec | Job::SshProvision | Job::SshRevoke => answers.wait_for(submitted, within).await?,
        _ => answers.wait_until_settled(submitted, within).await?,
    };
    save(args.save.as_deref(), &body)?;
    Ok(body)
}

/// Prints the response of a done job; an answer of another outcome is this run's failure.
pub(super) fn finish<T>(body: &CallBody, output: &Output, text: impl FnOnce(T) -> String) -> Result<ExitCode, Failure>
where
    T: alloy::sol_types::SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
{
    let answer = answer_of(body)?;
    if let Some(failure) = Failure::of_answer(answer) {
        return Err(failure);
    }
    output.result(&text(decoded(answer)?), body)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what the command wrote and ends as it did. A command that its limit struck has written something too.
fn finish_exec(body: &CallBody, output: &Output) -> Result<ExitCode, Failure> {
    let answer = answer_of(body)?;
    let failure = Failure::of_answer(answer);
    if answer.failure.is_some_and(|code| !code.keeps_response()) {
        return Err(failure.unwrap_or_else(unreadable));
    }
    let response: ExecResponse = decoded(answer)?;
    if output.is_json() {
        output.result("", body)?;
    } else {
        output.streams(&response.stdout, &response.stderr)?;
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::from(u8::try_from(response.exit_code).unwrap_or(u8::MAX))),
    }
}

pub(super) fn decoded<T>(answer: &AnswerBody) -> Result<T, Failure>
where
    T: alloy::sol_types::SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
{
    abi::decode(&answer.response).map_err(|_| unreadable())
}

pub(super) fn unreadable() -> Failure {
    Failure::local("the response cannot be read".into())
}

pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| Failure::usage(format!("cannot read text from {}: {error}", path.display())))?;
    Ok(text)
}
