//! The tokens of the API, by the hash of their secret: what is on disk opens nothing.

use alloy::primitives::{Address, B256};
use sandbox_protocol::session::Scope;
use serde::{Deserialize, Serialize};

use super::writer::Write;
use super::{Records, RecordsError, decode, encode};
use crate::limits::PRUNE_STEP_MAX;

/// Tokens by hash.
const TOKENS: &[u8] = b"token/";
/// Index of the hashes by address.
const OF_ADDRESS: &[u8] = b"token_of/";
/// Index of the hashes by expiry.
const BY_END: &[u8] = b"token_end/";

/// A token that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenRecord {
    /// Whose it is.
    pub(crate) address: Address,
    /// What it opens.
    pub(crate) scopes: Vec<Scope>,
    /// Second since 1970 in which it was given.
    pub(crate) issued_at: u64,
    /// Second since 1970 after which it is void.
    pub(crate) expires_at: u64,
}

impl Records {
    /// The token whose secret has this hash, also a void one.
    pub(crate) fn token(&self, hash: B256) -> Result<Option<TokenRecord>, RecordsError> {
        self.read(&[TOKENS, hash.as_slice()].concat())
    }

    /// The tokens of an address with their hashes, also void ones.
    pub(crate) fn tokens_of(&self, address: Address) -> Result<Vec<(B256, TokenRecord)>, RecordsError> {
        let prefix = [OF_ADDRESS, address.as_slice()].concat();
        let mut tokens = Vec::new();
        for key in self.tree.scan_prefix(&prefix).keys() {
            let key = key.map_err(RecordsError::Read)?;
            let Ok(hash) = B256::try_from(key.get(prefix.len()..).unwrap_or_default()) else { continue };
            tokens.extend(self.token(hash)?.map(|token| (hash, token)));
        }
        Ok(tokens)
    }

    /// How many tokens there are, up to `max`.
    pub(crate) fn tokens_up_to(&self, max: usize) -> Result<usize, RecordsError> {
        let keys = self.tree.scan_prefix(BY_END).keys().take(max);
        keys.map(|key| key.map_err(RecordsError::Read)).try_fold(0, |count, key| key.map(|_| count + 1))
    }

    /// Adds a token, and takes out a few that were void at second `now`.
    pub(crate) async fn put_token(&self, hash: B256, token: &TokenRecord, now: u64) -> Result<(), RecordsError> {
        let mut write = Write::default();
        for end in self.tree.range(BY_END.to_vec()..end_key(now, B256::ZERO)).keys().take(PRUNE_STEP_MAX) {
            let end = end.map_err(RecordsError::Read)?;
            let hash = end.get(BY_END.len() + size_of::<u64>()..).unwrap_or_default();
            if let Some(old) = self.tree.get([TOKENS, hash].concat()).map_err(RecordsError::Read)? {
                let address = decode::<TokenRecord>(&old)?.address;
                write.batch.remove([OF_ADDRESS, address.as_slice(), hash].concat());
                write.batch.remove([TOKENS, hash].concat());
            }
            write.batch.remove(end);
        }
        write.batch.insert([TOKENS, hash.as_slice()].concat(), encode(token)?);
        write.batch.insert([OF_ADDRESS, token.address.as_slice(), hash.as_slice()].concat(), &[]);
        write.batch.insert(end_key(token.expires_at, hash), &[]);
        self.writer.write(write).await
    }

    /// Takes a token out; it opens nothing any more when this returns.
    pub(crate) async fn remove_token(&self, hash: B256, token: &TokenRecord) -> Result<(), RecordsError> {
        let mut write = Write::default();
        write.batch.remove([TOKENS, hash.as_slice()].concat());
        write.batch.remove([OF_ADDRESS, token.address.as_slice(), hash.as_slice()].concat());
        write.batch.remove(end_key(token.expires_at, hash));
        self.writer.write(write).await
    }
}

fn end_key(expires_at: u64, hash: B256) -> Vec<u8> {
    [BY_END, &expires_at.to_be_bytes(), hash.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(address: u8, expires_at: u64) -> TokenRecord {
        let address = Address::repeat_byte(address);
        TokenRecord { address, scopes: vec![Scope::CallsRead, Scope::EventsRead], issued_at: 5, expires_at }
    }

    fn hash(byte: u8) -> B256 {
        B256::repeat_byte(byte)
    }

    #[tokio::test]
    async fn tokens_survive_a_restart_and_a_removed_one_is_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        {
            let (records, _guard) = Records::open(dir.path()).unwrap();
            records.put_token(hash(1), &token(7, 100), 5).await.unwrap();
            records.put_token(hash(2), &token(7, 200), 5).await.unwrap();
            records.put_token(hash(3), &token(8, 100), 5).await.unwrap();
        }
        let (records, _guard) = Records::open(dir.path()).unwrap();
        assert_eq!(records.token(hash(1)).unwrap(), Some(token(7, 100)));
        let of_seven = records.tokens_of(Address::repeat_byte(7)).unwrap();
        assert_eq!(of_seven, [(hash(1), token(7, 100)), (hash(2), token(7, 200))]);
        records.remove_token(hash(1), &token(7, 100)).await.unwrap();
        assert_eq!(records.token(hash(1)).unwrap(), None);
        assert_eq!((records.tokens_up_to(9).unwrap(), records.tokens_up_to(1).unwrap()), (2, 1));
        assert_eq!(records.tokens_of(Address::repeat_byte(7)).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn void_tokens_go_when_others_come_and_good_ones_stay_to_their_last_second() {
        let dir = tempfile::tempdir().unwrap();
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.put_token(hash(1), &token(7, 100), 5).await.unwrap();
        records.put_token(hash(2), &token(7, 200), 100).await.unwrap();
        assert_eq!(records.tokens_up_to(9).unwrap(), 2);
        records.put_token(hash(3), &token(7, 300), 101).await.unwrap();
        assert_eq!((records.token(hash(1)).unwrap(), records.tokens_up_to(9).unwrap()), (None, 2));
    }
}
