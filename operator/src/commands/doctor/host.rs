//! Checks of this machine: the key's files, the engine, disks, sockets.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;

use super::{Finding, bounded};
use crate::admin::Node;
use crate::chain::key::{self, Kept, KeyError};
use crate::config::Config;
use crate::docker::{DiskQuota, EngineFacts, Survey};
use crate::limits::{DISK_FREE_BYTES_LOW, DISK_FREE_BYTES_MIN};
use crate::places::Places;

/// The key, if it opened, and what is to be said of how it is kept.
pub(super) fn key_checks(
    config: &Config,
    opened: Result<PrivateKeySigner, KeyError>,
) -> (Option<PrivateKeySigner>, Vec<Finding>) {
    let finding = match (&opened, key::kept(&config.keystore)) {
        (Err(error), Ok(None)) => Finding::failed(
            "key",
            error,
            "`operator key new` makes an encrypted key, `operator key import` takes yours",
        ),
        (Err(error), _) => Finding::failed("key", error, "name the file with its password by KEYSTORE_PASSWORD_FILE"),
        (Ok(key), Ok(Some(Kept::Encrypted))) => Finding::ok("key", format!("{}, encrypted", key.address())),
        (Ok(key), _) => Finding::warning(
            "key",
            format!("{}, in plaintext", key.address()),
            "put a password on it: `operator key encrypt`",
        ),
    };
    let open: Vec<String> = key::files(&config.keystore)
        .iter()
        .filter(|path| others_may_read(path))
        .map(|path| path.display().to_string())
        .collect();
    let permissions = if open.is_empty() {
        Finding::ok("keystore", "its files are for their owner only")
    } else {
        let said = format!("others may read {}", open.join(", "));
        Finding::failure("keystore", said, format!("chmod 600 {}", open.join(" ")))
    };
    (opened.ok(), vec![finding, permissions])
}

pub(super) fn others_may_read(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

/// The engine: there, with the runtimes and images that are set, with room.
pub(super) async fn engine_checks(config: &Config) -> Vec<Finding> {
    let surveyed = async {
        let survey = Survey::connect(&config.engine.host).await?;
        let facts = survey.facts().await?;
        Ok::<_, crate::docker::DockerError>((survey, facts))
    };
    let advice = format!("start the engine, and let this account use it at DOCKER_HOST={}", config.engine.host);
    let (survey, facts) = match tokio::time::timeout(crate::limits::CHECK_TIMEOUT, surveyed).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return vec![Finding::failed("engine", &error, advice)],
        Err(_) => return vec![Finding::failure("engine", "it does not answer in time", advice)],
    };
    let said = format!("version {} at {}", facts.version, config.engine.host);
    let mut findings = vec![Finding::ok("engine", said), runtimes(config, &facts)];
    findings.push(bounded("image", image(config, &survey)).await);
    // Where the engine keeps its files it may keep them from us, in a machine of its own say.
    findings.push(if facts.root_dir.exists() {
        disk("engine disk", &facts.root_dir, "docker system df shows what takes the room")
    } else {
        Finding::warning(
            "engine disk",
            format!("{} is not seen from here", facts.root_dir.display()),
            "watch its free space where it is",
        )
    });
    findings
}

fn runtimes(config: &Config, facts: &EngineFacts) -> Finding {
    let wanted = config.engine.runtime.iter().chain(&config.engine.menu.runtimes);
    let missing: Vec<&str> = wanted.filter(|runtime| !facts.runtimes.contains(runtime)).map(String::as_str).collect();
    if missing.is_empty() {
        let used = config.engine.runtime.as_deref().unwrap_or(&facts.default_runtime);
        return Finding::ok("runtime", format!("{used}, of {}", facts.runtimes.join(", ")));
    }
    let said = format!("the engine knows no runtime {}", missing.join(", "));
    Finding::failure("runtime", said, "install it and name it in the engine's daemon.json, or change SANDBOX_RUNTIME")
}

async fn image(config: &Config, survey: &Survey) -> Finding {
    let images = &config.engine.menu.images;
    let mut missing = Vec::new();
    for image in std::iter::once(&images.default).chain(&images.allowed) {
        match survey.has_image(image).await {
            Ok(true) => {}
            Ok(false) => missing.push(image.as_str()),
            Err(error) => return Finding::failed("image", &error, "see the engine's log"),
        }
    }
    if missing.is_empty() {
        return Finding::ok("image", images.default.clone());
    }
    let said = format!("the engine has no image {}", missing.join(", "));
    Finding::failure("image", said, format!("docker pull {}, or build it", missing.join("; docker pull ")))
}

/// The state directory: usable, with room; and whether a node runs on it.
pub(super) async fn state(config: &Config) -> Finding {
    let node = match Node::running(&config.data_dir).await {
        Ok(Some(_)) => "a node runs on it",
        Ok(None) => "no node runs on it",
        Err(error) => return Finding::failed("state", &error, "run this as the account that runs the node"),
    };
    let found = disk("state", &config.data_dir, "make room, or give DATA_DIR a disk of its own");
    Finding { said: format!("{}; {node}", found.said), ..found }
}

/// Free space where `path` is, or will be.
fn disk(check: &'static str, path: &Path, advice: &str) -> Finding {
    let Some(there) = path.ancestors().find(|ancestor| ancestor.exists()) else {
        return Finding::failure(check, format!("{} cannot be made", path.display()), "name another directory");
    };
    let free = match fs4::available_space(there) {
        Ok(free) => free,
        Err(error) => return Finding::failed(check, &error, "name another directory"),
    };
    let said = format!("{} MB are free at {}", free / (1024 * 1024), path.display());
    room(check, free, said, advice)
}

fn room(check: &'static str, free: u64, said: String, advice: &str) -> Finding {
    if free < DISK_FREE_BYTES_MIN {
        Finding::failure(check, said, advice)
    } else if free < DISK_FREE_BYTES_LOW {
        Finding::warning(check, said, advice)
    } else {
        Finding::ok(check, said)
    }
}

/// The directory that sandboxes' sockets are in: short enough, and to be written to.
pub(super) fn sockets(config: &Config) -> Finding {
    const CHECK: &str = "sockets";
    let dir = &config.run_dir;
    if let Err(error) = Places::new(dir, Address::ZERO, 0) {
        return Finding::failed(CHECK, &error, "such as RUN_DIR=/run/agent-sandbox");
    }
    let advice = format!("make {} and give it to the account that runs the node", dir.display());
    if let Err(error) = std::fs::create_dir_all(dir) {
        return Finding::failed(CHECK, &error, advice);
    }
    let probe = dir.join(format!(".probe-{:08x}", rand::random::<u32>()));
    let bound = std::os::unix::net::UnixListener::bind(&probe).and_then(|_| std::fs::remove_file(&probe));
    match bound {
        Ok(()) => Finding::ok(CHECK, format!("sockets can be bound in {}", dir.display())),
        Err(error) => Finding::failed(CHECK, &error, advice),
    }
}

/// Loop devices, where sandboxes' disks are files behind them.
pub(super) fn loops(config: &Config) -> Option<Finding> {
    const CHECK: &str = "loop devices";
    const CONTROL: &str = "/dev/loop-control";
    if config.engine.disk_quota != DiskQuota::Loop {
        return None;
    }
    Some(match std::fs::File::options().read(true).write(true).open(CONTROL) {
        Ok(_) => Finding::ok(CHECK, "can be made"),
        Err(error) => {
            let said = format!("{CONTROL} cannot be used: {error}");
            Finding::failure(CHECK, said, "modprobe loop, and run the node as root; or set DISK_QUOTA=none")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_disk_is_judged_by_what_is_free_on_both_sides_of_each_limit() {
        let verdict = |free| room("state", free, String::new(), "").verdict;
        assert_eq!(verdict(DISK_FREE_BYTES_MIN - 1), Verdict::Failure);
        assert_eq!(verdict(DISK_FREE_BYTES_MIN), Verdict::Warning);
        assert_eq!(verdict(DISK_FREE_BYTES_LOW - 1), Verdict::Warning);
        assert_eq!(verdict(DISK_FREE_BYTES_LOW), Verdict::Ok);
    }

    #[test]
    fn a_key_that_others_may_read_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "").unwrap();
        for (mode, open) in [(0o600, false), (0o640, true), (0o604, true)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(others_may_read(&file), open, "{mode:o}");
        }
    }
}
