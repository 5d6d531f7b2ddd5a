//! What must not be torn apart: a message, or a message that calls tools together with what came of the calls.
//!
//! Providers refuse a conversation with a call that nobody answered, or an answer that nobody asked for. A crash between the
//! two leaves such a thing behind; it is mended here, each time it is shown.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::store::Stored;
use super::tokenizer::{Tokenizer, message_tokens};
use crate::model::{Message, Role};

/// Messages of a session that stand and fall together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// Their places in the session.
    pub(super) range: Range<usize>,
    /// Their tokens.
    pub(super) tokens: usize,
    /// Their tokens, each message with its attribution.
    pub(super) attributed_tokens: usize,
    /// Calls without an answer.
    unanswered: Vec<String>,
    /// What came of a call that is not here.
    is_orphan: bool,
}

impl Unit {
    fn of(place: usize, stored: &Stored) -> Self {
        Self {
            range: place..place + 1,
            tokens: stored.tokens,
            attributed_tokens: stored.attributed_tokens,
            unanswered: stored.message.tool_calls.iter().map(|call| call.id.clone()).collect(),
            is_orphan: stored.message.role == Role::Tool,
        }
    }

    /// Whether it still waits for what comes of its calls.
    pub(super) fn is_open(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Whether it can be shown as it is.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_open() && !self.is_orphan
    }

    /// Takes up what came of one of its calls; `false` if it is of none.
    fn takes(&mut self, stored: &Stored) -> bool {
        let call = stored.message.tool_call_id.as_deref();
        let Some(at) = self.unanswered.iter().position(|id| Some(id.as_str()) == call) else { return false };
        self.unanswered.remove(at);
        self.range.end += 1;
        self.tokens += stored.tokens;
        self.attributed_tokens += stored.attributed_tokens;
        true
    }
}

/// Adds a message to the units of the ones before it.
pub(super) fn add(units: &mut Vec<Unit>, place: usize, stored: &Stored) {
    let is_taken =
        stored.message.role == Role::Tool && units.last_mut().is_some_and(|unit: &mut Unit| unit.takes(stored));
    if !is_taken {
        units.push(Unit::of(place, stored));
    }
}

/// A session as it is looked at to build a context.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) messages: &'a [Arc<Stored>],
    pub(super) units: &'a [Unit],
    pub(super) tokenizer: &'a dyn Tokenizer,
}

/// A message to show, and its place.
pub(super) type Shown<'a> = (usize, Cow<'a, Message>);

impl<'a> View<'a> {
    /// The unit's messages as a provider takes them.
    pub(super) fn shown(&self, unit: &Unit) -> Vec<Shown<'a>> {
        let messages = self.messages[unit.range.clone()].iter().map(|stored| &stored.message);
        let placed = unit.range.clone().zip(messages);
        if unit.is_sound() {
            return placed.map(|(place, message)| (place, Cow::Borrowed(message))).collect();
        }
        placed.filter_map(|(place, message)| Some((place, mended(unit, message)?))).collect()
    }

    /// Tokens of the unit as it is shown.
    pub(super) fn tokens(&self, unit: &Unit) -> usize {
        if unit.is_sound() {
            return unit.tokens;
        }
        self.shown(unit).iter().map(|(_, message)| message_tokens(self.tokenizer, message)).sum()
    }

    /// Place of the unit that has this message.
    pub(super) fn unit_of(&self, message: usize) -> usize {
        self.units.partition_point(|unit| unit.range.end <= message)
    }

    /// Place of the unit with what the customer said last.
    pub(super) fn last_of_user(&self) -> Option<usize> {
        self.units.iter().rposition(|unit| self.messages[unit.range.start].message.role == Role::User)
    }
}

/// A message of a unit that is not sound, without what makes it so; `None` where nothing is left.
fn mended<'a>(unit: &Unit, message: &'a Message) -> Option<Cow<'a, Message>> {
    if unit.is_orphan {
        return None;
    }
    let is_unanswered = |id: &String| unit.unanswered.contains(id);
    if message.tool_calls.is_empty() {
        // Of two calls with one id, one was answered: it cannot be told which.
        return (!message.tool_call_id.as_ref().is_some_and(is_unanswered)).then_some(Cow::Borrowed(message));
    }
    let mut message = message.clone();
    message.tool_calls.retain(|call| !is_unanswered(&call.id));
    let says_something = !message.content.is_empty() || !message.tool_calls.is_empty();
    says_something.then_some(Cow::Owned(message))
}
