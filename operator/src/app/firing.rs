//! Wires what fires workflows and carries them out.

use std::sync::Arc;

use alloy::signers::local::PrivateKeySigner;
use tokio_util::sync::CancellationToken;

use super::confirmations;
use crate::chain::key::SealKeys;
use crate::config::Config;
use crate::jobs::{Executor, Fence};
use crate::operations::Operations;
use crate::outside::Stores;
use crate::sidecars::SocketSidecars;
use crate::workflows::{Parts, Workflows};

/// Starts what fires workflows and carries them out.
pub(super) fn fired(
    parts: Operations,
    config: &Config,
    key: &PrivateKeySigner,
    (snapshots, sidecars): (&Arc<Stores>, &Arc<SocketSidecars>),
    (fence, stop): (&Fence, &CancellationToken),
) -> Workflows {
    let conductor = parts.conductor(sidecars.clone());
    let executor = Executor { fleet: parts.fleet, sidecars: sidecars.clone(), agents: sidecars.clone() };
    let confirmations = confirmations(config, &parts.chain);
    let parts = Parts {
        chain: parts.chain,
        records: parts.records,
        executor,
        conductor,
        snapshots: snapshots.clone(),
        menu: config.engine.menu.clone(),
        seal_keys: SealKeys::of(&config.keystore, key),
        sender: parts.sender,
        looks: fence.looks.clone(),
        head_age_s_max: fence.head_age_s_max,
        confirmations,
        notices: parts.notices,
        me: parts.me,
        service: config.chain.service,
        url: config.offer.api_url.clone(),
        report_pause: config.workflows.report_pause,
    };
    let workflows = Workflows::new(parts, stop.clone());
    tokio::spawn(workflows.clone().run());
    workflows
}
