//! Archives that are refused, each by its own reason, with nothing changed on disk.

use std::fs;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use sandbox_protocol::snapshot::ArchiveFault;

use super::archives::{Tar, record};
use super::host::{Host, give, is_root};

fn good() -> Tar {
    Tar::good()
}

/// Name, archive, reason.
fn of_paths() -> Vec<(&'static str, Vec<u8>, ArchiveFault)> {
    use ArchiveFault as Fault;
    let long = |path: &str| good().entry(b'L', "././@LongLink", "", path.as_bytes()).entry(b'0', "x", "", b"").finish();
    let pax = |key: &str, value: &str| {
        good().entry(b'x', "pax", "", record(key, value).as_bytes()).entry(b'0', "workspace/x", "", b"").finish()
    };
    let deep = format!("workspace{}", "/d".repeat(600));
    vec![
        ("absolute", good().entry(b'0', "/tmp/escaped", "", b"x").finish(), Fault::AbsolutePath),
        ("absolute by pax", pax("path", "/tmp/escaped"), Fault::AbsolutePath),
        ("absolute by a long name", long("/tmp/escaped"), Fault::AbsolutePath),
        ("climbing", good().entry(b'0', "workspace/../../escaped", "", b"x").finish(), Fault::ParentPath),
        ("climbing by pax", pax("path", "workspace/../../escaped"), Fault::ParentPath),
        ("climbing directory", good().entry(b'5', "workspace/..", "", b"").finish(), Fault::ParentPath),
        ("elsewhere", good().entry(b'0', "etc/passwd", "", b"x").finish(), Fault::OutsideRoots),
        ("a file for a root", Tar::default().entry(b'0', "workspace", "", b"x").finish(), Fault::OutsideRoots),
        ("a link for a root", Tar::default().entry(b'2', "state", "/", b"").finish(), Fault::OutsideRoots),
        (
            "the staging's name",
            good().entry(b'0', "workspace/.sandbox-restore/done", "", b"").finish(),
            Fault::ReservedName,
        ),
        ("an overlong name", long(&format!("workspace/{}", "n".repeat(256))), Fault::NameTooLong),
        ("an overlong path", long(&format!("workspace/{}", "n/".repeat(2_100))), Fault::NameTooLong),
        ("too deep", long(&deep), Fault::NameTooLong),
        ("a NUL in a long name", long("workspace/a\0b"), Fault::BadName),
        ("a NUL in a pax name", pax("path", "workspace/a\0b"), Fault::BadName),
        ("no name", good().entry(b'0', "", "", b"").finish(), Fault::BadName),
    ]
}

fn of_links() -> Vec<(&'static str, Vec<u8>, ArchiveFault)> {
    use ArchiveFault as Fault;
    let link = |target: &str| good().entry(b'2', "workspace/link", target, b"");
    let hard = |target: &str| good().entry(b'1', "workspace/hard", target, b"").finish();
    vec![
        ("through a link up", link("../..").entry(b'0', "workspace/link/x", "", b"x").finish(), Fault::ThroughLink),
        ("through a link out", link("/tmp").entry(b'0', "workspace/link/x", "", b"x").finish(), Fault::ThroughLink),
        ("through a link within", link(".").entry(b'5', "workspace/link/x", "", b"").finish(), Fault::ThroughLink),
        ("onto a link", link("/tmp/x").entry(b'0', "workspace/link", "", b"x").finish(), Fault::Duplicate),
        ("a directory onto a link", link("/tmp").entry(b'5', "workspace/link", "", b"").finish(), Fault::Duplicate),
        ("through a file", good().entry(b'0', "workspace/good/x", "", b"x").finish(), Fault::ThroughLink),
        ("a link to nowhere", link("").finish(), Fault::BadName),
        ("hard link to the system", hard("/etc/passwd"), Fault::LinkOutside),
        ("hard link that climbs", hard("workspace/../../x"), Fault::LinkOutside),
        ("hard link elsewhere", hard("etc/passwd"), Fault::LinkOutside),
        ("hard link to the other root", hard("state/good"), Fault::LinkOutside),
        ("hard link to a root", hard("workspace"), Fault::LinkOutside),
        ("hard link to old content", hard("workspace/old"), Fault::LinkMissing),
        (
            "hard link through a link",
            link("/etc").entry(b'1', "workspace/hard", "workspace/link/passwd", b"").finish(),
            Fault::ThroughLink,
        ),
        (
            "hard link to a link",
            link("/etc/passwd").entry(b'1', "workspace/hard", "workspace/link", b"").finish(),
            Fault::LinkMissing,
        ),
    ]
}

fn of_kinds() -> Vec<(&'static str, Vec<u8>, ArchiveFault)> {
    use ArchiveFault as Fault;
    let kind = |kind: u8| good().entry(kind, "workspace/x", "", b"").finish();
    vec![
        ("a character device", kind(b'3'), Fault::Device),
        ("a block device", kind(b'4'), Fault::Device),
        ("a fifo", kind(b'6'), Fault::Fifo),
        ("an unknown kind", kind(b'Z'), Fault::UnknownType),
        (
            "a sparse file of pax",
            good().entry(b'x', "", "", record("GNU.sparse.major", "1").as_bytes()).finish(),
            Fault::UnknownType,
        ),
        ("a file twice", good().entry(b'0', "workspace/good", "", b"2").finish(), Fault::Duplicate),
        (
            "a file twice, spelled otherwise",
            good().entry(b'0', "./workspace//good", "", b"2").finish(),
            Fault::Duplicate,
        ),
        (
            "a directory twice",
            good().entry(b'5', "state/d", "", b"").entry(b'5', "state/d/", "", b"").finish(),
            Fault::Duplicate,
        ),
        ("a directory for a file", good().entry(b'5', "workspace/good", "", b"").finish(), Fault::Duplicate),
        ("a directory with data", good().entry(b'5', "workspace/d", "", b"data").finish(), Fault::Malformed),
    ]
}

fn of_shapes() -> Vec<(&'static str, Vec<u8>, ArchiveFault)> {
    use ArchiveFault as Fault;
    let whole = good().entry(b'0', "workspace/much", "", &[7; 100_000]).finish();
    let bomb =
        |kind: u8| good().with((kind, "x"), "", b"", |header| header.set_size(1 << 33)).data(&vec![b'a'; 1 << 20]);
    let sized = |size: u64| good().with((b'0', "workspace/x"), "", b"", |header| header.set_size(size)).finish();
    let segments = |segments: &'static [(u64, u64)], real: u64, data: &[u8]| {
        let change = move |header: &mut tar::Header| {
            let header = header.as_gnu_mut().unwrap();
            header.set_real_size(real);
            for (place, (offset, length)) in header.sparse.iter_mut().zip(segments) {
                place.set_offset(*offset);
                place.set_length(*length);
            }
        };
        good().with((b'S', "workspace/s"), "", data, change).finish()
    };
    let broken = good().with((b'0', "workspace/x"), "", b"", |_| {});
    let mut wrong_sum = broken.clone();
    *wrong_sum.0.last_mut().unwrap() = 1;
    vec![
        ("nothing", Vec::new(), Fault::Truncated),
        ("garbage", b"this is no archive of any kind".repeat(100), Fault::Compression),
        ("compressed garbage", Tar(b"x".repeat(10_000)).unfinished(), Fault::Malformed),
        ("truncated compression", whole[..whole.len() / 2].to_vec(), Fault::Truncated),
        ("garbage after the compression", [&whole[..], b"garbage"].concat(), Fault::Compression),
        ("no end", good().unfinished(), Fault::Truncated),
        ("half an end", good().data(&[0; 512]).unfinished(), Fault::Truncated),
        (
            "truncated data",
            Tar(good().entry(b'0', "workspace/x", "", &[1; 5_000]).0[..4_000].to_vec()).unfinished(),
            Fault::Truncated,
        ),
        ("data after the end", good().data(&[0; 1024]).data(b"more").unfinished(), Fault::TrailingData),
        ("zeros without end", good().data(&vec![0; 3 << 20]).unfinished(), Fault::TrailingData),
        ("a wrong sum", wrong_sum.finish(), Fault::Malformed),
        (
            "a number that is none",
            good().with((b'0', "workspace/x"), "", b"", |header| header.as_old_mut().size = *b"not a number").finish(),
            Fault::Malformed,
        ),
        ("a pax bomb", bomb(b'x').unfinished(), Fault::HeaderTooLong),
        ("a global pax bomb", bomb(b'g').unfinished(), Fault::HeaderTooLong),
        ("a long name bomb", bomb(b'L').unfinished(), Fault::HeaderTooLong),
        ("a long link bomb", bomb(b'K').unfinished(), Fault::HeaderTooLong),
        ("broken pax", good().entry(b'x', "", "", b"99 path=x\n").entry(b'0', "x", "", b"").finish(), Fault::Malformed),
        ("a name for nothing", good().entry(b'L', "", "", b"workspace/x").finish(), Fault::Malformed),
        ("two long names", good().entry(b'L', "", "", b"a").entry(b'L', "", "", b"b").finish(), Fault::Malformed),
        ("a path for all", good().entry(b'g', "", "", record("path", "/tmp/x").as_bytes()).finish(), Fault::Malformed),
        ("more bytes than may be", sized(17 << 40), Fault::TooManyBytes),
        ("more bytes than can be", sized(u64::MAX), Fault::TooManyBytes),
        ("a sparse bomb", segments(&[(0, 1)], 1 << 62, b"x"), Fault::SparseMap),
        ("segments in disorder", segments(&[(10, 1), (0, 1)], 100, b"xy"), Fault::SparseMap),
        ("segments over the end", segments(&[(99, 2)], 100, b"xy"), Fault::SparseMap),
        ("segments that overflow", segments(&[(u64::MAX, 2)], 100, b"xy"), Fault::SparseMap),
        ("segments without data", segments(&[(0, 50)], 100, b"xy"), Fault::SparseMap),
    ]
}

async fn check(corpus: Vec<(&'static str, Vec<u8>, ArchiveFault)>) {
    let host = Host::start().await;
    host.write("workspace/old", "old");
    host.write("home/old", "old");
    let before = host.listing();
    for (name, archive, fault) in corpus {
        let (status, body) = host.restore(&archive).await.expect_err(name);
        let found = (status, body.error.code.as_str(), body.fault);
        assert_eq!(found, (422, "archive_refused", Some(fault)), "{name}: {}", body.error.message);
        assert!(!body.error.retryable, "{name}");
        assert_eq!(host.listing(), before, "{name}");
    }
    assert!(!std::path::Path::new("/tmp/escaped").exists() && !host.directory.path().join("escaped").exists());
    // After all of it a good one is taken.
    assert_eq!(host.restore(&good().finish()).await.unwrap().entries, 3);
}

#[tokio::test]
async fn paths_that_lead_out_are_refused() {
    check(of_paths()).await;
}

#[tokio::test]
async fn links_that_lead_out_are_refused() {
    check(of_links()).await;
}

#[tokio::test]
async fn what_is_no_file_directory_or_link_is_refused() {
    check(of_kinds()).await;
}

#[tokio::test]
async fn what_is_no_whole_archive_is_refused() {
    check(of_shapes()).await;
}

#[tokio::test]
async fn an_archive_with_another_hash_is_refused_whole() {
    let host = Host::start().await;
    host.write("workspace/old", "old");
    let before = host.listing();
    let (status, body) = host.restore_as(&"0".repeat(64), &good().finish()).await.unwrap_err();
    assert_eq!((status, body.error.code.as_str(), body.fault), (422, "hash_mismatch", None));
    assert_eq!(host.listing(), before);
}

#[tokio::test]
async fn what_does_not_fit_the_disk_leaves_the_old_content() {
    if !is_root("what_does_not_fit_the_disk_leaves_the_old_content") {
        return;
    }
    let host = Host::prepared(|directory| {
        mount(
            Some("tmpfs"),
            &directory.join("workspace"),
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=2m,nr_inodes=50"),
        )
        .unwrap();
    })
    .await;
    host.write("workspace/old", "old");
    let before = host.listing();
    let much = good().entry(b'0', "workspace/much", "", &vec![1; 3 << 20]).finish();
    let many = (0..60).fold(good(), |tar, index| tar.entry(b'0', &format!("workspace/{index}"), "", b""));
    for archive in [much, many.finish()] {
        let (status, body) = host.restore(&archive).await.unwrap_err();
        assert_eq!((status, body.error.code.as_str(), body.error.retryable), (507, "disk_full", true));
        assert_eq!(host.listing(), before);
    }
    // The workspace is a mount of its own here, and the home is not: both take what belongs to them.
    assert_eq!(host.restore(&good().finish()).await.unwrap().entries, 3);
    assert_eq!(fs::read(host.workspace().join("good")).unwrap(), b"good");
    assert_eq!(fs::read(host.home().join("good")).unwrap(), b"good");
    umount2(&host.workspace(), MntFlags::MNT_DETACH).unwrap();
}

#[tokio::test]
async fn a_workspace_that_is_closed_to_the_agent_is_named() {
    if !is_root("a_workspace_that_is_closed_to_the_agent_is_named") {
        return;
    }
    let host = Host::start().await;
    std::os::unix::fs::chown(host.workspace(), Some(0), Some(0)).unwrap();
    let (status, body) = host.restore(&good().finish()).await.unwrap_err();
    assert_eq!((status, body.error.code.as_str()), (409, "unavailable"));
    assert!(host.listing().is_empty(), "neither root has changed");
    give(&host.workspace());
    host.restore(&good().finish()).await.unwrap();
}
