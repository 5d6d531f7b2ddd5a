//! What the fuzz target demands, of its corpus, of damaged pieces of it and of random bytes.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

use self::speak::speak;

#[path = "../../../fuzz/speak.rs"]
mod speak;

fn corpus() -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/speak")).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Some bytes of what is well begun are others, and something follows.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 0..4);
    (any::<Index>(), changes, any::<Index>(), vec(any::<u8>(), 0..200)).prop_map(|(which, changes, cut, more)| {
        let mut bytes = which.get(&corpus()).clone();
        for (at, byte) in changes.into_iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len() + 1) / 4);
        bytes.extend_from_slice(&more);
        bytes
    })
}

/// Counts what panics on this thread, which is where all of it runs: a task's panic is nobody's else.
fn panics() -> Arc<AtomicUsize> {
    let (count, here, told) = (Arc::new(AtomicUsize::new(0)), thread::current().id(), panic::take_hook());
    let counted = Arc::clone(&count);
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == here {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        told(info);
    }));
    count
}

#[test]
fn no_stranger_upsets_the_gateway_whatever_it_says() {
    let panics = panics();
    let corpus = corpus();
    assert!(corpus.len() >= 15, "the corpus is gone");
    corpus.iter().for_each(|bytes| speak(bytes));
    let mut runner = TestRunner::new(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() });
    let anything = prop_oneof![damaged(), vec(any::<u8>(), 0..2_000)];
    let all = runner.run(&anything, |bytes| {
        speak(&bytes);
        prop_assert_eq!(panics.load(Ordering::SeqCst), 0);
        Ok(())
    });
    all.unwrap();
}
