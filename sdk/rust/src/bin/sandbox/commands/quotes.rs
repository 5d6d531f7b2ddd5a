//! `price`, `quote`, and what `--quote` does: ask, show, take the cheapest.

use std::process::ExitCode;

use alloy::primitives::{Address, Bytes, U256};
use sandbox_protocol::Job;
use sandbox_protocol::http::QuoteBody;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::deploy::Asset;
use sandbox_sdk::quotes::{self, AskError, Asked, Offer, Quotes, cheapest};
use sandbox_sdk::requests::{self, JobRequest};
use sandbox_sdk::{Account, Chain};
use serde::Serialize;

use super::sandboxes::{command_of, sandbox_of};
use crate::args::{PriceArgs, QuoteArgs};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Price {
    service: u64,
    job: Job,
    /// Zero: the chain's coin.
    asset: Address,
    /// In the asset's smallest unit, as decimal digits.
    amount: String,
}

#[derive(Serialize)]
struct Quoted {
    service: u64,
    job: Job,
    /// What the quotes are for: sealed, they are never the same twice.
    inputs: Bytes,
    /// Cheapest first; each can be redeemed by the account that asked.
    offers: Vec<QuoteBody>,
    refusals: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    operator: Address,
    message: String,
    retryable: bool,
}

pub(crate) async fn price(args: &PriceArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let service = settings.service(args.service)?;
    let chain = settings.chain().await?;
    chain.own_service(service).await?;
    let cost = chain.call_cost(service, args.job.id()).await?;
    let text = asset(&chain, cost.asset).await?.amount(cost.amount);
    let price = Price { service, job: args.job, asset: cost.asset, amount: cost.amount.to_string() };
    output.result(&text, &price)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn quote(args: QuoteArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let of_sandbox = args.sandbox.map(|sandbox| sandbox.origin.service);
    let service = settings.service(args.service.or(of_sandbox))?;
    let request = request(args)?;
    let account = settings.account().await?;
    let request = account.sealed(service, request).await?;
    let mut asked = Quotes::new(account.clone())?.of_service(service, &request).await?;
    asked.sort_by_key(|asked| asked.offer.as_ref().map_or(U256::MAX, Offer::price));
    if cheapest(&asked).is_none() {
        return Err(nobody(&asked));
    }
    let text = table(&asked, account.chain()).await?;
    output.result(&text, &listed(service, request, &asked, &account))?;
    Ok(ExitCode::SUCCESS)
}

/// The job that would be sent.
fn request(args: QuoteArgs) -> Result<JobRequest, Failure> {
    let needed = |what: &str| Failure::usage(format!("a quote of job {} needs {what}", args.job.name()));
    if let Some(inputs) = args.inputs {
        return Ok(JobRequest { job: args.job, inputs });
    }
    match args.job {
        Job::SandboxCreate => Ok(sandbox_of(args.spec)?.build()?),
        Job::SandboxDelete => Ok(requests::delete(args.sandbox.ok_or_else(|| needed("--sandbox"))?)),
        Job::Exec => {
            let sandbox = args.sandbox.ok_or_else(|| needed("--sandbox"))?;
            let mut command = command_of(sandbox, &args.command);
            for (name, value) in args.spec.env {
                command = command.env(name, value);
            }
            Ok(command.build()?)
        }
        _ => Err(needed("--inputs")),
    }
}

/// Has the operator that asks least do the job, unless even that is more than `max_price`.
pub(super) async fn submit_cheapest(
    service: u64,
    request: JobRequest,
    max_price: Option<&str>,
    (account, output): (&Account, &Output),
) -> Result<SubmittedJob, Failure> {
    output.progress(&format!("asking the operators of service {service} for quotes"));
    let request = account.sealed(service, request).await?;
    let asked = Quotes::new(account.clone())?.of_service(service, &request).await?;
    let Some(offer) = cheapest(&asked) else { return Err(nobody(&asked)) };
    let asset = asset(account.chain(), offer.asset).await?;
    let price = asset.amount(offer.price());
    let dearest = max_price.map(|text| asset.units(text)).transpose()?;
    if dearest.is_some_and(|most| offer.price() > most) {
        return Err(Failure::too_dear(format!("the cheapest quote is {price}, by operator {}", offer.quote.operator)));
    }
    output.notice(&format!("{price} to operator {}", offer.quote.operator));
    Ok(account.submit_quoted(service, request, vec![offer.quote.clone()]).await?)
}

async fn asset(chain: &Chain, address: Address) -> Result<Asset, Failure> {
    Ok(Asset::at(chain.provider(), address).await?)
}

/// One line an operator: what it asks, or why it asks nothing.
async fn table(asked: &[Asked], chain: &Chain) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for Asked { operator, offer } in asked {
        let said = match offer {
            Ok(offer) => asset(chain, offer.asset).await?.amount(offer.price()),
            Err(error) => format!("none: {error}"),
        };
        lines.push(format!("{operator}  {said}"));
    }
    Ok(lines.join("\n"))
}

fn listed(service: u64, request: JobRequest, asked: &[Asked], account: &Account) -> Quoted {
    let place = (account.deployment().chain_id, account.deployment().core);
    let offers = asked.iter().filter_map(|asked| asked.offer.as_ref().ok());
    let refusals = asked.iter().filter_map(|asked| Some((asked.operator, asked.offer.as_ref().err()?)));
    let refused = |(operator, error): (_, &AskError)| Refused {
        operator,
        message: error.to_string(),
        retryable: error.retryable(),
    };
    Quoted {
        service,
        job: request.job,
        inputs: request.inputs,
        offers: offers.map(|offer| quotes::body(&offer.quote, place, offer.asset)).collect(),
        refusals: refusals.map(refused).collect(),
    }
}

/// Nobody quotes: why, by operator.
fn nobody(asked: &[Asked]) -> Failure {
    let refusals: Vec<_> =
        asked.iter().filter_map(|asked| Some((asked.operator, asked.offer.as_ref().err()?))).collect();
    let retryable = refusals.iter().any(|(_, error)| error.retryable());
    let reasons: Vec<_> = refusals.iter().map(|(operator, error)| format!("{operator}: {error}")).collect();
    let reasons = if reasons.is_empty() { "the service has no operators".into() } else { reasons.join("; ") };
    let exit = if retryable { Exit::Unavailable } else { Exit::Refused };
    Failure { exit, code: "no_quote".into(), message: format!("no operator quotes: {reasons}"), retryable }
}
