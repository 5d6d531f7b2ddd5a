//! `call show`, `verify`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sandbox_protocol::CallKey;
use sandbox_protocol::http::{AnswerBody, CallBody};
use sandbox_sdk::verify;
use serde::Serialize;

use crate::args::{VerifyArgs, call_key};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Proven<'a> {
    proven: bool,
    /// Whether the chain was asked.
    on_chain: bool,
    receipt: &'a sandbox_protocol::receipt::SandboxReceipt,
}

pub(crate) async fn show(
    key: CallKey,
    within_s: Option<u64>,
    file: Option<&Path>,
    (settings, output): (&Settings, &Output),
) -> Result<ExitCode, Failure> {
    let answers = settings.answers().await?;
    let body = match within_s {
        Some(seconds) => answers.wait_for_call(key, Duration::from_secs(seconds)).await?,
        None => answers.look(key).await?,
    };
    save(file, &body)?;
    output.result(&text(&body), &body)?;
    Ok(ExitCode::SUCCESS)
}

fn text(body: &CallBody) -> String {
    let status = word(&body.status);
    let mut text = format!("call      {}/{}\njob       {}\nstatus    {status}", body.service, body.call, body.job);
    if let Some(answer) = &body.answer {
        let failure = answer.failure.map(|code| format!(" ({code})")).unwrap_or_default();
        text.push_str(&format!("\noutcome   {}{failure}", word(&answer.outcome)));
        text.push_str(&format!("\noperator  {}", answer.receipt.receipt.operator));
        text.push_str(&format!("\nresponse  {}", answer.response_json));
    }
    text
}

/// The JSON name of a value of an enum.
fn word(value: &impl Serialize) -> String {
    serde_json::json!(value).as_str().unwrap_or_default().to_owned()
}

pub(crate) async fn verify(args: VerifyArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let answer = subject(&args, settings).await?;
    if args.offline {
        verify::offline(&answer)?;
    } else {
        verify::on_chain(&settings.chain().await?, &answer).await?;
    }
    let receipt = &answer.receipt.receipt;
    let extent = if args.offline { "signed by the operator it names" } else { "signed, and recorded on chain" };
    let (key, operator, outcome) = (receipt.key(), receipt.operator, word(&answer.outcome));
    let text = format!("proven: call {key}, outcome {outcome}, operator {operator}; {extent}");
    output.result(&text, &Proven { proven: true, on_chain: !args.offline, receipt })?;
    Ok(ExitCode::SUCCESS)
}

/// The answer in a file, or else that of a call.
async fn subject(args: &VerifyArgs, settings: &Settings) -> Result<AnswerBody, Failure> {
    let path = Path::new(&args.subject);
    let Ok(key) = call_key(&args.subject) else { return load(path) };
    if path.exists() {
        return load(path);
    }
    if args.offline {
        return Err(Failure::usage("--offline takes a saved file, not a call".into()));
    }
    let body = settings.answers().await?.look(key).await?;
    answer_of(&body).cloned()
}

fn load(path: &Path) -> Result<AnswerBody, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{} holds no answer: {error}", path.display()));
    let text = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}

/// Writes the answer, if there is one and a file was named.
pub(super) fn save(file: Option<&Path>, body: &CallBody) -> Result<(), Failure> {
    let (Some(path), Some(answer)) = (file, &body.answer) else { return Ok(()) };
    let text = format!("{:#}\n", serde_json::json!(answer));
    std::fs::write(path, text).map_err(|error| Failure::local(format!("cannot write {}: {error}", path.display())))
}

pub(super) fn answer_of(body: &CallBody) -> Result<&AnswerBody, Failure> {
    let pending = || Failure {
        exit: crate::failure::Exit::Unavailable,
        code: "pending".into(),
        message: format!("call {}/{} has no answer yet", body.service, body.call),
        retryable: true,
    };
    body.answer.as_ref().ok_or_else(pending)
}
