//! `due` and `memory`: measured where what is measured is built, by examples of those crates. No node is needed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sandbox_tests::programs::program;
use serde::Deserialize;

use super::{Samples, percentile, report};

/// What the example calls a look at who is due, and what is asked of it.
const DUE: &str = "due";

/// A line that an example prints.
#[derive(Deserialize)]
struct Line {
    figure: String,
    unit: String,
    ours: Vec<f64>,
    baseline: Vec<f64>,
}

/// Time of a context of a long session, and the share of planted facts that stand in one.
pub(super) fn memory() -> Result<()> {
    for Line { figure, unit, ours, baseline } in measured("memory_bench")? {
        let samples = Samples { ours, baseline };
        let baseline = (!samples.baseline.is_empty()).then(|| percentile(&samples.baseline, 0.5));
        report("memory", &figure, &unit, &samples, (percentile(&samples.ours, 0.5), baseline))?;
    }
    Ok(())
}

/// Time of a look at who is due among 10,000 workflows, and what else it takes to keep them.
pub(super) fn due() -> Result<()> {
    for Line { figure, unit, ours, baseline } in measured("due_bench")? {
        let samples = Samples { ours, baseline };
        if figure == DUE {
            report("due", "median_ms", &unit, &samples, (percentile(&samples.ours, 0.5), None))?;
            report("due", "p95_ms", &unit, &samples, (percentile(&samples.ours, 0.95), None))?;
        } else {
            report("due", &figure, &unit, &samples, (percentile(&samples.ours, 0.5), None))?;
        }
    }
    Ok(())
}

fn measured(name: &str) -> Result<Vec<Line>> {
    let mut example = Command::new(program(&format!("examples/{name}"))?);
    let output = example.stderr(Stdio::inherit()).output().context("cannot start the example")?;
    ensure!(output.status.success(), "the example failed");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).context("samples")).collect()
}
