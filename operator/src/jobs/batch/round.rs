//! A part's tasks or commands, carried out until each has ended or none is needed any more.
//!
//! [`sandbox_fleet::batch::Part`] decides; here things are begun, waited for, written down and told. To let go of what runs is
//! to end it in its sandbox.

use std::pin::pin;

use futures::future::{FutureExt as _, join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use sandbox_fleet::Unfinished;
use sandbox_fleet::batch::{Part, Rest, Upshot};
use sandbox_fleet::ports::Turns;
use sandbox_fleet::request::{self, Command};
use sandbox_protocol::batch::{Aggregation, ItemExec, ItemReport, ItemState, ItemTask, share};
use sandbox_protocol::exec::ExecReply;
use sandbox_protocol::limits::BATCH_PART_BYTES_MAX;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use tokio::time::{Instant, sleep_until};

use super::cut::cut;
use super::{Ledger, bad, bare, failed};
use crate::jobs::executor::{Errand, Executor};
use crate::jobs::{exec, task};
use crate::records::PartItem;

/// What is to be done in each sandbox; the one that it names is none of them.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Command(Command),
    Task(request::Errand),
}

/// A part that is to be carried out.
pub(super) struct Round {
    pub(super) executor: Executor,
    pub(super) ledger: Ledger,
    pub(super) deed: Deed,
    pub(super) aggregation: Aggregation,
    /// What the names of its executions begin with.
    pub(super) execution: String,
    /// Items at a time.
    pub(super) at_once: usize,
    /// When its time is over.
    pub(super) until: Instant,
}

/// Items that are not waited for any more.
struct GivenUp {
    places: Vec<usize>,
    why: Failure,
}

impl GivenUp {
    fn of(places: Vec<usize>, why: fn() -> Failure) -> Option<Self> {
        (!places.is_empty()).then(|| Self { places, why: why() })
    }
}

impl Round {
    /// Carries out what is not at its end, where `known` says how far a former life came. `won_elsewhere` ends when another
    /// operator's part has a success.
    pub(super) async fn play(
        &self,
        known: Vec<ItemReport>,
        won_elsewhere: impl Future<Output = ()>,
    ) -> Result<(Vec<ItemReport>, Upshot), Unfinished> {
        let (mut items, mut part) = self.where_it_stands(known);
        let (mut won, mut late) = (pin!(won_elsewhere.fuse()), pin!(sleep_until(self.until).fuse()));
        let (mut running, mut is_stopping) = (FuturesUnordered::new(), false);
        let mut given_up = GivenUp::of(part.unneeded(), not_needed);
        loop {
            if let Some(given_up) = given_up.take() {
                running.clear();
                self.give_up(&mut items, &part, given_up).await?;
            }
            while let Some(place) = part.next().filter(|_| !is_stopping) {
                running.push(self.carried_out(place, items[place].state == ItemState::Running));
            }
            if running.is_empty() {
                break;
            }
            given_up = tokio::select! {
                Some((place, ended)) = running.next() => match ended {
                    Ok(item) => {
                        part.ended(place, item.state == ItemState::Succeeded);
                        items[place] = item;
                        GivenUp::of(part.unneeded(), not_needed)
                    }
                    // It cannot go on in this life, and leaves the others to theirs.
                    Err(_) => {
                        is_stopping = true;
                        None
                    }
                },
                () = &mut won => GivenUp::of(part.give_up(Rest::WonElsewhere), won_by_another),
                () = &mut late => GivenUp::of(part.give_up(Rest::Late), too_late),
            };
        }
        if is_stopping { Err(Unfinished::Stopping) } else { Ok((items, part.upshot())) }
    }

    /// The items as a former life left them, in the order of their places.
    fn where_it_stands(&self, known: Vec<ItemReport>) -> (Vec<ItemReport>, Part) {
        let own = &self.ledger.part.items;
        let mut part = Part::new(own.len(), self.at_once, self.aggregation);
        let mut items: Vec<ItemReport> =
            own.iter().map(|item| bare(item.index, item.sandbox, ItemState::Waiting)).collect();
        for known in known {
            if let Some(place) = own.iter().position(|item| item.index == known.index) {
                part.restore(place, known.state);
                self.ledger.tell(&known);
                items[place] = known;
            }
        }
        (items, part)
    }

    /// Notes that these have ended, and why, as the part says.
    async fn give_up(
        &self,
        items: &mut [ItemReport],
        part: &Part,
        GivenUp { places, why }: GivenUp,
    ) -> Result<(), Unfinished> {
        // What a former life began may not have been attached to yet; on record as ended, nobody would look after it.
        let begun = places.iter().filter(|place| items[**place].state == ItemState::Running);
        join_all(begun.map(|place| self.end_begun(&self.ledger.part.items[*place]))).await;
        let mut noted = Vec::with_capacity(places.len());
        for place in places {
            let state = part.state(place).unwrap_or(ItemState::Cancelled);
            let item = &mut items[place];
            *item = ItemReport { failure: Some(why.clone()), ..bare(item.index, item.sandbox, state) };
            noted.push(item.clone());
        }
        self.ledger.note(&noted).await
    }

    /// Ends in its sandbox what a former life began.
    async fn end_begun(&self, item: &PartItem) {
        let Some(sandbox) = item.sandbox else { return };
        let errand = self.errand(item, true);
        let ended = match &self.deed {
            Deed::Command(_) => self.executor.end_command(&errand, sandbox).await,
            Deed::Task(_) => self.executor.end_run(&errand, sandbox).await,
        };
        if let Err(error) = ended {
            tracing::info!(call = %self.ledger.part.call, %sandbox, %error, "nothing to end");
        }
    }

    fn errand(&self, item: &PartItem, resumed: bool) -> Errand {
        Errand { owner: self.ledger.part.owner, id: format!("{}-{}", self.execution, item.index), resumed }
    }

    /// An item at its end, which is on disk.
    async fn carried_out(&self, place: usize, was_begun: bool) -> (usize, Result<ItemReport, Unfinished>) {
        let item = &self.ledger.part.items[place];
        let ended = async {
            let ended = match self.outcome(item, was_begun).await {
                Ok(ended) => ended,
                Err(Unfinished::Failed(failure)) => failed(item, failure),
                Err(Unfinished::Stopping) => return Err(Unfinished::Stopping),
            };
            let ended = cut(ended, share(BATCH_PART_BYTES_MAX, self.ledger.part.items.len()));
            self.ledger.note(std::slice::from_ref(&ended)).await?;
            Ok(ended)
        };
        (place, ended.await)
    }

    async fn outcome(&self, item: &PartItem, was_begun: bool) -> Result<ItemReport, Unfinished> {
        if let Some(refused) = &item.refused {
            return Err(refused.clone().into());
        }
        let sandbox = item.sandbox.ok_or_else(|| bad("not a sandbox id"))?;
        let running = bare(item.index, item.sandbox, ItemState::Running);
        if was_begun {
            self.ledger.tell(&running);
        } else {
            // On disk first: what may have begun is not begun a second time.
            self.ledger.note(&[running]).await?;
        }
        self.deed_done(self.errand(item, was_begun), sandbox, item).await
    }

    async fn deed_done(&self, errand: Errand, sandbox: SandboxId, item: &PartItem) -> Result<ItemReport, Unfinished> {
        match &self.deed {
            Deed::Command(command) => {
                let command = Command { sandbox, ..command.clone() };
                Ok(of_command(item, self.executor.exec(errand, command).await?.0))
            }
            Deed::Task(asked) => {
                let asked = request::Errand { sandbox, ..asked.clone() };
                let (response, limit) = task::response(self.executor.run(errand, Turns::Many, asked).await?.0)?;
                let task = ItemTask {
                    success: response.success,
                    result: response.result,
                    error: response.error,
                    trace_id: response.trace_id,
                    turns_used: response.turns_used,
                    duration_ms: response.duration_ms,
                    input_tokens: response.input_tokens,
                    output_tokens: response.output_tokens,
                    session_id: response.session_id,
                };
                let failure = limit.map(|code| Failure::new(code, "the task ran into a limit of its own"));
                Ok(ItemReport {
                    failure,
                    task: Some(task),
                    ..bare(item.index, item.sandbox, state_of(response.success))
                })
            }
        }
    }
}

const fn state_of(is_success: bool) -> ItemState {
    if is_success { ItemState::Succeeded } else { ItemState::Failed }
}

/// What a command that ended comes to.
fn of_command(item: &PartItem, reply: ExecReply) -> ItemReport {
    let failure = exec::limit(&reply).map(|code| Failure::new(code, "the command ran into a limit of its own"));
    let is_success = reply.exit_code == 0 && failure.is_none();
    let ExecReply { exit_code, stdout, stderr, truncated, duration_ms, .. } = reply;
    let exec = ItemExec { exit_code, stdout, stderr, truncated, duration_ms };
    ItemReport { failure, exec: Some(exec), ..bare(item.index, item.sandbox, state_of(is_success)) }
}

fn not_needed() -> Failure {
    Failure::new(FailureCode::Cancelled, "another item of the batch had succeeded")
}

fn won_by_another() -> Failure {
    Failure::new(FailureCode::Cancelled, "an item of another operator's had succeeded")
}

fn too_late() -> Failure {
    Failure::new(FailureCode::Timeout, "the time for the batch was over")
}

#[cfg(test)]
mod tests;
