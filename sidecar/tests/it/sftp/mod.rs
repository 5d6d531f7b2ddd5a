//! What `serve-sftp` promises: to OpenSSH's own client, and packet by packet.

mod any_bytes;
mod attributes;
mod client;
mod courses;
mod files;
mod names;
mod openssh;
