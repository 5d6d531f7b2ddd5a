//! Which executions live on a connection of the execution protocol, read off the few words that begin and end them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sandbox_fleet::activity::{Activity, Use};
use sandbox_protocol::fsp::is_execution_id;
use serde::Deserialize;

use super::Fate;
use crate::limits::API_RELAY_FOLLOWED_MAX;

/// What messages of output begin with, as sandboxes write them: they are the bulk, and are not read.
const OUTPUTS: [&str; 2] = [r#"{"v":1,"type":"stdout""#, r#"{"v":1,"type":"stderr""#];

/// The executions that live. While there are some the sandbox is in use, also when they say nothing.
#[derive(Debug)]
pub(super) struct Followed {
    ids: BTreeSet<String>,
    fate: Fate,
    activity: Activity,
    _use: Option<Use>,
}

/// What a message is, as far as it matters for whether the sandbox is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// That somebody is there.
    SignOfLife,
    /// Something else.
    Anything,
}

/// What is read of a message.
#[derive(Deserialize)]
struct Words<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    detach: bool,
}

impl Followed {
    /// None live.
    pub(super) const fn new(fate: Fate, activity: Activity) -> Self {
        Self { ids: BTreeSet::new(), fate, activity, _use: None }
    }

    /// Takes note of what a client says.
    pub(super) fn client_says(&mut self, text: &str) -> Said {
        let Ok(words) = serde_json::from_str::<Words<'_>>(text) else { return Said::Anything };
        match (&*words.kind, words.id) {
            ("ping", _) => return Said::SignOfLife,
            ("execute", Some(id)) if !words.detach || self.fate == Fate::End => self.begins(&id),
            ("attach", Some(id)) => self.begins(&id),
            _ => {}
        }
        Said::Anything
    }

    /// Takes note of what a sandbox says.
    pub(super) fn sandbox_says(&mut self, text: &str) -> Said {
        if OUTPUTS.iter().any(|output| text.starts_with(output)) {
            return Said::Anything;
        }
        let Ok(words) = serde_json::from_str::<Words<'_>>(text) else { return Said::Anything };
        match (&*words.kind, words.id) {
            ("pong", _) => return Said::SignOfLife,
            ("result" | "error" | "detached", Some(id)) => self.ends(&id),
            _ => {}
        }
        Said::Anything
    }

    /// Those that live.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(String::as_str)
    }

    /// One more than can be followed is told of its end by that of the connection.
    fn begins(&mut self, id: &str) {
        if is_execution_id(id) && self.ids.len() < API_RELAY_FOLLOWED_MAX {
            self.ids.insert(id.to_owned());
            self._use.get_or_insert_with(|| self.activity.begin());
        }
    }

    fn ends(&mut self, id: &str) {
        self.ids.remove(id);
        if self.ids.is_empty() {
            self._use = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::fsp::{
        ClientMessage, Ended, ErrorCode, Execute, Extra, Language, Limits, Load, ServerBody, ServerMessage, Stream,
        encode_client, encode_server,
    };

    use super::*;

    fn execute(id: &str, detach: bool) -> String {
        let extra = Extra { detach, ..Extra::default() };
        let (language, code) = (Language::Shell, r#""type":"ping","id":"other""#.to_owned());
        let (stdin, env, limits) = (None, Default::default(), Limits::default());
        encode_client(
            &ClientMessage::Execute(Box::new(Execute { id: id.into(), language, code, stdin, env, limits, extra })),
            0,
        )
    }

    fn server(id: Option<&str>, body: ServerBody) -> String {
        encode_server(&ServerMessage { id: id.map(str::to_owned), seq: None, body }, 0)
    }

    fn error(id: Option<&str>) -> String {
        server(id, ServerBody::Error { code: ErrorCode::InvalidRequest, message: "no".into(), retryable: false })
    }

    fn result(id: &str) -> String {
        let ended = Ended { exit_code: Some(0), signal: None, duration_ms: 1, resource_usage: None };
        server(Some(id), ServerBody::Result(ended))
    }

    fn living(followed: &Followed) -> Vec<&str> {
        assert_eq!(followed._use.is_some(), !followed.ids.is_empty());
        followed.ids().collect()
    }

    #[test]
    fn an_execution_lives_from_its_execute_to_its_result_or_error() {
        let mut followed = Followed::new(Fate::Replay, Activity::default());
        for id in ["a", "b", "c"] {
            followed.client_says(&execute(id, false));
        }
        followed.client_says(&execute("d", true));
        assert_eq!(living(&followed), ["a", "b", "c"], "one that is detached is not this connection's");
        followed.sandbox_says(&server(Some("a"), ServerBody::Ack));
        followed.sandbox_says(&result("a"));
        followed.sandbox_says(&error(None));
        followed.sandbox_says(&error(Some("b")));
        assert_eq!(living(&followed), ["c"]);
        followed.sandbox_says(&server(Some("c"), ServerBody::Detached));
        followed.client_says(&encode_client(
            &ClientMessage::Attach { id: "e".into(), after_seq: 0, credit_bytes: None },
            0,
        ));
        assert_eq!(living(&followed), ["e"]);
        followed.sandbox_says(&result("e"));
        assert_eq!(living(&followed), Vec::<&str>::new());
    }

    #[test]
    fn nothing_is_detached_without_replay() {
        let mut followed = Followed::new(Fate::End, Activity::default());
        followed.client_says(&execute("a", true));
        assert_eq!(living(&followed), ["a"]);
    }

    #[test]
    fn what_a_program_prints_is_never_taken_for_an_ending() {
        let mut followed = Followed::new(Fate::Replay, Activity::default());
        followed.client_says(&execute("a", false));
        for stream in [Stream::Stdout, Stream::Stderr] {
            let text = server(Some("a"), ServerBody::Output(stream, result("a").into()));
            assert!(OUTPUTS.iter().any(|output| text.starts_with(output)), "{text}");
            followed.sandbox_says(&text);
            followed.sandbox_says(&text.replacen('{', "{ ", 1));
        }
        assert_eq!(living(&followed), ["a"]);
    }

    #[test]
    fn messages_of_other_shapes_begin_and_end_nothing() {
        let mut followed = Followed::new(Fate::Replay, Activity::default());
        for text in [
            "",
            "[]",
            "{}",
            "x",
            r#"{"type":"execute"}"#,
            r#"{"type":"execute","id":7}"#,
            r#"{"type":"execute","id":"a b"}"#,
        ] {
            assert_eq!(followed.client_says(text), Said::Anything);
            assert_eq!(followed.sandbox_says(text), Said::Anything);
        }
        assert_eq!(living(&followed), Vec::<&str>::new());
        followed.client_says(r#"{"id":"\u0061","v":1,"code":"x","type":"\u0065xecute"}"#);
        assert_eq!(living(&followed), ["a"], "however it is written");
    }

    #[test]
    fn pings_and_pongs_are_signs_of_life() {
        let mut followed = Followed::new(Fate::Replay, Activity::default());
        assert_eq!(followed.client_says(&encode_client(&ClientMessage::Ping, 0)), Said::SignOfLife);
        assert_eq!(followed.sandbox_says(&server(None, ServerBody::Pong(Load::default()))), Said::SignOfLife);
        assert_eq!(followed.client_says(&execute("a", false)), Said::Anything);
    }

    #[test]
    fn as_many_are_followed_as_a_sandbox_takes() {
        let mut followed = Followed::new(Fate::Replay, Activity::default());
        for number in 0..=API_RELAY_FOLLOWED_MAX {
            followed.client_says(&execute(&number.to_string(), false));
        }
        assert_eq!(followed.ids().count(), API_RELAY_FOLLOWED_MAX);
        assert!(!followed.ids.contains(&API_RELAY_FOLLOWED_MAX.to_string()));
    }
}
