//! An S3 server over a directory, with faults on demand.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s::{Body, HttpError};
use s3s_fs::FileSystem;
use sandbox_outbound::blobs::{Patience, S3Config, Stores};
use tempfile::TempDir;

use super::serve::{Identity, Server, serve};
use super::{Names, offering_nothing};

pub(crate) const BUCKET: &str = "snapshots";

/// What befalls the parts of uploads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// From this part on (from 1) every try fails.
    From(usize),
    /// The first tries, of whichever parts.
    First(usize),
    /// From this part on no answer comes.
    Silent(usize),
    /// The upload cannot be completed.
    Complete,
    /// Nothing beside a snapshot can be written.
    Manifest,
}

pub(crate) struct S3 {
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
    tries: Arc<AtomicUsize>,
    log: Arc<Mutex<Vec<String>>>,
}

impl S3 {
    pub(crate) async fn start(fault: Fault, identity: Option<&Identity>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(BUCKET)).unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(directory.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("AKIA", "secret"));
        let service = builder.build();
        let (tries, log) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, logged) = (Arc::clone(&tries), Arc::clone(&log));
        let faulty = service_fn(move |request: Request<Incoming>| {
            let (service, counted, logged) = (service.clone(), Arc::clone(&counted), Arc::clone(&logged));
            async move {
                logged.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
                if let Some(answer) = befall(fault, &request, &counted).await {
                    return Ok::<_, HttpError>(answer);
                }
                service.call(request.map(Body::from)).await
            }
        });
        Self { server: serve(identity, faulty).await, directory, tries, log }
    }

    /// Of this server, under another configuration if so wished.
    pub(crate) fn stores_with(&self, patience: Option<Patience>, change: impl FnOnce(&mut S3Config)) -> Stores {
        let mut s3 = config(&self.server.address.to_string());
        change(&mut s3);
        let mut config = offering_nothing("", Names::new(&[]));
        config.patience = patience.unwrap_or(config.patience);
        Stores::new(sandbox_outbound::blobs::StoresConfig { s3: Some(s3), ..config }).unwrap()
    }

    pub(crate) fn stores(&self) -> Stores {
        self.stores_with(None, |_| {})
    }

    /// How often a part was tried.
    pub(crate) fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }

    /// How often a request of this kind came.
    pub(crate) fn asked(&self, method: &str, containing: &str) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| line.starts_with(method) && line.contains(containing)).count()
    }

    /// Names of all that is kept: objects, and the pieces of uploads that are not completed.
    pub(crate) fn kept(&self) -> Vec<String> {
        let mut names = names_in(&self.directory.path().join(BUCKET));
        let own = |name: &String| name != BUCKET && !name.starts_with(".bucket-");
        names.extend(names_in(self.directory.path()).into_iter().filter(own));
        names.sort_unstable();
        names
    }
}

/// For a server at this address.
pub(crate) fn config(address: &str) -> S3Config {
    S3Config {
        endpoint: Some(format!("http://{address}").parse().unwrap()),
        region: "us-east-1".into(),
        access_key_id: "AKIA".into(),
        secret_access_key: "secret".into(),
        path_style: true,
        buckets: Vec::new(),
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn befall(fault: Fault, request: &Request<Incoming>, tries: &AtomicUsize) -> Option<Response<Body>> {
    let query = request.uri().query().unwrap_or_default();
    let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber="));
    let part: Option<usize> = number.map(|number| number.parse().unwrap());
    let tried = part.map(|_| tries.fetch_add(1, Ordering::SeqCst) + 1);
    let completes = request.method() == Method::POST && query.contains("uploadId=");
    let befallen = match fault {
        Fault::None => false,
        Fault::From(first) => part.is_some_and(|part| part >= first),
        Fault::First(count) => tried.is_some_and(|tried| tried <= count),
        Fault::Silent(first) if part.is_some_and(|part| part >= first) => std::future::pending().await,
        Fault::Silent(_) => false,
        Fault::Complete => completes,
        Fault::Manifest => request.method() == Method::PUT && request.uri().path().ends_with(".manifest.json"),
    };
    // What a load balancer says; a client's own mistakes are not sent again.
    let answer = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(Body::empty()).unwrap();
    befallen.then_some(answer)
}
