//! Slither's detectors over the sources, by `slither.config.json`. A finding of high or medium impact fails.
//!
//! No detector is switched off, and the configuration names what to *include*: a finding counts as soon as one of its
//! places is ours. The opposite filter drops a finding as soon as one place is in a dependency, as are all those of a
//! contract that inherits from one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Verdict;
use super::sources::{BUILD_INFO, Sources};
use crate::limits::SLITHER_MAX;
use crate::place::Place;
use crate::report::{Done, Outcome};
use crate::{run, setup};

/// Where Slither writes what it found.
const RESULT: &str = "contracts/cache/sources/slither.json";
/// A file that does not exist: findings that somebody hid on one machine count everywhere.
const NO_TRIAGE: &str = "contracts/cache/sources/slither.triage.json";
/// The comment that switches a detector off for a line.
const SUPPRESSION: &str = "slither-disable";

#[derive(Debug, Deserialize)]
struct Report {
    success: bool,
    error: Option<String>,
    results: Results,
}

#[derive(Debug, Deserialize)]
struct Results {
    #[serde(default)]
    detectors: Vec<Finding>,
    #[serde(rename = "list-detectors")]
    known: Vec<Detector>,
}

#[derive(Debug, Deserialize)]
struct Detector {}

#[derive(Debug, Deserialize)]
struct Finding {
    check: String,
    impact: Impact,
    description: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Impact {
    High,
    Medium,
    Low,
    Informational,
    Optimization,
}

/// How much was analysed, by Slither's own closing line.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    contracts: usize,
    detectors: usize,
}

/// Runs Slither. Where it cannot be installed that is said, and nothing counts as passed.
pub(super) fn check(place: &Place) -> Result<Done> {
    let slither = match setup::slither(place) {
        Ok(slither) => slither,
        Err(error) => return Ok(not_run(&error)),
    };
    let sources = Sources::compile(place)?;
    let (report, extent) = analyse(place, &slither)?;
    let verdict = judge(&report, &extent, sources.count(), sources.mentions(SUPPRESSION));
    verdict.faults.iter().for_each(|fault| println!("error: {fault}"));
    Ok(Done::with(verdict.faults.is_empty(), verdict.summaries))
}

/// The table names the first line of the reason; all of it stands above.
fn not_run(error: &anyhow::Error) -> Done {
    let whole = format!("no Slither: {error:#}");
    println!("{whole}");
    let reason = whole.lines().next().unwrap_or_default().to_string();
    Done { outcome: Outcome::NotRun(reason), summaries: Vec::new() }
}

/// Analyses what [`Sources::compile`] left behind; nothing is compiled again, and nothing is downloaded.
fn analyse(place: &Place, slither: &Path) -> Result<(Report, Extent)> {
    let mut command = place.program(slither);
    // It asks forge for the configuration, by that name.
    command.env("PATH", place.foundry("forge")?.parent().context("forge lies in no folder")?);
    command.args([".", "--ignore-compile", "--foundry-build-info-directory", BUILD_INFO]);
    command.args(["--disable-color", "--triage-database", NO_TRIAGE, "--fail-none"]);
    command.args(["--json-types", "detectors,list-detectors", "--json", RESULT]);
    let answer = run::answer(&mut command, SLITHER_MAX).context("Slither cannot be run, or did not end")?;
    let Some(extent) = answer.err.lines().chain(answer.out.lines()).find_map(extent) else {
        bail!("Slither did not get to its end:\n{}\n{}", answer.out.trim(), answer.err.trim());
    };
    let text = fs::read_to_string(place.at(RESULT)).with_context(|| format!("cannot read {RESULT}"))?;
    Ok((serde_json::from_str(&text).context("Slither's result is not what this program expects")?, extent))
}

/// The numbers of `. analyzed (11 contracts with 102 detectors), 14 result(s) found`.
fn extent(line: &str) -> Option<Extent> {
    let (contracts, rest) = line.split_once(" analyzed (")?.1.split_once(" contracts with ")?;
    let detectors = rest.split_once(" detectors)")?.0;
    Some(Extent { contracts: contracts.parse().ok()?, detectors: detectors.parse().ok()? })
}

fn judge(report: &Report, extent: &Extent, contracts: usize, suppressed: usize) -> Verdict {
    let count = |impact| report.results.detectors.iter().filter(|finding| finding.impact == impact).count();
    let mut faults: Vec<String> = serious(report).map(shown).collect();
    if !report.success {
        faults.push(format!("Slither failed: {}", report.error.as_deref().unwrap_or("without a reason")));
    }
    if contracts == 0 || extent.contracts < contracts {
        faults.push(format!("Slither analysed {} contracts of {contracts}", extent.contracts));
    }
    // One that exists as a specimen for writers of detectors is run and not listed.
    let known = report.results.known.len();
    if known == 0 || extent.detectors < known {
        faults.push(format!("Slither ran {} detectors of {known}: none may be switched off", extent.detectors));
    }
    let summary = format!(
        "{} high, {} medium; {} low, {} informational, {} optimization; {} contracts, {} detectors, {suppressed} × `{SUPPRESSION}`",
        count(Impact::High),
        count(Impact::Medium),
        count(Impact::Low),
        count(Impact::Informational),
        count(Impact::Optimization),
        extent.contracts,
        extent.detectors,
    );
    Verdict { summaries: vec![summary], faults }
}

fn serious(report: &Report) -> impl Iterator<Item = &Finding> {
    report.results.detectors.iter().filter(|finding| match finding.impact {
        Impact::High | Impact::Medium => true,
        Impact::Low | Impact::Informational | Impact::Optimization => false,
    })
}

fn shown(finding: &Finding) -> String {
    format!("{:?}, {}: {}", finding.impact, finding.check, finding.description.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Extent = Extent { contracts: 11, detectors: 2 };

    fn report(findings: &str) -> Report {
        let text = format!(
            r#"{{ "success": true, "error": null, "results": {{
                "detectors": [{findings}], "list-detectors": [{{ "check": "suicidal" }}, {{ "check": "timestamp" }}] }} }}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn faults(report: &Report, extent: &Extent) -> Vec<String> {
        judge(report, extent, 11, 0).faults
    }

    #[test]
    fn its_closing_line_is_read() {
        let line = ". analyzed (11 contracts with 102 detectors), 14 result(s) found";
        assert_eq!(extent(line), Some(Extent { contracts: 11, detectors: 102 }));
        assert_eq!(extent("No contract was analyzed"), None);
    }

    #[test]
    fn high_and_medium_fail_and_the_rest_is_counted() {
        let findings = r#"{ "check": "suicidal", "impact": "High", "description": "gone\n", "elements": [] },
            { "check": "timestamp", "impact": "Low", "description": "late" }"#;
        let verdict = judge(&report(findings), &ALL, 11, 3);
        assert_eq!(verdict.faults, ["High, suicidal: gone"]);
        assert_eq!(
            verdict.summaries,
            [
                "1 high, 0 medium; 1 low, 0 informational, 0 optimization; 11 contracts, 2 detectors, 3 × `slither-disable`"
            ]
        );
    }

    #[test]
    fn to_have_analysed_nothing_or_too_little_is_a_fault() {
        assert_eq!(faults(&report(""), &ALL), Vec::<String>::new());
        assert_eq!(faults(&report(""), &Extent { contracts: 0, ..ALL }), ["Slither analysed 0 contracts of 11"]);
        assert_eq!(judge(&report(""), &ALL, 0, 0).faults, ["Slither analysed 11 contracts of 0"]);
        assert!(faults(&report(""), &Extent { detectors: 1, ..ALL })[0].contains("none may be switched off"));
    }

    #[test]
    fn a_finding_of_an_unknown_impact_is_not_passed_over() {
        let text = r#"{ "check": "x", "impact": "Severe", "description": "" }"#;
        assert!(serde_json::from_str::<Finding>(text).is_err());
    }
}
