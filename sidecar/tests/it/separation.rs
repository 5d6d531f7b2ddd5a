//! What a command in a real container can reach of the sidecar: nothing.

use hyper::{Method, StatusCode};

use crate::contained::Contained;
use crate::harness::{TOKEN, lives, send};

/// The processes of others, which are the sidecar's: an init, the sidecar, its supervisors.
const OTHERS: &str =
    "for p in /proc/[0-9]*; do [ $(stat -c %u $p 2> /dev/null || echo 1000) = 0 ] && echo ${p#/proc/}; done";

#[tokio::test]
async fn nothing_of_the_sidecars_processes_can_be_read_or_signalled() {
    let Some(contained) = Contained::start("nothing_of_the_sidecars_processes_can_be_read_or_signalled").await else {
        return;
    };
    let others: Vec<_> = contained.sh(OTHERS).await.lines().map(str::to_owned).collect();
    assert!(others.len() >= 2 && others.contains(&"1".to_owned()), "{others:?}");
    for attempt in [
        "cat /proc/$p/environ",
        "head -c 1 /proc/$p/mem",
        "cat /proc/$p/maps",
        "ls /proc/$p/fd/",
        "readlink /proc/$p/exe",
        "ls /proc/$p/root/",
        "kill -KILL $p",
        "kill -STOP $p",
        "kill -TERM $p",
        "echo 1000 > /proc/$p/oom_score_adj",
    ] {
        let done = contained.sh(&format!("for p in $({OTHERS}); do {attempt} && echo did; done 2> /dev/null")).await;
        assert_eq!(done, "", "{attempt}");
    }
    assert!(lives(&contained.process().to_string()));
}

#[tokio::test]
async fn the_token_is_found_nowhere() {
    let Some(contained) = Contained::start("the_token_is_found_nowhere").await else { return };
    // The worker for files is the agent's own and is searched as well.
    let target = "/files/stat?path=";
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    let (status, _) = send(&contained.socket(), Method::GET, target, &headers, Vec::new()).await;
    assert_eq!(status, StatusCode::OK);
    let (first, last) = TOKEN.split_at(3);
    let search = |paths: &str| format!("printf '%s%s' {first} {last} | grep -asl -f - {paths} 2> /dev/null; true");
    // The search finds what is there.
    assert_eq!(
        contained.sh(&format!("printf '%s%s' {first} {last} > /tmp/told; {}; rm /tmp/told", search("-r /tmp"))).await,
        "/tmp/told\n"
    );
    assert_eq!(contained.sh(&search("/proc/[0-9]*/environ /proc/[0-9]*/cmdline")).await, "");
    assert_eq!(contained.sh(&search("-r /run /tmp /home /workspace /etc/hostname /dev/shm")).await, "");
}

#[tokio::test]
async fn its_doors_are_closed_to_who_has_no_token() {
    let Some(contained) = Contained::start("its_doors_are_closed_to_who_has_no_token").await else { return };
    assert_eq!(
        contained.sh("[ -r /run/sandbox/s.sock ] || [ -w /run/sandbox/s.sock ] || echo closed").await,
        "closed\n"
    );
    for (request, status) in [
        ("POST /exec", "401"),
        ("GET /files/list", "401"),
        ("GET /snapshot?workspace=true", "401"),
        ("GET /events", "401"),
        ("GET /health", "200"),
    ] {
        let command = format!(
            "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080; printf \"{request} HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 0\\r\\n\\r\\n\" >&3; read -r version status rest <&3; echo $status'"
        );
        assert_eq!(contained.sh(&command).await, format!("{status}\n"), "{request}");
    }
}

#[tokio::test]
async fn what_everybody_uses_stays_the_sidecars() {
    let Some(contained) = Contained::start("what_everybody_uses_stays_the_sidecars").await else { return };
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str())];
    for target in ["/snapshot?workspace=true", "/files/list"] {
        let (status, _) = send(&contained.socket(), Method::GET, target, &headers, Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{target}");
    }
    assert_eq!(
        contained.sh("stat -c '%u %a' /dev/null /dev/zero; chmod 0 /dev/null 2> /tmp/why || echo kept").await,
        "0 666\n0 666\nkept\n"
    );
}

#[tokio::test]
async fn a_command_can_write_to_its_own_places_only() {
    let Some(contained) = Contained::start("a_command_can_write_to_its_own_places_only").await else { return };
    let found = contained
        .sh("find / -path /proc -prune -o -path /sys -prune -o \\( -type d -o -type f -o -type s \\) -writable -print 2> /dev/null")
        .await;
    let own = ["/tmp", "/workspace", "/home/agent", "/dev/shm", "/dev/mqueue", "/var/tmp", "/var/lock", "/run/lock"];
    let mut others = found.lines().filter(|path| !own.contains(path));
    assert_eq!(others.next(), None);
    // Those of the image that everybody may write lie on a file system that nobody may.
    let made =
        contained.sh("for d in /var/tmp /run/lock /var/lock; do touch $d/x 2> /dev/null && echo $d; done; true").await;
    assert_eq!(made, "");
}
