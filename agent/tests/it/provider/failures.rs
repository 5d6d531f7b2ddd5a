//! What each failure is called, in each protocol's words, and that no error gives a key away.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandbox_agent::model::ModelError;
use sandbox_agent::provider::{ProviderLimits, ProviderSettings};
use sandbox_protocol::agent::ProviderKind;
use scripted_provider::{Ending, Failure, Provider, Reply, Script};

use tracing::Level;

use super::{KEY, KINDS, LIMITS, asked, heard, model, settings, words};

/// One attempt only, so that each failure is seen as it is.
fn once(kind: ProviderKind, provider: &Provider, limits: ProviderLimits) -> ProviderSettings {
    ProviderSettings { limits: ProviderLimits { attempts_max: 1, ..limits }, ..settings(kind, provider.url()) }
}

/// The error, after a look at all its words.
async fn error(kind: ProviderKind, reply: Reply) -> ModelError {
    let answer = match Provider::start(Script::always(reply)).await {
        Ok(provider) => match model(once(kind, &provider, LIMITS)) {
            Ok(model) => heard(&model, &words("hello")).await.0,
            Err(error) => Err(error),
        },
        Err(error) => panic!("{error}"),
    };
    let Err(error) = answer else { panic!("an answer: {answer:?}") };
    let mut said = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    assert!(!said.contains(KEY), "{said}");
    assert!(said.len() < 3_000, "{} bytes of words", said.len());
    error
}

#[tokio::test]
async fn statuses_are_told_apart() {
    for kind in KINDS {
        let error = async |failure| error(kind, Reply::failure(failure)).await;
        assert!(matches!(error(Failure::Unauthorized).await, ModelError::Refused), "{kind:?}");
        let forbidden = Failure::Status { status: 403, message: String::new() };
        assert!(matches!(error(forbidden).await, ModelError::Refused), "{kind:?}");
        assert!(matches!(error(Failure::ContextOverflow).await, ModelError::ContextOverflow), "{kind:?}");
        for status in [500, 502, 503, 529] {
            let told = error(Failure::Status { status, message: "busy".to_owned() }).await;
            assert!(matches!(told, ModelError::Failed { status: same } if same == status), "{kind:?} {told:?}");
        }
        let limited = error(Failure::RateLimited { retry_after_ms: Some(1_500) }).await;
        let wanted = Some(Duration::from_millis(1_500));
        assert!(matches!(limited, ModelError::RateLimited { retry_after } if retry_after == wanted), "{limited:?}");
    }
}

#[tokio::test]
async fn words_of_a_refusal_are_few_and_without_the_key() {
    for kind in KINDS {
        let message = format!("no model {KEY}, sk-abcdefghijklmnopqrstuvwxyz, {}", "x".repeat(10_000));
        let told = error(kind, Reply::status(404, message)).await;
        let ModelError::Rejected(words) = &told else { panic!("{told:?}") };
        assert!(words.starts_with("no model [redacted], [redacted], xxx") && words.len() < 600, "{words}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Provider::start(Script::echo()).await.unwrap();
    let reply = Reply::status(307, "elsewhere");
    assert!(matches!(error(ProviderKind::Openai, reply).await, ModelError::Rejected(_)));
    assert_eq!(elsewhere.calls(), 0);
}

#[tokio::test]
async fn what_is_no_answer_of_the_protocol_is_malformed() {
    for kind in KINDS {
        let told = error(kind, Reply::text("a b c").ending(Ending::Malformed { after: 2 })).await;
        assert!(matches!(told, ModelError::Malformed(_)), "{kind:?} {told:?}");
    }
    let told = error(ProviderKind::Ollama, raw("text/html", "<html>welcome</html>")).await;
    assert!(matches!(told, ModelError::Malformed(_)), "{told:?}");
}

fn raw(content_type: &str, body: &str) -> Reply {
    Reply::failure(Failure::Raw { status: 200, content_type: content_type.to_owned(), body: body.to_owned() })
}

#[tokio::test]
async fn no_part_of_an_answer_is_taken_for_the_whole_wherever_it_is_cut() {
    for kind in KINDS {
        let whole = Provider::start(Script::always(Reply::text("a b c"))).await.unwrap();
        asked(kind, &whole).await.0.unwrap();
        for after in 0..5 {
            for ending in [Ending::Broken { after }, Ending::Early { after }] {
                let told = error(kind, Reply::pieces(["a ", "b ", "c ", "d ", "e"]).ending(ending)).await;
                assert!(matches!(told, ModelError::Unreachable(_)), "{kind:?} {ending:?} {told:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_in_the_middle_is_an_error() {
    for kind in KINDS {
        let told = error(kind, Reply::text("a b c").ending(Ending::Error { after: 2 })).await;
        match kind {
            ProviderKind::Openai | ProviderKind::Anthropic => {
                assert!(matches!(told, ModelError::Failed { status: 500 }), "{kind:?} {told:?}");
            }
            // genai reads over it, so all that is known is that the answer is not whole.
            ProviderKind::Ollama => assert!(matches!(told, ModelError::Unreachable(_)), "{told:?}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_waited_for_for_ever() {
    let first = ProviderLimits { first_max: Duration::from_millis(60), ..LIMITS };
    let piece = ProviderLimits { piece_max: Duration::from_millis(70), ..LIMITS };
    let whole = ProviderLimits { answer_max: Duration::from_millis(80), ..LIMITS };
    let silence = Reply::failure(Failure::Silence);
    let hangs = Reply::text("a b c").ending(Ending::Hangs { after: 3 });
    let slow = Reply::text("a b c d e f g h i j").piece_delay(Duration::from_millis(20));
    for kind in KINDS {
        for (limits, reply, after) in [
            (first, silence.clone(), 60),
            (first, Reply::text("late").delay(Duration::from_secs(5)), 60),
            (piece, hangs.clone(), 70),
            (whole, slow.clone(), 80),
        ] {
            let provider = Provider::start(Script::always(reply.clone())).await.unwrap();
            let told = heard(&model(once(kind, &provider, limits)).unwrap(), &words("x")).await.0.unwrap_err();
            assert!(
                matches!(told, ModelError::TimedOut { after_ms } if after_ms == after),
                "{kind:?} {reply:?} {told:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_within_its_limits_is_waited_for() {
    let limits = ProviderLimits { first_max: Duration::from_secs(10), piece_max: Duration::from_secs(10), ..LIMITS };
    let reply = Reply::text("a b c").delay(Duration::from_millis(50)).piece_delay(Duration::from_millis(20));
    for kind in KINDS {
        let provider = Provider::start(Script::always(reply.clone())).await.unwrap();
        let answer = heard(&model(once(kind, &provider, limits)).unwrap(), &words("x")).await.0.unwrap();
        assert_eq!(answer.text, "a b c", "{kind:?}");
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_unreachable() {
    let provider = Provider::start(Script::echo()).await.unwrap();
    let settings = once(ProviderKind::Openai, &provider, LIMITS);
    drop(provider);
    let told = heard(&model(settings).unwrap(), &words("x")).await.0.unwrap_err();
    assert!(matches!(told, ModelError::Unreachable(_)), "{told:?}");
}

#[tokio::test]
async fn an_endless_answer_is_given_up() {
    let long = "x".repeat(sandbox_agent::limits::ANSWER_BYTES_MAX / 4 + 1);
    for kind in KINDS {
        let within = Reply::pieces([&long[4..], &long[4..], &long[4..], &long[4..]]);
        let provider = Provider::start(Script::queue([within])).await.unwrap();
        heard(&model(once(kind, &provider, LIMITS)).unwrap(), &words("x")).await.0.unwrap();
        let told = error(kind, Reply::pieces([&long, &long, &long, &long])).await;
        assert!(matches!(told, ModelError::Malformed(_)), "{kind:?} {told:?}");
    }
}

#[test]
fn settings_that_cannot_be_sent_make_no_model() {
    let good = settings(ProviderKind::Openai, "http://llm.test");
    assert!(model(good.clone()).is_ok());
    let no_url = ProviderSettings { base_url: "llm".to_owned(), ..good.clone() };
    let no_model = ProviderSettings { model: String::new(), ..good.clone() };
    let no_key = ProviderSettings { api_key: Some(sandbox_protocol::agent::Secret::new("a\nb")), ..good.clone() };
    for wrong in [no_url, no_model, no_key] {
        assert!(matches!(model(wrong), Err(ModelError::Settings(_))));
    }
    assert!(!format!("{:?}", model(good)).contains(KEY), "a model's own Debug");
}

/// Log lines as a text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| io::ErrorKind::Other)?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_provider_says_of_a_key_is_not_logged() {
    let lines = Lines::default();
    let writer = lines.clone();
    let logs = tracing_subscriber::fmt().with_max_level(Level::TRACE).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(logs);
    for kind in KINDS {
        let replies = [Reply::status(500, format!("what is {KEY}?")), Reply::failure(Failure::Unauthorized)];
        let provider = Provider::start(Script::queue(replies)).await.unwrap();
        let told = heard(&model(settings(kind, provider.url())).unwrap(), &words("x")).await.0.unwrap_err();
        assert!(matches!(told, ModelError::Refused), "{told:?}");
    }
    let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("a provider is asked again"), "{logged}");
    assert!(!logged.contains(KEY), "{logged}");
}
