//! What stands in the files of the records, and who can read it.

use std::io::BufReader;

use alloy::primitives::{Address, B256};
use alloy::signers::local::PrivateKeySigner;
use sandbox_fleet::negotiation::Finished;
use sandbox_protocol::Failure;
use sandbox_protocol::agent::negotiation::Move;

use super::tests::{OLD_SANDBOX, SETTLED_CALL, answer, running_sandbox};
use super::*;

const PHRASE: &str = "the heron waits at the ninth gate";
const EXEC: u8 = 10;

/// The vault of the operator whose key is this byte, 32 times.
pub(super) fn vault(key: u8) -> Vault {
    Vault::of(&PrivateKeySigner::from_bytes(&B256::repeat_byte(key)).unwrap())
}

fn call(number: u64, inputs: u8) -> CallRecord {
    let key = CallKey { service: 1, call: number };
    CallRecord::seen(key, EXEC, Address::repeat_byte(1), vec![inputs].into(), 5)
}

fn answered(number: u64, said: &str) -> CallRecord {
    CallRecord { progress: Progress::Answered(answer(said.into())), ..call(number, 1) }
}

fn finished() -> Finished {
    let one = Move { move_id: "m1".into(), content: "buy".into() };
    Finished::failed(&one, Failure::new(FailureCode::Engine, PHRASE))
}

fn secretive_sandbox() -> Sandbox {
    let mut sandbox = running_sandbox();
    sandbox.spec.env = [("TOKEN".to_owned(), PHRASE.to_owned())].into();
    sandbox
}

/// Whether any file of the directory holds these bytes, or their hexadecimal digits.
fn is_in_files(dir: &Path, bytes: &[u8]) -> bool {
    let digits = hex::encode(bytes);
    let holds = |file: &[u8], found: &[u8]| file.windows(found.len()).any(|window| window == found);
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return is_in_files(&path, bytes);
        }
        let file = std::fs::read(path).unwrap();
        holds(&file, bytes) || holds(&file, digits.as_bytes())
    })
}

/// Opens the records with another key, which must fail; what is said of it.
fn refusal(dir: &Path, key: u8) -> String {
    let refused = Records::open_with(dir, vault(key)).err().expect("another's key opens the records");
    assert!(matches!(refused, RecordsError::WrongKey { .. }), "{refused:?}");
    crate::error_chain(&refused)
}

#[tokio::test]
async fn what_customers_say_and_get_is_in_no_file_and_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = MovePlace { call: call(3, 1).key, inputs_hash: B256::ZERO, index: 0 };
    let (short, long, sandbox) = (answered(1, PHRASE), answered(2, &PHRASE.repeat(9_000)), secretive_sandbox());
    let taken_back = answered(4, PHRASE);
    {
        let (records, _guard) = Records::open(dir.path()).unwrap();
        for call in [&short, &long, &taken_back] {
            assert!(records.put_call(call).await.unwrap());
        }
        records.finish_move(place, &finished()).await.unwrap();
        records.save(&sandbox).await.unwrap();
        // Another call comes to have the id: the first is set aside.
        records.take_in(&[call(4, 2)], 9).await.unwrap();
    }
    let (records, guard) = Records::open(dir.path()).unwrap();
    assert_eq!(records.call(short.key).unwrap().as_ref(), Some(&short));
    assert_eq!(records.calls_of(long.caller, None, 9).unwrap(), [call(4, 2), long.clone(), short.clone()]);
    assert_eq!(records.latest_calls(2).unwrap(), [call(4, 2), long]);
    assert_eq!(records.finished_move(place).unwrap(), Some(finished()));
    assert_eq!(records.sandboxes().unwrap(), [sandbox]);
    records.take_in(&[call(4, 1)], 10).await.unwrap();
    assert_eq!(records.call(taken_back.key).unwrap(), Some(taken_back));

    drop((records, guard));
    assert!(!is_in_files(dir.path(), PHRASE.as_bytes()));
    assert!(!is_in_files(dir.path(), &[5; 32]), "the sidecar's token");
    let (records, guard) = Records::open(dir.path()).unwrap();
    records.tree.insert(indexed(CALLS, short.key), encode(&short).unwrap()).unwrap();
    drop((records, guard));
    assert!(is_in_files(dir.path(), PHRASE.as_bytes()), "the test can see a phrase");
}

#[tokio::test]
async fn values_of_before_are_read_and_are_sealed_when_written_next() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox_at = sandbox_key(running_sandbox().id);
    let call_at = indexed(CALLS, call(2, 1).key);
    {
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.tree.insert(VERSION_KEY, "2").unwrap();
        records.tree.insert(call_at.as_slice(), SETTLED_CALL).unwrap();
        records.tree.insert(sandbox_at.as_slice(), OLD_SANDBOX.replace('\n', "").as_bytes()).unwrap();
    }
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let first = |key: &[u8]| records.tree.get(key).unwrap().unwrap()[0];
    assert_eq!(records.read::<u64>(VERSION_KEY).unwrap(), Some(VERSION));
    let known = records.call(call(2, 1).key).unwrap().unwrap();
    let sandbox = records.sandboxes().unwrap().remove(0);
    assert_eq!((first(&call_at), first(&sandbox_at)), (b'{', b'{'));

    assert!(records.put_call(&known).await.unwrap());
    records.save(&sandbox).await.unwrap();
    assert_eq!((first(&call_at), first(&sandbox_at)), (1, 1));
    assert_eq!(records.call(known.key).unwrap(), Some(known));
    assert_eq!(records.sandboxes().unwrap(), [sandbox]);
}

#[test]
fn the_form_of_a_sealed_value_is_that_of_version_3() {
    assert_eq!(VERSION, 3);
    // Made by another program from the description of the module.
    let nonce = "000102030405060708090a0b0c0d0e0f1011121314151617";
    let stored = hex::decode(format!("01{nonce}c755ead9c094ce658c12da4ef18f3d2ca97fe88c1765")).unwrap();
    assert_eq!(vault(1).decode::<String>(b"move/1", &stored).unwrap(), "said");
    assert!(matches!(vault(2).decode::<String>(b"move/1", &stored), Err(RecordsError::Unseal)));
}

#[test]
fn anothers_key_is_refused_in_words_and_the_owners_opens_still() {
    let dir = tempfile::tempdir().unwrap();
    let owner = "operator 0x01 of blueprint 7";
    Records::open(dir.path()).unwrap().0.bind(owner).unwrap();
    let expected = "the state directory belongs to operator 0x01 of blueprint 7, \
                    and its records do not open with the key of this keystore";
    assert_eq!(refusal(dir.path(), 2), expected);
    Records::open(dir.path()).unwrap().0.bind(owner).unwrap();
}

#[test]
fn who_finds_records_of_before_that_are_anothers_does_not_lock_the_owner_out() {
    let dir = tempfile::tempdir().unwrap();
    {
        let (records, _guard) = Records::open(dir.path()).unwrap();
        records.write_now(OWNER_KEY, &"operator 0x01").unwrap();
    }
    {
        let (records, _guard) = Records::open_with(dir.path(), vault(2)).unwrap();
        assert!(matches!(records.bind("operator 0x02"), Err(RecordsError::Foreign { .. })));
    }
    Records::open(dir.path()).unwrap().0.bind("operator 0x01").unwrap();
    refusal(dir.path(), 2);
}

#[tokio::test]
async fn a_value_that_was_moved_changed_or_cut_does_not_open_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (records, _guard) = Records::open(dir.path()).unwrap();
    let [one, two, three] = [1, 2, 3].map(|number| answered(number, PHRASE));
    for call in [&one, &two, &three] {
        assert!(records.put_call(call).await.unwrap());
    }
    let key = indexed(CALLS, one.key);
    let stored = records.tree.get(&key).unwrap().unwrap();
    let unopened = |value: &[u8]| {
        records.tree.insert(&key, value).unwrap();
        let refused = records.call(one.key);
        assert!(matches!(refused, Err(RecordsError::Unseal)), "{refused:?}");
    };
    unopened(&records.tree.get(indexed(CALLS, two.key)).unwrap().unwrap());
    for place in [1, 30, stored.len() - 1] {
        let mut changed = stored.to_vec();
        changed[place] ^= 1;
        unopened(&changed);
    }
    for length in [1, 24, 25, 40, stored.len() - 1] {
        unopened(&stored[..length]);
    }
    assert_eq!(records.open_calls().unwrap(), [two, three]);
    records.tree.insert(&key, stored).unwrap();
    assert_eq!(records.call(one.key).unwrap(), Some(one));
}

#[tokio::test]
async fn without_the_key_records_are_copied_and_made_from_a_copy_but_neither_read_nor_written() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let known = answered(1, PHRASE);
    {
        let (records, _guard) = Records::open(from.path()).unwrap();
        assert!(records.put_call(&known).await.unwrap());
        records.bind("operator 0x01").unwrap();
    }
    let (records, _guard) = Records::open_with(from.path(), Vault::locked()).unwrap();
    assert!(matches!(records.call(known.key), Err(RecordsError::Locked)));
    assert!(matches!(records.put_call(&answered(2, PHRASE)).await, Err(RecordsError::Locked)));
    let copy = to.path().join("copy");
    let file = File::options().create_new(true).read(true).write(true).open(&copy).unwrap();
    records.copy_to(file).await.unwrap();
    Records::restore(to.path(), BufReader::new(File::open(copy).unwrap())).unwrap();

    let (records, guard) = Records::open(to.path()).unwrap();
    assert_eq!(records.call(known.key).unwrap(), Some(known));
    drop((records, guard));
    refusal(to.path(), 2);
}
