//! `service request`, `service show`.

use std::process::ExitCode;
use std::time::Duration;

use alloy::primitives::{Address, B256};
use sandbox_sdk::Chain;
use sandbox_sdk::calls::ServiceTerms;
use sandbox_sdk::chain::is_active;
use sandbox_sdk::deploy::Asset;
use serde::Serialize;

use crate::args::RequestArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Requested {
    request: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<u64>,
    operators: Vec<Address>,
    /// What they were drawn by; absent where they were named.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<B256>,
    transaction: B256,
}

#[derive(Serialize)]
struct Shown {
    service: u64,
    blueprint: u64,
    owner: Address,
    active: bool,
    operators: Vec<Address>,
    created_at: u64,
    /// Null: without end.
    ends_at: Option<u64>,
}

pub(crate) async fn request(args: RequestArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let terms = terms(&args, account.chain()).await?;
    output.progress(&format!("requesting a service of {} operators", terms.operators.len()));
    if !terms.payment.amount.is_zero() {
        let asset = Asset::at(account.chain().provider(), terms.payment.asset).await?;
        output.notice(&format!("{} for the service", asset.amount(terms.payment.amount)));
    }
    let requested = account.request_service(&terms).await?;
    let service = if args.no_wait {
        None
    } else {
        output.progress(&format!("request {} waits for its operators", requested.request));
        Some(account.chain().wait_for_service(&requested, Duration::from_secs(args.within)).await?)
    };
    let mut text = format!("request {}", requested.request);
    if let Some(service) = service {
        text.push_str(&format!("\nservice {service}"));
    }
    let (request, transaction) = (requested.request, requested.transaction);
    let seed = terms.selection.enforceDeterministic.then_some(terms.selection.seed);
    if let Some(seed) = seed {
        text.push_str(&format!("\nseed    {seed}"));
    }
    output.result(&text, &Requested { request, service, operators: requested.operators, seed, transaction })?;
    Ok(ExitCode::SUCCESS)
}

async fn terms(args: &RequestArgs, chain: &Chain) -> Result<ServiceTerms, Failure> {
    let drawn = match args.count {
        Some(count) => chain.drawn_terms(count, args.seed.unwrap_or_else(B256::random)).await?,
        None => ServiceTerms::named(args.operators.clone()),
    };
    let terms = ServiceTerms { callers: args.callers.clone(), ttl_s: args.ttl, ..drawn };
    Ok(chain.at_floor(terms).await?)
}

pub(crate) async fn show(id: u64, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let chain = settings.chain().await?;
    let service = chain.own_service(id).await?;
    let shown = Shown {
        service: id,
        blueprint: service.blueprintId,
        owner: service.owner,
        active: is_active(&service),
        operators: chain.operators(id).await?,
        created_at: service.createdAt,
        ends_at: (service.ttl != 0).then(|| service.createdAt.saturating_add(service.ttl)),
    };
    output.result(&text(&shown), &shown)?;
    Ok(ExitCode::SUCCESS)
}

fn text(shown: &Shown) -> String {
    let state = if shown.active { "active" } else { "ended" };
    let ends = shown.ends_at.map_or_else(|| "without end".into(), |at| format!("unix time {at}"));
    let operators: Vec<_> = shown.operators.iter().map(Address::to_string).collect();
    format!(
        "service    {}\nstate      {state}\nowner      {}\noperators  {}\ncreated    unix time {}\nends       {ends}",
        shown.service,
        shown.owner,
        operators.join("\n           "),
        shown.created_at
    )
}
