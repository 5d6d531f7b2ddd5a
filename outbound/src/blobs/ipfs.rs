//! The operator's IPFS node, by the RPC of Kubo: snapshots are added and pinned as one file, and read by content id.

use bytes::BytesMut;
use cid::Cid;
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::io::AsyncRead;
use tokio::time::timeout;
use url::Url;

use super::error::{BlobError, Store};
use super::feed::Feed;
use super::intake::Intake;
use super::manifest::Expected;
use super::verified::{Chunks, unless_stalled};
use super::{Patience, Put};
use crate::limits::{ANSWER_BYTES_MAX, CONNECT_MAX};

/// The operator's node. Its address may be private: no customer names it.
#[derive(Debug, Clone)]
pub struct IpfsConfig {
    /// Of the RPC, as `http://127.0.0.1:5001`.
    pub rpc_url: Url,
}

#[derive(Debug)]
pub(super) struct Ipfs {
    client: Client,
    rpc_url: Url,
    patience: Patience,
}

/// The line that `add` answers with.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Added {
    hash: String,
}

impl Ipfs {
    pub(super) fn new(config: IpfsConfig, patience: Patience) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .connect_timeout(CONNECT_MAX)
            .build()?;
        Ok(Self { client, rpc_url: config.rpc_url, patience })
    }

    pub(super) async fn put<R>(&self, mut intake: Intake<R>) -> Result<Put, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        let mut url = self.endpoint("add");
        url.query_pairs_mut().extend_pairs([
            ("pin", "true"),
            ("cid-version", "1"),
            ("quieter", "true"),
            ("progress", "false"),
        ]);
        let feed = Feed {
            store: Store::Ipfs,
            patience: self.patience,
            head: BytesMut::new(),
            pause: None,
            intake: &mut intake,
        };
        let sent = feed.send(|body| {
            let octets = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))]);
            let part = Part::stream(body).file_name("snapshot").headers(octets);
            self.client.post(url).multipart(Form::new().part("file", part))
        });
        let (response, flowed) = sent.await?;
        let text = self.text(response).await?;
        let answer = BlobError::Answer { store: Store::Ipfs };
        let (Some(flowed), Some(cid)) = (flowed, added(&text)) else { return Err(answer) };
        Ok(Put { flowed, cid: Some(cid) })
    }

    pub(super) async fn get(
        &self,
        cid: &Cid,
        path: Option<&str>,
        expected: Expected,
    ) -> Result<(Chunks, Expected), BlobError> {
        let mut url = self.endpoint("cat");
        let content = path.map_or_else(|| cid.to_string(), |path| format!("{cid}/{path}"));
        url.query_pairs_mut().append_pair("arg", &content);
        let limit = self.patience.answer_max;
        // A node looks for contents that nobody has for as long as it is let.
        let not_found = BlobError::NotFound { store: Store::Ipfs };
        let Ok(response) = timeout(limit, self.client.post(url).send()).await else { return Err(not_found) };
        let response = response.map_err(|error| BlobError::of_client(Store::Ipfs, limit, error))?;
        match response.status() {
            StatusCode::OK => {}
            // What every failed command has; of this one, that the content cannot be found or is no file.
            StatusCode::INTERNAL_SERVER_ERROR => return Err(not_found),
            status => return Err(refusal(status)),
        }
        let limit = self.patience.stall_max;
        let chunks = response.bytes_stream().map_err(move |error| BlobError::of_client(Store::Ipfs, limit, error));
        let too_slow = move || BlobError::TooSlow { store: Store::Ipfs, limit };
        Ok((unless_stalled(chunks, limit, too_slow).boxed(), expected))
    }

    fn endpoint(&self, command: &str) -> Url {
        let mut url = self.rpc_url.clone();
        url.set_path(&format!("{}/api/v0/{command}", self.rpc_url.path().trim_end_matches('/')));
        url
    }

    /// The whole of an answer with status 200.
    async fn text(&self, response: Response) -> Result<String, BlobError> {
        let limit = self.patience.answer_max;
        if response.status() != StatusCode::OK {
            return Err(refusal(response.status()));
        }
        let reading = async {
            let mut chunks = response.bytes_stream();
            let mut text = BytesMut::new();
            while let Some(chunk) = chunks.next().await {
                text.extend_from_slice(&chunk.map_err(|error| BlobError::of_client(Store::Ipfs, limit, error))?);
                if text.len() > ANSWER_BYTES_MAX {
                    return Err(BlobError::Answer { store: Store::Ipfs });
                }
            }
            String::from_utf8(text.into()).map_err(|_| BlobError::Answer { store: Store::Ipfs })
        };
        timeout(limit, reading).await.map_err(|_| BlobError::TooSlow { store: Store::Ipfs, limit })?
    }
}

fn refusal(status: StatusCode) -> BlobError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BlobError::Credentials { store: Store::Ipfs, source: None },
        status => BlobError::Status { store: Store::Ipfs, status: status.as_u16() },
    }
}

/// The content id in the last line. An error after the first bytes comes as a line without one.
fn added(text: &str) -> Option<Cid> {
    let last: Added = serde_json::from_str(text.lines().rfind(|line| !line.trim().is_empty())?).ok()?;
    Cid::try_from(last.hash).ok()
}
