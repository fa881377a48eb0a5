//! Python's methods of strings and dicts, where the engine's own set is missing one or follows other rules.
//!
//! **Invariant:** every result is at most as large as its inputs, but for a width that is bounded.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// Columns that `zfill` fills.
const WIDTH_MAX: usize = 1_024;

/// What a template calls on a value that has no such member.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match (method, args) {
            ("splitlines", []) => Ok(lines(text).into_iter().map(Value::from).collect()),
            ("strip", []) => Ok(Value::from(text.trim_matches(is_space))),
            ("lstrip", []) => Ok(Value::from(text.trim_start_matches(is_space))),
            ("rstrip", []) => Ok(Value::from(text.trim_end_matches(is_space))),
            ("zfill", _) => zfill(text, args),
            ("removeprefix", _) => {
                let (prefix,): (&str,) = from_args(args)?;
                Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
            }
            ("removesuffix", _) => {
                let (suffix,): (&str,) = from_args(args)?;
                Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
            }
            _ => pycompat::unknown_method_callback(state, value, method, args),
        },
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// The filter `trim`.
pub(super) fn trim(text: &Value, characters: Option<String>) -> Result<String, Error> {
    let text = match text.kind() {
        ValueKind::Undefined => String::new(),
        _ => text.to_string(),
    };
    Ok(match characters {
        Some(characters) => text.trim_matches(|character| characters.contains(character)).to_owned(),
        None => text.trim_matches(is_space).to_owned(),
    })
}

/// The filter `indent`: every line but the first, and blank ones only on request.
pub(super) fn indent(state: &State, text: String, arguments: Rest<Value>) -> Result<String, Error> {
    let (width, first, blank, kwargs): (Option<Value>, Option<bool>, Option<bool>, Kwargs) =
        from_args(&arguments)?;
    let width = width.or(kwargs.get("width")?).unwrap_or(Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let indentation = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(usize::try_from(width)?.min(WIDTH_MAX)),
    };
    let text = text + "\n";
    let lines = lines(&text);
    // What this makes can be far larger than what it is given, so that it is paid for beforehand.
    state.consume_fuel((lines.len() * indentation.len() / 64) as u64)?;
    let mut result = String::new();
    for (index, line) in lines.into_iter().enumerate() {
        let indented = if index == 0 { first } else { blank || !line.is_empty() };
        result.extend([if index == 0 { "" } else { "\n" }, if indented { &indentation } else { "" }, line]);
    }
    Ok(result)
}

/// How deep a value may nest that a template keeps in a variable.
const DEPTH_MAX: usize = 64;

/// What a template assigns goes through here: values that grow around themselves would overflow the stack wherever they
/// are printed, compared or dropped. Lazy sequences become lists, as they are in Python.
///
/// # Errors
/// Values nested too deep, and namespaces in other values or as their own members: they could hold themselves.
pub(super) fn assigned(state: &State, value: Value, to_member: bool) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Iterable => value.try_iter()?.checked().collect::<Result<Vec<Value>, Error>>()?.into(),
        _ => value,
    };
    if to_member || !is_namespace(&value) {
        check_depth(state, &value, 0)?;
    }
    Ok(value)
}

fn check_depth(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    if depth > DEPTH_MAX {
        let message = format!("a value is nested more than {DEPTH_MAX} levels deep");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if is_namespace(value) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a namespace cannot be part of another value"));
    }
    state.consume_fuel(1 + value.len().unwrap_or(0) as u64 / 8)?;
    let is_map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        let member = if is_map { value.get_item(&item)? } else { item };
        check_depth(state, &member, depth + 1)?;
    }
    Ok(())
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Python counts four separators as whitespace that Unicode does not.
fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Python's line ends are more than newlines.
fn lines(text: &str) -> Vec<&str> {
    let ends = |character| matches!(character, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(ends) {
        lines.push(&rest[..end]);
        let after = &rest[end..];
        rest = after.strip_prefix("\r\n").unwrap_or_else(|| after.strip_prefix(ends).unwrap_or(after));
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

fn zfill(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (usize,) = from_args(args)?;
    if width > WIDTH_MAX {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("zfill fills at most {WIDTH_MAX} columns"),
        ));
    }
    let zeros = "0".repeat(width.saturating_sub(text.chars().count()));
    let digits = text.trim_start_matches(['+', '-']);
    let (sign, digits) = if text.len() - digits.len() == 1 { text.split_at(1) } else { ("", text) };
    Ok(Value::from([sign, &zeros, digits].concat()))
}
