//! The closed sets of names.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A language in which code is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// CPython 3.
    Python,
    /// Node.js.
    Javascript,
    /// `/bin/sh`.
    Shell,
    /// Elixir.
    Elixir,
}

/// One of the two streams that a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A signal that a client may have sent to an execution's process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// Hang-up.
    Hup,
    /// Interrupt, as by Ctrl-C.
    Int,
    /// Quit, as by Ctrl-\.
    Quit,
    /// End at once.
    Kill,
    /// The first of the program's own.
    Usr1,
    /// The second of the program's own.
    Usr2,
    /// End, please.
    Term,
    /// Go on.
    Cont,
    /// Hold still.
    Stop,
}

/// What goes beyond version 1, by a client's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extension {
    /// Messages of an execution have contiguous numbers from 1; executions outlive the connection, and are attached to,
    /// detached from and replayed by id. What is not kept any more is announced by `gap`.
    Replay,
    /// Output is sent only within the bytes that a client grants.
    Credit,
    /// Output comes, and stdin goes, as binary frames.
    Binary,
    /// Stdin is streamed, within the bytes that the sandbox grants.
    Stdin,
    /// Signals are sent, and `result` tells the one that ended the program.
    Signal,
    /// An execution runs in a directory of the sandbox instead of a fresh one.
    Cwd,
}

/// A set of extensions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extensions(BTreeSet<Extension>);

/// A name that is none of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such name")]
pub struct Unnamed;

/// The two ways between a closed set and its names.
macro_rules! named {
    ($kind:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As it is written.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl FromStr for $kind {
            type Err = Unnamed;

            fn from_str(text: &str) -> Result<Self, Unnamed> {
                Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or(Unnamed)
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(Language { Python = "python", Javascript = "javascript", Shell = "shell", Elixir = "elixir" });
named!(Stream { Stdout = "stdout", Stderr = "stderr" });
named!(Signal {
    Hup = "HUP",
    Int = "INT",
    Quit = "QUIT",
    Kill = "KILL",
    Usr1 = "USR1",
    Usr2 = "USR2",
    Term = "TERM",
    Cont = "CONT",
    Stop = "STOP",
});
named!(Extension {
    Replay = "replay",
    Credit = "credit",
    Binary = "binary",
    Stdin = "stdin",
    Signal = "signal",
    Cwd = "cwd",
});

impl Extensions {
    /// All there are.
    pub fn all() -> Self {
        Extension::ALL.iter().copied().collect()
    }

    /// Those of a header that are known; others are passed over, as a sandbox of another release would.
    pub fn from_header(text: &str) -> Self {
        text.split(',').filter_map(|name| name.trim().parse().ok()).collect()
    }

    /// As a header's value; empty where there are none.
    pub fn to_header(&self) -> String {
        self.0.iter().map(|extension| extension.name()).collect::<Vec<_>>().join(", ")
    }

    /// Whether this one is among them.
    pub fn has(&self, extension: Extension) -> bool {
        self.0.contains(&extension)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        Self(extensions.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_what_is_known_of_it() {
        let some = Extensions::from_header(" replay,teleport ,binary,, replay");
        assert_eq!(some, [Extension::Binary, Extension::Replay].into_iter().collect());
        assert_eq!(some.to_header(), "replay, binary");
        assert_eq!(Extensions::from_header(&Extensions::all().to_header()), Extensions::all());
        assert!(Extensions::from_header("").is_empty());
    }

    #[test]
    fn json_has_the_same_names() {
        fn check<T: Serialize + Copy>(all: &[T], name: impl Fn(T) -> &'static str) {
            for kind in all {
                assert_eq!(serde_json::to_value(kind).unwrap(), name(*kind));
            }
        }
        check(Language::ALL, Language::name);
        check(Stream::ALL, Stream::name);
        check(Signal::ALL, Signal::name);
        check(Extension::ALL, Extension::name);
    }
}
