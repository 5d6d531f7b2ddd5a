//! What clients' words mean here: user names, variables, sizes, signals.

use russh::Sig;
use sandbox_protocol::SandboxId;
use sandbox_protocol::channel::TerminalSize;
use sandbox_protocol::fsp::Signal;

/// Behind a sandbox's id in a user name: start it if it is stopped.
const RESUME: &str = "+resume";
/// A user name that may be a sandbox's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) sandbox: SandboxId,
    pub(crate) resume: bool,
}

impl User {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (id, resume) = name.strip_suffix(RESUME).map_or((name, false), |id| (id, true));
        Some(Self { sandbox: id.parse().ok()?, resume })
    }
}

/// Environment variables that a client may set: how it writes and shows text.
pub(crate) fn is_taken(name: &str) -> bool {
    let language = name == "LANG" || name.strip_prefix("LC_").is_some_and(|rest| !rest.is_empty());
    let shown = matches!(name, "COLORTERM" | "NO_COLOR" | "TZ" | "GIT_PROTOCOL");
    (language || shown) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A terminal's size; what is out of reason is unknown.
pub(crate) fn size(cols: u32, rows: u32, width_px: u32, height_px: u32) -> TerminalSize {
    let fitting = |value: u32| u16::try_from(value).unwrap_or_default();
    TerminalSize {
        cols: fitting(cols),
        rows: fitting(rows),
        width_px: fitting(width_px),
        height_px: fitting(height_px),
    }
}

/// A signal that a client may send.
pub(crate) fn sent(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::HUP => Signal::Hup,
        Sig::INT => Signal::Int,
        Sig::KILL => Signal::Kill,
        Sig::QUIT => Signal::Quit,
        Sig::TERM => Signal::Term,
        Sig::USR1 => Signal::Usr1,
        Sig::Custom(name) if name == "USR2" => Signal::Usr2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_sandbox_perhaps_to_be_resumed() {
        let sandbox: SandboxId = "sbx-1-2-0".parse().unwrap();
        assert_eq!(User::parse("sbx-1-2-0"), Some(User { sandbox, resume: false }));
        assert_eq!(User::parse("sbx-1-2-0+resume"), Some(User { sandbox, resume: true }));
        for name in ["", "root", "+resume", "sbx-1-2-0+", "sbx-1-2-0+resume+resume", "sbx-1-2"] {
            assert_eq!(User::parse(name), None, "{name}");
        }
    }

    #[test]
    fn variables_of_text_are_taken_and_those_of_loaders_are_not() {
        for name in ["LANG", "LC_ALL", "LC_X_1", "COLORTERM", "GIT_PROTOCOL"] {
            assert!(is_taken(name), "{name}");
        }
        for name in ["", "LC_", "LD_PRELOAD", "PATH", "BASH_ENV", "LC_A=B", "LANGUAGE\n", "SSH_AUTH_SOCK"] {
            assert!(!is_taken(name), "{name}");
        }
    }
}
