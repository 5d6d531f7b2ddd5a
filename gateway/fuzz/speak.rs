//! What is demanded of a gateway that a stranger speaks to: shared by the fuzz target and the gateway's tests.

use std::time::Duration;

use async_trait::async_trait;
use sandbox_gateway::hostkeys::HostKeys;
use sandbox_gateway::ports::{AuditEntry, Barred, Doors, Room, Standing};
use sandbox_gateway::{Bounds, Gateway};
use sandbox_protocol::SandboxId;
use sandbox_protocol::ssh::PublicKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anybody is listened to.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody's key is on record.
struct Nobody;

#[async_trait]
impl Doors for Nobody {
    fn standing(&self, _: SandboxId, _: &PublicKey) -> Option<Standing> {
        None
    }

    async fn enter(&self, _: SandboxId, _: &PublicKey, _: bool) -> Result<Box<dyn Room>, Barred> {
        panic!("a stranger enters")
    }

    fn note(&self, entry: AuditEntry) {
        panic!("something happens: {entry:?}")
    }
}

/// Says `bytes`, and no more after them: the gateway lets nobody in, leaves, and ends when it is told to.
pub(crate) fn speak(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let spoken = runtime.block_on(async { timeout(PATIENCE, spoken(bytes)).await });
    spoken.expect("it listens for ever");
}

async fn spoken(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let keys = HostKeys::open(directory.path()).unwrap();
    let gateway = Gateway::new(std::sync::Arc::new(Nobody), keys, Bounds::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let stranger = async {
        let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
        let saying = async {
            // Where the gateway has heard enough, it takes no more.
            if writer.write_all(bytes).await.is_ok() {
                writer.shutdown().await.ok();
            }
        };
        let hearing = async { while reader.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {} };
        tokio::join!(saying, hearing);
        stop.cancel();
    };
    tokio::join!(gateway.serve(listener, stop.clone()), stranger);
}
