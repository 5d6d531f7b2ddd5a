//! What the operator must not forget, on disk: calls, sandboxes, and how far the chain was read.
//!
//! The only folder that knows sled. "Durable" means fsync: sled's own flush is not one, so its file is synced as well.
//! One thread writes and commits in groups; reads go straight to the tree. One process per directory, kept by a lock.

mod call;
mod error;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fs4::FileExt;
use sandbox_fleet::ports::{PortError, Sandboxes};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::{CallKey, FailureCode, SandboxId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

pub(crate) use call::{Answer, CallRecord, Progress};
pub(crate) use error::RecordsError;
use writer::{Writer, WriterThread};

/// Layout of keys and values; another one is refused rather than misread.
const VERSION: u64 = 1;
const VERSION_KEY: &[u8] = b"version";
const CURSOR_KEY: &[u8] = b"cursor";
const OWNER_KEY: &[u8] = b"owner";
const STATE_ID_KEY: &[u8] = b"state_id";

/// The operator's records. Clones share them.
#[derive(Clone)]
pub(crate) struct Records {
    tree: sled::Tree,
    writer: Writer,
    changes: Arc<watch::Sender<u64>>,
}

/// Keeps the directory; records are written until it is dropped.
pub(crate) struct RecordsGuard {
    _thread: WriterThread,
    _lock: File,
}

impl Records {
    /// Opens the records in `dir`, which is made where it does not exist.
    pub(crate) fn open(dir: &Path) -> Result<(Self, RecordsGuard), RecordsError> {
        std::fs::create_dir_all(dir).map_err(|source| RecordsError::Directory { dir: dir.into(), source })?;
        let lock = lock(dir)?;
        let path = dir.join("records");
        let db = sled::Config::new().path(&path).flush_every_ms(None).open().map_err(RecordsError::Open)?;
        let tree = (*db).clone();
        let thread = WriterThread::start(db, &path.join("db"))?;
        let (changes, _) = watch::channel(0);
        let records = Self { tree, writer: thread.writer(), changes: Arc::new(changes) };
        records.check_version()?;
        Ok((records, RecordsGuard { _thread: thread, _lock: lock }))
    }

    /// Binds the directory to `owner` (operator, chain and contracts) at the first start, and checks it at every other.
    pub(crate) fn bind(&self, owner: &str) -> Result<(), RecordsError> {
        match self.read::<String>(OWNER_KEY)? {
            Some(found) if found == owner => Ok(()),
            Some(found) => Err(RecordsError::Foreign { found, given: owner.to_owned() }),
            None => {
                self.tree.insert(OWNER_KEY, encode(&owner)?).map_err(RecordsError::Write)?;
                Ok(())
            }
        }
    }

    /// A random number that names this state, and what belongs to it outside the directory, for good.
    pub(crate) fn state_id(&self) -> Result<u64, RecordsError> {
        if let Some(id) = self.read(STATE_ID_KEY)? {
            return Ok(id);
        }
        let id = rand::random::<u64>();
        self.tree.insert(STATE_ID_KEY, encode(&id)?).map_err(RecordsError::Write)?;
        self.tree.flush().map_err(RecordsError::Write)?;
        Ok(id)
    }

    /// First block whose events were not yet taken in.
    pub(crate) fn cursor(&self) -> Result<Option<u64>, RecordsError> {
        self.read(CURSOR_KEY)
    }

    /// Takes in new calls together with the cursor behind them; calls that are known stay as they are.
    pub(crate) async fn take_in(&self, calls: &[CallRecord], cursor: u64) -> Result<(), RecordsError> {
        let mut batch = sled::Batch::default();
        for call in calls {
            if self.call(call.key)?.is_none() {
                put_call(&mut batch, call)?;
            }
        }
        batch.insert(CURSOR_KEY, encode(&cursor)?);
        self.writer.write(batch).await
    }

    /// What is known of a call.
    pub(crate) fn call(&self, key: CallKey) -> Result<Option<CallRecord>, RecordsError> {
        self.read(&call_key(key))
    }

    /// Replaces what is known of a call.
    pub(crate) async fn put_call(&self, call: &CallRecord) -> Result<(), RecordsError> {
        let mut batch = sled::Batch::default();
        put_call(&mut batch, call)?;
        self.writer.write(batch).await?;
        self.changes.send_modify(|version| *version += 1);
        Ok(())
    }

    /// Calls that are not at their end.
    pub(crate) fn open_calls(&self) -> Result<Vec<CallRecord>, RecordsError> {
        let open = self.tree.scan_prefix(b"open/").keys();
        open.map(|key| {
            let key = key.map_err(RecordsError::Read)?;
            let call = [b"call/", key.get(5..).unwrap_or_default()].concat();
            self.read(&call)?.ok_or(RecordsError::Missing)
        })
        .collect()
    }

    /// Every sandbox that is remembered.
    pub(crate) fn sandboxes(&self) -> Result<Vec<Sandbox>, RecordsError> {
        self.tree.scan_prefix(b"sandbox/").values().map(|value| decode(&value.map_err(RecordsError::Read)?)).collect()
    }

    /// A number that rises whenever a call changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn check_version(&self) -> Result<(), RecordsError> {
        match self.read(VERSION_KEY)? {
            Some(VERSION) => Ok(()),
            Some(found) => Err(RecordsError::Version { found, known: VERSION }),
            None => {
                self.tree.insert(VERSION_KEY, encode(&VERSION)?).map_err(RecordsError::Write)?;
                Ok(())
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, RecordsError> {
        self.tree.get(key).map_err(RecordsError::Read)?.map(|value| decode(&value)).transpose()
    }
}

#[async_trait]
impl Sandboxes for Records {
    async fn save(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        let saved = async {
            let mut batch = sled::Batch::default();
            batch.insert(sandbox_key(sandbox.id), encode(sandbox)?);
            self.writer.write(batch).await
        };
        saved
            .await
            .map_err(|error| PortError::new(FailureCode::Internal, "the operator cannot write its records", error))
    }
}

fn lock(dir: &Path) -> Result<File, RecordsError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(|source| RecordsError::Directory { dir: dir.into(), source })?;
    match FileExt::try_lock(&file) {
        Ok(()) => Ok(file),
        Err(_) => Err(RecordsError::InUse { dir: dir.into() }),
    }
}

fn put_call(batch: &mut sled::Batch, call: &CallRecord) -> Result<(), RecordsError> {
    let key = call_key(call.key);
    let open = [b"open/", key.get(5..).unwrap_or_default()].concat();
    batch.insert(key, encode(call)?);
    if call.progress.is_final() {
        batch.remove(open);
    } else {
        batch.insert(open, &[]);
    }
    Ok(())
}

/// Big-endian numbers, so that keys sort as they count.
fn call_key(key: CallKey) -> Vec<u8> {
    [b"call/".as_slice(), &key.service.to_be_bytes(), &key.call.to_be_bytes()].concat()
}

fn sandbox_key(id: SandboxId) -> Vec<u8> {
    let CallKey { service, call } = id.origin;
    [b"sandbox/".as_slice(), &service.to_be_bytes(), &call.to_be_bytes(), &[id.slot]].concat()
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, RecordsError> {
    serde_json::to_vec(value).map_err(RecordsError::Encoding)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordsError> {
    serde_json::from_slice(bytes).map_err(RecordsError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(call: u64) -> CallRecord {
        CallRecord::seen(CallKey { service: 1, call }, 0, [1; 20].into(), vec![1, 2].into(), 5)
    }

    #[tokio::test]
    async fn calls_and_the_cursor_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            records.take_in(&[call(1), call(2)], 9).await.unwrap();
            let mut begun = call(1);
            begun.progress = Progress::Begun { block: 7 };
            records.put_call(&begun).await.unwrap();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!(records.cursor().unwrap(), Some(9));
        let open: Vec<_> = records.open_calls().unwrap().into_iter().map(|call| call.key.call).collect();
        assert_eq!(open, [1, 2]);
        assert!(matches!(records.call(call(1).key).unwrap().unwrap().progress, Progress::Begun { block: 7 }));
    }

    #[tokio::test]
    async fn a_call_seen_again_keeps_its_progress() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        let mut lost = call(1);
        lost.progress = Progress::Dropped { reason: "answered by another".into() };
        records.put_call(&lost).await.unwrap();
        records.take_in(&[call(1)], 3).await.unwrap();
        assert_eq!(records.call(lost.key).unwrap(), Some(lost));
        assert_eq!(records.open_calls().unwrap(), []);
    }

    #[test]
    fn a_second_process_on_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Records::open(dir.path()).unwrap();
        assert!(matches!(Records::open(dir.path()).err(), Some(RecordsError::InUse { .. })));
    }
}
