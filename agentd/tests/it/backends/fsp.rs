//! Programs that a real sidecar starts.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sandbox_agentd::backends::{FspPrograms, Heard, Launch, PROGRAM_EXTENSIONS, Program, Programs};
use sandbox_fsp::{Endpoint, Pool, PoolSettings, UnixSocket};
use sandbox_sidecar::channel::{self, Channels};
use sandbox_sidecar::events::Events;
use sandbox_sidecar::exec::Engine;
use sandbox_sidecar::files::{self, Files};
use sandbox_sidecar::fsp::Sessions;
use sandbox_sidecar::http::{Doorway, Served, SocketFile, Streams, Token, Upgraded, doorway, open_socket, router};
use sandbox_sidecar::pty::{self, Terminals};
use sandbox_sidecar::snapshot::{Settings, Snapshots};
use sandbox_sidecar::tunnel::Tunnels;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::stage::PATIENCE;

/// A sidecar whose commands run as the test's own user.
struct Sidecar {
    programs: FspPrograms,
    engine: Engine,
    directory: TempDir,
    _doorway: Doorway,
    _file: SocketFile,
}

impl Sidecar {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, stop, identity) = (directory.path().join("workspace"), CancellationToken::new(), None);
        std::fs::create_dir(&workspace).unwrap();
        let (home, program) = (directory.path().join("home"), directory.path().join("not-used"));
        let (events, environment) = (Events::new(SystemTime::now()), BTreeMap::new());
        let engine = Engine::with_environment(&workspace, identity, environment.clone(), events.clone());
        let terminals =
            pty::Settings { workspace: workspace.clone(), identity, environment: environment.clone(), keep: PATIENCE };
        let channels = channel::Settings {
            program: program.clone(),
            workspace: workspace.clone(),
            identity,
            environment,
            shell: "/bin/sh".into(),
            reserved: [].into(),
            bounds: channel::Bounds::default(),
        };
        let streams = Streams {
            terminals: Terminals::new(terminals, events.clone()),
            tunnels: Tunnels::new([]),
            channels: Channels::new(channels),
            events,
            upgraded: Upgraded::new(stop.clone()),
        };
        let files = Files::new(files::Settings {
            program: program.clone(),
            served: files::Served { workspace: workspace.clone(), home: home.clone() },
            identity,
            idle_max: PATIENCE,
            answer_max: PATIENCE,
            stop: stop.clone(),
        });
        let snapshots = Snapshots::new(Settings { program, workspace, home, identity, stop: stop.clone() });
        let served = Served {
            engine: engine.clone(),
            sessions: Sessions::new(engine.clone()),
            files,
            snapshots,
            streams,
            agents: None,
        };
        let doorway = doorway(router(served, Token::new("secret").unwrap()), stop);
        let socket = directory.path().join("sidecar.sock");
        let (listener, file) = open_socket(&socket).unwrap();
        doorway.serve(listener);
        let wanted = PROGRAM_EXTENSIONS.into_iter().collect();
        let endpoint = Endpoint::new(UnixSocket::new(socket), sandbox_fsp::Token::fixed("secret"), wanted);
        let programs = FspPrograms::new(Pool::new(endpoint, PoolSettings::default()));
        Self { programs, engine, directory, _doorway: doorway, _file: file }
    }

    async fn start_program(&self, id: &str, code: &str) -> Box<dyn Program> {
        let argv = ["sh", "-c", code].map(str::to_owned).to_vec();
        let env = BTreeMap::from([("GIVEN".to_owned(), "it's given".to_owned())]);
        let cwd = self.directory.path().join("workspace");
        // Longer than a command that is waited for may take.
        let time_max = Duration::from_secs(900);
        self.programs.start(Launch { id: id.to_owned(), argv, env, cwd, time_max }).await.unwrap()
    }

    /// Waits until nothing runs.
    async fn idle(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while self.engine.load().active_executions > 0 {
            ticks.tick().await;
        }
    }
}

/// All that it does, with its output joined.
async fn heard(program: &mut dyn Program) -> (String, String, Option<i32>) {
    let (mut out, mut err) = (String::new(), String::new());
    loop {
        match program.next().await.unwrap() {
            Heard::Out(bytes) => out.push_str(std::str::from_utf8(&bytes).unwrap()),
            Heard::Err(bytes) => err.push_str(std::str::from_utf8(&bytes).unwrap()),
            Heard::Ended(ended) => return (out, err, ended.exit_code),
        }
    }
}

#[tokio::test]
async fn a_program_is_told_and_heard_until_its_end() {
    let sidecar = Sidecar::start();
    let mut program = sidecar.start_program("p", r#"read first; echo "$first, $GIVEN"; cat >&2; exit 7"#).await;
    program.say(Bytes::from("one\n"), false).await.unwrap();
    assert_eq!(program.next().await.unwrap(), Heard::Out(Bytes::from("one, it's given\n")));
    program.say(Bytes::from("two\n"), true).await.unwrap();
    assert_eq!(heard(&mut *program).await, (String::new(), "two\n".to_owned(), Some(7)));
}

#[tokio::test]
async fn a_program_that_is_ended_dropped_or_ended_by_its_id_is_gone_with_all_it_started() {
    let sidecar = Sidecar::start();
    for way in ["end", "drop", "id"] {
        let mut program = sidecar.start_program(way, "setsid sleep 600 & echo begun; sleep 600").await;
        assert_eq!(program.next().await.unwrap(), Heard::Out(Bytes::from("begun\n")));
        match way {
            "end" => program.end().await.unwrap(),
            "drop" => {
                drop(program);
                tokio::time::timeout(PATIENCE, sidecar.idle()).await.unwrap();
                continue;
            }
            _ => sidecar.programs.end(way).await.unwrap(),
        }
        assert_eq!(heard(&mut *program).await.2, None, "{way}");
        tokio::time::timeout(PATIENCE, sidecar.idle()).await.unwrap();
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_ends_as_a_shell_says_it() {
    let sidecar = Sidecar::start();
    let argv = vec!["no-such-program".to_owned()];
    let cwd = sidecar.directory.path().to_owned();
    let launch = Launch { id: "p".to_owned(), argv, env: BTreeMap::new(), cwd, time_max: PATIENCE };
    let mut program = sidecar.programs.start(launch).await.unwrap();
    assert_eq!(heard(&mut *program).await.2, Some(127));
}
