//! What a blueprint is paid in, and amounts of it: decimal text on the outside, whole units within, never a float.

use std::fmt;

use alloy::primitives::{Address, U256};
use alloy::providers::DynProvider;

use crate::chain::ReadError;
use crate::contracts::IToken::ITokenInstance;
use crate::limits::TOKEN_DECIMALS_MAX;

/// Decimals of the chain's coin.
const COIN_DECIMALS: u8 = 18;
/// Letters of a token's symbol that are shown; a contract may answer anything.
const SYMBOL_LETTERS: usize = 12;

/// The chain's coin, or a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// The token; zero is the coin.
    pub address: Address,
    /// Its symbol, for people.
    pub symbol: String,
    /// Its smallest unit is 10 to minus this.
    pub decimals: u8,
}

/// A text that is no amount of an asset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// It is not a decimal number.
    #[error("{0:?} is not a decimal number such as 0.25")]
    Digits(String),
    /// It has more decimals than the asset.
    #[error("{text} has more decimals than {symbol}, which has {decimals}")]
    TooFine {
        /// The text.
        text: String,
        /// The asset's symbol.
        symbol: String,
        /// The asset's decimals.
        decimals: u8,
    },
    /// It does not fit a word.
    #[error("{0} is too much")]
    TooMuch(String),
}

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AssetError {
    /// It does not answer as a token.
    #[error("{address} does not answer as a token")]
    NoToken {
        /// Its address.
        address: Address,
        /// What it said.
        source: ReadError,
    },
    /// Its decimals are out of range.
    #[error("the token {address} has {decimals} decimals, at most {TOKEN_DECIMALS_MAX} can be written")]
    Decimals {
        /// Its address.
        address: Address,
        /// Its decimals.
        decimals: u8,
    },
}

impl Asset {
    /// The chain's coin.
    pub fn coin() -> Self {
        Self { address: Address::ZERO, symbol: "coin".into(), decimals: COIN_DECIMALS }
    }

    /// The asset at an address; the zero address is the coin.
    ///
    /// # Errors
    /// [`AssetError`].
    pub async fn at(provider: &DynProvider, address: Address) -> Result<Self, AssetError> {
        if address.is_zero() {
            return Ok(Self::coin());
        }
        let token = ITokenInstance::new(address, provider);
        let no_token = |question| move |error| AssetError::NoToken { address, source: ReadError::of(question, error) };
        let decimals = token.decimals().call().await.map_err(no_token("decimals"))?;
        if decimals > TOKEN_DECIMALS_MAX {
            return Err(AssetError::Decimals { address, decimals });
        }
        let symbol = token.symbol().call().await.map(|symbol| shown(&symbol)).unwrap_or_default();
        let symbol = if symbol.is_empty() { address.to_string() } else { symbol };
        Ok(Self { address, symbol, decimals })
    }

    /// An amount in the smallest units. It is exact or refused.
    ///
    /// # Errors
    /// [`AmountError`].
    pub fn units(&self, text: &str) -> Result<U256, AmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(AmountError::Digits(text.to_owned()));
        }
        let fraction = fraction.trim_end_matches('0');
        let decimals = usize::from(self.decimals);
        if fraction.len() > decimals {
            let (text, symbol) = (text.to_owned(), self.symbol.clone());
            return Err(AmountError::TooFine { text, symbol, decimals: self.decimals });
        }
        let digits = format!("{whole}{fraction:0<decimals$}");
        U256::from_str_radix(&digits, 10).map_err(|_| AmountError::TooMuch(text.to_owned()))
    }

    /// Units as they are written: the shortest text that [`Asset::units`] takes back.
    pub fn text(&self, units: U256) -> String {
        let decimals = usize::from(self.decimals);
        let digits = format!("{units:0>width$}", width = decimals + 1);
        let (whole, fraction) = digits.split_at(digits.len() - decimals);
        match fraction.trim_end_matches('0') {
            "" => whole.to_owned(),
            fraction => format!("{whole}.{fraction}"),
        }
    }

    /// Units with the asset's name.
    pub fn amount(&self, units: U256) -> String {
        format!("{} {}", self.text(units), self.symbol)
    }
}

impl fmt::Display for Asset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address.is_zero() {
            return f.write_str("the chain's coin");
        }
        write!(f, "{} ({}, {} decimals)", self.address, self.symbol, self.decimals)
    }
}

fn shown(symbol: &str) -> String {
    symbol.chars().filter(char::is_ascii_alphanumeric).take(SYMBOL_LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usdc() -> Asset {
        Asset { address: Address::repeat_byte(1), symbol: "USDC".into(), decimals: 6 }
    }

    #[test]
    fn an_amount_is_scaled_by_the_decimals_of_its_asset() {
        for (text, units) in
            [("0.5", 500_000), ("12", 12_000_000), ("0.000001", 1), ("1.50", 1_500_000), ("007", 7_000_000)]
        {
            assert_eq!(usdc().units(text), Ok(U256::from(units)), "{text}");
        }
        assert_eq!(Asset::coin().units("0.0005"), Ok(U256::from(500_000_000_000_000_u64)));
        let whole = Asset { decimals: 0, ..usdc() };
        assert_eq!((whole.units("3.0"), whole.text(U256::from(3))), (Ok(U256::from(3)), "3".into()));
    }

    #[test]
    fn what_cannot_be_written_exactly_is_refused() {
        let sentence = |text: &str| usdc().units(text).unwrap_err().to_string();
        assert_eq!(sentence("0.0000001"), "0.0000001 has more decimals than USDC, which has 6");
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0x10", "1_000", " 1", "½", "1.2.3"] {
            assert_eq!(sentence(text), format!("{text:?} is not a decimal number such as 0.25"));
        }
        let much = "9".repeat(80);
        assert_eq!(sentence(&much), format!("{much} is too much"));
    }

    #[test]
    fn an_amount_reads_as_it_was_written() {
        for text in ["0", "0.000001", "0.5", "12", "1234567.89"] {
            assert_eq!(usdc().text(usdc().units(text).unwrap()), text);
        }
        assert_eq!(usdc().amount(U256::from(2_500_000)), "2.5 USDC");
    }

    #[test]
    fn a_symbol_is_shown_as_letters_and_not_as_what_a_contract_makes_of_them() {
        assert_eq!(shown("US\u{202e}D\nC\u{1b}[2J and a very long tail"), "USDC2Jandave");
    }
}
