//! No two quotes with the same words.
//!
//! The core remembers a quote by what is signed, and neither the operator nor a nonce is in it. Two quotes that agree in
//! every field are therefore *one* to the core, whoever signed them: once one is redeemed the other is refused as used. Equal
//! fields are not rare: two operators of one service with the same price, asked by the same customer in the same second; or one
//! operator, asked twice for the same command. What may differ without changing the deal is the last second of the quote, so
//! that is where quotes are told apart:
//!
//! ```text
//! expiry = (timestamp + life, rounded up to a multiple of PLACES) + round × PLACES + place
//! ```
//!
//! `place` is the operator's index among the operators of the service, below `PLACES`. So what remains of an expiry after
//! division by `PLACES` names the operator, however long its quotes live, and no two of a service ever sign the same words,
//! without talking to each other. `round` counts the quotes of one operator that would otherwise be the same; quotes of
//! different seconds differ by their timestamp. All operators of a service read the same list from the chain. While it is
//! changing, one may be a block behind: then two may share a place for that long, and the worst that comes of it is that a
//! customer who redeems both is told to ask again.

use std::collections::HashSet;

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::SolStruct as _;

use super::JobQuoteDetails;
use crate::limits::{CLOCK_STEP_S_MAX, QUOTE_ROUNDS_MAX, QUOTES_PER_SECOND_MAX, SERVICE_OPERATORS_MAX};

/// Places of a round: one for each operator that a service may have.
const PLACES: u64 = SERVICE_OPERATORS_MAX as u64;

/// A quote without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Who may redeem it.
    pub requester: Address,
    /// The service.
    pub service: u64,
    /// Job id.
    pub job: u8,
    /// In the service's settlement asset.
    pub price: U256,
    /// The service's demand for confidential hardware.
    pub confidentiality: u8,
    /// keccak256 of the job's inputs.
    pub inputs_hash: B256,
    /// The operator's index among the operators of the service.
    pub place: u32,
}

/// No words are left in this second; the next has others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many quotes in one second")]
pub struct Exhausted;

/// What one operator has quoted in the present second. Its clock never runs backwards, except after a large step.
#[derive(Debug)]
pub struct Ledger {
    life_s: u64,
    second: u64,
    quoted: HashSet<B256>,
}

impl Ledger {
    /// A ledger whose quotes are good for `life_s` seconds, and a little longer where they must be told apart.
    pub fn new(life_s: u64) -> Self {
        Self { life_s, second: 0, quoted: HashSet::new() }
    }

    /// The words of a quote at second `now` that this operator has not quoted before, and no other of the service quotes.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn enter(&mut self, draft: &Draft, now: u64) -> Result<JobQuoteDetails, Exhausted> {
        self.advance(now);
        if self.quoted.len() >= QUOTES_PER_SECOND_MAX {
            return Err(Exhausted);
        }
        let mut rounds = (0..QUOTE_ROUNDS_MAX).map(|round| self.words(draft, round));
        let fresh = rounds.find(|words| !self.quoted.contains(&words.eip712_hash_struct()));
        let words = fresh.ok_or(Exhausted)?;
        self.quoted.insert(words.eip712_hash_struct());
        Ok(words)
    }

    fn advance(&mut self, now: u64) {
        let stepped_back = self.second.saturating_sub(now) > CLOCK_STEP_S_MAX;
        if now > self.second || stepped_back {
            self.second = now;
            self.quoted.clear();
        }
    }

    fn words(&self, draft: &Draft, round: u64) -> JobQuoteDetails {
        let last_s =
            self.second.saturating_add(self.life_s).div_ceil(PLACES).saturating_add(round).saturating_mul(PLACES);
        JobQuoteDetails {
            requester: draft.requester,
            serviceId: draft.service,
            jobIndex: draft.job,
            price: draft.price,
            timestamp: self.second,
            expiry: last_s.saturating_add(u64::from(draft.place) % PLACES),
            confidentiality: draft.confidentiality,
            inputsHash: draft.inputs_hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QUOTE_SPREAD_S_MAX;

    const NOW: u64 = 1_000_000;
    const LIFE_S: u64 = 300;

    fn draft(place: u32) -> Draft {
        let (requester, inputs_hash) = (Address::repeat_byte(1), B256::repeat_byte(2));
        Draft { requester, service: 1, job: 0, price: U256::from(1_000), confidentiality: 0, inputs_hash, place }
    }

    #[test]
    fn operators_of_one_service_never_quote_the_same_words_however_long_their_quotes_live() {
        let mut words = HashSet::new();
        for place in 0..SERVICE_OPERATORS_MAX {
            let mut ledger = Ledger::new(LIFE_S + 7 * u64::from(place));
            while let Ok(quote) = ledger.enter(&draft(place), NOW) {
                assert!(words.insert(quote.eip712_hash_struct()), "place {place}: {quote:?}");
            }
        }
        assert_eq!(words.len() as u64, QUOTE_ROUNDS_MAX * PLACES);
    }

    #[test]
    fn the_same_question_has_as_many_answers_in_a_second_as_there_are_rounds() {
        let mut ledger = Ledger::new(LIFE_S);
        for round in 0..QUOTE_ROUNDS_MAX {
            let quote = ledger.enter(&draft(3), NOW).unwrap();
            assert_eq!((quote.timestamp, quote.expiry % PLACES), (NOW, 3));
            let longer = quote.expiry - NOW - LIFE_S;
            assert!(
                longer >= round * PLACES && longer < (round + 2) * PLACES && longer < QUOTE_SPREAD_S_MAX,
                "{longer}"
            );
        }
        assert_eq!(ledger.enter(&draft(3), NOW), Err(Exhausted));
        let other = Draft { price: U256::from(1_001), ..draft(3) };
        assert!(ledger.enter(&other, NOW).is_ok(), "another question");
        assert_eq!(ledger.enter(&draft(3), NOW + 1).unwrap().timestamp, NOW + 1, "another second");
    }

    #[test]
    fn a_second_has_room_for_so_many_quotes_and_no_more() {
        let mut ledger = Ledger::new(LIFE_S);
        for price in 0..QUOTES_PER_SECOND_MAX {
            ledger.enter(&Draft { price: U256::from(price), ..draft(0) }, NOW).unwrap();
        }
        let more = Draft { price: U256::MAX, ..draft(0) };
        assert_eq!(ledger.enter(&more, NOW), Err(Exhausted));
        assert!(ledger.enter(&more, NOW + 1).is_ok());
    }

    #[test]
    fn a_clock_that_runs_backwards_a_little_does_not_repeat_a_second() {
        let mut ledger = Ledger::new(LIFE_S);
        let first = ledger.enter(&draft(0), NOW).unwrap();
        let second = ledger.enter(&draft(0), NOW - CLOCK_STEP_S_MAX).unwrap();
        assert_eq!((first.timestamp, second.timestamp), (NOW, NOW));
        assert_ne!(first, second);
        let stepped = ledger.enter(&draft(0), NOW - CLOCK_STEP_S_MAX - 1).unwrap();
        assert_eq!(stepped.timestamp, NOW - CLOCK_STEP_S_MAX - 1, "a clock that was set is followed");
    }
}
