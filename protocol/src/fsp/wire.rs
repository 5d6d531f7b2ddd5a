//! Messages as JSON text. Reading is strict in what a field is and lenient in what else there is.

use std::borrow::Cow;
use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::VERSION;
use super::message::{
    ClientMessage, Ended, Execute, Extra, Limits, Load, ServerBody, ServerMessage, Status, Usage, is_execution_id,
};
use super::refusal::{ErrorCode, Refusal};
use super::words::{Extension, Extensions, Language, Signal, Stream};
use crate::limits::{
    EXEC_DETACHED_TIMEOUT_MS_MAX, EXEC_ID_BYTES_MAX, EXEC_TIMEOUT_MS_MAX, FSP_CODE_BYTES_MAX, FSP_CPU_SHARES_MAX,
    FSP_CPU_SHARES_MIN, FSP_MEMORY_MB_MAX, FSP_OUTPUT_BYTES_MAX, FSP_STDIN_BYTES_MAX,
};

/// An instant, in milliseconds since 1970, as messages name it. What lies beyond the calendar is its beginning.
pub fn timestamp(at_ms: u64) -> String {
    const FORM: &[time::format_description::BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let nanos = i128::from(at_ms) * 1_000_000;
    let instant = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    instant.format(FORM).unwrap_or_default()
}

/// Writes what a client says at an instant, in milliseconds since 1970.
pub fn encode_client(message: &ClientMessage, at_ms: u64) -> String {
    let mut wire = Wire { v: Some(VERSION), ts: Some(timestamp(at_ms)), ..Wire::default() };
    let name = match message {
        ClientMessage::Execute(execute) => {
            wire.execute(execute);
            "execute"
        }
        ClientMessage::Cancel { id } => wire.of(id, "cancel"),
        ClientMessage::Ping => "ping",
        ClientMessage::Attach { id, after_seq, credit_bytes } => {
            (wire.after_seq, wire.credit_bytes) = (Some(*after_seq), *credit_bytes);
            wire.of(id, "attach")
        }
        ClientMessage::Detach { id } => wire.of(id, "detach"),
        ClientMessage::Credit { id, bytes } => {
            wire.bytes = Some(*bytes);
            wire.of(id, "credit")
        }
        ClientMessage::Stdin { id, data, eof } => {
            wire.base64 = Some(STANDARD.encode(data)).filter(|text| !text.is_empty());
            wire.eof = Some(*eof);
            wire.of(id, "stdin")
        }
        ClientMessage::Signal { id, signal } => {
            wire.signal = Some(Value::from(signal.name()));
            wire.of(id, "signal")
        }
    };
    wire.written(name)
}

/// Writes what a sandbox says at an instant, in milliseconds since 1970.
pub fn encode_server(message: &ServerMessage, at_ms: u64) -> String {
    let mut wire = Wire { v: Some(VERSION), ts: Some(timestamp(at_ms)), seq: message.seq, ..Wire::default() };
    wire.id = message.id.as_deref().map(Cow::Borrowed);
    let name = match &message.body {
        ServerBody::Ack => "ack",
        ServerBody::Status(status) => {
            wire.status = Some(*status);
            "status"
        }
        ServerBody::Output(stream, data) => {
            wire.data = Some(String::from_utf8_lossy(data));
            stream.name()
        }
        ServerBody::Result(ended) => {
            wire.exit_code = Some(ended.exit_code);
            wire.signal = ended.signal.map(Value::from);
            (wire.duration_ms, wire.resource_usage) = (Some(ended.duration_ms), ended.resource_usage);
            "result"
        }
        ServerBody::Error { code, message, retryable } => {
            (wire.code, wire.retryable) = (Some(*code), Some(*retryable));
            wire.message = Some(Cow::Borrowed(message));
            "error"
        }
        ServerBody::Pong(load) => {
            wire.load = Some(*load);
            "pong"
        }
        ServerBody::Attached { next_seq } => {
            wire.next_seq = Some(*next_seq);
            "attached"
        }
        ServerBody::Detached => "detached",
        ServerBody::Gap { from_seq, to_seq, bytes } => {
            (wire.from_seq, wire.to_seq, wire.bytes) = (Some(*from_seq), Some(*to_seq), Some(*bytes));
            "gap"
        }
        ServerBody::StdinCredit { bytes } => {
            wire.bytes = Some(*bytes);
            "stdin_credit"
        }
    };
    wire.written(name)
}

/// Reads what a client says that was granted `extensions`.
///
/// # Errors
/// It is not what the protocol demands, or names a language there is not. The refusal has the id, where there is one.
pub fn decode_client(text: &str, extensions: &Extensions) -> Result<ClientMessage, Refusal> {
    let map = serde_json::from_str::<Map<String, Value>>(text)
        .map_err(|error| Refusal::invalid(None, format!("not a JSON object: {error}")))?;
    let id = map.get("id").and_then(Value::as_str).filter(|id| is_execution_id(id)).map(str::to_owned);
    let fields = Fields { id, map };
    fields.message(extensions)
}

/// Reads what a sandbox says.
///
/// # Errors
/// It is no message of this protocol.
pub fn decode_server(text: &str) -> Result<ServerMessage, serde_json::Error> {
    let wire: Wire<'_> = serde_json::from_str(text)?;
    if wire.v != Some(VERSION) {
        return Err(lacks("v"));
    }
    let id = wire.id.as_ref().map(|id| id.clone().into_owned());
    let seq = wire.seq;
    let body = wire.body()?;
    if id.is_none() && !matches!(body, ServerBody::Pong(_) | ServerBody::Error { .. }) {
        return Err(lacks("id"));
    }
    Ok(ServerMessage { id, seq, body })
}

fn lacks(field: impl Display) -> serde_json::Error {
    serde::de::Error::custom(format!("{field}: missing or not of its kind"))
}

/// Every field of every message: one flat reading and writing for all.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Wire<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<u64>,
    #[serde(rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Cow<'a, str>>,
    /// `None` is not there, `Some(None)` is null.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    exit_code: Option<Option<i32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load: Option<Load>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eof: Option<bool>,
    /// A name in `signal`, a number in `result`.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<Value>,
    /// Of an `execute`, whose `code` is another kind than an `error`'s.
    #[serde(flatten, skip_deserializing, skip_serializing_if = "Option::is_none")]
    execute: Option<ExecuteWire<'a>>,
}

#[derive(Debug, Serialize)]
struct ExecuteWire<'a> {
    language: Language,
    code: &'a str,
    stdin: Option<&'a str>,
    env: &'a std::collections::BTreeMap<String, String>,
    limits: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    stream_stdin: bool,
    #[serde(skip_serializing_if = "is_false")]
    detach: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_false(flag: &bool) -> bool {
    !*flag
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl<'a> Wire<'a> {
    fn of(&mut self, id: &'a str, name: &'static str) -> &'static str {
        self.id = Some(Cow::Borrowed(id));
        name
    }

    fn execute(&mut self, execute: &'a Execute) {
        let Execute { id, language, code, stdin, env, limits, extra } = execute;
        self.id = Some(Cow::Borrowed(id));
        self.credit_bytes = extra.credit_bytes;
        self.execute = Some(ExecuteWire {
            language: *language,
            code,
            stdin: stdin.as_deref(),
            env,
            limits: *limits,
            cwd: extra.cwd.as_deref(),
            stream_stdin: extra.stream_stdin,
            detach: extra.detach,
        });
    }

    /// Nothing here can fail to be written: all keys are text and all numbers finite.
    fn written(mut self, name: &'static str) -> String {
        self.kind = Cow::Borrowed(name);
        serde_json::to_string(&self).unwrap_or_default()
    }

    fn body(self) -> Result<ServerBody, serde_json::Error> {
        Ok(match &*self.kind {
            "ack" => ServerBody::Ack,
            "status" => ServerBody::Status(self.status.ok_or_else(|| lacks("status"))?),
            "stdout" => ServerBody::Output(Stream::Stdout, owned(self.data)?),
            "stderr" => ServerBody::Output(Stream::Stderr, owned(self.data)?),
            "result" => ServerBody::Result(Ended {
                exit_code: self.exit_code.ok_or_else(|| lacks("exit_code"))?,
                signal: self.signal.map(serde_json::from_value).transpose()?,
                duration_ms: self.duration_ms.ok_or_else(|| lacks("duration_ms"))?,
                resource_usage: self.resource_usage,
            }),
            "error" => ServerBody::Error {
                code: self.code.ok_or_else(|| lacks("code"))?,
                message: self.message.ok_or_else(|| lacks("message"))?.into_owned(),
                retryable: self.retryable.ok_or_else(|| lacks("retryable"))?,
            },
            "pong" => ServerBody::Pong(self.load.ok_or_else(|| lacks("load"))?),
            "attached" => ServerBody::Attached { next_seq: self.next_seq.ok_or_else(|| lacks("next_seq"))? },
            "detached" => ServerBody::Detached,
            "gap" => ServerBody::Gap {
                from_seq: self.from_seq.ok_or_else(|| lacks("from_seq"))?,
                to_seq: self.to_seq.ok_or_else(|| lacks("to_seq"))?,
                bytes: self.bytes.ok_or_else(|| lacks("bytes"))?,
            },
            "stdin_credit" => ServerBody::StdinCredit { bytes: self.bytes.ok_or_else(|| lacks("bytes"))? },
            _ => return Err(lacks("type")),
        })
    }
}

fn owned(data: Option<Cow<'_, str>>) -> Result<Bytes, serde_json::Error> {
    Ok(Bytes::from(data.ok_or_else(|| lacks("data"))?.into_owned()))
}

/// A client's message on its way to its type.
struct Fields {
    /// For refusals; only what may be an id.
    id: Option<String>,
    map: Map<String, Value>,
}

impl Fields {
    fn message(mut self, extensions: &Extensions) -> Result<ClientMessage, Refusal> {
        self.envelope()?;
        let kind: String = self.required("type")?;
        let unknown =
            |this: &Self| this.refused(format!("type: {kind:?} is not among the messages of this connection"));
        let demand = |this: &Self, extension| if extensions.has(extension) { Ok(()) } else { Err(unknown(this)) };
        Ok(match kind.as_str() {
            "execute" => ClientMessage::Execute(Box::new(self.execute(extensions)?)),
            "cancel" => ClientMessage::Cancel { id: self.own_id()? },
            "ping" => ClientMessage::Ping,
            "attach" => {
                demand(&self, Extension::Replay)?;
                let (after_seq, credit_bytes) = (self.required("after_seq")?, self.credit(extensions)?);
                ClientMessage::Attach { id: self.own_id()?, after_seq, credit_bytes }
            }
            "detach" => {
                demand(&self, Extension::Replay)?;
                ClientMessage::Detach { id: self.own_id()? }
            }
            "credit" => {
                demand(&self, Extension::Credit)?;
                ClientMessage::Credit { bytes: self.required("bytes")?, id: self.own_id()? }
            }
            "stdin" => {
                demand(&self, Extension::Stdin)?;
                let (data, eof) = (self.stdin_data()?, self.optional("eof")?.unwrap_or_default());
                ClientMessage::Stdin { id: self.own_id()?, data, eof }
            }
            "signal" => {
                demand(&self, Extension::Signal)?;
                let signal: Signal = self.required("signal")?;
                ClientMessage::Signal { id: self.own_id()?, signal }
            }
            _ => return Err(unknown(&self)),
        })
    }

    fn envelope(&mut self) -> Result<(), Refusal> {
        match self.map.remove("v").as_ref().map(Value::as_u64) {
            Some(Some(VERSION)) => {}
            Some(_) => return Err(self.refused(format!("v: only version {VERSION} is spoken here"))),
            None => return Err(self.refused(format!("v: missing; name version {VERSION}"))),
        }
        let ts: String = self.required("ts")?;
        match OffsetDateTime::parse(&ts, &Rfc3339) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.refused("ts: give an ISO 8601 timestamp, as 2025-12-27T11:30:00.000Z")),
        }
    }

    fn execute(&mut self, extensions: &Extensions) -> Result<Execute, Refusal> {
        let id = self.own_id()?;
        if self.map.get("session_id").is_some_and(|session| !session.is_null()) {
            return Err(self.refused("session_id: reserved; every execution stands alone"));
        }
        let language: String = self.required("language")?;
        let language = language.parse().map_err(|_| Refusal {
            id: Some(id.clone()),
            code: ErrorCode::LanguageNotSupported,
            message: format!("Language '{}' is not available in this sandbox", shortened(&language)),
        })?;
        let code = self.text("code", FSP_CODE_BYTES_MAX)?.ok_or_else(|| self.refused("code: missing"))?;
        let stdin = self.text("stdin", FSP_STDIN_BYTES_MAX)?;
        let env = self.optional("env")?.unwrap_or_default();
        let extra = Extra {
            cwd: self.extra(extensions, Extension::Cwd, "cwd")?,
            stream_stdin: self.extra(extensions, Extension::Stdin, "stream_stdin")?.unwrap_or_default(),
            detach: self.extra(extensions, Extension::Replay, "detach")?.unwrap_or_default(),
            credit_bytes: self.credit(extensions)?,
        };
        let limits: Limits = self.required("limits")?;
        self.check(&limits, &extra)?;
        Ok(Execute { id, language, code, stdin, env, limits, extra })
    }

    fn check(&self, limits: &Limits, extra: &Extra) -> Result<(), Refusal> {
        let in_workspace = extra.cwd.is_some();
        let memory_mb_min = u64::from(!in_workspace);
        let alone = in_workspace && extra.detach;
        let timeout_ms_max = if alone { EXEC_DETACHED_TIMEOUT_MS_MAX } else { EXEC_TIMEOUT_MS_MAX };
        let bounded = [
            ("timeout_ms", limits.timeout_ms, 1..=timeout_ms_max),
            ("memory_mb", limits.memory_mb, memory_mb_min..=FSP_MEMORY_MB_MAX),
            ("cpu_shares", limits.cpu_shares, FSP_CPU_SHARES_MIN..=FSP_CPU_SHARES_MAX),
            ("max_output_bytes", limits.max_output_bytes, 1..=FSP_OUTPUT_BYTES_MAX),
        ];
        match bounded.into_iter().find(|(_, value, range)| !range.contains(value)) {
            None => Ok(()),
            Some((name, value, range)) => {
                Err(self.refused(format!("limits.{name}: {value} is outside {}–{}", range.start(), range.end())))
            }
        }
    }

    fn stdin_data(&mut self) -> Result<Bytes, Refusal> {
        let text: Option<String> = self.optional("data")?;
        let base64: Option<String> = self.optional("base64")?;
        match (text, base64) {
            (Some(_), Some(_)) => Err(self.refused("give data or base64, not both")),
            (Some(text), None) => Ok(Bytes::from(text)),
            (None, Some(base64)) => match STANDARD.decode(base64) {
                Ok(bytes) => Ok(Bytes::from(bytes)),
                Err(error) => Err(self.refused(format!("base64: {error}"))),
            },
            (None, None) => Ok(Bytes::new()),
        }
    }

    fn credit(&mut self, extensions: &Extensions) -> Result<Option<u64>, Refusal> {
        self.extra(extensions, Extension::Credit, "credit_bytes")
    }

    /// A field that only an extension brings: without it, silence about it would be a promise not kept.
    fn extra<T: DeserializeOwned>(
        &mut self,
        extensions: &Extensions,
        extension: Extension,
        name: &str,
    ) -> Result<Option<T>, Refusal> {
        let given = self.optional(name)?;
        if given.is_some() && !extensions.has(extension) {
            return Err(self.refused(format!("{name}: needs the extension {extension}")));
        }
        Ok(given)
    }

    fn own_id(&self) -> Result<String, Refusal> {
        self.id.clone().ok_or_else(|| {
            self.refused(format!("id: give 1 to {EXEC_ID_BYTES_MAX} printable ASCII characters without spaces"))
        })
    }

    fn text(&mut self, name: &str, bytes_max: usize) -> Result<Option<String>, Refusal> {
        let text: Option<String> = self.optional(name)?;
        match text {
            Some(text) if text.len() > bytes_max => {
                Err(self.refused(format!("{name}: {} bytes, at most {bytes_max}", text.len())))
            }
            text => Ok(text),
        }
    }

    fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Refusal> {
        self.optional(name)?.ok_or_else(|| self.refused(format!("{name}: missing")))
    }

    /// A field that may be left out, or be null, which is the same.
    fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Refusal> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(self.refused(format!("{name}: {error}"))),
            },
        }
    }

    fn refused(&self, message: impl Into<String>) -> Refusal {
        Refusal::invalid(self.id.as_deref(), message)
    }
}

/// As much of a stranger's text as is repeated to it.
fn shortened(text: &str) -> String {
    text.chars().take(32).collect()
}
