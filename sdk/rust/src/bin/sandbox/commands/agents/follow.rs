//! A run as it goes on: what happens is told, who asks is answered, and an interrupt ends the run.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use bytes::Bytes;
use sandbox_protocol::SandboxId;
use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::agent::{Decision, RunReply};
use sandbox_sdk::api::ApiError;
use sandbox_sdk::api::inside::{Inside, RunEvents};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::tell::{self, Said, Teller};
use super::way_back;
use crate::args::ApprovalArgs;
use crate::commands::streams::{self, Signals};
use crate::failure::{Exit, Failure};
use crate::output::{Output, harmless};

/// What this program is to a run.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// It started it: an interrupt ends it.
    Master { sandbox: SandboxId },
    /// It looks on, and says each event to programs.
    Watcher,
}

/// Who answers a tool call that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approvals {
    /// Whoever sits at the terminal.
    Person,
    /// An option of the command line.
    Always(Decision),
    /// Nobody: what the profile says holds.
    Nobody,
}

impl Approvals {
    pub(super) fn new(args: ApprovalArgs) -> Self {
        let is_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        match (args.approve, args.deny) {
            (true, _) => Self::Always(Decision::Allow),
            (false, true) => Self::Always(Decision::Deny),
            (false, false) if is_there => Self::Person,
            (false, false) => Self::Nobody,
        }
    }
}

/// What was asked for at the sandbox.
type Act = Result<(), ApiError>;

/// A run that is followed.
struct View<'a> {
    inside: &'a Inside,
    run: String,
    approvals: Approvals,
    output: &'a Output,
    teller: Teller,
    questions: Questions,
    acts: JoinSet<Act>,
    interrupted: bool,
}

/// Follows a run to its end and tells how it ended; `None` for a move of a negotiation, which has no reply.
pub(super) async fn follow(
    (inside, mut events): (&Inside, RunEvents),
    role: Role,
    approvals: Approvals,
    output: &Output,
) -> Result<Option<RunReply>, Failure> {
    let mut signals = match role {
        Role::Master { .. } => Some(Signals::new()?),
        Role::Watcher => None,
    };
    let (run, teller) = (events.run().to_owned(), Teller::new(output.is_live()));
    let (questions, acts) = (Questions::default(), JoinSet::new());
    let mut view = View { inside, run, approvals, output, teller, questions, acts, interrupted: false };
    let ended = loop {
        let signal = async {
            match &mut signals {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.next() => match event {
                Ok(Some(event)) => {
                    let ended = event.told.is_last();
                    if let Some(reply) = view.take(event, role)? {
                        break Some(reply);
                    }
                    if ended {
                        break None;
                    }
                }
                Ok(None) => break None,
                Err(error) => return Err(view.lost(error, role)),
            },
            _ = signal => view.interrupt()?,
            Some(done) = view.acts.join_next() => view.acted(done),
            line = view.questions.answered() => view.decided(&line),
        }
    };
    view.close(ended.as_ref(), role)?;
    Ok(ended)
}

impl View<'_> {
    /// Tells an event, answers it where it asks, and hands on how the run ended.
    fn take(&mut self, event: RunEvent, role: Role) -> Result<Option<RunReply>, Failure> {
        if self.output.is_json() && matches!(role, Role::Watcher) {
            self.output.result("", &event)?;
        }
        self.say(&event.told)?;
        match event.told {
            // A run that was not there yet could not be ended.
            Told::Started { .. } if self.interrupted => self.cancel(),
            Told::ApprovalRequired { id, name, arguments, .. } => self.asked(id, tell::call(&name, &arguments)),
            Told::ApprovalDecided { id, .. } => self.questions.drop_one(&id),
            Told::Done { reply } => return Ok(Some(reply)),
            _ => {}
        }
        Ok(None)
    }

    fn say(&mut self, told: &Told) -> Result<(), Failure> {
        if self.output.is_json() {
            return Ok(());
        }
        for said in self.teller.tell(told) {
            print(said, self.output)?;
        }
        Ok(())
    }

    fn asked(&mut self, call: String, what: String) {
        match self.approvals {
            Approvals::Always(decision) => self.decide(call, decision),
            Approvals::Person => self.questions.add(call, what),
            Approvals::Nobody => {}
        }
    }

    fn decided(&mut self, line: &str) {
        let decision = if is_yes(line) { Decision::Allow } else { Decision::Deny };
        if let Some(call) = self.questions.next() {
            self.decide(call, decision);
        }
    }

    fn decide(&mut self, call: String, decision: Decision) {
        let (inside, run) = (self.inside.clone(), self.run.clone());
        self.acts.spawn(async move { inside.decide(&run, &call, decision).await });
    }

    /// The first interrupt ends the run, the second this program.
    fn interrupt(&mut self) -> Result<(), Failure> {
        if self.interrupted {
            let message = "left while the run was being cancelled".to_owned();
            return Err(Failure { exit: Exit::Interrupted, code: "interrupted".into(), message, retryable: false });
        }
        self.interrupted = true;
        self.output.notice("\nsandbox: cancelling the run; once more leaves it");
        self.cancel();
        Ok(())
    }

    fn cancel(&mut self) {
        let (inside, run) = (self.inside.clone(), self.run.clone());
        self.acts.spawn(async move { inside.cancel_run(&run).await.map(drop) });
    }

    /// What was asked for may have been too late, which the events tell.
    fn acted(&self, done: Result<Act, tokio::task::JoinError>) {
        if let Ok(Err(error)) = done {
            self.output.notice(&format!("sandbox: {error}"));
        }
    }

    fn lost(&self, error: ApiError, role: Role) -> Failure {
        if let (true, Role::Master { sandbox }) = (error.retryable(), role) {
            self.output.notice(&way_back(sandbox, &self.run));
        }
        error.into()
    }

    /// What is said at the end, of which the result is told once.
    fn close(&mut self, reply: Option<&RunReply>, role: Role) -> Result<(), Failure> {
        if let Some(open) = self.teller.close() {
            print(open, self.output)?;
        }
        let Some(reply) = reply else { return Ok(()) };
        if self.output.is_json() && matches!(role, Role::Watcher) {
            return Ok(());
        }
        let is_told = !self.output.is_json() && (self.teller.spoke() || reply.result.is_empty());
        if !is_told {
            let text = if self.output.is_live() { harmless(&reply.result) } else { reply.result.clone() };
            self.output.result(&text, reply)?;
        }
        self.output.aside(&(tell::end(reply) + "\n"));
        Ok(())
    }
}

fn print(said: Said, output: &Output) -> Result<(), Failure> {
    match said {
        Said::Words(text) => output.streams(text.as_bytes(), &[]),
        Said::Aside(text) => {
            output.aside(&text);
            Ok(())
        }
    }
}

/// Calls that wait for the word of whoever sits at the terminal, one asked at a time.
#[derive(Default)]
struct Questions {
    waiting: VecDeque<(String, String)>,
    typed: Option<mpsc::Receiver<std::io::Result<Bytes>>>,
}

impl Questions {
    fn add(&mut self, call: String, what: String) {
        self.waiting.push_back((call, what));
        if self.waiting.len() == 1 {
            self.ask();
        }
    }

    /// The call whose question is answered; the next is asked.
    fn next(&mut self) -> Option<String> {
        let (call, _) = self.waiting.pop_front()?;
        self.ask();
        Some(call)
    }

    /// Forgets a call that was decided otherwise.
    fn drop_one(&mut self, call: &str) {
        let was_asked = self.waiting.front().is_some_and(|(front, _)| front == call);
        self.waiting.retain(|(waiting, _)| waiting != call);
        if was_asked {
            self.ask();
        }
    }

    fn ask(&self) {
        if let Some((_, what)) = self.waiting.front() {
            eprint!("allow {what} ? [y/N] ");
        }
    }

    /// A line that was typed while something was asked.
    async fn answered(&mut self) -> String {
        if self.waiting.is_empty() {
            return std::future::pending().await;
        }
        match self.typed.get_or_insert_with(streams::stdin).recv().await {
            Some(Ok(line)) => String::from_utf8_lossy(&line).into_owned(),
            // Nobody is there any more: what the profile says holds.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// How this program ends for a run that it only looked at.
pub(super) fn seen(reply: Option<&RunReply>) -> Result<ExitCode, Failure> {
    match reply.and_then(crate::failure::of_run) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        assert!(["y\n", "Y", " yes \n"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "yep", "y n"].into_iter().any(is_yes));
    }

    #[test]
    fn questions_are_asked_one_by_one_and_forgotten_when_they_are_decided() {
        let mut questions = Questions::default();
        for call in ["a", "b", "c"] {
            questions.add(call.into(), "shell".into());
        }
        questions.drop_one("b");
        assert_eq!((questions.next(), questions.next(), questions.next()), (Some("a".into()), Some("c".into()), None));
    }
}
