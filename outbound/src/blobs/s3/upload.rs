//! A stream into S3: in one request if it is short, else in parts, of which a few are on their way while the next
//! fills. What is not completed is given up, also when nobody waits for it any longer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt};
use tokio::io::AsyncRead;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::of_s3;
use super::plan::part_mib;
use crate::blobs::error::{BlobError, Store};
use crate::blobs::intake::{Flowed, Intake};
use crate::limits::{S3_ABORT_MAX, S3_MEMORY_MIB_MAX, S3_SETTLE_MAX};

const TOO_LARGE: BlobError = BlobError::TooLarge { store: Store::S3 };

/// Parts that are on their way.
type UnderWay = JoinSet<Result<(usize, PartId), BlobError>>;

/// Sends all of `intake` to `path`.
pub(super) async fn upload<R>(client: &Arc<AmazonS3>, path: &Path, intake: &mut Intake<R>) -> Result<Flowed, BlobError>
where
    R: AsyncRead + Send + Unpin,
{
    let memory_mib = Arc::new(Semaphore::new(S3_MEMORY_MIB_MAX as usize));
    let first_mib = part_mib(0, intake.announced_bytes()).ok_or(TOO_LARGE)?;
    let room = Arc::clone(&memory_mib).acquire_many_owned(first_mib).await.map_err(|_| TOO_LARGE)?;
    let mut first = Part::new(0, first_mib, room);
    intake.fill(&mut first.buffer, first.full_bytes).await?;
    if intake.has_ended() {
        client.put(path, first.buffer.freeze().into()).await.map_err(of_s3)?;
        return Ok(intake.flowed());
    }
    let mut multipart = Multipart::begin(client, path, memory_mib).await?;
    match multipart.send_all(first, intake).await {
        Ok(sent) => multipart.complete(sent).await.map(|()| intake.flowed()),
        Err(error) => {
            multipart.abort().await;
            Err(error)
        }
    }
}

/// A part before it is sent.
struct Part {
    index: usize,
    full_bytes: usize,
    buffer: BytesMut,
    memory: OwnedSemaphorePermit,
}

impl Part {
    fn new(index: usize, mib: u32, memory: OwnedSemaphorePermit) -> Self {
        let full_bytes = mib as usize * 1024 * 1024;
        Self { index, full_bytes, buffer: BytesMut::with_capacity(full_bytes), memory }
    }
}

/// An upload in parts, which the service keeps until it is completed or given up. Parts fill and are on their way
/// within the memory for them.
struct Multipart {
    client: Arc<AmazonS3>,
    path: Path,
    id: MultipartId,
    open: bool,
    memory_mib: Arc<Semaphore>,
    under_way: UnderWay,
    sent: Vec<(usize, PartId)>,
}

impl Multipart {
    async fn begin(client: &Arc<AmazonS3>, path: &Path, memory_mib: Arc<Semaphore>) -> Result<Self, BlobError> {
        let id = client.create_multipart(path).await.map_err(of_s3)?;
        let (client, path, under_way) = (Arc::clone(client), path.clone(), JoinSet::new());
        Ok(Self { client, path, id, open: true, memory_mib, under_way, sent: Vec::new() })
    }

    /// Sends `part` and all that follow it. The last may be empty if the one before was full to the byte.
    async fn send_all<R>(&mut self, mut part: Part, intake: &mut Intake<R>) -> Result<Vec<PartId>, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        loop {
            let next = part.index + 1;
            self.send(part);
            if intake.has_ended() {
                break;
            }
            let Some(mib) = part_mib(next, intake.announced_bytes()) else {
                // As many parts as there may be are no part too many if nothing follows them.
                self.meanwhile(intake.chunk()).await??.map_or(Ok(()), |_| Err(TOO_LARGE))?;
                break;
            };
            let room = Arc::clone(&self.memory_mib).acquire_many_owned(mib);
            part = Part::new(next, mib, self.meanwhile(room).await?.map_err(|_| TOO_LARGE)?);
            let full_bytes = part.full_bytes;
            self.meanwhile(intake.fill(&mut part.buffer, full_bytes)).await??;
            if part.buffer.is_empty() {
                break;
            }
        }
        while let Some(ended) = self.under_way.join_next().await {
            self.arrived(ended)?;
        }
        self.sent.sort_unstable_by_key(|(index, _)| *index);
        Ok(self.sent.drain(..).map(|(_, id)| id).collect())
    }

    fn send(&mut self, part: Part) {
        let (client, path, id) = (Arc::clone(&self.client), self.path.clone(), self.id.clone());
        let Part { index, buffer, memory, .. } = part;
        self.under_way.spawn(async move {
            let payload: Bytes = buffer.freeze();
            let part = client.put_part(&path, &id, index, payload.into()).await.map_err(of_s3)?;
            drop(memory);
            Ok((index, part))
        });
    }

    /// Awaits `what`, collecting the parts that arrive; the first that fails ends it.
    async fn meanwhile<T>(&mut self, what: impl Future<Output = T>) -> Result<T, BlobError> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.under_way.join_next() => self.arrived(ended)?,
                done = &mut what => return Ok(done),
            }
        }
    }

    fn arrived(&mut self, ended: Result<Result<(usize, PartId), BlobError>, JoinError>) -> Result<(), BlobError> {
        self.sent.push(ended.map_err(|error| BlobError::Broken { store: Store::S3, source: error.into() })??);
        Ok(())
    }

    async fn complete(&mut self, parts: Vec<PartId>) -> Result<(), BlobError> {
        match self.client.complete_multipart(&self.path, &self.id, parts).await {
            Ok(_) => {
                self.open = false;
                Ok(())
            }
            Err(error) => {
                self.abort().await;
                Err(of_s3(error))
            }
        }
    }

    /// Gives the upload up, if it is still open.
    fn abort(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let open = std::mem::take(&mut self.open);
        let (client, path, id) = (Arc::clone(&self.client), self.path.clone(), self.id.clone());
        let under_way = std::mem::take(&mut self.under_way);
        async move {
            if open {
                give_up(&client, &path, &id, under_way).await;
            }
        }
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.abort());
        }
    }
}

/// What cannot be given up now stays until the bucket's own rule for incomplete uploads finds it.
///
/// A part that arrives while the upload is given up may outlive it, so those on their way come first.
async fn give_up(client: &AmazonS3, path: &Path, id: &MultipartId, mut under_way: UnderWay) {
    let settled = async { while under_way.join_next().await.is_some() {} };
    if timeout(S3_SETTLE_MAX, settled).await.is_err() {
        under_way.shutdown().await;
    }
    let failure = match timeout(S3_ABORT_MAX, client.abort_multipart(path, id)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer for {S3_ABORT_MAX:?}"),
    };
    tracing::warn!(%path, %failure, "an incomplete upload to S3 is left behind");
}
