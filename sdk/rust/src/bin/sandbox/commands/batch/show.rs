//! `batch show`, `batch collect`: a batch as its operators tell of it, and as they account for it.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use alloy::primitives::Address;
use sandbox_protocol::batch::{BatchId, BatchStatus};
use sandbox_protocol::session::Scope;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::api::Session;
use sandbox_sdk::batches::{Batch, BatchError, Found, LiveBatch, NotTold};
use sandbox_sdk::limits::BATCH_WATCH_PAUSE;
use sandbox_sdk::requests::batch_collect;

use super::finish::finish;
use super::table;
use crate::args::{BatchCollectArgs, BatchShowArgs, WhereArgs};
use crate::commands::sessions::{operators, session};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

/// An operator with a session there, or why there is none.
type Door = (Address, Result<Session, Failure>);

pub(super) async fn show(args: BatchShowArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let service = settings.service(args.service)?;
    let account = settings.account().await?;
    let doors = doors(service, &account, settings).await?;
    let mut drawn = String::new();
    loop {
        let live = told((service, &args.id), &doors).await;
        if live.status == BatchStatus::Unknown {
            return Err(unknown(&live));
        }
        let text = table::of_live(&live);
        if !args.watch || live.status == BatchStatus::Done {
            output.result(&text, &live)?;
            return Ok(ExitCode::SUCCESS);
        }
        if text != drawn {
            output.notice(&text);
            drawn = text;
        }
        tokio::time::sleep(BATCH_WATCH_PAUSE).await;
    }
}

/// Nobody knows it; where nobody could be heard, that is why.
fn unknown(live: &LiveBatch) -> Failure {
    let failure: Failure = BatchError::Unknown { service: live.service, id: live.batch_id.clone() }.into();
    let reasons: Vec<_> =
        live.unheard.iter().map(|one| format!("{}: {}", one.operator, table::one_line(&one.why))).collect();
    if reasons.is_empty() {
        return failure;
    }
    Failure { message: format!("{failure}: {}", reasons.join("; ")), ..failure }
}

pub(super) async fn collect(args: BatchCollectArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let service = settings.service(args.service)?;
    let answers = settings.answers().await?;
    let account = answers.account();
    output.progress(&format!("submitting batch_collect to service {service}"));
    let asking = account.submit_batch(service, batch_collect(&args.id)?, Some(args.id.clone())).await?;
    let accounts = asking.batch.wait(&answers, Duration::from_secs(args.answer.within)).await?;
    let live = LiveBatch::of_answers(service, args.id.clone(), &accounts.answers);
    for part in accounts.parts.iter().filter(|part| part.standing != "proven") {
        output.notice(&format!("operator {} does not account for the batch: it is {}", part.operator, part.standing));
    }
    let batch = proven(Batch::find(&answers, (service, &args.id), live.calls()).await?, output);
    let mut merged = batch.look(&answers).await?;
    merged.explain(&live);
    finish(&merged, 0, args.answer.save.as_deref(), output)
}

/// The calls of a batch: by its own name, or as operators tell who know it.
pub(super) async fn find(
    (service, id): (u64, &BatchId),
    answers: &Answers,
    (settings, output): (&Settings, &Output),
) -> Result<Batch, Failure> {
    match Batch::find(answers, (service, id), BTreeSet::new()).await {
        Err(BatchError::Unknown { .. } | BatchError::Unattested { .. }) => {}
        found => return Ok(proven(found?, output)),
    }
    output.progress(&format!("asking the operators of service {service} for batch {id}"));
    let live = told((service, id), &doors(service, answers.account(), settings).await?).await;
    match Batch::find(answers, (service, id), live.calls()).await {
        Err(BatchError::Unknown { .. }) => Err(unknown(&live)),
        found => Ok(proven(found?, output)),
    }
}

/// What is proven to be of a batch; what is not is named.
fn proven(found: Found, output: &Output) -> Batch {
    let id = &found.batch.id;
    for call in &found.unattested {
        output.notice(&format!("call {call} is left out: it is said to be of batch {id}, and not proven to be"));
    }
    found.batch
}

/// A session with each operator of the service.
async fn doors(service: u64, account: &Account, settings: &Settings) -> Result<Vec<Door>, Failure> {
    let place = WhereArgs { service: Some(service), operator: None };
    let mut doors = Vec::new();
    for operator in operators(&place, settings, account).await? {
        doors.push((operator.0, session(&operator, Scope::CallsRead, (settings, account)).await));
    }
    Ok(doors)
}

/// What they all tell now.
async fn told((service, id): (u64, &BatchId), doors: &[Door]) -> LiveBatch {
    let asked = doors.iter().map(|(operator, door)| async move {
        let report = match door {
            Ok(session) => session.batch(service, id).await.map_err(NotTold::from),
            Err(failure) => Err(NotTold::NoSession(failure.to_string())),
        };
        (*operator, report)
    });
    LiveBatch::of(service, id.clone(), futures::future::join_all(asked).await)
}
