//! Parts of a long run: each timed, none skipped in silence, all of them in one table at the end.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How a part ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// It could not be run; the reason is said, and it counts neither way.
    NotRun(String),
}

struct Part {
    name: &'static str,
    took: Duration,
    outcome: Outcome,
    /// What the tools themselves said in sum.
    summaries: Vec<String>,
}

/// The parts so far.
#[derive(Default)]
pub(crate) struct Report {
    parts: Vec<Part>,
}

/// What a part hands back.
pub(crate) struct Done {
    pub outcome: Outcome,
    pub summaries: Vec<String>,
}

impl Done {
    /// Passed or failed, with nothing to sum up.
    pub(crate) fn plain(success: bool) -> Done {
        Done::with(success, Vec::new())
    }

    /// Passed or failed, with the tools' own summaries.
    pub(crate) fn with(success: bool, summaries: Vec<String>) -> Done {
        Done { outcome: if success { Outcome::Passed } else { Outcome::Failed }, summaries }
    }
}

impl Report {
    /// Runs a part and notes how it ended. Whether it passed.
    pub(crate) fn part(&mut self, name: &'static str, run: impl FnOnce() -> Result<Done>) -> bool {
        println!("\n── {name} ──");
        let started = Instant::now();
        let done = run().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Done::plain(false)
        });
        let part = Part { name, took: started.elapsed(), outcome: done.outcome, summaries: done.summaries };
        println!("── {name}: {} after {} ──", part.outcome.word(), minutes(part.took));
        let passed = !matches!(part.outcome, Outcome::Failed);
        self.parts.push(part);
        passed
    }

    /// Prints the table; the exit code says whether all parts passed.
    pub(crate) fn finish(&self) -> ExitCode {
        println!("\n{}", self.table());
        let failed = self.parts.iter().any(|part| matches!(part.outcome, Outcome::Failed));
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn table(&self) -> String {
        let mut table = String::new();
        let width = self.parts.iter().map(|part| part.name.len()).max().unwrap_or_default();
        for part in &self.parts {
            for summary in &part.summaries {
                line(&mut table, &format!("{:width$}  {summary}", part.name));
            }
        }
        line(&mut table, "");
        for part in &self.parts {
            line(&mut table, &format!("{:width$}  {:>9}  {}", part.name, minutes(part.took), part.outcome.word()));
        }
        line(&mut table, &format!("{:width$}  {:>9}", "all", minutes(self.parts.iter().map(|part| part.took).sum())));
        table
    }
}

fn line(table: &mut String, text: &str) {
    // Writing to a string cannot fail.
    writeln!(table, "{text}").ok();
}

impl Outcome {
    fn word(&self) -> String {
        match self {
            Outcome::Passed => "passed".to_string(),
            Outcome::Failed => "FAILED".to_string(),
            Outcome::NotRun(why) => format!("NOT RUN: {why}"),
        }
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_part_and_one_failure_fails_all() {
        let mut report = Report::default();
        assert!(report.part("contracts", || Ok(Done::with(true, vec!["3 passed".to_string()]))));
        assert!(!report.part("crates", || anyhow::bail!("does not compile")));
        let table = report.table();
        assert!(table.contains("contracts  3 passed"), "{table}");
        assert!(table.contains("crates       0.0 min  FAILED"), "{table}");
        assert_ne!(format!("{:?}", report.finish()), format!("{:?}", ExitCode::SUCCESS));
    }

    #[test]
    fn what_was_not_run_is_said_and_does_not_fail() {
        let mut report = Report::default();
        let not_run = Outcome::NotRun("no cargo-deny".to_string());
        assert!(report.part("dependencies", || Ok(Done { outcome: not_run, summaries: Vec::new() })));
        assert!(report.table().contains("NOT RUN: no cargo-deny"));
    }
}
