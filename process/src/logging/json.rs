//! A log line as one flat JSON object: time, level, target, message, the event's fields, and those of every span around it.
//!
//! Flat, because that is what people filter by: `select(.call == "3/7")` finds every line of a call, whichever part of the
//! program wrote it. Where a span and its event have a field of one name, the event's counts.

use std::fmt::{self, Debug};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The format.
pub(super) struct FlatJson;

impl<S> FormatEvent<S, JsonFields> for FlatJson
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(fields))) = fields.map(serde_json::from_str) {
                line.extend(fields);
            }
        }
        event.record(&mut Fields(&mut line));
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.insert("timestamp".into(), time.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("target".into(), event.metadata().target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// An event's fields on their way into the line.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(act: impl FnOnce()) -> Vec<Value> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(JsonFields::new())
            .event_format(FlatJson)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_has_the_fields_of_its_event_and_of_every_span_around_it() {
        let lines = logged(|| {
            let _job = tracing::info_span!("job", call = "3/7", job = tracing::field::Empty).entered();
            tracing::Span::current().record("job", 4_u8);
            let _step = tracing::info_span!("step", part = 2_u64).entered();
            tracing::warn!(sandbox = %"sbx-1", done = true, "said {}", "so");
        });
        let line = &lines[0];
        assert_eq!(
            (&line["call"], &line["job"], &line["part"], &line["sandbox"], &line["done"]),
            (&"3/7".into(), &4.into(), &2.into(), &"sbx-1".into(), &true.into())
        );
        assert_eq!((&line["message"], &line["level"]), (&"said so".into(), &"WARN".into()));
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }

    #[test]
    fn an_event_has_the_last_word_on_a_field_and_nothing_breaks_a_line() {
        let lines = logged(|| {
            let _job = tracing::info_span!("job", call = "3/7").entered();
            tracing::info!(call = "3/8", "two\nlines \"quoted\"");
        });
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["call"], &lines[0]["message"]), (&"3/8".into(), &"two\nlines \"quoted\"".into()));
    }
}
