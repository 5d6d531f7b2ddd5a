//! The container that a sandbox is, and the proof that the engine made it so.
//!
//! Root inside, with the four capabilities by which the sidecar becomes the customer's user and signals it; nothing of
//! the customer runs as root. No network, a read-only root, no other mounts than its two volumes and the directory of
//! its socket. A setting is written once, in [`container`]; [`verify`] compares what runs against the same value.

use std::collections::HashMap;
use std::fmt::Debug;

use alloy::primitives::B256;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountTypeEnum,
    MountVolumeOptions, ResourcesUlimits,
};
use sandbox_fleet::sandbox::{Sandbox, SidecarToken};
use sandbox_protocol::limits::{OPEN_FILES_MAX, PIDS_MAX};

use crate::places::{Places, SOCKET_FILE};

/// Where the socket's directory is inside.
const SOCKET_DIR_INSIDE: &str = "/run/sandbox";
/// The same in each: a container may be made before it is known for which sandbox.
const HOSTNAME: &str = "sandbox";
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
const CAPABILITIES: [&str; 4] = ["CHOWN", "KILL", "SETGID", "SETUID"];
const TMP_OPTIONS: &str = "rw,nosuid,nodev,size=256m,mode=1777";
const MIB: i64 = 1024 * 1024;
const NANOS: i64 = 1_000_000_000;

/// Label by which a node finds its containers.
pub(super) const NODE_LABEL: &str = "sandbox.node";
/// Label with the directory that the node keeps its sockets in.
const RUN_DIR_LABEL: &str = "sandbox.run_dir";
/// Label with the sandbox's id.
pub(super) const ID_LABEL: &str = "sandbox.id";

/// The variable that a sidecar's token is in.
const TOKEN_VARIABLE: &str = "SIDECAR_AUTH_TOKEN";

/// The container to be created for `sandbox`, with a new token for its sidecar.
pub(crate) fn container(sandbox: &Sandbox, places: &Places, runtime: Option<&str>) -> ContainerCreateBody {
    let token = SidecarToken::new(B256::from(rand::random::<[u8; 32]>())).reveal();
    ContainerCreateBody {
        image: Some(sandbox.spec.image.clone()),
        user: Some("0:0".into()),
        hostname: Some(HOSTNAME.into()),
        labels: Some(labels(sandbox, places)),
        env: Some(vec![
            format!("SIDECAR_SOCKET={SOCKET_DIR_INSIDE}/{SOCKET_FILE}"),
            format!("{TOKEN_VARIABLE}={token}"),
            format!("AGENT_WORKSPACE_ROOT={WORKSPACE}"),
        ]),
        // The image's own check would start a process in every sandbox every few seconds; the operator asks the socket.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        host_config: Some(host_config(sandbox, places, runtime)),
        ..ContainerCreateBody::default()
    }
}

/// The token that the container's sidecar was given.
pub(crate) fn token(found: &ContainerInspectResponse) -> Option<SidecarToken> {
    let env = found.config.as_ref()?.env.as_ref()?;
    env.iter().find_map(|pair| SidecarToken::parse(pair.strip_prefix(TOKEN_VARIABLE)?.strip_prefix('=')?))
}

fn host_config(sandbox: &Sandbox, places: &Places, runtime: Option<&str>) -> HostConfig {
    let resources = sandbox.spec.resources;
    let memory = i64::try_from(resources.memory_mb).unwrap_or(i64::MAX / MIB).saturating_mul(MIB);
    HostConfig {
        network_mode: Some("none".into()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(CAPABILITIES.map(String::from).to_vec()),
        security_opt: Some(vec!["no-new-privileges:true".into()]),
        init: Some(true),
        ipc_mode: Some("private".into()),
        pids_limit: Some(PIDS_MAX),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(i64::try_from(resources.cpu_cores).unwrap_or(i64::MAX / NANOS).saturating_mul(NANOS)),
        ulimits: Some(vec![ResourcesUlimits {
            name: Some("nofile".into()),
            soft: Some(OPEN_FILES_MAX),
            hard: Some(OPEN_FILES_MAX),
        }]),
        tmpfs: Some(HashMap::from([("/tmp".into(), TMP_OPTIONS.into())])),
        mounts: Some(mounts(sandbox, places)),
        runtime: runtime.map(str::to_owned),
        // What a sidecar prints is for the operator; a customer cannot make it much.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(HashMap::from([("max-size".into(), "1m".into()), ("max-file".into(), "1".into())])),
        }),
        ..HostConfig::default()
    }
}

fn mounts(sandbox: &Sandbox, places: &Places) -> Vec<Mount> {
    let volume = |kind: &str, target: &str| Mount {
        typ: Some(MountTypeEnum::VOLUME),
        source: Some(format!("{}-{kind}", places.name(sandbox.id))),
        target: Some(target.into()),
        volume_options: Some(MountVolumeOptions {
            labels: Some(labels(sandbox, places)),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    };
    let socket = Mount {
        typ: Some(MountTypeEnum::BIND),
        source: Some(places.socket_dir(&places.name(sandbox.id)).display().to_string()),
        target: Some(SOCKET_DIR_INSIDE.into()),
        ..Mount::default()
    };
    vec![volume("workspace", WORKSPACE), volume("home", HOME), socket]
}

fn labels(sandbox: &Sandbox, places: &Places) -> HashMap<String, String> {
    HashMap::from([
        (NODE_LABEL.into(), places.tag().into()),
        (RUN_DIR_LABEL.into(), places.run_dir().display().to_string()),
        (ID_LABEL.into(), sandbox.id.to_string()),
    ])
}

/// A setting that the engine did not make as asked.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: asked {asked}, found {found}")]
pub(crate) struct Mismatch {
    setting: &'static str,
    asked: String,
    found: String,
}

/// Compares what the engine runs with what [`container`] asked for.
///
/// # Errors
/// The first setting that differs, with both values.
pub(crate) fn verify(sandbox: &Sandbox, places: &Places, found: &ContainerInspectResponse) -> Result<(), Mismatch> {
    let asked = host_config(sandbox, places, None);
    let host = found.host_config.clone().unwrap_or_default();
    let config = found.config.clone().unwrap_or_default();
    same("user", &Some("0:0".to_owned()), &config.user)?;
    same("network_mode", &asked.network_mode, &host.network_mode)?;
    same("readonly_rootfs", &asked.readonly_rootfs, &host.readonly_rootfs)?;
    same("privileged", &asked.privileged, &host.privileged)?;
    same("cap_drop", &asked.cap_drop, &host.cap_drop)?;
    same("cap_add", &sorted(asked.cap_add), &sorted(host.cap_add.clone()))?;
    same("security_opt", &asked.security_opt, &host.security_opt)?;
    same("init", &asked.init, &host.init)?;
    same("ipc_mode", &asked.ipc_mode, &host.ipc_mode)?;
    same("pids_limit", &asked.pids_limit, &host.pids_limit)?;
    same("memory", &asked.memory, &host.memory)?;
    same("memory_swap", &asked.memory_swap, &host.memory_swap)?;
    same("nano_cpus", &asked.nano_cpus, &host.nano_cpus)?;
    same("ulimits", &asked.ulimits, &host.ulimits)?;
    same("tmpfs", &asked.tmpfs, &host.tmpfs)?;
    nothing("binds", host.binds.as_deref())?;
    nothing("devices", host.devices.as_deref())?;
    nothing("extra_hosts", host.extra_hosts.as_deref())?;
    nothing("group_add", host.group_add.as_deref())?;
    same("pid_mode", &None, &host.pid_mode.clone().filter(|mode| !mode.is_empty()))?;
    same("userns_mode", &None, &host.userns_mode.clone().filter(|mode| !mode.is_empty()))?;
    verify_mounts(sandbox, places, found)
}

/// The mounts that exist, which is what counts: an image's own volumes would show up here as well.
fn verify_mounts(sandbox: &Sandbox, places: &Places, found: &ContainerInspectResponse) -> Result<(), Mismatch> {
    let key = |target: &Option<String>, kind: String, source: Option<String>| {
        (target.clone().unwrap_or_default(), kind, source.unwrap_or_default())
    };
    let asked = mounts(sandbox, places);
    let mut asked: Vec<_> = asked
        .iter()
        .map(|mount| {
            key(&mount.target, mount.typ.map(|kind| kind.to_string()).unwrap_or_default(), mount.source.clone())
        })
        .collect();
    let mut mounted: Vec<_> = found
        .mounts
        .iter()
        .flatten()
        .map(|mount| {
            let kind = mount.typ.map(|kind| kind.to_string()).unwrap_or_default();
            let source = if kind == "volume" { mount.name.clone() } else { mount.source.clone() };
            key(&mount.destination, kind, source)
        })
        .collect();
    asked.sort();
    mounted.sort();
    same("mounts", &asked, &mounted)
}

fn same<T: PartialEq + Debug>(setting: &'static str, asked: &T, found: &T) -> Result<(), Mismatch> {
    if asked == found {
        return Ok(());
    }
    Err(Mismatch { setting, asked: format!("{asked:?}"), found: format!("{found:?}") })
}

fn nothing<T: Debug>(setting: &'static str, found: Option<&[T]>) -> Result<(), Mismatch> {
    match found {
        Some(found) if !found.is_empty() => {
            Err(Mismatch { setting, asked: "none".into(), found: format!("{found:?}") })
        }
        Some(_) | None => Ok(()),
    }
}

fn sorted(list: Option<Vec<String>>) -> Option<Vec<String>> {
    list.map(|mut list| {
        // Newer engines spell capabilities with their prefix.
        list.iter_mut().for_each(|name| *name = name.trim_start_matches("CAP_").to_owned());
        list.sort();
        list
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use alloy::primitives::Address;
    use bollard::models::{ContainerConfig, DeviceMapping, MountPoint, MountPointTypeEnum};
    use sandbox_fleet::request::Resources;

    use super::*;

    fn sandbox() -> Sandbox {
        let mut sandbox = sandbox_fleet::fakes::sandbox(2);
        sandbox.spec.resources = Resources { cpu_cores: 2, memory_mb: 512, disk_gb: 1 };
        sandbox
    }

    fn places() -> Places {
        Places::new(Path::new("/run/x"), Address::ZERO, 1).unwrap()
    }

    /// What an engine shows that did all it was asked.
    fn obedient() -> ContainerInspectResponse {
        let asked = container(&sandbox(), &places(), None);
        let point = |mount: Mount| MountPoint {
            typ: Some(match mount.typ {
                Some(MountTypeEnum::BIND) => MountPointTypeEnum::BIND,
                _ => MountPointTypeEnum::VOLUME,
            }),
            name: mount.source.clone(),
            source: mount.source,
            destination: mount.target,
            ..MountPoint::default()
        };
        ContainerInspectResponse {
            config: Some(ContainerConfig { user: asked.user, ..ContainerConfig::default() }),
            mounts: Some(mounts(&sandbox(), &places()).into_iter().map(point).collect()),
            host_config: asked.host_config,
            ..ContainerInspectResponse::default()
        }
    }

    /// The setting in which a changed container is found to differ.
    fn check(change: impl FnOnce(&mut ContainerInspectResponse, &mut HostConfig)) -> Option<&'static str> {
        let mut found = obedient();
        let mut host = found.host_config.take().unwrap();
        change(&mut found, &mut host);
        found.host_config = Some(host);
        verify(&sandbox(), &places(), &found).err().map(|mismatch| mismatch.setting)
    }

    #[test]
    fn what_was_asked_for_passes_however_capabilities_are_spelled() {
        assert_eq!(check(|_, _| {}), None);
        let spelled = ["CAP_SETUID", "CAP_KILL", "CAP_CHOWN", "CAP_SETGID"].map(String::from).to_vec();
        assert_eq!(check(|_, host| host.cap_add = Some(spelled)), None);
    }

    #[test]
    fn every_setting_that_an_engine_did_not_make_is_found() {
        assert_eq!(check(|found, _| found.config = None), Some("user"));
        assert_eq!(check(|_, host| host.network_mode = Some("bridge".into())), Some("network_mode"));
        assert_eq!(check(|_, host| host.readonly_rootfs = Some(false)), Some("readonly_rootfs"));
        assert_eq!(check(|_, host| host.privileged = Some(true)), Some("privileged"));
        assert_eq!(check(|_, host| host.cap_drop = None), Some("cap_drop"));
        assert_eq!(check(|_, host| host.cap_add = Some(vec!["SYS_ADMIN".into()])), Some("cap_add"));
        assert_eq!(check(|_, host| host.security_opt = Some(vec!["seccomp=unconfined".into()])), Some("security_opt"));
        assert_eq!(check(|_, host| host.init = None), Some("init"));
        assert_eq!(check(|_, host| host.ipc_mode = Some("host".into())), Some("ipc_mode"));
        assert_eq!(check(|_, host| host.pids_limit = Some(0)), Some("pids_limit"));
        assert_eq!(check(|_, host| host.memory = Some(0)), Some("memory"));
        assert_eq!(check(|_, host| host.memory_swap = Some(-1)), Some("memory_swap"));
        assert_eq!(check(|_, host| host.nano_cpus = Some(0)), Some("nano_cpus"));
        assert_eq!(check(|_, host| host.ulimits = None), Some("ulimits"));
        assert_eq!(check(|_, host| host.tmpfs = None), Some("tmpfs"));
        assert_eq!(check(|_, host| host.pid_mode = Some("host".into())), Some("pid_mode"));
        assert_eq!(check(|_, host| host.userns_mode = Some("host".into())), Some("userns_mode"));
    }

    #[test]
    fn nothing_of_the_host_gets_in() {
        assert_eq!(check(|_, host| host.binds = Some(vec!["/:/host".into()])), Some("binds"));
        assert_eq!(check(|_, host| host.devices = Some(vec![DeviceMapping::default()])), Some("devices"));
        assert_eq!(check(|_, host| host.extra_hosts = Some(vec!["a:1.2.3.4".into()])), Some("extra_hosts"));
        assert_eq!(check(|_, host| host.group_add = Some(vec!["0".into()])), Some("group_add"));
        let more = |found: &mut ContainerInspectResponse, _: &mut HostConfig| {
            found.mounts.as_mut().unwrap().push(MountPoint::default());
        };
        assert_eq!(check(more), Some("mounts"));
        assert_eq!(check(|found, _| found.mounts = None), Some("mounts"));
    }
}
