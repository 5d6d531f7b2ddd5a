//! What each operator answered to its part, proven by its own receipt: its signature, what it was asked, and the chain.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy::primitives::Address;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sandbox_protocol::batch::{Aggregation, BatchId, ItemState};
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::{Job, SandboxId};
use tokio::time::Instant;

use super::claims::{Claim, Ground, Lie, Row, answered_batch, claims};
use super::merge::{Merged, Stood, merge};
use super::{Batch, BatchCall, BatchError};
use crate::answers::{AnswerError, Answers};
use crate::chain::{Chain, ReadError, Recorded};
use crate::limits::{BATCH_ASKED_MAX, CHAIN_PAUSE_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::verify::{self, Expectation, Unproven};

/// Where an operator's part is.
#[derive(Debug)]
pub enum Standing {
    /// Answered; the answer is the one that its receipt on chain is of, and says nothing that the chain denies.
    Proven {
        /// The answer.
        answer: Box<AnswerBody>,
        /// Its receipt on chain.
        record: Recorded,
    },
    /// There is time left, and no receipt yet.
    Pending,
    /// Its time was over without a receipt.
    Silent {
        /// The last block in which one was expected.
        deadline_block: u64,
    },
    /// Its receipt is on chain, and it does not hand over the response.
    Withheld {
        /// The receipt.
        record: Recorded,
        /// What went wrong last, if anything did.
        source: Option<AnswerError>,
    },
    /// What it answered does not hold.
    Lying(Lie),
}

impl Batch {
    /// All parts as they are, waited for until each has answered, its time is over, or `bound` is. Where one success is enough, the
    /// first that is proven ends it: the others are taken as they are then.
    ///
    /// # Errors
    /// [`BatchError::Read`]. That an operator does not answer, or lies, is no error but told.
    pub async fn wait(&self, answers: &Answers, bound: Duration) -> Result<Merged, BatchError> {
        let until = Instant::now() + bound;
        let chain = answers.account().chain();
        let mut grounds = Vec::new();
        for call in &self.calls {
            grounds.push(ground(chain, call).await?);
        }
        let asked: Vec<_> =
            self.calls.iter().zip(&grounds).flat_map(|(call, ground)| parts(&self.id, call, ground)).collect();
        let stood = stood(answers, &asked, until).await?;
        Ok(merge(self, &grounds, stood))
    }

    /// All parts as they are now.
    ///
    /// # Errors
    /// As [`Batch::wait`].
    pub async fn look(&self, answers: &Answers) -> Result<Merged, BatchError> {
        self.wait(answers, Duration::ZERO).await
    }
}

/// What the operators of a call have attested to about the batch that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Attested {
    /// How many answered to this batch.
    pub(super) this: usize,
    /// How many answered to another.
    pub(super) another: usize,
}

/// Whether a call is of this batch by what its operators answered. Who does not hand over its answer, or answered only why it did
/// nothing, has no say.
pub(super) async fn attested(answers: &Answers, id: &BatchId, call: &BatchCall) -> Result<Attested, BatchError> {
    let ground = ground(answers.account().chain(), call).await?;
    let now = Instant::now();
    let mut attested = Attested::default();
    for stood in try_join_all(parts(id, call, &ground).map(|part| part.stand(answers, now))).await? {
        match stood.standing {
            Standing::Proven { answer, .. } if matches!(answered_batch(call.job, &answer), Ok(Some(_))) => {
                attested.this += 1;
            }
            Standing::Lying(Lie::OtherBatch(_)) => attested.another += 1,
            _ => {}
        }
    }
    Ok(attested)
}

/// One operator's part of one call.
#[derive(Clone, Copy)]
struct Part<'a> {
    batch: &'a BatchId,
    call: &'a BatchCall,
    ground: &'a Ground,
    operator: Address,
}

fn parts<'a>(batch: &'a BatchId, call: &'a BatchCall, ground: &'a Ground) -> impl Iterator<Item = Part<'a>> {
    ground.parts.iter().map(move |part| Part { batch, call, ground, operator: part.operator })
}

/// What the chain says of a call.
async fn ground(chain: &Chain, call: &BatchCall) -> Result<Ground, BatchError> {
    let assignment = chain.assignment(call.key).await?.ok_or(BatchError::NotABatch(call.key))?;
    let parts = chain.parts(call.key).await?;
    let named: std::collections::BTreeSet<SandboxId> = match call.job {
        Job::BatchCreate => Default::default(),
        _ => call.endpoints.iter().copied().flatten().collect(),
    };
    let rows = stream::iter(named)
        .map(|id| async move { row(chain, id, call.block).await.map(|row| (id, row)) })
        .buffer_unordered(BATCH_ASKED_MAX)
        .try_collect::<BTreeMap<_, _>>();
    Ok(Ground { parts, deadline_block: assignment.deadlineBlock, rows: rows.await? })
}

/// A sandbox that a call in this block names.
async fn row(chain: &Chain, id: SandboxId, block: u64) -> Result<Row, ReadError> {
    let then = chain.sandbox_at(id, block).await;
    let has_moved = match then {
        Some(_) => false,
        None => chain.assignment(id.origin).await?.is_some_and(|create| create.epoch > 0),
    };
    Ok(Row { then, now: chain.sandbox(id).await?, has_moved })
}

/// Where each part is in the end, in the order asked. Once one decides, the others are asked once more, side by side.
async fn stood(answers: &Answers, asked: &[Part<'_>], until: Instant) -> Result<Vec<Stood>, BatchError> {
    let mut found: Vec<Option<Stood>> = Vec::new();
    found.resize_with(asked.len(), || None);
    let mut waiting: stream::FuturesUnordered<_> =
        asked.iter().enumerate().map(|(place, part)| part.placed(place, answers, until)).collect();
    while let Some((place, stands)) = waiting.next().await {
        let stands = stands?;
        let decides = stands.decides(asked[place].call);
        found[place] = Some(stands);
        if decides {
            break;
        }
    }
    drop(waiting);
    let now = Instant::now();
    let last = asked.iter().zip(found).map(|(part, known)| async move {
        match known {
            Some(known) => Ok(known),
            None => part.stand(answers, now).await,
        }
    });
    try_join_all(last).await
}

impl Stood {
    /// Whether this is the one success that was enough.
    fn decides(&self, call: &BatchCall) -> bool {
        call.aggregation == Some(Aggregation::FirstSuccess)
            && self.claims.iter().any(|claim| claim.state == ItemState::Succeeded)
    }
}

impl Part<'_> {
    async fn placed(self, place: usize, answers: &Answers, until: Instant) -> (usize, Result<Stood, BatchError>) {
        (place, self.stand(answers, until).await)
    }

    /// Where it is, waited for until there is nothing to wait for.
    async fn stand(self, answers: &Answers, until: Instant) -> Result<Stood, BatchError> {
        let (mut answer, mut last, mut pause) = (None, None, RETRY_PAUSE_MIN);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if answer.is_none() {
                match answers.look_at_part(self.call.key, self.operator, left).await {
                    Ok(found) => (answer, last) = (found, None),
                    Err(AnswerError::Read(error)) => return Err(error.into()),
                    Err(error) => last = Some(error),
                }
            }
            if let Some(lie) = answer.as_ref().and_then(|answer| self.authentic(answers, answer).err()) {
                return Ok(self.stood(Standing::Lying(Lie::Unproven(lie)), Vec::new()));
            }
            // Before the receipt is looked for: one that comes between the two would otherwise be taken for none in time.
            let is_over = self.is_over(answers.account().chain()).await?;
            let record = self.record(answers.account().chain()).await?;
            match (answer.take(), record) {
                (Some(answer), Some(record)) => return Ok(self.proven(answer, record)),
                (None, Some(record)) if left.is_zero() => {
                    return Ok(self.stood(Standing::Withheld { record, source: last }, Vec::new()));
                }
                (_, None) if is_over => {
                    let deadline_block = self.ground.deadline_block;
                    return Ok(self.stood(Standing::Silent { deadline_block }, Vec::new()));
                }
                (_, None) if left.is_zero() => return Ok(self.stood(Standing::Pending, Vec::new())),
                (kept, _) => answer = kept,
            }
            // An answer that is there waits for its receipt alone, which may come with any block.
            pause = if answer.is_some() { CHAIN_PAUSE_MAX } else { (pause * 2).min(RETRY_PAUSE_MAX) };
            tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// That the operator signed this very answer, and to this very call.
    fn authentic(&self, answers: &Answers, answer: &AnswerBody) -> Result<(), Unproven> {
        let deployment = answers.account().deployment();
        let expected = Expectation {
            chain_id: deployment.chain_id,
            core: deployment.core,
            key: self.call.key,
            job: self.call.job.id(),
            caller: self.call.caller,
            operator: self.operator,
            inputs_hash: self.call.inputs_hash,
        };
        verify::offline(answer)?;
        verify::matches(answer, &expected)
    }

    /// The operator's receipt on chain, once there is one.
    async fn record(&self, chain: &Chain) -> Result<Option<Recorded>, BatchError> {
        let parts = chain.parts(self.call.key).await?;
        let answered = parts.iter().filter(|part| part.answered).count();
        if !parts.iter().any(|part| part.operator == self.operator && part.answered) {
            return Ok(None);
        }
        let records = chain.recorded(self.call.key, self.call.block, answered).await?;
        Ok(records.into_iter().find(|record| record.operator == self.operator))
    }

    async fn is_over(&self, chain: &Chain) -> Result<bool, BatchError> {
        Ok(chain.head().await? > self.ground.deadline_block)
    }

    fn proven(&self, answer: AnswerBody, record: Recorded) -> Stood {
        let said = verify::agrees(&answer, &record).map_err(Lie::Unproven);
        match said.and_then(|()| claims((self.batch, self.call), self.ground, (self.operator, &answer))) {
            Ok(claims) => self.stood(Standing::Proven { answer: Box::new(answer), record }, claims),
            Err(lie) => self.stood(Standing::Lying(lie), Vec::new()),
        }
    }

    const fn stood(&self, standing: Standing, claims: Vec<Claim>) -> Stood {
        Stood { call: self.call.key, operator: self.operator, standing, claims }
    }
}
