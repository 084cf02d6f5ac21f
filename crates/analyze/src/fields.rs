//! Fields of spans and marks by name.

use laptime_trace::{Fields, Value};

/// A field that is a text.
pub(crate) fn text<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(as_text)
}

/// A value that is a text.
pub(crate) fn as_text(value: Value<'_>) -> Option<&str> {
    match value {
        Value::Str(text) => Some(text),
        _ => None,
    }
}

/// A field that is a whole number and not negative.
pub(crate) fn whole(fields: &Fields<'_>, name: &str) -> Option<u64> {
    match fields.get(name)? {
        Value::Int(number) => u64::try_from(number).ok(),
        Value::Uint(number) => Some(number),
        _ => None,
    }
}
