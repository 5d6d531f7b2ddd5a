//! What reads the requests of SFTP clients, under any bytes.

#![no_main]

use sandbox_sidecar::sftp::Packet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(Packet::decode(bytes)));
