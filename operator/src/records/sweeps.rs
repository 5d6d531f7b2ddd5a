//! How far the calls of each service were counted through.

use super::writer::Write;
use super::{Records, RecordsError, encode};
use crate::limits::SWEEP_BACK_CALLS;

/// First call of a service that was not looked at, by service.
const SWEPT: &[u8] = b"swept/";
/// First service that was not looked at.
const SERVICES_KEY: &[u8] = b"swept_services";

impl Records {
    /// First service that was not looked at.
    pub(crate) fn services_swept(&self) -> Result<u64, RecordsError> {
        Ok(self.read(SERVICES_KEY)?.unwrap_or_default())
    }

    /// Services before `next` were looked at; `mine` of them are to be counted through.
    pub(crate) async fn sweep_services(&self, mine: &[u64], next: u64) -> Result<(), RecordsError> {
        let mut write = Write::default();
        for service in mine {
            if self.read::<u64>(&swept_key(*service))?.is_none() {
                write.batch.insert(swept_key(*service), encode(&0_u64)?);
            }
        }
        write.batch.insert(SERVICES_KEY, encode(&next)?);
        self.writer.write(write).await
    }

    /// Services that are counted through, each with its first call that was not looked at.
    pub(crate) fn swept(&self) -> Result<Vec<(u64, u64)>, RecordsError> {
        let mut swept = Vec::new();
        for entry in self.tree.scan_prefix(SWEPT) {
            let (key, call) = entry.map_err(RecordsError::Read)?;
            let service = key.get(SWEPT.len()..).and_then(<[u8]>::first_chunk).map_or(0, |id| u64::from_be_bytes(*id));
            swept.push((service, super::decode(&call)?));
        }
        Ok(swept)
    }

    /// Calls of the service before `next` were looked at.
    pub(crate) async fn set_swept(&self, service: u64, next: u64) -> Result<(), RecordsError> {
        let mut write = Write::default();
        write.batch.insert(swept_key(service), encode(&next)?);
        self.writer.write(write).await
    }

    /// The last calls of every service are to be looked at once more.
    pub(super) fn sweep_again(&self, write: &mut Write) -> Result<(), RecordsError> {
        for (service, next) in self.swept()? {
            write.batch.insert(swept_key(service), encode(&next.saturating_sub(SWEEP_BACK_CALLS))?);
        }
        Ok(())
    }
}

fn swept_key(service: u64) -> Vec<u8> {
    [SWEPT, &service.to_be_bytes()].concat()
}
