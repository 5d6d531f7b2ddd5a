//! Waiting for all parts of a batch, and telling what is heard of them until then.

use std::time::Duration;

use alloy::primitives::Address;
use futures::stream::{self, StreamExt as _};
use sandbox_protocol::agent::event::Told;
use sandbox_sdk::answers::{Answers, CallEvents, CallTold};
use sandbox_sdk::batches::{Batch, BatchCall, Merged};

use crate::commands::agents::shown;
use crate::failure::Failure;
use crate::output::Output;

/// The proven parts; what is told until then may fail without harm.
pub(super) async fn watched(
    (answers, batch): (&Answers, &Batch),
    within_s: u64,
    output: &Output,
) -> Result<Merged, Failure> {
    let mut merged = std::pin::pin!(batch.wait(answers, Duration::from_secs(within_s)));
    if output.is_json() {
        return Ok(merged.await?);
    }
    let mut lines = std::pin::pin!(lines(answers, batch).await?);
    let mut follows = true;
    loop {
        tokio::select! {
            merged = &mut merged => return Ok(merged?),
            line = lines.next(), if follows => match line {
                Some(line) => output.notice(&line),
                None => follows = false,
            },
        }
    }
}

/// What all operators tell of their parts, as it comes.
async fn lines<'a>(answers: &'a Answers, batch: &'a Batch) -> Result<impl stream::Stream<Item = String> + 'a, Failure> {
    let mut told = Vec::new();
    for call in &batch.calls {
        for part in answers.account().chain().parts(call.key).await? {
            let events = answers.follow_part(call.key, part.operator);
            told.push(Box::pin(part_lines(events, (call, part.operator))));
        }
    }
    Ok(stream::select_all(told))
}

fn part_lines<'a>(events: CallEvents<'a>, part: (&'a BatchCall, Address)) -> impl stream::Stream<Item = String> + 'a {
    let told = stream::unfold(events, |mut events| async move {
        match events.next().await {
            Ok(Some(told)) => Some((told, events)),
            Ok(None) | Err(_) => None,
        }
    });
    told.filter_map(move |told| async move { line(part, &told) })
}

/// An item that is where it stays; that one has begun is no news.
fn line((call, operator): (&BatchCall, Address), told: &CallTold) -> Option<String> {
    let CallTold::Event(event) = told else { return None };
    let Told::BatchItem { index, state, message } = &event.told else { return None };
    let why = message.as_deref().map(|message| format!(": {}", shown(message))).unwrap_or_default();
    let item = call.place(*index)?;
    state.is_final().then(|| format!("item {item} {} at {operator}{why}", state.name()))
}
