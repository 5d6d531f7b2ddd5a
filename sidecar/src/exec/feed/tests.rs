//! What a feed promises its writer and its readers.

use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;

fn feed(keep: Keep) -> Feed {
    Feed::new(keep, Budget::default())
}

fn result() -> Event {
    Event::Result(Ended { exit_code: Some(0), signal: None, duration_ms: 0, resource_usage: None })
}

fn writes(feed: &Feed, bytes: &[u8]) -> bool {
    feed.write(Stream::Stdout, Bytes::copy_from_slice(bytes)).now_or_never().is_some()
}

/// Numbers and bytes of all there is to read now.
fn read(reader: &mut Reader) -> (Vec<u64>, Vec<u8>) {
    let (mut numbers, mut bytes) = (Vec::new(), Vec::new());
    while let Some(Some(told)) = reader.next().now_or_never() {
        match told {
            Told::Event { seq, event: Event::Output(_, output) } => {
                numbers.push(seq);
                bytes.extend_from_slice(&output);
            }
            Told::Event { seq, .. } => numbers.push(seq),
            Told::Gap { .. } => numbers.push(0),
        }
    }
    (numbers, bytes)
}

#[test]
fn what_nobody_has_read_grows_together_and_what_was_read_stays_as_it_was() {
    let feed = feed(Keep::Yes);
    assert!(writes(&feed, b"a") && writes(&feed, b"b"));
    let mut early = feed.reader(0);
    assert_eq!(read(&mut early), (vec![1], b"ab".to_vec()));
    assert!(writes(&feed, b"c"));
    feed.tell(result());
    assert_eq!(read(&mut early), (vec![2, 3], b"c".to_vec()));
    assert_eq!(read(&mut feed.reader(0)), (vec![1, 2, 3], b"abc".to_vec()));
    assert_eq!(read(&mut feed.reader(2)).0, [3]);
    assert!(early.next().now_or_never().unwrap().is_none());
}

#[test]
fn a_holding_reader_holds_the_writer_back_and_a_leaving_one_lets_it_go() {
    let feed = feed(Keep::Yes);
    let reader = feed.reader(0);
    let chunk = vec![0; FSP_CHUNK_BYTES_MAX];
    let mut written = 0;
    while writes(&feed, &chunk) {
        written += chunk.len();
    }
    assert!(written <= FEED_BYTES_MAX && written + 2 * chunk.len() > FEED_BYTES_MAX);
    drop(reader);
    assert!(writes(&feed, &chunk));
    assert!(feed.weight() <= FEED_BYTES_MAX);
}

#[test]
fn a_gap_is_announced_with_its_numbers_and_where_it_ends() {
    let feed = feed(Keep::Yes);
    let chunk = vec![0; FSP_CHUNK_BYTES_MAX];
    let many = 2 * FEED_BYTES_MAX / chunk.len();
    for _ in 0..many {
        assert!(writes(&feed, &chunk));
    }
    let Some(Some(Told::Gap { from_seq, to_seq, bytes })) = feed.reader(3).next().now_or_never() else {
        panic!("no gap")
    };
    assert_eq!((from_seq, bytes), (4, to_seq * chunk.len() as u64));
    assert_eq!(read(&mut feed.reader(to_seq)).0, (to_seq + 1..=many as u64).collect::<Vec<_>>());
}

#[test]
fn nothing_stays_of_a_feed_that_is_not_kept() {
    let feed = feed(Keep::No);
    let mut reader = feed.reader(0);
    assert!(writes(&feed, b"taken"));
    assert_eq!(read(&mut reader).1, b"taken");
    assert_eq!(feed.weight(), 0);
}

#[test]
fn where_all_hold_too_much_each_holds_the_least() {
    let budget = Budget::default();
    let chunk = vec![0; FSP_CHUNK_BYTES_MAX];
    let feeds: Vec<_> = (0..2 * FEEDS_BYTES_MAX / FEED_BYTES_MAX)
        .map(|_| {
            let feed = Feed::new(Keep::Yes, budget.clone());
            (0..FEED_BYTES_MAX / chunk.len()).for_each(|_| assert!(writes(&feed, &chunk)));
            feed
        })
        .collect();
    assert!(budget.0.load(Ordering::Relaxed) <= FEEDS_BYTES_MAX + FEED_BYTES_MAX + feeds.len() * FEED_BYTES_MIN);
    drop(feeds);
    assert_eq!(budget.0.load(Ordering::Relaxed), 0);
}

#[derive(Debug, Clone)]
enum Act {
    Write(usize),
    Read(usize),
    Reattach,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![(1..90_000_usize).prop_map(Act::Write), (1..40_usize).prop_map(Act::Read), Just(Act::Reattach)]
}

proptest! {
    #[test]
    fn a_reader_gets_each_byte_once_or_is_told_of_the_gap(acts in prop::collection::vec(act(), 1..120)) {
        let feed = feed(Keep::Yes);
        let mut reader = feed.reader(0);
        let (mut written, mut expected_seq) = (0_u64, 1);
        let mut next_byte = 0_u64;
        for act in acts {
            match act {
                Act::Write(len) => {
                    let bytes: Vec<u8> = (written..written + len as u64).map(|at| at as u8).collect();
                    for chunk in bytes.chunks(FSP_CHUNK_BYTES_MAX) {
                        if !writes(&feed, chunk) { break; }
                        written += chunk.len() as u64;
                    }
                }
                Act::Read(count) => for _ in 0..count {
                    match reader.next().now_or_never().flatten() {
                        Some(Told::Event { seq, event: Event::Output(_, bytes) }) => {
                            prop_assert_eq!(seq, expected_seq);
                            prop_assert!(bytes.iter().zip(next_byte..).all(|(byte, at)| *byte == at as u8));
                            expected_seq += 1;
                            next_byte += bytes.len() as u64;
                        }
                        Some(Told::Gap { from_seq, to_seq, bytes }) => {
                            prop_assert_eq!(from_seq, expected_seq);
                            expected_seq = to_seq + 1;
                            next_byte = bytes;
                        }
                        _ => break,
                    }
                },
                Act::Reattach => {
                    let after = reader.after();
                    drop(reader);
                    reader = feed.reader(after);
                }
            }
        }
    }
}
