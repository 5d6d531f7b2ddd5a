//! The native packages that building and running need.
//!
//! xtask itself needs nothing but a C linker, which Rust needs too; so it is the one who installs the rest.

use anyhow::{Result, bail};

use crate::place::Place;
use crate::run;
use crate::setup::system;

/// A package of Debian's, and the program that proves it where there is no dpkg.
struct Need {
    package: &'static str,
    program: Option<&'static str>,
}

const fn library(package: &'static str) -> Need {
    Need { package, program: None }
}

const fn tool(package: &'static str, program: &'static str) -> Need {
    Need { package, program: Some(program) }
}

const NEEDS: [Need; 21] = [
    // The SDK's native dependencies: aws-lc, RocksDB's bindings, vendored OpenSSL, gRPC's code generator.
    tool("cmake", "cmake"),
    tool("make", "make"),
    tool("g++", "g++"),
    tool("perl", "perl"),
    tool("pkg-config", "pkg-config"),
    tool("clang", "clang"),
    library("libclang-dev"),
    library("libssl-dev"),
    library("librocksdb-dev"),
    tool("protobuf-compiler", "protoc"),
    // The well-known .proto files, which Debian keeps apart from the compiler.
    library("libprotobuf-dev"),
    // The base image, where no registry can be reached.
    tool("mmdebstrap", "mmdebstrap"),
    library("debian-archive-keyring"),
    // The disks of sandboxes.
    tool("e2fsprogs", "mkfs.ext4"),
    // What snapshots are measured against.
    tool("zstd", "zstd"),
    tool("git", "git"),
    tool("curl", "curl"),
    library("ca-certificates"),
    // The clocks that tests set.
    library("libfaketime"),
    // What the customer's journey logs in with.
    tool("openssh-client", "ssh"),
    // What terminals are tested with.
    tool("vim", "vim"),
];

/// Installs what is missing, or names all of it with the command to run.
pub(super) fn install(place: &Place) -> Result<()> {
    if !system::is_debian() {
        return programs();
    }
    let mut missing = system::missing(place, &NEEDS.map(|need| need.package));
    // Whoever has Node from elsewhere keeps it: two of them on one machine help nobody.
    missing
        .extend([("node", "nodejs"), ("npm", "npm")].iter().filter(|(tool, _)| !run::on_path(tool)).map(|node| node.1));
    if missing.is_empty() {
        return Ok(());
    }
    if !system::can_install() {
        bail!(
            "not installed, and only root can: {}\n    sudo sh -c '{}'",
            missing.join(" "),
            system::install_command(&missing)
        );
    }
    system::install(place, &missing)
}

fn programs() -> Result<()> {
    let tools = NEEDS.iter().filter_map(|need| need.program).filter(|program| *program != "mmdebstrap");
    let missing: Vec<&str> = tools.chain(["node", "npm"]).filter(|program| !run::on_path(program)).collect();
    if !missing.is_empty() {
        bail!("this is no Debian or Ubuntu, so please install what is missing here: {}", missing.join(" "));
    }
    Ok(())
}
