//! The flow of a move: its stages in order, what is told of them, and the report.

use std::time::Duration;

use futures::future::{join, join3};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{CRITIC, Ledger, MoveReport, PolicyScore, Scores};
use tokio::time::Instant;

use super::brief::{Brief, Room};
use super::call::{Call, Maker};
use super::clerk::{Clerk, Ended, Seat, logs};
use super::score::{self, Way};
use crate::model::Usage;

/// Stages of a round and of scoring: what must fit into the time that is left when a round begins.
const STAGES_AHEAD: u32 = 3;

/// Has a move argued about and scored. Whatever happens, there is a report: of what was said and scored by then.
pub async fn negotiate(brief: &Brief, room: &Room<'_>) -> MoveReport {
    let clerk = Clerk::new(brief, room);
    let seats = Maker::ALL.map(|maker| clerk.seat(maker));
    let mut debate = Debate { clerk, seats, opening: Seat::default(), longest_stage: Duration::ZERO };
    let mut errors = Vec::new();
    let ended = debate.argue().await.err();
    errors.extend(ended.as_ref().map(|ended| debate.words_of(ended)));
    let may_score = match ended {
        // Where not even the opening was said there is nothing to judge.
        Some(Ended::Failed(_)) => debate.seats.iter().all(|seat| !seat.log.entries.is_empty()),
        Some(Ended::Cancelled) => false,
        Some(Ended::OutOfTime) => room.deadline.is_none_or(|deadline| Instant::now() < deadline),
        None => true,
    };
    let scores = if may_score { debate.score(&mut errors).await } else { debate.unscored() };
    let unsettled = debate.clerk.settle().await;
    debate.warn(unsettled);
    debate.report(scores, errors)
}

struct Debate<'a> {
    clerk: Clerk<'a>,
    /// In the order of [`Maker::ALL`].
    seats: [Seat; 3],
    /// Where the opening is counted, which all conversations share.
    opening: Seat,
    longest_stage: Duration,
}

impl Debate<'_> {
    /// All rounds.
    async fn argue(&mut self) -> Result<(), Ended> {
        let begun = Instant::now();
        let opening = self.clerk.speak(&mut self.opening, Call::Opening).await?;
        self.longest_stage = begun.elapsed();
        for seat in &mut self.seats {
            seat.log.append(CRITIC, opening.clone(), 1);
        }
        self.tell_round(1, "critic_responded");
        self.defend(1).await?;
        for round in 2..=self.clerk.brief.rounds {
            self.have_time_for(round)?;
            self.attack(round).await?;
            self.defend(round).await?;
        }
        Ok(())
    }

    async fn attack(&mut self, round: u32) -> Result<(), Ended> {
        self.exchange(|maker| (CRITIC, round, Call::Critique { round, maker })).await?;
        self.tell_round(round, "critic_responded");
        Ok(())
    }

    async fn defend(&mut self, round: u32) -> Result<(), Ended> {
        self.exchange(|maker| (maker.id(), round, Call::Defence { round, maker })).await?;
        self.tell_round(round, "dm_responded");
        Ok(())
    }

    /// One stage of a round: all that is said is kept, also where somebody fails.
    async fn exchange(&mut self, of: impl Fn(Maker) -> (&'static str, u32, Call)) -> Result<(), Ended> {
        let spoken = self.stage(|maker| of(maker).2).await;
        let mut all = Ok(());
        for ((seat, maker), spoken) in self.seats.iter_mut().zip(Maker::ALL).zip(spoken) {
            let (role, round, _) = of(maker);
            match spoken {
                Ok(text) => seat.log.append(role, text, round),
                Err(ended) => all = all.and(Err(ended)),
            }
        }
        all
    }

    async fn stage(&mut self, call: impl Fn(Maker) -> Call) -> [Result<String, Ended>; 3] {
        let begun = Instant::now();
        let [one, two, three] = &mut self.seats;
        let speak = |seat, maker| self.clerk.speak(seat, call(maker));
        let speakers = join3(speak(one, Maker::D1), speak(two, Maker::D2), speak(three, Maker::D3));
        // What the stage before said comes to the disk while the model thinks.
        let (unsettled, spoken) = join(self.clerk.settle(), speakers).await;
        self.warn(unsettled);
        self.longest_stage = self.longest_stage.max(begun.elapsed());
        spoken.into()
    }

    /// Notes a warning about the whole, once.
    fn warn(&mut self, warning: Option<String>) {
        self.opening.warnings.extend(warning.filter(|warning| !self.opening.warnings.contains(warning)));
    }

    /// Refuses a round that would leave no time for scores, and one that a former life refused.
    fn have_time_for(&self, round: u32) -> Result<(), Ended> {
        let is_known = Maker::ALL.iter().any(|maker| self.clerk.knows(Call::Critique { round, maker: *maker }));
        let has_scores = Maker::ALL.iter().any(|maker| self.clerk.knows(Call::Scoring { maker: *maker }));
        let ends = Instant::now() + self.longest_stage * STAGES_AHEAD;
        let is_late = has_scores || self.clerk.room.deadline.is_some_and(|deadline| deadline < ends);
        if is_late && !is_known { Err(Ended::OutOfTime) } else { Ok(()) }
    }

    /// The decision makers' scores; neutral for those that give none, which is counted.
    async fn score(&mut self, errors: &mut Vec<String>) -> [Scores; 3] {
        let spoken = self.stage(|maker| Call::Scoring { maker }).await;
        errors.extend(spoken.iter().filter_map(|spoken| Some(self.words_of(spoken.as_ref().err()?))));
        errors.dedup();
        let mut scores =
            spoken.map(|spoken| spoken.map_or((Scores::neutral(), Way::Neutral), |text| score::read(&text)));
        for (seat, (_, way)) in self.seats.iter_mut().zip(&mut scores) {
            way.count(&mut seat.ledger);
        }
        scores.map(|(scores, _)| scores)
    }

    fn unscored(&mut self) -> [Scores; 3] {
        self.seats.iter_mut().for_each(|seat| Way::Neutral.count(&mut seat.ledger));
        Maker::ALL.map(|_| Scores::neutral())
    }

    /// Tells how it ended, and reports.
    fn report(self, scores: [Scores; 3], errors: Vec<String>) -> MoveReport {
        let move_id = &self.clerk.brief.one.move_id;
        let score = PolicyScore::of(move_id, scores);
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        let (rounds, ledger) = (self.rounds(), self.ledger());
        if let Some(message) = error.clone() {
            self.tell(Told::SandboxFailed { move_id: move_id.clone(), message });
        }
        let neutral = Maker::ALL.len() as u32;
        if ledger.scores_neutral < neutral || error.is_none() {
            // Names and numbers always have a form in JSON.
            let breakdown = serde_json::to_value(&score.scores_by_agent).unwrap_or_default();
            self.tell(Told::SandboxScored { move_id: move_id.clone(), score: score.total_score, breakdown });
        }
        self.tell_usage(&ledger);
        let logs = logs(move_id, &self.seats);
        let warnings = [self.opening].into_iter().chain(self.seats).flat_map(|seat| seat.warnings).collect();
        MoveReport { score, transcript_hash: logs.hash(), logs, rounds, error, ledger, warnings }
    }

    /// Rounds that all decision makers have answered.
    fn rounds(&self) -> u32 {
        self.seats.iter().zip(Maker::ALL).map(|(seat, maker)| seat.log.rounds(maker)).min().unwrap_or(0)
    }

    fn ledger(&self) -> Ledger {
        let mut sum = self.opening.ledger.clone();
        self.seats.iter().for_each(|seat| sum += &seat.ledger);
        let usage = Usage { input_tokens: sum.input_tokens, output_tokens: sum.output_tokens };
        sum.cost_micro_usd = (self.clerk.room.price)(usage);
        sum
    }

    fn words_of(&self, ended: &Ended) -> String {
        match ended {
            Ended::Failed(reason) => reason.clone(),
            Ended::Cancelled => {
                format!("cancelled with {} of {} rounds completed", self.rounds(), self.clerk.brief.rounds)
            }
            Ended::OutOfTime => {
                format!("out of time with {} of {} rounds completed", self.rounds(), self.clerk.brief.rounds)
            }
        }
    }

    fn tell_round(&self, round: u32, status: &str) {
        let move_id = self.clerk.brief.one.move_id.clone();
        self.tell(Told::SandboxRound { move_id, round, status: status.to_owned() });
        self.tell_usage(&self.ledger());
    }

    fn tell_usage(&self, ledger: &Ledger) {
        let Ledger { input_tokens, output_tokens, cost_micro_usd, .. } = *ledger;
        self.tell(Told::Usage { input_tokens, output_tokens, cost_micro_usd });
    }

    fn tell(&self, told: Told) {
        (self.clerk.room.tell)(told);
    }
}
