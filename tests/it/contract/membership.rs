//! What the hooks around calls cost: the beginning of a service, joining and leaving it.

use anyhow::{Context, Result};
use sandbox_sdk::calls::{self, ServiceTerms};
use sandbox_sdk::contracts::ITangleCore::{ServiceActivated, ServiceRequested};
use sandbox_tests::actors::offer;
use sandbox_tests::hooks::Scale;
use sandbox_tests::stage::{Stage, event};
use sandbox_tests::tangle::ICore::{forceRemoveOperatorCall, scheduleExitCall};
use sandbox_tests::tangle::IHooks::{
    onExitScheduledCall, onOperatorJoinedCall, onOperatorLeftCall, onRegisterCall, onServiceInitializedCall,
};

use super::{ends, live};

const SIZE: usize = 16;
const HOOK_GAS_MAX: u64 = 250_000;
const DAY_S: u64 = 86_400;

#[tokio::test(flavor = "multi_thread")]
async fn no_hook_around_calls_is_dear_at_sixteen_operators_in_a_service() -> Result<()> {
    let mut stage = Stage::new(0).await?;
    stage.enlist(SIZE, |_| offer(1, 1)).await?;
    let mut scale = Scale::default();
    let (late, early) = stage.operators().split_last().context("no operators")?;
    let registered = stage.block_receipts(stage.chain().head().await?).await?;
    let registered = registered.last().context("no registration")?;
    scale.add("registration", 0, stage.hook_gas::<onRegisterCall>(registered).await?[0], HOOK_GAS_MAX);

    let request = calls::request_service(stage.deployment(), &ServiceTerms::named(early.to_vec()));
    let requested: ServiceRequested = event(&stage.send(stage.customer(), &request).await?)?;
    let approval = calls::approve_service(stage.deployment(), requested.requestId);
    for operator in &early[1..] {
        stage.send(*operator, &approval).await?;
    }
    let begun = stage.send(early[0], &approval).await?;
    scale.add(
        "beginning of a service",
        SIZE - 1,
        stage.hook_gas::<onServiceInitializedCall>(&begun).await?[0],
        HOOK_GAS_MAX,
    );
    let service = event::<ServiceActivated>(&begun)?.serviceId;

    let joined = stage.send(*late, &ends::join(service)).await?;
    scale.add("an operator joins", SIZE, stage.hook_gas::<onOperatorJoinedCall>(&joined).await?[0], HOOK_GAS_MAX);
    for _ in 1..SIZE {
        live(&stage, service).await?;
    }
    let (_, last) = live(&stage, service).await?;
    stage.dev().pass_time(DAY_S).await?;
    for operator in stage.operators().iter().filter(|operator| **operator != last) {
        stage.to_core(*operator, &scheduleExitCall { serviceId: service }).await?;
    }
    let scheduled = stage.to_core(last, &scheduleExitCall { serviceId: service }).await?;
    scale.add(
        "the last exit is scheduled",
        SIZE,
        stage.hook_gas::<onExitScheduledCall>(&scheduled).await?[0],
        HOOK_GAS_MAX,
    );
    let force = forceRemoveOperatorCall { serviceId: service, operator: last };
    let forced = stage.to_core(stage.deployment().manager, &force).await?;
    scale.add(
        "an operator that holds is forced out",
        SIZE,
        stage.hook_gas::<onOperatorLeftCall>(&forced).await?[0],
        HOOK_GAS_MAX,
    );
    scale.read_out("membership")
}
