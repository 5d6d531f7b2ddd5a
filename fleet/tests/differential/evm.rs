//! The harness contract, as forge compiled it, in an EVM of its own.

use std::collections::BTreeMap;
use std::path::Path;

use alloy_primitives::{Address, B256, Bytes, keccak256};
use alloy_sol_types::{SolCall, sol};
use revm::context::result::ExecutionResult;
use revm::context::{BlockEnv, CfgEnv, TxEnv};
use revm::database::InMemoryDB;
use revm::handler::MainnetContext;
use revm::primitives::{TxKind, hardfork::SpecId};
use revm::state::{AccountInfo, Bytecode};
use revm::{Context, ExecuteEvm, MainBuilder, MainnetEvm};

sol! {
    #![sol(all_derives)]

    /// `contracts/test/harness/Differential.sol`.
    interface Differential {
        error DrawTooLarge(uint256 count, uint256 size);

        struct Draw {
            uint256 size;
            uint256 count;
            bytes32 seed;
        }

        struct Batch {
            uint256[] offers;
            uint256 count;
            uint8 distribution;
            bytes32 seed;
        }

        struct Plan {
            uint256[] order;
            uint256[] shares;
        }

        struct Parsed {
            bool ok;
            uint64 serviceId;
            uint64 callId;
            uint8 slot;
        }

        function indexes(Draw[] draws) external pure returns (uint256[][] drawn);
        function plans(Batch[] batches) external pure returns (Plan[] made);
        function parse(bytes[] texts) external pure returns (Parsed[] parsed);
    }
}

const ARTIFACT: &str = "contracts/out/Differential.sol/Differential.json";
const CONTRACT: Address = Address::repeat_byte(0xc0);
/// The one that foundry.toml compiles for.
const FORK: SpecId = SpecId::CANCUN;

/// What is read of forge's artifact.
#[derive(serde::Deserialize)]
struct Artifact {
    #[serde(rename = "deployedBytecode")]
    deployed: Code,
    metadata: Metadata,
}

#[derive(serde::Deserialize)]
struct Code {
    object: Bytes,
}

#[derive(serde::Deserialize)]
struct Metadata {
    sources: BTreeMap<String, Source>,
}

#[derive(serde::Deserialize)]
struct Source {
    keccak256: B256,
}

/// The contract, ready to be called.
pub(crate) struct Harness {
    evm: MainnetEvm<MainnetContext<InMemoryDB>>,
}

impl Harness {
    /// # Panics
    /// Where the contract has not been compiled, or not from the sources that are there now.
    pub(crate) fn start() -> Self {
        let code = Bytecode::new_raw(compiled());
        let mut database = InMemoryDB::default();
        database.insert_account_info(CONTRACT, AccountInfo::default().with_code(code));
        let evm = Context::<BlockEnv, TxEnv, CfgEnv, _>::new(database, FORK).build_mainnet();
        Self { evm }
    }

    /// What the contract answers.
    pub(crate) fn ask<Call: SolCall>(&mut self, call: &Call) -> Call::Return {
        match self.run(call) {
            ExecutionResult::Success { output, .. } => Call::abi_decode_returns_validate(output.data()).unwrap(),
            other @ (ExecutionResult::Revert { .. } | ExecutionResult::Halt { .. }) => panic!("{other:?}"),
        }
    }

    /// With what the contract reverts.
    pub(crate) fn refusal(&mut self, call: &impl SolCall) -> Bytes {
        match self.run(call) {
            ExecutionResult::Revert { output, .. } => output,
            other @ (ExecutionResult::Success { .. } | ExecutionResult::Halt { .. }) => panic!("{other:?}"),
        }
    }

    /// Without a bound on gas, and on the state as it was at the start.
    fn run(&mut self, call: &impl SolCall) -> ExecutionResult {
        let data = call.abi_encode().into();
        let call = TxEnv { kind: TxKind::Call(CONTRACT), data, gas_limit: u64::MAX, ..TxEnv::default() };
        self.evm.transact(call).unwrap().result
    }
}

fn compiled() -> Bytes {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read(root.join(ARTIFACT))
        .unwrap_or_else(|error| panic!("{ARTIFACT} cannot be read ({error}): run `forge build` in the checkout first"));
    // `forge lint` writes artifacts without code over those of sources that have changed, and takes them for built.
    let artifact: Artifact = serde_json::from_slice(&text).unwrap_or_else(|error| {
        panic!("{ARTIFACT} holds no code ({error}): run `forge build --force` in the checkout")
    });
    for (path, source) in artifact.metadata.sources {
        let now = std::fs::read(root.join(&path)).map(keccak256).ok();
        assert_eq!(now, Some(source.keccak256), "{path} has changed since {ARTIFACT} was made: run `forge build`");
    }
    artifact.deployed.object
}
