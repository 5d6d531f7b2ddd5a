//! A profile's policies in a program's own words.
//!
//! Profiles name tools; so do programs, by other names. A policy for a tool holds for every tool of a program that does the
//! same kind of thing, unless the profile names that tool itself. Of several the strictest holds.

use sandbox_agent::profile::{Policy, Profile};

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Runs commands or code.
    Run,
    /// Reads files.
    Read,
    /// Changes files.
    Write,
    /// Finds files and what is in them.
    Search,
    /// Asks the network.
    Web,
    /// Keeps the program's own house.
    Own,
}

/// A tool of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What holds for a tool of a program.
pub(super) fn policy(profile: &Profile, tool: &Tool) -> Policy {
    let is_it = |name: &String| name.eq_ignore_ascii_case(tool.name);
    let is_like_it = |name: &String| kind(name) == Some(tool.kind);
    let has = |tools: &Vec<String>| tools.iter().any(|name| is_it(name) || is_like_it(name));
    if tool.kind != Kind::Own && !profile.tools.as_ref().is_none_or(has) {
        return Policy::Deny;
    }
    let of = |wanted: &dyn Fn(&String) -> bool| {
        let policies = profile.approvals.tools.iter().filter(|(name, _)| wanted(name)).map(|(_, policy)| *policy);
        policies.max_by_key(|policy| strictness(*policy))
    };
    of(&is_it).or_else(|| of(&is_like_it)).unwrap_or(match tool.kind {
        // What touches nothing of the customer's needs no leave.
        Kind::Own => Policy::Allow,
        Kind::Run | Kind::Read | Kind::Write | Kind::Search | Kind::Web => profile.approvals.default,
    })
}

/// Names that a profile has policies for and that mean nothing to a program with these tools.
pub(super) fn unknown<'a>(profile: &'a Profile, tools: &[Tool]) -> Vec<&'a str> {
    let means =
        |name: &str| tools.iter().any(|tool| tool.name.eq_ignore_ascii_case(name) || kind(name) == Some(tool.kind));
    let strict = profile.approvals.tools.iter().filter(|(_, policy)| **policy != Policy::Allow);
    strict.map(|(name, _)| name.as_str()).filter(|name| !means(name)).collect()
}

const fn strictness(policy: Policy) -> u8 {
    match policy {
        Policy::Allow => 0,
        Policy::Ask => 1,
        Policy::Deny => 2,
    }
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name.to_ascii_lowercase().as_str() {
        "shell" | "bash" | "code" | "exec" | "execute" | "run" | "run_command" | "run_code" => Kind::Run,
        "read" | "read_file" | "file_read" => Kind::Read,
        "edit" | "write" | "write_file" | "edit_file" | "file_write" | "file_edit" | "patch" | "apply_patch"
        | "multiedit" | "notebookedit" | "move_file" | "remove_file" => Kind::Write,
        "search" | "search_files" | "grep" | "glob" | "list" | "list_files" | "find" | "file_list" => Kind::Search,
        "webfetch" | "websearch" | "web_fetch" | "web_search" | "fetch" => Kind::Web,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASH: Tool = Tool { name: "bash", kind: Kind::Run };
    const EDIT: Tool = Tool { name: "edit", kind: Kind::Write };
    const TODO: Tool = Tool { name: "todowrite", kind: Kind::Own };

    fn profile(default: Policy, policies: &[(&str, Policy)]) -> Profile {
        let mut profile = Profile::named("p");
        profile.approvals.default = default;
        profile.approvals.tools = policies.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect();
        profile
    }

    #[test]
    fn a_policy_holds_for_every_tool_of_its_kind() {
        let strict = profile(Policy::Allow, &[("shell", Policy::Ask), ("code", Policy::Deny)]);
        assert_eq!((policy(&strict, &BASH), policy(&strict, &EDIT)), (Policy::Deny, Policy::Allow));
        let named = profile(Policy::Deny, &[("shell", Policy::Deny), ("Bash", Policy::Allow)]);
        assert_eq!((policy(&named, &BASH), policy(&named, &EDIT)), (Policy::Allow, Policy::Deny));
        assert_eq!(policy(&named, &TODO), Policy::Allow);
    }

    #[test]
    fn a_tool_that_a_profile_does_not_have_is_refused() {
        let mut few = profile(Policy::Allow, &[]);
        few.tools = Some(vec!["shell".to_owned()]);
        assert_eq!((policy(&few, &BASH), policy(&few, &EDIT)), (Policy::Allow, Policy::Deny));
    }

    #[test]
    fn a_policy_that_means_nothing_here_is_told() {
        let odd =
            profile(Policy::Allow, &[("shell", Policy::Deny), ("browser", Policy::Deny), ("lamp", Policy::Allow)]);
        assert_eq!(unknown(&odd, &[BASH, EDIT]), ["browser"]);
    }
}
