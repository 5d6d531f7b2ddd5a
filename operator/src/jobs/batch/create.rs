//! Job 20: this operator's slots of a batch create.

use alloy::primitives::U256;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use sandbox_fleet::request::batch_template;
use sandbox_fleet::sandbox::{EndReason, Instance};
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::abi::{BatchCreateRequest, BatchCreateResponse};
use sandbox_protocol::batch::{BatchId, ItemReport, ItemState};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, SandboxId};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Ledger, bad, bare, failed};
use crate::chain::until_answered;
use crate::jobs::provision::Order;
use crate::jobs::{JobCall, Work, terms};
use crate::limits::{BATCH_SLOT_PAUSE, BATCH_SLOT_TRIES_MAX, BATCH_SLOTS_AT_ONCE_MAX, BATCH_WIND_UP};
use crate::records::{PartItem, PartRecord, now_ms};

/// What makes the slots.
pub(super) struct Maker {
    pub(super) fleet: Fleet,
    pub(super) order: Order,
    pub(super) ledger: Ledger,
    pub(super) until: Instant,
}

/// A slot at its end, with the container where it was made now.
type Made = (ItemReport, Option<Instance>);

/// Makes this operator's slots and answers with those that it made.
pub(in crate::jobs) async fn create(call: JobCall) -> Result<Work, Unfinished> {
    let until = Instant::now() + terms::work_within(Job::BatchCreate).saturating_sub(BATCH_WIND_UP);
    let request: BatchCreateRequest = call.request()?;
    let (spec, name) = batch_template(&request.template, &call.parts().menu)?;
    let batch = BatchId::asked(&name, call.key).map_err(|error| bad(format!("env_json: SANDBOX_BATCH_ID: {error}")))?;
    let items = share(&call).await?;
    let first = items.first().and_then(|item| item.sandbox).ok_or_else(|| bad("no slot is this operator's"))?;
    let order = Order::new(&call, (&request.template, spec), first).await?;
    let part = PartRecord {
        call: call.key,
        job: call.job,
        owner: call.caller,
        inputs_hash: call.inputs_hash,
        batch: batch.clone(),
        aggregation: None,
        begun_ms: now_ms(),
        items,
        end: None,
    };
    let (ledger, known) = Ledger::begin(&call, part).await?;
    let maker = Maker { fleet: call.parts().fleet.clone(), order, ledger, until };
    let made = maker.make_all(&known).await?;
    maker.ledger.end(None).await?;
    let made = Tally::of(made)?;
    let response = BatchCreateResponse {
        batch_id: batch.to_string(),
        sandbox_ids: made.ids.iter().map(ToString::to_string).collect(),
        endpoints: made.ids.iter().map(|id| call.parts().endpoint(*id)).collect(),
    };
    Ok(Work { detail: made.slots, ..Work::done(&response, made.instance) })
}

/// The slots that the contract gave to this operator.
async fn share(call: &JobCall) -> Result<Vec<PartItem>, Failure> {
    let me = call.parts().key.address();
    let parts = until_answered("parts of a batch", || call.parts().chain.parts(call.key)).await;
    let part = parts.iter().find(|part| part.operator == me);
    let part = part.ok_or_else(|| Failure::new(FailureCode::Internal, "the batch has no part for this operator"))?;
    Ok(slots(call.key, part.firstSlot, part.slots))
}

/// So many slots of a call.
pub(super) fn slots(call: CallKey, first: u8, count: u8) -> Vec<PartItem> {
    let slots = (first..=u8::MAX).take(usize::from(count));
    let item =
        |slot| PartItem { index: u32::from(slot), sandbox: Some(SandboxId { origin: call, slot }), refused: None };
    slots.map(item).collect()
}

impl Maker {
    /// Makes every slot that is not at its end, side by side.
    pub(super) async fn make_all(&self, known: &[ItemReport]) -> Result<Vec<Made>, Unfinished> {
        let making: Vec<BoxFuture<'_, _>> = (self.ledger.part.items.iter())
            .map(|item| {
                let known = known.iter().find(|known| known.index == item.index && known.state.is_final());
                self.make(item, known).boxed()
            })
            .collect();
        // One that cannot go on in this life leaves the others to theirs.
        let made: Vec<_> = stream::iter(making).buffer_unordered(BATCH_SLOTS_AT_ONCE_MAX).collect().await;
        let mut made = made.into_iter().collect::<Result<Vec<_>, _>>()?;
        made.sort_by_key(|(item, _)| item.index);
        Ok(made)
    }

    async fn make(&self, item: &PartItem, known: Option<&ItemReport>) -> Result<Made, Unfinished> {
        let Some(id) = item.sandbox else { return Ok((failed(item, bad("no slot")), None)) };
        if let Some(known) = known {
            self.ledger.tell(known);
            return Ok((known.clone(), None));
        }
        self.ledger.tell(&bare(item.index, item.sandbox, ItemState::Running));
        let (ended, instance) = match self.made(id).await {
            Ok(instance) => (bare(item.index, item.sandbox, ItemState::Succeeded), instance),
            Err(Unfinished::Failed(failure)) => (failed(item, failure), None),
            Err(Unfinished::Stopping) => return Err(Unfinished::Stopping),
        };
        self.ledger.note(std::slice::from_ref(&ended)).await?;
        Ok((ended, instance))
    }

    /// A sandbox that runs; one that fails for a reason that may pass is begun again under its id, a few times.
    async fn made(&self, id: SandboxId) -> Result<Option<Instance>, Unfinished> {
        let (mut tries, mut pause) = (1, BATCH_SLOT_PAUSE);
        loop {
            let Ok(made) = timeout_at(self.until, self.order.make(&self.fleet, id)).await else {
                self.fleet.end(id, EndReason::Abandoned).await;
                return Err(late().into());
            };
            let failure = match made {
                Ok(sandbox) => return Ok(sandbox.phase.instance().cloned()),
                Err(Unfinished::Failed(failure)) => failure,
                Err(Unfinished::Stopping) => return Err(Unfinished::Stopping),
            };
            let may_pass = failure.code.retryable() && tries < BATCH_SLOT_TRIES_MAX;
            if !may_pass || Instant::now() + pause >= self.until {
                return Err(failure.into());
            }
            tracing::info!(sandbox = %id, %failure, tries, "a sandbox of a batch is begun again");
            sleep(pause).await;
            let Ok(forgotten) = timeout_at(self.until, self.fleet.forget(id)).await else {
                return Err(failure.into());
            };
            forgotten?;
            (tries, pause) = (tries + 1, pause * 2);
        }
    }
}

fn late() -> Failure {
    Failure::new(FailureCode::Engine, "the sandbox did not start in time")
}

/// What was made, in the order of the slots.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) ids: Vec<SandboxId>,
    /// A bit for each slot of the call.
    pub(super) slots: U256,
    instance: Option<Instance>,
}

impl Tally {
    /// Counts what was made; where nothing was, the first failure is the batch's.
    pub(super) fn of(made: Vec<Made>) -> Result<Self, Failure> {
        let (mut tally, mut first_failure) = (Self::default(), None);
        for (item, instance) in made {
            match (item.state, item.sandbox) {
                (ItemState::Succeeded, Some(id)) => {
                    tally.slots |= U256::ONE << usize::from(id.slot);
                    tally.ids.push(id);
                    tally.instance = tally.instance.or(instance);
                }
                _ => first_failure = first_failure.or(item.failure),
            }
        }
        if tally.ids.is_empty() { Err(first_failure.unwrap_or_else(late)) } else { Ok(tally) }
    }
}

#[cfg(test)]
mod tests;
