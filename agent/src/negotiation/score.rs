//! What a decision maker wrote, read as scores: as it was asked to write them, else as well as can be.

use std::collections::HashMap;

use regex::Regex;
use sandbox_protocol::agent::negotiation::{Ledger, Scores};
use serde::Deserialize;

use crate::limits::NEGOTIATION_SCORE_OBJECTS_MAX;

/// Best and worst of a metric.
const RANGE: std::ops::RangeInclusive<u32> = 1..=10;

/// By which way scores were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As they were asked for.
    Strict,
    /// As JSON between other words, such as a fenced block.
    Fenced,
    /// Number by number, beside the names of metrics.
    ByName,
    /// Not at all.
    Neutral,
}

impl Way {
    pub(super) fn count(self, ledger: &mut Ledger) {
        match self {
            Self::Strict => (),
            Self::Fenced => ledger.scores_from_fence += 1,
            Self::ByName => ledger.scores_by_regex += 1,
            Self::Neutral => ledger.scores_neutral += 1,
        }
    }
}

/// The scores of a text. A metric that is missing, no integer or out of range makes a way fail, and the next one is tried.
pub(super) fn read(text: &str) -> (Scores, Way) {
    let ways = [(strict as fn(&str) -> Option<Scores>, Way::Strict), (fenced, Way::Fenced), (by_name, Way::ByName)];
    let read = ways.into_iter().find_map(|(read, way)| Some((read(text)?, way)));
    read.unwrap_or((Scores::neutral(), Way::Neutral))
}

/// As models are asked to write them.
#[derive(Deserialize)]
struct Written {
    impact: u32,
    feasibility: u32,
    risk_adjusted_return: u32,
    strategic_alignment: u32,
    #[serde(default)]
    reasoning: Option<String>,
}

impl Written {
    fn sound(self) -> Option<Scores> {
        let Self { impact, feasibility, risk_adjusted_return, strategic_alignment, reasoning } = self;
        let scores = Scores { impact, feasibility, risk_adjusted_return, strategic_alignment, reasoning };
        scores.metrics().iter().all(|metric| RANGE.contains(metric)).then_some(scores)
    }
}

fn strict(text: &str) -> Option<Scores> {
    serde_json::from_str::<Written>(text).ok()?.sound()
}

/// The last object of the text that holds scores: what comes first may be an example or a first thought.
fn fenced(text: &str) -> Option<Scores> {
    let object_at = |(start, _): (usize, &str)| {
        let mut objects = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Written>();
        objects.next()?.ok()?.sound()
    };
    text.rmatch_indices('{').take(NEGOTIATION_SCORE_OBJECTS_MAX).find_map(object_at)
}

/// The last number beside each metric's name.
fn by_name(text: &str) -> Option<Scores> {
    // The scale, such as `(1-10)`, is not a score; nor is a part of a number.
    let pattern = concat!(
        r"(?i)\b(impact|feasibility|risk[\s_-]*adjusted[\s_-]*return|strategic[\s_-]*alignment)\b",
        r#"["'*`_\s]*(?:\(\s*1\s*(?:-|–|to)\s*10\s*\))?"#,
        r#"(?:["'*`_\s:=|>–]|-\s|\b(?:score|rating|is|of|at)\b)*"#,
        r"(-?[0-9]+(?:[.,][0-9]+)*[a-z]?)",
    );
    let numbers = Regex::new(pattern).ok()?;
    let mut metrics = HashMap::new();
    for found in numbers.captures_iter(text) {
        let [name, number] = found.extract().1;
        let name: String = name.to_ascii_lowercase().chars().filter(char::is_ascii_alphabetic).collect();
        metrics.insert(name, number.to_owned());
    }
    let metric = |name: &str| metrics.get(name)?.strip_suffix(".0").unwrap_or(metrics.get(name)?).parse().ok();
    let written = Written {
        impact: metric("impact")?,
        feasibility: metric("feasibility")?,
        risk_adjusted_return: metric("riskadjustedreturn")?,
        strategic_alignment: metric("strategicalignment")?,
        reasoning: None,
    };
    written.sound()
}

#[cfg(test)]
mod tests;
