//! Everything that reads the Fathom Sandbox Protocol, under any bytes.

#![no_main]

#[path = "../read_all.rs"]
mod read_all;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read_all::read_all(bytes));
