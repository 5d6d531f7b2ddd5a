//! The `context_json` that goes with a prompt or task: a file's, and what options say.

use std::path::Path;

use sandbox_protocol::agent::negotiation::Negotiation;
use sandbox_protocol::agent::{Secret, TaskContext};
use sandbox_sdk::requests::RequestError;
use serde_json::{Map, Value};

use crate::args::NegotiateArgs;
use crate::commands::sandboxes::read_text;
use crate::failure::Failure;
use crate::settings::Settings;

/// What options say; empty is nothing.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    pub(crate) backend: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) key: Option<Secret>,
}

/// The context of a file, with what is asked for besides. Empty where neither says anything.
pub(super) fn of(file: Option<&Path>, asked: Asked<'_>) -> Result<String, Failure> {
    let object = match file {
        Some(path) => match value_in(path)? {
            Value::Object(object) => object,
            _ => return Err(Failure::usage(format!("{} holds no JSON object", path.display()))),
        },
        None => Map::new(),
    };
    let object = with(object, asked)?;
    let json = if object.is_empty() { String::new() } else { Value::Object(object).to_string() };
    TaskContext::parse(&json).map_err(RequestError::from)?;
    Ok(json)
}

/// The context of a negotiation: of a file that holds its moves, or all of it.
pub(crate) fn of_negotiation(args: &NegotiateArgs, key: Option<Secret>) -> Result<(String, Negotiation), Failure> {
    negotiation(value_in(&args.moves)?, args, key)
}

fn negotiation(value: Value, args: &NegotiateArgs, key: Option<Secret>) -> Result<(String, Negotiation), Failure> {
    let mut object = match value {
        Value::Array(moves) => Map::from_iter([("moves".to_owned(), Value::Array(moves))]),
        Value::Object(object) => object,
        _ => return Err(Failure::usage("the moves are neither an array nor the object of a negotiation".into())),
    };
    object.entry("kind").or_insert_with(|| "negotiation".into());
    if let Some(ticker) = &args.ticker {
        object.insert("ticker".into(), ticker.as_str().into());
    }
    if !object.contains_key("ticker") {
        return Err(Failure::usage("the moves are of no company: name it with --ticker".into()));
    }
    if let Some(rounds) = args.rounds {
        object.insert("max_rounds".into(), rounds.into());
    }
    if let Some(concurrency) = args.concurrency {
        object.insert("concurrency".into(), concurrency.into());
    }
    let json = Value::Object(with(object, Asked { key, ..Asked::default() })?).to_string();
    let parsed = TaskContext::parse(&json).map_err(RequestError::from)?;
    let none = || Failure::usage("the file holds the context of something else than a negotiation".into());
    Ok((json, parsed.negotiation.ok_or_else(none)?))
}

/// Refuses to publish a key: what is not sealed is on chain for everybody and for ever.
pub(crate) fn confided(json: &str, settings: &Settings) -> Result<(), Failure> {
    let context = TaskContext::parse(json).map_err(RequestError::from)?;
    let has_key = context.provider.is_some_and(|provider| provider.api_key.is_some());
    if has_key && !settings.seals() {
        return Err(Failure::usage("with --plain the provider's key would be public on chain".into()));
    }
    Ok(())
}

fn with(mut object: Map<String, Value>, asked: Asked<'_>) -> Result<Map<String, Value>, Failure> {
    for (name, text) in [("agent_backend", asked.backend), ("agent_identifier", asked.agent)] {
        if !text.is_empty() {
            object.insert(name.into(), text.into());
        }
    }
    if let Some(key) = asked.key {
        let provider = object.entry("provider").or_insert_with(|| Map::new().into());
        let wrong = || Failure::usage("the context's provider is no object".into());
        provider.as_object_mut().ok_or_else(wrong)?.insert("api_key".into(), key.reveal().into());
    }
    Ok(object)
}

fn value_in(path: &Path) -> Result<Value, Failure> {
    let text = read_text(path)?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{} holds no JSON: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::args::{Args, Command};

    fn args(options: &str) -> NegotiateArgs {
        let words = format!("sandbox negotiate sbx-1-2-0 m.json{options}");
        match Args::try_parse_from(words.split(' ')).unwrap().command {
            Command::Negotiate(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(value: Value, options: &str, refusal: &str) {
        assert_eq!(negotiation(value, &args(options), None).unwrap_err().to_string(), refusal);
    }

    #[test]
    fn moves_alone_need_a_company_and_options_win_over_the_file() {
        let moves = json!([{"id": "m1", "content": "a"}, {"move_id": "m2", "content": "b"}]);
        check(moves.clone(), "", "the moves are of no company: name it with --ticker");
        let (_, read) = negotiation(moves.clone(), &args(" --ticker ACME"), None).unwrap();
        assert_eq!((read.ticker.as_str(), read.max_rounds, read.moves[0].move_id.as_str()), ("ACME", 10, "m1"));
        let whole = json!({"kind": "negotiation", "ticker": "X", "moves": moves, "max_rounds": 3});
        let (_, read) = negotiation(whole.clone(), &args(" --rounds 2 --concurrency 7"), None).unwrap();
        assert_eq!((read.ticker.as_str(), read.max_rounds, read.concurrency), ("X", 2, 7));
        assert_eq!(negotiation(whole, &args(""), None).unwrap().1.max_rounds, 3);
    }

    #[test]
    fn what_cannot_be_argued_about_is_refused_by_its_field_before_it_is_paid() {
        let options = " --ticker ACME";
        check(json!([]), options, "context_json: moves: 1 to 64 are argued about");
        let twice = json!([{"id": "m1", "content": "a"}, {"id": "M1", "content": "b"}]);
        check(twice, options, "context_json: moves[1].move_id: M1 names another move already");
        check(json!("m1"), options, "the moves are neither an array nor the object of a negotiation");
        let moves = json!([{"id": "m1", "content": "a"}]);
        check(moves, " --ticker A/B", "context_json: ticker: 1 to 16 letters, digits, dots and dashes");
    }

    #[test]
    fn a_key_joins_the_provider_that_the_file_names() {
        let moves = json!([{"id": "m1", "content": "a"}]);
        let whole = json!({"ticker": "X", "moves": moves, "provider": {"kind": "ollama"}});
        let (json, _) = negotiation(whole, &args(""), Some(Secret::new("k"))).unwrap();
        let context = TaskContext::parse(&json).unwrap().provider.unwrap();
        assert_eq!((context.api_key.unwrap().reveal(), context.kind.is_some()), ("k", true));
        assert_eq!(of(None, Asked::default()).unwrap(), "");
        let json = of(None, Asked { backend: "native", agent: "coder", key: None }).unwrap();
        assert_eq!(json, r#"{"agent_backend":"native","agent_identifier":"coder"}"#);
    }
}
