//! What happens in a run, in words for people. A model chose many of them, so none may steer the terminal.

use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::report::usd;
use sandbox_protocol::agent::{Decision, RunReply};

use crate::output::harmless;

/// Letters of a call's arguments or of its outcome that are shown.
const SHOWN_LETTERS: usize = 160;

/// What is to be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// To stdout as it is: words of the agent.
    Words(String),
    /// To stderr as it is: what is beside them.
    Aside(String),
}

/// Which line is not at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Words,
    Thoughts,
}

/// Puts the events of one run into words.
#[derive(Debug)]
pub(super) struct Teller {
    /// Whether the agent's words are shown piece by piece.
    live: bool,
    open: Option<Open>,
    spoke: bool,
}

impl Teller {
    pub(super) const fn new(live: bool) -> Self {
        Self { live, open: None, spoke: false }
    }

    /// Whether words of the agent were shown.
    pub(super) const fn spoke(&self) -> bool {
        self.spoke
    }

    /// What is said about an event.
    pub(super) fn tell(&mut self, told: &Told) -> Vec<Said> {
        let piece = match told {
            Told::Message { text } if self.live => Some((Open::Words, text)),
            Told::Reasoning { text } if self.live => Some((Open::Thoughts, text)),
            _ => None,
        };
        let mut said = Vec::new();
        match piece {
            Some((kind, text)) => {
                if self.open != Some(kind) {
                    said.extend(self.close());
                }
                let text = harmless(text);
                self.open = (!text.ends_with('\n')).then_some(kind);
                self.spoke |= kind == Open::Words && !text.is_empty();
                said.push(if kind == Open::Words { Said::Words(text) } else { Said::Aside(text) });
            }
            None => {
                if let Some(line) = line(told) {
                    said.extend(self.close());
                    said.push(Said::Aside(line + "\n"));
                }
            }
        }
        said
    }

    /// The end of the line that is open.
    pub(super) fn close(&mut self) -> Option<Said> {
        Some(match self.open.take()? {
            Open::Words => Said::Words("\n".into()),
            Open::Thoughts => Said::Aside("\n".into()),
        })
    }
}

/// An event in one line; `None` where nothing is to be said.
fn line(told: &Told) -> Option<String> {
    Some(match told {
        Told::Started { run, session_id, backend, model, .. } => {
            let by = [backend.as_str(), model.as_str()].map(harmless).join(" ");
            format!("run {run}, session {session_id}, {}", by.trim())
        }
        Told::ToolCall { name, arguments, .. } => format!("> {}", call(name, arguments)),
        Told::ApprovalRequired { name, arguments, .. } => format!("? {}", call(name, arguments)),
        Told::ApprovalDecided { decision, answered, .. } => {
            let word = match decision {
                Decision::Allow => "allowed",
                Decision::Deny => "denied",
            };
            if *answered { word.to_owned() } else { format!("{word}, as nobody answered") }
        }
        Told::ToolResult { name, content, is_error, duration_ms, .. } => {
            let failed = if *is_error { " failed" } else { "" };
            format!("< {}{failed}, {duration_ms} ms: {}", harmless(name), shown(content))
        }
        Told::Warning { message } => format!("warning: {}", shown(message)),
        Told::SandboxRound { move_id, round, status } => format!("{move_id} round {round}: {}", harmless(status)),
        Told::SandboxScored { move_id, score, .. } => format!("{move_id} scored {score} of 120"),
        Told::SandboxFailed { move_id, message } => format!("{move_id} failed: {}", shown(message)),
        Told::LayerComplete { total_policies_scored, .. } => {
            format!("all moves are through, {total_policies_scored} scored")
        }
        Told::BatchItem { index, state, message } => {
            let why = message.as_deref().map(|message| format!(": {}", shown(message))).unwrap_or_default();
            format!("item {index} {}{why}", state.name())
        }
        Told::MoveDone { move_id } => format!("{move_id} has ended"),
        Told::Message { .. } | Told::Reasoning { .. } | Told::Usage { .. } | Told::Done { .. } => return None,
    })
}

/// What a run took, and in which session one goes on.
pub(super) fn end(reply: &RunReply) -> String {
    let RunReply { turns_used, duration_ms, input_tokens, output_tokens, session_id, .. } = reply;
    let cost = reply.cost_micro_usd.map(|cost| format!(", {}", usd(cost))).unwrap_or_default();
    let turns = if *turns_used == 1 { "turn" } else { "turns" };
    let seconds = format!("{}.{} s", duration_ms / 1_000, duration_ms % 1_000 / 100);
    format!(
        "{turns_used} {turns}, {input_tokens} tokens in, {output_tokens} out{cost}, {seconds}; session {session_id}"
    )
}

/// A call as one sees it coming.
pub(super) fn call(name: &str, arguments: &impl std::fmt::Display) -> String {
    format!("{} {}", harmless(name), shown(&arguments.to_string()))
}

/// The beginning of a text, in one line.
pub(in crate::commands) fn shown(text: &str) -> String {
    let line = harmless(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match line.char_indices().nth(SHOWN_LETTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(teller: &mut Teller, told: Vec<Told>) -> String {
        let mut all = String::new();
        for said in told.iter().flat_map(|told| teller.tell(told)).collect::<Vec<_>>() {
            match said {
                Said::Words(text) => all.push_str(&text),
                Said::Aside(text) => all.push_str(&format!("[{text}]")),
            }
        }
        all
    }

    fn message(text: &str) -> Told {
        Told::Message { text: text.into() }
    }

    fn tool_call() -> Told {
        Told::ToolCall { id: "c".into(), name: "shell".into(), arguments: serde_json::json!({"command": "ls\n-l"}) }
    }

    fn tool_result(is_error: bool) -> Told {
        Told::ToolResult { id: "c".into(), name: "shell".into(), content: "a\nb".into(), is_error, duration_ms: 7 }
    }

    #[test]
    fn words_flow_and_what_is_beside_them_begins_a_line() {
        let events =
            vec![message("I lo"), message("ok."), tool_call(), tool_result(false), tool_result(true), message("So.\n")];
        let mut teller = Teller::new(true);
        let expected = concat!(
            "I look.\n",
            "[> shell {\"command\":\"ls\\n-l\"}\n]",
            "[< shell, 7 ms: a b\n]",
            "[< shell failed, 7 ms: a b\n]",
            "So.\n"
        );
        assert_eq!(told(&mut teller, events.clone()), expected);
        assert!(teller.spoke() && teller.close().is_none());
        let mut quiet = Teller::new(false);
        assert!(
            told(&mut quiet, events).starts_with("[> shell"),
            "where nobody reads along the result is told at the end"
        );
        assert!(!quiet.spoke());
    }

    #[test]
    fn thoughts_and_words_are_told_apart() {
        let mut teller = Teller::new(true);
        let all = told(&mut teller, vec![Told::Reasoning { text: "hm".into() }, message("Yes")]);
        assert_eq!(all, "[hm][\n]Yes");
        assert_eq!(teller.close(), Some(Said::Words("\n".into())));
    }

    #[test]
    fn nothing_that_a_model_says_steers_the_terminal() {
        let mut teller = Teller::new(true);
        assert_eq!(told(&mut teller, vec![message("a\x1b[2J\u{9b}b\r\n")]), "a[2Jb\n");
        let long = Told::Warning { message: "ä".repeat(500) };
        let all = told(&mut teller, vec![long]);
        assert_eq!(all.chars().filter(|letter| *letter == 'ä').count(), SHOWN_LETTERS);
    }

    #[test]
    fn a_decision_says_whether_somebody_made_it() {
        let decided = |answered| Told::ApprovalDecided { id: "c".into(), decision: Decision::Deny, answered };
        let mut teller = Teller::new(true);
        assert_eq!(told(&mut teller, vec![decided(true), decided(false)]), "[denied\n][denied, as nobody answered\n]");
    }

    #[test]
    fn the_end_says_what_it_took() {
        let reply = RunReply {
            turns_used: 2,
            duration_ms: 1_234,
            input_tokens: 10,
            output_tokens: 3,
            session_id: "s".into(),
            cost_micro_usd: Some(1_500),
            ..RunReply::default()
        };
        assert_eq!(end(&reply), "2 turns, 10 tokens in, 3 out, $0.001500, 1.2 s; session s");
    }
}
