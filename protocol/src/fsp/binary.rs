//! Binary frames: bytes as they are, without the price of JSON.
//!
//! A frame is its kind (1 stdout, 2 stderr, 3 stdin, 4 stdin that ends), the length of the id, the number among the
//! execution's messages (8 bytes, big-endian; 0 without `replay`), the id, and the bytes.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::message::is_execution_id;
use super::words::Stream;

const HEAD_BYTES: usize = 2 + 8;

/// What a frame's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program wrote them.
    Output(Stream),
    /// A program is to read them.
    Stdin {
        /// Nothing comes after them.
        eof: bool,
    },
}

/// A binary frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What its bytes are.
    pub kind: Kind,
    /// Of the execution.
    pub id: String,
    /// Its number among the execution's messages; `None` without `replay`, and for stdin.
    pub seq: Option<u64>,
    /// The bytes.
    pub data: Bytes,
}

impl Frame {
    /// As it is sent. An id that is too long for one is cut, which no id is that [`is_execution_id`].
    pub fn encode(&self) -> Bytes {
        let id = &self.id.as_bytes()[..self.id.len().min(usize::from(u8::MAX))];
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + id.len() + self.data.len());
        bytes.put_u8(match self.kind {
            Kind::Output(Stream::Stdout) => 1,
            Kind::Output(Stream::Stderr) => 2,
            Kind::Stdin { eof: false } => 3,
            Kind::Stdin { eof: true } => 4,
        });
        bytes.put_u8(id.len() as u8);
        bytes.put_u64(self.seq.unwrap_or_default());
        bytes.put_slice(id);
        bytes.put_slice(&self.data);
        bytes.freeze()
    }

    /// Reads one; `None` for bytes that are none.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let (&[kind, id_bytes], rest) = bytes.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let id = std::str::from_utf8(rest.get(..usize::from(id_bytes))?).ok().filter(|id| is_execution_id(id))?;
        let kind = match kind {
            1 => Kind::Output(Stream::Stdout),
            2 => Kind::Output(Stream::Stderr),
            3 => Kind::Stdin { eof: false },
            4 => Kind::Stdin { eof: true },
            _ => return None,
        };
        let seq = Some(u64::from_be_bytes(*seq)).filter(|seq| *seq != 0);
        Some(Self { kind, id: id.to_owned(), seq, data: bytes.slice(HEAD_BYTES + id.len()..) })
    }
}
