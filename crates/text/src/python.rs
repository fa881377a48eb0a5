//! Values as Python prints them: chat templates were written against Jinja in Python, where `{{ value }}` is `str`,
//! containers print by `repr`, and `tojson` is `json.dumps`.
//!
//! **Invariant:** nesting is bounded by [`DEPTH_MAX`], so that no value can overflow the stack.

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use crate::marks::Pass;
use crate::unicode::Class;

/// How deep containers may nest.
const DEPTH_MAX: usize = 128;

/// Python's `str(value)`.
///
/// # Errors
/// Values nested too deep.
pub fn str_of(value: &Value, pass: Pass) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => repr(value, &mut out, pass, 0)?,
    }
    Ok(out)
}

fn repr(value: &Value, out: &mut String, pass: Pass, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::String => repr_of_text(value.as_str().unwrap_or_default(), out, pass),
        ValueKind::Number if !value.is_integer() => out.push_str(&float(value)),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count == 0 { "" } else { ", " });
                repr(&item, out, pass, depth + 1)?;
                count += 1;
            }
            out.push_str(if value.is_tuple() && count == 1 { "," } else { "" });
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                repr(&key, out, pass, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, pass, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Single quotes unless only double ones avoid escaping; what does not print is escaped by code.
fn repr_of_text(text: &str, out: &mut String, pass: Pass) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if !Class::of(c).is(Class::UNPRINTABLE) || pass.is_mark(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..0x100 => write!(out, "\\x{code:02x}"),
                    0x100..0x1_0000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Python's `repr` of a float: the shortest digits that read back the same, an exponent below 1e-4 and from 1e16 on.
fn float(value: &Value) -> String {
    let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || number == 0.0 {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The arguments of `json.dumps` that templates use.
#[derive(Clone, Debug, Default)]
pub struct Dumps {
    pub indent: Option<String>,
    pub separators: Option<(String, String)>,
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    pub pass: Pass,
}

impl Dumps {
    /// Python's `json.dumps(value, ...)`.
    ///
    /// # Errors
    /// Values nested too deep, undefined values, and whatever JSON cannot say.
    pub fn json(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, &mut out, 0)?;
        Ok(out)
    }

    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container(('[', ']'), items.len(), out, depth, |at, out| {
                    self.write(&items[at], out, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.container(('{', '}'), keys.len(), out, depth, |at, out| {
                    self.text(&key(&keys[at])?, out);
                    out.push_str(self.separators.as_ref().map_or(": ", |(_, key)| key));
                    self.write(&value.get_item(&keys[at])?, out, depth + 1)
                })?;
            }
            kind => {
                let message = format!("an {kind} value cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn container(
        &self,
        (open, close): (char, char),
        count: usize,
        out: &mut String,
        depth: usize,
        mut item: impl FnMut(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(open);
        let between = match (&self.separators, &self.indent) {
            (Some((between, _)), _) => between.as_str(),
            (None, Some(_)) => ",",
            (None, None) => ", ",
        };
        for at in 0..count {
            out.push_str(if at == 0 { "" } else { between });
            self.line(out, depth + 1);
            item(at, out)?;
        }
        if count > 0 {
            self.line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn text(&self, text: &str, out: &mut String) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~' && !self.pass.is_mark(c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match float(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        finite => finite.into(),
    }
}

fn key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true".into() } else { "false".into() }),
        ValueKind::Number => Ok(number(key)),
        kind => Err(Error::new(ErrorKind::BadSerialization, format!("a JSON key cannot be of type {kind}"))),
    }
}

fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("a value is nested more than {DEPTH_MAX} levels deep"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (1e-7, "1e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-0.0, "-0.0"),
            (123456.789, "123456.789"),
        ];
        for (number, printed) in cases {
            assert_eq!(float(&Value::from(number)), printed);
        }
    }

    #[test]
    fn text_in_containers_is_quoted_as_in_python() {
        let value = Value::from(vec!["it's", "\"", "'\"", "\u{7}\u{a0}é\u{200d}\u{1F600}"]);
        assert_eq!(str_of(&value, Pass::Plain).unwrap(), "[\"it's\", '\"', '\\'\"', '\\x07\\xa0é\\u200d😀']");
    }
}
