//! An execution's course: wait for a place, start, watch, end, tell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::libc;
use nix::unistd::Pid;
use sandbox_protocol::events::Happening;
use sandbox_protocol::fsp::{Ended, Status, Stream, Usage};
use tokio::io::AsyncRead;
use tokio::process::Child;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::{Delegation, Group};
use super::clear::Clearing;
use super::error::ExecError;
use super::execution::Execution;
use super::launch::{Launched, Setting, launch};
use super::memory::{Account, Accounts, kills};
use super::order::{Order, OutputLimit, Place};
use super::output::{Outlet, pump};
use super::report::{Record, Spent};
use super::{Identity, stdin, tree};
use crate::events::Events;
use crate::limits::{FAREWELL_MAX, GROUP_LOOK_PAUSE};

/// What executions need besides their orders.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Who commands run as; `None` is the sidecar's own user.
    pub(super) identity: Option<Identity>,
    /// In the environment of every command.
    pub(super) environment: BTreeMap<String, String>,
    /// Where fresh directories are made.
    pub(super) scratch: PathBuf,
    /// Those that may run at a time; the next waits.
    pub(super) places: Semaphore,
    /// Those that may be started at a time: more at once would only hold each other up.
    pub(super) launches: Semaphore,
    pub(super) accounts: Accounts,
    /// Where executions have control groups of their own.
    pub(super) delegation: Option<Delegation>,
    pub(super) clearing: Clearing,
    /// Where starts and ends are told.
    pub(super) events: Events,
    /// Cancelled when the sidecar ends.
    pub(super) stop: CancellationToken,
    /// Holds the tasks that read and write pipes.
    pub(super) pumps: TaskTracker,
}

/// Why waiting for a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It ended by itself.
    Exited,
    TimedOut,
    Cancelled,
    OutOfMemory,
    TooMuchOutput,
    Stopped,
}

/// A command that runs.
struct Running<'a> {
    launched: Launched,
    group: Option<Group>,
    account: Option<Account>,
    deadline: Instant,
    execution: &'a Arc<Execution>,
    around: &'a Arc<Surroundings>,
    /// What the supervisor told last, and of the command's end.
    spent: Spent,
    status: Option<i32>,
    alone: bool,
}

/// Runs `order` and tells the last of it.
pub(super) async fn run(execution: &Arc<Execution>, order: Order, around: &Arc<Surroundings>) {
    let deadline = execution.accepted() + order.limits.timeout;
    let place = tokio::select! {
        biased;
        () = around.stop.cancelled() => return execution.tell_error(ExecError::Interrupted),
        () = execution.cancelled.cancelled() => return execution.tell_result(Status::Cancelled, nothing()),
        place = around.places.acquire() => place,
        () = sleep_until(deadline) => return execution.tell_error(ExecError::WaitedTooLong),
    };
    let fresh = around.scratch.join(format!("fsp-{:016x}", rand::random::<u64>()));
    let begun = Instant::now();
    let ended = match launched(&order, around, &fresh).await {
        Ok((launched, group)) => {
            conclude((launched, group, place), &order, (execution, around), (begun, deadline)).await
        }
        Err(error) => Err(error),
    };
    match ended {
        Ok((status, ended)) => execution.tell_result(status, ended),
        Err(error) => execution.tell_error(error),
    }
    if order.place == Place::Fresh {
        around.clearing.clear(fresh);
    }
}

/// Starts the command, in a control group of its own where there may be one.
async fn launched(order: &Order, around: &Surroundings, fresh: &Path) -> Result<(Launched, Option<Group>), ExecError> {
    let made = |delegation: &Delegation| {
        let group = delegation.group(format!("exec-{:016x}", rand::random::<u64>()), Some(&order.limits))?;
        group.entrances().map(|entrances| (group, entrances))
    };
    let made = around.delegation.as_ref().map(made).transpose();
    let (group, groups) = made.map_err(|error| ExecError::Start(Arc::new(error)))?.unzip();
    let (identity, environment) = (around.identity, &around.environment);
    let setting = Setting { identity, environment, fresh: fresh.to_owned(), groups: groups.unwrap_or_default() };
    // The launches are never closed.
    let turn = around.launches.acquire().await;
    let launched = launch(order, setting).await?;
    drop(turn);
    Ok((launched, group))
}

/// From the start of a command to its result.
async fn conclude<P>(
    (launched, group, place): (Launched, Option<Group>, P),
    order: &Order,
    (execution, around): (&Arc<Execution>, &Arc<Surroundings>),
    (begun, deadline): (Instant, Instant),
) -> Result<(Status, Ended), ExecError> {
    execution.tell_status(Status::Running);
    around.events.publish(Happening::ExecStarted { id: execution.id().to_owned() });
    let kills_before = kills();
    let mut running = Running::new((launched, group), order, (execution, around), deadline);
    let ended = CancellationToken::new();
    let outputs = running.outputs(order, &ended);
    let cause = running.watch().await;
    running.end(cause, order).await?;
    let duration = begun.elapsed();
    drop(place);
    ended.cancel();
    // A reader that is slow holds this up, and only this: nothing runs any more.
    if around.stop.run_until_cancelled(outputs).await.is_none() {
        return Err(ExecError::Interrupted);
    }
    let cause = running.cause(cause, kills_before);
    match cause {
        Cause::Stopped => Err(ExecError::Interrupted),
        Cause::TooMuchOutput => {
            let (OutputLimit::End(bytes_max) | OutputLimit::Cut(bytes_max)) = order.limits.output;
            Err(ExecError::OutputLimit { bytes_max })
        }
        Cause::Exited | Cause::TimedOut | Cause::Cancelled | Cause::OutOfMemory => Ok(running.result(cause, duration)),
    }
}

impl<'a> Running<'a> {
    fn new(
        (mut launched, group): (Launched, Option<Group>),
        order: &Order,
        (execution, around): (&'a Arc<Execution>, &'a Arc<Surroundings>),
        deadline: Instant,
    ) -> Self {
        if let Some(pipe) = launched.child.stdin.take() {
            let (execution, first) = (Arc::clone(execution), order.stdin.clone());
            around.spawn(async move { stdin::feed(pipe, first, execution.streamed()).await });
        }
        let account = supervisor(&launched.child)
            .zip(order.limits.memory_bytes.filter(|_| group.is_none()))
            .map(|(supervisor, limit_bytes)| around.accounts.open(supervisor, limit_bytes));
        let (spent, status, alone) = (Spent::default(), None, false);
        Self { launched, group, account, deadline, execution, around, spent, status, alone }
    }

    /// Reads both outputs from now on; complete some time after `ended`.
    fn outputs(&mut self, order: &Order, ended: &CancellationToken) -> impl Future<Output = ()> + use<> {
        let (stdout, stderr) = (self.launched.child.stdout.take(), self.launched.child.stderr.take());
        // What is fresh leaves nobody behind who could still write: there, all is read to the end.
        let ended = if order.place == Place::Fresh { CancellationToken::new() } else { ended.clone() };
        let stdout = stdout.map(|pipe| self.pumped(pipe, Stream::Stdout, ended.clone()));
        let stderr = stderr.map(|pipe| self.pumped(pipe, Stream::Stderr, ended));
        async move {
            for done in [stdout, stderr].into_iter().flatten() {
                // A pump that was dropped has nothing more to tell either.
                done.await.unwrap_or_default();
            }
        }
    }

    fn pumped(
        &self,
        pipe: impl AsyncRead + Unpin + Send + 'static,
        stream: Stream,
        ended: CancellationToken,
    ) -> oneshot::Receiver<()> {
        let (done, finished) = oneshot::channel();
        let execution = Arc::clone(self.execution);
        self.around.spawn(async move {
            let outlet = Outlet { stream, feed: execution.feed(), meter: &execution.meter };
            pump(pipe, outlet, &ended, done).await;
        });
        finished
    }

    /// Waits until the command has ended or has to be ended.
    async fn watch(&mut self) -> Cause {
        loop {
            let execution = self.execution;
            let over = async {
                match (&self.group, &self.account) {
                    (Some(group), _) => out_of_memory(group).await,
                    (None, Some(account)) => account.over().await,
                    (None, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                record = self.launched.reports.next() => match record {
                    Some(Record::Begun { leader }) => execution.led_by(leader),
                    Some(Record::Ended { status, alone, spent }) => {
                        (self.status, self.alone, self.spent) = (Some(status), alone, spent);
                        return Cause::Exited;
                    }
                    Some(Record::Over { .. }) | None => return Cause::Exited,
                },
                () = self.around.stop.cancelled() => return Cause::Stopped,
                () = execution.cancelled.cancelled() => return Cause::Cancelled,
                () = over => return Cause::OutOfMemory,
                () = execution.meter.exceeded.cancelled() => return Cause::TooMuchOutput,
                () = sleep_until(self.deadline) => return Cause::TimedOut,
            }
        }
    }

    /// Ends what is to be ended, and hears the supervisor out.
    async fn end(&mut self, cause: Cause, order: &Order) -> Result<(), ExecError> {
        self.execution.led_by(0);
        let all_is_over = cause == Cause::Exited && (self.alone || order.place != Place::Fresh);
        if !all_is_over
            && let Some(supervisor) = supervisor(&self.launched.child)
            && let Err(undead) = tree::end(supervisor).await
        {
            tracing::warn!(%supervisor, %undead, "a command left processes behind");
        }
        let heard = timeout(FAREWELL_MAX, async {
            while let Some(record) = self.launched.reports.next().await {
                match record {
                    Record::Begun { .. } => {}
                    Record::Ended { status, spent, .. } => (self.status, self.spent) = (Some(status), spent),
                    Record::Over { spent } => self.spent = spent,
                }
            }
        });
        if heard.await.is_err() {
            self.launched.child.start_kill().map_err(|_| ExecError::Lost)?;
        }
        self.launched.child.wait().await.map(drop).map_err(|_| ExecError::Lost)
    }

    /// The real cause of an end that looks like another: the kernel, too, ends who has too much memory, and who writes too much
    /// may have ended by itself.
    fn cause(&self, cause: Cause, kills_before: Option<u64>) -> Cause {
        let killed = self.status.is_some_and(|status| {
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
                || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 128 + libc::SIGKILL
        });
        let kernel = match &self.group {
            Some(group) => group.kills() > 0,
            None => killed && kills_before.is_some() && kills() > kills_before,
        };
        match cause {
            Cause::Exited if kernel => Cause::OutOfMemory,
            // It was gone before all that it had written was read.
            Cause::Exited if self.execution.meter.exceeded.is_cancelled() => Cause::TooMuchOutput,
            cause => cause,
        }
    }

    fn result(&self, cause: Cause, duration: Duration) -> (Status, Ended) {
        let (mut exit_code, mut signal) = (None, None);
        if let (Cause::Exited, Some(status)) = (cause, self.status) {
            exit_code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
            signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        }
        let status = match cause {
            Cause::Exited if exit_code == Some(0) => Status::Completed,
            Cause::Exited | Cause::TooMuchOutput | Cause::Stopped => Status::Failed,
            Cause::TimedOut => Status::Timeout,
            Cause::Cancelled => Status::Cancelled,
            Cause::OutOfMemory => Status::Oom,
        };
        let usage = self.usage();
        (status, Ended { exit_code, signal, duration_ms: millis(duration), resource_usage: Some(usage) })
    }
}

impl Running<'_> {
    /// What the kernel's books tell: those of the group, or those of what has been waited for, and what was seen.
    fn usage(&self) -> Usage {
        let seen_bytes = self.account.as_ref().map_or(0, Account::peak_bytes).max(self.spent.peak_kb * 1024);
        let peak_bytes = self.group.as_ref().and_then(Group::peak_bytes).unwrap_or(seen_bytes);
        let cpu_us = self.group.as_ref().and_then(Group::cpu_us).unwrap_or(self.spent.cpu_us);
        Usage { peak_memory_mb: peak_bytes.div_ceil(1024 * 1024), cpu_time_ms: cpu_us.div_ceil(1_000) }
    }
}

/// Returns once the kernel has killed a process of the group for want of memory.
async fn out_of_memory(group: &Group) {
    while group.kills() == 0 {
        sleep(GROUP_LOOK_PAUSE).await;
    }
}

impl Surroundings {
    /// A task that lives until it is done or the sidecar ends.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.pumps.spawn(async move { stop.run_until_cancelled(task).await });
    }
}

/// What is told of an execution that never ran.
const fn nothing() -> Ended {
    Ended { exit_code: None, signal: None, duration_ms: 0, resource_usage: None }
}

/// There as long as nobody has waited for the child to its end.
fn supervisor(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
