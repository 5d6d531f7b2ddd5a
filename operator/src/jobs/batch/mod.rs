//! Jobs 20 to 23: batches. Each operator does its own part of a call, and tells of all its parts of a batch.
//!
//! | module | what it is |
//! |---|---|
//! | `create` | slots made side by side, those that fail for a passing reason once more |
//! | `cut` | how much is kept of what items wrote |
//! | `divide` | whose the endpoints of a call are |
//! | `round` | tasks and commands, carried out so many at a time, until all have ended or one is enough |
//! | `run` | jobs 21 and 22 around a round: requests in, responses out |
//! | `siblings` | the other calls of a batch that is paid by quotes |
//! | `collect` | what is known of a batch, here and on the chain |
//!
//! What came of an item is on disk before anything depends on it, so another life of the operator's repeats none that has
//! ended, and attaches to those that run.

mod collect;
mod create;
mod cut;
mod divide;
mod round;
mod run;
mod siblings;

use sandbox_fleet::Unfinished;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::batch::{ItemReport, ItemState, Majority};
use sandbox_protocol::{Failure, FailureCode, SandboxId};

use super::JobCall;
use crate::records::{PartItem, PartRecord, Records, RecordsError, now_ms};
use crate::stories::Stories;

pub(super) use collect::collect;
pub(crate) use collect::{CollectError, Collector, Wanted};
pub(super) use create::create;
pub(super) use run::{exec, task};

/// A part under way: where what comes of it is written down and told.
#[derive(Clone)]
struct Ledger {
    records: Records,
    stories: Stories,
    part: PartRecord,
}

impl Ledger {
    /// Begins a call's part, or goes on with it; what is known of its items.
    async fn begin(call: &JobCall, part: PartRecord) -> Result<(Self, Vec<ItemReport>), Unfinished> {
        let (records, stories) = (call.parts().records.clone(), call.parts().conductor.stories.clone());
        let now_ms = now_ms();
        // What a former life told had numbers below.
        stories.begin(call.key, if call.resumed { now_ms } else { 1 }, now_ms);
        let (part, known) = records.begin_part(part).await.map_err(|error| stopping(&error))?;
        Ok((Self { records, stories, part }, known))
    }

    /// Writes down where items are, then tells it.
    async fn note(&self, items: &[ItemReport]) -> Result<(), Unfinished> {
        self.records.put_items(&self.part, items).await.map_err(|error| stopping(&error))?;
        items.iter().for_each(|item| self.tell(item));
        Ok(())
    }

    fn tell(&self, item: &ItemReport) {
        let message = item.failure.as_ref().map(ToString::to_string);
        let told = Told::BatchItem { index: item.index, state: item.state, message };
        self.stories.tell(self.part.call, told, now_ms());
    }

    /// Writes down that nothing of the part is to come.
    async fn end(&self, majority: Option<Majority>) -> Result<(), Unfinished> {
        self.records.end_part(&self.part, majority).await.map_err(|error| stopping(&error))
    }
}

/// An item in this state, of which nothing else is known.
const fn bare(index: u32, sandbox: Option<SandboxId>, state: ItemState) -> ItemReport {
    ItemReport { index, sandbox, state, failure: None, exec: None, task: None }
}

/// An item that was not done for this reason.
fn failed(item: &PartItem, failure: Failure) -> ItemReport {
    ItemReport { failure: Some(failure), ..bare(item.index, item.sandbox, ItemState::Failed) }
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, message)
}

/// A store that failed ends the process; its next life goes on.
fn stopping(error: &RecordsError) -> Unfinished {
    tracing::error!(error = %crate::error_chain(error), "a batch is left for the next start");
    Unfinished::Stopping
}
