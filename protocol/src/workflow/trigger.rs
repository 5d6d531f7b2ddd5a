//! What fires a workflow. The configuration stands in the contract's row, in at most 192 bytes, so that a schedule is rebuilt without bodies.
//!
//! | type | configuration |
//! |---|---|
//! | `manual` | empty, or a [`Policy`] |
//! | `cron` | `0 9 * * 1-5`, or JSON of a [`CronTrigger`] |
//! | `webhook` | empty, or a [`Policy`] |
//! | `event` | JSON of an [`EventTrigger`] |
//!
//! Whether a cron expression and a zone are good is for `fleet::schedule` to say.

use std::fmt;

use alloy_primitives::{Address, B256, Bytes, keccak256};
use serde::{Deserialize, Serialize};

use crate::limits::{EVENT_FIELDS_MAX, WORKFLOW_JITTER_S_MAX};
use crate::sandbox_id::SandboxId;

/// What becomes of a firing while a run of the workflow goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is entered in the history, and not run.
    #[default]
    Skip,
    /// It runs after it.
    Queue,
    /// It runs beside it.
    Allow,
}

/// What becomes of instants that passed while nobody could fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// The last of them is fired.
    #[default]
    Latest,
    /// The last [so many](crate::limits::WORKFLOW_CATCH_UP_MAX) are fired, in their order.
    All,
    /// None is fired.
    Skip,
}

/// What all kinds of triggers may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// While a run goes on.
    pub overlap: Overlap,
}

/// The clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronTrigger {
    /// Minute, hour, day of month, month, day of week; with six fields a second comes first.
    pub cron: String,
    /// Zone of the IANA database by which the expression is read.
    #[serde(default = "utc")]
    pub tz: String,
    /// While a run goes on.
    #[serde(default)]
    pub overlap: Overlap,
    /// After nobody could fire.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// Most seconds that a firing is put off, by a number that the workflow and the instant give.
    #[serde(default)]
    pub jitter_s: u32,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EventWords")]
pub struct EventTrigger {
    /// What.
    pub source: EventSource,
    /// While a run goes on.
    pub overlap: Overlap,
}

/// Where events come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSource {
    /// Logs of a contract, once their block is believed.
    Log(LogFilter),
    /// What happens to the owner's sandboxes at this operator.
    Lifecycle(LifecycleEvent),
}

/// Logs that fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    /// The contract.
    pub address: Address,
    /// The first topic: the hash of an event's signature.
    pub topic: B256,
    /// What the indexed fields must be, in their order; nothing lets any pass.
    pub fields: Vec<Option<B256>>,
}

/// Events of sandboxes that fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleEvent {
    /// As the operator's event stream names it: `sandbox.running`, `sandbox.stopped`, …
    pub name: String,
    /// Of this sandbox alone.
    pub sandbox: Option<SandboxId>,
}

/// As an event's configuration is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventWords {
    /// Signature of a contract's event, `Transfer(address,address,uint256)`, or name of a sandbox's.
    event: String,
    #[serde(default)]
    address: Option<Address>,
    /// Indexed fields: up to 32 bytes, which are those to the right.
    #[serde(default)]
    fields: Vec<Option<Bytes>>,
    #[serde(default)]
    sandbox: Option<SandboxId>,
    #[serde(default)]
    overlap: Overlap,
}

/// A trigger, as a create asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// Job 31 alone.
    Manual(Policy),
    /// The clock, and job 31.
    Cron(CronTrigger),
    /// Requests, and job 31.
    Webhook(Policy),
    /// Events, and job 31.
    Event(EventTrigger),
}

/// A `trigger_type` or `trigger_config` that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTrigger(String);

impl Trigger {
    /// The trigger that a create asks for.
    ///
    /// # Errors
    /// [`BadTrigger`] names the field.
    pub fn parse(kind: &str, config: &str) -> Result<Self, BadTrigger> {
        let trigger = match kind {
            "manual" => Self::Manual(policy(config)?),
            "cron" => Self::Cron(cron(config)?),
            "webhook" => Self::Webhook(policy(config)?),
            "event" => Self::Event(json(config)?),
            other => {
                return Err(BadTrigger(format!("trigger_type: {other:?} is none of manual, cron, webhook, event")));
            }
        };
        if let Self::Cron(CronTrigger { jitter_s, .. }) = &trigger
            && *jitter_s > WORKFLOW_JITTER_S_MAX
        {
            return Err(bad(format!("jitter_s: at most {WORKFLOW_JITTER_S_MAX}")));
        }
        Ok(trigger)
    }

    /// `trigger_type` of it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Manual(_) => "manual",
            Self::Cron(_) => "cron",
            Self::Webhook(_) => "webhook",
            Self::Event(_) => "event",
        }
    }

    /// What becomes of a firing while a run goes on.
    pub const fn overlap(&self) -> Overlap {
        match self {
            Self::Manual(policy) | Self::Webhook(policy) => policy.overlap,
            Self::Cron(cron) => cron.overlap,
            Self::Event(event) => event.overlap,
        }
    }
}

fn bad(message: impl fmt::Display) -> BadTrigger {
    BadTrigger(format!("trigger_config: {message}"))
}

fn json<'a, T: Deserialize<'a>>(config: &'a str) -> Result<T, BadTrigger> {
    serde_json::from_str(config).map_err(bad)
}

fn policy(config: &str) -> Result<Policy, BadTrigger> {
    if config.trim().is_empty() { Ok(Policy::default()) } else { json(config) }
}

fn cron(config: &str) -> Result<CronTrigger, BadTrigger> {
    if config.trim_start().starts_with('{') {
        return json(config);
    }
    let (cron, tz) = (config.trim().to_owned(), utc());
    Ok(CronTrigger { cron, tz, overlap: Overlap::default(), catch_up: CatchUp::default(), jitter_s: 0 })
}

impl TryFrom<EventWords> for EventTrigger {
    type Error = BadTrigger;

    fn try_from(words: EventWords) -> Result<Self, BadTrigger> {
        let EventWords { event, address, fields, sandbox, overlap } = words;
        let source = match (address, event.ends_with(')')) {
            (Some(address), true) if sandbox.is_none() => {
                let fields =
                    fields.iter().map(|field| field.as_ref().map(word).transpose()).collect::<Result<_, _>>()?;
                EventSource::Log(LogFilter { address, topic: keccak256(&event), fields })
            }
            (Some(_), true) => return Err(BadTrigger("sandbox: a contract's event has none".into())),
            (Some(_), false) => {
                return Err(BadTrigger("event: a signature, as `Transfer(address,address,uint256)`".into()));
            }
            (None, true) => return Err(BadTrigger("address: a contract's event has one".into())),
            (None, false) if !fields.is_empty() => return Err(BadTrigger("fields: a sandbox's event has none".into())),
            (None, false) => EventSource::Lifecycle(LifecycleEvent { name: event, sandbox }),
        };
        if matches!(&source, EventSource::Log(filter) if filter.fields.len() > EVENT_FIELDS_MAX) {
            return Err(BadTrigger(format!("fields: at most {EVENT_FIELDS_MAX}")));
        }
        Ok(Self { source, overlap })
    }
}

fn word(bytes: &Bytes) -> Result<B256, BadTrigger> {
    if bytes.len() > B256::len_bytes() {
        return Err(BadTrigger("fields: at most 32 bytes each".into()));
    }
    Ok(B256::left_padding_from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: &str, config: &str) -> String {
        Trigger::parse(kind, config).unwrap_err().to_string()
    }

    #[test]
    fn a_bare_expression_is_read_by_utc_and_by_the_defaults() {
        let Ok(Trigger::Cron(cron)) = Trigger::parse("cron", " 0 9 * * 1-5 ") else { panic!("no cron") };
        assert_eq!((cron.cron.as_str(), cron.tz.as_str(), cron.jitter_s), ("0 9 * * 1-5", "UTC", 0));
        assert_eq!((cron.overlap, cron.catch_up), (Overlap::Skip, CatchUp::Latest));
        let config = r#"{"cron":"@daily","tz":"Europe/Berlin","overlap":"queue","catch_up":"all","jitter_s":30}"#;
        let Ok(Trigger::Cron(cron)) = Trigger::parse("cron", config) else { panic!("no cron") };
        assert_eq!((cron.tz.as_str(), cron.overlap, cron.catch_up), ("Europe/Berlin", Overlap::Queue, CatchUp::All));
    }

    #[test]
    fn an_event_is_a_contracts_or_a_sandboxs() {
        let config = r#"{"event":"Transfer(address,address,uint256)","address":"0x5FbDB2315678afecb367f032d93F642f64180aa3",
            "fields":[null,"0x70997970c51812dc3a010c7d01b50e0d17dc79c8"]}"#;
        let Ok(Trigger::Event(event)) = Trigger::parse("event", config) else { panic!("no event") };
        let EventSource::Log(filter) = event.source else { panic!("no log") };
        assert_eq!(filter.topic, keccak256("Transfer(address,address,uint256)"));
        let holder = B256::left_padding_from(&hex::decode("70997970c51812dc3a010c7d01b50e0d17dc79c8").unwrap());
        assert_eq!(filter.fields, [None, Some(holder)]);
        let Ok(Trigger::Event(event)) = Trigger::parse("event", r#"{"event":"sandbox.stopped","sandbox":"sbx-1-2-0"}"#)
        else {
            panic!("no event")
        };
        let EventSource::Lifecycle(found) = event.source else { panic!("no sandbox") };
        assert_eq!(
            (found.name.as_str(), found.sandbox.unwrap().to_string().as_str()),
            ("sandbox.stopped", "sbx-1-2-0")
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(refused("timer", ""), "trigger_type: \"timer\" is none of manual, cron, webhook, event");
        assert!(refused("cron", r#"{"cron":"* * * * *","zone":"UTC"}"#).contains("unknown field `zone`"));
        assert!(refused("event", "").starts_with("trigger_config: "));
        assert!(refused("event", r#"{"event":"Transfer(address)"}"#).contains("address: a contract's event has one"));
        assert!(refused("event", r#"{"event":"x","fields":["0x01"]}"#).contains("fields: a sandbox's event has none"));
        assert!(refused("webhook", r#"{"overlap":"both"}"#).contains("both"));
        let fields = |count: usize| {
            let (fields, address) = (vec!["null"; count].join(","), Address::ZERO);
            format!(r#"{{"event":"E()","address":"{address}","fields":[{fields}]}}"#)
        };
        assert!(Trigger::parse("event", &fields(EVENT_FIELDS_MAX)).is_ok());
        assert!(refused("event", &fields(EVENT_FIELDS_MAX + 1)).contains("fields: at most"));
        let jitter = |seconds: u32| format!(r#"{{"cron":"* * * * *","jitter_s":{seconds}}}"#);
        assert!(Trigger::parse("cron", &jitter(WORKFLOW_JITTER_S_MAX)).is_ok());
        assert!(refused("cron", &jitter(WORKFLOW_JITTER_S_MAX + 1)).contains("jitter_s"));
    }
}
