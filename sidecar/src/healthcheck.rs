//! `sandbox-sidecar --healthcheck`: asks the sidecar of this machine whether it answers. Blocking, without a runtime.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use crate::config::{Doors, PORT_DEFAULT};
use crate::limits::HEALTHCHECK_MAX;

const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n";
const HEALTHY: &[u8] = b"HTTP/1.1 200 ";

/// Whether the sidecar behind `doors` is healthy; the socket is asked where there is one.
///
/// # Errors
/// It cannot be reached, does not answer in time, or answers that it is not.
pub fn run(doors: &Doors) -> io::Result<()> {
    if let Some(path) = &doors.socket {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(HEALTHCHECK_MAX))?;
        stream.set_write_timeout(Some(HEALTHCHECK_MAX))?;
        return ask(stream);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, doors.port.unwrap_or(PORT_DEFAULT)));
    let stream = TcpStream::connect_timeout(&address, HEALTHCHECK_MAX)?;
    stream.set_read_timeout(Some(HEALTHCHECK_MAX))?;
    stream.set_write_timeout(Some(HEALTHCHECK_MAX))?;
    ask(stream)
}

fn ask(mut stream: impl Read + Write) -> io::Result<()> {
    stream.write_all(REQUEST)?;
    let mut begin = [0; HEALTHY.len()];
    stream.read_exact(&mut begin)?;
    if begin == HEALTHY { Ok(()) } else { Err(io::Error::other("the sidecar answers that it is not healthy")) }
}
