//! A directory's entries, a few at a time, each with its attributes and a line as `ls -l` has it.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, RawDir, Stat, statat};
use time::OffsetDateTime;

use super::answers::Answers;
use super::attributes;
use super::error::Refusal;
use super::people::People;
use super::wire::kind;
use crate::limits::SFTP_ENTRIES_BYTES_MAX;

/// Age up to which a file's hour is told, not its year: half of one.
const RECENT: Duration = Duration::from_secs(365 * 24 * 60 * 60 / 2);

/// Answers with what the kernel gives next of `directory`.
pub(super) fn list(directory: BorrowedFd<'_>, id: u32, people: &People, answers: &mut Answers) -> Result<(), Refusal> {
    let now = SystemTime::now();
    let mut buffer = [MaybeUninit::uninit(); SFTP_ENTRIES_BYTES_MAX];
    let mut entries = RawDir::new(directory, &mut buffer);
    answers.answer((kind::NAME, id), |answers| {
        let (at, mut count) = (answers.place_number(), 0);
        // What has gone meanwhile is passed over, so that it may take more than one look to find any.
        while count == 0 || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else { break };
            let entry = entry?;
            let Ok(stat) = statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let name = entry.file_name().to_bytes();
            answers.string(name);
            answers.string_of(|answers| line(name, &stat, people, now, answers));
            attributes::encode(&stat, answers);
            count += 1;
        }
        answers.put_number(at, count);
        if count > 0 { Ok(()) } else { Err(Refusal::EndOfFile) }
    })
}

fn line(name: &[u8], stat: &Stat, people: &People, now: SystemTime, answers: &mut Answers) {
    let owner = |name: Option<&[u8]>, id: u32| {
        name.map_or_else(|| id.to_string(), |name| String::from_utf8_lossy(name).into_owned())
    };
    let (user, group) = (owner(people.user(stat.st_uid), stat.st_uid), owner(people.group(stat.st_gid), stat.st_gid));
    let (mode, time) = (mode(stat.st_mode), time(stat.st_mtime, now));
    let text = format!("{mode} {:>4} {user:<8} {group:<8} {:>8} {time} ", stat.st_nlink, stat.st_size);
    answers.put(text.as_bytes());
    answers.put(name);
}

/// Type and permissions in ten letters.
fn mode(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::RegularFile => '-',
        _ => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, letters) in [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push_str(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => &letters[..1],
            (true, false) => &letters[1..],
            (false, true) => "x",
            (false, false) => "-",
        });
    }
    text
}

/// Month and day, and the hour of what is recent or the year of what is not, in UTC.
fn time(seconds: i64, now: SystemTime) -> String {
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else { return format!("{:>12}", "?") };
    let month = time.month().to_string();
    let age = now.duration_since(time.into());
    let last = match age {
        Ok(age) if age < RECENT => format!("{:02}:{:02}", time.hour(), time.minute()),
        Ok(_) | Err(_) => format!("{:>5}", time.year()),
    };
    format!("{} {:>2} {last}", &month[..3], time.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_told_as_ls_does() {
        let told = [0o100644, 0o040755, 0o120777, 0o104711, 0o102640, 0o041777, 0o041776, 0o010000].map(mode);
        let expected = [
            "-rw-r--r--",
            "drwxr-xr-x",
            "lrwxrwxrwx",
            "-rws--x--x",
            "-rw-r-S---",
            "drwxrwxrwt",
            "drwxrwxrwT",
            "p---------",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_hour_is_told_for_half_a_year() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let told = [0, 1_700_000_000, 1_700_000_001, 1_700_000_000 - 15_768_000, 1_700_000_001 - 15_768_000, i64::MAX];
        let expected = ["Jan  1  1970", "Nov 14 22:13", "Nov 14  2023", "May 16  2023", "May 16 10:13", "           ?"];
        assert_eq!(told.map(|seconds| time(seconds, now)), expected);
    }
}
