//! A chain without the blueprint, and a terminal at which it is deployed.

use std::path::PathBuf;
use std::process::Stdio;

use alloy::consensus::Transaction as _;
use alloy::primitives::{Address, Bytes};
use alloy::providers::Provider as _;
use sandbox_sdk::Chain;
use sandbox_sdk::deploy::Plan;
use sandbox_sdk::deployment::Deployment;
use sandbox_sdk::devchain::{self, CORE, DevChain, Tools};
use serde_json::Value;
use tokio::process::Command;

/// Index of the key that deploys.
pub(crate) const OWNER: usize = 0;

/// A chain without the blueprint, a directory, and a terminal in it.
pub(crate) struct Desk {
    pub(crate) dev: DevChain,
    directory: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    #[track_caller]
    pub(crate) fn done(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn refused(&self, code: i32, sentence: &str) {
        assert_eq!((self.code, self.stderr.trim()), (Some(code), format!("sandbox: {sentence}").as_str()));
    }
}

impl Desk {
    pub(crate) async fn new() -> Self {
        let dev = DevChain::start(&Tools::find().unwrap(), None).await.unwrap();
        Self { dev, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn plan(&self) -> Plan {
        let url = self.dev.rpc_url().clone();
        Plan::new(url, CORE, devchain::artifact(), devchain::BLOCK_TIME_MS)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn addresses(&self) -> PathBuf {
        self.path("addresses.json")
    }

    pub(crate) fn write(&self, name: &str, content: &impl serde::Serialize) -> String {
        let path = self.path(name);
        std::fs::write(&path, serde_json::to_string(content).unwrap()).unwrap();
        path.display().to_string()
    }

    /// Runs `sandbox deploy` with a key.
    pub(crate) async fn deploy_as(&self, key: usize, words: &[&str]) -> Run {
        self.sandbox(&[("SANDBOX_KEY", devchain::KEYS[key].to_string())], &[&["deploy"], words].concat()).await
    }

    /// Runs `sandbox deploy --json` as the owner, with what a first run needs.
    pub(crate) async fn deploy(&self, words: &[&str]) -> Run {
        self.deploy_as(OWNER, &[&["--json"], &self.first()[..], words].concat()).await
    }

    pub(crate) fn first(&self) -> [&'static str; 5] {
        ["--core", "0x0165878A594ca255338adfa4d48449f69242Eb8F", "--block-time-ms", "1000", "--unpublished"]
    }

    pub(crate) async fn sandbox(&self, env: &[(&str, String)], words: &[&str]) -> Run {
        let output = Command::new(env!("CARGO_BIN_EXE_sandbox"))
            .args(words)
            .env_clear()
            .env("SANDBOX_DEPLOYMENT", self.addresses())
            .env("SANDBOX_RPC_URL", self.dev.rpc_url().as_str())
            .envs(env.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// What changes when anybody sends anything: blocks, and the owner's nonce.
    pub(crate) async fn traces(&self) -> (u64, u64) {
        let owner = devchain::key(OWNER).address();
        let provider = self.dev.provider();
        (provider.get_block_number().await.unwrap(), provider.get_transaction_count(owner).await.unwrap())
    }

    /// Recipient and calldata of every transaction since a block.
    pub(crate) async fn sent_since(&self, block: u64) -> Vec<(Address, Bytes)> {
        let mut sent = Vec::new();
        for number in block + 1..=self.traces().await.0 {
            let found = self.dev.provider().get_block_by_number(number.into()).full().await.unwrap().unwrap();
            for transaction in found.transactions.into_transactions() {
                sent.push((transaction.to().unwrap_or_default(), transaction.input().clone()));
            }
        }
        sent
    }

    pub(crate) async fn chain(&self) -> Chain {
        Chain::connect(Deployment::load(&self.addresses()).unwrap()).await.unwrap()
    }
}
