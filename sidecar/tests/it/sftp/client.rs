//! A client that sends any packet and shows the answer, and the server it speaks to: the program, through pipes.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::program::PROGRAM;

/// Nobody's id on the machine.
pub(crate) const AGENT: u32 = 54_321;

pub(crate) const INIT: u8 = 1;
pub(crate) const OPEN: u8 = 3;
pub(crate) const CLOSE: u8 = 4;
pub(crate) const READ: u8 = 5;
pub(crate) const WRITE: u8 = 6;
pub(crate) const LSTAT: u8 = 7;
pub(crate) const FSTAT: u8 = 8;
pub(crate) const SETSTAT: u8 = 9;
pub(crate) const FSETSTAT: u8 = 10;
pub(crate) const OPENDIR: u8 = 11;
pub(crate) const READDIR: u8 = 12;
pub(crate) const REMOVE: u8 = 13;
pub(crate) const MKDIR: u8 = 14;
pub(crate) const RMDIR: u8 = 15;
pub(crate) const REALPATH: u8 = 16;
pub(crate) const STAT: u8 = 17;
pub(crate) const RENAME: u8 = 18;
pub(crate) const READLINK: u8 = 19;
pub(crate) const SYMLINK: u8 = 20;
pub(crate) const EXTENDED: u8 = 200;

/// The fields of a packet on its way out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn of(string: impl AsRef<[u8]>) -> Self {
        Self::default().string(string)
    }

    pub(crate) fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn string(self, string: impl AsRef<[u8]>) -> Self {
        let mut longer = self.number(string.as_ref().len() as u32);
        longer.0.extend(string.as_ref());
        longer
    }

    /// A whole packet of these fields.
    pub(crate) fn packet(&self, kind: u8, id: u32) -> Vec<u8> {
        let length = 5 + self.0.len() as u32;
        [&length.to_be_bytes()[..], &[kind], &id.to_be_bytes(), &self.0].concat()
    }
}

/// The fields of a packet that came.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub(crate) fn string(&mut self) -> &'a [u8] {
        let bytes = self.number() as usize;
        self.take(bytes)
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8(self.string().to_vec()).unwrap()
    }
}

/// What is told of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) size: u64,
    pub(crate) owner: (u32, u32),
    pub(crate) mode: u32,
    pub(crate) times: (u32, u32),
}

impl Stat {
    pub(crate) fn of(fields: &mut Fields<'_>) -> Self {
        assert_eq!(fields.number(), 0xf, "all that the version has");
        Self {
            size: fields.long(),
            owner: (fields.number(), fields.number()),
            mode: fields.number(),
            times: (fields.number(), fields.number()),
        }
    }
}

/// An answer: its type and what follows the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) u8, pub(crate) Vec<u8>);

impl Answer {
    /// Code and message of a status.
    pub(crate) fn status(&self) -> (u32, String) {
        assert_eq!(self.0, 101, "{self:?}");
        let mut fields = Fields(&self.1);
        (fields.number(), fields.text())
    }

    pub(crate) fn done(&self) {
        assert_eq!(self.status().0, 0, "{self:?}");
    }

    pub(crate) fn string_of(&self, kind: u8) -> &[u8] {
        assert_eq!(self.0, kind, "{:?}", self.status());
        Fields(&self.1).string()
    }

    pub(crate) fn handle(&self) -> Vec<u8> {
        self.string_of(102).to_vec()
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.string_of(103)
    }

    /// The one name.
    pub(crate) fn name(&self) -> String {
        assert_eq!(self.0, 104, "{:?}", self.status());
        let mut fields = Fields(&self.1);
        assert_eq!(fields.number(), 1);
        fields.text()
    }

    pub(crate) fn stat(&self) -> Stat {
        assert_eq!(self.0, 105, "{:?}", self.status());
        Stat::of(&mut Fields(&self.1))
    }
}

/// A server in a workspace of its own, and the client's ends of its pipes.
pub(crate) struct Client {
    pub(crate) directory: TempDir,
    child: Child,
    id: u32,
}

impl Client {
    /// One that has said its version.
    pub(crate) fn greeted() -> Self {
        let mut client = Self::silent(false);
        client.greet();
        client
    }

    /// The same to a server that is the agent, in a workspace that is the agent's; `None` where only root could.
    pub(crate) fn of_agent() -> Option<Self> {
        geteuid().is_root().then(|| {
            let mut client = Self::silent(true);
            client.greet();
            client
        })
    }

    /// One that has said nothing.
    pub(crate) fn silent(as_agent: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().join("workspace");
        std::fs::create_dir_all(directory.path().join("home")).unwrap();
        std::fs::create_dir(&workspace).unwrap();
        // The built program may lie where the agent may not look.
        let program = directory.path().join("program");
        std::fs::hard_link(PROGRAM, &program).or_else(|_| std::fs::copy(PROGRAM, &program).map(drop)).unwrap();
        let mut command = Command::new(&program);
        command.arg("serve-sftp").arg("--workspace").arg(&workspace).env_clear();
        command.env("HOME", directory.path().join("home"));
        if as_agent {
            chown(directory.path(), Some(AGENT), Some(AGENT)).unwrap();
            chown(&workspace, Some(AGENT), Some(AGENT)).unwrap();
            command.uid(AGENT).gid(AGENT);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), directory, id: 0 }
    }

    pub(crate) fn greet(&mut self) -> Vec<u8> {
        self.send(&Body::default().packet(INIT, 3));
        let (kind, rest) = self.receive();
        assert_eq!(kind, 2);
        rest
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace").canonicalize().unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The next packet's type, and the rest.
    pub(crate) fn receive(&mut self) -> (u8, Vec<u8>) {
        let stdout = self.child.stdout.as_mut().unwrap();
        let mut length = [0; 4];
        stdout.read_exact(&mut length).unwrap();
        let mut packet = vec![0; u32::from_be_bytes(length) as usize];
        stdout.read_exact(&mut packet).unwrap();
        (packet.remove(0), packet)
    }

    pub(crate) fn ask(&mut self, kind: u8, body: &Body) -> Answer {
        self.id += 1;
        self.send(&body.packet(kind, self.id));
        let (kind, rest) = self.receive();
        let (id, rest) = rest.split_at(4);
        assert_eq!(id, self.id.to_be_bytes());
        Answer(kind, rest.to_vec())
    }

    pub(crate) fn extended(&mut self, name: &str, body: &Body) -> Answer {
        let mut whole = Body::of(name);
        whole.0.extend(&body.0);
        self.ask(EXTENDED, &whole)
    }

    /// Opens a file, without attributes.
    pub(crate) fn open(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Answer {
        self.ask(OPEN, &Body::of(path).number(flags).number(0))
    }

    pub(crate) fn write(&mut self, handle: &[u8], offset: u64, data: &[u8]) -> Answer {
        self.ask(WRITE, &Body::of(handle).long(offset).string(data))
    }

    pub(crate) fn read(&mut self, handle: &[u8], offset: u64, bytes: u32) -> Answer {
        self.ask(READ, &Body::of(handle).long(offset).number(bytes))
    }

    /// Closes the server's input and waits for its end.
    pub(crate) fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        self.child.wait_with_output().unwrap()
    }
}
