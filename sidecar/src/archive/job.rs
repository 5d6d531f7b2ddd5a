//! The process that archives: what it is told, what it does, what it tells at its end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use sandbox_protocol::snapshot::{ArchiveFault, ExportReport, RestoreReply, Sha256, SnapshotRefusal};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use zstd::zstd_safe::{CParameter, DParameter};

use super::error::ArchiveError;
use super::export::Exporter;
use super::extract::extract;
use super::place::Root;
use super::read::{Archive, Limits};
use super::stage::{Stages, recover};
use crate::limits::{
    ARCHIVE_BUFFER_BYTES, COMPRESSION_JOB_BYTES, COMPRESSION_LEVEL, COMPRESSION_WORKERS_MAX,
    DECOMPRESSION_WINDOW_LOG_MAX,
};

/// The directories of a sandbox that an archive has folders for.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Roots {
    /// The workspace.
    #[arg(long)]
    pub workspace: Option<PathBuf>,
    /// The agent's home.
    #[arg(long)]
    pub state: Option<PathBuf>,
}

/// What the process is to do.
#[derive(Debug, Clone, PartialEq, Eq, clap::Subcommand)]
pub enum Job {
    /// Write an archive of the roots to stdout.
    #[command(hide = true)]
    Export(Roots),
    /// Read an archive from stdin and put it in the place of the roots that it has.
    #[command(hide = true)]
    Restore {
        /// Where its folders belong.
        #[command(flatten)]
        roots: Roots,
        /// SHA-256 of all that comes.
        #[arg(long)]
        sha256: Sha256,
    },
    /// End what an earlier process left in the roots.
    #[command(hide = true)]
    Recover(Roots),
}

/// The last line that the process writes to stderr.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The archive is complete.
    Exported(ExportReport),
    /// The archive has taken the place of what was there.
    Restored(RestoreReply),
    /// Nothing of an earlier process is left.
    Recovered,
    /// It did not come to its end, and has changed nothing.
    Failed(Failed),
}

/// Why it did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// For the caller; `None` is a defect.
    pub refusal: Option<SnapshotRefusal>,
    /// Why the archive is refused.
    pub fault: Option<ArchiveFault>,
    /// For people.
    pub message: String,
}

impl Roots {
    /// The directory of a root.
    pub fn path(&self, root: Root) -> Option<&Path> {
        match root {
            Root::Workspace => self.workspace.as_deref(),
            Root::State => self.state.as_deref(),
        }
    }

    fn arguments(&self) -> impl Iterator<Item = OsString> {
        let option = |name: &str, path: &Option<PathBuf>| {
            path.iter().flat_map(|path| [OsString::from(name), path.into()]).collect::<Vec<_>>()
        };
        option("--workspace", &self.workspace).into_iter().chain(option("--state", &self.state))
    }
}

impl Job {
    /// The arguments by which the sidecar's program is told of this job.
    pub fn arguments(&self) -> Vec<OsString> {
        let (name, roots) = match self {
            Self::Export(roots) => ("export", roots),
            Self::Restore { roots, .. } => ("restore", roots),
            Self::Recover(roots) => ("recover", roots),
        };
        let mut arguments: Vec<OsString> = std::iter::once(name.into()).chain(roots.arguments()).collect();
        if let Self::Restore { sha256, .. } = self {
            arguments.extend(["--sha256".into(), sha256.to_string().into()]);
        }
        arguments
    }

    /// Does it, and tells how it ended.
    pub fn run(&self) -> ExitCode {
        let told = self.perform().unwrap_or_else(|error| Told::Failed(failed(&error)));
        let code = if matches!(told, Told::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        let line = serde_json::to_vec(&told).map_err(io::Error::from);
        match line.and_then(|line| io::stderr().write_all(&line)) {
            Ok(()) => code,
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn perform(&self) -> Result<Told, ArchiveError> {
        match self {
            Self::Export(roots) => export(roots, own(&io::stdout())?).map(Told::Exported),
            Self::Restore { roots, sha256 } => restore(roots, *sha256, own(&io::stdin())?).map(Told::Restored),
            Self::Recover(roots) => recover(roots).map(|()| Told::Recovered),
        }
    }
}

/// A standard stream without the standard library's buffer.
fn own(stream: &impl AsFd) -> Result<File, ArchiveError> {
    stream.as_fd().try_clone_to_owned().map(File::from).map_err(ArchiveError::io("use a standard stream"))
}

fn export(roots: &Roots, out: File) -> Result<ExportReport, ArchiveError> {
    let mut encoder = zstd::Encoder::new(out, COMPRESSION_LEVEL).map_err(ArchiveError::Write)?;
    encoder.include_checksum(true).map_err(ArchiveError::Write)?;
    let cores = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    // One core is better used by one thread.
    if cores > 1 {
        encoder.multithread(cores.min(COMPRESSION_WORKERS_MAX)).map_err(ArchiveError::Write)?;
        encoder.set_parameter(CParameter::JobSize(COMPRESSION_JOB_BYTES)).map_err(ArchiveError::Write)?;
    }
    let mut exporter = Exporter::new(encoder);
    for root in Root::ALL {
        if let Some(path) = roots.path(root) {
            exporter.root(root, path)?;
        }
    }
    let (encoder, report) = exporter.finish()?;
    encoder.finish().map_err(ArchiveError::Write)?;
    Ok(report)
}

fn restore(roots: &Roots, expected: Sha256, input: impl Read) -> Result<RestoreReply, ArchiveError> {
    recover(roots)?;
    let mut stages = Stages::new(roots);
    match unpack(expected, input, &mut stages) {
        Ok(reply) => stages.commit().map(|()| reply),
        Err(error) => stages.discard().and(Err(error)),
    }
}

fn unpack(expected: Sha256, input: impl Read, stages: &mut Stages<'_>) -> Result<RestoreReply, ArchiveError> {
    let input = BufReader::with_capacity(ARCHIVE_BUFFER_BYTES, Hashing { input, hash: sha2::Sha256::new() });
    let mut decoder = zstd::Decoder::with_buffer(input).map_err(ArchiveError::of_stream)?;
    decoder.set_parameter(DParameter::WindowLogMax(DECOMPRESSION_WINDOW_LOG_MAX)).map_err(ArchiveError::of_stream)?;
    let mut archive = Archive::new(decoder, Limits::default());
    let reply = extract(&mut archive, stages)?;
    let hash = archive.into_input().finish().into_inner().hash;
    if <[u8; 32]>::from(hash.finalize()) == expected.0 { Ok(reply) } else { Err(ArchiveError::HashMismatch) }
}

/// Hashes what is read.
struct Hashing<R> {
    input: R,
    hash: sha2::Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.hash.update(&buffer[..bytes]);
        Ok(bytes)
    }
}

fn failed(error: &ArchiveError) -> Failed {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    Failed { refusal: error.refusal(), fault: error.fault(), message: format!("{error}{source}") }
}
