//! The container that a sandbox is, and the proof that the engine made it so.
//!
//! Root inside, with the four capabilities by which the sidecar becomes the customer's user and signals it; nothing of
//! the customer runs as root. No network, a read-only root, no other mounts than the three directories of its disk and
//! the one of its socket. A setting is written once, in [`container`]; [`verify`] compares what runs against the same
//! value.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use alloy::primitives::B256;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerUpdateBody, HealthConfig, HostConfig, HostConfigLogConfig,
    Mount, MountTypeEnum, ResourcesUlimits,
};
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::SidecarToken;
use sandbox_protocol::limits::{OPEN_FILES_MAX, PIDS_MAX};

use super::disk::{DiskQuota, Disks, OUTSIDE_NAMES};
use crate::places::{EGRESS_SOCKET_FILE, Places, SOCKET_FILE};

/// Where the socket's directory is inside.
const SOCKET_DIR_INSIDE: &str = "/run/sandbox";
/// The same in each: a container may be made before it is known for which sandbox.
const HOSTNAME: &str = "sandbox";
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/agent";
/// What the sidecar keeps for itself: nobody else inside reads it.
const STORAGE: &str = "/storage";
/// Where the directories of a disk are inside.
pub(super) const INSIDE: [&str; 3] = [WORKSPACE, HOME, STORAGE];
const CAPABILITIES: [&str; 4] = ["CHOWN", "KILL", "SETGID", "SETUID"];
const TMP_OPTIONS: &str = "rw,nosuid,nodev,size=256m,mode=1777";
const MIB: i64 = 1024 * 1024;
const NANOS: i64 = 1_000_000_000;

/// Label by which a node finds its containers.
pub(super) const NODE_LABEL: &str = "sandbox.node";
/// Label with the directory that the node keeps its sockets in.
const RUN_DIR_LABEL: &str = "sandbox.run_dir";
/// Label with the name by which socket directory and disk are found. It stays when the container gets another.
pub(super) const VESSEL_LABEL: &str = "sandbox.vessel";
/// Label with the kind of its disk.
const DISK_LABEL: &str = "sandbox.disk";
/// Label of those whose disk has a directory of the sidecar's own, with its place inside.
const STORAGE_LABEL: &str = "sandbox.storage";

/// Of the directories, those that are the customer's come first.
pub(super) const CUSTOMERS: usize = 2;

/// The variable that a sidecar's token is in.
const TOKEN_VARIABLE: &str = "SIDECAR_AUTH_TOKEN";

/// What sandboxes write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// A disk.
    Disk(DiskQuota),
    /// A disk without a directory of the sidecar's own: how containers were made before.
    SharedDisk(DiskQuota),
    /// Two volumes of the engine's without a quota: how they were made before that.
    Volumes,
}

impl Storage {
    /// How it is kept to its size.
    pub(super) const fn quota(self) -> Option<DiskQuota> {
        match self {
            Self::Disk(quota) | Self::SharedDisk(quota) => Some(quota),
            Self::Volumes => None,
        }
    }

    /// How many of the directories it has.
    const fn directories(self) -> usize {
        match self {
            Self::Disk(_) => INSIDE.len(),
            Self::SharedDisk(_) | Self::Volumes => CUSTOMERS,
        }
    }
}

/// A container as it is to be, whoever it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// By what its socket directory and disk are found.
    pub(super) vessel: String,
    /// Its image.
    pub(super) image: String,
    /// Its limits.
    pub(super) resources: Resources,
    /// Its runtime; the engine's default without one.
    pub(super) runtime: Option<String>,
    /// What it writes to.
    pub(super) storage: Storage,
    /// Labels of its own, besides the node's.
    pub(super) labels: BTreeMap<String, String>,
}

/// Where on this host a container finds what it is given.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    /// Names and sockets.
    pub(super) places: Places,
    /// Disks.
    pub(super) disks: Disks,
    /// Settings of the operator's for what runs beside the customer's commands, as `NAME=value`. No secrets.
    pub(super) settings: Arc<[String]>,
}

/// The container to be created as `shape`, with a new token for its sidecar.
pub(super) fn container(shape: &Shape, ground: &Ground) -> ContainerCreateBody {
    let token = SidecarToken::new(B256::from(rand::random::<[u8; 32]>())).reveal();
    ContainerCreateBody {
        image: Some(shape.image.clone()),
        user: Some("0:0".into()),
        hostname: Some(HOSTNAME.into()),
        labels: Some(labels(shape, ground)),
        env: Some(variables(&token, ground)),
        // The image's own check would start a process in every sandbox every few seconds; the operator asks the socket.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        host_config: Some(host_config(shape, ground)),
        ..ContainerCreateBody::default()
    }
}

fn variables(token: &str, ground: &Ground) -> Vec<String> {
    let own = [
        format!("SIDECAR_SOCKET={SOCKET_DIR_INSIDE}/{SOCKET_FILE}"),
        format!("SIDECAR_EGRESS_SOCKET={SOCKET_DIR_INSIDE}/{EGRESS_SOCKET_FILE}"),
        format!("{TOKEN_VARIABLE}={token}"),
        format!("AGENT_WORKSPACE_ROOT={WORKSPACE}"),
        format!("STORAGE_PATH={STORAGE}"),
    ];
    own.into_iter().chain(ground.settings.iter().cloned()).collect()
}

/// The token that the container's sidecar was given.
pub(super) fn token(found: &ContainerInspectResponse) -> Option<SidecarToken> {
    let env = found.config.as_ref()?.env.as_ref()?;
    env.iter().find_map(|pair| SidecarToken::parse(pair.strip_prefix(TOKEN_VARIABLE)?.strip_prefix('=')?))
}

/// The name by which the container's socket directory and disk are found; without the label, its own.
pub(super) fn vessel(found: &ContainerInspectResponse) -> Option<&str> {
    label(found, VESSEL_LABEL)
}

/// What the container writes to, as its labels tell.
pub(super) fn storage(found: &ContainerInspectResponse) -> Storage {
    match label(found, DISK_LABEL).and_then(|kind| kind.parse().ok()) {
        None => Storage::Volumes,
        Some(quota) if label(found, STORAGE_LABEL) == Some(STORAGE) => Storage::Disk(quota),
        Some(quota) => Storage::SharedDisk(quota),
    }
}

fn label<'a>(found: &'a ContainerInspectResponse, name: &str) -> Option<&'a str> {
    Some(found.config.as_ref()?.labels.as_ref()?.get(name)?.as_str())
}

/// What is to be changed of a container's limits for them to be `resources`; `None` where they are.
pub(super) fn limits_to_change(resources: Resources, found: &ContainerInspectResponse) -> Option<ContainerUpdateBody> {
    let host = found.host_config.as_ref()?;
    let (memory, nano_cpus) = (memory(resources), nano_cpus(resources));
    if host.memory == Some(memory) && host.nano_cpus == Some(nano_cpus) {
        return None;
    }
    Some(ContainerUpdateBody {
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(nano_cpus),
        ..ContainerUpdateBody::default()
    })
}

fn memory(resources: Resources) -> i64 {
    i64::try_from(resources.memory_mb).unwrap_or(i64::MAX / MIB).saturating_mul(MIB)
}

fn nano_cpus(resources: Resources) -> i64 {
    i64::try_from(resources.cpu_cores).unwrap_or(i64::MAX / NANOS).saturating_mul(NANOS)
}

fn host_config(shape: &Shape, ground: &Ground) -> HostConfig {
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
        memory: Some(memory(shape.resources)),
        memory_swap: Some(memory(shape.resources)),
        nano_cpus: Some(nano_cpus(shape.resources)),
        ulimits: Some(vec![ResourcesUlimits {
            name: Some("nofile".into()),
            soft: Some(OPEN_FILES_MAX),
            hard: Some(OPEN_FILES_MAX),
        }]),
        tmpfs: Some(HashMap::from([("/tmp".into(), TMP_OPTIONS.into())])),
        mounts: Some(mounts(shape, ground)),
        runtime: shape.runtime.clone(),
        // What a sidecar prints is for the operator; a customer cannot make it much.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(HashMap::from([("max-size".into(), "1m".into()), ("max-file".into(), "1".into())])),
        }),
        ..HostConfig::default()
    }
}

fn mounts(shape: &Shape, ground: &Ground) -> Vec<Mount> {
    let mount = |kind: MountTypeEnum, source: String, target: &str| Mount {
        typ: Some(kind),
        source: Some(source),
        target: Some(target.into()),
        ..Mount::default()
    };
    let writable = |(name, inside): (&str, &str)| match shape.storage {
        Storage::Disk(_) | Storage::SharedDisk(_) => {
            let outside = ground.disks.outside(&shape.vessel, name);
            mount(MountTypeEnum::BIND, outside.display().to_string(), inside)
        }
        Storage::Volumes => mount(MountTypeEnum::VOLUME, volume(&shape.vessel, name), inside),
    };
    let mut mounts: Vec<Mount> =
        OUTSIDE_NAMES.into_iter().zip(INSIDE).take(shape.storage.directories()).map(writable).collect();
    let socket_dir = ground.places.socket_dir(&shape.vessel).display().to_string();
    mounts.push(mount(MountTypeEnum::BIND, socket_dir, SOCKET_DIR_INSIDE));
    mounts
}

/// Name of a volume of before.
pub(super) fn volume(vessel: &str, name: &str) -> String {
    format!("{vessel}-{name}")
}

fn labels(shape: &Shape, ground: &Ground) -> HashMap<String, String> {
    // The node's own are the last word.
    let mut labels: HashMap<_, _> = shape.labels.clone().into_iter().chain(node_labels(ground)).collect();
    labels.insert(VESSEL_LABEL.into(), shape.vessel.clone());
    if let Some(quota) = shape.storage.quota() {
        labels.insert(DISK_LABEL.into(), quota.as_str().into());
    }
    if matches!(shape.storage, Storage::Disk(_)) {
        labels.insert(STORAGE_LABEL.into(), STORAGE.into());
    }
    labels
}

/// What everything of this node's is labelled with.
pub(super) fn node_labels(ground: &Ground) -> HashMap<String, String> {
    HashMap::from([
        (NODE_LABEL.into(), ground.places.tag().into()),
        (RUN_DIR_LABEL.into(), ground.places.run_dir().display().to_string()),
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
pub(super) fn verify(shape: &Shape, ground: &Ground, found: &ContainerInspectResponse) -> Result<(), Mismatch> {
    let asked = host_config(shape, ground);
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
    if asked.runtime.is_some() {
        same("runtime", &asked.runtime, &host.runtime)?;
    }
    verify_mounts(shape, ground, found)
}

/// The mounts that exist, which is what counts: an image's own volumes would show up here as well.
fn verify_mounts(shape: &Shape, ground: &Ground, found: &ContainerInspectResponse) -> Result<(), Mismatch> {
    let key = |target: &Option<String>, kind: String, source: Option<String>| {
        (target.clone().unwrap_or_default(), kind, source.unwrap_or_default())
    };
    let asked = mounts(shape, ground);
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

    use super::*;

    fn shape() -> Shape {
        Shape {
            vessel: "sbx-1-2-0-tag".into(),
            image: "sidecar".into(),
            resources: Resources { cpu_cores: 2, memory_mb: 512, disk_gb: 1 },
            runtime: None,
            storage: Storage::Disk(DiskQuota::Loop),
            labels: BTreeMap::new(),
        }
    }

    fn ground() -> Ground {
        let places = Places::new(Path::new("/run/x"), Address::ZERO, 1).unwrap();
        Ground { places, disks: Disks::at(Path::new("/data/disks")), settings: ["MODEL=m".to_owned()].into() }
    }

    /// What an engine shows that did all it was asked.
    fn obedient() -> ContainerInspectResponse {
        obedient_to(&shape())
    }

    fn obedient_to(shape: &Shape) -> ContainerInspectResponse {
        let asked = container(shape, &ground());
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
            config: Some(ContainerConfig { user: asked.user, labels: asked.labels, ..ContainerConfig::default() }),
            mounts: Some(mounts(shape, &ground()).into_iter().map(point).collect()),
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
        verify(&shape(), &ground(), &found).err().map(|mismatch| mismatch.setting)
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

    #[test]
    fn the_runtime_that_was_asked_for_is_the_one_that_runs() {
        let asked = Shape { runtime: Some("runsc".into()), ..shape() };
        let mut found = obedient_to(&asked);
        verify(&asked, &ground(), &found).unwrap();
        found.host_config.as_mut().unwrap().runtime = Some("runc".into());
        assert_eq!(verify(&asked, &ground(), &found).unwrap_err().setting, "runtime");
    }

    #[test]
    fn a_container_tells_by_what_its_things_are_found_whatever_it_is_called() {
        let found = obedient();
        assert_eq!((vessel(&found), storage(&found)), (Some("sbx-1-2-0-tag"), Storage::Disk(DiskQuota::Loop)));
        let before = ContainerInspectResponse { config: None, ..found };
        assert_eq!((vessel(&before), storage(&before)), (None, Storage::Volumes));
    }

    #[test]
    fn containers_with_volumes_as_they_were_made_before_are_still_as_promised() {
        let before = Shape { storage: Storage::Volumes, ..shape() };
        verify(&before, &ground(), &obedient_to(&before)).unwrap();
        assert_eq!(verify(&before, &ground(), &obedient()).unwrap_err().setting, "mounts");
    }

    #[test]
    fn disks_without_a_directory_of_the_sidecars_own_are_still_as_promised() {
        let before = Shape { storage: Storage::SharedDisk(DiskQuota::Loop), ..shape() };
        let found = obedient_to(&before);
        assert_eq!((storage(&found), found.mounts.as_ref().unwrap().len()), (before.storage, 3));
        verify(&before, &ground(), &found).unwrap();
        assert_eq!(verify(&shape(), &ground(), &found).unwrap_err().setting, "mounts");
    }

    #[test]
    fn a_sidecar_is_told_where_its_own_directory_is_and_what_the_operator_set() {
        let env = container(&shape(), &ground()).env.unwrap();
        assert!(env.contains(&"STORAGE_PATH=/storage".to_owned()) && env.contains(&"MODEL=m".to_owned()));
        let mounts = mounts(&shape(), &ground());
        let inside: Vec<_> = mounts.iter().filter_map(|mount| mount.target.as_deref()).collect();
        assert_eq!(inside, ["/workspace", "/home/agent", "/storage", "/run/sandbox"]);
    }

    #[test]
    fn labels_of_its_own_take_none_of_the_nodes() {
        let own = [("move", "m1"), (VESSEL_LABEL, "other"), (NODE_LABEL, "other")];
        let labels = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let made = container(&Shape { labels, ..shape() }, &ground()).labels.unwrap();
        assert_eq!((made["move"].as_str(), made[VESSEL_LABEL].as_str()), ("m1", "sbx-1-2-0-tag"));
        assert_ne!(made[NODE_LABEL], "other");
    }

    #[test]
    fn limits_are_changed_only_where_they_differ() {
        let resources = shape().resources;
        assert_eq!(limits_to_change(resources, &obedient()), None);
        let more = Resources { memory_mb: resources.memory_mb + 1, ..resources };
        let change = limits_to_change(more, &obedient()).unwrap();
        assert_eq!((change.memory, change.memory_swap), (Some(513 * MIB), Some(513 * MIB)));
        let more = Resources { cpu_cores: resources.cpu_cores + 1, ..resources };
        assert_eq!(limits_to_change(more, &obedient()).unwrap().nano_cpus, Some(3 * NANOS));
    }
}
