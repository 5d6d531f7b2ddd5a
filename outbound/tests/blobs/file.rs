//! Directories: whole files or none, and no way out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox_outbound::blobs::{BlobError, Difference, RootError, Store, Stores, StoresConfig, StoresError, Whose};
use sandbox_outbound::limits::CHUNK_BYTES;
use tempfile::TempDir;

use crate::harness::source::{failing_after, stuck_after};
use crate::harness::{Names, at, check_round_trip, offering_nothing, read, some_bytes, with_wrong_hash};

/// A root, and beside it what nobody is to reach.
struct Place {
    directory: TempDir,
    stores: Stores,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        Self { stores: stores(&[root]).unwrap(), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

fn stores(roots: &[PathBuf]) -> Result<Stores, StoresError> {
    Stores::new(StoresConfig { file_roots: roots.to_vec(), ..offering_nothing("", Names::new(&[])) })
}

#[tokio::test]
async fn what_is_put_is_got_again_at_every_size() {
    let place = Place::new();
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3_000_000] {
        for size_hint in [None, Some(length as u64)] {
            let stored = check_round_trip(&place.stores, &place.uri("a.tar.zst"), length, size_hint).await;
            let (_, expected) = place.stores.get(&at(&place.uri("a.tar.zst"))).await.unwrap();
            assert_eq!((expected.sha256, expected.size_bytes), (stored.sha256, Some(length as u64)));
        }
    }
    assert_eq!(place.names(), ["a.tar.zst", "a.tar.zst.manifest.json"]);
    check_round_trip(&place.stores, &place.uri("new/directories/with%20space"), 10, None).await;
    assert!(place.path("new/directories/with space").is_file());
}

#[tokio::test]
async fn what_does_not_end_well_leaves_what_was_there() {
    let place = Place::new();
    let stored = check_round_trip(&place.stores, &place.uri("a"), 1000, None).await;
    let error = place.stores.put(&at(&place.uri("a")), failing_after(1_000_000), None).await.unwrap_err();
    assert!(matches!(error, BlobError::Source(_)) && error.whose() == Whose::Operator, "{error:?}");
    for announced_bytes in [999, 1001] {
        let error = place.stores.put(&at(&place.uri("a")), &[0; 1000][..], Some(announced_bytes)).await.unwrap_err();
        assert!(matches!(error, BlobError::NotAsAnnounced { .. }), "{error:?}");
    }
    let location = at(&place.uri("a"));
    let stuck = place.stores.put(&location, stuck_after(1_000_000), None);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), stuck).await.is_err());
    assert_eq!(place.names(), ["a", "a.manifest.json"]);
    assert_eq!(read(&place.stores, &at(&stored.uri)).await.unwrap(), some_bytes(1000));
}

#[tokio::test]
async fn what_a_process_that_died_left_unfinished_goes_with_the_next_snapshot_and_one_under_way_stays() {
    let place = Place::new();
    let of_the_dead = ".00000000000000ff.partial";
    let alike = [".00000000000000fe.partial", ".note.partial", "00000000000000ff.partial"];
    fs::write(place.path(of_the_dead), "half").unwrap();
    for name in alike {
        fs::write(place.path(name), "a customer's").unwrap();
    }
    // It is called like an unfinished one, and is whole.
    fs::write(place.path(".00000000000000fe.partial.manifest.json"), "{}").unwrap();
    let under_way = fs::File::create(place.path(".00000000000000fd.partial")).unwrap();
    under_way.lock().unwrap();
    check_round_trip(&place.stores, &place.uri("a"), 1000, None).await;
    let names = place.names();
    assert!(!names.iter().any(|name| name == of_the_dead), "{names:?}");
    assert!(alike.iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
    assert!(names.iter().any(|name| name == ".00000000000000fd.partial"), "{names:?}");
    drop(under_way);
    check_round_trip(&place.stores, &place.uri("a"), 1000, None).await;
    assert!(!place.path(".00000000000000fd.partial").exists());
}

#[tokio::test]
async fn other_bytes_than_were_put_never_end_well() {
    let place = Place::new();
    let whole = some_bytes(1_000_000);
    let stored = check_round_trip(&place.stores, &place.uri("a"), whole.len(), None).await;
    let mut flipped = whole.clone();
    flipped[999_999] ^= 0x80;
    for (spoilt, difference) in [
        (flipped, Difference::Sha256),
        (whole[..999_999].to_vec(), Difference::Size),
        ([&whole[..], b"x"].concat(), Difference::Size),
    ] {
        fs::write(place.path("a"), spoilt).unwrap();
        let error = read(&place.stores, &at(&place.uri("a"))).await.unwrap_err();
        assert!(matches!(error, BlobError::Differs(found) if found == difference), "{error:?}");
        let error = read(&place.stores, &at(&stored.uri)).await.unwrap_err();
        assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
    }
    fs::write(place.path("a"), &whole).unwrap();
    let error = read(&place.stores, &with_wrong_hash(&place.uri("a"))).await.unwrap_err();
    assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
    fs::remove_file(place.path("a.manifest.json")).unwrap();
    assert!(matches!(place.stores.get(&at(&place.uri("a"))).await, Err(BlobError::Unverifiable)));
    assert!(read(&place.stores, &at(&stored.uri)).await.unwrap() == whole);
}

#[tokio::test]
async fn no_path_leads_out_of_its_root() {
    let place = Place::new();
    let outside = place.directory.path();
    symlink(outside.join("secret"), place.path("link")).unwrap();
    symlink("../secret", place.path("relative")).unwrap();
    symlink(outside, place.path("up")).unwrap();
    symlink("/", place.path("top")).unwrap();
    symlink("/proc/self/root", place.path("magic")).unwrap();
    symlink("loop", place.path("loop")).unwrap();
    let absolute = outside.join("secret");
    let absolute = absolute.strip_prefix("/").unwrap().display();
    for name in [
        "link".to_owned(),
        "relative".into(),
        "up/secret".into(),
        format!("top/{absolute}"),
        format!("magic/{absolute}"),
        "loop".into(),
    ] {
        let got = read(&place.stores, &with_wrong_hash(&place.uri(&name))).await;
        let error = got.expect_err(&name);
        assert!(!matches!(error, BlobError::Differs(_)), "{name} has been read");
        let error = place.stores.put(&at(&place.uri(&name)), &b"evil"[..], None).await.expect_err(&name);
        assert!(!matches!(error, BlobError::Source(_)), "{name}: {error:?}");
    }
    let error = place.stores.put(&at(&place.uri("up/new/a")), &b"evil"[..], None).await.unwrap_err();
    assert_eq!(error.whose(), Whose::Caller, "{error:?}");
    for uri in [
        format!("file://{}", outside.join("secret").display()),
        format!("file://{}x/a", place.path("").display().to_string().trim_end_matches('/')),
        "file:///etc/passwd".into(),
    ] {
        let error = read(&place.stores, &with_wrong_hash(&uri)).await.unwrap_err();
        assert!(matches!(error, BlobError::OutsideRoots) && error.whose() == Whose::Caller, "{uri}: {error:?}");
        let error = place.stores.put(&at(&uri), &b"evil"[..], None).await.unwrap_err();
        assert!(matches!(error, BlobError::OutsideRoots), "{uri}: {error:?}");
    }
    let mut beside: Vec<_> = fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    beside.sort_unstable();
    assert_eq!(beside, ["root", "secret"]);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[tokio::test]
async fn only_files_are_read_and_written() {
    let place = Place::new();
    fs::create_dir(place.path("directory")).unwrap();
    mkfifo(&place.path("pipe"), Mode::S_IRWXU).unwrap();
    let devices = stores(&[PathBuf::from("/dev")]).unwrap();
    for (stores, uri) in [
        (&place.stores, place.uri("directory")),
        (&place.stores, place.uri("pipe")),
        (&place.stores, place.uri("").trim_end_matches('/').to_owned()),
        (&devices, "file:///dev/zero".into()),
        (&devices, "file:///dev/null".into()),
    ] {
        let error = read(stores, &with_wrong_hash(&uri)).await.unwrap_err();
        assert!(matches!(error, BlobError::NotFile) && error.whose() == Whose::Caller, "{uri}: {error:?}");
        let error = stores.put(&at(&uri), &b"evil"[..], None).await.unwrap_err();
        assert!(matches!(error, BlobError::NotFile), "{uri}: {error:?}");
    }
    fs::write(place.path("a"), "file").unwrap();
    let error = place.stores.put(&at(&place.uri("a/b")), &b"x"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::NotFile), "{error:?}");
    let error = read(&place.stores, &with_wrong_hash(&place.uri("absent"))).await.unwrap_err();
    assert!(matches!(error, BlobError::NotFound { store: Store::File }), "{error:?}");
}

#[tokio::test]
async fn a_directory_that_is_no_root_stops_the_start() {
    assert!(matches!(stores(&["var".into()]), Err(StoresError::Root(RootError::Relative { .. }))));
    let absent = Path::new("/nonexistent/snapshots");
    assert!(matches!(stores(&[absent.into()]), Err(StoresError::Root(RootError::Open { .. }))));
}

#[tokio::test]
async fn customers_name_only_what_is_under_their_own_name() {
    let place = Place::new();
    assert!(place.stores.admit(&at(&place.uri("0xabc/a")), "0xabc").is_ok());
    for other in ["0xabcd/a", "0xabc", "a/0xabc/b"] {
        let error = place.stores.admit(&at(&place.uri(other)), "0xabc").unwrap_err();
        assert!(matches!(error, BlobError::OtherTenant), "{other}: {error:?}");
    }
}

#[tokio::test]
async fn what_the_operator_does_not_offer_is_said_so() {
    let stores = stores(&[]).unwrap();
    for (uri, store) in [("file:///a/b", Store::File), ("s3://bucket/key", Store::S3), ("ipfs://", Store::Ipfs)] {
        let error = stores.put(&at(uri), &b"x"[..], None).await.unwrap_err();
        assert!(matches!(error, BlobError::NotOffered { store: named } if named == store), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
    }
}
