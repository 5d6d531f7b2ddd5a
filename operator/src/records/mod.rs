//! What the operator must not forget, on disk: calls, sandboxes, and how far the chain was read.
//!
//! The only folder that knows sled. "Durable" means fsync: sled's own flush is not one, so its files are synced as well.
//! One thread writes and commits in groups; reads go straight to the tree. One process per directory, kept by a lock.
//! A store that failed once takes no further write: the process is to end, and its next life goes on from the disk.

mod batches;
mod call;
mod callers;
mod changes;
mod copy;
mod disk;
mod ended;
mod error;
mod events;
mod firings;
mod forks;
#[cfg(test)]
mod forks_tests;
mod moves;
mod sweeps;
#[cfg(test)]
mod tests;
mod tokens;
mod vault;
#[cfg(test)]
mod vault_tests;
mod workflows;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use fs4::FileExt;
use sandbox_fleet::limits::ENDED_SANDBOXES_MAX;
use sandbox_fleet::ports::{PortError, Sandboxes};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::{CallKey, FailureCode, SandboxId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sled::IVec;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use batches::{PartItem, PartRecord};
pub(crate) use call::{Answer, CallRecord, Progress};
pub(crate) use callers::CallPlace;
use changes::Changes;
use disk::Disk;
use ended::Ended;
pub(crate) use error::RecordsError;
use events::EventLog;
pub(crate) use events::{EventRecord, now_ms, reason};
pub(crate) use firings::Names;
use forks::GivenUp;
pub(crate) use moves::MovePlace;
pub(crate) use tokens::TokenRecord;
pub(crate) use vault::Vault;
pub(crate) use workflows::{Firing, RunKey, RunRecord, Standing, Watched, WorkflowText};
use writer::{Committer, Write, Writer, WriterThread};

use crate::failpoint::Failpoint;
use crate::limits::{DIRECTORY_LOCK_PAUSE, DIRECTORY_LOCK_TIMEOUT, EVENTS_MAX, FINAL_CALLS_MAX, PRUNE_STEP_MAX};

/// Layout of keys and values; another one is refused rather than misread.
const VERSION: u64 = 3;
const VERSION_KEY: &[u8] = b"version";
/// The store, in the state directory.
const STORE_DIR: &str = "records";
/// What its steps are called where a test makes the process die.
const COMMIT: &str = "commit of";
const CURSOR_KEY: &[u8] = b"cursor";
const OWNER_KEY: &[u8] = b"owner";
const STATE_ID_KEY: &[u8] = b"state_id";

/// Calls, by service and number.
const CALLS: &[u8] = b"call/";
/// Index of the calls that are not at their end.
const OPEN: &[u8] = b"open/";
/// Index of the calls at their end, by block and then as the calls themselves.
const FINAL: &[u8] = b"final/";
const SANDBOXES: &[u8] = b"sandbox/";

/// The operator's records. Clones share them.
#[derive(Clone)]
pub(crate) struct Records {
    tree: sled::Tree,
    vault: Vault,
    disk: Arc<Disk>,
    writer: Writer,
    changes: Changes,
    failed: CancellationToken,
    /// The last event on disk.
    durable_events: Arc<watch::Sender<u64>>,
    /// Calls at their end; a write that is given up may make it too many by one.
    finals: Arc<AtomicUsize>,
    finals_max: usize,
    given_up: GivenUp,
    failpoint: Failpoint,
    /// Sandboxes at their end, in that order.
    ended: Ended,
}

/// Keeps the directory; records are written until it is dropped.
pub(crate) struct RecordsGuard {
    _thread: WriterThread,
    _lock: File,
}

impl Records {
    /// Opens the records in `dir`, which is made where it does not exist. With a locked vault they can be copied.
    pub(crate) fn open_with(dir: &Path, vault: Vault) -> Result<(Self, RecordsGuard), RecordsError> {
        Self::open_mortal(dir, vault, Failpoint::default())
    }

    /// The same, to die at a commit where that is asked for.
    pub(crate) fn open_mortal(
        dir: &Path,
        vault: Vault,
        failpoint: Failpoint,
    ) -> Result<(Self, RecordsGuard), RecordsError> {
        Self::open_as(dir, (FINAL_CALLS_MAX, EVENTS_MAX, ENDED_SANDBOXES_MAX), vault, failpoint)
    }

    /// The same, with a key of tests.
    #[cfg(test)]
    pub(crate) fn open(dir: &Path) -> Result<(Self, RecordsGuard), RecordsError> {
        Self::open_with(dir, vault_tests::vault(1))
    }

    /// The same, to keep other numbers of calls at their end, of events, and of sandboxes at their end.
    #[cfg(test)]
    fn open_keeping(dir: &Path, keep: (usize, u64, usize)) -> Result<(Self, RecordsGuard), RecordsError> {
        Self::open_as(dir, keep, vault_tests::vault(1), Failpoint::default())
    }

    fn open_as(
        dir: &Path,
        (finals_max, events_max, ended_max): (usize, u64, usize),
        vault: Vault,
        failpoint: Failpoint,
    ) -> Result<(Self, RecordsGuard), RecordsError> {
        std::fs::create_dir_all(dir).map_err(|source| RecordsError::Directory { dir: dir.into(), source })?;
        let lock = lock(dir)?;
        let path = dir.join(STORE_DIR);
        let db = store(&path)?;
        let tree = (*db).clone();
        let disk = Arc::new(Disk::open(tree.clone(), &path).map_err(RecordsError::Sync)?);
        let (changes, failed) = (Changes::default(), CancellationToken::new());
        let events = EventLog::open(tree.clone(), events_max)?;
        let durable_events = events.durable();
        let committer = Committer {
            disk: disk.clone(),
            events,
            changes: changes.clone(),
            failed: failed.clone(),
            failpoint: failpoint.clone(),
        };
        let thread = WriterThread::start(committer)?;
        let writer = thread.writer();
        let finals = Arc::new(count(&tree, FINAL)?.into());
        let (given_up, ended) = (GivenUp::default(), Ended::new(ended_max));
        let records = Self {
            tree,
            vault,
            disk,
            writer,
            changes,
            failed,
            durable_events,
            finals,
            finals_max,
            given_up,
            failpoint,
            ended,
        };
        records.check_version()?;
        if !records.vault.is_locked() {
            records.check_key()?;
            records.index_callers()?;
            records.index_ended()?;
            records.index_workflows()?;
        }
        Ok((records, RecordsGuard { _thread: thread, _lock: lock }))
    }

    /// Binds the directory to `owner` (operator, chain and contracts) at the first start, and checks it at every other.
    pub(crate) fn bind(&self, owner: &str) -> Result<(), RecordsError> {
        match self.read::<String>(OWNER_KEY)? {
            Some(found) if found == owner => {}
            Some(found) => return Err(RecordsError::Foreign { found, given: owner.to_owned() }),
            None => self.write_now(OWNER_KEY, &owner)?,
        }
        self.bind_key()
    }

    /// A random number that names this state, and what belongs to it outside the directory, for good.
    pub(crate) fn state_id(&self) -> Result<u64, RecordsError> {
        if let Some(id) = self.read(STATE_ID_KEY)? {
            return Ok(id);
        }
        let id = rand::random::<u64>();
        self.write_now(STATE_ID_KEY, &id)?;
        Ok(id)
    }

    /// First block whose events were not yet taken in.
    pub(crate) fn cursor(&self) -> Result<Option<u64>, RecordsError> {
        self.read(CURSOR_KEY)
    }

    /// What is known of a call, also what is not on disk yet.
    pub(crate) fn call(&self, key: CallKey) -> Result<Option<CallRecord>, RecordsError> {
        self.read(&indexed(CALLS, key))
    }

    /// What is on disk of a call: what may be told to others. Waits while it is being written.
    pub(crate) async fn call_on_disk(&self, key: CallKey) -> Result<Option<CallRecord>, RecordsError> {
        let mut changes = self.watch(key);
        loop {
            let call = self.call(key)?;
            // Looked at after the read: a write that ended in between is on disk.
            if !self.changes.is_writing(key) {
                return Ok(call);
            }
            let changed = self.failed.run_until_cancelled(changes.changed()).await;
            if !matches!(changed, Some(Ok(()))) {
                return Err(RecordsError::Failed);
            }
        }
    }

    /// Replaces what is known of a call, unless the chain has taken that call back; whether it has not.
    pub(crate) async fn put_call(&self, call: &CallRecord) -> Result<bool, RecordsError> {
        let value = self.encode(&indexed(CALLS, call.key), call)?;
        let place = self.writer.place().await?;
        let written = {
            let given_up = self.given_up.lock();
            if given_up.contains(call) {
                return Ok(false);
            }
            let mut write = Write::default();
            self.put_encoded(&mut write, call, value).inspect_err(|error| self.heed(error))?;
            place.write(write)
        };
        written.on_disk().await.map(|()| true)
    }

    /// Calls that are not at their end. One whose record is bad is left out, and said in the log.
    pub(crate) fn open_calls(&self) -> Result<Vec<CallRecord>, RecordsError> {
        self.named_by(OPEN)
    }

    /// The calls that an index names by their keys alone.
    fn named_by(&self, index: &[u8]) -> Result<Vec<CallRecord>, RecordsError> {
        let mut calls = Vec::new();
        for key in self.tree.scan_prefix(index).keys() {
            let key = key.map_err(RecordsError::Read)?;
            let call = [CALLS, key.get(index.len()..).unwrap_or_default()].concat();
            match self.read(&call).and_then(|call| call.ok_or(RecordsError::Missing)) {
                Ok(call) => calls.push(call),
                Err(error @ (RecordsError::Encoding(_) | RecordsError::Unseal | RecordsError::Missing)) => {
                    let key = hex::encode(&call);
                    tracing::error!(key, error = %crate::error_chain(&error), "an open call is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(calls)
    }

    /// The calls of the highest services and numbers, at most so many, from the highest down.
    pub(crate) fn latest_calls(&self, count_max: usize) -> Result<Vec<CallRecord>, RecordsError> {
        self.tree.scan_prefix(CALLS).rev().take(count_max).map(|call| self.decode(call)).collect()
    }

    /// Every sandbox that is remembered.
    pub(crate) fn sandboxes(&self) -> Result<Vec<Sandbox>, RecordsError> {
        self.tree.scan_prefix(SANDBOXES).map(|sandbox| self.decode(sandbox)).collect()
    }

    /// A sandbox, if it is remembered.
    pub(crate) fn sandbox(&self, id: SandboxId) -> Result<Option<Sandbox>, RecordsError> {
        self.read(&sandbox_key(id))
    }

    /// Tells when something of this call has come onto the disk.
    pub(crate) fn watch(&self, key: CallKey) -> watch::Receiver<()> {
        self.changes.watch(key)
    }

    /// Cancelled when the store has failed: nothing more will be written, only a restart helps.
    pub(crate) fn failed(&self) -> CancellationToken {
        self.failed.clone()
    }

    /// Whether there is something under `key`, for who is about to write.
    fn holds(&self, key: impl AsRef<[u8]>) -> Result<bool, RecordsError> {
        self.tree.contains_key(key).map_err(RecordsError::Read).inspect_err(|error| self.heed(error))
    }

    /// Of who is about to write: a store that cannot be read then has failed as one that cannot be written. Where its own
    /// threads are the first to find the disk full, say, it reads nothing either, and no write would ever find out.
    fn heed(&self, error: &RecordsError) {
        if let RecordsError::Read(error) = error {
            tracing::error!(%error, "the record store failed");
            self.failed.cancel();
        }
    }

    fn check_version(&self) -> Result<(), RecordsError> {
        match self.read(VERSION_KEY)? {
            Some(VERSION) => Ok(()),
            // What version 1 had not is filled in when it is read; a sandbox's container is inspected again at every start.
            // What stood unsealed before version 3 is sealed when it is next written.
            Some(1 | 2) => self.write_now(VERSION_KEY, &VERSION),
            Some(found) => Err(RecordsError::Version { found, known: VERSION }),
            None => self.write_now(VERSION_KEY, &VERSION),
        }
    }

    /// For what is written once, before the work begins.
    fn write_now(&self, key: &[u8], value: &impl Serialize) -> Result<(), RecordsError> {
        let _step = self.failpoint.step(COMMIT, "a fact");
        self.tree.insert(key, self.encode(key, value)?).map_err(RecordsError::Write)?;
        self.disk.sync()
    }

    fn put(&self, write: &mut Write, call: &CallRecord) -> Result<(), RecordsError> {
        self.put_encoded(write, call, self.encode(&indexed(CALLS, call.key), call)?)
    }

    fn put_encoded(&self, write: &mut Write, call: &CallRecord, value: Vec<u8>) -> Result<(), RecordsError> {
        // One that is open is in its indexes already, unless what is on its way takes it out of them.
        let is_indexed = !self.changes.is_writing(call.key) && self.holds(indexed(OPEN, call.key))?;
        if !is_indexed {
            Self::index(write, call);
            write.batch.insert(indexed(OPEN, call.key), &[]);
        }
        self.put_record(write, call, value)
    }

    fn put_record(&self, write: &mut Write, call: &CallRecord, value: Vec<u8>) -> Result<(), RecordsError> {
        write.what = call.progress.name();
        write.batch.insert(indexed(CALLS, call.key), value);
        write.calls.push(call.key);
        if call.answer().is_some() {
            self.remove_moves(write, call)?;
        }
        if !call.progress.is_final() {
            return Ok(());
        }
        let end = final_key(call);
        write.batch.remove(indexed(OPEN, call.key));
        if !self.holds(&end)? {
            write.batch.insert(end, &[]);
            self.finals.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts `new` in the place of `old`, also where that was at its end.
    fn put_instead(&self, write: &mut Write, old: &CallRecord, new: &CallRecord) -> Result<(), RecordsError> {
        let (before, after) = (final_key(old), final_key(new));
        let stays = new.progress.is_final() && before == after;
        if old.progress.is_final() && !stays && self.holds(&before)? {
            write.batch.remove(before);
            self.finals.fetch_sub(1, Ordering::Relaxed);
        }
        Self::remove_index(write, old);
        Self::index(write, new);
        write.batch.insert(indexed(OPEN, new.key), &[]);
        self.put_record(write, new, self.encode(&indexed(CALLS, new.key), new)?)
    }

    /// Removes a few of the oldest calls at their end beyond those that are kept; returns how many.
    fn prune(&self, write: &mut Write) -> Result<usize, RecordsError> {
        let beyond = self.finals.load(Ordering::Relaxed).saturating_sub(self.finals_max);
        let mut pruned = 0;
        for end in self.tree.scan_prefix(FINAL).keys().take(beyond.min(PRUNE_STEP_MAX)) {
            let end = end.map_err(RecordsError::Read)?;
            let call = [CALLS, end.get(FINAL.len() + size_of::<u64>()..).unwrap_or_default()].concat();
            self.unindex(write, &call)?;
            self.remove_moves_of(write, call.get(CALLS.len()..).unwrap_or_default())?;
            write.batch.remove(call);
            write.batch.remove(end);
            pruned += 1;
        }
        Ok(pruned)
    }

    fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, RecordsError> {
        self.tree.get(key).map_err(RecordsError::Read)?.map(|value| self.vault.decode(key, &value)).transpose()
    }

    /// What is stored of `value` under `key`; the one way for what may be secret.
    fn encode<T: Serialize>(&self, key: &[u8], value: &T) -> Result<Vec<u8>, RecordsError> {
        self.vault.encode(key, value)
    }

    /// The value of an entry.
    fn decode<T: DeserializeOwned>(&self, entry: sled::Result<(IVec, IVec)>) -> Result<T, RecordsError> {
        let (key, value) = entry.map_err(RecordsError::Read)?;
        self.vault.decode(&key, &value)
    }
}

#[async_trait]
impl Sandboxes for Records {
    async fn save(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        let saved = async {
            let mut write = Write::default();
            let key = sandbox_key(sandbox.id);
            let before: Option<Sandbox> = self.read(&key)?;
            write.events.extend(events::difference(before.as_ref(), sandbox));
            let value = self.encode(&key, sandbox)?;
            write.batch.insert(key, value);
            write.what = sandbox.phase.name();
            if sandbox.phase.is_final() && before.is_none_or(|before| !before.phase.is_final()) {
                self.end(&mut write, sandbox.id)?;
            }
            self.writer.write(write).await
        };
        saved
            .await
            .map_err(|error| PortError::new(FailureCode::Internal, "the operator cannot write its records", error))
    }
}

/// Takes the directory. A process that was killed may leave its locks, for an instant, to a program that it was just
/// starting, so they are waited for.
fn lock(dir: &Path) -> Result<File, RecordsError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(|source| RecordsError::Directory { dir: dir.into(), source })?;
    let asked = Instant::now();
    while FileExt::try_lock(&file).is_err() {
        if asked.elapsed() > DIRECTORY_LOCK_TIMEOUT {
            return Err(RecordsError::InUse { dir: dir.into() });
        }
        std::thread::sleep(DIRECTORY_LOCK_PAUSE);
    }
    Ok(file)
}

/// Opens the store, which has a lock of its own.
fn store(path: &Path) -> Result<sled::Db, RecordsError> {
    // sled tells of it in words alone.
    let is_locked = |error: &std::io::Error| error.to_string().contains("could not acquire lock");
    let asked = Instant::now();
    loop {
        match sled::Config::new().path(path).flush_every_ms(None).open() {
            Err(sled::Error::Io(error)) if is_locked(&error) && asked.elapsed() <= DIRECTORY_LOCK_TIMEOUT => {
                std::thread::sleep(DIRECTORY_LOCK_PAUSE);
            }
            opened => return opened.map_err(RecordsError::Open),
        }
    }
}

/// Big-endian numbers, so that keys sort as they count.
fn indexed(index: &[u8], CallKey { service, call }: CallKey) -> Vec<u8> {
    [index, &service.to_be_bytes(), &call.to_be_bytes()].concat()
}

fn final_key(call: &CallRecord) -> Vec<u8> {
    indexed(&[FINAL, &call.block.to_be_bytes()].concat(), call.key)
}

fn count(tree: &sled::Tree, index: &[u8]) -> Result<usize, RecordsError> {
    tree.scan_prefix(index).keys().try_fold(0, |count, key| key.map(|_| count + 1)).map_err(RecordsError::Read)
}

fn sandbox_key(id: SandboxId) -> Vec<u8> {
    let CallKey { service, call } = id.origin;
    [SANDBOXES, &service.to_be_bytes(), &call.to_be_bytes(), &[id.slot]].concat()
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, RecordsError> {
    serde_json::to_vec(value).map_err(RecordsError::Encoding)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordsError> {
    serde_json::from_slice(bytes).map_err(RecordsError::Encoding)
}
