//! Asking operators what a job would cost, all at once, and keeping what their word is worth.

use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, U256, keccak256};
use sandbox_protocol::http::{ErrorBody, QuoteBody, QuoteRequest};
use tokio::task::JoinSet;

use super::{Expectation, QuoteError, SignedJobQuote, of_body, verify};
use crate::answers::client::{base_url, http, is_transient};
use crate::chain::{Account, CustomerError, ReadError};
use crate::limits::{QUOTE_BODY_BYTES_MAX, QUOTE_WITHIN};
use crate::requests::JobRequest;

/// Asks for quotes for one account.
#[derive(Debug, Clone)]
pub struct Quotes {
    account: Account,
    http: reqwest::Client,
}

/// A quote that was checked: the core would take it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What is redeemed.
    pub quote: SignedJobQuote,
    /// Asset of the price; zero is the chain's coin.
    pub asset: Address,
}

impl Offer {
    /// The price, in the asset's smallest unit.
    pub const fn price(&self) -> U256 {
        self.quote.details.price
    }
}

/// What came of asking one operator.
#[derive(Debug)]
pub struct Asked {
    /// The operator.
    pub operator: Address,
    /// Its offer.
    pub offer: Result<Offer, AskError>,
}

/// Why an operator's offer is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
    /// The chain does not know where the operator is.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The service cannot be quoted for.
    #[error(transparent)]
    Service(Box<CustomerError>),
    /// The operator has no URL that can be used.
    #[error("operator {operator} has no usable API URL: {url:?}")]
    NoUrl {
        /// The operator.
        operator: Address,
        /// What it registered.
        url: String,
    },
    /// The operator did not answer.
    #[error("the operator at {url} did not answer")]
    Unreachable {
        /// Its URL.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The operator does not quote.
    #[error("the operator does not quote (status {status}): {error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        error: ErrorBody,
    },
    /// What the operator sent is no quote.
    #[error("the operator at {url} sent something else than a quote: {why}")]
    Garbled {
        /// Its URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The core would not take the quote.
    #[error("the operator's quote is worth nothing")]
    Worthless(#[source] QuoteError),
    /// The quote is in another asset than the service is paid in.
    #[error("the operator quotes in asset {found}, the service is paid in {expected}")]
    Asset {
        /// The service's.
        expected: Address,
        /// The quote's.
        found: Address,
    },
}

impl AskError {
    /// Whether asking again may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Read(_) | Self::Unreachable { .. } => true,
            Self::Refused { status, error } => error.retryable || (is_transient(*status) && *status != 404),
            Self::Client(_)
            | Self::Service(_)
            | Self::NoUrl { .. }
            | Self::Garbled { .. }
            | Self::Worthless(_)
            | Self::Asset { .. } => false,
        }
    }
}

/// The cheapest of the offers, the first of those that cost the same.
pub fn cheapest(asked: &[Asked]) -> Option<&Offer> {
    asked.iter().filter_map(|asked| asked.offer.as_ref().ok()).min_by_key(|offer| offer.price())
}

impl Quotes {
    /// Quotes that `account` may redeem.
    ///
    /// # Errors
    /// [`AskError::Client`].
    pub fn new(account: Account) -> Result<Self, AskError> {
        let http = http().map_err(AskError::Client)?;
        Ok(Self { account, http })
    }

    /// The account that asks.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Asks the operators of the service that can do the job, in the chain's order: one in a sandbox or about a workflow, its
    /// operator alone.
    ///
    /// # Errors
    /// [`AskError::Service`], [`AskError::Read`].
    pub async fn of_service(&self, service: u64, request: &JobRequest) -> Result<Vec<Asked>, AskError> {
        let chain = self.account.chain();
        let holder = match (request.sandbox(), request.workflow(service)) {
            (Some(sandbox), _) => Some(chain.sandbox(sandbox).await?.operator),
            (None, Some(workflow)) => chain.workflow(workflow).await?.map(|(row, _)| row.operator),
            (None, None) => None,
        };
        let operators = match holder.filter(|holder| !holder.is_zero()) {
            Some(holder) => vec![holder],
            None => chain.operators(service).await?,
        };
        self.of_operators(service, request, &operators).await
    }

    /// Asks these operators, all at once.
    ///
    /// # Errors
    /// [`AskError::Service`], [`AskError::Read`].
    pub async fn of_operators(
        &self,
        service: u64,
        request: &JobRequest,
        operators: &[Address],
    ) -> Result<Vec<Asked>, AskError> {
        let question = self.question(service, request).await?;
        let mut asking = JoinSet::new();
        for (place, operator) in operators.iter().copied().enumerate() {
            let (this, question) = (self.clone(), question.clone());
            asking.spawn(async move { (place, Asked { operator, offer: this.ask(operator, &question).await }) });
        }
        let mut asked = asking.join_all().await;
        asked.sort_by_key(|(place, _)| *place);
        Ok(asked.into_iter().map(|(_, asked)| asked).collect())
    }

    async fn question(&self, service: u64, request: &JobRequest) -> Result<Question, AskError> {
        let chain = self.account.chain();
        let terms = chain.quotable_service(service).await.map_err(|error| AskError::Service(Box::new(error)))?;
        let (deployment, job) = (chain.deployment(), request.job.id());
        let expected = Expectation {
            chain_id: deployment.chain_id,
            core: deployment.core,
            requester: self.account.address(),
            service,
            job,
            inputs_hash: keccak256(&request.inputs),
            confidentiality: terms.confidentiality,
        };
        let asset = chain.call_cost(service, job).await?.asset;
        let now = chain.time().await?.max(now_s());
        let inputs = request.inputs.clone();
        let body = QuoteRequest { requester: expected.requester, service, job, inputs };
        Ok(Question { body, expected, asset, now })
    }

    async fn ask(&self, operator: Address, question: &Question) -> Result<Offer, AskError> {
        let registered = self.account.chain().operator(operator).await?.apiUrl;
        let url = base_url(&registered).ok_or(AskError::NoUrl { operator, url: registered })?;
        let body = self.post(&url, &question.body).await?;
        let garbled = |why: String| AskError::Garbled { url: url.clone(), why };
        let quoted: QuoteBody = serde_json::from_slice(&body).map_err(|error| garbled(error.to_string()))?;
        if quoted.operator != operator {
            return Err(garbled(format!("it is of operator {}", quoted.operator)));
        }
        if quoted.asset != question.asset {
            return Err(AskError::Asset { expected: question.asset, found: quoted.asset });
        }
        let quote = of_body(&quoted);
        verify(&quote, &question.expected, question.now).map_err(AskError::Worthless)?;
        Ok(Offer { quote, asset: quoted.asset })
    }

    async fn post(&self, url: &str, question: &QuoteRequest) -> Result<Vec<u8>, AskError> {
        let unreachable =
            |source: reqwest::Error| AskError::Unreachable { url: url.to_owned(), source: source.without_url() };
        let asking = self.http.post(format!("{url}/v1/quotes")).json(question).timeout(QUOTE_WITHIN);
        let mut response = asking.send().await.map_err(unreachable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&chunk);
            if body.len() > QUOTE_BODY_BYTES_MAX {
                let why = format!("more than {QUOTE_BODY_BYTES_MAX} bytes");
                return Err(AskError::Garbled { url: url.to_owned(), why });
            }
        }
        if status.is_success() { Ok(body) } else { Err(refused(status.as_u16(), &body)) }
    }
}

/// What every operator is asked, and what its answer must say.
#[derive(Clone)]
struct Question {
    body: QuoteRequest,
    expected: Expectation,
    asset: Address,
    now: u64,
}

fn refused(status: u16, body: &[u8]) -> AskError {
    let unsaid = || ErrorBody { code: "unknown".into(), message: "without a reason".into(), retryable: false };
    AskError::Refused { status, error: serde_json::from_slice(body).unwrap_or_else(|_| unsaid()) }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::ITangleCore::JobQuoteDetails;

    fn asked(place: u8, price: Option<u64>) -> Asked {
        let operator = Address::repeat_byte(place);
        let offer = |price| {
            let details = JobQuoteDetails { price: U256::from(price), ..Default::default() };
            Offer { quote: SignedJobQuote { details, operator, ..Default::default() }, asset: Address::ZERO }
        };
        let offer = price.map(offer).ok_or(AskError::NoUrl { operator, url: String::new() });
        Asked { operator, offer }
    }

    #[test]
    fn the_cheapest_is_the_first_of_those_that_cost_least() {
        let all = [asked(1, Some(7)), asked(2, None), asked(3, Some(5)), asked(4, Some(5))];
        assert_eq!(cheapest(&all).map(|offer| offer.quote.operator), Some(Address::repeat_byte(3)));
        assert_eq!(cheapest(&[asked(1, None)]), None);
        assert_eq!(cheapest(&[]), None);
    }

    #[test]
    fn an_operator_that_is_busy_may_be_asked_again_and_one_that_does_not_serve_quotes_not() {
        let refused = |status, retryable| {
            let body = serde_json::json!({ "code": "x", "message": "y", "retryable": retryable }).to_string();
            refused(status, body.as_bytes()).retryable()
        };
        assert!(refused(429, true) && refused(503, false) && refused(422, true));
        assert!(!refused(404, false) && !refused(422, false) && !refused(400, false));
    }
}
