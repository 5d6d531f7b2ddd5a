//! IPFS: contents are added, pinned and read back by their own name.

use std::time::Duration;

use sandbox_outbound::blobs::{BlobError, Difference, IpfsConfig, Patience, Store, Stores, Whose};
use url::Url;

use crate::harness::ipfs::Node;
use crate::harness::source::{failing_after, stuck_after};
use crate::harness::{Names, at, check_round_trip, offering_nothing, read, some_bytes, with_wrong_hash};

/// Nobody has it.
const ABSENT: &str = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";

fn stores(rpc_url: &Url, patience: Option<Patience>) -> Stores {
    let mut config = offering_nothing("", Names::new(&[]));
    config.patience = patience.unwrap_or(config.patience);
    config.ipfs = Some(IpfsConfig { rpc_url: rpc_url.clone() });
    Stores::new(config).unwrap()
}

async fn pinned(node: &Node) -> usize {
    let url = node.rpc_url.join("/api/v0/pin/ls?type=recursive").unwrap();
    let text = reqwest::Client::new().post(url).send().await.unwrap().text().await.unwrap();
    let pins: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    pins["Keys"].as_object().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_pinned_and_got_again_at_every_size() {
    let node = Node::start().await;
    let stores = stores(&node.rpc_url, None);
    let before = pinned(&node).await;
    let sizes = [0, 1, 262_143, 262_144, 262_145, 5_000_000];
    for length in sizes {
        let stored = check_round_trip(&stores, "ipfs://", length, None).await;
        assert!(stored.uri.starts_with("ipfs://baf"), "{}", stored.uri);
    }
    assert_eq!(pinned(&node).await, before + sizes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_id_is_that_of_the_bytes_and_not_the_hash_that_is_asked_for() {
    let node = Node::start().await;
    let stores = stores(&node.rpc_url, None);
    let first = check_round_trip(&stores, "ipfs://", 1000, None).await;
    assert_eq!(check_round_trip(&stores, "ipfs://", 1000, Some(1000)).await, first);
    let place = first.uri.split('#').next().unwrap();
    assert!(matches!(stores.get(&at(place)).await, Err(BlobError::Unverifiable)));
    let error = read(&stores, &with_wrong_hash(place)).await.unwrap_err();
    assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_source_pins_nothing() {
    let node = Node::start().await;
    let stores = stores(&node.rpc_url, None);
    let before = pinned(&node).await;
    let error = stores.put(&at("ipfs://"), failing_after(3_000_000), None).await.unwrap_err();
    assert!(matches!(error, BlobError::Source(_)) && error.whose() == Whose::Operator, "{error:?}");
    let destination = at("ipfs://");
    let gone = stores.put(&destination, stuck_after(3_000_000), None);
    assert!(tokio::time::timeout(Duration::from_secs(1), gone).await.is_err());
    // The node answers in order, so a later add has been preceded by whatever came of those.
    check_round_trip(&stores, "ipfs://", 10, None).await;
    assert_eq!(pinned(&node).await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_nobody_has_are_the_callers_matter() {
    let node = Node::start().await;
    let answer_max = Duration::from_secs(5);
    let stores = stores(&node.rpc_url, Some(Patience { answer_max, stall_max: answer_max }));
    let error = read(&stores, &with_wrong_hash(&format!("ipfs://{ABSENT}"))).await.unwrap_err();
    assert!(matches!(error, BlobError::NotFound { store: Store::Ipfs }), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
}

#[tokio::test]
async fn a_node_that_is_down_is_the_operators_matter() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let stores = stores(&format!("http://127.0.0.1:{port}").parse().unwrap(), None);
    let bytes = some_bytes(1_000_000);
    for error in [
        stores.put(&at("ipfs://"), &bytes[..], None).await.unwrap_err(),
        read(&stores, &with_wrong_hash(&format!("ipfs://{ABSENT}"))).await.unwrap_err(),
    ] {
        assert!(matches!(error, BlobError::Broken { store: Store::Ipfs, .. }), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Operator, true));
    }
}

#[tokio::test]
async fn a_bare_name_is_a_destination_and_a_content_id_a_source() {
    let stores = stores(&"http://127.0.0.1:1".parse().unwrap(), None);
    let error = stores.put(&at(&format!("ipfs://{ABSENT}")), &b""[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::NoDestination), "{error:?}");
    assert!(matches!(stores.get(&with_wrong_hash("ipfs://")).await, Err(BlobError::NoSource)));
}
