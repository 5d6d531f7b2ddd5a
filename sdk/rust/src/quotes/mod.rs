//! Signed quotes: an operator's word that it does one job, of one customer, for one price, until a second.
//!
//! A quote is the one way in which the core pays exactly the operator that works. [`signed`] and [`verify`] are pure;
//! [`Ledger`] keeps an operator from signing the same words twice; [`Quotes`] asks the operators of a service. What a job
//! is worth is not decided here, and a quote is redeemed by [`Account::submit_quoted`](crate::Account::submit_quoted).

mod client;
mod ledger;
mod signing;

pub use crate::contracts::ITangleCore::{JobQuoteDetails, SignedJobQuote};
pub use client::{AskError, Asked, Offer, Quotes, cheapest};
pub use ledger::{Draft, Exhausted, Ledger};
pub use signing::{Expectation, QuoteError, body, digest, domain, of_body, signed, verify};
