//! What `opencode` is told before it starts: environment, configuration, permissions.
//!
//! Its configuration comes by the environment, which outdoes every file that an agent could have written. Permissions are
//! lists whose last word holds, and files add to them: so they are those of an agent whose name no file knows. The key lies in
//! a file that only the agent's user reads. All that the program would fetch by itself is off.

use std::collections::BTreeMap;
use std::path::Path;

use sandbox_agent::profile::{Policy, Profile};
use sandbox_protocol::agent::ProviderKind;
use sandbox_protocol::agent::event::Told;
use serde_json::{Map, Value, json};

use crate::backend::Desk;
use crate::backends::access::Access;
use crate::backends::limits::ANSWER_TOKENS_MAX;
use crate::backends::tools::{Kind, Tool, policy, unknown};

/// The key's file, in a session's directory.
pub(super) const KEY: &str = "key";
/// The profile's words.
pub(super) const INSTRUCTIONS: &str = "instructions.md";
/// Found in its directory of settings, these keep the program from fetching a package for plugins, which it does not use.
pub(super) const NO_INSTALL: [(&str, &str); 2] = [
    ("config/opencode/package-lock.json", r#"{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}"#),
    ("config/opencode/node_modules/.keep", ""),
];

/// Its tools, by the names that its permissions have.
const TOOLS: [Tool; 10] = [
    Tool { name: "bash", kind: Kind::Run },
    Tool { name: "edit", kind: Kind::Write },
    Tool { name: "read", kind: Kind::Read },
    Tool { name: "glob", kind: Kind::Search },
    Tool { name: "grep", kind: Kind::Search },
    Tool { name: "list", kind: Kind::Search },
    Tool { name: "webfetch", kind: Kind::Web },
    Tool { name: "websearch", kind: Kind::Web },
    Tool { name: "todowrite", kind: Kind::Own },
    Tool { name: "skill", kind: Kind::Own },
];
/// What holds whatever a profile says. Of agents below an agent the program tells nothing, neither what they do nor what they
/// cost; nobody is there to answer a question; and the sandbox, not a directory in it, is where an agent is at home.
const FIXED: [(&str, &str); 4] =
    [("task", "deny"), ("question", "deny"), ("doom_loop", "deny"), ("external_directory", "allow")];
/// On, whatever else is said.
const SWITCHES: [&str; 9] = [
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_PRUNE",
    "OPENCODE_DISABLE_SHARE",
];

/// A profile's policies in the program's words.
#[derive(Debug, PartialEq)]
pub(super) struct Strictness {
    permission: Map<String, Value>,
    /// Tools that should be asked about, and are refused.
    unasked: Vec<&'static str>,
    /// Policies that mean nothing here.
    unknown: Vec<String>,
}

impl Strictness {
    pub(super) fn of(profile: &Profile) -> Self {
        // What has no name here, an agent's own tools, is as strict as the profile.
        let others = if profile.tools.is_some() { Policy::Deny } else { profile.approvals.default };
        let mut permission = Map::from_iter([("*".to_owned(), word(others).into())]);
        let mut unasked = Vec::new();
        for tool in &TOOLS {
            let policy = policy(profile, tool);
            permission.insert(tool.name.to_owned(), word(policy).into());
            unasked.extend((policy == Policy::Ask).then_some(tool.name));
        }
        permission.extend(FIXED.map(|(name, word)| (name.to_owned(), word.into())));
        let unknown = unknown(profile, &TOOLS).into_iter().map(str::to_owned).collect();
        Self { permission, unasked, unknown }
    }

    /// Tells what of the profile does not hold as it is written.
    pub(super) fn tell(&self, desk: &dyn Desk) {
        if !self.unasked.is_empty() {
            let tools = self.unasked.join(", ");
            let message = format!("opencode cannot ask its customer, so these tools are refused: {tools}");
            desk.tell(Told::Warning { message });
        }
        if !self.unknown.is_empty() {
            let message = format!("opencode has no tools of these names: {}", self.unknown.join(", "));
            desk.tell(Told::Warning { message });
        }
    }
}

/// The program has nobody to ask, so what should be asked is refused.
const fn word(policy: Policy) -> &'static str {
    match policy {
        Policy::Allow => "allow",
        Policy::Ask | Policy::Deny => "deny",
    }
}

/// The program's environment; `directory` is its session's.
pub(super) fn environment(
    directory: &Path,
    agent: &str,
    access: &Access,
    strictness: &Strictness,
) -> BTreeMap<String, String> {
    let below = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let mut env: BTreeMap<_, _> = SWITCHES.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
    for (name, value) in [
        ("OPENCODE_CONFIG_CONTENT", configuration(directory, agent, access, strictness).to_string()),
        // Where it looks for settings of a user's; what it runs keeps the home that it has.
        ("OPENCODE_TEST_HOME", below("home")),
        ("XDG_CACHE_HOME", below("cache")),
        ("XDG_CONFIG_HOME", below("config")),
        ("XDG_DATA_HOME", below("data")),
        ("XDG_STATE_HOME", below("state")),
    ] {
        env.insert(name.to_owned(), value);
    }
    env
}

fn configuration(directory: &Path, agent: &str, access: &Access, strictness: &Strictness) -> Value {
    let below = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let (package, base_url) = match access.kind {
        ProviderKind::Openai => ("@ai-sdk/openai-compatible", access.base_url.clone()),
        ProviderKind::Anthropic => ("@ai-sdk/anthropic", access.base_url.clone()),
        // It speaks OpenAI's protocol too, at another path.
        ProviderKind::Ollama => ("@ai-sdk/openai-compatible", format!("{}/v1", access.base_url)),
    };
    let model = format!("sandbox/{}", access.model);
    let limit = json!({ "context": access.context_tokens, "output": ANSWER_TOKENS_MAX.min(access.context_tokens) });
    json!({
        "autoupdate": false, "share": "disabled", "snapshot": false, "lsp": false, "formatter": false,
        "model": model, "small_model": model, "enabled_providers": ["sandbox"],
        "instructions": [below(INSTRUCTIONS)],
        "provider": { "sandbox": {
            "npm": package, "name": "sandbox",
            "options": { "baseURL": base_url, "apiKey": format!("{{file:{}}}", below(KEY)) },
            "models": { &access.model: { "name": access.model, "tool_call": true, "limit": limit } },
        } },
        "permission": strictness.permission,
        "agent": { agent: { "mode": "primary", "permission": strictness.permission } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(default: Policy, policies: &[(&str, Policy)]) -> Profile {
        let mut profile = Profile::named("p");
        profile.approvals.default = default;
        profile.approvals.tools = policies.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect();
        profile
    }

    #[test]
    fn what_should_be_asked_is_refused_and_told_to_be() {
        let strictness = Strictness::of(&profile(Policy::Allow, &[("shell", Policy::Ask), ("edit", Policy::Deny)]));
        let word = |name: &str| strictness.permission[name].as_str().unwrap().to_owned();
        assert_eq!(["bash", "edit", "read", "*"].map(word), ["deny", "deny", "allow", "allow"]);
        assert_eq!((&strictness.unasked[..], strictness.unknown.len()), (&["bash"][..], 0));
    }

    #[test]
    fn what_is_fixed_holds_whatever_a_profile_says() {
        for default in [Policy::Allow, Policy::Deny] {
            let strictness = Strictness::of(&profile(default, &[("task", Policy::Allow)]));
            assert_eq!(
                (&strictness.permission["task"], &strictness.permission["external_directory"]),
                (&json!("deny"), &json!("allow"))
            );
        }
    }

    #[test]
    fn the_key_is_in_no_variable() {
        let access = Access {
            kind: ProviderKind::Ollama,
            base_url: "http://model:1".into(),
            key: Some(sandbox_protocol::agent::Secret::new("s3cret")),
            model: "a/b".into(),
            context_tokens: 9_000,
            is_operators: false,
            price: None,
        };
        let env = environment(Path::new("/d"), "a", &access, &Strictness::of(&profile(Policy::Allow, &[])));
        assert!(env.values().all(|value| !value.contains("s3cret")));
        let config: Value = serde_json::from_str(&env["OPENCODE_CONFIG_CONTENT"]).unwrap();
        assert_eq!(
            config["provider"]["sandbox"]["options"],
            json!({ "baseURL": "http://model:1/v1", "apiKey": "{file:/d/key}" })
        );
        assert_eq!(
            (&config["model"], &config["provider"]["sandbox"]["models"]["a/b"]["limit"]["output"]),
            (&json!("sandbox/a/b"), &json!(9_000))
        );
    }
}
