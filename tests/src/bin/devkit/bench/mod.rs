//! Figures of this project, each beside its baseline: interleaved in one run, since machines are noisy.

mod api;
mod create_burst20;
mod create_cold;
mod create_warm;
mod customer;
mod exec_rtt;
mod footprint;
mod twin;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Serialize;

/// Which benches, and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Names; all of them without one.
    names: Vec<String>,
}

const NAMES: [&str; 6] = ["api", "create_cold", "create_warm", "create_burst20", "exec_rtt", "footprint"];

/// Samples of ours and of the baseline, in one unit.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Samples {
    pub(crate) ours: Vec<f64>,
    pub(crate) baseline: Vec<f64>,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Figure<'a> {
    bench: &'a str,
    figure: &'a str,
    unit: &'a str,
    n: usize,
    ours: f64,
    baseline: Option<f64>,
    ratio: Option<f64>,
    raw: String,
}

/// Measures what is named.
pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    if let Some(unknown) = args.names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("no bench {unknown}; there are {}", NAMES.join(", "));
    }
    for name in NAMES {
        if !args.names.is_empty() && !args.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprintln!("{name} …");
        match name {
            "api" => api::run().await?,
            "create_cold" => create_cold::run().await?,
            "create_warm" => create_warm::run().await?,
            "create_burst20" => create_burst20::run().await?,
            "exec_rtt" => exec_rtt::run().await?,
            _ => footprint::run().await?,
        }
    }
    Ok(())
}

/// Prints median and 95th percentile of timed samples in milliseconds.
pub(crate) fn report_times(bench: &str, samples: &Samples) -> Result<()> {
    for (figure, at) in [("median_ms", 0.5), ("p95_ms", 0.95)] {
        let (ours, baseline) = (percentile(&samples.ours, at), percentile(&samples.baseline, at));
        report(bench, figure, "ms", samples, (ours, Some(baseline)))?;
    }
    Ok(())
}

/// Prints a figure and keeps its samples.
pub(crate) fn report(
    bench: &str,
    figure: &str,
    unit: &str,
    samples: &Samples,
    (ours, baseline): (f64, Option<f64>),
) -> Result<()> {
    let dir = PathBuf::from("bench-results");
    fs::create_dir_all(&dir).context("no directory for samples")?;
    let raw = dir.join(format!("{bench}.{figure}.json"));
    fs::write(&raw, serde_json::to_vec_pretty(samples)?).context("cannot keep samples")?;
    let raw = raw.display().to_string();
    let ratio = baseline.map(|baseline| round(ours / baseline));
    let n = samples.ours.len();
    let figure = Figure { bench, figure, unit, n, ours: round(ours), baseline: baseline.map(round), ratio, raw };
    println!("{}", serde_json::to_string(&figure)?);
    Ok(())
}

/// The sample below which the share `at` of them lies; not a number where there is none.
fn percentile(samples: &[f64], at: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = ((sorted.len().saturating_sub(1)) as f64 * at).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
