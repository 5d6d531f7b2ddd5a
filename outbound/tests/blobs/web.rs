//! Web servers: lengths that they demand, hops that are looked at, addresses that nobody is led to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::signer::Signer;
use sandbox_outbound::address::AddressError;
use sandbox_outbound::blobs::{BlobError, Difference, Store, Stores, StoresConfig, Whose};
use sandbox_outbound::limits::{CHUNK_BYTES, REDIRECTS_MAX, WEB_HEAD_BYTES_MAX};

use crate::harness::s3::{BUCKET, Fault, S3};
use crate::harness::serve::Identity;
use crate::harness::source::{failing_after, stuck_after};
use crate::harness::web::{NAME, Web};
use crate::harness::{Names, SHORT, at, check_round_trip, offering_nothing, read, some_bytes, with_wrong_hash};

#[track_caller]
fn check_not_public(error: &BlobError) {
    assert!(matches!(error, BlobError::Address(AddressError::NotPublic { .. })), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_got_again_at_every_size() {
    let web = Web::start().await;
    let head = WEB_HEAD_BYTES_MAX;
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, head - 1, head, head + 1, 2 * head + 1] {
        for size_hint in [None, Some(length as u64)] {
            let stored = check_round_trip(&web.stores(), &web.url("take/a"), length, size_hint).await;
            assert!(stored.uri.starts_with(&web.url("take/a#")), "{}", stored.uri);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_does_not_come_back() {
    let web = Web::start().await;
    let place = web.url("take/a?X-Amz-Signature=secret");
    let stored = check_round_trip(&web.stores(), &place, 10, None).await;
    assert!(!stored.uri.contains("secret"), "{}", stored.uri);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presigned_upload_of_s3_takes_what_ends_soon_or_is_announced() {
    let identity = Identity::of(&["127.0.0.1"]);
    let s3 = S3::start(Fault::None, Some(&identity)).await;
    let account = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_endpoint(format!("https://{}", s3.server.address))
        .with_access_key_id("AKIA")
        .with_secret_access_key("secret")
        .build()
        .unwrap();
    let config = offering_nothing(&s3.server.address.to_string(), Names::new(&[]));
    let stores = Stores::new(StoresConfig { trusted_pem: Some(identity.pem.clone()), ..config }).unwrap();
    for (length, size_hint) in [(0, None), (100_000, None), (2 * WEB_HEAD_BYTES_MAX, Some(2 * WEB_HEAD_BYTES_MAX))] {
        let sign = async |method| {
            account.signed_url(method, &"a.tar.zst".into(), Duration::from_secs(60)).await.unwrap().to_string()
        };
        let bytes = some_bytes(length);
        let put = at(&sign(http::Method::PUT).await);
        let stored = stores.put(&put, &bytes[..], size_hint.map(|length| length as u64)).await.unwrap();
        let got = at(&format!("{}#sha256={}", sign(http::Method::GET).await, hex::encode(stored.sha256)));
        assert!(read(&stores, &got).await.unwrap() == bytes, "{length} bytes");
    }
    let signed = account.signed_url(http::Method::PUT, &"a".into(), Duration::from_secs(60)).await.unwrap();
    let of_another = signed.as_str().replace("/a?", "/b?");
    let error = stores.put(&at(&of_another), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Denied { store: Store::Web }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_demands_the_length_gets_it_or_says_so() {
    let web = Web::start().await;
    let long = some_bytes(3 * WEB_HEAD_BYTES_MAX);
    let place = at(&web.url("signed/a"));
    let error = web.stores().put(&place, &long[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::LengthRequired), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, false));
    assert!(web.kept("a").is_none());
    web.stores().put(&place, &long[..], Some(long.len() as u64)).await.unwrap();
    web.stores().put(&at(&web.url("signed/b")), &long[..WEB_HEAD_BYTES_MAX - 1], None).await.unwrap();
    assert!(web.kept("a").unwrap() == long);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_whole_is_never_kept() {
    let web = Web::start().await;
    let stores = web.stores();
    let place = at(&web.url("take/a"));
    let bytes = some_bytes(3 * CHUNK_BYTES);
    for announced_bytes in [bytes.len() as u64 - 1, bytes.len() as u64 + 1, CHUNK_BYTES as u64] {
        let error = stores.put(&place, &bytes[..], Some(announced_bytes)).await.unwrap_err();
        assert!(matches!(error, BlobError::NotAsAnnounced { .. }), "{error:?}");
    }
    for (after, size_hint) in [(10, None), (2 * WEB_HEAD_BYTES_MAX as u64, None), (1_000_000, Some(2_000_000))] {
        let error = stores.put(&place, failing_after(after), size_hint).await.unwrap_err();
        assert!(matches!(error, BlobError::Source(_)) && error.whose() == Whose::Operator, "{error:?}");
        let gone = stores.put(&place, stuck_after(after), size_hint);
        assert!(tokio::time::timeout(Duration::from_secs(2), gone).await.is_err());
    }
    // A later upload on the same server has been preceded by what came of those.
    check_round_trip(&stores, &web.url("take/b"), 10, None).await;
    assert!(web.kept("a").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_than_expected_never_end_well() {
    let web = Web::start().await;
    let whole = some_bytes(1_000_000);
    web.keep("a", whole.clone());
    let stored = check_round_trip(&web.stores(), &web.url("take/b"), 1_000_000, None).await;
    let hash = stored.uri.split_once('#').unwrap().1;
    for (verb, broken) in [("take", false), ("cut", true), ("cut-chunked", true), ("end-early", false)] {
        let got = read(&web.stores(), &at(&web.url(&format!("{verb}/a#{hash}")))).await;
        match (verb, got) {
            ("take", got) => assert!(got.unwrap() == whole),
            (_, Err(BlobError::Broken { store: Store::Web, .. })) if broken => {}
            (_, Err(BlobError::Differs(Difference::Sha256))) if !broken => {}
            (verb, got) => panic!("{verb}: {:?}", got.map(|all| all.len())),
        }
    }
    web.keep("longer", [&whole[..], b"x"].concat());
    web.keep("shorter", whole[1..].to_vec());
    for name in ["longer", "shorter"] {
        let error = read(&web.stores(), &at(&web.url(&format!("take/{name}#{hash}")))).await.unwrap_err();
        assert!(matches!(error, BlobError::Differs(Difference::Sha256)), "{error:?}");
    }
    assert!(matches!(web.stores().get(&at(&web.url("take/a"))).await, Err(BlobError::Unverifiable)));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_taken_as_they_are_whatever_their_encoding_is_called() {
    let web = Web::start().await;
    let stored = check_round_trip(&web.stores(), &web.url("take/a"), 1000, None).await;
    let place = stored.uri.replace("/take/", "/coded/");
    assert_eq!(read(&web.stores(), &at(&place)).await.unwrap(), some_bytes(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_the_callers_matter_and_told_apart() {
    let web = Web::start().await;
    let bytes = some_bytes(5 * WEB_HEAD_BYTES_MAX);
    for (verb, wanted, retryable) in [
        ("forbidden", "the web server denies access to this place", false),
        ("absent", "the web server answered with status 405", false),
        ("broken", "the web server answered with status 502", true),
        ("to", "the web server redirects where no snapshot goes: an upload stays where it was signed for", false),
    ] {
        for length in [5, bytes.len()] {
            let place = at(&web.url(&format!("{verb}/a?/take/b")));
            let error = web.stores().put(&place, &bytes[..length], Some(length as u64)).await.unwrap_err();
            assert_eq!(error.to_string(), wanted);
            assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, retryable));
        }
    }
    for (verb, wanted) in [
        ("forbidden", "the web server denies access to this place"),
        ("absent", "there is nothing at this place in the web server"),
        ("broken", "the web server answered with status 502"),
    ] {
        let error = read(&web.stores(), &with_wrong_hash(&web.url(&format!("{verb}/a")))).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.whose()), (wanted, Whose::Caller));
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = format!("https://127.0.0.1:{port}/a");
    let config = offering_nothing(&format!("127.0.0.1:{port}"), Names::new(&[]));
    let error = Stores::new(config).unwrap().put(&at(&place), &bytes[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Broken { store: Store::Web, .. }), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_strange_certificate_gets_nothing() {
    let web = Web::start().await;
    let config = offering_nothing(&web.server.address.to_string(), Names::new(&[]));
    let error = Stores::new(config).unwrap().put(&at(&web.url("take/a")), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Broken { store: Store::Web, .. }), "{error:?}");
    assert!(web.kept("a").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_makes_no_progress_is_left() {
    let web = Web::start().await;
    let stores = web.stores_with(Some(SHORT), Names::new(&[]));
    web.keep("a", some_bytes(1000));
    let long = some_bytes(40_000_000);
    for error in [
        stores.put(&at(&web.url("never/a")), &b"short"[..], None).await.unwrap_err(),
        stores.put(&at(&web.url("never/a")), &long[..], Some(long.len() as u64)).await.unwrap_err(),
        read(&stores, &with_wrong_hash(&web.url("never/a"))).await.unwrap_err(),
        read(&stores, &with_wrong_hash(&web.url("stall/a"))).await.unwrap_err(),
    ] {
        assert!(matches!(error, BlobError::TooSlow { store: Store::Web, .. }), "{error:?}");
        assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_a_bounded_number_of_times() {
    let web = Web::start().await;
    let stored = check_round_trip(&web.stores(), &web.url("take/end"), 1000, None).await;
    let hash = stored.uri.split_once('#').unwrap().1;
    // `hops/n` takes n redirects to `hops/0`, which is one more.
    let last = at(&web.url(&format!("hops/{}#{hash}", REDIRECTS_MAX - 1)));
    assert_eq!(read(&web.stores(), &last).await.unwrap(), some_bytes(1000));
    let over = at(&web.url(&format!("hops/{REDIRECTS_MAX}#{hash}")));
    let error = read(&web.stores(), &over).await.unwrap_err();
    assert!(matches!(error, BlobError::Redirect("too many hops")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hop_is_looked_at_as_the_first() {
    let web = Web::start().await;
    let names = Names::new(&[("inside.example", &[&["10.0.0.7"]])]);
    let stores = web.stores_with(None, names);
    let refused = async |to: &str| read(&stores, &with_wrong_hash(&web.url(&format!("to/a?{to}")))).await.unwrap_err();
    for to in [
        "https://127.0.0.1:1/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::ffff:169.254.169.254]/",
        "https://2130706433:1/",
        "https://0x7f.1:1/",
        "https://inside.example/",
        "//192.168.0.1/",
    ] {
        check_not_public(&refused(to).await);
    }
    for (to, why) in [
        ("http://169.254.169.254/", "away from https"),
        ("file:///etc/passwd", "away from https"),
        ("https://user:pass@example.com/", "to an address with credentials"),
        ("https://", "nowhere"),
    ] {
        assert!(matches!(refused(to).await, BlobError::Redirect(said) if said == why), "{to}");
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_in_both_directions() {
    let names = Names::new(&[
        ("inside.example", &[&["10.0.0.7"]]),
        ("mixed.example", &[&["93.184.215.14", "127.0.0.1"]]),
        ("mapped.example", &[&["::ffff:127.0.0.1"]]),
    ]);
    let stores = Stores::new(offering_nothing("", names)).unwrap();
    for host in [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[fd00::1]",
        "[fe80::1]",
        "inside.example",
        "INSIDE.example",
        "inside.example.",
        "mixed.example",
        "mapped.example",
    ] {
        let place = format!("https://{host}/a");
        check_not_public(&stores.put(&at(&place), &b"short"[..], None).await.unwrap_err());
        check_not_public(&read(&stores, &with_wrong_hash(&place)).await.unwrap_err());
    }
    let error = stores.put(&at("https://nobody.example/a"), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Address(AddressError::Lookup { .. })), "{error:?}");
    assert_eq!((error.whose(), error.is_retryable()), (Whose::Caller, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_changes_its_mind_leads_nowhere_else() {
    let web = Web::start().await;
    let port = web.server.address.port();
    let rebinding = || Names::new(&[(NAME, &[&["127.0.0.1"], &["169.254.169.254"]])]);
    let names = rebinding();
    let stores = web.stores_with(None, names.clone());
    let place = format!("https://{NAME}:{port}/take/a");
    let stored = stores.put(&at(&place), &b"short"[..], None).await.unwrap();
    assert_eq!(names.lookups.load(Ordering::SeqCst), 1, "what was looked at is what is connected to");
    check_not_public(&read(&stores, &at(&stored.uri)).await.unwrap_err());

    let names = rebinding();
    let stores = web.stores_with(None, names.clone());
    assert_eq!(read(&stores, &at(&stored.uri)).await.unwrap(), b"short");
    assert_eq!(names.lookups.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_only_hosts_are_spoken_to_that_the_operator_excepts() {
    let s3 = S3::start(Fault::None, None).await;
    let place = format!("http://{}/snapshots/a", s3.server.address);
    let excepting = Stores::new(offering_nothing(&s3.server.address.to_string(), Names::new(&[]))).unwrap();
    // S3 itself answers: without credentials, nothing.
    let error = excepting.put(&at(&place), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::Denied { store: Store::Web }), "{error:?}");
    let names = Names::new(&[("outside.example", &[&["93.184.215.14"]])]);
    let stores = Stores::new(offering_nothing("", names)).unwrap();
    let error = stores.put(&at("http://outside.example/a"), &b"short"[..], None).await.unwrap_err();
    assert!(matches!(error, BlobError::PlainHttp) && error.whose() == Whose::Caller, "{error:?}");
}
