//! A sandbox and its files without a world behind them, for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_protocol::files::{FileKind, FilesRefusal};
use sandbox_protocol::fsp::Status;

use super::ports::{Content, Entry, Execution, Files, FilesError, Listing, Ran, Sandbox, SandboxError};

/// What a program does.
type Behaviour = Box<dyn Fn(&Execution) -> Result<Ran, SandboxError> + Send + Sync>;

/// A sandbox that runs every id once, and whose programs do what it was made with.
pub struct FakeSandbox {
    behaviour: Behaviour,
    state: Mutex<Programs>,
}

#[derive(Default)]
struct Programs {
    asked: Vec<Execution>,
    ended: BTreeMap<String, Ran>,
}

impl FakeSandbox {
    /// A sandbox whose programs do this.
    pub fn new(behaviour: impl Fn(&Execution) -> Result<Ran, SandboxError> + Send + Sync + 'static) -> Self {
        Self { behaviour: Box::new(behaviour), state: Mutex::default() }
    }

    /// A sandbox whose programs write their own source.
    pub fn echo() -> Self {
        Self::new(|execution| Ok(wrote(&execution.code)))
    }

    /// All that it was asked for, in order.
    pub fn asked(&self) -> Vec<Execution> {
        self.state().asked.clone()
    }

    /// Ids of what ran, each once.
    pub fn ran(&self) -> Vec<String> {
        self.state().ended.keys().cloned().collect()
    }

    /// It knows nothing any more of what ran.
    pub fn forget(&self) {
        self.state().ended.clear();
    }

    fn state(&self) -> MutexGuard<'_, Programs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for FakeSandbox {
    async fn run(&self, execution: Execution) -> Result<Ran, SandboxError> {
        let mut state = self.state();
        state.asked.push(execution.clone());
        if let Some(ran) = state.ended.get(&execution.id) {
            return Ok(ran.clone());
        }
        if execution.attach_only {
            return Err(SandboxError::Unknown);
        }
        drop(state);
        let ran = (self.behaviour)(&execution)?;
        self.state().ended.insert(execution.id, ran.clone());
        Ok(ran)
    }
}

/// A program that wrote this and was content.
pub fn wrote(stdout: &str) -> Ran {
    let (stdout, stderr) = (stdout.to_owned(), String::new());
    Ran { ended: Status::Completed, exit_code: Some(0), stdout, stderr, truncated: false }
}

/// Files in memory, each with the number of times it was written. A path that others have as their directory is one.
#[derive(Default)]
pub struct FakeFiles {
    files: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
}

impl FakeFiles {
    /// The file is there.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let mut files = self.files();
        let times = files.get(path).map_or(0, |(_, times)| *times);
        files.insert(path.to_owned(), (content.as_ref().to_vec(), times + 1));
    }

    /// What it holds.
    pub fn get(&self, path: &str) -> Option<String> {
        self.files().get(path).map(|(content, _)| String::from_utf8_lossy(content).into_owned())
    }

    /// How often it was written.
    pub fn times_written(&self, path: &str) -> u64 {
        self.files().get(path).map_or(0, |(_, times)| *times)
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, (Vec<u8>, u64)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(refusal: FilesRefusal, message: &str) -> FilesError {
    FilesError::Refused { refusal, message: message.to_owned() }
}

#[async_trait]
impl Files for FakeFiles {
    async fn read(&self, path: &str, bytes_max: usize) -> Result<Content, FilesError> {
        let files = self.files();
        let Some((content, times)) = files.get(path) else {
            return Err(refused(FilesRefusal::NoSuchFile, "there is no such file"));
        };
        let bytes = content[..content.len().min(bytes_max)].to_vec();
        Ok(Content { bytes, length: content.len() as u64, etag: times.to_string() })
    }

    async fn write(&self, path: &str, content: &[u8], etag: Option<&str>) -> Result<(), FilesError> {
        if etag.is_some_and(|etag| etag != self.times_written(path).to_string()) {
            return Err(refused(FilesRefusal::Changed, "the file has changed"));
        }
        self.put(path, content);
        Ok(())
    }

    async fn list(&self, path: &str, entries_max: usize) -> Result<Listing, FilesError> {
        let root = if path == "." { String::new() } else { format!("{path}/") };
        let files = self.files();
        let mut entries = BTreeMap::new();
        for (name, (content, _)) in files.iter() {
            let Some(below) = name.strip_prefix(&root) else { continue };
            let entry = match below.split_once('/') {
                None => Entry { name: below.to_owned(), kind: FileKind::File, bytes: content.len() as u64 },
                Some((directory, _)) => Entry { name: directory.to_owned(), kind: FileKind::Directory, bytes: 0 },
            };
            entries.insert(entry.name.clone(), entry);
        }
        if entries.is_empty() && path != "." {
            return Err(refused(FilesRefusal::NoSuchFile, "there is no such directory"));
        }
        let more = entries.len() > entries_max;
        Ok(Listing { entries: entries.into_values().take(entries_max).collect(), more })
    }
}
