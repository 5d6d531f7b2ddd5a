//! S3: parts, manifests, and nothing left behind by what does not end well.

use std::fs;

use sandbox_outbound::blobs::{BlobError, Difference, Store, Whose};
use sandbox_outbound::limits::{S3_PART_MIB_MIN, S3_RETRIES_MAX};

use crate::harness::s3::{BUCKET, Fault, S3};
use crate::harness::source::{failing_after, stuck_after};
use crate::harness::{SHORT, at, check_round_trip, eventually, read, some_bytes, with_wrong_hash};

const PART: usize = S3_PART_MIB_MIN as usize * 1024 * 1024;
const PLACE: &str = "s3://snapshots/of/a.tar.zst";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_got_again_at_every_size() {
    let s3 = S3::start(Fault::None, None).await;
    let stores = s3.stores();
    for length in [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1] {
        for size_hint in [None, Some(length as u64)] {
            let stored = check_round_trip(&stores, PLACE, length, size_hint).await;
            assert_eq!(stored.uri.split('#').next(), Some(PLACE));
            let (_, expected) = stores.get(&at(PLACE)).await.unwrap();
            assert_eq!((expected.sha256, expected.size_bytes), (stored.sha256, Some(length as u64)));
            assert!(read(&stores, &at(PLACE)).await.unwrap() == some_bytes(length), "by the manifest");
        }
    }
    assert_eq!(s3.kept(), ["of"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_snapshots_go_in_one_request_and_long_ones_in_parts() {
    let s3 = S3::start(Fault::None, None).await;
    check_round_trip(&s3.stores(), PLACE, PART - 1, None).await;
    assert_eq!(s3.tries(), 0);
    check_round_trip(&s3.stores(), PLACE, 2 * PART + 1, None).await;
    assert_eq!(s3.tries(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_manifest_or_hash_nothing_is_got() {
    let s3 = S3::start(Fault::None, None).await;
    let stored = check_round_trip(&s3.stores(), PLACE, 1000, None).await;
    let manifest = s3.directory.path().join(BUCKET).join("of/a.tar.zst.manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    assert!(whole.contains("\"version\":1") && whole.contains("\"size_bytes\":1000"), "{whole}");
    fs::write(&manifest, "{}").unwrap();
    assert!(matches!(s3.stores().get(&at(PLACE)).await, Err(BlobError::Manifest)));
    fs::write(&manifest, format!("{whole}{}", " ".repeat(5000))).unwrap();
    assert!(matches!(s3.stores().get(&at(PLACE)).await, Err(BlobError::Manifest)));
    fs::remove_file(&manifest).unwrap();
    assert!(matches!(s3.stores().get(&at(PLACE)).await, Err(BlobError::Unverifiable)));
    assert_eq!(read(&s3.stores(), &at(&stored.uri)).await.unwrap(), some_bytes(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_than_were_put_never_end_well() {
    let s3 = S3::start(Fault::None, None).await;
    let stores = s3.stores();
    let stored = check_round_trip(&stores, PLACE, 100_000, None).await;
    let object = s3.directory.path().join(BUCKET).join("of/a.tar.zst");
    let whole = some_bytes(100_000);
    let mut flipped = whole.clone();
    flipped[50_000] ^= 1;
    for (spoilt, difference) in [
        (flipped, Difference::Sha256),
        (whole[..99_999].to_vec(), Difference::Size),
        (whole.iter().copied().chain([0]).collect(), Difference::Size),
        (Vec::new(), Difference::Size),
    ] {
        fs::write(&object, &spoilt).unwrap();
        let error = read(&stores, &at(PLACE)).await.unwrap_err();
        assert!(matches!(error, BlobError::Differs(found) if found == difference), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
        let error = read(&stores, &at(&stored.uri)).await.unwrap_err();
        assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
    }
    fs::write(&object, &whole).unwrap();
    let error = read(&stores, &with_wrong_hash(PLACE)).await.unwrap_err();
    assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_is_sent_again_a_bounded_number_of_times() {
    let s3 = S3::start(Fault::First(2), None).await;
    check_round_trip(&s3.stores(), PLACE, 2 * PART, Some(2 * PART as u64)).await;
    assert_eq!(s3.tries(), 2 + 2);

    let s3 = S3::start(Fault::From(1), None).await;
    let bytes = some_bytes(PART + 1);
    let error = s3.stores().put(&at(PLACE), &bytes[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Broken { store: Store::S3, .. }), "{error:?}");
    assert!(s3.tries() <= 2 * (S3_RETRIES_MAX + 1), "{} tries", s3.tries());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_midway_leaves_nothing_in_the_bucket() {
    for fault in [Fault::From(3), Fault::Complete, Fault::Silent(3)] {
        let s3 = S3::start(fault, None).await;
        let silent = matches!(fault, Fault::Silent(_));
        let stores = s3.stores_with(silent.then_some(SHORT), |_| {});
        let bytes = some_bytes(5 * PART);
        let error = stores.put(&at(PLACE), &bytes[..], None).await.unwrap_err();
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Operator, true), "{error:?}");
        assert_eq!(matches!(error, BlobError::TooSlow { .. }), silent, "{error:?}");
        assert_eq!(s3.asked("DELETE", "uploadId="), 1);
        eventually("nothing is left", || s3.kept().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_without_its_manifest_is_taken_back() {
    let s3 = S3::start(Fault::Manifest, None).await;
    let error = s3.stores().put(&at("s3://snapshots/a"), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Broken { store: Store::S3, .. }), "{error:?}");
    assert!(s3.kept().is_empty(), "{:?}", s3.kept());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_breaks_leaves_nothing_in_the_bucket() {
    let s3 = S3::start(Fault::None, None).await;
    for after in [0, 10, 3 * PART as u64 + 10] {
        let error = s3.stores().put(&at(PLACE), failing_after(after), None).await.unwrap_err();
        assert!(matches!(error, BlobError::Source(_)) && error.whose() == Whose::Operator, "{error:?}");
        eventually("nothing is left", || s3.kept().is_empty()).await;
    }
    for announced_bytes in [3 * PART as u64 - 1, 3 * PART as u64 + 1] {
        let bytes = some_bytes(3 * PART);
        let error = s3.stores().put(&at(PLACE), &bytes[..], Some(announced_bytes)).await.unwrap_err();
        assert!(matches!(error, BlobError::NotAsAnnounced { .. }), "{error:?}");
        eventually("nothing is left", || s3.kept().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_nobody_waits_for_is_given_up() {
    let s3 = S3::start(Fault::None, None).await;
    let stores = s3.stores();
    let location = at(PLACE);
    let arrived = || s3.kept().iter().filter(|name| name.contains(".part-")).count() == 2;
    tokio::select! {
        ended = stores.put(&location, stuck_after(2 * PART as u64), None) => panic!("ended by itself: {ended:?}"),
        () = eventually("two parts have arrived", arrived) => {}
    }
    eventually("the upload is given up", || s3.asked("DELETE", "uploadId=") == 1 && s3.kept().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upload_cannot_hold_is_refused_before_it_begins() {
    let s3 = S3::start(Fault::None, None).await;
    let error = s3.stores().put(&at(PLACE), stuck_after(0), Some(1 << 40)).await.unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { store: Store::S3 }), "{error:?}");
    assert_eq!(error.whose(), Whose::Caller);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_apart() {
    let s3 = S3::start(Fault::None, None).await;
    let stores = s3.stores();
    for absent in [PLACE, "s3://nobodys/a"] {
        let error = read(&stores, &with_wrong_hash(absent)).await.unwrap_err();
        assert!(matches!(error, BlobError::NotFound { store: Store::S3 }), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
    }

    let wrong = s3.stores_with(None, |config| config.secret_access_key = "another".into());
    let unknown = s3.stores_with(None, |config| config.access_key_id = "another".into());
    for stores in [wrong, unknown] {
        let error = stores.put(&at(PLACE), &b"short"[..], None).await.unwrap_err();
        assert!(matches!(error, BlobError::Credentials { store: Store::S3, .. }), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Operator, false));
    }
    let closed = s3.stores_with(None, |config| config.buckets = vec!["another".into()]);
    let error = closed.put(&at(PLACE), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::BucketNotOffered) && error.whose() == Whose::Caller, "{error:?}");
    assert!(s3.kept().is_empty(), "{:?}", s3.kept());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_down_is_the_operators_matter() {
    let s3 = S3::start(Fault::None, None).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
    let stores = s3.stores_with(None, |config| config.endpoint = Some(endpoint));
    let error = stores.put(&at(PLACE), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Broken { store: Store::S3, .. }), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Operator, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_name_only_what_is_under_their_own_name() {
    let s3 = S3::start(Fault::None, None).await;
    let stores = s3.stores();
    assert!(stores.admit(&at("s3://snapshots/0xabc/a"), "0xabc").is_ok());
    for other in ["s3://snapshots/0xabcd/a", "s3://snapshots/0xabc", "s3://snapshots/a/0xabc"] {
        let error = stores.admit(&at(other), "0xabc").unwrap_err();
        assert!(matches!(error, BlobError::OtherTenant) && error.whose() == Whose::Caller, "{other}: {error:?}");
    }
}
