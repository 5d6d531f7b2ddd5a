//! Figures of this project, each beside its baseline: interleaved in one run, since machines are noisy.

mod api;
mod batch20;
mod bounds;
mod create_burst20;
mod create_cold;
mod create_warm;
mod customer;
mod drain;
mod example;
mod exec_rtt;
mod footprint;
mod fsp;
mod inside;
mod negotiate;
mod outage;
mod rebuild;
mod snapshot;
mod ssh;
mod step;
mod twin;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Which benches, and what of them.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Fails where a figure is not within its bound.
    #[arg(long)]
    check: bool,
    /// Names; all of them without one.
    names: Vec<String>,
}

const NAMES: [&str; 23] = [
    "api",
    "batch20",
    "create_cold",
    "create_warm",
    "create_burst20",
    "drain",
    "due",
    "exec_rtt",
    "footprint",
    "fsp_exec",
    "fsp_parallel",
    "fsp_stream",
    "journal",
    "memory",
    "negotiate",
    "rebuild",
    "route_overhead",
    "sftp",
    "snapshot",
    "ssh_bulk",
    "ssh_connect",
    "ssh_sessions",
    "step",
];
/// Where samples are kept, and the figures of the last run.
const RESULTS_DIR: &str = "bench-results";
const FIGURES_FILE: &str = "figures.jsonl";

/// Samples of ours and of the baseline, in one unit.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Samples {
    pub(crate) ours: Vec<f64>,
    pub(crate) baseline: Vec<f64>,
}

/// One line of the result.
#[derive(Debug, Serialize, Deserialize)]
struct Figure {
    bench: String,
    figure: String,
    unit: String,
    n: usize,
    ours: f64,
    baseline: Option<f64>,
    ratio: Option<f64>,
    /// What is asked of it.
    bound: Option<String>,
    /// Whether it is so.
    holds: Option<bool>,
    raw: String,
}

/// Measures what is named.
pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    if let Some(unknown) = args.names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("no bench {unknown}; there are {}", NAMES.join(", "));
    }
    let figures = results()?.join(FIGURES_FILE);
    fs::write(&figures, "").context("cannot keep figures")?;
    for name in NAMES {
        if !args.names.is_empty() && !args.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprintln!("{name} …");
        match name {
            "api" => api::run().await?,
            "batch20" => batch20::run().await?,
            "create_cold" => create_cold::run().await?,
            "create_warm" => create_warm::run().await?,
            "create_burst20" => create_burst20::run().await?,
            "drain" => drain::run().await?,
            "due" => example::due()?,
            "exec_rtt" => exec_rtt::run().await?,
            "footprint" => footprint::run().await?,
            "fsp_exec" => fsp::exec().await?,
            "fsp_parallel" => fsp::parallel().await?,
            "fsp_stream" => fsp::stream().await?,
            "journal" => inside::journal()?,
            "memory" => example::memory()?,
            "negotiate" => negotiate::run().await?,
            "rebuild" => rebuild::run().await?,
            "route_overhead" => inside::route_overhead()?,
            "sftp" => ssh::sftp().await?,
            "snapshot" => snapshot::run().await?,
            "ssh_bulk" => ssh::bulk().await?,
            "ssh_connect" => ssh::connect().await?,
            "ssh_sessions" => ssh::sessions().await?,
            _ => step::run().await?,
        }
    }
    let lines = fs::read_to_string(figures).context("no figures")?;
    let figures: Vec<Figure> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("figures")?;
    if !bounds::table(&figures) && args.check {
        bail!("a figure is not within its bound");
    }
    Ok(())
}

fn results() -> Result<PathBuf> {
    let dir = PathBuf::from(RESULTS_DIR);
    fs::create_dir_all(&dir).context("no directory for samples")?;
    Ok(dir)
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
    let dir = results()?;
    let raw = dir.join(format!("{bench}.{figure}.json"));
    fs::write(&raw, serde_json::to_vec_pretty(samples)?).context("cannot keep samples")?;
    let ratio = baseline.map(|baseline| round(ours / baseline));
    let (bound, holds) = bounds::judge(bench, figure, ours, ratio).unzip();
    let figure = Figure {
        bench: bench.into(),
        figure: figure.into(),
        unit: unit.into(),
        n: samples.ours.len(),
        ours: round(ours),
        baseline: baseline.map(round),
        ratio,
        bound,
        holds,
        raw: raw.display().to_string(),
    };
    let line = serde_json::to_string(&figure)?;
    let mut figures = fs::File::options().append(true).open(dir.join(FIGURES_FILE)).context("no file of figures")?;
    writeln!(figures, "{line}").context("cannot keep a figure")?;
    println!("{line}");
    Ok(())
}

/// The sample below which the share `at` of them lies; not a number where there is none.
fn median(samples: &[f64]) -> f64 {
    percentile(samples, 0.5)
}

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
