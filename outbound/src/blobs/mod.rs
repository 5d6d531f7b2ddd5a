//! Where snapshots go to and come from.
