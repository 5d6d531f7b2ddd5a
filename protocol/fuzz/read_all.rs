//! What is demanded of the decoders: shared by the fuzz target and the tests of `protocol::fsp`.

use bytes::Bytes;
use sandbox_protocol::fsp::{Extensions, Frame, decode_client, decode_server, encode_client, encode_server};

/// What anybody may send: it is read or refused, and what was read is written as it was read.
pub(crate) fn read_all(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for extensions in [Extensions::all(), Extensions::default()] {
        if let Ok(message) = decode_client(&text, &extensions) {
            assert_eq!(decode_client(&encode_client(&message, 0), &extensions), Ok(message));
        }
    }
    if let Ok(message) = decode_server(&text) {
        assert_eq!(decode_server(&encode_server(&message, 0)).ok(), Some(message));
    }
    if let Some(frame) = Frame::decode(&Bytes::copy_from_slice(bytes)) {
        assert_eq!(Frame::decode(&frame.encode()), Some(frame));
    }
}
