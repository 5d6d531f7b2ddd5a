//! Services of the host that every sandbox may ask, `http://model.internal/…` say: the proxy sends such a request to
//! the operator's upstream and adds what must not be known inside, a provider's key above all.
//!
//! The upstream is the operator's own word, so no rule and no address guard applies to it.

use std::collections::HashMap;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use percent_encoding::percent_decode_str;
use reqwest::redirect::Policy;
use url::Url;

use super::headers::strip;
use super::proxy::Body;
use super::refusal::Refusal;
use crate::address::Host;
use crate::limits::{CONNECT_MAX, POOL_IDLE_MAX, POOL_IDLE_PER_HOST_MAX, SERVICE_HEADERS_MAX, SERVICES_MAX};

/// A service as the operator configures it.
#[derive(Debug, Clone)]
pub struct HostService {
    name: Host,
    upstream: Url,
    headers: HeaderMap,
}

/// All services of this host, and the client that asks them.
#[derive(Debug, Clone)]
pub struct HostServices {
    services: HashMap<Host, HostService>,
    client: reqwest::Client,
}

/// Why a service or the list of them is refused.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Not `name=url`, or the name is none.
    #[error("`{entry}` is not name=url")]
    Entry {
        /// As written.
        entry: String,
    },
    /// The upstream is not `http://` or `https://` with a host and without user, query or fragment.
    #[error("the upstream of {name} is not a plain http or https URL")]
    Upstream {
        /// The service.
        name: Host,
    },
    /// A header that cannot be sent. Its value is not repeated here.
    #[error("header `{header}` of {name} cannot be sent")]
    Header {
        /// The service.
        name: Host,
        /// The header.
        header: String,
    },
    /// More than one service of a name.
    #[error("{name} is named twice")]
    Twice {
        /// The service.
        name: Host,
    },
    /// More services, or more headers of one, than there may be.
    #[error("more than {SERVICES_MAX} services or {SERVICE_HEADERS_MAX} headers of one")]
    Count,
    /// The client could not be made.
    #[error("cannot set up the client for host services")]
    Client(#[source] reqwest::Error),
}

impl HostService {
    /// Reads `name=http(s)://host[:port][/base]`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn parse(entry: &str) -> Result<Self, ServiceError> {
        let unreadable = || ServiceError::Entry { entry: entry.to_owned() };
        let (name, upstream) = entry.trim().split_once('=').ok_or_else(unreadable)?;
        let name @ Host::Name(_) = Host::parse(name).map_err(|_| unreadable())? else { return Err(unreadable()) };
        let upstream: Url = upstream.parse().map_err(|_| ServiceError::Upstream { name: name.clone() })?;
        let plain = upstream.username().is_empty() && upstream.password().is_none();
        let bare = upstream.query().is_none() && upstream.fragment().is_none() && upstream.has_host();
        if !(plain && bare && matches!(upstream.scheme(), "http" | "https")) {
            return Err(ServiceError::Upstream { name });
        }
        Ok(Self { name, upstream, headers: HeaderMap::new() })
    }

    /// The name that sandboxes use.
    #[must_use]
    pub const fn name(&self) -> &Host {
        &self.name
    }

    /// Adds a header to what is sent upstream, in place of any that a customer sends by that name.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn with_header(mut self, header: &str, value: &str) -> Result<Self, ServiceError> {
        let refused = || ServiceError::Header { name: self.name.clone(), header: header.to_owned() };
        let name: HeaderName = header.parse().map_err(|_| refused())?;
        let mut value: HeaderValue = value.parse().map_err(|_| refused())?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        if self.headers.len() > SERVICE_HEADERS_MAX {
            return Err(ServiceError::Count);
        }
        Ok(self)
    }

    /// The upstream's URL for what was asked of us: base, path, query, and never above the base.
    fn url(&self, asked: &Uri) -> Option<Url> {
        let path = asked.path();
        if leaves(path) {
            return None;
        }
        let mut url = self.upstream.clone();
        url.set_path(&format!("{}{path}", self.upstream.path().trim_end_matches('/')));
        url.set_query(asked.query());
        Some(url)
    }

    /// The headers as they go upstream.
    fn dress(&self, headers: &mut HeaderMap) {
        strip(headers);
        // Whatever a customer proves to us or to others is nothing to the operator's upstream.
        for name in [&AUTHORIZATION, &HOST].into_iter().chain(self.headers.keys()) {
            headers.remove(name);
        }
        headers.extend(self.headers.clone());
    }
}

/// Whether some reader of this path could see a step up in it: dots, also encoded, also between encoded slashes.
fn leaves(path: &str) -> bool {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| matches!(segment, b"." | b".."))
}

impl HostServices {
    /// The services of an operator; `roots` are certificate authorities besides the system's.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn new(
        services: impl IntoIterator<Item = HostService>,
        roots: impl IntoIterator<Item = reqwest::Certificate>,
    ) -> Result<Self, ServiceError> {
        let mut named = HashMap::new();
        for service in services {
            let name = service.name.clone();
            if named.insert(name.clone(), service).is_some() {
                return Err(ServiceError::Twice { name });
            }
        }
        if named.len() > SERVICES_MAX {
            return Err(ServiceError::Count);
        }
        let client = client().tls_certs_merge(roots).build().map_err(ServiceError::Client)?;
        Ok(Self { services: named, client })
    }

    pub(super) fn get(&self, host: &Host) -> Option<&HostService> {
        self.services.get(host)
    }

    /// Asks the upstream. What it answers, redirects included, is the sandbox's to read.
    pub(super) async fn ask(
        &self,
        service: &HostService,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let url = service.url(&parts.uri).ok_or(Refusal::ServicePath)?;
        service.dress(&mut parts.headers);
        let mut sent = reqwest::Request::new(parts.method, url);
        *sent.headers_mut() = parts.headers;
        if !body.is_end_stream() {
            *sent.body_mut() = Some(reqwest::Body::wrap(body));
        }
        let answered =
            self.client.execute(sent).await.map_err(|error| Refusal::Upstream(error.without_url().into()))?;
        let mut response = Response::<reqwest::Body>::from(answered);
        strip(response.headers_mut());
        Ok(response.map(|body| body.map_err(Into::into).boxed()))
    }
}

/// Nothing added, nothing taken: no redirect followed, no body unpacked, no proxy of the environment used.
fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(Policy::none())
        .referer(false)
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT_MAX)
        .pool_idle_timeout(POOL_IDLE_MAX)
        .pool_max_idle_per_host(POOL_IDLE_PER_HOST_MAX)
        .tcp_keepalive(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> HostService {
        HostService::parse("Model.Internal=https://upstream.example:8443/base/").unwrap()
    }

    #[track_caller]
    fn check(asked: &str, url: Option<&str>) {
        assert_eq!(service().url(&asked.parse().unwrap()).as_ref().map(Url::as_str), url, "{asked}");
    }

    #[test]
    fn a_path_is_joined_to_the_base() {
        check("http://model.internal", Some("https://upstream.example:8443/base/"));
        check("http://model.internal/v1/chat?a=b%20c", Some("https://upstream.example:8443/base/v1/chat?a=b%20c"));
        check("http://model.internal//evil.org/x", Some("https://upstream.example:8443/base//evil.org/x"));
        check("http://model.internal/a%2fb", Some("https://upstream.example:8443/base/a%2fb"));
        check("http://model.internal/..a/b..", Some("https://upstream.example:8443/base/..a/b.."));
    }

    #[test]
    fn no_path_leads_above_the_base() {
        for path in ["/..", "/../x", "/a/../../x", "/%2e%2E/x", "/.%2e", "/a%2f..%2fx", "/a%5c..%5cx", "/./x"] {
            check(&format!("http://model.internal{path}"), None);
        }
    }

    #[test]
    fn a_customers_own_proof_is_replaced() {
        let service = service().with_header("X-Api-Key", "operators").unwrap();
        let customers = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("host", "a"), ("accept", "b")];
        let mut headers: HeaderMap = customers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect();
        headers.append("x-api-key", "mine too".parse().unwrap());
        service.dress(&mut headers);
        assert_eq!(headers.len(), 2);
        assert_eq!((&headers["x-api-key"], &headers["accept"]), (&"operators".parse().unwrap(), &"b".parse().unwrap()));
    }

    #[test]
    fn a_key_is_not_shown() {
        let service = service().with_header("authorization", "Bearer secret").unwrap();
        assert!(!format!("{service:?}").contains("secret"));
        let error = service.with_header("x-key", "secret\n").unwrap_err();
        assert_eq!(error.to_string(), "header `x-key` of model.internal cannot be sent");
    }

    #[track_caller]
    fn refused(entry: &str, message: &str) {
        assert_eq!(HostService::parse(entry).unwrap_err().to_string(), message);
    }

    #[test]
    fn a_service_has_a_name_and_a_plain_upstream() {
        refused("model.internal", "`model.internal` is not name=url");
        refused("10.0.0.1=http://a.org", "`10.0.0.1=http://a.org` is not name=url");
        for upstream in ["ftp://a.org", "http://u:p@a.org", "http://a.org?x", "a.org", "http://a.org/#x"] {
            refused(&format!("m={upstream}"), "the upstream of m is not a plain http or https URL");
        }
    }

    #[test]
    fn services_and_their_headers_have_a_number() {
        let services = |count: usize| {
            HostServices::new((0..count).map(|n| HostService::parse(&format!("s{n}=http://a.org")).unwrap()), [])
        };
        assert!(services(SERVICES_MAX).is_ok());
        assert!(matches!(services(SERVICES_MAX + 1), Err(ServiceError::Count)));
        let headers = |count: usize| (0..count).try_fold(service(), |all, n| all.with_header(&format!("h{n}"), "v"));
        assert!(headers(SERVICE_HEADERS_MAX).is_ok());
        assert!(matches!(headers(SERVICE_HEADERS_MAX + 1), Err(ServiceError::Count)));
        let twice = HostServices::new([service(), service()], []);
        assert!(matches!(twice, Err(ServiceError::Twice { .. })));
    }
}
