//! The gateway, as a stranger speaks to it, with any bytes.

#![no_main]

#[path = "../speak.rs"]
mod speak;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speak::speak(bytes));
