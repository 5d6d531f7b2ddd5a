//! How many connections there are, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandbox_fsp::limits::{CHECKOUT_TIMEOUT_MS, IDLE_CHECK_MS};
use sandbox_fsp::{ErrorKind, FspError, Pool, PoolSettings};
use tokio::time::{Instant, advance};

use crate::stage::{Peer, Stage};

/// A pool to a sandbox that accepts all and answers pings, and how many it has accepted.
fn pool(settings: PoolSettings) -> (Pool, Arc<AtomicUsize>) {
    let mut stage = Stage::new();
    let pool = Pool::new(stage.endpoint(&[]), settings);
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let peer = stage.accept().await;
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(Peer::idle(peer));
        }
    });
    (pool, accepted)
}

#[tokio::test(start_paused = true)]
async fn five_are_kept_ten_more_are_lent_and_the_next_waits_in_vain() {
    let (pool, accepted) = pool(PoolSettings::default());
    let mut leases = vec![];
    for _ in 0..15 {
        leases.push(pool.checkout().await.unwrap());
    }
    assert_eq!((pool.usage(), accepted.load(Ordering::Relaxed)), ((15, 15), 15));
    let waited = Instant::now();
    let error = pool.checkout().await.unwrap_err();
    assert!(matches!(error, FspError::PoolExhausted { waited_ms: CHECKOUT_TIMEOUT_MS }));
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Sandbox, true));
    assert_eq!(waited.elapsed().as_millis(), u128::from(CHECKOUT_TIMEOUT_MS));
    drop(leases);
    assert_eq!(pool.usage(), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_what_is_given_back() {
    let (pool, accepted) = pool(PoolSettings { size: 1, overflow: 0, ..PoolSettings::default() });
    let held = pool.checkout().await.unwrap();
    let (next, ()) = tokio::join!(pool.checkout(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);
    });
    next.unwrap();
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_shared_only_where_no_other_may_be_kept() {
    let (pool, accepted) = pool(PoolSettings { size: 2, overflow: 1, leases_per_connection: 3 });
    let mut leases = vec![];
    for open in [1, 2, 2, 2, 2, 2, 3, 3, 3] {
        leases.push(pool.checkout().await.unwrap());
        assert_eq!(pool.usage().0, open);
    }
    assert!(matches!(pool.checkout().await, Err(FspError::PoolExhausted { .. })));
    leases.clear();
    assert_eq!((pool.usage(), accepted.load(Ordering::Relaxed)), ((2, 0), 3));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_is_not_given_out() {
    let mut stage = Stage::new();
    let pool = Pool::new(stage.endpoint(&[]), PoolSettings::default());
    let (lease, peer) = tokio::join!(pool.checkout(), stage.accept());
    let lease = lease.unwrap();
    drop(peer);
    lease.closed().await;
    drop(lease);
    assert_eq!(pool.usage(), (0, 0));
    let (lease, _peer) = tokio::join!(pool.checkout(), stage.accept());
    lease.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_idled_is_asked_first() {
    let mut stage = Stage::new();
    let pool = Pool::new(stage.endpoint(&[]), PoolSettings::default());
    let (lease, mute) = tokio::join!(pool.checkout(), stage.accept());
    drop(lease.unwrap());
    advance(Duration::from_millis(IDLE_CHECK_MS - 1)).await;
    drop(pool.checkout().await.unwrap());
    assert_eq!(stage.attempts().len(), 1);
    // It has idled, and says nothing: another takes its place.
    advance(Duration::from_millis(IDLE_CHECK_MS)).await;
    let (lease, second) = tokio::join!(pool.checkout(), stage.accept());
    drop(lease.unwrap());
    assert_eq!((pool.usage(), stage.attempts().len()), ((1, 0), 2));
    // This one answers.
    tokio::spawn(second.idle());
    advance(Duration::from_millis(IDLE_CHECK_MS)).await;
    pool.checkout().await.unwrap();
    assert_eq!(stage.attempts().len(), 2);
    drop(mute);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_out_of_reach_is_told_as_such_in_bounded_time() {
    let stage = Stage::new();
    stage.fail_next(usize::MAX);
    let pool = Pool::new(stage.endpoint(&[]), PoolSettings::default());
    let started = Instant::now();
    let error = pool.checkout().await.unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Sandbox, true));
    assert!(started.elapsed() <= Duration::from_millis(CHECKOUT_TIMEOUT_MS));
    assert_eq!(pool.usage(), (0, 0));
}
