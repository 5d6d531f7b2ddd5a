//! Moves and rounds as a table that fills while they are argued about.

use std::fmt::Write as _;

use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::Negotiation;

use crate::commands::agents::shown;
use crate::output::harmless;

/// Letters of what stands behind a move's rounds.
const NOTE_LETTERS: usize = 40;

/// All moves.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
    rounds: u32,
}

#[derive(Debug)]
struct Row {
    id: String,
    /// Rounds that are over.
    done: u32,
    /// The critic has spoken in the round behind them.
    half: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Waiting,
    Argued,
    Scored(u32),
    Failed(String),
}

impl Table {
    pub(super) fn new(negotiation: &Negotiation) -> Self {
        let row = |id: &String| Row { id: id.clone(), done: 0, half: false, state: State::Waiting };
        let rows = negotiation.moves.iter().map(|one| row(&one.move_id)).collect();
        Self { rows, rounds: negotiation.max_rounds }
    }

    /// Lines that it takes.
    pub(super) fn lines(&self) -> usize {
        self.rows.len()
    }

    /// Takes an event in. A line about it, where it says something about a move of these.
    pub(super) fn take(&mut self, told: &Told) -> Option<String> {
        match told {
            Told::SandboxRound { move_id, round, status } => {
                let rounds = self.rounds;
                let row = self.row(move_id)?;
                row.state = State::Argued;
                if status == "critic_responded" {
                    row.done = round.saturating_sub(1).min(rounds).max(row.done);
                    row.half = row.done < *round;
                } else {
                    row.done = (*round).min(rounds).max(row.done);
                    row.half = false;
                }
                Some(format!("{move_id} round {round} of {rounds}: {}", harmless(&status.replace('_', " "))))
            }
            Told::SandboxScored { move_id, score, .. } => {
                self.row(move_id)?.state = State::Scored(*score);
                Some(format!("{move_id} scored {score} of 120"))
            }
            Told::SandboxFailed { move_id, message } => {
                self.row(move_id)?.state = State::Failed(message.clone());
                Some(format!("{move_id} failed: {}", shown(message)))
            }
            Told::Warning { message } => Some(format!("warning: {}", shown(message))),
            _ => None,
        }
    }

    /// The table: a sign for each round, `#` over, `+` half over, `.` to come.
    pub(super) fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            let (id, rounds, note) = (&row.id, row.rounds(self.rounds), row.note());
            // Writing to a text does not fail.
            let _written = writeln!(text, "{id:width$}  {rounds}  {note}");
        }
        text
    }

    fn row(&mut self, id: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.id == id)
    }
}

impl Row {
    fn rounds(&self, all: u32) -> String {
        let half = u32::from(self.half && self.done < all);
        let signs = [('#', self.done), ('+', half), ('.', all.saturating_sub(self.done + half))];
        signs.into_iter().flat_map(|(sign, count)| std::iter::repeat_n(sign, count as usize)).collect()
    }

    fn note(&self) -> String {
        match &self.state {
            State::Waiting => "waiting".into(),
            State::Argued => "argued".into(),
            State::Scored(score) => format!("{score}/120"),
            State::Failed(why) => format!("failed: {}", shown(why)).chars().take(NOTE_LETTERS).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::agent::TaskContext;

    use super::*;

    fn table() -> Table {
        let json = serde_json::json!({
            "kind": "negotiation", "ticker": "ACME", "max_rounds": 4,
            "moves": [{"move_id": "a", "content": "x"}, {"move_id": "long", "content": "y"}, {"move_id": "c", "content": "z"}]
        });
        Table::new(&TaskContext::parse(&json.to_string()).unwrap().negotiation.unwrap())
    }

    fn round(id: &str, round: u32, status: &str) -> Told {
        Told::SandboxRound { move_id: id.into(), round, status: status.into() }
    }

    #[test]
    fn the_table_fills_round_by_round() {
        let mut table = table();
        assert_eq!(table.text(), "a     ....  waiting\nlong  ....  waiting\nc     ....  waiting\n");
        let line = table.take(&round("a", 1, "critic_responded"));
        assert_eq!(line.unwrap(), "a round 1 of 4: critic responded");
        table.take(&round("long", 1, "dm_responded"));
        table.take(&round("long", 2, "critic_responded"));
        assert_eq!(table.text(), "a     +...  argued\nlong  #+..  argued\nc     ....  waiting\n");
        table.take(&round("long", 4, "dm_responded"));
        table.take(&Told::SandboxScored { move_id: "long".into(), score: 97, breakdown: serde_json::Value::Null });
        table.take(&Told::SandboxFailed { move_id: "c".into(), message: "no\x1b[2J provider".into() });
        assert_eq!(table.text(), "a     +...  argued\nlong  ####  97/120\nc     ....  failed: no[2J provider\n");
        assert_eq!(table.lines(), 3);
    }

    #[test]
    fn what_comes_late_or_twice_takes_no_round_back() {
        let mut table = table();
        table.take(&round("a", 3, "dm_responded"));
        table.take(&round("a", 2, "critic_responded"));
        assert_eq!(table.rows[0].rounds(4), "###.");
        table.take(&round("a", 9, "dm_responded"));
        assert_eq!(table.rows[0].rounds(4), "####");
    }

    #[test]
    fn moves_of_others_are_passed_over() {
        let mut table = table();
        assert_eq!(table.take(&round("x", 1, "dm_responded")), None);
        assert_eq!(table.take(&Told::Message { text: "a".into() }), None);
    }
}
