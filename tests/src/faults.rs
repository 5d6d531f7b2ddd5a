//! An engine that can be made to stall or to fail: a socket between an operator and the real one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where the real engine is.
const ENGINE: &str = "/var/run/docker.sock";
const REFUSAL: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n\
    Connection: close\r\nContent-Length: 23\r\n\r\n{\"message\":\"a failure\"}\n";
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are answered.
    Pass,
    /// They wait until that changes.
    Stall,
    /// Each gets a 500.
    Fail,
}

/// The engine behind a socket of its own.
pub struct Engine {
    path: PathBuf,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
}

impl Engine {
    /// Listens in `dir`.
    ///
    /// # Errors
    /// It cannot.
    pub fn start(dir: &Path) -> Result<Self> {
        let path = dir.join("engine.sock");
        let listener = UnixListener::bind(&path).context("cannot listen for the engine's requests")?;
        let (mode, watched) = watch::channel(Mode::Pass);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let watched = watched.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(client, watched).await {
                        eprintln!("a request to the engine: {error:#}");
                    }
                });
            }
        });
        Ok(Self { path, mode, accepting })
    }

    /// What an operator is to be given as `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// From now on.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut client: UnixStream, mut mode: watch::Receiver<Mode>) -> Result<()> {
    let now = *mode.wait_for(|mode| *mode != Mode::Stall).await?;
    if now == Mode::Fail {
        let mut head = vec![0; HEAD_BYTES_MAX];
        let _read: usize = client.read(&mut head).await?;
        return Ok(client.write_all(REFUSAL).await?);
    }
    let mut engine = UnixStream::connect(ENGINE).await?;
    copy_bidirectional(&mut client, &mut engine).await?;
    Ok(())
}
