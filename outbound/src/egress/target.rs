//! What a request asks for: the absolute form of a URI, or the authority of a tunnel.

use http::uri::Authority;
use http::{Method, Uri};

use super::refusal::Refusal;
use crate::address::Host;

/// Port of a URI that names none.
pub(super) const HTTP_PORT: u16 = 80;

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub host: Host,
    pub port: u16,
}

impl Target {
    /// What a request to the proxy is for. The `Host` header has no say.
    pub(super) fn of(method: &Method, uri: &Uri) -> Result<Self, Refusal> {
        match (method, uri.scheme_str(), uri.authority()) {
            (&Method::CONNECT, None, Some(authority)) => {
                let target = Self::parse(authority, None)?;
                if uri.path_and_query().is_some() {
                    return Err(Refusal::Malformed("a tunnel has host and port, no path"));
                }
                Ok(target)
            }
            (&Method::CONNECT, ..) => Err(Refusal::Malformed("a tunnel is asked for by host:port")),
            (_, Some("http"), Some(authority)) => Self::parse(authority, Some(HTTP_PORT)),
            (_, Some("https"), _) => Err(Refusal::Malformed("https goes through a tunnel: use CONNECT")),
            (_, Some(_), _) => Err(Refusal::Malformed("only http and tunnels are served")),
            (_, None, _) => Err(Refusal::Malformed("this is a proxy: ask by the full URL")),
        }
    }

    /// Reads `host:port`; where no `default` is given, the port must stand there.
    pub(super) fn parse(authority: &Authority, default: Option<u16>) -> Result<Self, Refusal> {
        if authority.as_str().contains('@') {
            return Err(Refusal::Malformed("a URL with a user in it"));
        }
        let host = Host::parse(authority.host()).map_err(Refusal::Host)?;
        let digits = authority.as_str().get(authority.host().len()..).unwrap_or_default();
        let port = match digits.strip_prefix(':') {
            None | Some("") => default,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => None,
        };
        let port = port.filter(|port| *port != 0).ok_or(Refusal::Malformed("a port is a number from 1 to 65535"))?;
        Ok(Self { host, port })
    }

    /// As in a `Host` header.
    pub(super) fn authority(&self) -> String {
        match self.port {
            HTTP_PORT => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}
