//! What stands in which tier of a context. Decides, and neither searches nor stores.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::json;

use super::context::{Remembered, attributed};
use super::tokenizer::{Tokenizer, message_tokens, shortened_from};
use super::units::{Shown, Unit, View};
use crate::limits::CONTEXT_PERCENT;
use crate::model::{Message, ToolCall};

/// Tokens of each tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) recent: usize,
    pub(super) summary: usize,
    pub(super) semantic: usize,
}

impl Budget {
    pub(super) const fn of(tokens: usize) -> Self {
        let [recent, summary, semantic] = CONTEXT_PERCENT;
        Self { recent: tokens * recent / 100, summary: tokens * summary / 100, semantic: tokens * semantic / 100 }
    }

    /// Half of each tier.
    pub(super) const fn half(self) -> Self {
        Self { recent: self.recent / 2, summary: self.summary / 2, semantic: self.semantic / 2 }
    }
}

/// What was said last, word for word: the newest units that have room, and in any case what the customer said last, since all
/// that followed is about it. What is too long for the tier and must stand in it is cut in its middle.
pub(super) fn recent(view: View<'_>, room: usize) -> Vec<Remembered> {
    let Some(newest) = view.units.len().checked_sub(1) else { return Vec::new() };
    let (first, _) = suffix(view, 0, room);
    let question = view.last_of_user().filter(|question| *question < first);
    let Some(question) = question.filter(|question| *question < newest) else {
        return if first > newest { cut(view, newest, room) } else { whole(view, first) };
    };
    let kept = view.tokens(&view.units[question]).min(room / 2);
    let (first, _) = suffix(view, question + 1, room - kept);
    let after = if first > newest { cut(view, newest, room - kept) } else { whole(view, first) };
    let used: usize = after.iter().map(|one| one.tokens).sum();
    let mut tier = fitted(view, question, room - used);
    tier.extend(after);
    tier
}

/// The first of the newest units that fit together, none before `from`, and their tokens.
fn suffix(view: View<'_>, from: usize, room: usize) -> (usize, usize) {
    let (mut first, mut used) = (view.units.len(), 0);
    while first > from {
        let tokens = view.tokens(&view.units[first - 1]);
        if used + tokens > room {
            break;
        }
        first -= 1;
        used += tokens;
    }
    (first, used)
}

fn whole(view: View<'_>, first: usize) -> Vec<Remembered> {
    view.units[first..].iter().flat_map(|unit| shown(view, unit)).collect()
}

fn fitted(view: View<'_>, unit: usize, room: usize) -> Vec<Remembered> {
    let is_whole = view.tokens(&view.units[unit]) <= room;
    if is_whole { shown(view, &view.units[unit]) } else { cut(view, unit, room) }
}

fn shown(view: View<'_>, unit: &Unit) -> Vec<Remembered> {
    let messages = view.shown(unit).into_iter();
    messages
        .map(|(place, message)| {
            let stored = &view.messages[place];
            match message {
                Cow::Borrowed(message) => remembered(view, place, message.clone(), stored.tokens),
                Cow::Owned(message) => {
                    let tokens = message_tokens(view.tokenizer, &message);
                    Remembered { is_cut: true, ..remembered(view, place, message, tokens) }
                }
            }
        })
        .collect()
}

fn remembered(view: View<'_>, place: usize, message: Message, tokens: usize) -> Remembered {
    Remembered { id: place as u64, at_ms: view.messages[place].at_ms, tokens, is_cut: false, message }
}

/// A unit whose texts are cut so that it has room, the longest ones to one length; nothing where not even its frames have.
fn cut(view: View<'_>, unit: usize, room: usize) -> Vec<Remembered> {
    let parts: Vec<Part<'_>> = view.shown(&view.units[unit]).into_iter().map(|shown| Part::of(view, shown)).collect();
    let tokens = |most: usize| parts.iter().map(|part| part.tokens(most)).sum::<usize>();
    let (mut fits, mut too_many) = (0, room + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if tokens(middle) <= room { fits = middle } else { too_many = middle }
    }
    if fits == 0 {
        return Vec::new();
    }
    parts.iter().map(|part| part.cut(view, fits)).collect()
}

/// A message with the tokens of each of its texts.
struct Part<'a> {
    place: usize,
    message: Cow<'a, Message>,
    /// Of what cannot be cut.
    frame: usize,
    content: usize,
    /// Of each call.
    arguments: Vec<usize>,
}

impl<'a> Part<'a> {
    fn of(view: View<'_>, (place, message): Shown<'a>) -> Self {
        let counted = |call: &ToolCall| view.tokenizer.count(&call.arguments.to_string());
        let arguments: Vec<usize> = message.tool_calls.iter().map(counted).collect();
        let silent = Message { content: String::new(), ..(*message).clone() };
        let beside = message_tokens(view.tokenizer, &silent);
        let content = match &message {
            Cow::Borrowed(_) => view.messages[place].tokens - beside,
            Cow::Owned(message) => view.tokenizer.count(&message.content),
        };
        let frame = beside - arguments.iter().sum::<usize>();
        Self { place, message, frame, content, arguments }
    }

    /// Tokens at most, with each text cut to so many.
    fn tokens(&self, most: usize) -> usize {
        self.frame + self.content.min(most) + self.arguments.iter().map(|tokens| tokens.min(&most)).sum::<usize>()
    }

    fn cut(&self, view: View<'_>, most: usize) -> Remembered {
        let calls = self.message.tool_calls.iter().zip(&self.arguments);
        let message = Message {
            role: self.message.role,
            content: shortened_from(view.tokenizer, &self.message.content, self.content, most),
            tool_calls: calls.map(|(call, tokens)| cut_call(view.tokenizer, call, *tokens, most)).collect(),
            tool_call_id: self.message.tool_call_id.clone(),
        };
        let tokens = message_tokens(view.tokenizer, &message);
        let is_cut = message != view.messages[self.place].message;
        Remembered { is_cut, ..remembered(view, self.place, message, tokens) }
    }
}

/// Arguments stay an object, as providers demand; an empty one has the one token that is there at least.
fn cut_call(tokenizer: &dyn Tokenizer, call: &ToolCall, tokens: usize, most: usize) -> ToolCall {
    if tokens <= most {
        return call.clone();
    }
    let text = call.arguments.to_string();
    // As JSON again, quotes and the mark are longer than they are as text.
    let shorter = [most, most * 3 / 4, most / 2].into_iter();
    let mut candidates = shorter.map(|most| json!({ "shortened": shortened_from(tokenizer, &text, tokens, most) }));
    let arguments = candidates.find(|one| tokenizer.count(&one.to_string()) <= most).unwrap_or_else(|| json!({}));
    ToolCall { arguments, ..call.clone() }
}

/// What was found again, best first, as far as it has room: it ends at the first that has none. In order of time.
pub(super) fn semantic(view: View<'_>, found: &[usize], room: usize) -> Vec<Remembered> {
    let mut taken = BTreeSet::new();
    let mut used = 0;
    for place in found {
        let unit = view.unit_of(*place);
        if taken.contains(&unit) {
            continue;
        }
        let tier = attributed_unit(view, unit);
        let tokens: usize = tier.iter().map(|one| one.tokens).sum();
        if used + tokens > room {
            break;
        }
        used += tokens;
        taken.insert(unit);
    }
    taken.into_iter().flat_map(|unit| attributed_unit(view, unit)).collect()
}

fn attributed_unit(view: View<'_>, unit: usize) -> Vec<Remembered> {
    let mut messages = shown(view, &view.units[unit]);
    for one in &mut messages {
        one.message = attributed(&one.message);
        let stored = &view.messages[one.place()];
        one.tokens = if one.is_cut { message_tokens(view.tokenizer, &one.message) } else { stored.attributed_tokens };
    }
    messages
}
