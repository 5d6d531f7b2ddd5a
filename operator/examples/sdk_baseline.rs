//! The baseline of the bench `drain`: the Blueprint SDK's own producer, consumer and runner with their default settings,
//! from a given block on, and a handler for commands that does nothing.

use std::process::ExitCode;

use alloy::primitives::{Address, B256, U256};
use alloy::transports::http::reqwest::Url;
use blueprint_sdk::contexts::tangle::{TangleClient, TangleClientConfig, TangleSettings};
use blueprint_sdk::crypto::k256::{K256Ecdsa, K256SigningKey};
use blueprint_sdk::keystore::backends::Backend as _;
use blueprint_sdk::keystore::{Keystore, KeystoreConfig};
use blueprint_sdk::runner::BlueprintRunner;
use blueprint_sdk::runner::config::{BlueprintEnvironment, ProtocolSettings};
use blueprint_sdk::runner::tangle::config::TangleProtocolSettings;
use blueprint_sdk::tangle::extract::TangleResult;
use blueprint_sdk::tangle::{TangleConsumer, TangleLayer, TangleProducer};
use blueprint_sdk::{Job as _, Router};
use clap::Parser;
use sandbox_protocol::Job;
use sandbox_protocol::abi::JobReceipt;

#[derive(Parser)]
struct Args {
    rpc_url: Url,
    core: Address,
    blueprint: u64,
    service: u64,
    from_block: u64,
    /// A key of a local chain.
    key: B256,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sdk_baseline: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let keystore = Keystore::new(KeystoreConfig::new().in_memory(true))?;
    keystore.insert::<K256Ecdsa>(&K256SigningKey(alloy::signers::k256::ecdsa::SigningKey::from_slice(
        args.key.as_slice(),
    )?))?;
    let (blueprint_id, service_id) = (args.blueprint, Some(args.service));
    let settings = TangleSettings { blueprint_id, service_id, tangle_contract: args.core, ..TangleSettings::default() };
    let config = TangleClientConfig::new(args.rpc_url.clone(), args.rpc_url.clone(), "", settings);
    let client = TangleClient::with_keystore(config, keystore).await?;

    let mut env = BlueprintEnvironment::default();
    env.http_rpc_endpoint = args.rpc_url;
    env.test_mode = true;
    env.protocol_settings = ProtocolSettings::Tangle(TangleProtocolSettings {
        blueprint_id,
        service_id,
        tangle_contract: args.core,
        ..TangleProtocolSettings::default()
    });
    BlueprintRunner::builder(Registered, env)
        .router(Router::new().route(Job::Exec.id(), nothing.layer(TangleLayer)))
        .producer(TangleProducer::from_block(client.clone(), args.service, args.from_block))
        .consumer(TangleConsumer::new(client))
        .run()
        .await?;
    Ok(())
}

async fn nothing() -> TangleResult<JobReceipt> {
    TangleResult(JobReceipt { outcome: 0, responseHash: B256::ZERO, detail: U256::ZERO })
}

/// The operator is registered already.
struct Registered;

impl blueprint_sdk::runner::BlueprintConfig for Registered {
    async fn requires_registration(
        &self,
        _: &BlueprintEnvironment,
    ) -> Result<bool, blueprint_sdk::runner::error::RunnerError> {
        Ok(false)
    }

    fn should_exit_after_registration(&self) -> bool {
        false
    }
}
