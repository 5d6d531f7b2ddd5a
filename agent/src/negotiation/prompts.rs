//! What the model is told in each call, in the design's words.

use super::brief::Brief;
use super::call::{Call, Maker};
use super::log::{Log, forgery_proof};
use super::personas::CLERK;
use super::quote::{Fence, RULE};

/// The words of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) system: String,
    pub(super) user: String,
}

/// The words of a call about a conversation.
pub(super) fn words(brief: &Brief, log: &Log, call: Call) -> Words {
    let (persona, user) = match call {
        Call::Opening => (brief.personas.critic.as_str(), opening(brief)),
        Call::Critique { round, maker } => (brief.personas.critic.as_str(), critique(brief, log, (round, maker))),
        Call::Defence { maker, .. } => (of(brief, maker), defence(brief, log)),
        Call::Scoring { maker } => (of(brief, maker), scoring(brief, log, maker)),
        Call::Summary { through, .. } => (CLERK, summary(brief, log, through)),
    };
    let system = if brief.quotes { format!("{persona}\n\n{RULE}") } else { persona.to_owned() };
    Words { system, user }
}

fn of(brief: &Brief, maker: Maker) -> &str {
    &brief.personas.decision_makers[maker.index()].system_prompt
}

fn opening(brief: &Brief) -> String {
    let fence = Fence::around(brief, &[&brief.one.content]);
    format!(
        "{}Here is a proposed business move for {}:\n\n{}\n\n\
         Provide your initial counterpoints to this move. Challenge the reasoning, question the evidence, and identify risks.",
        fence.announcement(),
        brief.ticker,
        fence.block("MOVE", &brief.one.content),
    )
}

fn defence(brief: &Brief, log: &Log) -> String {
    let (fence, transcript) = fenced(brief, log);
    format!(
        "{}You are defending this business move for {}:\n\n{}\n\n\
         Here is the negotiation transcript so far:\n\n{transcript}\n\n\
         Respond to the critic's latest points. Defend the move where you believe it has merit, and concede where the critic \
         makes valid points.",
        fence.announcement(),
        brief.ticker,
        fence.block("MOVE", &brief.one.content),
    )
}

fn critique(brief: &Brief, log: &Log, (round, maker): (u32, Maker)) -> String {
    let (fence, transcript) = fenced(brief, log);
    let id = maker.id();
    format!(
        "{}You are in round {round} of negotiation about this move for {}:\n\n{}\n\n\
         Your conversation with {id} ({}) so far:\n\n{transcript}\n\n\
         Respond to {id}'s latest rebuttal. If they made good points, acknowledge them. If they dodged your concerns, press \
         harder. Raise new counterpoints if you see additional weaknesses.",
        fence.announcement(),
        brief.ticker,
        fence.block("MOVE", &brief.one.content),
        brief.personas.decision_makers[maker.index()].name,
    )
}

fn scoring(brief: &Brief, log: &Log, maker: Maker) -> String {
    let (fence, transcript) = fenced(brief, log);
    let rounds = match log.rounds(maker) {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    format!(
        "{}You have just completed {rounds} of negotiation about this business move:\n\n{}\n\n\
         Your full negotiation transcript:\n\n{transcript}\n\n{SCORES}",
        fence.announcement(),
        fence.block("MOVE", &brief.one.content),
    )
}

/// What a decision maker is to score, and in which form.
const SCORES: &str = r#"Now score this move on the following 4 metrics, each out of 10. Be OBJECTIVE: reflect what you genuinely believe after the full debate, not just your initial position. If the critic raised valid concerns that you could not fully address, let that reflect in your scores.

Metrics:
1. Impact (1-10): How significant is the effect on the company's growth, revenue, or market position?
2. Feasibility (1-10): How realistic is it to execute given current resources, timeline, and constraints?
3. Risk-Adjusted Return (1-10): How favorable is the potential upside relative to the downside exposure?
4. Strategic Alignment (1-10): How well does the move fit the company's long-term direction?

Respond ONLY with valid JSON in this exact format:
{
    "impact": <int>,
    "feasibility": <int>,
    "risk_adjusted_return": <int>,
    "strategic_alignment": <int>,
    "reasoning": "<1-2 sentence justification for your scores>"
}"#;

/// Of the rounds behind the last summary, through this one, and of that summary.
fn summary(brief: &Brief, log: &Log, through: u32) -> String {
    let first = log.summary.as_ref().map_or(2, |summary| summary.through + 1);
    let rounds = forgery_proof(&log.of_rounds(first, through));
    let former = log.summary.as_ref().map(|summary| summary.shown());
    let fence = Fence::around(brief, &[&rounds, former.as_deref().unwrap_or_default()]);
    let former = former.map_or(String::new(), |former| {
        format!("The minutes of the rounds before:\n\n{}\n\n", fence.block("MINUTES", &former))
    });
    format!(
        "{}{former}What was said in rounds {first} to {through} of the negotiation about a move for {}:\n\n{}\n\n\
         Write the minutes of rounds 2 to {through} in at most 400 words; they take the place of what you were shown. Keep \
         every claim, objection, concession, figure and open question, and who made it.",
        fence.announcement(),
        brief.ticker,
        fence.block("TRANSCRIPT", &rounds),
    )
}

/// The marks of a message about a conversation, and the conversation between them.
fn fenced(brief: &Brief, log: &Log) -> (Fence, String) {
    let shown = log.shown();
    let fence = Fence::around(brief, &[&brief.one.content, &shown]);
    let transcript = fence.block("TRANSCRIPT", &shown);
    (fence, transcript)
}
