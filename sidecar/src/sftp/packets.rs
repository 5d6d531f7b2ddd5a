//! The client's packets, one after the other, out of one buffer into which is read as much as there is.

use std::io::{self, Read};

use super::error::SftpError;
use crate::limits::{SFTP_INPUT_BYTES, SFTP_PACKET_BYTES_MAX};

/// A packet's length, in front of it.
const LENGTH_BYTES: usize = 4;

/// What was read and not yet handled.
#[derive(Debug)]
pub(super) struct Packets<R> {
    input: R,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

impl<R: Read> Packets<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; SFTP_INPUT_BYTES].into(), from: 0, to: 0 }
    }

    /// The next packet, less its length; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, SftpError> {
        while !self.is_whole()? {
            if !self.fill()? {
                return if self.from == self.to { Ok(None) } else { Err(SftpError::CutOff) };
            }
        }
        let from = self.from + LENGTH_BYTES;
        self.from = from + self.length()?.unwrap_or_default();
        Ok(Some(&self.buffer[from..self.from]))
    }

    /// Whether the next packet is here.
    pub(super) fn is_whole(&self) -> Result<bool, SftpError> {
        Ok(self.length()?.is_some_and(|length| self.to - self.from >= LENGTH_BYTES + length))
    }

    /// What the next packet says of its length.
    fn length(&self) -> Result<Option<usize>, SftpError> {
        let Some(length) = self.buffer[self.from..self.to].first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let bytes = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if (1..=SFTP_PACKET_BYTES_MAX).contains(&bytes) { Ok(Some(bytes)) } else { Err(SftpError::Length { bytes }) }
    }

    /// Reads once. `false` at the end.
    fn fill(&mut self) -> Result<bool, SftpError> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        // What is left moves to the front only where the rest of its packet finds no room behind it.
        let end = self.length()?.map_or(0, |length| self.from + LENGTH_BYTES + length);
        if end > self.buffer.len() || self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        loop {
            match self.input.read(&mut self.buffer[self.to..]) {
                Ok(bytes) => {
                    self.to += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SftpError::Read(error)),
            }
        }
    }
}
