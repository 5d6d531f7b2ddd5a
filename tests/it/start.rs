//! What a node does when the world is not as configured: it refuses with the reason, or waits and says so.

use std::time::Duration;

use anyhow::Result;
use sandbox_sdk::devchain::DevChain;
use sandbox_tests::ground::{Ground, OPERATOR};
use sandbox_tests::wait::until;

async fn check(set: &[(&str, &str)], reason: &str) -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    for (name, value) in set {
        node.set(name, *value);
    }
    node.spawn()?;
    let (code, log) = node.refused().await?;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(reason), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_contract_address_is_refused() -> Result<()> {
    let nobody = "0x000000000000000000000000000000000000dEaD";
    check(&[("TANGLE_CONTRACT", nobody)], "there is no contract at this address on chain 31337").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_that_is_not_the_core_is_refused() -> Result<()> {
    let token = "0x7bc06c482DEAd17c0e297aFbC32f6e63d3846650";
    check(&[("TANGLE_CONTRACT", token)], "does not answer for BLUEPRINT_ID").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blueprint_of_another_kind_is_refused() -> Result<()> {
    check(&[("BLUEPRINT_ID", "0")], "BLUEPRINT_ID 0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_chain_is_refused() -> Result<()> {
    check(&[("CHAIN_ID", "8453")], "CHAIN_ID is 8453, but the node serves chain 31337").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_setting_is_refused_by_name() -> Result<()> {
    check(&[("API_LISTEN", "nowhere")], "API_LISTEN=\"nowhere\"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_operator_on_one_state_directory_is_refused() -> Result<()> {
    let ground = Ground::new().await?;
    let mut first = ground.node(OPERATOR)?;
    first.start().await?;
    let mut second = ground.node(OPERATOR)?;
    second.set("DATA_DIR", first.dir().join("data").display().to_string());
    second.spawn()?;
    let (code, log) = second.refused().await?;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("is in use by another operator process"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_down_is_waited_for_aloud() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    node.set("HTTP_RPC_URL", format!("http://127.0.0.1:{port}"));
    node.spawn()?;
    let said = || {
        let said = node.log().contains("waiting for the node of the chain to answer");
        async move { said.then_some(()) }
    };
    until("the node to say that it waits", Duration::from_secs(30), said).await?;
    let bridge = Bridge::start(port, &ground.chain)?;
    node.ready().await?;
    drop(bridge);
    node.stop().await
}

/// Carries connections from a port to a chain: the chain "comes up" where the operator looks for it.
struct Bridge(tokio::task::JoinHandle<()>);

impl Bridge {
    fn start(port: u16, chain: &DevChain) -> Result<Self> {
        let target = chain.rpc_url().socket_addrs(|| None)?[0];
        let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Self(tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut to = tokio::net::TcpStream::connect(target).await?;
                    tokio::io::copy_bidirectional(&mut from, &mut to).await
                });
            }
        })))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_one_deployment_is_not_used_for_another() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    node.stop().await?;
    let mut other = ground.node(sandbox_tests::ground::SECOND_OPERATOR)?;
    other.set("DATA_DIR", node.dir().join("data").display().to_string());
    other.spawn()?;
    let (code, log) = other.refused().await?;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("the state directory belongs to operator"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blueprint_managers_bridge_is_used_when_its_socket_is_given_and_only_then() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("BRIDGE_SOCKET_PATH", node.dir().join("no-manager.sock").display().to_string());
    node.spawn()?;
    let (code, log) = node.refused().await?;
    assert_eq!(code, Some(1), "without its manager such a node has no business: {log}");
    assert!(log.contains("the blueprint runner ended"), "{log}");
    node.set("TEST_MODE", "true");
    node.start().await?;
    node.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_registers_by_command_and_publishes_a_changed_offer_the_same_way() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    let chain = ground.account(OPERATOR).await?.chain().clone();
    let published = || chain.operator(Ground::address(OPERATOR));
    assert!(!published().await?.registered);
    for capacity in [3, 5] {
        node.set("CAPACITY_SANDBOXES", capacity.to_string());
        let registered = node.command(&["register"])?.output()?;
        assert!(registered.status.success(), "{}", String::from_utf8_lossy(&registered.stderr));
        assert_eq!(published().await?.capacity, capacity);
    }
    Ok(())
}
