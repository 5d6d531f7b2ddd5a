//! The course of a session: every whole packet that has come is handled before the answers are written in one go, and
//! nothing more is read before that.

use std::io::{Read, Write};

use super::answers::Answers;
use super::error::SftpError;
use super::packets::Packets;
use super::session::Session;
use crate::limits::SFTP_ANSWERS_BYTES_MAX;

/// Serves `session` to who writes `input` and reads `output`, until the former ends.
///
/// # Errors
/// A stream fails, or what comes is no SFTP.
pub fn serve(input: impl Read, mut output: impl Write, mut session: Session) -> Result<(), SftpError> {
    let mut packets = Packets::new(input);
    let mut answers = Answers::default();
    while let Some(packet) = packets.next()? {
        session.handle(packet, &mut answers)?;
        if answers.bytes().len() >= SFTP_ANSWERS_BYTES_MAX || !packets.is_whole()? {
            output.write_all(answers.bytes()).map_err(SftpError::Write)?;
            answers.clear();
        }
    }
    Ok(())
}
