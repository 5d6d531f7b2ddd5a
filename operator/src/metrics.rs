//! What the operator counts, for Prometheus.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

/// The counters. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    answered: IntCounterVec,
    took: HistogramVec,
    head: IntGauge,
    sandboxes: IntGauge,
    waiting: IntGauge,
    running: IntGauge,
}

impl Metrics {
    /// Counters at zero.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let answered = IntCounterVec::new(Opts::new("sandbox_jobs_total", "Jobs answered"), &["job", "outcome"])?;
        let took = HistogramOpts::new("sandbox_job_seconds", "Time from a job's begin to its answer")
            .buckets(vec![0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0]);
        let took = HistogramVec::new(took, &["job"])?;
        let head = IntGauge::new("sandbox_chain_head_block", "Newest block seen")?;
        let sandboxes = IntGauge::new("sandbox_sandboxes", "Sandboxes that hold capacity")?;
        let waiting = IntGauge::new("sandbox_jobs_waiting", "Jobs that wait for their turn")?;
        let running = IntGauge::new("sandbox_jobs_running", "Jobs that are worked on")?;
        registry.register(Box::new(waiting.clone()))?;
        registry.register(Box::new(running.clone()))?;
        registry.register(Box::new(answered.clone()))?;
        registry.register(Box::new(took.clone()))?;
        registry.register(Box::new(head.clone()))?;
        registry.register(Box::new(sandboxes.clone()))?;
        Ok(Self { registry, answered, took, head, sandboxes, waiting, running })
    }

    /// A job was answered.
    pub(crate) fn answered(&self, job: u8, outcome: u8, took: Duration) {
        let job = job.to_string();
        self.answered.with_label_values(&[job.as_str(), &outcome.to_string()]).inc();
        self.took.with_label_values(&[job.as_str()]).observe(took.as_secs_f64());
    }

    /// So many jobs wait, and so many are worked on.
    pub(crate) fn queue(&self, (waiting, running): (usize, usize)) {
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    /// The text that Prometheus reads. The last known number of sandboxes stands in for none.
    pub(crate) fn render(&self, head: u64, sandboxes: Option<usize>) -> Result<String, prometheus::Error> {
        self.head.set(i64::try_from(head).unwrap_or(i64::MAX));
        if let Some(sandboxes) = sandboxes {
            self.sandboxes.set(i64::try_from(sandboxes).unwrap_or(i64::MAX));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}
