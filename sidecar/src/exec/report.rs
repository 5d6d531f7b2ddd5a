//! What a supervisor tells of its command, over a pipe: records of one size, the last of them when it ends.

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::pipe2;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 32;

/// What processes took that have been waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    /// Processor time in microseconds, in user and kernel mode.
    pub(crate) cpu_us: u64,
    /// Most memory of the largest one, in KiB.
    pub(crate) peak_kb: u64,
}

/// What a supervisor tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// The command runs as this process, which leads a group of the same number.
    Begun {
        /// Its number.
        leader: i32,
    },
    /// The command has ended.
    Ended {
        /// As `waitpid` gives it.
        status: i32,
        /// Nothing that it started is left.
        alone: bool,
        /// By what has been waited for.
        spent: Spent,
    },
    /// Nothing is left.
    Over {
        /// By all of it.
        spent: Spent,
    },
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reports(Receiver);

impl Record {
    /// In the order of bytes of this machine, which is also the reader's.
    pub(super) fn encode(self) -> [u8; RECORD_BYTES] {
        let (kind, value, spent) = match self {
            Self::Begun { leader } => (1, leader, Spent::default()),
            Self::Ended { status, alone: false, spent } => (2, status, spent),
            Self::Ended { status, alone: true, spent } => (3, status, spent),
            Self::Over { spent } => (4, 0, spent),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&i32::to_ne_bytes(kind));
        bytes[4..8].copy_from_slice(&value.to_ne_bytes());
        bytes[8..16].copy_from_slice(&spent.cpu_us.to_ne_bytes());
        bytes[16..24].copy_from_slice(&spent.peak_kb.to_ne_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_first_chunk::<4>()?;
        let (cpu_us, rest) = rest.split_first_chunk::<8>()?;
        let peak_kb = rest.first_chunk::<8>()?;
        let value = i32::from_ne_bytes(*value);
        let spent = Spent { cpu_us: u64::from_ne_bytes(*cpu_us), peak_kb: u64::from_ne_bytes(*peak_kb) };
        match i32::from_ne_bytes(*head) {
            1 => Some(Self::Begun { leader: value }),
            2 => Some(Self::Ended { status: value, alone: false, spent }),
            3 => Some(Self::Ended { status: value, alone: true, spent }),
            4 => Some(Self::Over { spent }),
            _ => None,
        }
    }
}

impl Reports {
    /// Both ends. The writing one must be gone from this process once the supervisor has it.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reading, writing) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok((Self(Receiver::from_owned_fd(reading)?), writing))
    }

    /// The next record; `None` when the supervisor is gone. Must be waited for to its end.
    pub(crate) async fn next(&mut self) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES];
        self.0.read_exact(&mut bytes).await.ok()?;
        Record::decode(&bytes)
    }
}

/// What the children took that this process has waited for. Calls the kernel and nothing else.
#[allow(unsafe_code)]
pub(super) fn spent_by_children() -> Result<Spent, Errno> {
    // SAFETY: numbers, all of which may be zero.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` lives as long as the call.
    Errno::result(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) })?;
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Ok(Spent { cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime), peak_kb: usage.ru_maxrss.unsigned_abs() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let spent = Spent { cpu_us: u64::MAX, peak_kb: 7 };
        for record in [
            Record::Begun { leader: 42 },
            Record::Ended { status: -1, alone: true, spent },
            Record::Ended { status: 9, alone: false, spent },
            Record::Over { spent },
        ] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), None);
    }
}
