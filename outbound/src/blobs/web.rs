//! Web servers that customers name: presigned uploads, downloads over a bounded number of guarded hops.

use bytes::BytesMut;
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Certificate, Client, Response, StatusCode};
use tokio::io::AsyncRead;
use tokio::time::timeout;
use url::Url;

use super::error::{BlobError, Store};
use super::feed::Feed;
use super::intake::Intake;
use super::manifest::Expected;
use super::verified::{Chunks, unless_stalled};
use super::{Patience, Put};
use crate::address::{AddressError, Guard, Host};
use crate::limits::{REDIRECTS_MAX, WEB_AT_ONCE_BYTES_MAX, WEB_HEAD_BYTES_MAX, WEB_PAUSE};

/// The way to web servers.
#[derive(Debug)]
pub(super) struct Web {
    guard: Guard,
    trusted: Vec<Certificate>,
    patience: Patience,
}

impl Web {
    pub(super) const fn new(guard: Guard, trusted: Vec<Certificate>, patience: Patience) -> Self {
        Self { guard, trusted, patience }
    }

    /// Servers that sign uploads (S3 for one) demand the length. It is known where the caller announces it or the
    /// source ends soon; other streams go in chunks, which some servers refuse.
    pub(super) async fn put<R>(&self, url: &Url, mut intake: Intake<R>) -> Result<Put, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        let client = self.client(url).await?;
        let mut head = BytesMut::new();
        if intake.announced_bytes().is_none() {
            head.reserve(WEB_HEAD_BYTES_MAX);
            intake.fill(&mut head, WEB_HEAD_BYTES_MAX).await?;
        }
        let length_bytes = intake.announced_bytes().or_else(|| intake.has_ended().then_some(head.len() as u64));
        let long = length_bytes.is_none_or(|length_bytes| length_bytes > WEB_AT_ONCE_BYTES_MAX);
        let pause = long.then_some(WEB_PAUSE);
        let feed = Feed { store: Store::Web, patience: self.patience, head, pause, intake: &mut intake };
        let sent = feed.send(|body| {
            let request = client.put(url.clone()).header(CONTENT_TYPE, "application/octet-stream").body(body);
            match length_bytes {
                Some(length_bytes) => request.header(CONTENT_LENGTH, length_bytes),
                None => request,
            }
        });
        let (response, flowed) = sent.await?;
        let status = response.status();
        let wants_length = matches!(status, StatusCode::LENGTH_REQUIRED | StatusCode::NOT_IMPLEMENTED);
        if wants_length && length_bytes.is_none() {
            return Err(BlobError::LengthRequired);
        }
        if status.is_redirection() {
            return Err(BlobError::Redirect("an upload stays where it was signed for"));
        }
        refuse_failure(status)?;
        Ok(Put { flowed: flowed.ok_or(BlobError::Answer { store: Store::Web })?, cid: None })
    }

    pub(super) async fn get(&self, url: &Url, expected: Expected) -> Result<(Chunks, Expected), BlobError> {
        let response = self.follow(url).await?;
        refuse_failure(response.status())?;
        if response.status() != StatusCode::OK {
            return Err(BlobError::Answer { store: Store::Web });
        }
        let limit = self.patience.stall_max;
        let chunks = response.bytes_stream().map_err(move |error| BlobError::of_client(Store::Web, limit, error));
        let too_slow = move || BlobError::TooSlow { store: Store::Web, limit };
        Ok((unless_stalled(chunks, limit, too_slow).boxed(), expected))
    }

    /// The first answer that is no redirect; each hop is looked at as if a customer had named it.
    async fn follow(&self, url: &Url) -> Result<Response, BlobError> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let limit = self.patience.answer_max;
            let sent = self.client(&url).await?.get(url.clone()).send();
            let response = timeout(limit, sent).await.map_err(|_| BlobError::TooSlow { store: Store::Web, limit })?;
            let response = response.map_err(|error| BlobError::of_client(Store::Web, limit, error))?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            url = next_hop(&url, &response)?;
        }
        Err(BlobError::Redirect("too many hops"))
    }

    /// A client for one origin, connecting only to addresses that the guard has looked at just now.
    async fn client(&self, url: &Url) -> Result<Client, BlobError> {
        let host = Host::parse(url.host_str().unwrap_or_default()).map_err(AddressError::Host)?;
        let port = url.port_or_known_default().ok_or(AddressError::Url)?;
        let addresses = self.guard.resolve(&host, port).await?;
        let plain = url.scheme() != "https";
        if plain && !addresses.iter().all(|address| self.guard.excepts(&host, *address)) {
            return Err(BlobError::PlainHttp);
        }
        let builder = self.guard.client(url)?.resolve_to_addrs(url.host_str().unwrap_or_default(), &addresses);
        // A snapshot is stored as it is, whatever a server says about its encoding.
        let builder =
            builder.no_gzip().no_brotli().no_deflate().no_zstd().tls_certs_merge(self.trusted.iter().cloned());
        let limit = self.patience.answer_max;
        builder.build().map_err(|error| BlobError::of_client(Store::Web, limit, error))
    }
}

fn next_hop(from: &Url, response: &Response) -> Result<Url, BlobError> {
    let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
    let target = target.and_then(|target| from.join(target).ok()).ok_or(BlobError::Redirect("nowhere"))?;
    if !target.username().is_empty() || target.password().is_some() {
        return Err(BlobError::Redirect("to an address with credentials"));
    }
    match (from.scheme(), target.scheme()) {
        (_, "https") | ("http", "http") => Ok(target),
        _ => Err(BlobError::Redirect("away from https")),
    }
}

fn refuse_failure(status: StatusCode) -> Result<(), BlobError> {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(BlobError::NotFound { store: Store::Web }),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(BlobError::Denied { store: Store::Web }),
        status if status.is_success() => Ok(()),
        status => Err(BlobError::Status { store: Store::Web, status: status.as_u16() }),
    }
}
