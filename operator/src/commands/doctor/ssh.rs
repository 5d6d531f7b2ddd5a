//! Checks of the SSH gateway: its port, its host keys, and the host that customers are told.

use std::net::SocketAddr;
use std::time::SystemTime;

use sandbox_gateway::hostkeys::HostKeys;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream, lookup_host};

use super::Finding;
use super::host::others_may_read;
use crate::admin::Node;
use crate::config::{Config, SshConfig};

/// With which whoever speaks SSH begins.
const GREETING: &[u8] = b"SSH-2.0-";

/// Whether customers get in over SSH; nothing where none are to.
pub(super) async fn checks(config: &Config) -> Vec<Finding> {
    let Some(ssh) = &config.ssh else { return Vec::new() };
    let (port, host) = tokio::join!(super::bounded("ssh", port(config, ssh)), super::bounded("ssh host", host(ssh)));
    vec![port, host_keys(config), host]
}

/// The port, which the node has or could have.
async fn port(config: &Config, ssh: &SshConfig) -> Finding {
    const CHECK: &str = "ssh";
    let bind = ssh.bind;
    if bind.port() == 0 {
        let said = "SSH_BIND names no port, so customers are told another one after each start";
        return Finding::warning(CHECK, said, "give SSH_BIND a port");
    }
    if matches!(Node::running(&config.data_dir).await, Ok(Some(_))) {
        return match is_greeted(bind).await {
            Ok(true) => Finding::ok(CHECK, format!("the node lets customers in at {bind}")),
            Ok(false) => Finding::failure(CHECK, format!("{bind} speaks no SSH"), "see who listens there"),
            Err(error) => Finding::failed(CHECK, &error, "restart the node: it was started with another SSH_BIND"),
        };
    }
    match TcpListener::bind(bind).await {
        Ok(_) => Finding::ok(CHECK, format!("{bind} is free")),
        Err(error) => Finding::failed(CHECK, &error, format!("free {bind}, or give SSH_BIND another port")),
    }
}

async fn is_greeted(bind: SocketAddr) -> std::io::Result<bool> {
    let mut greeting = [0; GREETING.len()];
    TcpStream::connect(bind).await?.read_exact(&mut greeting).await?;
    Ok(greeting == GREETING)
}

/// The keys by which customers know the host. The first start makes one; no check does.
fn host_keys(config: &Config) -> Finding {
    const CHECK: &str = "ssh keys";
    let Some(file) = HostKeys::file_in(&config.data_dir) else {
        return Finding::ok(CHECK, "the first start makes one");
    };
    if others_may_read(&file) {
        let said = format!("others may read {}", file.display());
        let advice = format!("chmod 600 {}, then `operator ssh-keys rotate`", file.display());
        return Finding::failure(CHECK, said, advice);
    }
    let announced = HostKeys::open(&config.data_dir).and_then(|keys| keys.announced(SystemTime::now()));
    match announced {
        Ok(keys) => {
            let fingerprints: Vec<_> = keys.iter().map(sandbox_protocol::ssh::PublicKey::fingerprint).collect();
            Finding::ok(CHECK, fingerprints.join(", then "))
        }
        Err(error) => {
            Finding::failed(CHECK, &error, "bring the file back from a backup: without it customers are warned")
        }
    }
}

/// The host that customers are told: it is somewhere.
async fn host(ssh: &SshConfig) -> Finding {
    const CHECK: &str = "ssh host";
    let port = ssh.port.unwrap_or_else(|| ssh.bind.port());
    let found = lookup_host((ssh.host.as_str(), port)).await.map(|mut addresses| addresses.next());
    match found {
        Ok(Some(address)) => Finding::ok(CHECK, format!("customers are told {}, which is {address}", ssh.host)),
        Ok(None) => Finding::failure(CHECK, format!("{} has no address", ssh.host), "set SSH_HOST to a name that has"),
        Err(error) => Finding::failed(CHECK, &error, format!("set SSH_HOST to a name in DNS; {} is none", ssh.host)),
    }
}
