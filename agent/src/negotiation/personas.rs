//! Who argues: the critic and the decision makers. Their texts lie beside this file, and each can be replaced.

use std::collections::BTreeMap;

use sandbox_protocol::agent::negotiation::{CRITIC, DECISION_MAKERS};

/// Whoever makes summaries: no persona, since it takes no side.
pub(super) const CLERK: &str = "\
You keep the minutes of a negotiation about a business move. You take no side, judge nothing and add nothing.";

/// The critic and the decision makers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Personas {
    /// System prompt of the critic.
    pub critic: String,
    /// In the order of [`DECISION_MAKERS`].
    pub decision_makers: [DecisionMaker; DECISION_MAKERS.len()],
}

/// One of those who defend a move, and score it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionMaker {
    /// What the critic calls it.
    pub name: &'static str,
    /// Its system prompt.
    pub system_prompt: String,
}

impl Default for Personas {
    fn default() -> Self {
        let maker = |name, text: &str| DecisionMaker { name, system_prompt: text.trim_end().to_owned() };
        Self {
            critic: include_str!("personas/critic.md").trim_end().to_owned(),
            decision_makers: [
                maker("Growth Strategist", include_str!("personas/growth.md")),
                maker("Operational Pragmatist", include_str!("personas/operations.md")),
                maker("Stakeholder Value Advocate", include_str!("personas/stakeholders.md")),
            ],
        }
    }
}

impl Personas {
    /// The design's personas, but for those that are given: system prompts by `critic`, `D1`, `D2`, `D3`.
    pub fn with(others: &BTreeMap<String, String>) -> Self {
        let Self { critic, decision_makers } = Self::default();
        let mut ids = DECISION_MAKERS.iter();
        let other = |maker: DecisionMaker| match ids.next().and_then(|id| others.get(*id)) {
            // Who it is instead is in its own words only.
            Some(prompt) => DecisionMaker { name: "Decision Maker", system_prompt: prompt.clone() },
            None => maker,
        };
        let decision_makers = decision_makers.map(other);
        Self { critic: others.get(CRITIC).cloned().unwrap_or(critic), decision_makers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every instruction of the design's personas, by the words that carry it.
    const INSTRUCTIONS: [(&str, &[&str]); 4] = [
        (
            CRITIC,
            &[
                "veteran CFO who has seen three companies fail from overconfident strategy",
                "find every weakness in a proposed business move",
                "sharp and intellectually honest",
                "do not oppose for the sake of opposing",
                "thorough",
                "probe assumptions, demand evidence, and expose logical gaps",
                "specific",
                "cite exact weaknesses, not vague concerns",
                "fair",
                "if a point is genuinely strong, you acknowledge it before moving on",
                "1. Identify the strongest claims in its reasoning",
                "2. Challenge each claim: is the evidence sufficient? Is there a counter-example?",
                "3. Point out risks that the proposer may have downplayed",
                "4. Question whether the citations from F1/F2 actually support the conclusion",
                "negotiating with decision makers who will defend this move",
                "Engage with their rebuttals substantively",
                "If they make a good point, acknowledge it",
                "If they dodge your concern, press harder",
            ],
        ),
        (
            "D1",
            &[
                "Growth Strategist on the board of directors",
                "market expansion, competitive advantage, and long-term positioning",
                "inclined toward high-impact decisions",
                "take the critic's points seriously and must address them substantively before dismissing them",
                "explain how it drives growth and competitive advantage",
                "address the critic's concerns with specific counter-arguments",
                "acknowledge valid risks while arguing that the upside justifies them",
                "reference data from F1/F2 to support your position",
                "can be swayed by strong market-timing arguments",
                "If the critic convincingly shows that the timing is wrong, you may concede that point",
            ],
        ),
        (
            "D2",
            &[
                "Operational Pragmatist on the board of directors",
                "execution feasibility, resource allocation, and operational risk",
                "favor action but respect constraints",
                "can we actually pull this off?",
                "what does execution look like?",
                "explain how the company can realistically execute it",
                "address resource and operational concerns raised by the critic",
                "propose concrete implementation steps if challenged on feasibility",
                "concede if the critic identifies genuine execution blockers",
                "execution gaps, resource constraints, or operational complexity you haven't addressed",
            ],
        ),
        (
            "D3",
            &[
                "Stakeholder Value Advocate on the board of directors",
                "shareholder return, brand impact, and public perception",
                "biased toward high-visibility wins but sensitive to reputational risk",
                "how moves will be perceived by investors, media, and customers",
                "explain the shareholder value proposition",
                "address concerns about brand/reputation impact",
                "argue for the move's signaling effect to the market",
                "concede if the critic shows genuine reputational or regulatory risk",
                "PR disasters, regulatory backlash, or investor confidence erosion",
            ],
        ),
    ];

    fn prompts(personas: &Personas) -> BTreeMap<&'static str, &str> {
        let makers = DECISION_MAKERS.into_iter().zip(&personas.decision_makers);
        let makers = makers.map(|(id, maker)| (id, maker.system_prompt.as_str()));
        makers.chain([(CRITIC, personas.critic.as_str())]).collect()
    }

    #[test]
    fn the_designs_personas_keep_every_instruction() {
        let personas = Personas::default();
        for (who, instructions) in INSTRUCTIONS {
            let prompt = prompts(&personas)[who];
            for instruction in instructions {
                assert!(prompt.contains(instruction), "{who} is not told: {instruction}");
            }
        }
        let names = personas.decision_makers.each_ref().map(|maker| maker.name);
        assert_eq!(names, ["Growth Strategist", "Operational Pragmatist", "Stakeholder Value Advocate"]);
    }

    #[test]
    fn each_persona_is_replaced_by_itself_and_its_name_with_it() {
        let originals = Personas::default();
        for (who, _) in INSTRUCTIONS {
            let replaced = Personas::with(&BTreeMap::from([(who.to_owned(), "Another.".to_owned())]));
            for (name, prompt) in prompts(&replaced) {
                assert_eq!(prompt, if name == who { "Another." } else { prompts(&originals)[name] });
            }
            for (id, (maker, original)) in
                DECISION_MAKERS.iter().zip(replaced.decision_makers.iter().zip(&originals.decision_makers))
            {
                assert_eq!(maker.name, if *id == who { "Decision Maker" } else { original.name });
            }
        }
        assert_eq!(Personas::with(&BTreeMap::new()), originals);
    }
}
