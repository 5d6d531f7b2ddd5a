//! What `claude` is told before it starts: arguments, environment, permissions.
//!
//! It reads no settings but those that are given to it here, and asks nobody but the provider.

use std::collections::BTreeMap;
use std::path::Path;

use sandbox_agent::profile::{Policy, Profile};
use sandbox_protocol::agent::event::Told;
use serde_json::json;

use crate::backend::{Desk, Order};
use crate::backends::access::Access;
use crate::backends::limits::{ANSWER_TOKENS_MAX, PROVIDER_ATTEMPTS_MAX};
use crate::backends::tools::{Kind, Tool, policy, unknown};

/// The file of its permissions, in a session's directory.
pub(super) const SETTINGS: &str = "settings.json";
/// The profile's words.
pub(super) const INSTRUCTIONS: &str = "instructions.md";

/// The tools that it has here. Not among them: agents below an agent, and what the provider's own machines would do.
const TOOLS: [Tool; 7] = [
    Tool { name: "Bash", kind: Kind::Run },
    Tool { name: "Edit", kind: Kind::Write },
    Tool { name: "Glob", kind: Kind::Search },
    Tool { name: "Grep", kind: Kind::Search },
    Tool { name: "NotebookEdit", kind: Kind::Write },
    Tool { name: "Read", kind: Kind::Read },
    Tool { name: "Write", kind: Kind::Write },
];
/// On, whatever else is said.
const SWITCHES: [&str; 6] = [
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
];

/// A profile's policies in the program's words.
#[derive(Debug, PartialEq)]
pub(super) struct Strictness {
    allow: Vec<&'static str>,
    ask: Vec<&'static str>,
    deny: Vec<&'static str>,
    /// Policies that mean nothing here.
    unknown: Vec<String>,
}

impl Strictness {
    pub(super) fn of(profile: &Profile) -> Self {
        let with = |wanted| {
            TOOLS.iter().filter(|tool| policy(profile, tool) == wanted).map(|tool| tool.name).collect::<Vec<_>>()
        };
        let unknown = unknown(profile, &TOOLS).into_iter().map(str::to_owned).collect();
        Self { allow: with(Policy::Allow), ask: with(Policy::Ask), deny: with(Policy::Deny), unknown }
    }

    /// Tells what of the profile does not hold as it is written.
    pub(super) fn tell(&self, desk: &dyn Desk) {
        if !self.unknown.is_empty() {
            let message = format!("claude has no tools of these names: {}", self.unknown.join(", "));
            desk.tell(Told::Warning { message });
        }
    }

    /// The file of its permissions.
    pub(super) fn settings(&self) -> String {
        let Self { allow, ask, deny, unknown: _ } = self;
        json!({ "permissions": { "allow": allow, "ask": ask, "deny": deny }, "includeCoAuthoredBy": false }).to_string()
    }

    /// The tools that it has at all.
    fn tools(&self) -> String {
        self.allow.iter().chain(&self.ask).copied().collect::<Vec<_>>().join(",")
    }
}

/// What holds for a tool that the program asks about.
pub(super) fn policy_of(profile: &Profile, name: &str) -> Policy {
    // Another tool than these it was not given.
    TOOLS.iter().find(|tool| tool.name == name).map_or(Policy::Deny, |tool| policy(profile, tool))
}

/// Its arguments; `directory` is its session's.
pub(super) fn arguments(directory: &Path, order: &Order, access: &Access, strictness: &Strictness) -> Vec<String> {
    let below = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (settings, instructions) = (below(SETTINGS), below(INSTRUCTIONS));
    let (turns, tools) = (order.max_turns.to_string(), strictness.tools());
    let mut arguments: Vec<_> = [
        "-p",
        "--verbose",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--include-partial-messages",
        "--permission-mode",
        "default",
        "--permission-prompt-tool",
        "stdio",
        "--setting-sources=",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--max-turns",
        &turns,
        "--tools",
        &tools,
        "--settings",
        &settings,
        "--append-system-prompt-file",
        &instructions,
        "--model",
        &access.model,
    ]
    .map(str::to_owned)
    .to_vec();
    // Without a price of ours it goes by its own.
    if order.profile.cost_micro_usd_max != 0 && access.price.is_none() {
        let usd = order.profile.cost_micro_usd_max as f64 / 1_000_000.0;
        arguments.extend(["--max-budget-usd".to_owned(), usd.to_string()]);
    }
    arguments
}

/// Its environment; `directory` is its session's.
pub(super) fn environment(directory: &Path, access: &Access) -> BTreeMap<String, String> {
    let mut env: BTreeMap<_, _> = SWITCHES.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
    // It adds the version by itself.
    let base_url = access.base_url.strip_suffix("/v1").unwrap_or(&access.base_url);
    // Without any key it does not ask at all.
    let key = access.key.as_ref().map_or("none", |key| key.reveal());
    for (name, value) in [
        ("ANTHROPIC_API_KEY", key.to_owned()),
        ("ANTHROPIC_BASE_URL", base_url.to_owned()),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", access.model.clone()),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", ANSWER_TOKENS_MAX.min(access.context_tokens).to_string()),
        ("CLAUDE_CODE_MAX_RETRIES", (PROVIDER_ATTEMPTS_MAX - 1).to_string()),
        ("CLAUDE_CONFIG_DIR", directory.join("config").to_string_lossy().into_owned()),
    ] {
        env.insert(name.to_owned(), value);
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_one_policy_and_others_are_refused() {
        let mut profile = Profile::named("p");
        profile.approvals.tools =
            [("shell", Policy::Ask), ("write", Policy::Deny)].map(|(name, policy)| (name.to_owned(), policy)).into();
        let strictness = Strictness::of(&profile);
        assert_eq!(
            (strictness.ask.join(","), strictness.deny.join(",")),
            ("Bash".to_owned(), "Edit,NotebookEdit,Write".to_owned())
        );
        assert_eq!(strictness.tools(), "Glob,Grep,Read,Bash");
        assert_eq!(
            ["Bash", "Read", "Task"].map(|name| policy_of(&profile, name)),
            [Policy::Ask, Policy::Allow, Policy::Deny]
        );
    }
}
