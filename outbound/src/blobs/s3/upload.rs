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
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::of_s3;
use super::plan::part_mib;
use crate::blobs::error::{BlobError, Store};
use crate::blobs::intake::{Flowed, Intake};
use crate::limits::{S3_ABORT_MAX, S3_MEMORY_MIB_MAX};

const TOO_LARGE: BlobError = BlobError::TooLarge { store: Store::S3 };

/// Sends all of `intake` to `path`.
pub(super) async fn upload<R>(client: &Arc<AmazonS3>, path: &Path, intake: &mut Intake<R>) -> Result<Flowed, BlobError>
where
    R: AsyncRead + Send + Unpin,
{
    let mut parts = Parts::new();
    let mut first = parts.room(0, part_mib(0, intake.announced_bytes()).ok_or(TOO_LARGE)?).await?;
    intake.fill(&mut first.buffer, first.full_bytes).await?;
    if intake.has_ended() {
        client.put(path, first.buffer.freeze().into()).await.map_err(of_s3)?;
        return Ok(intake.flowed());
    }
    let mut multipart = Multipart::begin(client, path).await?;
    match parts.send(&multipart, first, intake).await {
        Ok(sent) => multipart.complete(sent).await.map(|()| intake.flowed()),
        Err(error) => {
            drop(parts);
            multipart.abort().await;
            Err(error)
        }
    }
}

/// The parts that fill or are on their way, within the memory for them.
struct Parts {
    memory_mib: Arc<Semaphore>,
    under_way: JoinSet<Result<(usize, PartId), BlobError>>,
    sent: Vec<(usize, PartId)>,
}

/// A part before it is sent.
struct Room {
    index: usize,
    full_bytes: usize,
    buffer: BytesMut,
    memory: OwnedSemaphorePermit,
}

impl Parts {
    fn new() -> Self {
        Self {
            memory_mib: Arc::new(Semaphore::new(S3_MEMORY_MIB_MAX as usize)),
            under_way: JoinSet::new(),
            sent: Vec::new(),
        }
    }

    /// Waits until a part of `mib` has room; one that failed in the meantime ends the wait.
    async fn room(&mut self, index: usize, mib: u32) -> Result<Room, BlobError> {
        let acquiring = Arc::clone(&self.memory_mib).acquire_many_owned(mib);
        let memory = self.meanwhile(acquiring).await?.map_err(|_| TOO_LARGE)?;
        let full_bytes = mib as usize * 1024 * 1024;
        Ok(Room { index, full_bytes, buffer: BytesMut::with_capacity(full_bytes), memory })
    }

    /// Sends `part` and all that follow it. The last may be empty if the one before was full to the byte.
    async fn send<R>(
        &mut self,
        multipart: &Multipart,
        mut part: Room,
        intake: &mut Intake<R>,
    ) -> Result<Vec<PartId>, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        loop {
            let next = part.index + 1;
            multipart.send(part, &mut self.under_way);
            if intake.has_ended() {
                break;
            }
            let Some(mib) = part_mib(next, intake.announced_bytes()) else {
                // As many parts as there may be are no part too many if nothing follows them.
                self.meanwhile(intake.chunk()).await??.map_or(Ok(()), |_| Err(TOO_LARGE))?;
                break;
            };
            part = self.room(next, mib).await?;
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

    fn arrived(
        &mut self,
        ended: Result<Result<(usize, PartId), BlobError>, tokio::task::JoinError>,
    ) -> Result<(), BlobError> {
        self.sent.push(ended.map_err(|error| BlobError::Broken { store: Store::S3, source: error.into() })??);
        Ok(())
    }
}

/// An upload in parts that the service keeps until it is completed or given up.
struct Multipart {
    client: Arc<AmazonS3>,
    path: Path,
    id: MultipartId,
    open: bool,
}

impl Multipart {
    async fn begin(client: &Arc<AmazonS3>, path: &Path) -> Result<Self, BlobError> {
        let id = client.create_multipart(path).await.map_err(of_s3)?;
        Ok(Self { client: Arc::clone(client), path: path.clone(), id, open: true })
    }

    fn send(&self, part: Room, under_way: &mut JoinSet<Result<(usize, PartId), BlobError>>) {
        let (client, path, id) = (Arc::clone(&self.client), self.path.clone(), self.id.clone());
        let Room { index, buffer, memory, .. } = part;
        under_way.spawn(async move {
            let payload: Bytes = buffer.freeze();
            let part = client.put_part(&path, &id, index, payload.into()).await.map_err(of_s3)?;
            drop(memory);
            Ok((index, part))
        });
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

    async fn abort(&mut self) {
        self.open = false;
        give_up(Arc::clone(&self.client), self.path.clone(), self.id.clone()).await;
    }
}

impl Drop for Multipart {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.open {
            runtime.spawn(give_up(Arc::clone(&self.client), self.path.clone(), self.id.clone()));
        }
    }
}

/// What cannot be given up now stays until the bucket's own rule for incomplete uploads finds it.
async fn give_up(client: Arc<AmazonS3>, path: Path, id: MultipartId) {
    let failure = match timeout(S3_ABORT_MAX, client.abort_multipart(&path, &id)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer for {S3_ABORT_MAX:?}"),
    };
    tracing::warn!(%path, %failure, "an incomplete upload to S3 is left behind");
}
