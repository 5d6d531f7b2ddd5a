//! `files ls`, `get`, `put`, `rm`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::stream;
use sandbox_protocol::SandboxId;
use sandbox_protocol::files::{FileEntry, FileKind, FileMode, WriteQuery};
use sandbox_protocol::session::Scope;
use sandbox_sdk::api::Upload;
use sandbox_sdk::api::inside::{Download, Inside};
use serde::Serialize;

use super::sessions::inside;
use super::streams;
use crate::args::FilesCommand;
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const STANDARD: &str = "-";

#[derive(Serialize)]
struct Got {
    path: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Removed {
    removed: u64,
}

pub(crate) async fn run(command: FilesCommand, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let open = |id: SandboxId| inside(id, Scope::SandboxesFiles, settings);
    match command {
        FilesCommand::Ls { id, path } => {
            let entries = open(id).await?.list_files(&path).await?;
            let lines: Vec<_> = entries.iter().map(line).collect();
            output.result(&lines.join("\n"), &entries)?;
        }
        FilesCommand::Get { id, path, to } => get(&open(id).await?, &path, (to, output)).await?,
        FilesCommand::Put { id, from, path, parents } => {
            let path = path.map_or_else(|| name_of(&from), Ok)?;
            let (content, mode) = content_of(&from).await?;
            let query = WriteQuery { path: path.as_str().into(), parents, mode, ..WriteQuery::default() };
            let reply = open(id).await?.write_file(&query, content).await?;
            output.result(&format!("{path}  {} bytes", reply.bytes), &reply)?;
        }
        FilesCommand::Rm { id, path, recursive } => {
            let removed = open(id).await?.remove_file(&path, recursive).await?;
            output.result(&format!("{removed} removed"), &Removed { removed })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(inside: &Inside, path: &str, (to, output): (Option<PathBuf>, &Output)) -> Result<(), Failure> {
    let to = to.map_or_else(|| name_of(Path::new(path)).map(PathBuf::from), Ok)?;
    let mut download = inside.read_file(path).await?;
    if to == Path::new(STANDARD) {
        copied(&mut download, &mut std::io::stdout()).await?;
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::local(format!("cannot write {}: {error}", to.display()));
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // Beside its place under another name, so that no half of it ever stands there.
    let part = folder.join(format!(".{}.{}.part", name_of(&to)?, std::process::id()));
    let fetched = async {
        let mut file = std::fs::File::create_new(&part).map_err(failed)?;
        let bytes = copied(&mut download, &mut file).await?;
        std::fs::rename(&part, &to).map_err(failed)?;
        Ok(bytes)
    };
    match fetched.await {
        Ok(bytes) => {
            let shown = to.display().to_string();
            output.result(&format!("{shown}  {bytes} bytes"), &Got { path: shown.clone(), bytes })
        }
        Err(failure) => {
            // It may not be there.
            std::fs::remove_file(&part).unwrap_or_default();
            Err(failure)
        }
    }
}

async fn copied(download: &mut Download, to: &mut impl std::io::Write) -> Result<u64, Failure> {
    let mut bytes = 0;
    while let Some(piece) = download.next().await? {
        to.write_all(&piece).map_err(|error| Failure::local(format!("cannot write what was read: {error}")))?;
        bytes += piece.len() as u64;
    }
    to.flush().map_err(|error| Failure::local(format!("cannot write what was read: {error}")))?;
    Ok(bytes)
}

/// What is to be written, and the permissions that it has here.
async fn content_of(from: &Path) -> Result<(Upload, Option<FileMode>), Failure> {
    if from == Path::new(STANDARD) {
        let pieces = stream::unfold(streams::stdin(), async |mut pieces| Some((pieces.recv().await?, pieces)));
        return Ok((Upload::wrap_stream(pieces), None));
    }
    let failed = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", from.display()));
    let file = tokio::fs::File::open(from).await.map_err(failed)?;
    let mode = file.metadata().await.map_err(failed)?.permissions().mode() & 0o777;
    Ok((file.into(), format!("{mode:o}").parse().ok()))
}

fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).filter(|name| *name != STANDARD);
    name.map(str::to_owned).ok_or_else(|| Failure::usage(format!("{} names no file", path.display())))
}

fn line(entry: &FileEntry) -> String {
    let kind = match entry.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Other => '?',
    };
    let target = entry.target.as_ref().map(|target| format!(" -> {}", target.shown())).unwrap_or_default();
    format!("{kind} {:>4} {:>12} {}{target}", entry.mode, entry.bytes, entry.name.shown())
}
