//! What is answered, gathered until it is written: one buffer that is used again and again, into which files are read
//! directly.

use super::error::Refusal;
use super::wire::{Status, VERSION, extension, kind};
use crate::limits::{SFTP_DATA_BYTES_MAX, SFTP_HANDLES_MAX, SFTP_PACKET_BYTES_MAX};

/// A packet's length, in front of it.
const LENGTH_BYTES: usize = 4;

/// Packets that wait to be written.
#[derive(Debug, Default)]
pub struct Answers {
    /// Longer than what is in use: bytes once made are not made again.
    buffer: Vec<u8>,
    used: usize,
}

impl Answers {
    /// What is to be written.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// Forgets what was written.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn version(&mut self) {
        let mark = self.begin(kind::VERSION, VERSION);
        for (name, version) in extension::ALL {
            self.string(name);
            self.string(version);
        }
        self.put_length(mark);
    }

    pub(super) fn done(&mut self, id: u32) {
        self.status(id, Status::Ok, "Success");
    }

    pub(super) fn refused(&mut self, id: u32, refusal: &Refusal) {
        self.status(id, refusal.status(), refusal.message());
    }

    /// An answer of `kind` that `fill` writes. Nothing of it is left where that fails, or writes more than a packet holds.
    pub(super) fn answer(
        &mut self,
        (kind, id): (u8, u32),
        fill: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mark = self.begin(kind, id);
        let filled = fill(self).and_then(|()| {
            let fits = self.used - mark - LENGTH_BYTES <= SFTP_PACKET_BYTES_MAX;
            if fits { Ok(()) } else { Err(Refusal::Said(Status::Failure, "The answer is too long")) }
        });
        match filled {
            Ok(()) => self.put_length(mark),
            Err(_) => self.used = mark,
        }
        filled
    }

    /// An answer of at most `bytes` of data, which `read` puts where they are sent from; it says how many they are.
    pub(super) fn data(
        &mut self,
        id: u32,
        bytes: u32,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Refusal>,
    ) -> Result<(), Refusal> {
        let wanted = usize::try_from(bytes).map_or(SFTP_DATA_BYTES_MAX, |bytes| bytes.min(SFTP_DATA_BYTES_MAX));
        self.answer((kind::DATA, id), |answers| {
            let at = answers.used;
            answers.number(0);
            let found = read(answers.room(wanted))?;
            if found == 0 && wanted > 0 {
                return Err(Refusal::EndOfFile);
            }
            answers.used = at + LENGTH_BYTES + found;
            answers.put_length(at);
            Ok(())
        })
    }

    /// An answer that is a handle.
    pub(super) fn handle(&mut self, id: u32, handle: [u8; 4]) -> Result<(), Refusal> {
        self.answer((kind::HANDLE, id), |answers| {
            answers.string(&handle);
            Ok(())
        })
    }

    /// An answer that is one name, of whose file nothing is told.
    pub(super) fn name(&mut self, id: u32, name: &[u8]) -> Result<(), Refusal> {
        self.answer((kind::NAME, id), |answers| {
            answers.number(1);
            answers.string(name);
            answers.string(name);
            // None of its attributes.
            answers.number(0);
            Ok(())
        })
    }

    /// What this server keeps to.
    pub(super) fn limits(&mut self, id: u32) -> Result<(), Refusal> {
        self.answer((kind::EXTENDED_REPLY, id), |answers| {
            for limit in [SFTP_PACKET_BYTES_MAX, SFTP_DATA_BYTES_MAX, SFTP_DATA_BYTES_MAX, SFTP_HANDLES_MAX] {
                answers.long(limit as u64);
            }
            Ok(())
        })
    }

    pub(super) fn number(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    pub(super) fn long(&mut self, number: u64) {
        self.put(&number.to_be_bytes());
    }

    pub(super) fn string(&mut self, string: &[u8]) {
        self.number(length(string.len()));
        self.put(string);
    }

    /// A string that `fill` writes.
    pub(super) fn string_of(&mut self, fill: impl FnOnce(&mut Self)) {
        let at = self.used;
        self.number(0);
        fill(self);
        self.put_length(at);
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// Where the next number will stand, to be written by [`Self::put_number`] later.
    pub(super) fn place_number(&mut self) -> usize {
        let at = self.used;
        self.number(0);
        at
    }

    pub(super) fn put_number(&mut self, at: usize, number: u32) {
        self.buffer[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }

    fn status(&mut self, id: u32, status: Status, message: &str) {
        let mark = self.begin(kind::STATUS, id);
        self.number(status.code());
        self.string(message.as_bytes());
        self.string(b"");
        self.put_length(mark);
    }

    fn begin(&mut self, kind: u8, number: u32) -> usize {
        let mark = self.used;
        self.number(0);
        self.put(&[kind]);
        self.number(number);
        mark
    }

    /// Writes how much follows the length at `at`.
    fn put_length(&mut self, at: usize) {
        self.put_number(at, length(self.used - at - LENGTH_BYTES));
    }

    /// The next `bytes`, whatever stands there.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let (from, to) = (self.used, self.used + bytes);
        if self.buffer.len() < to {
            self.buffer.resize(to, 0);
        }
        self.used = to;
        &mut self.buffer[from..to]
    }
}

/// What is gathered here is far below the largest number.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
