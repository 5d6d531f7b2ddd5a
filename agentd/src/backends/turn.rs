//! What all programs' runs have in common.

use sandbox_protocol::agent::RunFailure;
use serde_json::Value;

use super::programs::Programs;
use super::tally::Failure;
use crate::backend::{Order, Outcome};

/// What a program is asked: the customer's words, and what else they gave the model.
pub(super) fn prompt(order: &Order) -> String {
    if order.context.is_empty() {
        return order.prompt.clone();
    }
    format!("{}\n\nContext, as JSON:\n{:#}", order.prompt, Value::Object(order.context.clone()))
}

/// A run that began in a former life of this process. What its program did since then nobody heard, so it is ended, and
/// nothing of it is done twice.
pub(super) async fn interrupted(programs: &dyn Programs, launch_id: &str) -> Outcome {
    if let Err(error) = programs.end(launch_id).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a program of a former life may still run");
    }
    let words = "the process that listened to the agent ended, and what the agent did is not done again".to_owned();
    Outcome { failure: Some((RunFailure::Interrupted, words)), ..Outcome::default() }
}

/// The file of sessions cannot be read.
pub(super) fn unreadable(error: std::io::Error) -> Failure {
    tracing::warn!(error = &error as &dyn std::error::Error, "the file of sessions cannot be read");
    (RunFailure::Internal, "what is known of sessions cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::place::tests::order;

    #[test]
    fn what_else_the_customer_gave_is_shown_to_the_model() {
        let mut order = order();
        assert_eq!(prompt(&order), "Do it.");
        order.context.insert("deadline".to_owned(), "today".into());
        assert_eq!(prompt(&order), "Do it.\n\nContext, as JSON:\n{\n  \"deadline\": \"today\"\n}");
    }
}
