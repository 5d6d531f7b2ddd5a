//! gVisor's runtime, known to the engine: what sandboxes with `SANDBOX_RUNTIME=runsc` are tested with.
//!
//! An engine learns of a runtime from its own settings, to which one entry is added; it reads them again when told to, and
//! nothing that runs is touched.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::limits::{ENGINE_START_MAX, QUESTION_MAX};
use crate::place::Place;
use crate::run;
use crate::setup::system;

const NAME: &str = "runsc";
const SETTINGS: &str = "/etc/docker/daemon.json";
/// Without KVM; without a network of its own, which no sandbox has; with the sockets that operator and sidecar meet at.
const ARGUMENTS: [&str; 3] = ["--platform=ptrace", "--network=none", "--host-uds=all"];

/// Leaves with an engine that knows the runtime.
pub(super) fn register(place: &Place) -> Result<()> {
    if known(place) {
        return Ok(());
    }
    if !run::on_path(NAME) {
        if !system::can_install() {
            bail!("not installed; on Debian: {}", system::install_command(&[NAME]));
        }
        system::install(place, &[NAME])?;
    }
    let path = run::output(place.program("sh").args(["-c", "command -v runsc"]), QUESTION_MAX)?;
    if !system::is_root() {
        bail!("the engine does not know it, and only root can add it to {SETTINGS}: {}", entry(path.trim()));
    }
    let before = fs::read_to_string(SETTINGS).unwrap_or_default();
    let with = added(&before, path.trim()).with_context(|| format!("cannot add to {SETTINGS}"))?;
    fs::create_dir_all(Path::new(SETTINGS).parent().unwrap_or(Path::new("/"))).context("no folder for settings")?;
    fs::write(SETTINGS, with).with_context(|| format!("cannot write {SETTINGS}"))?;
    let pid = fs::read_to_string("/var/run/docker.pid").context("the engine does not say which process it is")?;
    run::output(place.program("kill").args(["-HUP", pid.trim()]), QUESTION_MAX)?;
    ensure!(run::until("runtime runsc", ENGINE_START_MAX, || known(place)), "the engine does not take it");
    eprintln!("  set-up added the runtime {NAME} to {SETTINGS}");
    Ok(())
}

fn known(place: &Place) -> bool {
    let mut info = place.program("docker");
    info.args(["info", "--format", "{{json .Runtimes}}"]);
    let runtimes =
        run::answer(&mut info, QUESTION_MAX).and_then(|answer| serde_json::from_str::<Value>(&answer.out).ok());
    runtimes.is_some_and(|runtimes| runtimes.get(NAME).is_some())
}

fn entry(path: &str) -> Value {
    json!({ "path": path, "runtimeArgs": ARGUMENTS })
}

/// The settings with the runtime among them, and everything else as it was.
fn added(settings: &str, path: &str) -> Result<String> {
    let mut settings: Value =
        if settings.trim().is_empty() { json!({}) } else { serde_json::from_str(settings).context("it is no JSON")? };
    let all = settings.as_object_mut().context("it is no object")?;
    let runtimes = all.entry("runtimes").or_insert_with(|| json!({}));
    runtimes.as_object_mut().context("its runtimes are no object")?.insert(NAME.to_owned(), entry(path));
    Ok(format!("{settings:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_and_runtimes_stay() {
        let text = added(r#"{"debug":true,"runtimes":{"kata":{"path":"/k"}}}"#, "/usr/bin/runsc").unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&found["debug"], &found["runtimes"]["kata"]["path"]), (&json!(true), &json!("/k")));
        assert_eq!(found["runtimes"]["runsc"]["path"], "/usr/bin/runsc");
    }

    #[test]
    fn settings_that_cannot_be_read_are_not_replaced() {
        for text in ["{", "[]", r#"{"runtimes":[]}"#] {
            assert!(added(text, "/usr/bin/runsc").is_err(), "{text}");
        }
        assert!(added("", "/usr/bin/runsc").is_ok());
    }
}
