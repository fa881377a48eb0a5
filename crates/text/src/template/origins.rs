//! From a plain rendering to a [`Rendered`]: spans by origin, and the control tokens that the template wrote.
//!
//! **Invariant:** a control token of the result was written by the template, or the conversation is refused.

use std::collections::HashSet;
use std::ops::Range;

use ledger::Origin;
use protocol::{Refusal, TokenId};
use serde_json::{Map, Value};

use super::{ChatTemplate, indistinct};
use crate::conversation::Conversation;
use crate::marks::{self, Marker, Pass, Reach, Slot, Slots, Source};
use crate::rendered::{Rendered, Span};

type Runs = Vec<(Range<usize>, Source)>;

/// Traces every character of `text` to where it came from.
pub(super) fn trace(
    template: &ChatTemplate,
    conversation: &Conversation,
    variables: &Map<String, Value>,
    text: String,
) -> Result<Rendered, Refusal> {
    let slots = Slots::new(&conversation.messages);
    for reach in [Reach::Blank, Reach::Full, Reach::Gentle] {
        if reach == Reach::Blank && !has_blank_content(conversation) {
            continue;
        }
        if let Some((runs, control)) = marked(template, conversation, variables, &text, (reach, &slots)) {
            if std::env::var_os("TRACE_STAT").is_some() {
                eprintln!("REACH {reach:?}");
            }
            let spans = spans(conversation, &slots, &text, &runs, &control);
            return Ok(Rendered { text, spans, control });
        }
    }
    if std::env::var_os("TRACE_STAT").is_some() {
        eprintln!("REACH None {:?}", &text[..text.floor_char_boundary(300)]);
    }
    unmarked(template, conversation, variables, text)
}

fn has_blank_content(conversation: &Conversation) -> bool {
    let content = |message: &Value| message.get("content").and_then(Value::as_str).is_some_and(is_blank);
    conversation.messages.iter().any(content)
}

fn is_blank(text: &str) -> bool {
    !text.is_empty() && text.trim().is_empty()
}

/// Renders with marks. `None` if the template went another way, or if one of its control tokens could be the request's.
fn marked(
    template: &ChatTemplate,
    conversation: &Conversation,
    variables: &Map<String, Value>,
    text: &str,
    (reach, slots): (Reach, &Slots),
) -> Option<(Runs, Vec<Range<usize>>)> {
    let mut marker = Marker::new(reach, &template.literals, slots);
    let own = |name: &str| {
        let special = template.special_tokens.iter().any(|(own, _)| own == name);
        special && !conversation.kwargs.contains_key(name)
    };
    let variables = marker.variables(variables, &own);
    let rendering = template.pass(Pass::Marked, conversation, &variables).ok()?;
    let runs = marks::align(text, &rendering)?;
    let kept = marker.kept();
    let mut control = Vec::new();
    let mut doubtful = false;
    let unmarked = |range: &Range<usize>| {
        let first = runs.partition_point(|(run, _)| run.end <= range.start);
        let overlapping = runs[first..].iter().take_while(|(run, _)| run.start < range.end);
        overlapping.into_iter().all(|(_, source)| *source == Source::Unmarked)
    };
    let specials = template.tokenizer.specials();
    for found in specials.find_all(text, |found| unmarked(&(found.start..found.end))) {
        if template.tokenizer.is_control(found.token) {
            doubtful |= !is_guarded(&name(template, found.token), &kept);
            control.push(found.start..found.end);
        }
    }
    (!doubtful).then_some((runs, control))
}

/// Whether a control token has a character that the request could not have put into the prompt unmarked. One that is
/// made of punctuation and digits only, as JSON is, never counts as guarded.
fn is_guarded(name: &str, kept: &HashSet<char>) -> bool {
    let structural = |character: char| character.is_ascii_digit() || "[]{}(),:.\"' -+".contains(character);
    name.chars().any(|character| !kept.contains(&character)) && !name.chars().all(structural)
}

fn name(template: &ChatTemplate, token: TokenId) -> String {
    String::from_utf8_lossy(template.tokenizer.vocabulary().token_bytes(token)).into_owned()
}

/// The template inspects the request's text in a way that marks do not survive. Then a control token is the template's
/// only if it cannot be written with the request's characters at all.
fn unmarked(
    template: &ChatTemplate,
    conversation: &Conversation,
    variables: &Map<String, Value>,
    text: String,
) -> Result<Rendered, Refusal> {
    let mut typed = HashSet::new();
    let requested = ["messages", "tools"].iter().filter_map(|name| variables.get(*name));
    requested.chain(conversation.kwargs.values()).for_each(|value| collect(value, &mut typed));
    let mut control = Vec::new();
    for found in template.tokenizer.specials().find_all(&text, |_| true) {
        if !template.tokenizer.is_control(found.token) {
            continue;
        }
        let name = name(template, found.token);
        let punctuation: Vec<char> = name.chars().filter(|character| !character.is_alphanumeric()).collect();
        // Letters may change case on the way, so that only other characters count where there are any.
        if punctuation.iter().all(|character| typed.contains(character)) {
            return Err(indistinct(&name));
        }
        control.push(found.start..found.end);
    }
    let spans = located(conversation, &text);
    Ok(Rendered { text, spans, control })
}

fn collect(value: &Value, typed: &mut HashSet<char>) {
    match value {
        Value::String(text) => typed.extend(text.chars()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, typed)),
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            typed.extend(key.chars());
            collect(value, typed);
        }),
        _ => {}
    }
}

/// Spans from marks. What stands unmarked between two marks of one message belongs to it, unless a control token is
/// there; so does whitespace at the edges of its content.
fn spans(
    conversation: &Conversation,
    slots: &Slots,
    text: &str,
    runs: &Runs,
    control: &[Range<usize>],
) -> Vec<Span> {
    let mut owned: Vec<(Range<usize>, Slot)> = Vec::new();
    for (range, source) in runs {
        let Source::Value(slot) = source else { continue };
        match owned.last_mut() {
            Some((last, owner)) if owner == slot && !holds_control(control, last.end..range.start) => {
                last.end = range.end;
            }
            _ => owned.push((range.clone(), *slot)),
        }
    }
    let mut spans = Vec::new();
    let (mut at, mut last) = (0, None);
    for index in 0..owned.len() {
        let (range, slot) = owned[index].clone();
        let next = owned.get(index + 1).map_or(text.len(), |(next, _)| next.start);
        let message = slots.message(slot, last);
        last = message.or(last);
        let range = with_edges(conversation, text, range, message, at..next);
        push(&mut spans, at..range.start, Origin::Template, None);
        at = range.end;
        let origin = message.map_or_else(|| of_slot(slot), |message| of_role(conversation.role(message)));
        push(&mut spans, range, origin, message);
    }
    push(&mut spans, at..text.len(), Origin::Template, None);
    spans
}

fn holds_control(control: &[Range<usize>], gap: Range<usize>) -> bool {
    let first = control.partition_point(|range| range.end <= gap.start);
    control.get(first).is_some_and(|range| range.start < gap.end)
}

/// Widens a message's span by the whitespace that its content begins and ends with, as far as it is in the text.
fn with_edges(
    conversation: &Conversation,
    text: &str,
    range: Range<usize>,
    message: Option<usize>,
    within: Range<usize>,
) -> Range<usize> {
    let message = message.map(|index| &conversation.messages[index]);
    let content = message.and_then(|message| message.get("content")).and_then(Value::as_str);
    let Some(content) = content.filter(|content| !is_blank(content)) else { return range };
    let leading = &content[..content.len() - content.trim_start().len()];
    let trailing = &content[content.trim_end().len()..];
    let equal = |a: &str, b: &mut dyn Iterator<Item = char>| -> usize {
        a.chars().rev().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
    };
    let before = equal(&text[within.start..range.start], &mut leading.chars().rev());
    let after = text[range.end..within.end].chars().zip(trailing.chars());
    let after: usize = after.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    range.start - before..range.end + after
}

/// Spans without marks: each message's content where it stands next in the text.
fn located(conversation: &Conversation, text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = 0;
    for (index, message) in conversation.messages.iter().enumerate() {
        let content = message.get("content").and_then(Value::as_str).unwrap_or_default().trim();
        let found = (!content.is_empty()).then(|| text[at..].find(content)).flatten();
        if let Some(start) = found.map(|found| at + found) {
            push(&mut spans, at..start, Origin::Template, None);
            at = start + content.len();
            push(&mut spans, start..at, of_role(conversation.role(index)), Some(index));
        }
    }
    push(&mut spans, at..text.len(), Origin::Template, None);
    spans
}

fn of_slot(slot: Slot) -> Origin {
    if slot == marks::TOOLS { Origin::Tools } else { Origin::Template }
}

fn of_role(role: &str) -> Origin {
    match role {
        "system" | "developer" => Origin::System,
        "assistant" | "model" => Origin::Assistant,
        "tool" | "function" => Origin::Tool,
        _ => Origin::User,
    }
}

fn push(spans: &mut Vec<Span>, range: Range<usize>, origin: Origin, message: Option<usize>) {
    if range.is_empty() {
        return;
    }
    match spans.last_mut() {
        Some(last) if (last.origin, last.message) == (origin, message) => last.range.end = range.end,
        _ => spans.push(Span { range, origin, message }),
    }
}
