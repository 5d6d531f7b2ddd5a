//! Peers that mean no good: whatever they send, it ends, costs little, and others get in.

mod floods;
mod garbage;
mod packets;
mod speech;
