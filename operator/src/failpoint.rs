//! Where a test makes this process die: right before or right after a step that a crash must not come between.
//!
//! A step is a commit of the records, a change asked of the container engine or of a disk, or a transaction. Steps are
//! counted as they come, whatever they are: a test draws a number, and the process says on its way out what it was. The
//! `fail` crate does not fit: it names each place and keeps the names in a static that it fills from the environment by
//! itself, it is switched on by a feature, which is a second build of everything, and it panics but does not kill.
//! Without debug assertions, as in what is released, there is neither the setting nor the count.

use sandbox_process::source::{ConfigError, Source};

/// The count of steps, where there is one. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failpoint {
    #[cfg(debug_assertions)]
    countdown: Option<std::sync::Arc<Countdown>>,
}

/// How many beginnings and ends of steps are left.
#[cfg(debug_assertions)]
#[derive(Debug)]
struct Countdown {
    left: std::sync::atomic::AtomicU64,
    /// Only these count.
    of: Option<String>,
}

/// A step under way; it is over when this is dropped.
#[must_use = "a step is over when this is dropped"]
pub(crate) struct Step {
    of: Failpoint,
    kind: &'static str,
    what: &'static str,
}

impl Failpoint {
    /// Reads at which beginning or end of a step to die, and of which step where not all count.
    #[cfg(debug_assertions)]
    pub(crate) fn read(source: &impl Source) -> Result<Self, ConfigError> {
        let at = sandbox_process::source::optional::<u64>(source, "DIE_AT")?;
        let countdown = |at: u64| std::sync::Arc::new(Countdown { left: at.into(), of: source.get("DIE_OF") });
        Ok(Self { countdown: at.map(countdown) })
    }

    /// Nothing to read.
    #[cfg(not(debug_assertions))]
    pub(crate) fn read(_: &impl Source) -> Result<Self, ConfigError> {
        Ok(Self {})
    }

    /// A step begins.
    pub(crate) fn step(&self, kind: &'static str, what: &'static str) -> Step {
        self.pass("before", kind, what);
        Step { of: self.clone(), kind, what }
    }

    #[cfg(debug_assertions)]
    fn pass(&self, side: &str, kind: &str, what: &str) {
        let step = format!("{kind} {what}");
        let is_due = |countdown: &std::sync::Arc<Countdown>| {
            let counts = countdown.of.as_ref().is_none_or(|of| *of == step);
            counts && countdown.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1
        };
        if !self.countdown.as_ref().is_some_and(is_due) {
            return;
        }
        eprintln!("dies {side} {step}");
        while nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).is_err() {}
        // Until the signal has come.
        loop {
            std::thread::park();
        }
    }

    #[cfg(not(debug_assertions))]
    #[allow(clippy::unused_self)]
    const fn pass(&self, _: &str, _: &str, _: &str) {}
}

impl Drop for Step {
    fn drop(&mut self) {
        self.of.pass("after", self.kind, self.what);
    }
}
