//! A local chain that holds the real Tangle core: anvil with the snapshot that the blueprint SDK publishes.
//!
//! For tests, demos and development. The keys below are known to everybody. The chain ends when its [`DevChain`] is
//! dropped. Nothing here belongs in a production path.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use alloy::primitives::{Address, B256, address, b256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::TransportError;
use alloy::transports::http::reqwest::Url;

use serde_json::json;

use crate::limits::DEV_BLOCKS_AT_ONCE_MAX;
use crate::operators::Staking;

/// Chain id of the snapshot.
pub const CHAIN_ID: u64 = 31_337;
/// The Tangle core.
pub const CORE: Address = address!("0x0165878A594ca255338adfa4d48449f69242Eb8F");
/// Where operators stake, in TNT.
pub const STAKING: Staking = Staking {
    contract: address!("0xDc64a140Aa3E981100a9becA4E685f962f0cF6C9"),
    token: address!("0x7bc06c482DEAd17c0e297aFbC32f6e63d3846650"),
};
/// Where operators say that they are there.
pub const STATUS_REGISTRY: Address = address!("0x2bdCC0de6bE1f7D2ee689a0342D76F52E8EFABa3");
/// Accounts that are staked operators already.
pub const STAKED: [usize; 3] = [1, 2, 4];
/// Time between blocks that the blueprint is told, in milliseconds: what `--block-time 1` gives.
pub const BLOCK_TIME_MS: u64 = 1_000;

/// The ten keys of the mnemonic `test test test test test test test test test test test junk`, 10,000 ETH each.
/// 0 is the core's admin and treasury; 1, 2 and 4 are staked operators; 5 to 9 have 10,000 TNT.
pub const KEYS: [B256; 10] = [
    b256!("0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"),
    b256!("0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d"),
    b256!("0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"),
    b256!("0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6"),
    b256!("0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a"),
    b256!("0x8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba"),
    b256!("0x92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e"),
    b256!("0x4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356"),
    b256!("0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97"),
    b256!("0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6"),
];

/// Block gas limit: the snapshot's own of 30 million is too low for a deployment.
const BLOCK_GAS_LIMIT: u64 = 100_000_000;
/// Blocks whose state can be asked for: enough to trace what has just happened.
const STATES_KEPT: usize = 64;
/// How long anvil may take to load the snapshot.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The crate that carries the snapshot, found through the lock file.
const SNAPSHOT_PACKAGE: &str = "blueprint-chain-setup-anvil";

/// What a local chain is started from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// anvil's native binary; the script beside it in npm's package would outlive a kill.
    pub anvil: PathBuf,
    /// The snapshot.
    pub state: PathBuf,
}

/// A local chain that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum DevChainError {
    /// anvil is not installed.
    #[error("no anvil at {}; `npm ci` installs it", .0.display())]
    NoAnvil(PathBuf),
    /// The snapshot is not there.
    #[error("the chain's snapshot was not found: {0}")]
    NoSnapshot(String),
    /// anvil did not start.
    #[error("anvil did not start")]
    Start(#[source] std::io::Error),
    /// anvil did not say where it listens.
    #[error("anvil did not say where it listens within {} s", READY_WITHIN.as_secs())]
    Silent,
    /// anvil does not answer.
    #[error("anvil did not answer {question}")]
    Setup {
        /// The method.
        question: &'static str,
        /// Why.
        source: TransportError,
    },
}

/// A running local chain; it ends when this is dropped.
#[derive(Debug)]
pub struct DevChain {
    child: Child,
    rpc_url: Url,
    provider: DynProvider,
}

/// Key `index` of the ten, as a signer.
///
/// # Panics
/// Never: the ten are valid keys; an index beyond wraps around.
#[allow(clippy::expect_used)] // constants, checked by a test
pub fn key(index: usize) -> PrivateKeySigner {
    PrivateKeySigner::from_bytes(&KEYS[index % KEYS.len()]).expect("a valid key")
}

impl Tools {
    /// The tools of a checkout: anvil of `node_modules`, the snapshot of the locked crate.
    ///
    /// # Errors
    /// [`DevChainError::NoAnvil`], [`DevChainError::NoSnapshot`].
    pub fn of_checkout(root: &Path) -> Result<Self, DevChainError> {
        let anvil = root.join(format!("node_modules/@foundry-rs/anvil-{}/bin/anvil", platform()));
        if !anvil.exists() {
            return Err(DevChainError::NoAnvil(anvil));
        }
        let state = snapshot_directory(root)?.join("snapshots/localtestnet-state.json");
        if !state.exists() {
            return Err(DevChainError::NoSnapshot(format!("no {}", state.display())));
        }
        Ok(Self { anvil, state })
    }

    /// The tools of the checkout that the process runs in.
    ///
    /// # Errors
    /// As [`Tools::of_checkout`].
    pub fn find() -> Result<Self, DevChainError> {
        Self::of_checkout(&checkout())
    }
}

/// Root of the checkout that the process runs in; without one, of that which this crate was built in. Two checkouts may
/// share what cargo built, so the place of the build alone says little.
pub fn checkout() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().find(|dir| dir.join("foundry.toml").is_file()).map(Path::to_path_buf);
    found.unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf()
    })
}

/// forge's artifact of the blueprint's contract in that checkout.
pub fn artifact() -> PathBuf {
    checkout().join("contracts/out/AgentSandboxBlueprint.sol/AgentSandboxBlueprint.json")
}

impl DevChain {
    /// Starts a chain on a free port. It mines a block per transaction, or one per `block_time` where that is given.
    ///
    /// # Errors
    /// [`DevChainError`].
    pub async fn start(tools: &Tools, block_time: Option<Duration>) -> Result<Self, DevChainError> {
        let mut child = command(tools, block_time).spawn().map_err(DevChainError::Start)?;
        let listening = child.stdout.take().map(address_in);
        let found = tokio::task::spawn_blocking(move || listening?.recv_timeout(READY_WITHIN).ok()).await;
        let Some(rpc_url) = found.ok().flatten() else {
            end(&mut child);
            return Err(DevChainError::Silent);
        };
        let provider = crate::chain::provider(rpc_url.clone());
        let chain = Self { child, rpc_url, provider };
        chain.request("anvil_setBlockGasLimit", json!([format!("{BLOCK_GAS_LIMIT:#x}")])).await?;
        Ok(chain)
    }

    /// Its HTTP endpoint.
    pub const fn rpc_url(&self) -> &Url {
        &self.rpc_url
    }

    /// A provider for it.
    pub const fn provider(&self) -> &DynProvider {
        &self.provider
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Mines `blocks` empty blocks.
    ///
    /// # Errors
    /// [`DevChainError::Setup`].
    pub async fn mine(&self, blocks: u64) -> Result<(), DevChainError> {
        let mut left = blocks;
        while left > 0 {
            let some = left.min(DEV_BLOCKS_AT_ONCE_MAX);
            self.request("anvil_mine", json!([format!("{some:#x}")])).await?;
            left -= some;
        }
        Ok(())
    }

    /// Moves the chain's clock `seconds` ahead and mines a block.
    ///
    /// # Errors
    /// [`DevChainError::Setup`].
    pub async fn pass_time(&self, seconds: u64) -> Result<(), DevChainError> {
        self.request("evm_increaseTime", json!([seconds])).await?;
        self.mine(1).await
    }

    async fn request(&self, question: &'static str, parameters: serde_json::Value) -> Result<(), DevChainError> {
        let answer = self.provider.raw_request::<_, serde_json::Value>(question.into(), parameters).await;
        answer.map(drop).map_err(|source| DevChainError::Setup { question, source })
    }
}

impl Drop for DevChain {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        tracing::warn!(%error, "anvil was not ended");
    }
}

fn command(tools: &Tools, block_time: Option<Duration>) -> Command {
    let mut command = Command::new(&tools.anvil);
    command.args(["--host", "127.0.0.1", "--port", "0", "--base-fee", "0", "--gas-price", "0"]);
    // Else each block's state is kept on disk, where the kill that ends the chain leaves it.
    command.args(["--prune-history", &STATES_KEPT.to_string()]);
    command.args(["--code-size-limit", "100000", "--load-state"]).arg(&tools.state);
    if let Some(time) = block_time {
        command.args(["--block-time", &time.as_secs_f64().to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Reads anvil's output to its end, so that it never blocks on it; hands over the address it listens on.
fn address_in(stdout: ChildStdout) -> Receiver<Url> {
    let (found, listening) = sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Some(address) = line.strip_prefix("Listening on ") else { continue };
            let Ok(url) = format!("http://{}", address.trim()).parse() else { continue };
            if found.try_send(url).is_err() {
                tracing::debug!("anvil's address came twice or too late");
            }
        }
    });
    listening
}

const fn platform() -> &'static str {
    match (cfg!(target_os = "macos"), cfg!(target_arch = "aarch64")) {
        (false, false) => "linux-amd64",
        (false, true) => "linux-arm64",
        (true, false) => "darwin-amd64",
        (true, true) => "darwin-arm64",
    }
}

fn snapshot_directory(root: &Path) -> Result<PathBuf, DevChainError> {
    let failed = |why: &dyn std::fmt::Display| DevChainError::NoSnapshot(format!("cargo metadata: {why}"));
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    let package = metadata.packages.into_iter().find(|package| package.name == SNAPSHOT_PACKAGE);
    let manifest = package.ok_or_else(|| failed(&format!("no package {SNAPSHOT_PACKAGE}")))?.manifest_path;
    Ok(manifest.parent().map(Path::to_path_buf).unwrap_or_default())
}

#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_keys_are_those_of_the_mnemonic() {
        let addresses: Vec<_> = (0..KEYS.len()).map(|index| key(index).address()).collect();
        assert_eq!(addresses[0], address!("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"));
        assert_eq!(addresses[1], address!("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"));
        assert_eq!(addresses[2], address!("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"));
        assert_eq!(addresses[3], address!("0x90F79bf6EB2c4f870365E785982E1f101E93b906"));
        assert_eq!(addresses[4], address!("0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"));
        assert_eq!(addresses[9], address!("0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"));
    }
}
