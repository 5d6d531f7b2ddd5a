//! The contracts' sources without their tests, compiled once more: what the compiler knows of them beyond the bytecode.
//!
//! A folder of its own, because another selection of outputs makes forge compile everything again, back and forth. The
//! settings that shape the bytecode are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{forge, stream};
use crate::place::Place;

/// Where the sources are; `foundry.toml` names the same folder.
pub(super) const FOLDER: &str = "contracts/src";
/// What the compiler said, which Slither reads too.
pub(super) const BUILD_INFO: &str = "contracts/cache/sources/out/build-info";
const BUILD: &str = "contracts/cache/sources";
const SELECTION: [&str; 9] = [
    "build",
    FOLDER,
    "--build-info",
    "--extra-output=storageLayout",
    "--extra-output=transientStorageLayout",
    "--out",
    "contracts/cache/sources/out",
    "--cache-path",
    "contracts/cache/sources/cache",
];

/// All runs of the compiler: one for each set of settings, and a file that two sets need is in both.
#[derive(Debug)]
pub(super) struct Sources {
    runs: Vec<Run>,
}

/// What one run of the compiler was given and said.
#[derive(Debug, Deserialize)]
struct Run {
    input: Input,
    output: Output,
}

#[derive(Debug, Deserialize)]
struct Input {
    sources: BTreeMap<String, Text>,
}

#[derive(Debug, Deserialize)]
struct Text {
    content: String,
}

#[derive(Debug, Deserialize)]
struct Output {
    contracts: BTreeMap<String, BTreeMap<String, Contract>>,
    sources: BTreeMap<String, Unit>,
}

#[derive(Debug, Deserialize)]
struct Unit {
    ast: Tree,
}

#[derive(Debug, Deserialize)]
struct Tree {
    nodes: Vec<Node>,
}

/// A declaration at the top of a file; only those of contracts have a kind.
#[derive(Debug, Deserialize)]
struct Node {
    name: Option<String>,
    #[serde(rename = "contractKind")]
    kind: Option<Kind>,
    #[serde(rename = "abstract", default)]
    is_abstract: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Contract,
    Interface,
    Library,
}

/// One contract, as compiled.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Contract {
    abi: Vec<AbiEntry>,
    evm: Evm,
    #[serde(flatten)]
    pub layouts: Layouts,
}

/// Where the variables of a contract lie. The compiler writes none for what can have no storage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Layouts {
    #[serde(rename = "storageLayout")]
    pub permanent: Layout,
    #[serde(rename = "transientStorageLayout")]
    pub transient: Layout,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AbiEntry {
    #[serde(rename = "type")]
    entry: String,
    inputs: Vec<AbiInput>,
}

#[derive(Debug, Deserialize)]
struct AbiInput {}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Evm {
    bytecode: Code,
    deployed_bytecode: Code,
    method_identifiers: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Code {
    object: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Layout {
    #[serde(rename = "storage")]
    pub variables: Vec<Variable>,
}

/// A variable's place. The type carries the number of its declaration, so equal ones are the same type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Variable {
    pub label: String,
    pub slot: String,
    pub offset: u8,
    #[serde(rename = "type")]
    pub type_name: String,
}

impl Sources {
    /// Compiles all of them, afresh: a build upon an earlier one would speak of what changed only.
    pub(super) fn compile(place: &Place) -> Result<Sources> {
        match fs::remove_dir_all(place.at(BUILD)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).context("cannot empty the sources' build")?
            }
            _ => (),
        }
        if !stream(&mut forge(place, &SELECTION)?)?.success {
            bail!("the sources do not compile");
        }
        let listed = fs::read_dir(place.at(BUILD_INFO)).context("forge left no build information")?;
        let runs = listed.map(|file| read(&file?.path())).collect::<Result<_>>()?;
        Ok(Sources { runs })
    }

    /// Whether a contract of this name is among the sources.
    pub(super) fn has(&self, name: &str) -> bool {
        self.runs.iter().any(|run| run.contract(name).is_some())
    }

    /// Two contracts as one run compiled them: only then do equal types have equal names.
    pub(super) fn pair(&self, one: &str, other: &str) -> Option<(&Contract, &Contract)> {
        self.runs.iter().find_map(|run| Some((run.contract(one)?, run.contract(other)?)))
    }

    /// What can be put on a chain, as each run compiled it: contracts, and libraries that others call into rather than
    /// contain.
    pub(super) fn deployable(&self) -> impl Iterator<Item = (&str, &Contract)> {
        self.runs.iter().flat_map(Run::deployable)
    }

    /// How many contracts, interfaces and libraries the sources declare.
    pub(super) fn count(&self) -> usize {
        let all = self.runs.iter().flat_map(Run::contracts);
        all.map(|(path, name, _)| (path, name)).collect::<BTreeSet<_>>().len()
    }

    /// How often `word` stands in the sources' own text.
    pub(super) fn mentions(&self, word: &str) -> usize {
        let texts: BTreeMap<&String, &Text> = self.runs.iter().flat_map(|run| &run.input.sources).collect();
        let own = texts.iter().filter(|(path, _)| path.starts_with(FOLDER));
        own.map(|(_, text)| text.content.matches(word).count()).sum()
    }
}

impl Run {
    fn contracts(&self) -> impl Iterator<Item = (&str, &str, &Contract)> {
        let own = self.output.contracts.iter().filter(|(path, _)| path.starts_with(FOLDER));
        own.flat_map(|(path, named)| named.iter().map(move |(name, contract)| (&**path, &**name, contract)))
    }

    fn contract(&self, name: &str) -> Option<&Contract> {
        self.contracts().find(|(_, found, _)| *found == name).map(|(_, _, contract)| contract)
    }

    fn deployable(&self) -> impl Iterator<Item = (&str, &Contract)> {
        let stands_alone = |(path, name, contract): &(&str, &str, &Contract)| match self.kind(path, name) {
            Some(Kind::Contract) => contract.initcode_bytes() > 0,
            Some(Kind::Library) => !contract.evm.method_identifiers.is_empty(),
            Some(Kind::Interface) | None => false,
        };
        self.contracts().filter(stands_alone).map(|(_, name, contract)| (name, contract))
    }

    fn kind(&self, path: &str, name: &str) -> Option<Kind> {
        let nodes = &self.output.sources.get(path)?.ast.nodes;
        let node = nodes.iter().find(|node| node.name.as_deref() == Some(name) && !node.is_abstract)?;
        node.kind
    }
}

impl Contract {
    /// Of the code that a deployment leaves on the chain.
    pub(super) fn runtime_bytes(&self) -> usize {
        self.evm.deployed_bytecode.bytes()
    }

    /// Of the code that a deployment runs, with a word for each of the constructor's arguments, which stand behind it.
    pub(super) fn initcode_bytes(&self) -> usize {
        let constructor = self.abi.iter().find(|entry| entry.entry == "constructor");
        let words = constructor.map_or(0, |constructor| constructor.inputs.len());
        match self.evm.bytecode.bytes() {
            0 => 0,
            code => code + words * 32,
        }
    }
}

impl Code {
    /// Two digits a byte; a place that a library's address will take is as long as the address.
    fn bytes(&self) -> usize {
        self.object.len() / 2
    }
}

fn read(path: &Path) -> Result<Run> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not what this program expects", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As the compiler writes it: a contract of three bytes, one argument and one variable, with all that is no contract.
    pub(crate) fn example() -> Sources {
        let text = r#"{
            "input": { "sources": {
                "contracts/src/A.sol": { "content": "contract A {} // slither-disable" },
                "node_modules/D.sol": { "content": "// slither-disable" }
            } },
            "output": {
                "sources": {
                    "contracts/src/A.sol": { "ast": { "nodes": [
                        { "nodeType": "PragmaDirective" },
                        { "name": "A", "contractKind": "contract", "abstract": false },
                        { "name": "B", "contractKind": "contract", "abstract": true },
                        { "name": "L", "contractKind": "library", "abstract": false }
                    ] } },
                    "node_modules/D.sol": { "ast": { "nodes": [{ "name": "D", "contractKind": "contract" }] } }
                },
                "contracts": {
                    "contracts/src/A.sol": {
                        "A": {
                            "abi": [{ "type": "constructor", "inputs": [{ "name": "core" }] }],
                            "evm": { "bytecode": { "object": "60016002" }, "deployedBytecode": { "object": "600102" } },
                            "storageLayout": { "storage": [
                                { "astId": 1, "label": "x", "slot": "0", "offset": 0, "type": "t_uint64" }
                            ], "types": null }
                        },
                        "B": { "abi": [], "evm": { "bytecode": { "object": "" } } },
                        "L": { "abi": [], "evm": { "bytecode": { "object": "6001" }, "methodIdentifiers": {} } }
                    },
                    "node_modules/D.sol": { "D": { "evm": { "bytecode": { "object": "6001" } } } }
                }
            }
        }"#;
        Sources { runs: vec![serde_json::from_str(text).unwrap()] }
    }

    #[test]
    fn only_what_can_be_deployed_counts_and_arguments_count_as_initcode() {
        let sources = example();
        let deployable: Vec<_> = sources
            .deployable()
            .map(|(name, contract)| (name, contract.runtime_bytes(), contract.initcode_bytes()))
            .collect();
        assert_eq!(deployable, [("A", 3, 36)]);
    }

    #[test]
    fn what_two_runs_compiled_counts_once_and_their_contracts_make_no_pair() {
        let mut sources = example();
        sources.runs.extend(example().runs);
        assert_eq!((sources.count(), sources.mentions("slither-disable")), (3, 1));
        for (run, other) in sources.runs.iter_mut().zip(["A", "B"]) {
            run.output.contracts.get_mut("contracts/src/A.sol").unwrap().remove(other).unwrap();
        }
        assert!(sources.has("A") && sources.has("B") && sources.pair("A", "B").is_none());
    }

    #[test]
    fn dependencies_are_not_among_the_sources() {
        let sources = example();
        assert_eq!(sources.count(), 3);
        assert!(sources.has("A") && !sources.has("D"));
        assert_eq!(sources.mentions("slither-disable"), 1);
        assert_eq!(sources.pair("A", "A").unwrap().0.layouts.permanent.variables[0].label, "x");
    }
}
