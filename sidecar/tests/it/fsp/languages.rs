//! Each language, in the container and the image that customers get.

use sandbox_fsp::{Connection, Endpoint, Token, UnixSocket};
use sandbox_protocol::fsp::{Execute, Extensions, Extra, Language, Limits, Status};

use crate::contained::Contained;
use crate::harness::TOKEN;

const FULL: &str = "agent-sandbox-sidecar:full";
const PROGRAMS: [(Language, &str); 4] = [
    (Language::Python, "import sys; sys.stdout.write(sys.stdin.read().upper())"),
    (Language::Javascript, "process.stdout.write(require('fs').readFileSync(0, 'utf8').toUpperCase())"),
    (Language::Shell, "tr a-z A-Z"),
    (Language::Elixir, "IO.write(String.upcase(IO.read(:stdio, :eof)))"),
];

async fn connection(contained: &Contained) -> Connection {
    let endpoint = Endpoint::new(UnixSocket::new(contained.socket()), Token::fixed(TOKEN), Extensions::default());
    Connection::open(&endpoint).await.unwrap()
}

fn execute(language: Language, code: &str) -> Execute {
    Execute {
        id: language.name().to_owned(),
        language,
        code: code.to_owned(),
        stdin: Some("heard".to_owned()),
        env: [].into(),
        limits: Limits { memory_mb: 400, timeout_ms: 120_000, ..Limits::default() },
        extra: Extra::default(),
    }
}

#[tokio::test]
async fn every_language_runs_in_the_full_image() {
    let Some(contained) = Contained::of(FULL, "every_language_runs_in_the_full_image").await else { return };
    let connection = connection(&contained).await;
    for (language, code) in PROGRAMS {
        let outcome = connection.execute(execute(language, code)).await.unwrap().outcome(1_024).await.unwrap();
        assert_eq!(
            (outcome.status, &outcome.stdout[..]),
            (Status::Completed, &b"HEARD"[..]),
            "{language}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_language_that_the_image_has_not_is_not_supported_and_the_others_are() {
    let Some(contained) = Contained::start("a_language_that_the_image_has_not_is_not_supported").await else { return };
    let connection = connection(&contained).await;
    for (language, code) in PROGRAMS {
        let outcome = connection.execute(execute(language, code)).await.unwrap().outcome(1_024).await;
        match (language, outcome) {
            (Language::Shell, Ok(outcome)) => assert_eq!(&outcome.stdout[..], b"HEARD"),
            (_, Err(error)) => {
                assert_eq!(error.to_string(), format!("Language '{language}' is not available in this sandbox"));
            }
            (_, Ok(outcome)) => panic!("{language}: {outcome:?}"),
        }
    }
}
