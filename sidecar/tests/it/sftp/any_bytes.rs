//! Whatever comes, the server answers each request once or ends, and nothing makes it panic.

use std::io::{self, Read};
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::sample::{Index, select};
use sandbox_sidecar::limits::SFTP_PACKET_BYTES_MAX;
use sandbox_sidecar::sftp::{Answers, Packet, Request, Session, serve};

use super::client::{Body, INIT, LSTAT, OPENDIR, READDIR, REALPATH, STAT};

/// The types of requests, and one of none.
const KINDS: [u8; 20] = [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 200];
const EXTENSIONS: [&str; 12] = [
    "posix-rename@openssh.com",
    "statvfs@openssh.com",
    "fstatvfs@openssh.com",
    "hardlink@openssh.com",
    "fsync@openssh.com",
    "lsetstat@openssh.com",
    "limits@openssh.com",
    "expand-path@openssh.com",
    "copy-data",
    "home-directory",
    "users-groups-by-id@openssh.com",
    "unheard@of.example",
];

/// One field after the other; which request reads them is another matter.
fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(|bytes| Body::of(bytes).0),
        select(&EXTENSIONS[..]).prop_map(|name| Body::of(name).0),
        any::<u32>().prop_map(|number| number.to_be_bytes().to_vec()),
        (0..16_u32).prop_map(|number| number.to_be_bytes().to_vec()),
        any::<u64>().prop_map(|number| number.to_be_bytes().to_vec()),
    ]
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    (select(&KINDS[..]), vec(field(), 0..6))
        .prop_map(|(kind, fields)| [&[kind, 0, 0, 0, 1][..], &fields.concat()].concat())
}

proptest! {
    #[test]
    fn any_packet_is_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        drop(Packet::decode(&bytes));
    }

    #[test]
    fn a_request_that_is_changed_or_cut_is_read_or_refused(
        packet in packet(),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
        cut in any::<Index>(),
    ) {
        let mut packet = packet;
        for (place, byte) in changes {
            let place = place.index(packet.len());
            packet[place] = byte;
        }
        drop(Packet::decode(&packet));
        drop(Packet::decode(&packet[..cut.index(packet.len())]));
    }

    #[test]
    fn what_is_read_of_a_request_is_in_it(path in vec(any::<u8>(), 0..300), rest in vec(any::<u8>(), 0..9)) {
        let mut body = Body::of(&path);
        body.0.extend(rest);
        let packet = body.packet(STAT, 7);
        assert_eq!(Packet::decode(&packet[4..]), Ok(Packet::Request(7, Request::Stat { path: &path })));
    }
}

/// A field of a request about a directory that is made later.
#[derive(Debug, Clone)]
enum Part {
    /// A path below it.
    Path(&'static str),
    Fields(Vec<u8>),
}

fn path() -> impl Strategy<Value = Part> {
    select(&["a", "b", "d", "d/a", "link", "absent/a"][..]).prop_map(Part::Path)
}

fn handle() -> impl Strategy<Value = Body> {
    prop_oneof![4 => 0..6_u32, 1 => any::<u32>()].prop_map(|number| Body::of(number.to_be_bytes()))
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..70_000_u64, 1 => u64::MAX - 9..=u64::MAX]
}

fn bytes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1..70_000_u32]
}

/// Attributes, less owners.
fn change() -> impl Strategy<Value = Vec<u8>> {
    (0..16_u32, 0..70_000_u64, 0o700..=0o777_u32, any::<u32>()).prop_map(|(flags, size, mode, time)| {
        let has = |bit, body: Body| if flags & bit == 0 { Vec::new() } else { body.0 };
        let size = has(1, Body::default().long(size));
        let mode = has(4, Body::default().number(mode));
        let times = has(8, Body::default().number(time).number(time));
        [Body::default().number(flags & !2).0, size, mode, times].concat()
    })
}

fn extended(name: usize) -> Body {
    Body::of(EXTENSIONS[name])
}

/// A request about a few files of one directory, with handles, places and sizes that may be anything.
fn request() -> impl Strategy<Value = (u8, Vec<Part>)> {
    use Part::Fields;
    prop_oneof![
        (path(), 0..64_u32)
            .prop_map(|(path, flags)| (3, vec![path, Fields(Body::default().number(flags).number(0).0)])),
        (select(&[4_u8, 8, 12][..]), handle()).prop_map(|(kind, handle)| (kind, vec![Fields(handle.0)])),
        (handle(), offset(), bytes())
            .prop_map(|(handle, at, bytes)| (5, vec![Fields(handle.long(at).number(bytes).0)])),
        (handle(), offset(), bytes())
            .prop_map(|(handle, at, bytes)| (6, vec![Fields(handle.long(at).string(vec![7; bytes as usize]).0)])),
        (select(&[7_u8, 11, 13, 15, 16, 17, 19][..]), path()).prop_map(|(kind, path)| (kind, vec![path])),
        (select(&[9_u8, 14][..]), path(), change()).prop_map(|(kind, path, change)| (kind, vec![path, Fields(change)])),
        (handle(), change()).prop_map(|(handle, change)| (10, vec![Fields(handle.0), Fields(change)])),
        (select(&[18_u8, 20][..]), path(), path()).prop_map(|(kind, one, other)| (kind, vec![one, other])),
        (select(&[0, 3][..]), path(), path())
            .prop_map(|(name, one, other)| (200, vec![Fields(extended(name).0), one, other])),
        (select(&[2, 4][..]), handle())
            .prop_map(|(name, handle)| (200, vec![Fields(extended(name).0), Fields(handle.0)])),
        (handle(), handle(), offset(), bytes()).prop_map(|(one, other, at, bytes)| {
            let range = one.long(at).long(bytes.into());
            (200, vec![Fields(extended(8).0), Fields(range.0), Fields(other.long(0).0)])
        }),
        select(&[6, 11][..]).prop_map(|name| (200, vec![Fields(extended(name).0)])),
    ]
}

fn placed(parts: &[Part], directory: &Path) -> Body {
    let mut body = Body::default();
    for part in parts {
        match part {
            Part::Path(path) => body = body.string(directory.join(path).as_os_str().as_encoded_bytes()),
            Part::Fields(bytes) => body.0.extend(bytes),
        }
    }
    body
}

proptest! {
    #[test]
    fn every_request_of_any_course_is_answered_once(requests in vec(request(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let (mut session, mut answers) = (Session::new(None), Answers::default());
        session.handle(&Body::default().packet(INIT, 3)[4..], &mut answers).unwrap();
        for (id, (kind, parts)) in (0..).zip(requests) {
            answers.clear();
            session.handle(&placed(&parts, directory.path()).packet(kind, id)[4..], &mut answers).unwrap();
            let (length, answer) = answers.bytes().split_at(4);
            assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, answer.len());
            assert!(answer.len() <= SFTP_PACKET_BYTES_MAX && answer[1..5] == u32::to_be_bytes(id));
        }
    }

    #[test]
    fn how_requests_are_cut_on_their_way_makes_no_difference(cuts in vec(1..5_000_usize, 1..40)) {
        let mut requests = Body::default().packet(INIT, 3);
        for id in 0..400 {
            for (kind, path) in [(STAT, "/"), (LSTAT, "absent"), (REALPATH, "/"), (OPENDIR, "absent"), (READDIR, "none")] {
                requests.extend(Body::of(path).string(vec![0; id as usize * 3]).packet(kind, id));
            }
        }
        let answers = |input: Cut<'_>| {
            let mut answers = Vec::new();
            serve(input, &mut answers, Session::new(None)).unwrap();
            answers
        };
        let whole = answers(Cut { bytes: &requests, cuts: &[usize::MAX], next: 0 });
        assert!(whole == answers(Cut { bytes: &requests, cuts: &cuts, next: 0 }));
    }
}

/// Bytes that come in pieces of these lengths, again and again.
struct Cut<'a> {
    bytes: &'a [u8],
    cuts: &'a [usize],
    next: usize,
}

impl Read for Cut<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.cuts[self.next % self.cuts.len()].min(buffer.len());
        self.next += 1;
        self.bytes.read(&mut buffer[..most])
    }
}
