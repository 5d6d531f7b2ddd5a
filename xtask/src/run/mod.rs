//! How every outside program is run: with a name, a bound, and its output where one can find it.
//!
//! Three manners: [`output`] asks a short question, [`step`] does long work quietly while saying that it lasts,
//! [`stream`] lets a tool speak for itself. None of them waits for ever.

mod progress;
mod tree;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::progress::Progress;
use crate::limits::{PIPE_MAX, QUESTION_MAX};

/// How often a running program is looked at.
const LOOK_MS: u64 = 50;
/// Lines of a log shown when its step failed.
const TAIL_LINES: usize = 20;

/// Standard output of a short question; an error carries what the program said on standard error.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let (status, out, err) = both(command, limit)?;
    if !status.success() {
        bail!("`{}` failed ({status}): {}", shown(command), err.trim());
    }
    Ok(out)
}

/// Standard output and error of a short question whose failure is an answer too; `None` where it cannot be started.
pub(crate) fn answer(command: &mut Command, limit: Duration) -> Option<Answer> {
    both(command, limit).ok().map(|(status, out, err)| Answer { yes: status.success(), out, err })
}

/// What a program answered.
pub(crate) struct Answer {
    /// It ended with exit code 0.
    pub yes: bool,
    pub out: String,
    pub err: String,
}

/// Whether a program could be started and ended well.
pub(crate) fn succeeds(command: &mut Command, limit: Duration) -> bool {
    answer(command, limit).is_some_and(|answer| answer.yes)
}

/// Long work: its output goes to `log`, the terminal shows that it lasts, a failure shows the log's last lines.
pub(crate) fn step(what: &str, command: &mut Command, limit: Duration, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = command
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("{what}: cannot start `{}`", shown(command)))?;
    let mut progress = Progress::start(what);
    let status = wait(&mut child, limit, |_| progress.tick());
    match status {
        Ok(status) if status.success() => progress.done(),
        Ok(status) => failed(progress, log, &format!("`{}` ended with {status}", shown(command)))?,
        Err(error) => failed(progress, log, &format!("`{}`: {error}", shown(command)))?,
    }
    Ok(())
}

/// Lets a tool speak for itself and keeps the lines of its standard output for which `keep` holds.
pub(crate) fn stream(command: &mut Command, limit: Duration, keep: fn(&str) -> bool) -> Result<Streamed> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let pipe = child.stdout.take().context("standard output was not piped")?;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&kept);
    let reader = thread::spawn(move || pass_on(pipe, keep, &heard));
    let status = wait(&mut child, limit, |_| ()).with_context(|| format!("`{}`", shown(command)));
    settle(&reader);
    let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    let success = status.map(|status| status.success()).unwrap_or_else(|error| {
        println!("error: {error:#}");
        false
    });
    Ok(Streamed { success, kept })
}

/// How a streamed program ended.
pub(crate) struct Streamed {
    pub success: bool,
    /// The lines that were asked for, in order.
    pub kept: Vec<String>,
}

/// Waits for `ready`, looking twice a second, at most `limit`. `false` when it did not come.
pub(crate) fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let mut progress = Progress::start(what);
    let started = Instant::now();
    while started.elapsed() < limit {
        if ready() {
            progress.done();
            return true;
        }
        progress.tick();
        thread::sleep(Duration::from_millis(500));
    }
    progress.failed();
    false
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    succeeds(Command::new("sh").args(["-c", "command -v \"$1\"", "sh", program]), QUESTION_MAX)
}

fn failed(progress: Progress, log: &Path, why: &str) -> Result<()> {
    progress.failed();
    bail!("{why}\n{}\nThe whole output: {}", tail(log), log.display())
}

/// The last lines of a log, indented.
pub(crate) fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    last.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn both(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String, String)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = wait(&mut child, limit, |_| ()).with_context(|| format!("`{}`", shown(command)))?;
    Ok((status, text_of(out), text_of(err)))
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks ends the answer; the exit status says the rest.
        pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn text_of(reader: thread::JoinHandle<String>) -> String {
    settle(&reader);
    if reader.is_finished() { reader.join().unwrap_or_default() } else { String::new() }
}

/// Gives a reader time to reach the end. Not for ever: something that the program left running may hold the pipe.
fn settle<T>(reader: &thread::JoinHandle<T>) {
    let started = Instant::now();
    while !reader.is_finished() && started.elapsed() < PIPE_MAX {
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

fn pass_on(pipe: impl Read, keep: fn(&str) -> bool, kept: &Mutex<Vec<String>>) {
    let mut out = std::io::stdout();
    for line in BufReader::new(pipe).split(b'\n').map_while(std::result::Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        // Nobody reading our output is no reason to stop the tests.
        writeln!(out, "{line}").ok();
        if keep(&line) {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}

fn wait(child: &mut Child, limit: Duration, mut tick: impl FnMut(Duration)) -> Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            tree::kill(child.id());
            child.wait()?;
            bail!("not done after {} s, stopped", limit.as_secs());
        }
        tick(started.elapsed());
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

fn shown(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    let words: Vec<_> = std::iter::once(command.get_program().to_string_lossy()).chain(arguments).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_leaves_running_does_not_hold_us_up() {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 3 passed; echo noise; setsid sleep 30 & exit 0"]);
        let streamed = stream(&mut command, Duration::from_secs(20), |line| line.ends_with("passed")).unwrap();
        assert!(streamed.success);
        assert_eq!(streamed.kept, ["3 passed"]);
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_stream_that_does_not_end_keeps_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 3 passed; tail -f /dev/null"]);
        let streamed = stream(&mut command, Duration::from_millis(500), |line| line.ends_with("passed")).unwrap();
        assert!(!streamed.success);
        assert_eq!(streamed.kept, ["3 passed"]);
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped_with_its_children() {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "tail -f /dev/null & wait"]);
        let error = output(&mut command, Duration::from_millis(200)).unwrap_err();
        assert!(format!("{error:#}").contains("stopped"), "{error:#}");
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_failure_carries_what_the_program_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo not today >&2; exit 3"]);
        let error = output(&mut command, Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("not today"), "{error}");
    }
}
