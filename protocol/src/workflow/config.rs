//! The sandbox of each run's own: the `sandbox_config_json` of a create.

use serde::de::Error as _;
use serde_json::{Map, Value};

use crate::abi::SandboxCreateRequest;

/// The sandbox that a `sandbox_config_json` asks for: a [`SandboxCreateRequest`] as JSON, what is left out being 0 or empty.
///
/// # Errors
/// What is no such JSON, with the field.
pub fn sandbox_config(json: &str) -> Result<SandboxCreateRequest, serde_json::Error> {
    let given: Map<String, Value> = serde_json::from_str(json)?;
    let Value::Object(mut whole) = serde_json::to_value(SandboxCreateRequest::default())? else {
        return Err(serde_json::Error::custom("not an object"));
    };
    for (name, value) in given {
        match whole.get_mut(&name) {
            Some(field) => *field = value,
            None => return Err(serde_json::Error::custom(format!("unknown field `{name}`"))),
        }
    }
    serde_json::from_value(whole.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_config_names_what_it_wants_and_nothing_else() {
        let config = sandbox_config(r#"{"memory_mb":128,"env_json":"{}"}"#).unwrap();
        let expected = SandboxCreateRequest { memory_mb: 128, env_json: "{}".into(), ..Default::default() };
        assert_eq!(config, expected);
        for (bad, word) in [(r#"{"memory":1}"#, "`memory`"), (r#"{"memory_mb":"x"}"#, "expected"), ("[]", "map")] {
            let error = sandbox_config(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
