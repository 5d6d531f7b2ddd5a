//! What a task has cost.

use crate::model::Usage;

/// What so many tokens cost in millionths of a US dollar; `None` where nobody knows.
pub type Price<'a> = &'a (dyn Fn(Usage) -> Option<u64> + Send + Sync);

/// Tokens and money of all calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ledger {
    pub(super) usage: Usage,
    /// `None` until a call had a price.
    pub(super) cost_micro_usd: Option<u64>,
}

impl Ledger {
    pub(super) fn add(&mut self, usage: Usage, price: Price<'_>) {
        self.usage.input_tokens = self.usage.input_tokens.saturating_add(usage.input_tokens);
        self.usage.output_tokens = self.usage.output_tokens.saturating_add(usage.output_tokens);
        if let Some(cost) = price(usage) {
            self.cost_micro_usd = Some(self.cost_micro_usd.unwrap_or_default().saturating_add(cost));
        }
    }

    /// Whether no more may be spent; 0 is without bound.
    pub(super) fn is_spent(&self, cost_micro_usd_max: u64) -> bool {
        cost_micro_usd_max > 0 && self.cost_micro_usd.is_some_and(|cost| cost >= cost_micro_usd_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: Usage = Usage { input_tokens: 10, output_tokens: 3 };

    #[test]
    fn tokens_and_prices_add_up() {
        let mut ledger = Ledger::default();
        ledger.add(USED, &|usage| Some(usage.input_tokens + 2 * usage.output_tokens));
        ledger.add(USED, &|_| Some(1));
        assert_eq!((ledger.usage, ledger.cost_micro_usd), (Usage { input_tokens: 20, output_tokens: 6 }, Some(17)));
        assert!(ledger.is_spent(17) && !ledger.is_spent(18) && !ledger.is_spent(0));
    }

    #[test]
    fn what_nobody_knows_the_price_of_is_never_spent() {
        let mut ledger = Ledger::default();
        ledger.add(USED, &|_| None);
        assert_eq!(ledger.cost_micro_usd, None);
        assert!(!ledger.is_spent(1));
    }
}
