//! `journal` and `route_overhead`: of the operator's inside, measured where it is: by ignored tests of its program.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sandbox_sdk::devchain::checkout;
use serde::Deserialize;

use super::{Samples, percentile, report};

const OPTIMISED: &str = ".cargo/optimised.toml";

/// A line that such a test prints.
#[derive(Deserialize)]
struct Line {
    figure: String,
    ours: Vec<f64>,
    baseline: Vec<f64>,
}

/// Acknowledged appends to the operator's records, against a file that is synced after each.
pub(super) fn journal() -> Result<()> {
    run("journal", "bench::journal::journal", "1/s")
}

/// CPU time of a job on its way through the operator.
pub(super) fn route_overhead() -> Result<()> {
    run("route_overhead", "bench::route::route_overhead", "ms")
}

fn run(bench: &str, test: &str, unit: &str) -> Result<()> {
    for Line { figure, ours, baseline } in measured(test)? {
        let samples = Samples { ours, baseline };
        let baseline = (!samples.baseline.is_empty()).then(|| percentile(&samples.baseline, 0.5));
        report(bench, &figure, unit, &samples, (percentile(&samples.ours, 0.5), baseline))?;
    }
    Ok(())
}

/// Built as `cargo xtask bench` builds everything; for the features of that the whole workspace is named.
fn measured(test: &str) -> Result<Vec<Line>> {
    let output = Command::new("cargo")
        .args(["--config", OPTIMISED, "test", "--quiet", "--workspace", "--bin", "operator", "--"])
        .args(["--ignored", "--exact", "--nocapture", test])
        .current_dir(checkout())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{test} failed:\n{text}");
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let lines: Vec<Line> = lines.map(serde_json::from_str).collect::<Result<_, _>>().context("samples")?;
    ensure!(!lines.is_empty(), "{test} printed no samples:\n{text}");
    Ok(lines)
}
