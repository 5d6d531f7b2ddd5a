//! How often and when a call is made again.

use std::time::{Duration, Instant};

use sandbox_agent::model::ModelError;
use sandbox_agent::provider::{ProviderLimits, ProviderSettings};
use sandbox_protocol::agent::ProviderKind;
use scripted_provider::{Ending, Failure, Provider, Reply, Script};

use super::{KINDS, LIMITS, asked, heard, model, settings, words};

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_four_times_and_no_more() {
    for kind in KINDS {
        let provider = Provider::start(Script::always(Reply::status(503, "busy"))).await.unwrap();
        let (answer, heard) = asked(kind, &provider).await;
        assert!(matches!(answer, Err(ModelError::Failed { status: 503 })), "{kind:?}");
        assert_eq!((provider.calls(), heard.concat().as_str()), (4, "|||"), "{kind:?}");
    }
}

#[tokio::test]
async fn the_fourth_attempt_may_succeed_and_tells_how_many_failed() {
    let failing = [
        Reply::status(500, "oops"),
        Reply::text("half a").ending(Ending::Broken { after: 1 }),
        Reply::text("no").ending(Ending::Malformed { after: 1 }),
    ];
    for kind in KINDS {
        let script = Script::queue(failing.iter().cloned().chain([Reply::text("there")]));
        let provider = Provider::start(script).await.unwrap();
        let (answer, heard) = asked(kind, &provider).await;
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_str(), answer.retries, provider.calls()), ("there", 3, 4), "{kind:?}");
        assert_eq!(heard.last().map(String::as_str), Some("there"));
        assert_eq!(heard.iter().filter(|piece| *piece == "|").count(), 3, "told to forget each time: {heard:?}");
    }
}

#[tokio::test]
async fn what_would_fail_again_is_tried_once() {
    for kind in KINDS {
        for failure in [
            Failure::Unauthorized,
            Failure::ContextOverflow,
            Failure::Status { status: 400, message: "bad".to_owned() },
            Failure::Status { status: 404, message: "no such model".to_owned() },
        ] {
            let provider = Provider::start(Script::always(Reply::failure(failure.clone()))).await.unwrap();
            let (answer, heard) = asked(kind, &provider).await;
            assert!(answer.is_err_and(|error| !error.is_retryable()), "{kind:?} {failure:?}");
            assert_eq!((provider.calls(), heard.len()), (1, 0), "{kind:?} {failure:?}");
        }
    }
}

#[tokio::test]
async fn the_time_that_the_provider_names_is_kept() {
    for kind in KINDS {
        let told = Duration::from_millis(150);
        let script = Script::queue([Reply::rate_limited(Some(told)), Reply::text("now")]);
        let provider = Provider::start(script).await.unwrap();
        assert_eq!(asked(kind, &provider).await.0.unwrap().text, "now");
        let requests = provider.requests();
        assert!(requests[1].at - requests[0].at >= told, "{kind:?} {:?}", requests[1].at - requests[0].at);
    }
}

#[tokio::test]
async fn a_time_beyond_the_bound_is_not_waited_for() {
    let limits = ProviderLimits { retry_after_max: Duration::from_secs(1), ..LIMITS };
    let provider = Provider::start(Script::always(Reply::rate_limited(Some(Duration::from_secs(2))))).await.unwrap();
    let settings = ProviderSettings { limits, ..settings(ProviderKind::Openai, provider.url()) };
    let answer = heard(&model(settings).unwrap(), &words("x")).await.0;
    let wanted = Some(Duration::from_secs(2));
    assert!(matches!(answer, Err(ModelError::RateLimited { retry_after }) if retry_after == wanted), "{answer:?}");
    assert_eq!(provider.calls(), 1);
}

#[tokio::test]
async fn pauses_stay_within_their_bounds() {
    let limits = ProviderLimits { backoff_base: Duration::ZERO, backoff_max: Duration::ZERO, ..LIMITS };
    let provider = Provider::start(Script::always(Reply::rate_limited(None))).await.unwrap();
    let settings = ProviderSettings { limits, ..settings(ProviderKind::Openai, provider.url()) };
    let begun = Instant::now();
    heard(&model(settings).unwrap(), &words("x")).await.0.unwrap_err();
    assert_eq!(provider.calls(), 4);
    assert!(begun.elapsed() < Duration::from_secs(5), "as if there were no bound: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_ends_at_the_provider_too() {
    let provider =
        Provider::start(Script::always(Reply::text("a b").ending(Ending::Hangs { after: 1 }))).await.unwrap();
    let model = model(settings(ProviderKind::Openai, provider.url())).unwrap();
    let call = tokio::spawn(async move { heard(&model, &words("x")).await.0 });
    provider.reached(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let ended = async {
        while provider.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    assert_eq!(provider.calls(), 1);
}
