//! Which paths lead into a sandbox, whereto, and by what right. What is not in the table is not proxied.

use axum::http::{Method, Uri};
use sandbox_protocol::SandboxId;
use sandbox_protocol::session::Scope;
use sandbox_protocol::ticket::SidecarScope;
use sandbox_protocol::tunnel;

/// What all of them begin with; the sandbox's id follows.
pub(super) const BELOW: &str = "/sandboxes/";
const PORTS: &str = "ports";
/// Parameter of a sidecar's route that wakes a stopped sandbox. Programs inside have their queries to themselves.
const RESUME: &str = "resume";

/// What a sidecar serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Its path, by segments; `{…}` stands for any one.
    pub(super) pattern: &'static str,
    /// Methods that the sidecar knows there, for the document; the sidecar refuses others itself.
    pub(super) methods: &'static [Method],
    /// What a session must open.
    pub(super) scope: Scope,
    /// What the sidecar is shown.
    pub(super) ticket: SidecarScope,
    /// What a connection may become.
    pub(super) upgrade: Upgrade,
    /// In words.
    pub(super) what: &'static str,
}

/// What a connection may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// It stays HTTP.
    Never,
    /// One of these, whose bytes are passed on as they are.
    Bytes(&'static [&'static str]),
    /// A WebSocket of the execution protocol, in which what runs is followed.
    Executions,
}

const WEBSOCKET: &str = "websocket";

impl Upgrade {
    /// The protocols that may be asked for.
    pub(super) const fn protocols(self) -> &'static [&'static str] {
        match self {
            Self::Never => &[],
            Self::Bytes(protocols) => protocols,
            Self::Executions => &[WEBSOCKET],
        }
    }

    /// Whether it speaks WebSocket then.
    pub(super) fn is_websocket(protocol: &str) -> bool {
        protocol == WEBSOCKET
    }
}

const fn route(pattern: &'static str, methods: &'static [Method], what: &'static str) -> Route {
    let (scope, ticket) = (Scope::SandboxesExec, SidecarScope::Exec);
    Route { pattern, methods, scope, ticket, upgrade: Upgrade::Never, what }
}

const fn pty(pattern: &'static str, methods: &'static [Method], what: &'static str) -> Route {
    let upgrade = Upgrade::Bytes(&[WEBSOCKET]);
    Route { scope: Scope::SandboxesPty, ticket: SidecarScope::Pty, upgrade, ..route(pattern, methods, what) }
}

const fn files(pattern: &'static str, methods: &'static [Method], what: &'static str) -> Route {
    Route { scope: Scope::SandboxesFiles, ticket: SidecarScope::Files, ..route(pattern, methods, what) }
}

/// All of them.
pub(super) const ROUTES: &[Route] = &[
    Route {
        upgrade: Upgrade::Executions,
        ..route("fsp", &[Method::GET], "Executes code by the Fathom Sandbox Protocol, over a WebSocket")
    },
    route("exec", &[Method::GET, Method::POST], "Runs a command, or lists what runs and ran"),
    route("exec/{execution}", &[Method::GET, Method::DELETE], "Shows, follows or kills an execution"),
    pty("pty", &[Method::GET], "Opens a terminal, over a WebSocket"),
    pty("pty/{terminal}", &[Method::GET, Method::DELETE], "Views a terminal over a WebSocket, or ends it"),
    Route { upgrade: Upgrade::Never, ..pty("ptys", &[Method::GET], "Lists terminals") },
    files("files", &[Method::DELETE], "Removes a file or a directory"),
    files("files/content", &[Method::GET, Method::PUT], "Reads or writes a file"),
    files("files/list", &[Method::GET], "Lists a directory"),
    files("files/stat", &[Method::GET], "Tells about a file"),
    files("files/move", &[Method::POST], "Moves a file or a directory"),
    files("files/mkdir", &[Method::POST], "Makes a directory"),
    files("files/watch", &[Method::GET], "Follows changes of files, as server-sent events"),
    Route {
        scope: Scope::SandboxesPorts,
        upgrade: Upgrade::Bytes(&[tunnel::PROTOCOL, WEBSOCKET]),
        ..route("tcp/{port}", &[Method::GET], "Connects to a port inside, by `Upgrade: tcp` or over a WebSocket")
    },
    route("prompt", &[Method::POST], "Has the agent take one turn; answers when it is over, or with its events"),
    route("task", &[Method::POST], "Has the agent do a task; answers when it is over, or with its events"),
    route("runs", &[Method::GET], "Lists the agent's runs"),
    route("runs/{run}", &[Method::GET], "Tells where a run stands"),
    route("runs/{run}/events", &[Method::GET], "Follows a run, as server-sent events"),
    route("runs/{run}/cancel", &[Method::POST], "Has a run end"),
    route("runs/{run}/approvals/{call}", &[Method::POST], "Allows or denies a tool call that asks"),
    route("sessions", &[Method::GET], "Lists the agent's conversations"),
    route("sessions/{session}", &[Method::DELETE], "Forgets a conversation"),
    route("events", &[Method::GET], "Follows what happens inside, as server-sent events"),
];

/// Where a request leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) sandbox: SandboxId,
    pub(super) inside: Inside,
    /// Whether its query asks to wake the sandbox.
    pub(super) resumes: Resumes,
}

/// Whether a sandbox that is stopped is started for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumes {
    Yes,
    No,
}

/// What in a sandbox a request is for, with the path and query that it has there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Its sidecar.
    Sidecar(&'static Route, String),
    /// A program that listens at a port.
    Port(u16, String),
}

impl Target {
    /// The target of a path; `None` for one that leads nowhere.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let (id, rest) = uri.path().strip_prefix(BELOW)?.split_once('/')?;
        let sandbox = id.parse().ok()?;
        if let Some(route) = ROUTES.iter().find(|route| matches(route.pattern, rest)) {
            let (query, resumes) = asked(uri.query().unwrap_or_default());
            return Some(Self {
                sandbox,
                inside: Inside::Sidecar(route, with_query(&format!("/{rest}"), &query)),
                resumes,
            });
        }
        let behind = rest.strip_prefix(PORTS)?.strip_prefix('/')?;
        let (port, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        let port = port.parse().ok().filter(|number: &u16| *number != 0 && number.to_string() == port)?;
        let path = with_query(if path.is_empty() { "/" } else { path }, uri.query().unwrap_or_default());
        Some(Self { sandbox, inside: Inside::Port(port, path), resumes: Resumes::No })
    }

    /// The path below which a program's own paths are.
    pub(super) fn prefix(&self, port: u16) -> String {
        format!("{BELOW}{}/{PORTS}/{port}", self.sandbox)
    }
}

impl Inside {
    /// What a session must open.
    pub(super) const fn scope(&self) -> Scope {
        match self {
            Self::Sidecar(route, _) => route.scope,
            Self::Port(..) => Scope::SandboxesPorts,
        }
    }

    /// What a connection may become.
    pub(super) const fn upgrade(&self) -> Upgrade {
        match self {
            Self::Sidecar(route, _) => route.upgrade,
            Self::Port(..) => Upgrade::Bytes(&[WEBSOCKET]),
        }
    }

    /// Whether a request is answered by work that takes as long as its answer, and so is use of the sandbox when
    /// nothing passes.
    pub(super) fn is_work(&self, method: &Method) -> bool {
        const WORK: [&str; 3] = ["exec", "prompt", "task"];
        matches!(self, Self::Sidecar(route, _) if WORK.contains(&route.pattern) && method == Method::POST)
    }

    /// For the log: no text of the caller's.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Sidecar(route, _) => route.pattern.to_owned(),
            Self::Port(port, _) => format!("{PORTS}/{port}"),
        }
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let fits = pattern.split('/').all(|wanted| match segments.next() {
        Some(found) if wanted.starts_with('{') => !matches!(found, "" | "." | ".."),
        Some(found) => found == wanted,
        None => false,
    });
    fits && segments.next().is_none()
}

/// A query without the parameter that is for the operator, and what that says.
fn asked(query: &str) -> (String, Resumes) {
    let is_ours = |pair: &&str| pair.split('=').next() == Some(RESUME);
    let (ours, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_ours);
    let resumes = if ours.contains(&"resume=true") { Resumes::Yes } else { Resumes::No };
    (others.join("&"), resumes)
}

fn with_query(path: &str, query: &str) -> String {
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Option<(String, String, Resumes)> {
        let target = Target::of(&uri.parse().unwrap())?;
        assert_eq!(target.sandbox.to_string(), "sbx-7-1-0");
        let (Inside::Sidecar(_, path) | Inside::Port(_, path)) = &target.inside;
        Some((target.inside.name(), path.clone(), target.resumes))
    }

    fn check(path: &str, name: &str, inside: &str) {
        let found = target(&format!("/sandboxes/sbx-7-1-0/{path}"));
        assert_eq!(found, Some((name.to_owned(), inside.to_owned(), Resumes::No)), "{path}");
    }

    #[test]
    fn what_is_in_the_table_keeps_its_path_and_query_inside() {
        check("fsp", "fsp", "/fsp");
        check("exec?wait=1", "exec", "/exec?wait=1");
        check("exec/a%2Fb", "exec/{execution}", "/exec/a%2Fb");
        check("pty?cols=80&command=a%20b", "pty", "/pty?cols=80&command=a%20b");
        check("pty/p1", "pty/{terminal}", "/pty/p1");
        check("ptys", "ptys", "/ptys");
        check("files?path=a", "files", "/files?path=a");
        check("files/content?path=..%2f..", "files/content", "/files/content?path=..%2f..");
        check("tcp/80", "tcp/{port}", "/tcp/80");
        check("events", "events", "/events");
        check("prompt", "prompt", "/prompt");
        check("task", "task", "/task");
        check("runs", "runs", "/runs");
        check("runs/r1", "runs/{run}", "/runs/r1");
        check("runs/r1/events?after=3", "runs/{run}/events", "/runs/r1/events?after=3");
        check("runs/r1/cancel", "runs/{run}/cancel", "/runs/r1/cancel");
        check("runs/r1/approvals/c%201", "runs/{run}/approvals/{call}", "/runs/r1/approvals/c%201");
        check("sessions", "sessions", "/sessions");
        check("sessions/s1", "sessions/{session}", "/sessions/s1");
    }

    #[test]
    fn a_port_has_every_path_below_it() {
        check("ports/8080", "ports/8080", "/");
        check("ports/8080/", "ports/8080", "/");
        check("ports/8080?a=b", "ports/8080", "/?a=b");
        check("ports/1/a//b/../c%20?resume=true", "ports/1", "/a//b/../c%20?resume=true");
        check("ports/65535/@vite/client", "ports/65535", "/@vite/client");
    }

    #[test]
    fn nothing_else_leads_anywhere() {
        for path in [
            "",
            "snapshot",
            "health",
            "fsp/",
            "fsp/x",
            "exec/",
            "exec/..",
            "exec/.",
            "exec/a/b",
            "pty/p1/x",
            "files/",
            "files/other",
            "files/content/x",
            "negotiate",
            "prompt/r1",
            "runs/r1/other",
            "runs/r1/approvals",
            "runs/r1/approvals/c1/x",
            "sessions/s1/x",
            "tcp",
            "tcp/",
            "ports",
            "ports/",
            "ports/x",
            "ports/0",
            "ports/65536",
            "ports/080",
            "ports/+80",
            "ports/8 0",
        ] {
            let Ok(uri) = format!("/sandboxes/sbx-7-1-0/{path}").parse() else { continue };
            assert_eq!(Target::of(&uri), None, "{path}");
        }
        for path in ["/sandboxes/sbx-7-1/fsp", "/sandboxes//fsp", "/sandboxes/sbx-7-1-0", "/v1/sandboxes/sbx-7-1-0/fsp"]
        {
            assert_eq!(Target::of(&path.parse().unwrap()), None, "{path}");
        }
    }

    #[test]
    fn what_takes_as_long_as_its_answer_is_work() {
        let is_work = |path: &str, method: Method| {
            let target = Target::of(&format!("/sandboxes/sbx-7-1-0/{path}").parse().unwrap()).unwrap();
            target.inside.is_work(&method)
        };
        for path in ["exec", "prompt", "task"] {
            assert!(is_work(path, Method::POST) && !is_work(path, Method::GET), "{path}");
        }
        assert!(!is_work("runs/r1/cancel", Method::POST) && !is_work("ports/80/task", Method::POST));
    }

    #[test]
    fn a_query_wakes_a_sandbox_by_one_word_that_is_not_passed_on() {
        let found = |query: &str| target(&format!("/sandboxes/sbx-7-1-0/exec{query}")).unwrap();
        let exec = |path: &str, resumes| ("exec".to_owned(), path.to_owned(), resumes);
        assert_eq!(found("?resume=true"), exec("/exec", Resumes::Yes));
        assert_eq!(found("?a=1&resume=true&b=2"), exec("/exec?a=1&b=2", Resumes::Yes));
        assert_eq!(found("?resume=false&a=1"), exec("/exec?a=1", Resumes::No));
        assert_eq!(found("?resumed=true"), exec("/exec?resumed=true", Resumes::No));
    }
}
