//! Who decides what is answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::builtin;
use crate::reply::Reply;
use crate::request::Request;

type Answers = dyn Fn(&Request) -> Reply + Send + Sync;

/// What is answered to whom: rules in their order, then a queue, then what else holds.
#[derive(Clone)]
pub struct Script {
    rules: Arc<Mutex<Vec<Rule>>>,
    queue: Arc<Mutex<VecDeque<Reply>>>,
    otherwise: Arc<Answers>,
}

/// A reply for certain requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// For which.
    pub when: When,
    /// What they are answered.
    pub reply: Reply,
    /// How often; always if `None`.
    #[serde(default)]
    pub times: Option<u64>,
}

/// Which requests are meant: all that is said must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Its model is this.
    pub model: Option<String>,
    /// Its last message holds this.
    pub last: Option<String>,
    /// The words of its system hold this.
    pub system: Option<String>,
    /// Any of its words hold this.
    pub any: Option<String>,
    /// A header holds this: name and part of the text.
    pub header: Option<(String, String)>,
    /// It is this one of all, from 1 on.
    pub number: Option<u64>,
    /// It wants vectors; one that does is meant by no rule that does not say so.
    pub embeds: bool,
}

/// A script as a JSON file says it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptFile {
    /// Tried first, in their order.
    pub rules: Vec<Rule>,
    /// Then one after the other.
    pub queue: Vec<Reply>,
    /// Then this; 500 if `None`.
    pub otherwise: Option<Reply>,
}

impl Script {
    /// What this function says. It is not asked for vectors.
    pub fn of(answers: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self { rules: Arc::default(), queue: Arc::default(), otherwise: Arc::new(answers) }
    }

    /// These replies, one after the other; then 500.
    pub fn queue(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { queue: Arc::new(Mutex::new(replies.into_iter().collect())), ..Self::of(|_| over()) }
    }

    /// This reply to all.
    pub fn always(reply: Reply) -> Self {
        Self::of(move |_| reply.clone())
    }

    /// The last words of the user.
    pub fn echo() -> Self {
        Self::of(|request| Reply::text(request.last_of_user()))
    }

    /// Critics, decision makers and judges of a negotiation: the same words for the same request, scores as JSON for a
    /// prompt that demands them.
    pub fn negotiation() -> Self {
        Self::of(builtin::negotiation)
    }

    /// The same with one rule more, behind those that it has.
    #[must_use]
    pub fn when(self, when: When, reply: Reply) -> Self {
        self.rule(Rule { when, reply, times: None })
    }

    /// The same with one rule more, behind those that it has.
    #[must_use]
    pub fn rule(self, rule: Rule) -> Self {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
        self
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        if let Some(reply) = self.by_rule(request) {
            return reply;
        }
        if request.embeds {
            return Reply::default();
        }
        let queued = self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        queued.unwrap_or_else(|| (self.otherwise)(request))
    }

    fn by_rule(&self, request: &Request) -> Option<Reply> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter_mut().find(|rule| rule.times != Some(0) && rule.when.means(request))?;
        rule.times = rule.times.map(|times| times - 1);
        Some(rule.reply.clone())
    }
}

impl From<ScriptFile> for Script {
    fn from(file: ScriptFile) -> Self {
        let otherwise = file.otherwise.unwrap_or_else(over);
        Self {
            rules: Arc::new(Mutex::new(file.rules)),
            queue: Arc::new(Mutex::new(file.queue.into())),
            ..Self::always(otherwise)
        }
    }
}

impl When {
    /// The last message holds this.
    pub fn last(part: &str) -> Self {
        Self { last: Some(part.to_owned()), ..Self::default() }
    }

    /// The system's words hold this.
    pub fn system(part: &str) -> Self {
        Self { system: Some(part.to_owned()), ..Self::default() }
    }

    /// The model is this.
    pub fn model(model: &str) -> Self {
        Self { model: Some(model.to_owned()), ..Self::default() }
    }

    fn means(&self, request: &Request) -> bool {
        let holds = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|part| text.contains(part));
        let any = |part: &String| {
            request.system.contains(part) || request.messages.iter().any(|said| said.content.contains(part))
        };
        let header = |(name, part): &(String, String)| request.header(name).is_some_and(|text| text.contains(part));
        self.embeds == request.embeds
            && self.model.as_ref().is_none_or(|model| *model == request.model)
            && self.number.is_none_or(|number| number == request.number)
            && holds(&self.last, request.last())
            && holds(&self.system, &request.system)
            && self.any.as_ref().is_none_or(any)
            && self.header.as_ref().is_none_or(header)
    }
}

fn over() -> Reply {
    Reply::status(500, "the script is over")
}
