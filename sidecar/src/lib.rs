//! The server inside every sandbox: runs commands as the sandbox's user and hands back what they wrote.
//!
//! [`config`] is read once, [`http`] translates, [`exec`] runs, [`fsp`] speaks its protocol, [`pty`] has terminals,
//! [`tunnel`] reaches programs, [`channel`] carries them for who came by SSH, [`events`] tells what happens, [`files`] and
//! [`snapshot`] have the agent's files served and archived by processes that are the agent ([`http::worker`],
//! [`archive`]), as does [`sftp`], [`egress`] is the door out. Not here: anything about chains, operators or containers,
//! and nothing that a customer could make run as the sidecar's own user.

pub mod agents;
pub mod archive;
pub mod channel;
pub mod config;
pub mod egress;
pub mod events;
pub mod exec;
pub mod files;
pub mod first;
pub mod fsp;
pub mod healthcheck;
pub mod http;
pub mod limits;
pub mod pty;
pub mod sftp;
pub mod snapshot;
pub mod tunnel;
