//! What the calls of a model have cost: tokens as the provider counted them, money where prices are known.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use crate::model::Usage;

/// Tokens that a price is for.
const TOKENS_PRICED: u128 = 1_000_000;

/// What a million tokens cost, in millionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    /// Of what is sent.
    pub input_micro_usd: u64,
    /// Of what is answered.
    pub output_micro_usd: u64,
}

impl Price {
    /// What a call costs in millionths of a US dollar, rounded up.
    pub fn cost_micro_usd(self, usage: Usage) -> u64 {
        u64::try_from(self.cost(usage).div_ceil(TOKENS_PRICED)).unwrap_or(u64::MAX)
    }

    /// The same a million times, so that many small calls are not rounded one by one.
    fn cost(self, usage: Usage) -> u128 {
        let of = |tokens: u64, micro_usd: u64| u128::from(tokens) * u128::from(micro_usd);
        of(usage.input_tokens, self.input_micro_usd) + of(usage.output_tokens, self.output_micro_usd)
    }
}

/// Prices by model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prices {
    by_model: BTreeMap<String, Price>,
}

/// A price as it is written: US dollars for a million tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    input: f64,
    output: f64,
}

impl Prices {
    /// Reads `{"model": {"input": 3, "output": 15}}`, in US dollars for a million tokens. `None` if it is not that.
    pub fn parse(json: &str) -> Option<Self> {
        let written: BTreeMap<String, Written> = serde_json::from_str(json).ok()?;
        let price = |(model, written): (String, Written)| {
            let price =
                Price { input_micro_usd: micro_usd(written.input)?, output_micro_usd: micro_usd(written.output)? };
            Some((model, price))
        };
        Some(Self { by_model: written.into_iter().map(price).collect::<Option<_>>()? })
    }

    /// The same with one price more.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.by_model.insert(model.into(), price);
        self
    }

    /// What this model costs, if anybody said so.
    pub fn of(&self, model: &str) -> Option<Price> {
        self.by_model.get(model).copied()
    }
}

fn micro_usd(usd: f64) -> Option<u64> {
    let micro = (usd * 1e6).round();
    // A million dollars for a million tokens is a slip of the pen.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..=1e12).contains(&micro).then_some(micro as u64)
}

/// An account of calls; shared by all that call for the same purpose.
#[derive(Debug, Default)]
pub struct Ledger {
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    calls: u64,
    usage: Usage,
    /// A million times the cost in millionths of a dollar, so that many small calls are not rounded one by one.
    cost: u128,
    /// Whether a model was called whose price nobody knows.
    is_priceless: bool,
}

impl Ledger {
    /// Counts a call, at its price.
    pub fn count(&self, usage: Usage, price: Option<Price>) {
        let mut account = self.account();
        account.calls += 1;
        account.usage.input_tokens = account.usage.input_tokens.saturating_add(usage.input_tokens);
        account.usage.output_tokens = account.usage.output_tokens.saturating_add(usage.output_tokens);
        match price {
            Some(price) => {
                account.cost = account.cost.saturating_add(price.cost(usage));
            }
            None => account.is_priceless = true,
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.account().calls
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        self.account().usage
    }

    /// Cost so far in millionths of a US dollar, rounded up; `None` before the first call, and once a model was called
    /// whose price nobody knows.
    pub fn cost_micro_usd(&self) -> Option<u64> {
        let account = self.account();
        (account.calls > 0 && !account.is_priceless)
            .then(|| u64::try_from(account.cost.div_ceil(TOKENS_PRICED)).unwrap_or(u64::MAX))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage { input_tokens: 1_000, output_tokens: 10 };

    #[test]
    fn prices_are_dollars_for_a_million_tokens() {
        let prices = Prices::parse(r#"{"m": {"input": 3, "output": 0.15}}"#).unwrap();
        assert_eq!(prices.of("m"), Some(Price { input_micro_usd: 3_000_000, output_micro_usd: 150_000 }));
        assert_eq!(prices.of("other"), None);
        for wrong in
            [r#"{"m": 3}"#, r#"{"m": {"input": -1, "output": 0}}"#, r#"{"m": {"input": 1e300, "output": 0}}"#, "[]"]
        {
            assert_eq!(Prices::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn many_small_calls_cost_as_much_as_one_large() {
        let ledger = Ledger::default();
        let price = Some(Price { input_micro_usd: 150_000, output_micro_usd: 600_000 });
        assert_eq!(ledger.cost_micro_usd(), None);
        (0..1_000).for_each(|_| ledger.count(Usage { input_tokens: 1, output_tokens: 1 }, price));
        assert_eq!(ledger.usage(), Usage { input_tokens: 1_000, output_tokens: 1_000 });
        assert_eq!((ledger.cost_micro_usd(), ledger.calls()), (Some(750), 1_000));
    }

    #[test]
    fn one_call_without_a_price_makes_the_whole_cost_unknown() {
        let ledger = Ledger::default();
        ledger.count(USAGE, Some(Price { input_micro_usd: 3_000_000, output_micro_usd: 15_000_000 }));
        assert_eq!(ledger.cost_micro_usd(), Some(3_150));
        ledger.count(USAGE, None);
        assert_eq!((ledger.cost_micro_usd(), ledger.usage().input_tokens), (None, 2_000));
    }

    #[test]
    fn what_is_beyond_all_counting_does_not_wrap() {
        let ledger = Ledger::default();
        let most = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX };
        let price = Some(Price { input_micro_usd: u64::MAX / 2, output_micro_usd: u64::MAX / 2 });
        (0..2).for_each(|_| ledger.count(most, price));
        assert_eq!((ledger.usage(), ledger.cost_micro_usd()), (most, Some(u64::MAX)));
    }
}
