//! What a request means: defaults filled in, bounds kept, reserved keys understood, everything else refused by name.

mod agent;

use std::collections::{BTreeMap, BTreeSet};

use sandbox_protocol::abi::{ExecRequest, SandboxCreateRequest};
use sandbox_protocol::limits::{
    CPU_CORES_DEFAULT, CPU_CORES_MAX, DISK_GB_DEFAULT, DISK_GB_MAX, ENV_VAR_BYTES_MAX, ENV_VARS_MAX,
    EXEC_TIMEOUT_MS_DEFAULT, EXEC_TIMEOUT_MS_MAX, MEMORY_MB_DEFAULT, MEMORY_MB_MAX, MEMORY_MB_MIN,
};
use sandbox_protocol::sealed::is_sealed;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use serde::{Deserialize, Serialize};

use crate::limits::{
    IDLE_TIMEOUT_S_MAX, IDLE_TIMEOUT_S_MIN, SANDBOX_LABEL_BYTES_MAX, SANDBOX_LABELS_MAX, SANDBOX_NAME_BYTES_MAX,
    SNAPSHOT_URI_BYTES_MAX,
};
use crate::ports::SnapshotOrder;

pub use agent::{AgentChoice, BACKENDS, Errand, ErrandKind, prompt, task, task_response};

/// What a batch create is called: its request has no field for it.
const BATCH_ID_KEY: &str = "SANDBOX_BATCH_ID";

/// Environment variables by name.
pub type Env = BTreeMap<String, String>;

/// Cores, memory and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Whole cores.
    pub cpu_cores: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
}

impl Resources {
    /// Both together, stopping at the largest number.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_cores: self.cpu_cores.saturating_add(other.cpu_cores),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_gb: self.disk_gb.saturating_add(other.disk_gb),
        }
    }
}

/// A sandbox as it is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Its limits.
    pub resources: Resources,
    /// Name or digest of its image, one of the operator's.
    pub image: String,
    /// Given to every command that runs in it.
    pub env: Env,
    /// Its container runtime, where it is not the operator's default.
    #[serde(default)]
    pub runtime: Option<String>,
    /// Seconds without activity after which it is stopped; `None`: never.
    #[serde(default)]
    pub idle_timeout_s: Option<u64>,
    /// What it begins with.
    #[serde(default)]
    pub snapshot: Option<SnapshotUri>,
    /// Where its snapshots go that name no place.
    #[serde(default)]
    pub snapshot_destination: Option<SnapshotUri>,
    /// Names and ports that it may reach, as its customer wrote them; empty: none.
    #[serde(default)]
    pub egress: String,
    /// What its customer calls it.
    #[serde(default)]
    pub name: String,
    /// What its customer notes on it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What does its prompts and tasks that name nothing else.
    #[serde(default)]
    pub agent: AgentChoice,
}

/// Where a snapshot is or is to be: `s3://`, `ipfs://`, `https://`, `http://` or `file://`, and what the stores make of the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotUri(String);

impl SnapshotUri {
    const SCHEMES: [&str; 5] = ["s3://", "ipfs://", "https://", "http://", "file://"];

    /// The place that `text` names; `None` where it names none.
    ///
    /// # Errors
    /// `BadRequest`, with the name of the field.
    pub fn parse(field: &str, text: &str) -> Result<Option<Self>, Failure> {
        let bad = |message: String| Failure::new(FailureCode::BadRequest, format!("{field}: {message}"));
        if text.is_empty() {
            return Ok(None);
        }
        refuse_sealed(field, text)?;
        if text.len() > SNAPSHOT_URI_BYTES_MAX || text.chars().any(|letter| letter.is_control() || letter == ' ') {
            return Err(bad(format!("more than {SNAPSHOT_URI_BYTES_MAX} bytes, or letters that no URI has")));
        }
        if !Self::SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(bad("give s3://…, ipfs://…, https://… or file://…".into()));
        }
        Ok(Some(Self(text.to_owned())))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A snapshot as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotWish {
    destination: Option<SnapshotUri>,
    workspace: bool,
    state: bool,
}

impl SnapshotWish {
    /// Reads what was asked; an empty destination is that of the sandbox's create.
    ///
    /// # Errors
    /// `BadRequest`, with the name of the field.
    pub fn parse(destination: &str, workspace: bool, state: bool) -> Result<Self, Failure> {
        if !workspace && !state {
            let message = "include_workspace or include_state: one of them must be true";
            return Err(Failure::new(FailureCode::BadRequest, message));
        }
        Ok(Self { destination: SnapshotUri::parse("destination", destination)?, workspace, state })
    }

    /// What is to be taken of a sandbox that was made so.
    ///
    /// # Errors
    /// `BadRequest` where neither names a place.
    pub fn of(self, spec: &SandboxSpec) -> Result<SnapshotOrder, Failure> {
        let Self { destination, workspace, state } = self;
        let destination = destination.or_else(|| spec.snapshot_destination.clone()).ok_or_else(|| {
            let message = "destination: the sandbox was created with none either";
            Failure::new(FailureCode::BadRequest, message)
        })?;
        Ok(SnapshotOrder { destination, workspace, state })
    }
}

/// What an operator has for a sandbox to be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Menu {
    /// Images.
    pub images: Images,
    /// Container runtimes that may be asked for by name.
    pub runtimes: Vec<String>,
    /// Idle time of a sandbox that asks for 0, in seconds; `None`: never stopped for it.
    pub idle_timeout_s_default: Option<u64>,
    /// Whether customers may come over SSH.
    pub ssh: bool,
    /// Names of the agent profiles, besides the one that is meant where none is named.
    pub profiles: BTreeSet<String>,
}

/// Which images an operator runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// What a request without `SANDBOX_IMAGE` gets.
    pub default: String,
    /// What else may be asked for.
    pub allowed: Vec<String>,
}

impl Menu {
    /// One image, and no choice.
    pub fn of(image: impl Into<String>) -> Self {
        let images = Images { default: image.into(), allowed: Vec::new() };
        Self { images, runtimes: Vec::new(), idle_timeout_s_default: None, ssh: false, profiles: BTreeSet::new() }
    }

    fn image(&self, asked: Option<String>) -> Result<String, Failure> {
        let Some(asked) = asked else { return Ok(self.images.default.clone()) };
        if asked == self.images.default || self.images.allowed.contains(&asked) {
            return Ok(asked);
        }
        Err(Failure::new(FailureCode::ImageNotAllowed, format!("image {asked:?} is not on the operator's allow-list")))
    }

    fn runtime(&self, asked: Option<String>) -> Result<Option<String>, Failure> {
        match asked {
            Some(asked) if !self.runtimes.contains(&asked) => {
                let message = format!("env_json: SANDBOX_RUNTIME {asked:?} is not one of {:?}", self.runtimes);
                Err(Failure::new(FailureCode::Unsupported, message))
            }
            asked => Ok(asked),
        }
    }

    fn idle_timeout_s(&self, asked: u64) -> Result<Option<u64>, Failure> {
        if asked == 0 {
            return Ok(self.idle_timeout_s_default);
        }
        let range = IDLE_TIMEOUT_S_MIN..=IDLE_TIMEOUT_S_MAX;
        bounded("idle_timeout_seconds", asked, asked, range).map(Some)
    }
}

/// A command as it is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where.
    pub sandbox: SandboxId,
    /// Given to the shell.
    pub line: String,
    /// Working directory; the workspace where empty.
    pub cwd: String,
    /// Its own variables.
    pub env: Env,
    /// Its standard input.
    pub stdin: String,
    /// Its time in milliseconds.
    pub timeout_ms: u64,
}

/// The sandbox that a create request asks for.
///
/// # Errors
/// A [`Failure`] of outcome 1 with the first field that cannot be had.
pub fn sandbox_spec(request: &SandboxCreateRequest, menu: &Menu) -> Result<SandboxSpec, Failure> {
    let (spec, batch_id) = spec_and_batch(request, menu)?;
    if batch_id.is_some() {
        let message = format!("env_json: {BATCH_ID_KEY} is for the template of a batch alone");
        return Err(Failure::new(FailureCode::Unsupported, message));
    }
    Ok(spec)
}

/// The sandboxes that a batch create's template asks for, and what their batch is to be called; an empty text leaves that to the call.
///
/// # Errors
/// As [`sandbox_spec`].
pub fn batch_template(request: &SandboxCreateRequest, menu: &Menu) -> Result<(SandboxSpec, String), Failure> {
    let (spec, batch_id) = spec_and_batch(request, menu)?;
    Ok((spec, batch_id.unwrap_or_default()))
}

fn spec_and_batch(request: &SandboxCreateRequest, menu: &Menu) -> Result<(SandboxSpec, Option<String>), Failure> {
    let agent = AgentChoice::parse(&request.agent_backend, &request.agent_identifier, menu)?;
    created_with_key(request, menu)?;
    let resources = Resources {
        cpu_cores: bounded("cpu_cores", request.cpu_cores, CPU_CORES_DEFAULT, 1..=CPU_CORES_MAX)?,
        memory_mb: bounded("memory_mb", request.memory_mb, MEMORY_MB_DEFAULT, MEMORY_MB_MIN..=MEMORY_MB_MAX)?,
        disk_gb: bounded("disk_gb", request.disk_gb, DISK_GB_DEFAULT, 1..=DISK_GB_MAX)?,
    };
    let (env, mut reserved) = split_reserved(parse_env(&request.env_json)?);
    let mut take = |key: &str| reserved.remove(key);
    let spec = SandboxSpec {
        resources,
        env,
        image: menu.image(take("SANDBOX_IMAGE"))?,
        runtime: menu.runtime(take("SANDBOX_RUNTIME"))?,
        idle_timeout_s: menu.idle_timeout_s(request.idle_timeout_seconds)?,
        snapshot: SnapshotUri::parse("env_json: SANDBOX_SNAPSHOT", &take("SANDBOX_SNAPSHOT").unwrap_or_default())?,
        snapshot_destination: SnapshotUri::parse("snapshot_destination", &request.snapshot_destination)?,
        egress: take("SANDBOX_EGRESS_ALLOW").unwrap_or_default(),
        name: name(take("SANDBOX_NAME").unwrap_or_default())?,
        labels: labels(&take("SANDBOX_LABELS").unwrap_or_default())?,
        agent,
    };
    let batch_id = take(BATCH_ID_KEY);
    if let Some(key) = reserved.keys().next() {
        return Err(Failure::new(FailureCode::Unsupported, format!("env_json: {key} is not offered")));
    }
    Ok((spec, batch_id))
}

fn name(name: String) -> Result<String, Failure> {
    if name.len() > SANDBOX_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message =
            format!("env_json: SANDBOX_NAME holds a control character or more than {SANDBOX_NAME_BYTES_MAX} bytes");
        return Err(Failure::new(FailureCode::BadEnv, message));
    }
    Ok(name)
}

/// `KEY=VALUE`, by commas.
fn labels(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let bad = |message: String| Failure::new(FailureCode::BadEnv, format!("env_json: SANDBOX_LABELS: {message}"));
    let mut labels = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| bad(format!("{pair:?} is not KEY=VALUE")))?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || pair.len() > SANDBOX_LABEL_BYTES_MAX || pair.chars().any(char::is_control) {
            return Err(bad(format!(
                "{pair:?} has no key, a control character or more than {SANDBOX_LABEL_BYTES_MAX} bytes"
            )));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    if labels.len() > SANDBOX_LABELS_MAX {
        return Err(bad(format!("more than {SANDBOX_LABELS_MAX}")));
    }
    Ok(labels)
}

/// The command that an exec request asks for.
///
/// # Errors
/// A [`Failure`] of outcome 1 with the first field that cannot be had.
pub fn command(request: ExecRequest) -> Result<Command, Failure> {
    let bad = |message: String| Failure::new(FailureCode::BadRequest, message);
    refuse_sealed("command", &request.command)?;
    refuse_sealed("stdin", &request.stdin)?;
    if request.command.trim().is_empty() {
        return Err(bad("command is empty".into()));
    }
    if request.command.contains('\0') || request.cwd.contains('\0') {
        return Err(bad("command and cwd hold no NUL".into()));
    }
    if request.timeout_ms > EXEC_TIMEOUT_MS_MAX {
        return Err(bad(format!("timeout_ms is at most {EXEC_TIMEOUT_MS_MAX}")));
    }
    let (env, reserved) = split_reserved(parse_env(&request.env_json)?);
    if let Some(key) = reserved.keys().next() {
        return Err(Failure::new(FailureCode::BadEnv, format!("env_json: {key} is reserved")));
    }
    let sandbox = SandboxId::from_endpoint(&request.sidecar_endpoint).map_err(|error| bad(error.to_string()))?;
    let timeout_ms = if request.timeout_ms == 0 { EXEC_TIMEOUT_MS_DEFAULT } else { request.timeout_ms };
    Ok(Command { sandbox, line: request.command, cwd: request.cwd, env, stdin: request.stdin, timeout_ms })
}

fn not_offered(fields: &str) -> Failure {
    Failure::new(FailureCode::Unsupported, format!("{fields}: not offered by this operator"))
}

/// The key that opens a sandbox from its beginning, where its create names one.
///
/// # Errors
/// A [`Failure`] of outcome 1: no SSH is offered, none is asked for though there is a key, or it is none that is taken.
pub fn created_with_key(request: &SandboxCreateRequest, menu: &Menu) -> Result<Option<PublicKey>, Failure> {
    let has_key = !request.ssh_public_key.is_empty();
    if (request.ssh_enabled || has_key) && !menu.ssh {
        return Err(not_offered("ssh_enabled and ssh_public_key"));
    }
    if has_key && !request.ssh_enabled {
        let message = "ssh_public_key: set ssh_enabled too, or leave the key out";
        return Err(Failure::new(FailureCode::BadRequest, message));
    }
    has_key.then(|| ssh_key(&request.ssh_public_key)).transpose()
}

/// The key of a line, as `authorized_keys` has it.
///
/// # Errors
/// `BadRequest` with what is wrong with it.
pub fn ssh_key(line: &str) -> Result<PublicKey, Failure> {
    refuse_sealed("ssh_public_key", line)?;
    line.parse().map_err(|error| Failure::new(FailureCode::BadRequest, format!("ssh_public_key: {error}")))
}

fn bounded(field: &str, asked: u64, default: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, Failure> {
    match asked {
        0 => Ok(default),
        asked if range.contains(&asked) => Ok(asked),
        asked => Err(Failure::new(
            FailureCode::ResourcesOutOfRange,
            format!("{field} {asked} is outside {}–{}", range.start(), range.end()),
        )),
    }
}

/// An `env_json`: empty, or a JSON object of strings.
fn parse_env(text: &str) -> Result<Env, Failure> {
    let bad = |message: String| Failure::new(FailureCode::BadEnv, format!("env_json: {message}"));
    refuse_sealed("env_json", text)?;
    if text.is_empty() {
        return Ok(Env::new());
    }
    let env: Env = serde_json::from_str(text).map_err(|_| bad("not a JSON object of strings".into()))?;
    if env.len() > ENV_VARS_MAX {
        return Err(bad(format!("more than {ENV_VARS_MAX} variables")));
    }
    for (name, value) in &env {
        if !is_env_name(name) {
            return Err(bad(format!("{name:?} is no variable name")));
        }
        if value.contains('\0') || name.len() + value.len() > ENV_VAR_BYTES_MAX {
            return Err(bad(format!("{name} holds a NUL or more than {ENV_VAR_BYTES_MAX} bytes")));
        }
    }
    Ok(env)
}

fn is_env_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// Keys that speak to the operator or the sidecar, apart from those that commands see.
fn split_reserved(env: Env) -> (Env, Env) {
    let (reserved, plain) =
        env.into_iter().partition(|(name, _)| name.starts_with("SANDBOX_") || name.starts_with("SIDECAR_"));
    (plain, reserved)
}

/// What may be sealed was opened before it came here.
fn refuse_sealed(field: &str, text: &str) -> Result<(), Failure> {
    if is_sealed(text) {
        return Err(Failure::new(
            FailureCode::Unsupported,
            format!("{field}: not a field that may be sealed, or not twice"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn menu() -> Menu {
        let images = Images { default: "sidecar:1".into(), allowed: vec!["extra:2".into()] };
        let profiles = BTreeSet::from(["reviewer".to_owned()]);
        Menu { images, runtimes: vec!["runsc".into()], idle_timeout_s_default: Some(900), ssh: true, profiles }
    }

    fn create(change: impl FnOnce(&mut SandboxCreateRequest)) -> Result<SandboxSpec, String> {
        let mut request = SandboxCreateRequest::default();
        change(&mut request);
        sandbox_spec(&request, &menu()).map_err(|failure| failure.to_string())
    }

    fn exec(change: impl FnOnce(&mut ExecRequest)) -> Result<Command, String> {
        let mut request =
            ExecRequest { sidecar_endpoint: "sbx-1-2-0".into(), command: "true".into(), ..Default::default() };
        change(&mut request);
        command(request).map_err(|failure| failure.to_string())
    }

    #[test]
    fn zeros_mean_the_defaults() {
        let spec = create(|_| {}).unwrap();
        assert_eq!(spec.resources, Resources { cpu_cores: 1, memory_mb: 1_024, disk_gb: 10 });
        assert_eq!(spec.image, "sidecar:1");
        assert_eq!(exec(|_| {}).unwrap().timeout_ms, 30_000);
    }

    #[test]
    fn every_bound_holds_on_both_sides() {
        assert!(create(|request| request.cpu_cores = 128).is_ok());
        assert_eq!(
            create(|request| request.cpu_cores = 129).unwrap_err(),
            "resources_out_of_range: cpu_cores 129 is outside 1–128"
        );
        assert!(create(|request| request.memory_mb = 64).is_ok());
        assert!(create(|request| request.memory_mb = 63).is_err());
        assert!(create(|request| request.memory_mb = 1_048_576).is_ok());
        assert!(create(|request| request.memory_mb = 1_048_577).is_err());
        assert!(create(|request| request.disk_gb = 16_384).is_ok());
        assert!(create(|request| request.disk_gb = u64::MAX).is_err());
        assert!(exec(|request| request.timeout_ms = 300_000).is_ok());
        assert!(exec(|request| request.timeout_ms = 300_001).is_err());
    }

    #[test]
    fn an_image_is_the_default_or_on_the_list() {
        let with = |image: &str| create(|request| request.env_json = format!(r#"{{"SANDBOX_IMAGE":"{image}"}}"#));
        assert_eq!(with("extra:2").unwrap().image, "extra:2");
        assert_eq!(with("evil").unwrap_err(), r#"image_not_allowed: image "evil" is not on the operator's allow-list"#);
    }

    #[test]
    fn reserved_keys_never_reach_a_command() {
        let spec = create(|request| request.env_json = r#"{"A":"1","SANDBOX_IMAGE":"extra:2"}"#.into()).unwrap();
        assert_eq!(spec.env.keys().collect::<Vec<_>>(), ["A"]);
        assert!(create(|request| request.env_json = r#"{"SANDBOX_FLAVOUR":"x"}"#.into()).is_err());
        assert!(exec(|request| request.env_json = r#"{"SIDECAR_AUTH_TOKEN":"x"}"#.into()).is_err());
    }

    #[test]
    fn reserved_keys_say_how_a_sandbox_is_made() {
        let env = r#"{"SANDBOX_RUNTIME":"runsc","SANDBOX_NAME":"mine","SANDBOX_LABELS":"a=1, b = 2",
            "SANDBOX_EGRESS_ALLOW":"api.example","SANDBOX_SNAPSHOT":"s3://b/k#sha256=00"}"#;
        let spec = create(|request| request.env_json = env.into()).unwrap();
        assert_eq!(
            (spec.runtime.as_deref(), spec.name.as_str(), spec.egress.as_str()),
            (Some("runsc"), "mine", "api.example")
        );
        assert_eq!(spec.labels, BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]));
        assert_eq!(spec.snapshot.unwrap().as_str(), "s3://b/k#sha256=00");
    }

    #[test]
    fn a_batch_is_named_in_its_template_and_in_no_create_of_one_sandbox() {
        let env_json = r#"{"A":"1","SANDBOX_BATCH_ID":"night.2"}"#.to_owned();
        let request = SandboxCreateRequest { env_json, ..Default::default() };
        let (spec, batch_id) = batch_template(&request, &menu()).unwrap();
        assert_eq!((spec.env.len(), batch_id.as_str()), (1, "night.2"));
        assert_eq!(batch_template(&SandboxCreateRequest::default(), &menu()).unwrap().1, "");
        assert_eq!(
            sandbox_spec(&request, &menu()).unwrap_err().to_string(),
            "unsupported: env_json: SANDBOX_BATCH_ID is for the template of a batch alone"
        );
    }

    #[test]
    fn names_and_labels_have_bounds() {
        let with = |key: &str, value: String| create(|request| request.env_json = format!(r#"{{"{key}":"{value}"}}"#));
        assert!(with("SANDBOX_NAME", "n".repeat(SANDBOX_NAME_BYTES_MAX)).is_ok());
        assert!(with("SANDBOX_NAME", "n".repeat(SANDBOX_NAME_BYTES_MAX + 1)).is_err());
        let labels = |count: usize| (0..count).map(|n| format!("k{n}=v,")).collect::<String>();
        assert!(with("SANDBOX_LABELS", labels(SANDBOX_LABELS_MAX)).is_ok());
        assert!(with("SANDBOX_LABELS", labels(SANDBOX_LABELS_MAX + 1)).is_err());
        assert!(with("SANDBOX_LABELS", format!("k={}", "v".repeat(SANDBOX_LABEL_BYTES_MAX - 2))).is_ok());
        assert!(with("SANDBOX_LABELS", format!("k={}", "v".repeat(SANDBOX_LABEL_BYTES_MAX - 1))).is_err());
        assert!(with("SANDBOX_LABELS", "nothing".into()).is_err());
    }

    #[test]
    fn an_idle_time_has_bounds_and_zero_is_the_operators() {
        let with = |idle| create(|request| request.idle_timeout_seconds = idle).map(|spec| spec.idle_timeout_s);
        assert_eq!(with(0), Ok(Some(900)));
        for inside in [IDLE_TIMEOUT_S_MIN, IDLE_TIMEOUT_S_MAX] {
            assert_eq!(with(inside), Ok(Some(inside)));
        }
        for outside in [IDLE_TIMEOUT_S_MIN - 1, IDLE_TIMEOUT_S_MAX + 1] {
            assert!(with(outside).unwrap_err().starts_with("resources_out_of_range: idle_timeout_seconds"));
        }
    }

    #[test]
    fn a_place_for_snapshots_is_a_uri_of_a_known_kind() {
        let with = |uri: String| create(|request| request.snapshot_destination = uri);
        for good in ["s3://b/k", "ipfs://", "https://h/p?q", "file:///d/n"] {
            assert_eq!(with(good.into()).unwrap().snapshot_destination.unwrap().as_str(), good);
        }
        assert_eq!(with(String::new()).unwrap().snapshot_destination, None);
        for bad in ["ftp://h/p", "/d/n", "s3://b/a b", "s3://b/\n", "s3:b"] {
            assert!(with(bad.into()).unwrap_err().starts_with("bad_request: "), "{bad}");
        }
        let long = |length: usize| format!("s3://{}", "k".repeat(length - 5));
        assert!(with(long(SNAPSHOT_URI_BYTES_MAX)).is_ok());
        assert!(with(long(SNAPSHOT_URI_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn an_env_that_is_no_object_of_strings_is_refused() {
        for text in ["{", "[]", r#"{"A":1}"#, r#"{"A B":"1"}"#, r#"{"":"1"}"#, r#"{"1A":"1"}"#, r#"{"A":"\u0000"}"#] {
            let refused = create(|request| request.env_json = text.into()).unwrap_err();
            assert!(refused.starts_with("bad_env: "), "{text}: {refused}");
        }
    }

    #[test]
    fn what_is_not_offered_is_refused_and_not_ignored() {
        for refused in [
            create(|request| request.env_json = r#"{"SANDBOX_RUNTIME":"kata"}"#.into()),
            create(|request| request.env_json = "sealed:v1:AAAA".into()),
        ] {
            assert!(refused.unwrap_err().starts_with("unsupported: "));
        }
    }

    #[test]
    fn a_sandbox_has_an_agent_of_those_that_there_are() {
        let with = |backend: &str, identifier: &str| {
            let spec = create(|request| {
                request.agent_backend = backend.into();
                request.agent_identifier = identifier.into();
            });
            spec.map(|spec| (spec.agent.backend, spec.agent.profile))
        };
        for backend in BACKENDS.into_iter().chain([""]) {
            assert_eq!(with(backend, "reviewer"), Ok((backend.into(), "reviewer".into())));
        }
        assert_eq!(with("", "default"), Ok((String::new(), "default".into())));
        assert!(with("Native", "").unwrap_err().starts_with("unknown_backend: agent_backend "));
        assert!(with("", "critic").unwrap_err().starts_with("unknown_profile: agent_identifier "));
    }

    #[test]
    fn a_key_comes_with_ssh_enabled_and_ssh_with_an_operator_that_offers_it() {
        let key = crate::fakes::ssh_key(1);
        let with = |ssh_enabled, line: &str, menu: &Menu| {
            let (ssh_public_key, request) = (line.to_owned(), SandboxCreateRequest::default());
            let request = SandboxCreateRequest { ssh_enabled, ssh_public_key, ..request };
            assert_eq!(sandbox_spec(&request, menu).is_ok(), created_with_key(&request, menu).is_ok());
            created_with_key(&request, menu).map_err(|failure| failure.to_string())
        };
        assert_eq!(with(true, &format!("{key} me@here"), &menu()), Ok(Some(key.clone())));
        assert_eq!(with(true, "", &menu()), Ok(None));
        assert_eq!(with(false, "", &Menu::of("sidecar")), Ok(None));
        for (enabled, line, menu, refused) in [
            (false, key.to_string(), menu(), "bad_request: ssh_public_key: set ssh_enabled"),
            (true, "ssh-rsa AAAA".into(), menu(), "bad_request: ssh_public_key: the SSH key is of a kind"),
            (true, String::new(), Menu::of("sidecar"), "unsupported: ssh_enabled"),
            (false, key.to_string(), Menu::of("sidecar"), "unsupported: ssh_enabled"),
        ] {
            let found = with(enabled, &line, &menu).unwrap_err();
            assert!(found.starts_with(refused), "{found}");
        }
    }

    #[test]
    fn a_command_needs_a_sandbox_and_words() {
        assert!(exec(|request| request.command = " ".into()).is_err());
        assert!(exec(|request| request.command = "a\0b".into()).is_err());
        assert!(exec(|request| request.sidecar_endpoint = "https://x/sbx-1-2-0".into()).is_ok());
        assert!(exec(|request| request.sidecar_endpoint = "sbx-1-2".into()).is_err());
    }
}
