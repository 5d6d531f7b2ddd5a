//! What must hold, in one place.

use super::Figure;

/// A bound of a figure.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// The figure is this at most.
    AtMost(f64),
    /// The figure is this at least.
    AtLeast(f64),
    /// The figure is so many times its baseline at most.
    TimesAtMost(f64),
    /// The figure is so many times its baseline at least.
    TimesAtLeast(f64),
}

use Bound::{AtLeast, AtMost, TimesAtLeast, TimesAtMost};

/// By bench and figure. The others are told for comparison.
const BOUNDS: [(&str, &str, Bound); 36] = [
    ("api", "p99_ms", AtMost(20.0)),
    ("batch20", "total_ms", TimesAtMost(1.3)),
    ("create_cold", "median_ms", TimesAtMost(1.15)),
    ("create_warm", "median_ms", AtMost(40.0)),
    ("create_burst20", "total_ms", AtMost(1_500.0)),
    ("drain", "speed_up", AtLeast(20.0)),
    ("drain", "answered_once", AtLeast(1.0)),
    ("due", "median_ms", AtMost(5.0)),
    ("footprint", "sidecar_binary_mib", AtMost(12.0)),
    ("footprint", "sidecar_rss_mib", AtMost(6.0)),
    ("fsp_exec", "median_ms", AtMost(3.0)),
    ("fsp_parallel", "total_ms", AtMost(1_500.0)),
    ("fsp_stream", "mib_per_s", AtLeast(200.0)),
    ("fsp_stream", "slow_growth_mib", AtMost(8.0)),
    ("fsp_stream", "slow_text_growth_mib", AtMost(8.0)),
    ("journal", "per_s_64", TimesAtLeast(5.0)),
    ("journal", "per_s_100", AtLeast(15_000.0)),
    ("memory", "median_ms", AtMost(5.0)),
    ("negotiate", "fifteen_moves_ms", TimesAtMost(1.3)),
    ("negotiate", "overhead_ms", AtMost(50.0)),
    ("rebuild", "rpc_calls", AtMost(300.0)),
    ("rebuild", "total_ms", AtMost(10_000.0)),
    ("route_overhead", "cpu_ms", AtMost(1.0)),
    ("sftp", "get_files_per_s", TimesAtLeast(0.9)),
    ("sftp", "get_mib_per_s", TimesAtLeast(0.9)),
    ("sftp", "put_files_per_s", TimesAtLeast(0.9)),
    ("sftp", "put_mib_per_s", TimesAtLeast(0.9)),
    ("snapshot", "mib_per_s", TimesAtLeast(0.8)),
    ("snapshot", "extra_rss_mib", AtMost(64.0)),
    ("ssh_bulk", "down_aes_gcm_mib_per_s", TimesAtLeast(1.0)),
    ("ssh_bulk", "down_chacha20_mib_per_s", TimesAtLeast(1.0)),
    ("ssh_bulk", "up_aes_gcm_mib_per_s", TimesAtLeast(1.0)),
    ("ssh_bulk", "up_chacha20_mib_per_s", TimesAtLeast(1.0)),
    ("ssh_connect", "median_ms", TimesAtMost(0.5)),
    ("ssh_sessions", "kib_per_session", AtMost(200.0)),
    ("step", "median_ms", AtMost(5.0)),
];

/// What is asked of a figure, and whether it holds; `None` where nothing is asked.
pub(super) fn judge(bench: &str, figure: &str, ours: f64, ratio: Option<f64>) -> Option<(String, bool)> {
    let (_, _, bound) = BOUNDS.iter().find(|(of, name, _)| (*of, *name) == (bench, figure))?;
    let ratio = ratio.unwrap_or(f64::NAN);
    Some(match *bound {
        AtMost(most) => (format!("≤ {most}"), ours <= most),
        AtLeast(least) => (format!("≥ {least}"), ours >= least),
        TimesAtMost(most) => (format!("ratio ≤ {most}"), ratio <= most),
        TimesAtLeast(least) => (format!("ratio ≥ {least}"), ratio >= least),
    })
}

/// The figures for people; whether every bound holds.
pub(super) fn table(figures: &[Figure]) -> bool {
    let line = |bench: &str, cells: [&str; 5]| {
        let [ours, baseline, ratio, bound, holds] = cells;
        eprintln!("{bench:<32} {ours:>12} {baseline:>12} {ratio:>8}  {bound:<14} {holds}");
    };
    eprintln!();
    line("figure", ["ours", "baseline", "ratio", "bound", "holds"]);
    for figure in figures {
        let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let holds = figure.holds.map_or("", |holds| if holds { "yes" } else { "NO" });
        line(
            &format!("{} {}", figure.bench, figure.figure),
            [
                &figure.ours.to_string(),
                &optional(figure.baseline),
                &optional(figure.ratio),
                figure.bound.as_deref().unwrap_or_default(),
                holds,
            ],
        );
    }
    figures.iter().all(|figure| figure.holds != Some(false))
}
