//! The HTTP client: by which way to a provider, and what it never does by itself.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, NoProxy, Proxy, retry};

use crate::limits::{PROVIDER_CONNECT_MS_MAX, PROVIDER_IDLE_MS_MAX};
use crate::model::ModelError;

/// Names and addresses of this machine, for a proxy's exceptions.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// By which way providers are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// A forward proxy, such as `http://127.0.0.1:3128`; direct if `None`.
    pub proxy: Option<String>,
    /// Whether this machine is reached without it.
    pub is_loopback_direct: bool,
    /// Time for a connection.
    pub connect_max: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { proxy: None, is_loopback_direct: true, connect_max: Duration::from_millis(PROVIDER_CONNECT_MS_MAX) }
    }
}

/// A client for any number of providers: it keeps connections, follows no redirect (a key would go with it), repeats nothing,
/// and looks for no proxy in the environment.
///
/// # Errors
/// The proxy is none, or there are no roots of trust.
pub fn http_client(settings: &HttpSettings) -> Result<Client, ModelError> {
    let mut client = Client::builder()
        .no_proxy()
        .connect_timeout(settings.connect_max)
        .redirect(Policy::none())
        .retry(retry::never())
        .pool_idle_timeout(Duration::from_millis(PROVIDER_IDLE_MS_MAX))
        .tcp_nodelay(true)
        .no_gzip();
    if let Some(url) = &settings.proxy {
        let proxy = Proxy::all(url).map_err(|_| ModelError::Settings("the proxy is no URL"))?;
        let direct = if settings.is_loopback_direct { NoProxy::from_string(LOOPBACK) } else { None };
        client = client.proxy(proxy.no_proxy(direct));
    }
    client.build().map_err(|_| ModelError::Settings("no HTTP client can be made of this"))
}
