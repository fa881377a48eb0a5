//! Bytes to a JSON value, strictly and with bounds.
//!
//! **Invariant:** nesting is counted before anything recurses, so no body can overflow a stack. Of duplicate keys the
//! last one counts.

use protocol::{Limits, Refusal, RefusalKind};
use serde_json::{Map, Value};

/// The deepest nesting that may be configured: the parser's own limit lies just above it.
const DEPTH_MAX: usize = 120;

/// A request's body, which has to be one JSON object.
///
/// # Errors
/// The byte at fault and what is wrong there.
pub fn object(body: &[u8], limits: &Limits) -> Result<Map<String, Value>, Refusal> {
    match value(body, limits.json_depth_max) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(invalid(format!(
            "the body must be a JSON object, but it is {}; see the API reference",
            kind(&other)
        ))),
        Err(fault) => Err(invalid(format!("the body is not valid JSON: {fault}"))),
    }
}

/// Any JSON text, such as the arguments of a tool call.
///
/// # Errors
/// A sentence with the byte at fault.
pub fn value(text: &[u8], depth_max: usize) -> Result<Value, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err("at byte 0: a byte order mark; send UTF-8 without one".into());
    }
    if let Err(error) = std::str::from_utf8(text) {
        return Err(format!("at byte {}: not UTF-8", error.valid_up_to()));
    }
    bounded_depth(text, depth_max.min(DEPTH_MAX))?;
    serde_json::from_slice(text).map_err(|error| {
        let reason = error.to_string();
        // The parser counts lines and columns; a byte position is what a client can use.
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        format!("at byte {}: {reason}", position(text, error.line(), error.column()))
    })
}

/// Counts brackets outside strings.
fn bounded_depth(text: &[u8], depth_max: usize) -> Result<(), String> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    return Err(format!("at byte {at}: nested deeper than {depth_max} levels"));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// The offset of a one-based line and column.
fn position(text: &[u8], line: usize, column: usize) -> usize {
    let before = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1));
    (before.map(<[u8]>::len).sum::<usize>() + column.saturating_sub(1)).min(text.len())
}

/// What a value is, in words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction or exponent",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A short, escaped excerpt of what a client sent, fit for an error message.
pub fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let short: String = text.chars().take(CHARACTERS_MAX).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("\"{}{more}\"", short.escape_debug())
}

fn invalid(message: String) -> Refusal {
    Refusal::new(RefusalKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: impl AsRef<[u8]>, expected: &str) {
        let refusal = object(body.as_ref(), &Limits::default()).expect_err(expected);
        assert!(refusal.message.contains(expected), "{:?} does not say {expected:?}", refusal.message);
    }

    #[test]
    fn a_fault_is_named_by_its_byte() {
        check("", "it is empty");
        check("\u{feff}{}", "at byte 0: a byte order mark");
        check(b"{\"a\":\"\xc4\xe3\"}", "at byte 6: not UTF-8");
        check("{\"a\":1} x", "at byte 8: trailing characters");
        check("{\"a\":\n NaN}", "at byte 7: expected value");
        check("{\"a\":Infinity}", "at byte 5: expected value");
        check("{\"a\":\"\\ud800\"}", "at byte");
        check("{\"a\":\"\\udc00\"}", "at byte");
        check("{\"a\":1e999}", "number out of range");
        check("{\"a\"", "EOF");
        check("[1]", "must be a JSON object, but it is an array");
    }

    #[test]
    fn nesting_of_a_hundred_thousand_levels_is_refused_and_brackets_in_strings_do_not_count() {
        let deep = 100_000;
        check(format!("{{\"x\":{}{}}}", "[".repeat(deep), "]".repeat(deep)), "nested deeper than 64 levels");
        check("{\"x\":".repeat(deep), "nested deeper than 64 levels");
        let text = format!("{{\"x\":\"\\\"{}\"}}", "[{".repeat(deep));
        assert!(object(text.as_bytes(), &Limits::default()).is_ok());
        let level = format!("{{\"x\":{}{}}}", "[".repeat(63), "]".repeat(63));
        assert!(object(level.as_bytes(), &Limits::default()).is_ok());
        let configured = Limits { json_depth_max: usize::MAX, ..Limits::default() };
        let text = format!("{{\"x\":{}{}}}", "[".repeat(deep), "]".repeat(deep));
        assert!(object(text.as_bytes(), &configured).is_err(), "no configuration may overflow the stack");
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let map = object(br#"{"n":1,"n":2}"#, &Limits::default()).unwrap();
        assert_eq!(map["n"], 2);
    }

    #[test]
    fn an_excerpt_is_short_and_escaped() {
        assert_eq!(excerpt("a\u{0}\"b\n"), r#""a\0\"b\n""#);
        assert!(excerpt(&"é".repeat(1000)).chars().count() < 50);
    }
}
