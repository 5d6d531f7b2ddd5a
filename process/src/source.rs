//! Configuration strings, read once, before any port opens.
//!
//! A [`Source`] answers names with strings; typed readers turn them into values or stop the start with the name of the
//! setting and the reason. This is the only place in the workspace that reads the process environment.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

/// Anything that answers a setting's name with its text.
pub trait Source {
    /// The text of `name`, or `None` where it is not set. An empty text counts as not set.
    fn get(&self, name: &str) -> Option<String>;
}

/// The process environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

impl Source for Environment {
    #[allow(clippy::disallowed_methods)] // the one reader that everything else goes through
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }
}

impl Source for HashMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        HashMap::get(self, name).filter(|text| !text.is_empty()).cloned()
    }
}

/// Settings given on the command line, in front of those of another source.
#[derive(Debug, Clone)]
pub struct Overrides<S> {
    given: HashMap<String, String>,
    rest: S,
}

impl<S: Source> Overrides<S> {
    /// `given` wins over `rest`.
    pub fn new(given: HashMap<String, String>, rest: S) -> Self {
        Self { given, rest }
    }
}

impl<S: Source> Source for Overrides<S> {
    fn get(&self, name: &str) -> Option<String> {
        Source::get(&self.given, name).or_else(|| self.rest.get(name))
    }
}

/// A setting that stops the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The setting has no default and is not set.
    #[error("{name} is not set")]
    Missing {
        /// Name of the setting.
        name: String,
    },
    /// The setting's text is not a value of its kind.
    #[error("{name}={text:?}: {reason}")]
    Invalid {
        /// Name of the setting.
        name: String,
        /// What was given.
        text: String,
        /// Why it is refused.
        reason: String,
    },
}

impl ConfigError {
    /// `name` was given as `text`, which is refused for `reason`.
    pub fn invalid(name: &str, text: impl Into<String>, reason: impl Display) -> Self {
        Self::Invalid { name: name.to_owned(), text: text.into(), reason: reason.to_string() }
    }
}

/// The value of `name`, or `None` where it is not set.
///
/// # Errors
/// [`ConfigError::Invalid`] where the text does not parse.
pub fn optional<T>(source: &impl Source, name: &str) -> Result<Option<T>, ConfigError>
where
    T: FromStr,
    T::Err: Display,
{
    source
        .get(name)
        .map(|text| text.trim().parse().map_err(|reason| ConfigError::invalid(name, &text, reason)))
        .transpose()
}

/// The words of `name`, by commas; none where it is not set.
pub fn words(source: &impl Source, name: &str) -> Vec<String> {
    let text = source.get(name).unwrap_or_default();
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The value of `name`, or `default` where it is not set.
///
/// # Errors
/// As [`optional`].
pub fn or_default<T>(source: &impl Source, name: &str, default: T) -> Result<T, ConfigError>
where
    T: FromStr,
    T::Err: Display,
{
    Ok(optional(source, name)?.unwrap_or(default))
}

/// The value of `name`.
///
/// # Errors
/// [`ConfigError::Missing`] where it is not set, otherwise as [`optional`].
pub fn required<T>(source: &impl Source, name: &str) -> Result<T, ConfigError>
where
    T: FromStr,
    T::Err: Display,
{
    optional(source, name)?.ok_or_else(|| ConfigError::Missing { name: name.to_owned() })
}

/// A switch: `1`, `true`, `yes` or `0`, `false`, `no`; off where it is not set.
///
/// # Errors
/// [`ConfigError::Invalid`] for any other text.
pub fn switch(source: &impl Source, name: &str) -> Result<bool, ConfigError> {
    match source.get(name).as_deref() {
        None | Some("0" | "false" | "no") => Ok(false),
        Some("1" | "true" | "yes") => Ok(true),
        Some(text) => Err(ConfigError::invalid(name, text, "give true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_bad_value_names_the_setting_and_the_reason() {
        let source = settings(&[("PORT", "70000")]);
        let error = required::<u16>(&source, "PORT").unwrap_err();
        assert_eq!(error.to_string(), "PORT=\"70000\": number too large to fit in target type");
    }

    #[test]
    fn an_empty_text_is_not_set() {
        let source = settings(&[("PORT", "")]);
        assert_eq!(optional::<u16>(&source, "PORT"), Ok(None));
        assert_eq!(required::<u16>(&source, "PORT"), Err(ConfigError::Missing { name: "PORT".into() }));
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let source = Overrides::new(settings(&[("PORT", "1")]), settings(&[("PORT", "2"), ("HOST", "b")]));
        assert_eq!(required::<u16>(&source, "PORT"), Ok(1));
        assert_eq!(required::<String>(&source, "HOST"), Ok("b".to_owned()));
    }

    #[test]
    fn a_switch_is_on_off_or_refused() {
        for (text, on) in [("1", true), ("true", true), ("yes", true), ("0", false), ("false", false), ("no", false)] {
            assert_eq!(switch(&settings(&[("TEST_MODE", text)]), "TEST_MODE"), Ok(on), "{text}");
        }
        assert!(switch(&settings(&[("TEST_MODE", "on")]), "TEST_MODE").is_err());
        assert_eq!(switch(&settings(&[]), "TEST_MODE"), Ok(false));
    }
}
