//! What is on record, as a test wants it, and the way to the sidecar.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sandbox_gateway::ports::{AuditEntry, AuditEvent, Barred, Doors, OutsideError, Over, Pipe, Room, Standing};
use sandbox_protocol::SandboxId;
use sandbox_protocol::ssh::PublicKey;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;

use super::SANDBOX;

pub(super) const TOKEN: &str = "secret";

pub(crate) struct House {
    socket: PathBuf,
    keys: Mutex<HashMap<PublicKey, Standing>>,
    barred: Mutex<Option<Barred>>,
    over: watch::Sender<Option<Over>>,
    audit: Mutex<Vec<AuditEntry>>,
    /// Ports outside by the name under which they are reached.
    outside: Mutex<HashMap<String, u16>>,
    touched: Arc<AtomicUsize>,
}

impl House {
    pub(super) fn new(socket: PathBuf, key: &PublicKey) -> Arc<Self> {
        let keys = HashMap::from([(key.clone(), Standing::Open)]);
        Arc::new(Self {
            socket,
            keys: Mutex::new(keys),
            barred: Mutex::default(),
            over: watch::Sender::new(None),
            audit: Mutex::default(),
            outside: Mutex::default(),
            touched: Arc::default(),
        })
    }

    pub(crate) fn stands(&self, key: &PublicKey, standing: Standing) {
        self.keys.lock().unwrap().insert(key.clone(), standing);
    }

    pub(crate) fn bar(&self, barred: Barred) {
        *self.barred.lock().unwrap() = Some(barred);
    }

    /// Ends every connection.
    pub(crate) fn end(&self, over: Over) {
        self.over.send_replace(Some(over));
    }

    /// Lets `name` lead to a port of this machine.
    pub(crate) fn allow(&self, name: &str, port: u16) {
        self.outside.lock().unwrap().insert(name.to_owned(), port);
    }

    pub(crate) fn audit(&self) -> Vec<AuditEvent> {
        self.audit.lock().unwrap().iter().map(|entry| entry.event.clone()).collect()
    }

    pub(crate) fn entries(&self) -> Vec<AuditEntry> {
        self.audit.lock().unwrap().clone()
    }

    /// How often the sandbox was said to be in use.
    pub(crate) fn touched(&self) -> usize {
        self.touched.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Doors for House {
    fn standing(&self, sandbox: SandboxId, key: &PublicKey) -> Option<Standing> {
        let standing = self.keys.lock().unwrap().get(key).copied();
        standing.filter(|_| sandbox.to_string() == SANDBOX)
    }

    async fn enter(&self, _: SandboxId, _: &PublicKey, resume: bool) -> Result<Box<dyn Room>, Barred> {
        match self.barred.lock().unwrap().clone() {
            Some(Barred::Stopped) if resume => {}
            Some(barred) => return Err(barred),
            None => {}
        }
        Ok(Box::new(Inside {
            socket: self.socket.clone(),
            over: self.over.subscribe(),
            outside: self.outside.lock().unwrap().clone(),
            touched: Arc::clone(&self.touched),
        }))
    }

    fn note(&self, entry: AuditEntry) {
        self.audit.lock().unwrap().push(entry);
    }
}

struct Inside {
    socket: PathBuf,
    over: watch::Receiver<Option<Over>>,
    outside: HashMap<String, u16>,
    touched: Arc<AtomicUsize>,
}

#[async_trait]
impl Room for Inside {
    async fn connect(&self) -> io::Result<Box<dyn Pipe>> {
        Ok(Box::new(UnixStream::connect(&self.socket).await?))
    }

    fn authorization(&self) -> String {
        format!("Bearer {TOKEN}")
    }

    async fn outside(&self, host: &str, _port: u16) -> Result<Box<dyn Pipe>, OutsideError> {
        let port = *self.outside.get(host).ok_or(OutsideError::Forbidden)?;
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(OutsideError::Unreachable)?;
        Ok(Box::new(stream))
    }

    fn touch(&self) {
        self.touched.fetch_add(1, Ordering::SeqCst);
    }

    async fn over(&self) -> Over {
        let mut over = self.over.clone();
        let over = over.wait_for(Option::is_some).await.ok().and_then(|over| *over);
        over.unwrap_or(Over::Operator)
    }
}
