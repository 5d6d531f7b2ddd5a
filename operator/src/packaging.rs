//! Holds the files in `docker/` to what the program reads and how long it takes to end.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use sandbox_process::source::Source;

use crate::config::{self, Config};
use crate::limits::{DRAIN_TIMEOUT, FINISH_TIMEOUT};

const EXAMPLE: &str = include_str!("../../docker/operator.env.example");
const COMPOSE: &str = include_str!("../../docker/compose.yaml");
const UNIT: &str = include_str!("../../docker/agent-sandbox-operator.service");

/// Settings, and which were asked for.
struct Asked {
    given: HashMap<String, String>,
    names: RefCell<BTreeSet<String>>,
}

impl Source for Asked {
    fn get(&self, name: &str) -> Option<String> {
        self.names.borrow_mut().insert(name.to_owned());
        Source::get(&self.given, name)
    }
}

/// Every setting of the example, whether it stands at its default or is to be filled in.
fn example() -> HashMap<String, String> {
    let lines = EXAMPLE.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    // Prose has a space behind its mark.
    let settings = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once('='));
    settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Reads everything from `given` and the settings without a default; what came of it as text, and what was asked for.
fn read(given: HashMap<String, String>) -> (String, BTreeSet<String>) {
    let needed = [
        ("DATA_DIR", "/var/lib/agent-sandbox"),
        ("BLUEPRINT_ID", "1"),
        ("TANGLE_CONTRACT", "0x0165878A594ca255338adfa4d48449f69242Eb8F"),
    ];
    let needed = needed.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let source = Asked { given: given.into_iter().chain(needed).collect(), names: RefCell::default() };
    let config = Config::read(&source).unwrap();
    let log = config::read_log(&source).unwrap();
    (format!("{config:?} {log:?}"), source.names.into_inner())
}

#[test]
fn the_example_names_every_setting_and_no_other() {
    let (_, asked) = read(HashMap::new());
    assert_eq!(example().into_keys().collect::<BTreeSet<_>>(), asked);
}

#[test]
fn the_example_shows_the_defaults() {
    assert_eq!(read(example()).0, read(HashMap::new()).0);
}

#[test]
fn compose_and_the_unit_wait_until_the_operator_has_finished() {
    // Answers in hand and the keeper of the outbox each get their time, and open requests theirs.
    let needed = DRAIN_TIMEOUT + 2 * FINISH_TIMEOUT;
    for (file, before, after) in [(COMPOSE, "stop_grace_period: ", "s"), (UNIT, "TimeoutStopSec=", "")] {
        let line = file.lines().find_map(|line| line.trim().strip_prefix(before)).unwrap();
        let seconds: u64 = line.strip_suffix(after).unwrap().parse().unwrap();
        assert!(Duration::from_secs(seconds) >= needed, "{before}{line}, at least {needed:?}");
    }
}
