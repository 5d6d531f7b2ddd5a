//! What an operator's API promises to those who sign in, and to those who come before the node is up.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::{Address, Bytes};
use alloy::providers::Provider as _;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::SandboxId;
use sandbox_protocol::holdings::{EventsQuery, ResumeBody};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::{NonceBody, Scope, TokenBody, TokenRequest};
use sandbox_protocol::siwe::Message;
use sandbox_sdk::Chain;
use sandbox_sdk::api::{Heard, Session, sign_in};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use sandbox_tests::wait::until;
use time::OffsetDateTime;

use crate::world::{World, shown};

const PATIENCE: Duration = Duration::from_secs(30);

impl World {
    /// A session with this world's operator.
    async fn session(&self, key: usize, scopes: &[Scope]) -> Result<Session> {
        let account = self.ground.account(key).await?;
        Ok(sign_in(&account, (Ground::address(OPERATOR), &self.node.api_url()), scopes).await?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_stops_resumes_and_deletes_its_sandbox_without_a_job_and_hears_of_it() -> Result<()> {
    let world = World::new().await?;
    let id: SandboxId = world.create().await?.parse()?;
    let session = world.session(CUSTOMER, &Scope::ALL).await?;
    let stranger = world.session(STRANGER, &Scope::ALL).await?;
    assert_eq!(session.sandbox(id).await?.phase, "running");
    for refused in [stranger.sandbox(id).await, stranger.stop(id).await, stranger.delete(id).await] {
        let refused = refused.err().context("a stranger's request was served")?.to_string();
        assert!(refused.contains("404") && refused.contains("no_sandbox"), "{refused}");
    }
    world.customer.exec(&id.to_string(), "echo kept > file").await?;
    assert_eq!(session.stop(id).await?.phase, "stopped");
    let rests = world.customer.exec(&id.to_string(), "true").await?;
    assert_eq!(rests.status.code(), Some(122), "{:?}", shown(&rests));
    assert_eq!(session.resume(id, &ResumeBody::default()).await?.phase, "running");
    let (_, kept, _) = shown(&world.customer.exec(&id.to_string(), "cat file").await?);
    assert_eq!(kept, "kept\n");
    assert_eq!(session.delete(id).await?.phase, "gone");
    assert_eq!(world.leftovers()?, Vec::<String>::new());

    let mut events = session.events(EventsQuery { after: Some(0), follow: false }).await?;
    let mut phases = Vec::new();
    while let Some(Heard::Sandbox(event)) = events.next().await? {
        phases.push(event.phase);
    }
    let life = ["provisioning", "running", "stopping", "stopped", "resuming", "running", "deleting", "gone"];
    assert_eq!(phases, life);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_events_outlive_the_process_and_a_revoked_token_opens_nothing() -> Result<()> {
    let mut world = World::new().await?;
    let id: SandboxId = world.create().await?.parse()?;
    let session = world.session(CUSTOMER, &Scope::ALL).await?;
    world.node.kill()?;
    world.node.start().await?;
    assert_eq!(session.all_sandboxes(&Default::default()).await?.len(), 1);
    assert_eq!(session.calls(&Default::default()).await?.calls.len(), 1);
    let mut live = session.events(EventsQuery { after: Some(2), follow: true }).await?;
    session.stop(id).await?;
    let heard = tokio::time::timeout(PATIENCE, live.next()).await??.context("no event")?;
    assert!(matches!(&heard, Heard::Sandbox(event) if event.phase == "stopping" && event.seq > 2), "{heard:?}");
    session.revoke(&session.token().id).await?;
    let refused = session.sandbox(id).await.err().context("a revoked token was taken")?;
    assert!(refused.is_unauthorized(), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_signs_in_lists_shows_and_follows() -> Result<()> {
    let world = World::new().await?;
    let service = world.service.to_string();
    let args = ["--name", "mine", "--label", "kind=test"];
    let id = world.customer.create(world.service, &args).await?;
    let signed_in = world.customer.json(&["login", "--service", &service]).await?;
    assert_eq!(signed_in[0]["operator"], Ground::address(OPERATOR).to_string().to_lowercase());
    let file = world.customer.config_dir().join("tokens.json");
    assert_eq!(std::fs::metadata(file)?.permissions().mode() & 0o777, 0o600);
    assert_eq!(world.customer.text(&["ls", "--service", &service]).await?, format!("{id}  running  mine"));
    assert_eq!(world.customer.text(&["ls", "--service", &service, "--label", "kind=other"]).await?, "");
    let shown = world.customer.json(&["show", &id]).await?;
    assert_eq!((&shown["phase"], &shown["labels"]["kind"]), (&"running".into(), &"test".into()));
    assert_eq!(world.customer.text(&["stop", &id]).await?, format!("{id} stopped"));
    assert_eq!(world.customer.text(&["resume", &id]).await?, format!("{id} running"));
    let events = world.customer.text(&["events", &id]).await?;
    assert!(events.lines().any(|line| line.ends_with(&format!("{id} stopped (asked)"))), "{events}");
    let operators = world.customer.json(&["operators"]).await?;
    assert_eq!((&operators[0]["taken"], &operators[0]["eligible"]), (&1.into(), &true.into()));
    assert_eq!(world.customer.text(&["claim"]).await?, "nothing to claim");
    let stranger = world.ground.client(STRANGER)?;
    assert_eq!(stranger.text(&["ls", "--service", &service]).await?, "");
    assert_eq!(stranger.run(&["show", &id]).await?.status.code(), Some(121));
    Ok(())
}

/// A wallet that takes the signatures of `owner`: it recovers the signer of the hash and compares.
fn wallet_code(owner: Address) -> Bytes {
    let mut code = Vec::new();
    // memory[0..128] = hash, v, r, s of the arguments
    code.extend([0x60, 0x04, 0x35, 0x60, 0x00, 0x52, 0x60, 0xa4, 0x35, 0x60, 0xf8, 0x1c, 0x60, 0x20, 0x52]);
    code.extend([0x60, 0x64, 0x35, 0x60, 0x40, 0x52, 0x60, 0x84, 0x35, 0x60, 0x60, 0x52]);
    // memory[128..160] = ecrecover(memory[0..128])
    code.extend([0x60, 0x20, 0x60, 0x80, 0x60, 0x80, 0x60, 0x00, 0x60, 0x01, 0x5a, 0xfa, 0x50]);
    // return memory[128..160] == owner ? 0x1626ba7e << 224 : 0
    code.extend([0x60, 0x80, 0x51, 0x73]);
    code.extend(owner);
    code.extend([
        0x14, 0x63, 0x16, 0x26, 0xba, 0x7e, 0x60, 0xe0, 0x1b, 0x02, 0x60, 0x00, 0x52, 0x60, 0x20, 0x60, 0x00, 0xf3,
    ]);
    code.into()
}

/// Signs in at `url` as `address` by a signature of `key`.
async fn sign_in_as(url: &str, address: Address, key: &PrivateKeySigner) -> Result<reqwest::Response> {
    let client = reqwest::Client::new();
    let nonce: NonceBody = client.post(format!("{url}/v1/auth/nonce")).send().await?.json().await?;
    let message = Message {
        scheme: None,
        domain: nonce.domain,
        address,
        statement: Some(nonce.statement),
        uri: nonce.uri,
        chain_id: nonce.chain_id,
        nonce: nonce.nonce,
        issued_at: OffsetDateTime::now_utc(),
        expiration_time: None,
        not_before: None,
        request_id: None,
        resources: vec![Scope::SandboxesRead.urn()],
    };
    let message = message.to_string();
    let signature = key.sign_message_sync(message.as_bytes())?.as_bytes().to_vec().into();
    Ok(client.post(format!("{url}/v1/auth/token")).json(&TokenRequest { message, signature }).send().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contract_wallet_signs_in_by_its_owners_signature() -> Result<()> {
    let world = World::new().await?;
    let (owner, other) = (PrivateKeySigner::random(), PrivateKeySigner::random());
    let wallet = Address::repeat_byte(0x77);
    let chain = Chain::connect(world.ground.deployment.clone()).await?;
    let set = chain.provider().raw_request::<_, ()>("anvil_setCode".into(), (wallet, wallet_code(owner.address())));
    set.await.context("no wallet")?;
    let url = world.node.api_url();
    let token: TokenBody = sign_in_as(&url, wallet, &owner).await?.error_for_status()?.json().await?;
    assert_eq!(token.address, wallet);
    assert_eq!(sign_in_as(&url, wallet, &other).await?.status(), 401);
    assert_eq!(sign_in_as(&url, Address::repeat_byte(0x78), &owner).await?.status(), 401, "there is no contract");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told_while_the_chain_says_nothing_and_the_rest_waits() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    // Accepts, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    node.set("HTTP_RPC_URL", format!("http://{}", silent.local_addr()?));
    node.spawn()?;
    let url = node.api_url();
    let healthy = || async { reqwest::get(format!("{url}/health")).await.ok().filter(|answer| answer.status() == 200) };
    until("health", PATIENCE, healthy).await?;
    for path in ["/ready", "/v1/sandboxes", "/openapi.json"] {
        let answer = reqwest::get(format!("{url}{path}")).await?;
        let (status, error) = (answer.status(), answer.json::<ErrorBody>().await?);
        assert_eq!((status.as_u16(), error.code.as_str(), error.retryable), (503, "starting", true), "{path}");
    }
    node.stop().await
}

/// A certificate in files that a node is told of.
struct Certified {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certified {
    /// Writes a new one, and gives a client that trusts no other.
    fn renew(&self) -> Result<reqwest::Client> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(&self.key, made.signing_key.serialize_pem())?;
        std::fs::write(&self.certificate, made.cert.pem())?;
        let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes())?;
        Ok(reqwest::Client::builder().tls_certs_only([trusted]).build()?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_speaks_tls_and_takes_a_new_certificate_when_it_is_told() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    let files = Certified { certificate: node.dir().join("cert.pem"), key: node.dir().join("key.pem") };
    let client = files.renew()?;
    node.set("TLS_CERT_FILE", files.certificate.display().to_string());
    node.set("TLS_KEY_FILE", files.key.display().to_string());
    node.spawn()?;
    let url = node.api_url().replace("http://", "https://");
    let ready = |client: reqwest::Client| {
        let asked = client.get(format!("{url}/ready")).send();
        async move { asked.await.ok().filter(|answer| answer.status() == 200) }
    };
    until("the node to be ready over TLS", PATIENCE, || ready(client.clone())).await?;
    ensure!(reqwest::get(format!("{}/health", node.api_url())).await.is_err(), "the port speaks plain HTTP too");

    let client = files.renew()?;
    node.signal("HUP")?;
    until("the new certificate", PATIENCE, || ready(client.clone())).await?;
    node.stop().await
}
