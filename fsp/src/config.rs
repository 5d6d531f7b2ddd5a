//! The settings by which a program finds its sandbox.

use std::fmt;

use http::Uri;
use sandbox_protocol::limits::{FSP_POOL_OVERFLOW_DEFAULT, FSP_POOL_SIZE_DEFAULT};

use crate::limits::{POOL_CONNECTIONS_MAX, TOKEN_BYTES_MAX};
use crate::pool::PoolSettings;

/// What `SANDBOX_*` settings say.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// `SANDBOX_URL`: a `ws://` or `wss://` address.
    pub url: Uri,
    /// `SANDBOX_API_KEY`: the first key.
    pub api_key: String,
    /// `SANDBOX_REFRESH_URL`: where keys are renewed, if they are.
    pub refresh_url: Option<Uri>,
    /// `SANDBOX_POOL_SIZE` and `SANDBOX_POOL_OVERFLOW`.
    pub pool: PoolSettings,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, api_key: _, refresh_url, pool } = self;
        f.debug_struct("Config")
            .field("url", url)
            .field("refresh_url", refresh_url)
            .field("pool", pool)
            .finish_non_exhaustive()
    }
}

/// A setting that is missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It has no default.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// It is not a value of its kind.
    #[error("{name}: {reason}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What it should be.
        reason: &'static str,
    },
}

impl Config {
    /// Reads the settings through `get`, which answers a name with its text.
    ///
    /// # Errors
    /// One is missing or wrong.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let given = |name| get(name).filter(|text| !text.is_empty());
        let required = |name| given(name).ok_or(ConfigError::Missing(name));
        let size = number("SANDBOX_POOL_SIZE", &given, 1)?.unwrap_or(FSP_POOL_SIZE_DEFAULT);
        let overflow = number("SANDBOX_POOL_OVERFLOW", &given, 0)?.unwrap_or(FSP_POOL_OVERFLOW_DEFAULT);
        let refresh_url = match given("SANDBOX_REFRESH_URL") {
            Some(text) => Some(address("SANDBOX_REFRESH_URL", &text, &["http", "https"])?),
            None => None,
        };
        Ok(Self {
            url: address("SANDBOX_URL", &required("SANDBOX_URL")?, &["ws", "wss"])?,
            api_key: key(required("SANDBOX_API_KEY")?)?,
            refresh_url,
            pool: PoolSettings { size, overflow, ..PoolSettings::default() },
        })
    }
}

fn address(name: &'static str, text: &str, schemes: &[&str]) -> Result<Uri, ConfigError> {
    let uri: Option<Uri> = text.trim().parse().ok();
    uri.filter(|uri| uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) && uri.host().is_some()).ok_or(
        ConfigError::Invalid {
            name,
            reason: if schemes.contains(&"wss") {
                "give a ws:// or wss:// address"
            } else {
                "give an http:// or https:// address"
            },
        },
    )
}

fn key(text: String) -> Result<String, ConfigError> {
    if text.len() <= TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text);
    }
    Err(ConfigError::Invalid { name: "SANDBOX_API_KEY", reason: "give printable ASCII characters without spaces" })
}

fn number(
    name: &'static str,
    given: &dyn Fn(&'static str) -> Option<String>,
    min: usize,
) -> Result<Option<usize>, ConfigError> {
    let Some(text) = given(name) else { return Ok(None) };
    let number = text.trim().parse().ok().filter(|number| (min..=POOL_CONNECTIONS_MAX).contains(number));
    number.map(Some).ok_or(ConfigError::Invalid { name, reason: "give a number of connections" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let base = [("SANDBOX_URL", "wss://sandbox.test/fsp"), ("SANDBOX_API_KEY", "key")];
        let found = |name: &str| settings.iter().chain(&base).find(|(known, _)| *known == name);
        Config::read(&|name| found(name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn two_settings_are_enough() {
        let config = read(&[]).unwrap();
        assert_eq!((config.pool.size, config.pool.overflow, config.refresh_url), (5, 10, None));
        assert_eq!(Config::read(&|_| None), Err(ConfigError::Missing("SANDBOX_URL")));
        assert_eq!(read(&[("SANDBOX_API_KEY", "")]), Err(ConfigError::Missing("SANDBOX_API_KEY")));
    }

    #[test]
    fn a_bad_value_names_its_setting() {
        let bad = [
            ("SANDBOX_URL", "https://sandbox.test"),
            ("SANDBOX_REFRESH_URL", "sandbox.test"),
            ("SANDBOX_POOL_SIZE", "0"),
            ("SANDBOX_POOL_SIZE", "1025"),
            ("SANDBOX_POOL_OVERFLOW", "-1"),
            ("SANDBOX_API_KEY", "two words"),
        ];
        for (name, text) in bad {
            assert!(matches!(read(&[(name, text)]), Err(ConfigError::Invalid { name: named, .. }) if named == name));
        }
        for (name, text) in [("SANDBOX_POOL_SIZE", "1"), ("SANDBOX_POOL_SIZE", "1024"), ("SANDBOX_POOL_OVERFLOW", "0")]
        {
            assert!(read(&[(name, text)]).is_ok());
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert!(!format!("{:?}", read(&[("SANDBOX_API_KEY", "s3cret")]).unwrap()).contains("s3cret"));
    }
}
