//! The template engine, set up as transformers sets up Jinja.
//!
//! **Invariant:** a template reaches nothing outside of its variables: there is no loader, no environment, no file.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use serde_json::Map;

use super::source::{self, prepared};
use super::{TemplateError, methods};
use crate::conversation::Conversation;
use crate::marks::{self, Pass};
use crate::python::{self, Dumps};

const NAME: &str = "chat_template";
/// Where a rendering keeps its clock; no template can spell this name.
const NOW: &str = "now unix s";
/// Mark behind the content of a last message that is to be continued; private use, so that no text has it.
const CONTINUE: &str = "\u{E0FF}continue\u{E0FE} ";

/// What went wrong in a rendering.
#[derive(Debug)]
pub(super) enum Failure {
    /// The template called `raise_exception` with this sentence.
    Raised(String),
    /// Anything else.
    Broken(String),
}

impl Failure {
    pub(super) fn is_raised(&self) -> bool {
        matches!(self, Failure::Raised(_))
    }
}

/// The sentence of `raise_exception`, carried through the engine's error.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An environment with `source` compiled.
pub(super) fn compiled(source: &str, pass: Pass) -> Result<Environment<'static>, TemplateError> {
    let syntax = |error: Error| TemplateError::Syntax(described(&error));
    let mut environment = Environment::new();
    environment.set_debug(false);
    environment
        .set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(syntax)?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("trim", methods::trim);
    environment.add_filter(source::ASSIGNED, methods::assigned);
    environment.add_filter("indent", methods::indent);
    environment.set_formatter(move |out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => Ok(out.write_str(&python::str_of(value, pass)?)?),
    });
    environment.add_filter(
        "tojson",
        move |state: &State, value: &Value, ensure_ascii: Option<bool>, kwargs: Kwargs| {
            let json = tojson(value, ensure_ascii, &kwargs, pass)?;
            state.consume_fuel(json.len() as u64 / JSON_BYTES_PER_FUEL)?;
            Ok::<_, Error>(json)
        },
    );
    environment.add_filter("string", move |value: &Value| python::str_of(value, pass));
    environment.add_filter("join", move |value: &Value, between: Option<Cow<'_, str>>, kwargs: Kwargs| {
        join(value, between.as_deref().unwrap_or(""), &kwargs, pass)
    });
    environment.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
        )
    });
    environment.add_test("sequence", |value: &Value| {
        let sized = value.kind() == ValueKind::Iterable && value.len().is_some();
        sized
            || matches!(
                value.kind(),
                ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map
            )
    });
    environment.add_function("raise_exception", |sentence: String| -> Result<Value, Error> {
        let error = Error::new(ErrorKind::InvalidOperation, "the template rejects the conversation");
        Err(error.with_source(Raised(sentence)))
    });
    environment.add_function("strftime_now", strftime_now);
    environment.add_template_owned(NAME, prepared(source)).map_err(syntax)?;
    Ok(environment)
}

/// Renders with `variables`, within `fuel`.
pub(super) fn render(
    environment: &Environment<'static>,
    variables: &Map<String, serde_json::Value>,
    conversation: &Conversation,
    fuel: u64,
) -> Result<String, Failure> {
    let mut variables = variables.clone();
    variables.insert(NOW.into(), conversation.now_unix_s.into());
    let open = conversation.continue_final_message && leave_open(&mut variables);
    let mut environment = environment.clone();
    environment.set_fuel(Some(fuel));
    let template = environment.get_template(NAME).map_err(|error| failure(&error))?;
    let mut text = template.render(object(&variables)).map_err(|error| failure(&error))?;
    if open {
        cut_open(&mut text)?;
    }
    Ok(text)
}

fn object(object: &Map<String, serde_json::Value>) -> Value {
    Value::from_pairs(object.iter().map(|(key, member)| (key.as_str(), value(member))))
}

fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(truth) => Value::from(*truth),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (_, Some(integer)) => Value::from(integer),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(value).collect::<Vec<_>>()),
        serde_json::Value::Object(members) => object(members),
    }
}

/// Puts the mark behind the last message's content.
fn leave_open(variables: &mut Map<String, serde_json::Value>) -> bool {
    let messages = variables.get_mut("messages").and_then(serde_json::Value::as_array_mut);
    let last = messages.and_then(|messages| messages.last_mut());
    match last.and_then(|message| message.get_mut("content")) {
        Some(serde_json::Value::String(content)) => {
            content.push_str(CONTINUE);
            true
        }
        _ => false,
    }
}

/// Ends the prompt where the mark is. A template that trims content has trimmed the mark's own space, and would have
/// trimmed the content's.
fn cut_open(text: &mut String) -> Result<(), Failure> {
    let Some(at) = text.rfind(CONTINUE.trim_end()) else {
        return Err(Failure::Broken("it does not print the last message, which is to be continued".into()));
    };
    let kept = text[at..].starts_with(CONTINUE);
    text.truncate(at);
    if !kept {
        text.truncate(text.trim_end().len());
    }
    Ok(())
}

fn failure(error: &Error) -> Failure {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Raised(sentence)) = cause.downcast_ref::<Raised>() {
            return Failure::Raised(sentence.clone());
        }
        source = cause.source();
    }
    Failure::Broken(described(error))
}

/// The engine's words with the line, and nothing of the template's source.
fn described(error: &Error) -> String {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("it does more work than is allowed{line}"),
        (kind, Some(detail)) => format!("{kind}: {detail}{line}"),
        (kind, None) => format!("{kind}{line}"),
    }
}

/// `join(value, d="", attribute=None)`, with each item as Python's `str` has it.
fn join(value: &Value, between: &str, kwargs: &Kwargs, pass: Pass) -> Result<String, Error> {
    let attribute = kwargs.get::<Option<String>>("attribute")?;
    let named = kwargs.get::<Option<String>>("d")?;
    kwargs.assert_all_used()?;
    let between = named.as_deref().unwrap_or(between);
    let mut joined = String::new();
    for (index, item) in value.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(between);
        }
        let item = match &attribute {
            Some(path) => path.split('.').try_fold(item, |item, name| item.get_attr(name))?,
            None => item,
        };
        match item.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&python::str_of(&item, pass)?),
        }
    }
    Ok(joined)
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers defines it.
fn tojson(value: &Value, ensure_ascii: Option<bool>, kwargs: &Kwargs, pass: Pass) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        Some(indent) if indent.kind() == ValueKind::Number => {
            Some(" ".repeat(usize::try_from(indent)?.min(INDENT_MAX)))
        }
        Some(indent) if indent.kind() == ValueKind::String => indent.as_str().map(str::to_owned),
        _ => None,
    };
    let separators = match kwargs.get::<Option<Vec<String>>>("separators")? {
        Some(pair) => match <[String; 2]>::try_from(pair) {
            Ok([item, key]) => Some((item, key)),
            Err(_) => return Err(Error::new(ErrorKind::InvalidOperation, "separators must be two strings")),
        },
        None => None,
    };
    let named = kwargs.get::<Option<bool>>("ensure_ascii")?;
    let dumps = Dumps {
        indent,
        separators,
        ensure_ascii: named.or(ensure_ascii).unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        pass,
    };
    kwargs.assert_all_used()?;
    let json = dumps.json(value)?;
    Ok(if pass == Pass::Marked { marks::spread(json) } else { json })
}

/// Writing JSON is slower than copying text; the engine's own filter charges as much.
const JSON_BYTES_PER_FUEL: u64 = 4;

/// Spaces of indentation that `tojson` takes.
const INDENT_MAX: usize = 16;

/// The time in UTC by Python's `strftime`.
fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let wrong =
        |error: &dyn fmt::Display| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}"));
    let seconds = state.lookup(NOW).and_then(|now| i64::try_from(now).ok()).unwrap_or(0);
    let now = Timestamp::from_second(seconds).map_err(|error| wrong(&error))?;
    strtime::format(format, &now.to_zoned(TimeZone::UTC)).map_err(|error| wrong(&error))
}
