//! By which program code of a language is run, and how it is handed over.

use std::env::split_paths;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use sandbox_protocol::fsp::Language;

/// Where programs are looked for. What `pip install --user` and the like put there comes first, as it does for a person
/// who logs in.
pub(super) const PATH: &str = "/home/agent/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How a language's programs are called.
struct Runner {
    program: &'static str,
    /// Before code that is an argument.
    inline: &'static str,
    /// Name of the file that code is in otherwise.
    file: &'static str,
}

const fn runner(language: Language) -> Runner {
    match language {
        Language::Python => Runner { program: "python3", inline: "-c", file: "main.py" },
        Language::Javascript => Runner { program: "node", inline: "-e", file: "main.js" },
        Language::Shell => Runner { program: "sh", inline: "-c", file: "main.sh" },
        Language::Elixir => Runner { program: "elixir", inline: "-e", file: "main.exs" },
    }
}

/// Set for programs of a language, where the request does not.
pub(super) const fn environment(language: Language) -> &'static [(&'static str, &'static str)] {
    match language {
        // Without it what is printed to a pipe comes only at the end.
        Language::Python => &[("PYTHONUNBUFFERED", "1")],
        Language::Javascript | Language::Shell | Language::Elixir => &[],
    }
}

/// Name of the file that code of `language` is in.
pub(super) const fn file(language: Language) -> &'static str {
    runner(language).file
}

/// The program and its arguments for code in a file of the working directory, or for `code` itself.
pub(super) fn command(language: Language, code: Option<&str>) -> Option<(PathBuf, Vec<OsString>)> {
    let Runner { program, inline, file } = runner(language);
    let arguments = match code {
        Some(code) => vec![inline.into(), code.into()],
        None => vec![file.into()],
    };
    Some((found(program)?, arguments))
}

/// Where the sandbox has a program.
fn found(program: &str) -> Option<PathBuf> {
    split_paths(PATH).map(|directory| directory.join(program)).find(|path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}
