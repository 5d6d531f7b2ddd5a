//! One program from its start to its end: its lines are read, its questions asked, its time watched.

use std::time::Instant;

use bytes::Bytes;
use sandbox_agent::model::ToolCall;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunFailure};
use tokio::time::timeout;

use super::limits::{COMPLAINT_BYTES_MAX, PROGRAM_END_MAX};
use super::lines::{Line, Lines};
use super::programs::{Ended, Heard, Launch, Program, ProgramError, Programs};
use super::tally::Failure;
use crate::backend::{Desk, Order};

/// A shell's exit codes for a program that is not there, or is none.
const NO_PROGRAM: [i32; 2] = [126, 127];

/// What a program's lines mean.
pub(super) trait Story: Send {
    /// A line of stdout.
    fn out(&mut self, line: &str, desk: &dyn Desk) -> Step;

    /// A line of stderr.
    fn err(&mut self, line: &str) -> Step;

    /// What the program is told of a call that it asked about.
    fn answer(&self, request: &str, decision: Decision) -> String;
}

/// What follows from a line.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The next.
    GoOn,
    /// The customer is asked, and the program told.
    Ask {
        /// What the program calls its question.
        request: String,
        /// What it is about.
        call: ToolCall,
    },
    /// The program is told this.
    Say(String),
    /// The program is told that nothing follows.
    Close,
    /// The program is ended.
    Stop(Failure),
}

/// How a program's run was over.
#[derive(Debug, PartialEq)]
pub(super) struct Over {
    /// Why it was ended; `None` where it ended by itself.
    pub(super) stopped: Option<Failure>,
    /// How it ended, where that is known.
    pub(super) ended: Option<Ended>,
    /// The last that it complained of.
    pub(super) complaint: String,
}

/// What is driven.
pub(super) struct Drive<'a> {
    pub(super) order: &'a Order,
    pub(super) desk: &'a dyn Desk,
    pub(super) story: &'a mut dyn Story,
    pub(super) program: Box<dyn Program>,
    pub(super) out: Lines,
    pub(super) err: Lines,
    pub(super) complaint: String,
}

/// What a program is told first.
pub(super) struct Opening {
    pub(super) text: String,
    /// Nothing follows.
    pub(super) is_all: bool,
}

/// Runs a program to its end, which is not later than the order's.
pub(super) async fn drive(
    programs: &dyn Programs,
    launch: Launch,
    opening: Opening,
    (order, desk): (&Order, &dyn Desk),
    story: &mut dyn Story,
) -> Over {
    let id = launch.id.clone();
    let begun = async {
        let mut program = programs.start(launch).await?;
        program.say(Bytes::from(opening.text), opening.is_all).await?;
        Ok(program)
    };
    let begun = tokio::select! {
        biased;
        failure = unwanted(order) => Err(failure),
        begun = begun => begun.map_err(|error| not_run(&error)),
    };
    let program = match begun {
        Ok(program) => program,
        Err(failure) => {
            // It may have been started all the same.
            if let Err(error) = programs.end(&id).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "a program may still run");
            }
            return Over { stopped: Some(failure), ended: None, complaint: String::new() };
        }
    };
    let (out, err) = (Lines::default(), Lines::default());
    Drive { order, desk, story, program, out, err, complaint: String::new() }.finish().await
}

impl Drive<'_> {
    async fn finish(mut self) -> Over {
        let stopped = loop {
            let heard = tokio::select! {
                biased;
                failure = unwanted(self.order) => break failure,
                heard = self.program.next() => heard,
            };
            let taken = match heard {
                Ok(Heard::Out(bytes)) => {
                    self.out.add(&bytes);
                    self.take_out().await
                }
                Ok(Heard::Err(bytes)) => {
                    self.err.add(&bytes);
                    self.take_err().await
                }
                Ok(Heard::Ended(ended)) => return self.ended(ended),
                Err(error) => Err(not_run(&error)),
            };
            if let Err(failure) = taken {
                break failure;
            }
        };
        let ended = self.end().await;
        Over { stopped: Some(stopped), ended, complaint: self.complaint }
    }

    async fn take_out(&mut self) -> Result<(), Failure> {
        while let Some(line) = self.out.next() {
            let step = match line {
                Line::Whole(line) if line.trim().is_empty() => Step::GoOn,
                Line::Whole(line) => self.story.out(&line, self.desk),
                Line::TooLong => {
                    let message = "the agent said something too long to be read, which is left out".to_owned();
                    self.desk.tell(Told::Warning { message });
                    Step::GoOn
                }
            };
            self.step(step).await?;
        }
        Ok(())
    }

    async fn take_err(&mut self) -> Result<(), Failure> {
        while let Some(line) = self.err.next() {
            let Line::Whole(line) = line else { continue };
            self.complain(&line);
            let step = self.story.err(&line);
            self.step(step).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::GoOn => Ok(()),
            Step::Ask { request, call } => {
                let decision = tokio::select! {
                    biased;
                    failure = unwanted(self.order) => return Err(failure),
                    decision = self.desk.ask(&call) => decision,
                };
                let answer = self.story.answer(&request, decision);
                self.say(answer, false).await
            }
            Step::Say(text) => self.say(text, false).await,
            Step::Close => self.say(String::new(), true).await,
            Step::Stop(failure) => Err(failure),
        }
    }

    /// A program that does not read any more is at its end, and is heard to be.
    async fn say(&mut self, text: String, is_last: bool) -> Result<(), Failure> {
        let said = tokio::select! {
            biased;
            failure = unwanted(self.order) => return Err(failure),
            said = self.program.say(Bytes::from(text), is_last) => said,
        };
        if let Err(error) = said {
            tracing::debug!(error = &error as &dyn std::error::Error, "a program does not read any more");
        }
        Ok(())
    }

    fn ended(mut self, ended: Ended) -> Over {
        let last = self.err.last();
        self.complain(&last);
        let missing = ended.exit_code.is_some_and(|code| NO_PROGRAM.contains(&code));
        let stopped = if missing {
            Some(not_run(&ProgramError::Missing))
        } else if ended.out_of_memory {
            Some((RunFailure::Internal, "the agent's program used up the sandbox's memory".to_owned()))
        } else {
            None
        };
        Over { stopped, ended: Some(ended), complaint: self.complaint }
    }

    /// Ends the program and waits for it, not for ever: dropped, it is ended once more.
    async fn end(&mut self) -> Option<Ended> {
        let gone = async {
            self.program.end().await.ok()?;
            loop {
                match self.program.next().await {
                    Ok(Heard::Ended(ended)) => return Some(ended),
                    Ok(Heard::Out(_) | Heard::Err(_)) => {}
                    Err(_) => return None,
                }
            }
        };
        timeout(PROGRAM_END_MAX, gone).await.ok().flatten()
    }

    fn complain(&mut self, line: &str) {
        self.complaint.push_str(line);
        self.complaint.push('\n');
        let over = self.complaint.len().saturating_sub(COMPLAINT_BYTES_MAX);
        self.complaint.drain(..self.complaint.ceil_char_boundary(over));
    }
}

/// When nobody wants it any more, or its time is over.
async fn unwanted(order: &Order) -> Failure {
    let late = tokio::time::sleep(order.deadline.saturating_duration_since(Instant::now()));
    tokio::select! {
        () = order.cancel.cancelled() => (RunFailure::Cancelled, "cancelled".to_owned()),
        () = late => (RunFailure::Timeout, "its time was over".to_owned()),
    }
}

/// Why a program is not heard, for a customer.
pub(super) fn not_run(error: &ProgramError) -> Failure {
    match error {
        ProgramError::Missing => {
            (RunFailure::UnknownBackend, "this sandbox's image does not have the backend's program".to_owned())
        }
        ProgramError::Busy(_) => (RunFailure::Internal, "too many programs run in this sandbox".to_owned()),
        ProgramError::Start(_) | ProgramError::Lost(_) => {
            tracing::warn!(error = error as &dyn std::error::Error, "an agent's program is not heard");
            (RunFailure::Internal, error.to_string())
        }
    }
}
