//! The harness: a local chain with the blueprint on it, a customer and an operator.

use std::time::Duration;

use alloy::primitives::U256;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_protocol::sealed::SealKey;
use sandbox_sdk::calls::ServiceTerms;
use sandbox_sdk::deploy::{self, Plan};
use sandbox_sdk::devchain::{self, DevChain, Tools};
use sandbox_sdk::{Account, Chain, Deployment, operators};

/// An endpoint that nobody serves.
pub(crate) const API_URL: &str = "http://127.0.0.1:9";
/// Index of the customer's key.
pub(crate) const CUSTOMER: usize = 3;

/// How long a test waits for what must come, on a busy machine too.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// A chain with the blueprint on it and operator #1 registered.
pub(crate) struct World {
    pub(crate) dev: DevChain,
    pub(crate) deployment: Deployment,
}

impl World {
    pub(crate) async fn start() -> Self {
        let dev = DevChain::start(&Tools::find().unwrap(), None).await.unwrap();
        let plan = Plan::new(dev.rpc_url().clone(), devchain::CORE, devchain::artifact(), devchain::BLOCK_TIME_MS);
        let deployment = deploy::deploy(&plan, devchain::key(0)).await.unwrap();
        let world = Self { dev, deployment };
        operators::register(&world.account(1).await, &profile(API_URL)).await.unwrap();
        world
    }

    pub(crate) async fn account(&self, index: usize) -> Account {
        Account::new(Chain::connect(self.deployment.clone()).await.unwrap(), devchain::key(index))
    }

    /// A customer with an active service of operator #1.
    pub(crate) async fn customer(&self) -> (Account, u64) {
        let (customer, operator) = (self.account(CUSTOMER).await, self.account(1).await);
        let terms = ServiceTerms::named(vec![operator.address()]);
        let requested = customer.request_service(&terms).await.unwrap();
        operators::approve(&operator, requested.request).await.unwrap();
        let service = customer.chain().wait_for_service(&requested, BOUND).await.unwrap();
        (customer, service)
    }
}

/// The key of every operator here.
pub(crate) fn seal_key() -> SealKey {
    SealKey::derive(&[7; 32], 0)
}

pub(crate) fn profile(api_url: &str) -> OperatorProfile {
    OperatorProfile { capacity: 4, pricePerHour: U256::from(1), sealKey: seal_key().public(), apiUrl: api_url.into() }
}
