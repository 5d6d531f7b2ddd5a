//! The operator's S3, or what speaks like it: customers name bucket and key, the endpoint and account are configured.

mod plan;
mod upload;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStoreExt, RetryConfig};
use tokio::io::AsyncRead;
use url::Url;

use super::error::{BlobError, Store};
use super::intake::Intake;
use super::manifest::{self, Expected};
use super::verified::Chunks;
use super::{Patience, Put};
use crate::limits::{
    CONNECT_MAX, MANIFEST_BYTES_MAX, S3_DOWNLOAD_RETRY_MAX, S3_REQUEST_MAX, S3_RETRIES_MAX, S3_RETRY_MAX,
};

/// What S3 says, with status 403, of credentials that are not to its liking. All else is access denied to somebody
/// that it knows.
const CREDENTIALS_REFUSED: [&str; 6] = [
    "InvalidAccessKeyId",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "RequestTimeTooSkewed",
];

/// The operator's account.
#[derive(Clone)]
pub struct S3Config {
    /// Without one, the region's of AWS. Plain HTTP is allowed: no customer names it.
    pub endpoint: Option<Url>,
    /// As signatures have it.
    pub region: String,
    /// The public half of the credentials.
    pub access_key_id: String,
    /// The secret half.
    pub secret_access_key: String,
    /// Whether the bucket stands in the path, as for most services other than AWS.
    pub path_style: bool,
    /// Buckets that customers may name; all that the account reaches, if empty.
    pub buckets: Vec<String>,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("S3Config");
        shown.field("endpoint", &self.endpoint.as_ref().map(Url::as_str)).field("region", &self.region);
        shown.field("path_style", &self.path_style).field("buckets", &self.buckets).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct S3 {
    config: S3Config,
    patience: Patience,
}

impl S3 {
    pub(super) const fn new(config: S3Config, patience: Patience) -> Self {
        Self { config, patience }
    }

    pub(super) async fn put<R>(&self, bucket: &str, key: &str, mut intake: Intake<R>) -> Result<Put, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        // Of a part all is sent before the answer begins, so the time for it bounds the whole.
        let request_max = S3_REQUEST_MAX.min(self.patience.stall_max + self.patience.answer_max);
        let client = self.client(bucket, ClientOptions::new().with_timeout(request_max), S3_RETRY_MAX)?;
        let (path, beside) = paths(key)?;
        let flowed = upload::upload(&client, &path, &mut intake).await?;
        let manifest = manifest::write(&flowed, SystemTime::now());
        if let Err(error) = client.put(&beside, manifest.into()).await {
            // A snapshot that nobody can verify is none.
            client.delete(&path).await.map_err(of_s3)?;
            return Err(of_s3(error));
        }
        Ok(Put { flowed, cid: None })
    }

    pub(super) async fn get(
        &self,
        bucket: &str,
        key: &str,
        known: Option<Expected>,
    ) -> Result<(Chunks, Expected), BlobError> {
        let options = ClientOptions::new().with_timeout_disabled().with_read_timeout(self.patience.stall_max);
        let client = self.client(bucket, options, S3_DOWNLOAD_RETRY_MAX)?;
        let (path, beside) = paths(key)?;
        let expected = match known {
            Some(expected) => expected,
            None => read_manifest(&client, &beside).await?,
        };
        let found = client.get(&path).await.map_err(of_s3)?;
        Ok((found.into_stream().map_err(of_s3).boxed(), expected))
    }

    fn client(&self, bucket: &str, options: ClientOptions, retry_max: Duration) -> Result<Arc<AmazonS3>, BlobError> {
        let config = &self.config;
        if !config.buckets.is_empty() && !config.buckets.iter().any(|offered| offered == bucket) {
            return Err(BlobError::BucketNotOffered);
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&config.region)
            .with_access_key_id(&config.access_key_id)
            .with_secret_access_key(&config.secret_access_key)
            .with_virtual_hosted_style_request(!config.path_style)
            // Signing the payload would hash each part twice; TLS keeps it whole, and the manifest tells.
            .with_unsigned_payload(true)
            .with_client_options(options.with_connect_timeout(CONNECT_MAX).with_http1_only().with_allow_http(true))
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: S3_RETRIES_MAX,
                retry_timeout: retry_max,
            });
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(self.endpoint_of(endpoint, bucket));
        }
        Ok(Arc::new(builder.build().map_err(of_s3)?))
    }

    /// The client takes an endpoint of virtual hosts with the bucket in it.
    fn endpoint_of(&self, endpoint: &Url, bucket: &str) -> String {
        let text = endpoint.as_str().trim_end_matches('/');
        match text.split_once("://") {
            Some((scheme, rest)) if !self.config.path_style => format!("{scheme}://{bucket}.{rest}"),
            _ => text.to_owned(),
        }
    }
}

/// A snapshot's and its manifest's.
fn paths(key: &str) -> Result<(Path, Path), BlobError> {
    let parse = |key: &str| Path::parse(key).map_err(|_| BlobError::NotFound { store: Store::S3 });
    Ok((parse(key)?, parse(&format!("{key}{}", manifest::SUFFIX))?))
}

async fn read_manifest(client: &AmazonS3, beside: &Path) -> Result<Expected, BlobError> {
    let found = match client.get(beside).await.map_err(of_s3) {
        Err(BlobError::NotFound { .. }) => return Err(BlobError::Unverifiable),
        found => found?,
    };
    if found.meta.size > MANIFEST_BYTES_MAX as u64 {
        return Err(BlobError::Manifest);
    }
    manifest::read(&found.bytes().await.map_err(of_s3)?)
}

fn of_s3(error: object_store::Error) -> BlobError {
    let store = Store::S3;
    match error {
        object_store::Error::NotFound { .. } => BlobError::NotFound { store },
        object_store::Error::PermissionDenied { source, .. } => {
            let said = source.to_string();
            if CREDENTIALS_REFUSED.iter().any(|code| said.contains(code)) {
                return BlobError::Credentials { store, source: Some(source) };
            }
            BlobError::Denied { store }
        }
        object_store::Error::Unauthenticated { source, .. } => BlobError::Credentials { store, source: Some(source) },
        error if timed_out(&error) => BlobError::TooSlow { store, limit: S3_REQUEST_MAX },
        error => BlobError::Broken { store, source: Box::new(error) },
    }
}

fn timed_out(error: &object_store::Error) -> bool {
    let chain = std::iter::successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    chain.filter_map(|error| error.downcast_ref::<HttpError>()).any(|error| error.kind() == HttpErrorKind::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(path_style: bool) -> String {
        let endpoint: Url = "https://storage.example:9000/".parse().unwrap();
        let config = S3Config {
            endpoint: Some(endpoint.clone()),
            region: "eu-1".into(),
            access_key_id: "AKIA".into(),
            secret_access_key: "hidden".into(),
            path_style,
            buckets: Vec::new(),
        };
        assert!(!format!("{config:?}").contains("hidden"));
        S3::new(config, Patience::default()).endpoint_of(&endpoint, "bucket")
    }

    #[test]
    fn the_bucket_stands_in_the_path_or_in_the_host() {
        assert_eq!(endpoint(true), "https://storage.example:9000");
        assert_eq!(endpoint(false), "https://bucket.storage.example:9000");
    }
}
