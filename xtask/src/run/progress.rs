//! One line that says what is being done and for how long.
//!
//! On a terminal the line is rewritten in place; in a log a line is added every half minute, so that a reader of a
//! stuck run sees where it is stuck.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Time between two lines in a log.
const LOG_EVERY: Duration = Duration::from_secs(30);
/// Time between two rewrites on a terminal.
const TERMINAL_EVERY: Duration = Duration::from_millis(500);

/// A piece of work under way.
pub(super) struct Progress<'a> {
    what: &'a str,
    started: Instant,
    shown: Instant,
    terminal: bool,
}

impl<'a> Progress<'a> {
    /// Says that `what` begins.
    pub(super) fn start(what: &'a str) -> Progress<'a> {
        let now = Instant::now();
        let progress = Progress { what, started: now, shown: now, terminal: stderr().is_terminal() };
        progress.show("…", false);
        progress
    }

    /// Says, now and then, that it still lasts.
    pub(super) fn tick(&mut self) {
        let every = if self.terminal { TERMINAL_EVERY } else { LOG_EVERY };
        if self.shown.elapsed() >= every {
            self.shown = Instant::now();
            self.show("…", false);
        }
    }

    /// Says that it ended well.
    pub(super) fn done(self) {
        self.show("✓", true);
    }

    /// Says that it did not.
    pub(super) fn failed(self) {
        self.show("✗", true);
    }

    fn show(&self, mark: &str, last: bool) {
        let elapsed = elapsed(self.started.elapsed());
        let (before, after) = match (self.terminal, last) {
            (true, true) => ("\r\x1b[2K", "\n"),
            (true, false) => ("\r\x1b[2K", ""),
            (false, _) => ("", "\n"),
        };
        let mut out = stderr();
        // Progress that nobody can see is not worth stopping for.
        write!(out, "{before}  {mark} {} ({elapsed}){after}", self.what).and_then(|()| out.flush()).ok();
    }
}

/// A time for people: `0.4 s`, `12 s`, `3 min 05 s`.
pub(super) fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(elapsed(Duration::from_millis(420)), "0.4 s");
        assert_eq!(elapsed(Duration::from_secs(42)), "42 s");
        assert_eq!(elapsed(Duration::from_secs(185)), "3 min 05 s");
    }
}
