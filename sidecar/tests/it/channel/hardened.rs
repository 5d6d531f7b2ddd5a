//! Channels into a real container, whose sidecar has few of root's rights.

use std::path::PathBuf;

use sandbox_protocol::channel::{Arrival, LISTEN_PROTOCOL, PATH_HEADER, Program, Start, ToProgram};
use sandbox_protocol::fsp::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::client::{Channel, command, ended_by, exited, in_terminal, opened};
use crate::contained::Contained;

#[tokio::test]
async fn programs_and_terminals_work_and_end_in_a_hardened_container() {
    let name = "programs_and_terminals_work_and_end_in_a_hardened_container";
    let Some(contained) = Contained::start(name).await else { return };
    let socket = contained.socket();
    let mut channel = Channel::start_at(&socket, command("id -un; pwd; echo $HOME; head -c 8M /dev/zero >&2")).await;
    assert_eq!(channel.end().await, exited(0));
    assert_eq!((channel.shown().0, channel.stderr.len()), ("agent\n/workspace\n/home/agent\n", 8 << 20));
    let shell = in_terminal(Start { program: Program::Shell, ..command("") }, &[]);
    let mut channel = Channel::start_at(&socket, shell).await;
    channel.type_in("tty; stty size; sh -c 'echo began-$((1 + 1)); exec sleep 1000'\n").await;
    channel.until("/dev/pts/").await;
    channel.until("40 100").await;
    channel.until("began-2").await;
    channel.say(ToProgram::Signal(Signal::Int)).await;
    channel.type_in("exit 3\n").await;
    assert_eq!(channel.end().await, exited(3));
    let mut channel = Channel::start_at(&socket, command("(setsid sleep 1000 &); echo ready; exec sleep 1000")).await;
    channel.until("ready").await;
    channel.say(ToProgram::End).await;
    assert_eq!(channel.end().await, ended_by(9));
    assert_eq!(contained.sh("grep -l ^sleep /proc/[0-9]*/cmdline | wc -l").await, "0\n");
}

#[tokio::test]
async fn a_private_socket_is_the_agents_in_a_hardened_container() {
    let Some(contained) = Contained::start("a_private_socket_is_the_agents_in_a_hardened_container").await else {
        return;
    };
    let socket = contained.socket();
    let (mut listening, headers) = opened(&socket, "/listen?private=true", LISTEN_PROTOCOL).await.unwrap();
    let path = percent_encoding::percent_decode_str(headers[PATH_HEADER].to_str().unwrap()).decode_utf8().unwrap();
    let directory = PathBuf::from(&*path).parent().unwrap().display().to_string();
    assert_eq!(contained.sh(&format!("stat -c '%U %a' {directory} {path}")).await, "agent 700\nagent 600\n");
    // An operator that connects there, itself as the agent, arrives at itself.
    let target =
        format!("/unix?path={}", percent_encoding::percent_encode(path.as_bytes(), percent_encoding::NON_ALPHANUMERIC));
    let (mut one, _) = opened(&socket, &target, "tcp").await.unwrap();
    let mut arrival = [0; Arrival::BYTES];
    listening.read_exact(&mut arrival).await.unwrap();
    let target = format!("/accepted/{}", Arrival::decode(arrival).id);
    let (mut other, _) = opened(&socket, &target, "tcp").await.unwrap();
    one.write_all(b"hello").await.unwrap();
    one.shutdown().await.unwrap();
    let mut got = String::new();
    other.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "hello");
    drop(listening);
    contained.sh(&format!("while [ -e {directory} ]; do sleep 0.01; done")).await;
}
