//! What a tool is called with, as a table: from it come the JSON Schema that a model is shown, and every fault of a call at
//! once.

use serde_json::{Map, Value, json};

/// A parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Words for a system call: no NUL.
    Text {
        bytes_min: usize,
        bytes_max: usize,
    },
    /// Any text.
    Content {
        bytes_max: usize,
    },
    Whole {
        min: u64,
        max: u64,
    },
    OneOf(&'static [&'static str]),
}

impl Field {
    /// A text without NUL that is not empty.
    pub const fn text(name: &'static str, about: &'static str, bytes_max: usize) -> Self {
        Self { name, about, kind: Kind::Text { bytes_min: 1, bytes_max }, required: false }
    }

    /// Any text.
    pub const fn content(name: &'static str, about: &'static str, bytes_max: usize) -> Self {
        Self { name, about, kind: Kind::Content { bytes_max }, required: false }
    }

    /// A whole number.
    pub const fn whole(name: &'static str, about: &'static str, min: u64, max: u64) -> Self {
        Self { name, about, kind: Kind::Whole { min, max }, required: false }
    }

    /// One of these words.
    pub const fn one_of(name: &'static str, about: &'static str, words: &'static [&'static str]) -> Self {
        Self { name, about, kind: Kind::OneOf(words), required: false }
    }

    /// The same; no call is without it.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    fn schema(&self) -> Value {
        let about = self.about;
        match self.kind {
            Kind::Text { bytes_min, bytes_max } => {
                json!({ "type": "string", "description": about, "minLength": bytes_min, "maxLength": bytes_max })
            }
            Kind::Content { bytes_max } => json!({ "type": "string", "description": about, "maxLength": bytes_max }),
            Kind::Whole { min, max } => {
                json!({ "type": "integer", "description": about, "minimum": min, "maximum": max })
            }
            Kind::OneOf(words) => json!({ "type": "string", "description": about, "enum": words }),
        }
    }

    fn fault(&self, value: Option<&Value>) -> Option<String> {
        let name = self.name;
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return self.required.then(|| format!("{name} is required"));
        };
        match self.kind {
            Kind::Whole { min, max } => match value.as_u64() {
                Some(number) if (min..=max).contains(&number) => None,
                _ => Some(format!("{name} must be an integer from {min} to {max}")),
            },
            Kind::OneOf(words) => match value.as_str() {
                Some(word) if words.contains(&word) => None,
                _ => Some(format!("{name} must be one of {}", words.join(", "))),
            },
            Kind::Text { bytes_min, bytes_max } => match value.as_str() {
                None => Some(format!("{name} must be a string")),
                Some(text) if text.contains('\0') => Some(format!("{name} must not contain NUL")),
                Some(text) => fault_of_length(name, text.len(), bytes_min, bytes_max),
            },
            Kind::Content { bytes_max } => match value.as_str() {
                None => Some(format!("{name} must be a string")),
                Some(text) => fault_of_length(name, text.len(), 0, bytes_max),
            },
        }
    }
}

fn fault_of_length(name: &str, bytes: usize, bytes_min: usize, bytes_max: usize) -> Option<String> {
    if bytes < bytes_min {
        Some(format!("{name} must not be empty"))
    } else if bytes > bytes_max {
        Some(format!("{name} must not be longer than {bytes_max} bytes"))
    } else {
        None
    }
}

/// JSON Schema of these fields and no others.
pub(super) fn schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// All that is wrong with a call, in the order of the fields; nothing, if it may be carried out.
pub(super) fn faults(fields: &[Field], arguments: &Value) -> Vec<String> {
    let Some(object) = arguments.as_object() else { return vec!["arguments must be a JSON object".to_owned()] };
    let known = fields.iter().filter_map(|field| field.fault(object.get(field.name)));
    let unknown = object.keys().filter(|name| fields.iter().all(|field| field.name != *name));
    known.chain(unknown.map(|name| format!("{name} is not a parameter"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field::text("path", "Where.", 4).required(),
        Field::content("content", "What.", 5).required(),
        Field::whole("limit", "How many.", 1, 9),
        Field::one_of("mode", "How.", &["fast", "slow"]),
    ];

    fn check(arguments: Value, expected: &str) {
        assert_eq!(faults(FIELDS, &arguments).join("; "), expected, "{arguments}");
    }

    #[test]
    fn every_fault_is_named_at_once_in_the_documents_words() {
        check(json!({ "path": null, "content": 123 }), "path is required; content must be a string");
        check(
            json!({ "path": 1, "limit": 0, "mode": "odd", "depth": 1 }),
            "path must be a string; content is required; limit must be an integer from 1 to 9; \
             mode must be one of fast, slow; depth is not a parameter",
        );
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        check(json!({ "path": "a", "content": "" }), "");
        check(json!({ "path": "abcd", "content": "a\u{0}cde", "limit": 1, "mode": "slow" }), "");
        check(
            json!({ "path": "", "content": "abcdef" }),
            "path must not be empty; content must not be longer than 5 bytes",
        );
        check(json!({ "path": "abcde", "content": "", "limit": 9 }), "path must not be longer than 4 bytes");
        check(
            json!({ "path": "a\u{0}", "content": "", "limit": 10 }),
            "path must not contain NUL; limit must be an integer from 1 to 9",
        );
        check(json!({ "path": "a", "content": "", "limit": 1.5 }), "limit must be an integer from 1 to 9");
        check(json!({ "path": "a", "content": "", "limit": null }), "");
    }

    #[test]
    fn what_is_no_object_is_one_fault() {
        check(json!("{\"path\": "), "arguments must be a JSON object");
        check(json!([]), "arguments must be a JSON object");
    }

    #[test]
    fn a_schema_says_what_is_checked() {
        let schema = schema(FIELDS);
        assert_eq!(schema["required"], json!(["path", "content"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(
            schema["properties"]["limit"],
            json!({ "type": "integer", "description": "How many.", "minimum": 1, "maximum": 9 })
        );
        assert_eq!(schema["properties"]["mode"]["enum"], json!(["fast", "slow"]));
    }
}
