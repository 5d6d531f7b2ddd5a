//! `POST /exec` as an order: a shell command in a directory of the sandbox.

use std::path::Path;

use bytes::Bytes;
use sandbox_protocol::exec::ExecBody;
use sandbox_protocol::fsp::{Language, is_execution_id};
use sandbox_protocol::limits::{EXEC_OUTPUT_BYTES_MAX, EXEC_TIMEOUT_MS_DEFAULT, FSP_OUTPUT_BYTES_MAX};

use super::order::{
    Invalid, Limits, Order, OutputLimit, Place, checked_code, checked_directory, checked_env, checked_timeout,
};

/// What a request asks the registry for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Start, or attach where the id is known.
    Start,
    /// Attach, never start.
    AttachOnly,
}

/// How the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Whole, when there is one: the first bytes of each stream.
    Whole,
    /// As it comes.
    Streamed,
    /// Not now: it goes on alone and is asked for by its id.
    Detached,
}

/// An order with the name it goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The caller's id, or `None` to have one made.
    pub id: Option<String>,
    /// Start or attach.
    pub mode: Mode,
    /// What to run.
    pub order: Order,
}

impl Named {
    /// Checks `body`; relative directories start at `workspace`.
    ///
    /// # Errors
    /// The first field that is not what its description demands.
    pub fn parse(body: ExecBody, manner: Manner, workspace: &Path) -> Result<Self, Invalid> {
        let ExecBody { id, command, cwd, env, stdin, timeout_ms, attach_only, detach: _ } = body;
        if id.as_deref().is_some_and(|id| !is_execution_id(id)) {
            return Err(Invalid::Id);
        }
        let mode = if attach_only { Mode::AttachOnly } else { Mode::Start };
        if mode == Mode::AttachOnly && id.is_none() {
            return Err(Invalid::AttachWithoutId);
        }
        let place = Place::In(checked_directory(cwd, workspace)?);
        let output = match manner {
            Manner::Whole => OutputLimit::Cut(EXEC_OUTPUT_BYTES_MAX as u64),
            Manner::Streamed | Manner::Detached => OutputLimit::End(FSP_OUTPUT_BYTES_MAX),
        };
        let order = Order {
            language: Language::Shell,
            code: checked_code("command", command, Language::Shell, &place)?,
            place,
            env: checked_env(env)?,
            stdin: Bytes::from(stdin.0),
            stream_stdin: false,
            limits: Limits::of_command(
                checked_timeout(timeout_ms, manner == Manner::Detached, EXEC_TIMEOUT_MS_DEFAULT)?,
                output,
            ),
        };
        Ok(Self { id, mode, order })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use sandbox_protocol::exec::ByteText;
    use sandbox_protocol::limits::{
        ENV_VAR_BYTES_MAX, ENV_VARS_MAX, EXEC_COMMAND_BYTES_MAX, EXEC_CWD_BYTES_MAX, EXEC_DETACHED_TIMEOUT_MS_MAX,
        EXEC_ID_BYTES_MAX, EXEC_TIMEOUT_MS_MAX,
    };

    use super::*;

    fn body() -> ExecBody {
        ExecBody {
            id: None,
            command: "true".to_owned(),
            cwd: String::new(),
            env: BTreeMap::new(),
            stdin: ByteText::default(),
            timeout_ms: 0,
            attach_only: false,
            detach: false,
        }
    }

    fn parse(change: impl FnOnce(&mut ExecBody)) -> Result<Named, Invalid> {
        let mut body = body();
        change(&mut body);
        Named::parse(body, Manner::Whole, Path::new("/workspace"))
    }

    /// `fits` is accepted, `exceeds` is not.
    fn check_bound(fits: impl FnOnce(&mut ExecBody), exceeds: impl FnOnce(&mut ExecBody)) {
        parse(fits).unwrap();
        parse(exceeds).unwrap_err();
    }

    fn variables(count: usize) -> BTreeMap<String, String> {
        (0..count).map(|index| (format!("V{index}"), String::new())).collect()
    }

    #[test]
    fn every_bound_holds_on_both_sides() {
        check_bound(
            |body| body.id = Some("i".repeat(EXEC_ID_BYTES_MAX)),
            |body| body.id = Some("i".repeat(EXEC_ID_BYTES_MAX + 1)),
        );
        check_bound(
            |body| body.command = "c".repeat(EXEC_COMMAND_BYTES_MAX),
            |body| body.command = "c".repeat(EXEC_COMMAND_BYTES_MAX + 1),
        );
        check_bound(
            |body| body.cwd = "d".repeat(EXEC_CWD_BYTES_MAX),
            |body| body.cwd = "d".repeat(EXEC_CWD_BYTES_MAX + 1),
        );
        check_bound(|body| body.env = variables(ENV_VARS_MAX), |body| body.env = variables(ENV_VARS_MAX + 1));
        check_bound(
            |body| drop(body.env.insert("A".into(), "v".repeat(ENV_VAR_BYTES_MAX - 1))),
            |body| drop(body.env.insert("A".into(), "v".repeat(ENV_VAR_BYTES_MAX))),
        );
        check_bound(|body| body.timeout_ms = EXEC_TIMEOUT_MS_MAX, |body| body.timeout_ms = EXEC_TIMEOUT_MS_MAX + 1);
    }

    #[test]
    fn a_timeout_of_zero_is_the_default() {
        let named = parse(|_| {}).unwrap();
        assert_eq!(named.order.limits.timeout, Duration::from_millis(EXEC_TIMEOUT_MS_DEFAULT));
    }

    #[test]
    fn what_goes_on_alone_may_take_longer() {
        let alone = |timeout_ms| {
            let body = ExecBody { timeout_ms, detach: true, ..body() };
            Named::parse(body, Manner::Detached, Path::new("/")).map(|named| named.order.limits.timeout)
        };
        let most = Duration::from_millis(EXEC_DETACHED_TIMEOUT_MS_MAX);
        assert_eq!((alone(0), alone(EXEC_DETACHED_TIMEOUT_MS_MAX)), (Ok(most), Ok(most)));
        alone(EXEC_DETACHED_TIMEOUT_MS_MAX + 1).unwrap_err();
    }

    #[test]
    fn an_id_is_printable_and_not_empty() {
        for id in ["", "two words", "line\n", "naïve", "nul\0"] {
            assert_eq!(parse(|body| body.id = Some(id.to_owned())), Err(Invalid::Id), "{id:?}");
        }
        parse(|body| body.id = Some("exec/1/2".to_owned())).unwrap();
    }

    #[test]
    fn attaching_needs_an_id() {
        assert_eq!(parse(|body| body.attach_only = true), Err(Invalid::AttachWithoutId));
    }

    #[test]
    fn nul_and_emptiness_are_refused() {
        assert_eq!(parse(|body| body.command = " \n".into()), Err(Invalid::Empty { field: "command" }));
        assert_eq!(parse(|body| body.command = "a\0b".into()), Err(Invalid::Nul { field: "command" }));
        assert_eq!(parse(|body| body.cwd = "a\0b".into()), Err(Invalid::Nul { field: "cwd" }));
        for (name, value) in [("A\0", ""), ("A", "\0")] {
            let result = parse(|body| drop(body.env.insert(name.into(), value.into())));
            assert_eq!(result, Err(Invalid::Nul { field: "env" }));
        }
        for name in ["", "A=B"] {
            let result = parse(|body| drop(body.env.insert(name.into(), "v".into())));
            assert_eq!(result, Err(Invalid::EnvName { name: name.into() }));
        }
    }

    #[test]
    fn a_directory_is_taken_from_the_workspace() {
        for (cwd, expected) in [
            ("", "/workspace"),
            (".", "/workspace"),
            ("a/b", "/workspace/a/b"),
            ("./a//b/", "/workspace/a/b"),
            ("/tmp", "/tmp"),
            ("/", "/"),
            ("proc", "/workspace/proc"),
            ("/process", "/process"),
        ] {
            assert_eq!(parse(|body| body.cwd = cwd.into()).unwrap().order.place, Place::In(expected.into()), "{cwd:?}");
        }
    }

    #[test]
    fn a_directory_that_climbs_or_belongs_to_the_kernel_is_refused() {
        for cwd in [
            "..",
            "a/../..",
            "/tmp/..",
            "/proc",
            "/proc/self/fd/7",
            "//proc/1/root",
            "/./proc/self/cwd",
            "/sys",
            "/dev/fd/3",
        ] {
            assert_eq!(parse(|body| body.cwd = cwd.into()), Err(Invalid::Directory), "{cwd:?}");
        }
    }

    #[test]
    fn a_fingerprint_tells_requests_apart_and_not_their_ids() {
        let hasher = std::hash::RandomState::new();
        let of = |named: Named| named.order.fingerprint(&hasher);
        let plain = of(parse(|_| {}).unwrap());
        assert_eq!(plain, of(parse(|body| body.id = Some("other".into())).unwrap()));
        for named in [
            parse(|body| body.command = "false".into()),
            parse(|body| body.cwd = "a".into()),
            parse(|body| body.stdin = ByteText(vec![0])),
            parse(|body| body.timeout_ms = 1),
            parse(|body| drop(body.env.insert("A".into(), String::new()))),
        ] {
            assert_ne!(plain, of(named.unwrap()));
        }
    }
}
