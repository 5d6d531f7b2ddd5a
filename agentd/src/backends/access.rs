//! Where the model is, whose key is used, and what of both a program is given.

use std::collections::BTreeMap;

use sandbox_agent::model::Usage;
use sandbox_agent::provider::{Layers, Price, resolve};
use sandbox_protocol::agent::{ProviderKind, RunFailure, Secret};

use super::limits::CONTEXT_TOKENS_DEFAULT;
use super::tally::Failure;
use crate::backend::Order;

/// Settings that hold a customer's key.
const KEYS: [&str; 2] = ["MODEL_API_KEY", "OPENCODE_MODEL_API_KEY"];
/// How the names of settings begin that programs take from their environment, and that are ours to say.
const OURS: [&str; 5] = ["OPENCODE_", "CLAUDE_", "ANTHROPIC_", "OPENAI_", "XDG_"];
/// Tokens that a price is for.
const PRICED_TOKENS: u64 = 1_000_000;

/// A provider as a program is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: ProviderKind,
    /// Of OpenAI and Anthropic with the version; without a slash at its end.
    pub(super) base_url: String,
    /// The customer's key. An operator's is added outside the sandbox and never given to a program.
    pub(super) key: Option<Secret>,
    /// Whether it is the operator's matter if the key is not accepted.
    pub(super) is_operators: bool,
    pub(super) model: String,
    pub(super) context_tokens: u32,
    /// Where it is known.
    pub(super) price: Option<Price>,
}

impl Access {
    /// What the customer's context says, then the order's environment, then this process's own settings.
    pub(super) fn of(order: &Order, own: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let layers = Layers { context: order.provider.as_ref(), order: &order.env, own };
        let model = if order.model.is_empty() { &order.profile.model } else { &order.model };
        let found = resolve(layers, model).map_err(|error| (RunFailure::BadRequest, error.to_string()))?;
        Ok(Self {
            kind: found.kind,
            base_url: found.base_url,
            key: found.api_key.filter(|_| !found.is_key_of_operator),
            is_operators: found.is_key_of_operator,
            context_tokens: found.context_tokens.unwrap_or(CONTEXT_TOKENS_DEFAULT),
            price: found.prices.of(&found.model),
            model: found.model,
        })
    }

    /// What so many tokens cost, in millionths of a US dollar, where that is known.
    pub(super) fn cost_micro_usd(&self, usage: Usage) -> Option<u64> {
        let Price { input_micro_usd, output_micro_usd } = self.price?;
        let input = usage.input_tokens.saturating_mul(input_micro_usd);
        let output = usage.output_tokens.saturating_mul(output_micro_usd);
        Some(input.saturating_add(output).div_ceil(PRICED_TOKENS))
    }

    /// What it means that the provider does not accept the key.
    pub(super) fn refused(&self) -> Failure {
        if self.is_operators {
            let words =
                "the provider wants a key: an operator's is added outside the sandbox, and given to no program in it";
            (RunFailure::OperatorKeyRefused, words.to_owned())
        } else {
            (RunFailure::ProviderRefused, "the provider does not accept the key".to_owned())
        }
    }
}

/// The customer's environment, without what a program would take for its own settings or keys.
pub(super) fn environment(order: &Order) -> BTreeMap<String, String> {
    let is_ours = |name: &str| KEYS.contains(&name) || OURS.iter().any(|start| name.starts_with(start));
    order.env.iter().filter(|(name, _)| !is_ours(name)).map(|(name, text)| (name.clone(), text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::place::tests::order;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_key_of_the_operators_is_given_to_no_program() {
        let own = settings(&[("MODEL_BASE_URL", "http://own/v1"), ("MODEL", "m"), ("MODEL_API_KEY", "operators")]);
        let mut order = order();
        let access = Access::of(&order, &own).unwrap();
        assert_eq!((access.key.clone(), access.refused().0), (None, RunFailure::OperatorKeyRefused));
        order.env = settings(&[("MODEL_API_KEY", "mine")]);
        let access = Access::of(&order, &own).unwrap();
        assert_eq!((access.key.clone(), access.refused().0), (Some(Secret::new("mine")), RunFailure::ProviderRefused));
    }

    #[test]
    fn the_orders_model_comes_before_the_profiles() {
        let own = settings(&[("MODEL_BASE_URL", "http://own/v1"), ("MODEL", "own")]);
        let mut order = order();
        let model = |order: &Order| Access::of(order, &own).unwrap().model;
        assert_eq!(model(&order), "own");
        order.profile.model = "profile".to_owned();
        assert_eq!(model(&order), "profile");
        order.model = "order".to_owned();
        assert_eq!(model(&order), "order");
    }

    #[test]
    fn what_is_missing_is_a_bad_request() {
        let (failure, words) = Access::of(&order(), &BTreeMap::new()).unwrap_err();
        assert!(failure == RunFailure::BadRequest && words.contains("MODEL_BASE_URL"), "{words}");
    }

    #[test]
    fn tokens_cost_what_is_known_and_parts_are_rounded_up() {
        let prices = ("MODEL_PRICES", r#"{"m": {"input": 3, "output": 15}}"#);
        let own = settings(&[("MODEL_BASE_URL", "http://own/v1"), ("MODEL", "m"), prices]);
        let access = Access::of(&order(), &own).unwrap();
        let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens };
        assert_eq!(access.cost_micro_usd(usage(1_000, 100)), Some(4_500));
        assert_eq!(Access { price: None, ..access }.cost_micro_usd(usage(1, 1)), None);
    }

    #[test]
    fn a_programs_own_settings_are_not_the_customers_to_say() {
        let mut order = order();
        order.env =
            settings(&[("OPENCODE_PERMISSION", "{}"), ("MODEL_API_KEY", "k"), ("XDG_DATA_HOME", "/"), ("A", "b")]);
        assert_eq!(environment(&order), settings(&[("A", "b")]));
    }
}
