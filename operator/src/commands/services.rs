//! Commands on services: which to take part in, and how to leave one.

use alloy::primitives::Address;
use sandbox_process::source::Source;
use sandbox_sdk::calls;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IExits::IExitsInstance;
use serde::Serialize;
use serde_json::json;

use super::chain::Hands;
use super::state::State;
use super::{CommandError, Output};
use crate::chain::approvals::{OpenRequest, open_request, payment, requests as requested};
use crate::chain::policy::Facts;
use crate::config::Config;
use crate::limits::{LOG_RANGE_BLOCKS_MAX, REQUEST_AGE_BLOCKS_MAX};

/// A request as it is listed.
#[derive(Debug, Serialize)]
struct RequestLine {
    request: u64,
    requester: Address,
    ttl_seconds: u64,
    /// Why the policy would reject it; nothing where it would approve.
    objection: Option<String>,
}

/// Lists the requests that wait, each with what the policy says.
pub(super) async fn requests(source: &impl Source, output: &Output) -> Result<(), CommandError> {
    let config = Config::read(source)?;
    let hands = Hands::new(source).await?;
    let state = State::of(source).await?.node_state().await?;
    let payment = payment(&hands.chain, &config.offer).await?;
    let mut lines = Vec::new();
    for OpenRequest { id, requester, ttl_s } in open_requests(&hands).await? {
        let room = (config.offer.capacity.sandboxes as usize).saturating_sub(state.sandboxes);
        let facts = Facts { requester, ttl_s, payment, room, draining: state.draining };
        let objection = config.policy.objection(&facts).map(|objection| objection.to_string());
        lines.push(RequestLine { request: id, requester, ttl_seconds: ttl_s, objection });
    }
    output.list(&lines, "no service request waits for this operator", |line| {
        let verdict = line.objection.as_deref().unwrap_or("the policy would approve it");
        format!("request {} by {} for {} s: {verdict}", line.request, line.requester, line.ttl_seconds)
    })
}

async fn open_requests(hands: &Hands) -> Result<Vec<OpenRequest>, CommandError> {
    let head = hands.chain.head().await?;
    let mut from = head.saturating_sub(REQUEST_AGE_BLOCKS_MAX);
    let mut open = Vec::new();
    while from <= head {
        let to = head.min(from + LOG_RANGE_BLOCKS_MAX - 1);
        for id in requested(&hands.chain, from, to).await.map_err(ReadError::node("eth_getLogs"))? {
            open.extend(open_request(&hands.chain, hands.me, id).await?);
        }
        from = to + 1;
    }
    Ok(open)
}

/// Approves a request.
pub(super) async fn approve(source: &impl Source, request: u64, output: &Output) -> Result<(), CommandError> {
    let hands = Hands::new(source).await?;
    let approval = calls::approve_service(hands.chain.deployment(), request);
    hands.send_and_say(approval, &format!("approved service request {request}"), output).await
}

/// Rejects a request.
pub(super) async fn reject(source: &impl Source, request: u64, output: &Output) -> Result<(), CommandError> {
    let hands = Hands::new(source).await?;
    let rejection = calls::reject_service(hands.chain.deployment(), request);
    hands.send_and_say(rejection, &format!("rejected service request {request}"), output).await
}

/// Takes the next of the core's steps out of a service, and says what comes then.
pub(super) async fn leave(source: &impl Source, service: u64, output: &Output) -> Result<(), CommandError> {
    let hands = Hands::new(source).await?;
    let serves = hands.chain.core().isServiceOperator(service, hands.me).call().await;
    if !serves.map_err(ReadError::on("isServiceOperator"))? {
        return Err(CommandError::NotServed(service));
    }
    let deployment = hands.chain.deployment();
    let scheduled = exit_of(&hands, service).await?;
    let now = hands.chain.time().await?;
    match scheduled {
        Some(due) if due <= now => {
            let exit = calls::execute_exit(deployment, service);
            hands.send_and_say(exit, &format!("left service {service}; its sandboxes here end"), output).await
        }
        Some(due) => say_scheduled(service, due, now, None, output),
        None => {
            let mined = hands.send(calls::schedule_exit(deployment, service)).await?;
            let due = exit_of(&hands, service).await?.unwrap_or(now);
            say_scheduled(service, due, now, Some(mined.transaction), output)
        }
    }
}

/// When the scheduled exit is due, in seconds since 1970; `None` where there is none.
async fn exit_of(hands: &Hands, service: u64) -> Result<Option<u64>, CommandError> {
    let core = IExitsInstance::new(hands.chain.deployment().core, hands.chain.provider());
    let found = core.getExitRequest(service, hands.me).call().await.map_err(ReadError::on("getExitRequest"))?;
    Ok(found.pending.then_some(found.executeAfter))
}

fn say_scheduled(
    service: u64,
    due: u64,
    now: u64,
    transaction: Option<alloy::primitives::B256>,
    output: &Output,
) -> Result<(), CommandError> {
    let left_s = due.saturating_sub(now);
    let (hours, minutes) = (left_s / 3_600, left_s % 3_600 / 60);
    let line = format!(
        "the exit from service {service} is scheduled: serve it until then, and run `operator leave {service}` again in \
         {hours} h {minutes} min"
    );
    let value = json!({ "service": service, "due": due, "seconds_left": left_s, "transaction": transaction });
    output.say(&line, &value)
}
