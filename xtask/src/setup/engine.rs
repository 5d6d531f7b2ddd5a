//! A Docker engine that answers.
//!
//! One that runs is left alone. One that had to be started is left running too, and said to be: it belongs to the
//! machine, not to the task that happened to need it first. A bridge network is not required, and none is disabled.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::limits::{ENGINE_START_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::system;

/// Written when set-up starts an engine; `.ci/run` stops what its own run started.
const STARTED: &str = "engine.started";

enum State {
    Reachable,
    /// It runs, but this user may not talk to it.
    Forbidden,
    Absent,
}

/// Leaves with an engine that answers.
pub(super) fn start(place: &Place) -> Result<()> {
    match state(place) {
        State::Reachable => return Ok(()),
        State::Forbidden => bail!("it runs, but this user may not use it: join the group `docker` and log in again"),
        State::Absent if !system::is_root() => bail!("it does not answer, and only root can start it: `dockerd`"),
        State::Absent => install(place)?,
    }
    if !reachable(place) && !launch(place)? {
        bail!(
            "it was started but does not answer\n{}\nThe whole output: {}",
            run::tail(&log(place)),
            log(place).display()
        );
    }
    let pid = fs::read_to_string("/var/run/docker.pid").unwrap_or_default();
    let pid = pid.trim();
    fs::write(place.cached(STARTED), pid).context("cannot note that the engine was started")?;
    eprintln!("  set-up started the Docker engine (pid {pid}, log {}) and leaves it running", log(place).display());
    Ok(())
}

fn log(place: &Place) -> std::path::PathBuf {
    place.log("dockerd")
}

fn reachable(place: &Place) -> bool {
    matches!(state(place), State::Reachable)
}

fn state(place: &Place) -> State {
    let mut info = place.program("docker");
    info.args(["info", "--format", "{{.ServerVersion}}"]);
    match run::answer(&mut info, QUESTION_MAX) {
        Some(answer) if answer.yes && !answer.out.trim().is_empty() => State::Reachable,
        Some(answer) if answer.err.contains("permission denied") => State::Forbidden,
        _ => State::Absent,
    }
}

/// Installs the engine where only its client, or nothing, is there.
fn install(place: &Place) -> Result<()> {
    if run::on_path("dockerd") && run::on_path("docker") {
        return Ok(());
    }
    if !system::can_install() {
        bail!("not installed; on Debian: {}", system::install_command(&["docker.io"]));
    }
    // Docker's own client package excludes Debian's engine, but goes with Docker's own engine.
    let upstream = system::missing(place, &["docker-ce-cli"]).is_empty();
    let engine = if upstream { "docker-ce" } else { "docker.io" };
    // Without systemd nobody else mounts the control groups.
    let helper: &[&str] = if system::has_systemd() { &[] } else { &["cgroupfs-mount"] };
    system::install(place, &[&[engine], helper].concat())
}

/// Starts the engine; whether it answers in time.
fn launch(place: &Place) -> Result<bool> {
    if system::has_systemd() {
        run::output(place.program("systemctl").args(["start", "docker"]), ENGINE_START_MAX)?;
        return Ok(run::until("Docker engine", ENGINE_START_MAX, || reachable(place)));
    }
    if !control_groups() {
        run::output(&mut place.program("cgroupfs-mount"), QUESTION_MAX)?;
    }
    // A kernel without netfilter cannot do Docker's port publishing, which nothing here needs.
    Ok(detached(place, &[])? || detached(place, &["--iptables=false", "--ip6tables=false"])?)
}

fn control_groups() -> bool {
    let root = Path::new("/sys/fs/cgroup");
    root.join("cgroup.controllers").exists() || root.join("memory").exists()
}

fn detached(place: &Place, arguments: &[&str]) -> Result<bool> {
    let output = fs::File::create(log(place)).context("cannot write the engine's log")?;
    let mut child = place
        .program("setsid")
        .arg("dockerd")
        .args(arguments)
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("cannot start dockerd")?;
    let mut ended = false;
    let what = ["Docker engine", &arguments.join(" ")].join(" ");
    let answered = run::until(what.trim(), ENGINE_START_MAX, || {
        ended = !matches!(child.try_wait(), Ok(None));
        ended || reachable(place)
    });
    if !answered {
        // It hangs: another attempt needs its place.
        child.kill().and_then(|()| child.wait().map(|_| ())).context("cannot stop the engine that does not answer")?;
    }
    Ok(answered && !ended)
}
