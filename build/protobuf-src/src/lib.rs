//! Stands in for the crate of the same name, which compiles protobuf's C++ to obtain `protoc`.
//!
//! The only user in our graph is a build script of the Blueprint SDK that asks where `protoc` is.
//! `PROTOC` and `PROTOC_INCLUDE` override what is found, as everywhere in the protobuf world.

use std::env;
use std::path::{Path, PathBuf};

/// Path of the protobuf compiler: `$PROTOC`, else the first `protoc` on `$PATH`.
///
/// # Panics
/// When neither exists; a build script has no better way to stop a build.
pub fn protoc() -> PathBuf {
    env::var_os("PROTOC").map(PathBuf::from).or_else(on_path).unwrap_or_else(|| {
        panic!("protoc not found: install protobuf-compiler or set PROTOC (`cargo xtask setup` does)")
    })
}

/// Directory with the well-known `google/protobuf/*.proto` files.
pub fn include() -> PathBuf {
    if let Some(dir) = env::var_os("PROTOC_INCLUDE") {
        return PathBuf::from(dir);
    }
    let beside = protoc().parent().and_then(Path::parent).map(|prefix| prefix.join("include"));
    beside.filter(|dir| dir.join("google/protobuf").is_dir()).unwrap_or_else(|| PathBuf::from("/usr/include"))
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join("protoc")).find(|file| file.is_file())
}
