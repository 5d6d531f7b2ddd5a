//! A home, a workspace, a provider and a backend, for one test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbox_agent::model::ToolCall;
use sandbox_agent::profile::{Policy, Profile};
use sandbox_agentd::backend::{Backend, Desk, Order, Outcome};
use sandbox_agentd::backends::Settings;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, Provider as Said, ProviderKind, Secret};
use scripted_provider::{Provider, Script};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::local::LocalPrograms;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
pub(crate) const KEY: &str = "the-customers-key";

/// What a test plays on.
pub(crate) struct Stage {
    pub(crate) provider: Provider,
    pub(crate) programs: Arc<LocalPrograms>,
    pub(crate) desk: Keeper,
    kind: ProviderKind,
    directory: TempDir,
}

/// Keeps what it is told, and answers every question so.
pub(crate) struct Keeper {
    told: Mutex<Vec<Told>>,
    asked: Mutex<Vec<ToolCall>>,
    pub(crate) decision: Decision,
}

impl Stage {
    pub(crate) async fn set(kind: ProviderKind, script: Script) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "workspace", "storage"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let home = directory.path().join("home").to_string_lossy().into_owned();
        // Whatever a program wants of the world but the provider, it wants of a port where nobody is.
        let nobody = "http://127.0.0.1:9".to_owned();
        let env = [
            ("HOME", home),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("HTTP_PROXY", nobody.clone()),
            ("HTTPS_PROXY", nobody),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        let programs = Arc::new(LocalPrograms::with(env));
        let desk = Keeper { told: Mutex::default(), asked: Mutex::default(), decision: Decision::Deny };
        Self { provider: Provider::start(script).await.unwrap(), programs, desk, kind, directory }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// The settings of a backend whose program lies here, below `node_modules`.
    pub(crate) fn settings(&self, program: &str) -> Settings {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node_modules").join(program);
        assert!(program.is_file(), "{} is not there: run `cargo xtask setup`", program.display());
        Settings {
            program: program.to_string_lossy().into_owned(),
            home: self.directory.path().join("home"),
            workspace: self.workspace(),
            storage: self.directory.path().join("storage"),
            own: BTreeMap::new(),
        }
    }

    /// An order that says what has to be said.
    pub(crate) fn order(&self, prompt: &str) -> Order {
        Order {
            id: "run-1".to_owned(),
            is_prompt: false,
            prompt: prompt.to_owned(),
            context: serde_json::Map::new(),
            session: "session-1".to_owned(),
            continues: false,
            resumed: false,
            profile: Profile::named("default"),
            model: "scripted".to_owned(),
            provider: Some(Said {
                kind: Some(self.kind),
                base_url: Some(self.provider.v1()),
                api_key: Some(Secret::new(KEY)),
                context_tokens: None,
            }),
            env: BTreeMap::new(),
            max_turns: 10,
            deadline: Instant::now() + PATIENCE,
            cancel: CancellationToken::new(),
        }
    }

    /// What comes of an order that is cancelled once the provider was asked.
    pub(crate) async fn cancelled(&self, backend: &dyn Backend, order: &Order) -> Outcome {
        let cancels = async {
            self.provider.reached(1).await;
            order.cancel.cancel();
            std::future::pending().await
        };
        tokio::select! {
            outcome = self.run(backend, order) => outcome,
            () = cancels => unreachable!("the run ends"),
        }
    }

    /// What comes of it, in time.
    pub(crate) async fn run(&self, backend: &dyn Backend, order: &Order) -> Outcome {
        tokio::time::timeout(PATIENCE, backend.run(order, &self.desk)).await.unwrap()
    }
}

impl Keeper {
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> Vec<ToolCall> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether a warning holds this.
    pub(crate) fn warned(&self, part: &str) -> bool {
        self.told().iter().any(|told| matches!(told, Told::Warning { message } if message.contains(part)))
    }

    /// Results of calls: the tool, and whether it failed.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        let result = |told: &Told| match told {
            Told::ToolResult { name, is_error, .. } => Some((name.clone(), *is_error)),
            _ => None,
        };
        self.told().iter().filter_map(result).collect()
    }
}

#[async_trait]
impl Desk for Keeper {
    fn tell(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }

    async fn ask(&self, call: &ToolCall) -> Decision {
        self.asked.lock().unwrap().push(call.clone());
        self.decision
    }
}

/// A profile with this policy for a tool.
pub(crate) fn profile(tool: &str, policy: Policy) -> Profile {
    let mut profile = Profile::named("strict");
    profile.approvals.tools = BTreeMap::from([(tool.to_owned(), policy)]);
    profile
}
