//! `memory`: of contexts, measured where they are built: by an example of the agent's crate. No node is needed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sandbox_tests::programs::program;
use serde::Deserialize;

use super::{Samples, percentile, report};

/// A line that the example prints.
#[derive(Deserialize)]
struct Line {
    figure: String,
    unit: String,
    ours: Vec<f64>,
    baseline: Vec<f64>,
}

/// Time of a context of a long session, and the share of planted facts that stand in one.
pub(super) fn run() -> Result<()> {
    let mut example = Command::new(program("examples/memory_bench")?);
    let output = example.stderr(Stdio::inherit()).output().context("cannot start the example")?;
    ensure!(output.status.success(), "the example failed");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Line { figure, unit, ours, baseline } = serde_json::from_str(line).context("samples")?;
        let samples = Samples { ours, baseline };
        let baseline = (!samples.baseline.is_empty()).then(|| percentile(&samples.baseline, 0.5));
        report("memory", &figure, &unit, &samples, (percentile(&samples.ours, 0.5), baseline))?;
    }
    Ok(())
}
