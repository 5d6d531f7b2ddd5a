//! Properties of messages and frames. What the fuzz target demands is demanded here too, of its corpus, of damaged
//! messages and of random bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

use self::read_all::read_all;
use super::*;
use crate::limits::{
    EXEC_TIMEOUT_MS_MAX, FSP_CPU_SHARES_MAX, FSP_CPU_SHARES_MIN, FSP_MEMORY_MB_MAX, FSP_OUTPUT_BYTES_MAX,
};

#[path = "../../fuzz/read_all.rs"]
mod read_all;

fn id() -> impl Strategy<Value = String> {
    "[!-~]{1,128}"
}

fn data() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn text() -> impl Strategy<Value = Bytes> {
    ".{0,100}".prop_map(Bytes::from)
}

fn limits() -> impl Strategy<Value = Limits> {
    let (shares, output) = (FSP_CPU_SHARES_MIN..=FSP_CPU_SHARES_MAX, 1..=FSP_OUTPUT_BYTES_MAX);
    (1..=EXEC_TIMEOUT_MS_MAX, 1..=FSP_MEMORY_MB_MAX, shares, output).prop_map(
        |(timeout_ms, memory_mb, cpu_shares, max_output_bytes)| Limits {
            timeout_ms,
            memory_mb,
            cpu_shares,
            max_output_bytes,
        },
    )
}

fn extra() -> impl Strategy<Value = Extra> {
    (option::of(".{0,20}"), any::<(bool, bool)>(), any::<Option<u64>>())
        .prop_map(|(cwd, (stream_stdin, detach), credit_bytes)| Extra { cwd, stream_stdin, detach, credit_bytes })
}

fn execute() -> impl Strategy<Value = ClientMessage> {
    let env = btree_map("[A-Z_]{1,8}", ".{0,20}", 0..4);
    let code = (select(Language::ALL), ".{0,100}", option::of(".{0,50}"), env);
    (id(), code, limits(), extra()).prop_map(|(id, (language, code, stdin, env), limits, extra)| {
        let env: BTreeMap<String, String> = env;
        ClientMessage::Execute(Box::new(Execute { id, language, code, stdin, env, limits, extra }))
    })
}

fn client() -> impl Strategy<Value = ClientMessage> {
    prop_oneof![
        4 => execute(),
        1 => Just(ClientMessage::Ping),
        1 => id().prop_map(|id| ClientMessage::Cancel { id }),
        1 => id().prop_map(|id| ClientMessage::Detach { id }),
        1 => (id(), any::<u64>(), any::<Option<u64>>())
            .prop_map(|(id, after_seq, credit_bytes)| ClientMessage::Attach { id, after_seq, credit_bytes }),
        1 => (id(), any::<u64>()).prop_map(|(id, bytes)| ClientMessage::Credit { id, bytes }),
        1 => (id(), data(), any::<bool>()).prop_map(|(id, data, eof)| ClientMessage::Stdin { id, data, eof }),
        1 => (id(), select(Signal::ALL)).prop_map(|(id, signal)| ClientMessage::Signal { id, signal }),
    ]
}

fn ended() -> impl Strategy<Value = ServerBody> {
    let usage = any::<(u64, u64)>().prop_map(|(peak_memory_mb, cpu_time_ms)| Usage { peak_memory_mb, cpu_time_ms });
    (any::<Option<i32>>(), any::<Option<i32>>(), any::<u64>(), option::of(usage)).prop_map(
        |(exit_code, signal, duration_ms, resource_usage)| {
            ServerBody::Result(Ended { exit_code, signal, duration_ms, resource_usage })
        },
    )
}

fn body() -> impl Strategy<Value = ServerBody> {
    use Status::{Cancelled, Completed, Failed, Oom, Running, Timeout};
    let status = select(vec![Running, Completed, Failed, Cancelled, Timeout, Oom]);
    prop_oneof![
        Just(ServerBody::Ack),
        status.prop_map(ServerBody::Status),
        (select(Stream::ALL), text()).prop_map(|(stream, data)| ServerBody::Output(stream, data)),
        ended(),
        (select(ErrorCode::ALL.to_vec()), ".{0,50}", any::<bool>())
            .prop_map(|(code, message, retryable)| ServerBody::Error { code, message, retryable }),
        any::<(u16, u16)>().prop_map(|(active, queued)| ServerBody::Pong(Load {
            active_executions: active.into(),
            queue_depth: queued.into()
        })),
        any::<u64>().prop_map(|next_seq| ServerBody::Attached { next_seq }),
        Just(ServerBody::Detached),
        any::<[u64; 3]>().prop_map(|[from_seq, to_seq, bytes]| ServerBody::Gap { from_seq, to_seq, bytes }),
        any::<u64>().prop_map(|bytes| ServerBody::StdinCredit { bytes }),
    ]
}

fn server() -> impl Strategy<Value = ServerMessage> {
    (id(), any::<Option<u64>>(), body()).prop_map(|(id, seq, body)| ServerMessage { id: Some(id), seq, body })
}

fn frame() -> impl Strategy<Value = Frame> {
    let kind =
        prop_oneof![select(Stream::ALL).prop_map(Kind::Output), any::<bool>().prop_map(|eof| Kind::Stdin { eof }),];
    (kind, id(), option::of(1_u64..), data()).prop_map(|(kind, id, seq, data)| Frame { kind, id, seq, data })
}

/// One of all that is ever sent, as bytes.
fn sent() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        client().prop_map(|message| encode_client(&message, 0).into_bytes()),
        server().prop_map(|message| encode_server(&message, 0).into_bytes()),
        frame().prop_map(|frame| frame.encode().to_vec()),
    ]
}

/// A message with a field that this release does not know.
fn with_stranger(written: &str, name: &str) -> String {
    let mut fields: Map<String, Value> = serde_json::from_str(written).unwrap();
    fields.insert(format!("x_{name}"), serde_json::json!({"deep": [1, null, "two"]}));
    Value::from(fields).to_string()
}

/// A message without one of its fields.
fn without(written: &str, field: &str) -> String {
    let mut fields: Map<String, Value> = serde_json::from_str(written).unwrap();
    fields.remove(field).unwrap();
    Value::from(fields).to_string()
}

#[test]
fn the_corpus_of_the_fuzz_target_upsets_no_decoder() {
    let corpus = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/fsp")).unwrap();
    let files: Vec<_> = corpus.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let is_read = |bytes: &&Vec<u8>| {
        let text = String::from_utf8_lossy(bytes);
        decode_client(&text, &Extensions::all()).is_ok()
            || decode_server(&text).is_ok()
            || Frame::decode(&Bytes::copy_from_slice(bytes)).is_some()
    };
    assert!(files.iter().filter(is_read).count() >= 10, "the corpus has gone stale");
    files.iter().for_each(|bytes| read_all(bytes));
}

proptest! {
    #[test]
    fn what_a_client_says_is_what_is_heard(message in client(), at_ms: u64) {
        let written = encode_client(&message, at_ms);
        prop_assert_eq!(decode_client(&written, &Extensions::all()), Ok(message));
    }

    #[test]
    fn what_a_sandbox_says_is_what_is_heard(message in server(), at_ms: u64) {
        prop_assert_eq!(decode_server(&encode_server(&message, at_ms)).unwrap(), message);
    }

    #[test]
    fn a_frame_is_what_it_was(frame in frame()) {
        prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
    }

    #[test]
    fn a_frame_cut_in_its_head_is_none(frame in frame(), cut: Index) {
        let head = 10 + frame.id.len();
        prop_assert_eq!(Frame::decode(&frame.encode().slice(..cut.index(head))), None);
    }

    #[test]
    fn unknown_fields_are_passed_over(heard in client(), said in server(), name in "[a-z]{1,8}") {
        let written = with_stranger(&encode_client(&heard, 0), &name);
        prop_assert_eq!(decode_client(&written, &Extensions::all()), Ok(heard));
        prop_assert_eq!(decode_server(&with_stranger(&encode_server(&said, 0), &name)).unwrap(), said);
    }

    #[test]
    fn the_envelope_is_demanded(message in client(), field in select(vec!["v", "type", "ts"])) {
        let refusal = decode_client(&without(&encode_client(&message, 0), field), &Extensions::all()).unwrap_err();
        prop_assert_eq!(refusal.code, ErrorCode::InvalidRequest);
    }

    #[test]
    fn a_plain_client_is_refused_what_it_did_not_ask_for(message in client()) {
        let plain = match &message {
            ClientMessage::Ping | ClientMessage::Cancel { .. } => true,
            ClientMessage::Execute(execute) => execute.extra == Extra::default(),
            _ => false,
        };
        let heard = decode_client(&encode_client(&message, 0), &Extensions::default());
        if plain {
            prop_assert_eq!(heard, Ok(message));
        } else {
            prop_assert_eq!(heard.unwrap_err().code, ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn no_bytes_upset_the_decoders(bytes in vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
    }

    #[test]
    fn no_damage_upsets_the_decoders(
        mut bytes in sent(),
        other in sent(),
        flips in vec((any::<Index>(), any::<u8>()), 0..4),
        cut: Index,
        graft: Index,
    ) {
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_all(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        read_all(&bytes);
        bytes.extend_from_slice(&other[graft.index(other.len())..]);
        read_all(&bytes);
    }
}
