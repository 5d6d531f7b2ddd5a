//! Which crate may depend on which: arrows point down only, and the SDK's graph stays behind one crate.

use crate::place::Package;
use crate::tidy::Finding;

/// The floors of the house. A crate sees those below its own; `xtask` stands outside and sees none.
const FLOORS: [(&str, u8); 14] = [
    ("sandbox-protocol", 0),
    ("sandbox-fsp", 1),
    ("sandbox-fleet", 2),
    ("sandbox-agent", 2),
    ("sandbox-process", 2),
    ("sandbox-outbound", 2),
    ("sandbox-gateway", 3),
    ("sandbox-sdk", 3),
    ("sandbox-sidecar", 3),
    ("sandbox-agentd", 4),
    ("sandbox-operator", 4),
    ("sandbox-tests", 5),
    ("scripted-provider", 0),
    ("xtask", 0),
];
/// The one crate on the SDK's graph, which is the slow half of every build.
const ON_THE_SDK: &str = "sandbox-operator";

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let mut find = |message| findings.push(Finding { path: package.name.clone(), line: 1, message });
        if floor(&package.name).is_none() {
            find("this crate has no floor: give it one in xtask/src/tidy/arrows.rs".to_string());
        }
        package.dependencies.iter().filter_map(|dependency| refuse(&package.name, &dependency.name)).for_each(find);
    }
    findings
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, floor)| *floor)
}

fn refuse(from: &str, to: &str) -> Option<String> {
    if to.starts_with("blueprint-") && from != ON_THE_SDK {
        return Some(format!("depends on {to}: only {ON_THE_SDK} may; take the type from sandbox-protocol or alloy"));
    }
    let (below, above) = (floor(to)?, floor(from)?);
    (below >= above)
        .then(|| format!("depends on {to}, which is not below it: move what both need down into a lower crate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down_only() {
        assert_eq!(refuse("sandbox-operator", "sandbox-fleet"), None);
        assert!(refuse("sandbox-fleet", "sandbox-operator").is_some());
        assert!(refuse("sandbox-fleet", "sandbox-process").is_some());
        assert!(refuse("xtask", "sandbox-protocol").is_some());
    }

    #[test]
    fn the_sdk_stays_behind_the_operator() {
        assert_eq!(refuse("sandbox-operator", "blueprint-sdk"), None);
        assert!(refuse("sandbox-tests", "blueprint-sdk").is_some());
        assert_eq!(refuse("sandbox-fleet", "serde"), None);
    }
}
