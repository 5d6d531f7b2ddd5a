//! What the operator counts, for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::chain::counted::Questions;

/// The counters. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    questions: Questions,
    answered: IntCounterVec,
    took: HistogramVec,
    head: IntGauge,
    sandboxes: IntGauge,
    running: IntGauge,
    state: StateGauges,
    pool: IntGauge,
    egress: IntCounter,
    heartbeats: IntCounterVec,
}

/// What the state is read for.
#[derive(Clone)]
struct StateGauges {
    in_hand: IntGauge,
    open: IntGauge,
    outbox: IntGauge,
    head_age: Gauge,
    behind: IntGauge,
    phases: IntGaugeVec,
    capacity: IntGaugeVec,
    used: IntGaugeVec,
    draining: IntGauge,
}

/// The state at an instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// Calls taken in, whose work has not begun.
    pub(crate) queued: usize,
    /// Calls not at their end.
    pub(crate) open: usize,
    /// Answers whose receipts are not on chain.
    pub(crate) outbox: usize,
    /// Seconds since the newest block.
    pub(crate) head_age_s: f64,
    /// Blocks that were seen and not read.
    pub(crate) behind: u64,
    /// Sandboxes by phase.
    pub(crate) phases: BTreeMap<&'static str, usize>,
    /// Resources given in all, and of those taken, by name.
    pub(crate) resources: BTreeMap<&'static str, (u64, u64)>,
    /// The operator takes nothing new.
    pub(crate) draining: bool,
}

impl Metrics {
    /// Counters at zero.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let took = HistogramOpts::new("sandbox_job_seconds", "Time from a job's begin to its answer")
            .buckets(vec![0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0]);
        let build = Opts::new("sandbox_build_info", "Version of the operator, in its label; always 1")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&registry, IntGauge::with_opts(build)?)?.set(1);
        let questions = Questions::new()?;
        registered(&registry, questions.0.clone())?;
        let metrics = Self {
            questions,
            answered: counters(&registry, "sandbox_jobs_total", "Jobs answered", &["job", "outcome"])?,
            took: registered(&registry, HistogramVec::new(took, &["job"])?)?,
            head: gauge(&registry, "sandbox_chain_head_block", "Newest block seen")?,
            sandboxes: gauge(&registry, "sandbox_sandboxes", "Sandboxes that hold capacity")?,
            running: gauge(&registry, "sandbox_jobs_running", "Jobs that are worked on")?,
            state: StateGauges::new(&registry)?,
            pool: gauge(&registry, "sandbox_pool_ready", "Containers that wait for a create")?,
            egress: registered(
                &registry,
                IntCounter::new("sandbox_egress_bytes_total", "Bytes that sandboxes sent to and got from the outside")?,
            )?,
            heartbeats: counters(&registry, "sandbox_heartbeats_total", "Heartbeats, by how they ended", &["outcome"])?,
            registry,
        };
        Ok(metrics)
    }

    /// The counter of questions to the chain's node.
    pub(crate) fn questions(&self) -> Questions {
        self.questions.clone()
    }

    /// A job was answered.
    pub(crate) fn answered(&self, job: u8, outcome: u8, took: Duration) {
        let job = job.to_string();
        self.answered.with_label_values(&[job.as_str(), &outcome.to_string()]).inc();
        self.took.with_label_values(&[job.as_str()]).observe(took.as_secs_f64());
    }

    /// So many jobs are worked on.
    pub(crate) fn running(&self, jobs: usize) {
        self.running.set(whole(jobs));
    }

    /// A heartbeat was sent, or was not.
    pub(crate) fn heartbeat(&self, sent: bool) {
        self.heartbeats.with_label_values(&[if sent { "sent" } else { "failed" }]).inc();
    }

    /// So many containers wait for a create, and sandboxes exchanged so many bytes with the outside since the start.
    pub(crate) fn host(&self, pool_ready: usize, egress_bytes: u64) {
        self.pool.set(whole(pool_ready));
        self.egress.inc_by(egress_bytes.saturating_sub(self.egress.get()));
    }

    /// The state was read.
    pub(crate) fn read(&self, reading: &Reading) {
        let state = &self.state;
        state.in_hand.set(whole(reading.queued));
        state.open.set(whole(reading.open));
        state.outbox.set(whole(reading.outbox));
        state.head_age.set(reading.head_age_s);
        state.behind.set(whole(reading.behind));
        state.draining.set(reading.draining.into());
        state.phases.reset();
        for (phase, count) in &reading.phases {
            state.phases.with_label_values(&[*phase]).set(whole(*count));
        }
        for (resource, (all, taken)) in &reading.resources {
            state.capacity.with_label_values(&[*resource]).set(whole(*all));
            state.used.with_label_values(&[*resource]).set(whole(*taken));
        }
    }

    /// The text that Prometheus reads. The last known number of sandboxes stands in for none.
    pub(crate) fn render(&self, head: u64, sandboxes: Option<usize>) -> Result<String, prometheus::Error> {
        self.head.set(whole(head));
        if let Some(sandboxes) = sandboxes {
            self.sandboxes.set(whole(sandboxes));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

impl StateGauges {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| gauge(registry, name, help);
        let gauges = |name, help, label| registered(registry, IntGaugeVec::new(Opts::new(name, help), &[label])?);
        Ok(Self {
            in_hand: gauge("sandbox_calls_queued", "Calls taken in, whose work has not begun")?,
            open: gauge("sandbox_calls_open", "Calls that are not at their end")?,
            outbox: gauge("sandbox_outbox_receipts", "Answers whose receipts are not on chain yet")?,
            head_age: registered(
                registry,
                Gauge::new("sandbox_chain_head_age_seconds", "Time since the newest block, by this clock")?,
            )?,
            behind: gauge("sandbox_chain_behind_blocks", "Blocks that were seen and not read yet")?,
            phases: gauges("sandbox_sandboxes_by_phase", "Sandboxes that are not at their end, by phase", "phase")?,
            capacity: gauges("sandbox_capacity", "What the operator gives to sandboxes, by resource", "resource")?,
            used: gauges("sandbox_capacity_used", "What sandboxes hold of it, by resource", "resource")?,
            draining: gauge("sandbox_draining", "1 while the operator takes nothing new")?,
        })
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    registered(registry, IntGauge::new(name, help)?)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = "\
# HELP sandbox_build_info Version of the operator, in its label; always 1
# HELP sandbox_calls_open Calls that are not at their end
# HELP sandbox_calls_queued Calls taken in, whose work has not begun
# HELP sandbox_capacity What the operator gives to sandboxes, by resource
# HELP sandbox_capacity_used What sandboxes hold of it, by resource
# HELP sandbox_chain_behind_blocks Blocks that were seen and not read yet
# HELP sandbox_chain_head_age_seconds Time since the newest block, by this clock
# HELP sandbox_chain_head_block Newest block seen
# HELP sandbox_draining 1 while the operator takes nothing new
# HELP sandbox_egress_bytes_total Bytes that sandboxes sent to and got from the outside
# HELP sandbox_heartbeats_total Heartbeats, by how they ended
# HELP sandbox_job_seconds Time from a job's begin to its answer
# HELP sandbox_jobs_running Jobs that are worked on
# HELP sandbox_jobs_total Jobs answered
# HELP sandbox_outbox_receipts Answers whose receipts are not on chain yet
# HELP sandbox_pool_ready Containers that wait for a create
# HELP sandbox_rpc_requests_total Requests to the chain's node, by how they ended
# HELP sandbox_sandboxes Sandboxes that hold capacity
# HELP sandbox_sandboxes_by_phase Sandboxes that are not at their end, by phase
";

    fn reading() -> Reading {
        Reading {
            phases: BTreeMap::from([("running", 2)]),
            resources: BTreeMap::from([("sandboxes", (16, 2))]),
            outbox: 3,
            ..Reading::default()
        }
    }

    #[test]
    fn names_and_help_are_those_that_dashboards_know() {
        let metrics = Metrics::new().unwrap();
        metrics.answered(0, 1, Duration::from_millis(3));
        metrics.heartbeat(false);
        metrics.read(&reading());
        let text = metrics.render(7, Some(2)).unwrap();
        let help: String =
            text.lines().filter(|line| line.starts_with("# HELP")).map(|line| format!("{line}\n")).collect();
        assert_eq!(help, GOLDEN);
    }

    #[test]
    fn a_phase_that_nothing_is_in_any_more_is_not_shown() {
        let metrics = Metrics::new().unwrap();
        metrics.read(&reading());
        let text = metrics.render(1, None).unwrap();
        assert!(text.contains("sandbox_sandboxes_by_phase{phase=\"running\"} 2\n"), "{text}");
        assert!(text.contains("sandbox_capacity_used{resource=\"sandboxes\"} 2\n"), "{text}");
        assert!(text.contains("sandbox_outbox_receipts 3\n"), "{text}");
        metrics.read(&Reading::default());
        assert!(!metrics.render(1, None).unwrap().contains("by_phase{"));
    }
}
