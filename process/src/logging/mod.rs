//! One subscriber per process: text for people, JSON for machines.

mod json;

use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("give text or json"),
        }
    }
}

/// Starts logging to stderr with `filter` in the syntax of `RUST_LOG`. A second call changes nothing.
pub fn start(format: Format, filter: &str) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        Format::Text => base.with_ansi(false).try_init(),
        Format::Json => base.fmt_fields(JsonFields::new()).event_format(json::FlatJson).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
