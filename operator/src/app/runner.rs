//! The SDK's runner, between this node's queue and its outbox.

use std::convert::Infallible;
use std::sync::Arc;

use blueprint_sdk::JobCall;
use blueprint_sdk::runner::BlueprintRunner;
use blueprint_sdk::runner::config::{BlueprintEnvironment, ProtocolSettings};
use blueprint_sdk::runner::error::RunnerError;
use blueprint_sdk::runner::tangle::config::TangleProtocolSettings;
use blueprint_sdk::tangle::extract::{CallId, ServiceId};
use futures::StreamExt as _;
use sandbox_sdk::Chain;

use crate::chain::outbox::Outbox;
use crate::config::Config;
use crate::jobs::{self, Desk, JobQueue, Ticket};

/// The stock runner between the queue and the outbox.
pub(crate) fn runner(
    env: BlueprintEnvironment,
    queue: &JobQueue,
    desk: Arc<Desk>,
    outbox: Outbox,
) -> impl Future<Output = Result<(), RunnerError>> + use<> {
    let calls = queue.stream().map(|ticket| Ok::<_, Infallible>(job_call(&ticket)));
    let runner = BlueprintRunner::builder(Unregistered, env).router(jobs::router(desk));
    runner.producer(Box::pin(calls)).consumer(outbox).run()
}

/// The runner neither registers nor exits after it: that is done before it starts.
struct Unregistered;

impl blueprint_sdk::runner::BlueprintConfig for Unregistered {
    async fn requires_registration(&self, _: &BlueprintEnvironment) -> Result<bool, RunnerError> {
        Ok(false)
    }

    fn should_exit_after_registration(&self) -> bool {
        false
    }
}

/// What the SDK's runner wants to know. Without the Blueprint Manager's socket it must not look for the manager, which is
/// what it calls test mode.
pub(super) fn environment(config: &Config, chain: &Chain) -> BlueprintEnvironment {
    let deployment = chain.deployment();
    let mut env = BlueprintEnvironment::default();
    env.http_rpc_endpoint = deployment.rpc_url.clone();
    env.keystore_uri = config.keystore.uri.clone();
    env.data_dir = config.data_dir.clone();
    env.bridge_socket_path = config.bridge_socket.clone();
    env.test_mode = config.bridge_socket.is_none();
    env.protocol_settings = ProtocolSettings::Tangle(TangleProtocolSettings {
        blueprint_id: deployment.blueprint_id,
        service_id: config.chain.service,
        tangle_contract: deployment.core,
        ..TangleProtocolSettings::default()
    });
    env
}

/// A recorded call in the SDK's form. The inputs stay in the record, which is what handlers read.
fn job_call(ticket: &Ticket) -> JobCall {
    let mut call = JobCall::new(ticket.job, bytes::Bytes::new());
    call.metadata_mut().insert(CallId::METADATA_KEY, ticket.key.call);
    call.metadata_mut().insert(ServiceId::METADATA_KEY, ticket.key.service);
    call
}
