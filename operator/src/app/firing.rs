//! Wires what fires workflows and carries them out.

use std::sync::Arc;

use alloy::signers::local::PrivateKeySigner;
use tokio_util::sync::CancellationToken;

use super::{confirmations, is_local};
use crate::chain::key::SealKeys;
use crate::config::Config;
use crate::jobs::{Executor, Fence};
use crate::limits::HEAD_AGE_S_MAX;
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
    let (confirmations, is_local) = (confirmations(config, &parts.chain), is_local(&parts.chain));
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
        head_age_s_max: head_age_s_max(fence.head_age_s_max, is_local),
        others_head_age_s_max: head_age_s_max(0, is_local),
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

/// Oldest newest block on which workflows are fired, in seconds of its age. Other operators count on it when they take one over, so
/// nothing that is set goes beyond it but on a chain of one's own.
fn head_age_s_max(set_s: u64, is_local: bool) -> u64 {
    match set_s {
        0 if is_local => 0,
        0 => HEAD_AGE_S_MAX,
        _ => set_s.min(HEAD_AGE_S_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_has_an_operator_fire_on_an_older_block_than_others_count_on() {
        assert_eq!(
            [0, 5, HEAD_AGE_S_MAX + 1].map(|set_s| head_age_s_max(set_s, false)),
            [HEAD_AGE_S_MAX, 5, HEAD_AGE_S_MAX]
        );
        assert_eq!(head_age_s_max(0, true), 0);
    }
}
