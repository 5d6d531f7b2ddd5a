//! `batch`: many sandboxes at once, over all operators of a service, each of which is believed about its own part alone.

mod finish;
mod show;
mod table;
mod wait;

use std::path::Path;
use std::process::ExitCode;

use alloy::primitives::B256;
use sandbox_fleet::batch_plan::Distribution;
use sandbox_protocol::SandboxId;
use sandbox_protocol::batch::BatchId;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::batches::{self, Batch, Offer, Quoted, Sent, Share};
use sandbox_sdk::deploy::Asset;
use sandbox_sdk::quotes::Quotes;
use sandbox_sdk::requests::{BatchBuilder, BatchCreateBuilder};

use self::finish::finish;
use self::wait::watched;
use super::sandboxes::{read_text, sandbox_of};
use crate::args::{BatchCommand, BatchCreateArgs, BatchExecArgs, BatchTaskArgs, BatchWorkArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

pub(crate) async fn run(command: BatchCommand, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    match command {
        BatchCommand::Create(args) => create(*args, settings, output).await,
        BatchCommand::Exec(args) => exec(args, settings, output).await,
        BatchCommand::Task(args) => task(args, settings, output).await,
        BatchCommand::Show(args) => show::show(args, settings, output).await,
        BatchCommand::Collect(args) => show::collect(args, settings, output).await,
    }
}

async fn create(args: BatchCreateArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let service = settings.service(args.service)?;
    let mut builder = BatchCreateBuilder::new(args.count, sandbox_of(args.spec)?).distribution(args.distribution);
    if let Some(id) = &args.id {
        builder = builder.batch(id);
    }
    builder.clone().build()?;
    let answers = settings.answers().await?;
    let account = answers.account();
    let mut pool = account.chain().pool(service, &args.operators).await?;
    let offers = account.chain().offers(&pool).await?;
    // Too little room is told before anything is sent; a draw without its seed is one of as many.
    let shares = batches::plan(&offers, args.count, (args.distribution, B256::ZERO))?;
    // Who is named is fixed; without names the contract takes whoever serves then.
    pool.retain(|operator| args.operators.contains(operator));
    let builder = builder.operators(pool);
    let sent = if args.pay.quote {
        let id = named(args.id)?;
        output.progress(&format!("asking the operators of service {service} for quotes"));
        let quoted = Quotes::new(account.clone())?.of_batch_create(service, &builder, &id).await?;
        redeem(quoted, args.pay.max_price.as_deref(), (account, output)).await?
    } else {
        if args.distribution != Distribution::Random {
            output.progress(&plan_text("to be made", &shares));
        }
        let sent = account.submit_batch(service, builder.build()?, args.id).await?;
        tell_plan(&sent.batch, (&offers, (args.count, args.distribution)), (account, output)).await?;
        sent
    };
    answered(sent, (args.answer.within, args.answer.save.as_deref()), (&answers, output)).await
}

/// Who makes how many by the chain, and whether that is what was to be expected. What is drawn depends on the call's number.
async fn tell_plan(
    batch: &Batch,
    (offers, args): (&[Offer], (u32, Distribution)),
    (account, output): (&Account, &Output),
) -> Result<(), Failure> {
    for call in &batch.calls {
        let shares = account.chain().shares(call.key).await?;
        let service_seed = account.chain().service_view(call.key.service).await?.map_or(B256::ZERO, |view| view.seed);
        let (count, distribution) = args;
        let expected = batches::plan(offers, count, (distribution, batches::seed(service_seed, call.key)));
        if expected.is_ok_and(|expected| expected == shares) {
            output.progress(&plan_text("planned", &shares));
        } else {
            output.notice(&plan_text("the operators' room has changed meanwhile; the chain planned", &shares));
        }
    }
    Ok(())
}

fn plan_text(title: &str, shares: &[Share]) -> String {
    let share = |share: &Share| format!("\n  {}  {} from slot {}", share.operator, share.slots, share.first_slot);
    title.to_owned() + ":" + &shares.iter().map(share).collect::<String>()
}

async fn exec(args: BatchExecArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let BatchExecArgs { work, timeout, cwd, env, answer, command } = args;
    let build = |sandboxes| {
        let builder = match command.as_slice() {
            [script] => BatchBuilder::exec(sandboxes, script),
            words => BatchBuilder::exec_words(sandboxes, words),
        };
        let builder = builder.cwd(cwd).timeout_ms(timeout);
        env.into_iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    };
    worked((work, build), (answer.within, answer.save.as_deref()), (settings, output)).await
}

async fn task(args: BatchTaskArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let BatchTaskArgs { work, answer, text } = args;
    let text = if text == "-" { read_text(Path::new("-"))? } else { text };
    let build = |sandboxes| BatchBuilder::task(sandboxes, text);
    worked((work, build), (answer.within, answer.save.as_deref()), (settings, output)).await
}

/// Has it done in the sandboxes that are meant.
async fn worked(
    (work, build): (BatchWorkArgs, impl FnOnce(Vec<SandboxId>) -> BatchBuilder),
    waits: (u64, Option<&Path>),
    (settings, output): (&Settings, &Output),
) -> Result<ExitCode, Failure> {
    let answers = settings.answers().await?;
    let account = answers.account();
    let (service, sandboxes) = sandboxes(&work, &answers, (settings, output)).await?;
    let mut builder = build(sandboxes).aggregation(work.aggregation);
    if work.sequential {
        builder = builder.sequential();
    }
    if let Some(id) = &work.id {
        builder = builder.batch(id);
    }
    let request = builder.clone().build()?;
    let sent = if work.pay.quote {
        let id = named(work.id)?;
        output.progress(&format!("asking the operators of {} sandboxes for quotes", builder.sandboxes().len()));
        let quoted = Quotes::new(account.clone())?.of_batch(service, &builder, &id).await?;
        redeem(quoted, work.pay.max_price.as_deref(), (account, output)).await?
    } else {
        output.progress(&format!("submitting {} to service {service}", request.job.name()));
        account.submit_batch(service, request, work.id).await?
    };
    answered(sent, waits, (&answers, output)).await
}

/// The sandboxes that are named, or all that a batch has made; and their service.
async fn sandboxes(
    work: &BatchWorkArgs,
    answers: &Answers,
    (settings, output): (&Settings, &Output),
) -> Result<(u64, Vec<SandboxId>), Failure> {
    if let Some(id) = &work.batch {
        let service = settings.service(work.service)?;
        let batch = show::find((service, id), answers, (settings, output)).await?;
        let living = batch.sandboxes(answers.account().chain()).await?;
        if living.is_empty() {
            return Err(Failure::usage(format!("no sandbox of batch {id} lives")));
        }
        return Ok((service, living));
    }
    let services: Vec<_> = work.sandboxes.iter().map(|id| id.origin.service).collect();
    match services.as_slice() {
        [first, rest @ ..] if rest.iter().all(|one| one == first) => Ok((*first, work.sandboxes.clone())),
        _ => Err(Failure::usage("the sandboxes of a batch are of one service".into())),
    }
}

fn named(id: Option<BatchId>) -> Result<BatchId, Failure> {
    match id {
        Some(id) => Ok(id),
        None => batches::fresh_id().map_err(|error| Failure::local(error.to_string())),
    }
}

/// Has it done for these prices, unless all together are more than `max_price`.
async fn redeem(
    quoted: Quoted,
    max_price: Option<&str>,
    (account, output): (&Account, &Output),
) -> Result<Sent, Failure> {
    let cost = quoted.cost()?;
    let asset = Asset::at(account.chain().provider(), cost.asset).await?;
    let dearest = max_price.map(|text| asset.units(text)).transpose()?;
    let price = asset.amount(cost.amount);
    if dearest.is_some_and(|most| cost.amount > most) {
        let message = format!("the quotes of {} operators are {price} together", quoted.calls.len());
        return Err(Failure::too_dear(message));
    }
    for call in &quoted.calls {
        output.notice(&format!("{} to operator {}", asset.amount(call.offer.price()), call.offer.quote.operator));
    }
    Ok(account.submit_quoted_batch(quoted).await?)
}

/// What came of it.
async fn answered(
    sent: Sent,
    (within_s, save): (u64, Option<&Path>),
    (answers, output): (&Answers, &Output),
) -> Result<ExitCode, Failure> {
    let Sent { batch, jobs, unsent } = sent;
    output.notice(&format!("batch {}", batch.id));
    for job in &jobs {
        output.progress(&format!("call {} is in block {}, waiting for its operators", job.key, job.block));
    }
    for (operator, error) in &unsent {
        output.notice(&format!("operator {operator} has not been given its part: {error}"));
    }
    let merged = watched((answers, &batch), within_s, output).await?;
    finish(&merged, unsent.len(), save, output)
}
