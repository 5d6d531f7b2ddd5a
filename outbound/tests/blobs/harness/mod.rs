//! Stores over servers of the test's own, and sources whose bytes and ends a test decides.

pub(crate) mod ipfs;
pub(crate) mod s3;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod web;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_outbound::address::{Exceptions, Guard, Resolve};
use sandbox_outbound::blobs::{BlobError, Location, Patience, Stored, Stores, StoresConfig};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

/// Enough for a server in this process, and short enough to wait for.
pub(crate) const SHORT: Patience =
    Patience { answer_max: Duration::from_millis(300), stall_max: Duration::from_millis(300) };

/// A name server: each name has its successive answers, the last for good.
#[derive(Default)]
pub(crate) struct Names {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    pub(crate) lookups: AtomicUsize,
}

impl Names {
    pub(crate) fn new(answers: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |addresses: &&[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        let answers =
            answers.iter().map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect())).collect();
        Arc::new(Self { answers, lookups: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Resolve for Names {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let nth = self.lookups.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(answers[nth.min(answers.len() - 1)].clone())
    }
}

/// A configuration that offers nothing and reaches nobody, to be added to.
pub(crate) fn offering_nothing(exceptions: &str, names: Arc<Names>) -> StoresConfig {
    StoresConfig {
        s3: None,
        ipfs: None,
        file_roots: Vec::new(),
        guard: Guard::with_resolver(Exceptions::parse(exceptions).unwrap(), names),
        trusted_pem: None,
        patience: Patience { answer_max: Duration::from_secs(20), stall_max: Duration::from_secs(20) },
    }
}

pub(crate) fn at(text: &str) -> Location {
    Location::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Bytes without a pattern, the same for the same length.
pub(crate) fn some_bytes(length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 32);
    let mut block: [u8; 32] = Sha256::digest(length.to_le_bytes()).into();
    while bytes.len() < length {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block).into();
    }
    bytes.truncate(length);
    bytes
}

/// All that is at `location`, or the error: the reader's own or that of getting one.
pub(crate) async fn read(stores: &Stores, location: &Location) -> Result<Vec<u8>, BlobError> {
    let (mut reader, _) = stores.get(location).await?;
    let mut all = Vec::new();
    match reader.read_to_end(&mut all).await {
        Ok(_) => Ok(all),
        Err(error) => Err(*error.into_inner().expect("an error of ours").downcast::<BlobError>().expect("of blobs")),
    }
}

/// Puts so many bytes, compares what is said of them, and reads them back from where they are said to be.
pub(crate) async fn check_round_trip(stores: &Stores, place: &str, length: usize, size_hint: Option<u64>) -> Stored {
    let bytes = some_bytes(length);
    let stored = stores.put(&at(place), &bytes[..], size_hint).await;
    let stored = stored.unwrap_or_else(|error| panic!("{length} bytes to {place}: {error:?}"));
    let sha256: [u8; 32] = Sha256::digest(&bytes).into();
    assert_eq!((stored.size_bytes, stored.sha256), (length as u64, sha256), "{place}");
    assert!(stored.uri.ends_with(&format!("#sha256={}", hex::encode(sha256))), "{}", stored.uri);
    let got = read(stores, &at(&stored.uri)).await;
    let got = got.unwrap_or_else(|error| panic!("{length} bytes from {}: {error:?}", stored.uri));
    assert!(got == bytes, "{length} bytes from {} are others", stored.uri);
    stored
}

/// `place` with a hash that nothing has.
pub(crate) fn with_wrong_hash(place: &str) -> Location {
    at(&format!("{place}#sha256={}", "5a".repeat(32)))
}

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let waiting = async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while !so() {
            tick.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
