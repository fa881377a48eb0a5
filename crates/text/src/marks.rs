//! Which characters of a rendered prompt the template wrote, and which came from the request.
//!
//! The conversation is rendered a second time with every string of the request replaced by marks: characters of
//! Unicode's private planes, one for one, that say which message they stand for. Where this rendering agrees with the
//! plain one character by character, its marks tell the origin of each character of the plain text.
//!
//! Some characters are left as they are, since templates strip, escape and compare them. The set of those is kept: a
//! control token is the template's only if it has a character that the request could not have put there unmarked.
//!
//! **Invariant:** in an aligned rendering an unmarked character outside of the kept set was written by the template.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::{Map, Value};

use crate::literals::Literals;

/// The two renderings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// The prompt.
    #[default]
    Plain,
    /// With marks.
    Marked,
}

impl Pass {
    /// Whether a character is a mark and not text.
    pub fn is_mark(self, character: char) -> bool {
        self == Pass::Marked && (slot_of(character).is_some() || is_key(character))
    }
}

/// Whose text a mark stands for: 0 for what belongs to no message, 1 for tools, then the messages.
pub type Slot = u32;

/// The slot of what belongs to no message.
pub const OTHER: Slot = 0;
/// The slot of tools.
pub const TOOLS: Slot = 1;

/// Which messages share a slot. Equal messages do, since templates compare whole messages with one another.
#[derive(Debug)]
pub struct Slots {
    of_message: Vec<Slot>,
    /// The messages of each slot, ascending.
    messages: HashMap<Slot, Vec<usize>>,
}

impl Slots {
    /// Gives every message of a conversation its slot.
    pub fn new(messages: &[Value]) -> Self {
        let mut by_text = HashMap::new();
        let mut slots = Slots { of_message: Vec::new(), messages: HashMap::new() };
        for (index, message) in messages.iter().enumerate() {
            let fresh = (TOOLS + 1 + index as u32).min(SLOTS - 1);
            let slot = *by_text.entry(message.to_string()).or_insert(fresh);
            slots.of_message.push(slot);
            slots.messages.entry(slot).or_default().push(index);
        }
        slots
    }

    /// The message that a mark of `slot` stands for, where templates print messages in order and `last` came before.
    pub fn message(&self, slot: Slot, last: Option<usize>) -> Option<usize> {
        let messages = self.messages.get(&slot)?;
        let next = last.map_or(0, |last| messages.partition_point(|message| *message <= last));
        messages.get(next).or(messages.last()).copied()
    }
}

/// Values are marked in plane 16, three marks to a slot; which of the three depends on the character, so that a
/// rendering that went another way is found out.
const VALUES: u32 = 0x10_0000;
const HASHES: u32 = 3;
const SLOTS: u32 = 0xFFFE / HASHES;
/// Keys are marked in plane 15, in an order that keeps that of the characters, since templates sort by keys.
const KEYS: u32 = 0xF_0000;

fn value_mark(slot: Slot, character: char) -> char {
    // Case is ignored, so that templates may change it.
    let folded = character.to_lowercase().next().unwrap_or(character);
    char::from_u32(VALUES + slot * HASHES + u32::from(folded) % HASHES).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn slot_of(character: char) -> Option<Slot> {
    let code = u32::from(character).checked_sub(VALUES)? / HASHES;
    (code < SLOTS).then_some(code)
}

fn key_mark(character: char) -> char {
    let code = u32::from(character);
    let place = if code < 0xE000 { code } else { 0xD800 + ((code - 0xE000) >> 8) };
    char::from_u32(KEYS + place).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn is_key(character: char) -> bool {
    (KEYS..KEYS + 0xFFFE).contains(&u32::from(character))
}

/// Marks what `json` did with marked values: the whole of an object belongs to where its values came from.
pub fn spread(json: String) -> String {
    let Some(slot) = json.chars().find_map(slot_of) else { return json };
    let mark = |character: char| {
        let kept = character.is_whitespace() || Pass::Marked.is_mark(character);
        if kept { character } else { value_mark(slot, character) }
    };
    json.chars().map(mark).collect()
}

/// How much is marked. Each is tried if the one before made the template go another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything, blank contents too.
    Blank,
    /// Everything but whitespace.
    Full,
    /// Neither words outside of contents, nor what the template could look for inside of them.
    Gentle,
}

/// Replaces the strings of a request by marks.
pub struct Marker<'a> {
    reach: Reach,
    literals: &'a Literals,
    slots: &'a Slots,
    /// Characters of the request that were left as they are.
    kept: HashSet<char>,
}

/// What a string is in the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Free text.
    Content,
    /// Anything else, which templates may compare with words of their own.
    Value,
    /// Compared with one another: marked alike wherever they stand.
    Id,
    /// A name of the protocol, such as a role.
    Word,
}

impl<'a> Marker<'a> {
    /// A marker for a template with these literals and a conversation with these slots.
    pub fn new(reach: Reach, literals: &'a Literals, slots: &'a Slots) -> Self {
        Marker { reach, literals, slots, kept: HashSet::new() }
    }

    /// The variables with marks; those in `own` are the template's and stay.
    pub fn variables(
        &mut self,
        variables: &Map<String, Value>,
        own: &dyn Fn(&str) -> bool,
    ) -> Map<String, Value> {
        let mut marked = Map::new();
        for (name, value) in variables {
            let value = match (name.as_str(), value) {
                ("messages", Value::Array(messages)) => {
                    let messages = messages.iter().enumerate();
                    let slot = |index: usize| self.slots.of_message.get(index).copied().unwrap_or(OTHER);
                    messages.map(|(index, message)| self.message(message, slot(index))).collect()
                }
                ("tools", tools) => self.value(tools, TOOLS, Part::Value),
                (name, value) if own(name) => value.clone(),
                (_, value) => self.value(value, OTHER, Part::Value),
            };
            marked.insert(name.clone(), value);
        }
        marked
    }

    /// Characters of the request that stand unmarked, in both cases.
    pub fn kept(&self) -> HashSet<char> {
        let cases =
            |character: &char| character.to_lowercase().chain(character.to_uppercase()).collect::<Vec<_>>();
        // Escapes are made of these.
        "0123456789abcdefnrtux\\\"'"
            .chars()
            .chain(self.kept.iter().flat_map(cases))
            .chain(self.kept.iter().copied())
            .collect()
    }

    fn message(&mut self, message: &Value, slot: Slot) -> Value {
        let Value::Object(object) = message else { return self.value(message, slot, Part::Value) };
        let mut marked = Map::new();
        for (key, value) in object {
            let part = match key.as_str() {
                "role" => Part::Word,
                "content" | "reasoning_content" | "thinking" | "reasoning" => Part::Content,
                "tool_call_id" => Part::Id,
                _ => Part::Value,
            };
            marked.insert(self.key(key), self.value(value, slot, part));
        }
        Value::Object(marked)
    }

    fn value(&mut self, value: &Value, slot: Slot, part: Part) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text, slot, part)),
            Value::Array(items) => items.iter().map(|item| self.value(item, slot, part)).collect(),
            Value::Object(object) => {
                let member = |(key, value): (&String, &Value)| {
                    let part = match key.as_str() {
                        "type" => Part::Word,
                        "text" if part == Part::Content => Part::Content,
                        "id" => Part::Id,
                        _ => Part::Value,
                    };
                    (self.key(key), self.value(value, slot, part))
                };
                Value::Object(object.iter().map(member).collect())
            }
            other => other.clone(),
        }
    }

    fn key(&mut self, key: &str) -> String {
        if is_word(key) {
            self.kept.extend(key.chars());
            return key.to_owned();
        }
        key.chars().map(|character| self.character(character, key_mark)).collect()
    }

    fn text(&mut self, text: &str, slot: Slot, part: Part) -> String {
        let stays = match part {
            Part::Word | Part::Id => is_word(text),
            Part::Value => is_word(text) && (self.reach == Reach::Gentle || self.literals.contain(text)),
            Part::Content => false,
        };
        if stays {
            self.kept.extend(text.chars());
            return text.to_owned();
        }
        let slot = if part == Part::Id { OTHER } else { slot };
        if self.reach == Reach::Blank && text.trim().is_empty() {
            return text.chars().map(|character| value_mark(slot, character)).collect();
        }
        if self.reach != Reach::Gentle {
            return text
                .chars()
                .map(|character| self.character(character, |c| value_mark(slot, c)))
                .collect();
        }
        let covered = self.literals.cover(text);
        let mark = |(at, character): (usize, char)| {
            if covered[at] {
                self.kept.insert(character);
                return character;
            }
            self.character(character, |c| value_mark(slot, c))
        };
        text.char_indices().map(mark).collect()
    }

    /// Templates strip whitespace, and printing escapes quotes, backslashes and control characters.
    fn character(&mut self, character: char, mark: impl Fn(char) -> char) -> char {
        if character.is_whitespace() || character.is_control() || matches!(character, '"' | '\'' | '\\') {
            self.kept.insert(character);
            return character;
        }
        mark(character)
    }
}

/// A word such as templates compare with; no control token is spelled so.
fn is_word(text: &str) -> bool {
    text.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.'))
}

/// Where a stretch of the plain text came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Unmarked: the template, or kept characters of the request.
    Unmarked,
    /// A value of this slot.
    Value(Slot),
    /// A key of some object.
    Key,
}

/// Lays the marked rendering over the plain one.
///
/// `None` if they do not agree: the template went another way.
pub fn align(plain: &str, marked: &str) -> Option<Vec<(Range<usize>, Source)>> {
    let mut runs: Vec<(Range<usize>, Source)> = Vec::new();
    let mut marks = marked.chars();
    for (at, character) in plain.char_indices() {
        let mark = marks.next()?;
        let source = match slot_of(mark) {
            Some(slot) if value_mark(slot, character) == mark => Source::Value(slot),
            _ if is_key(mark) && key_mark(character) == mark => Source::Key,
            None if mark == character && !is_key(mark) => Source::Unmarked,
            _ => return None,
        };
        let end = at + character.len_utf8();
        match runs.last_mut() {
            Some((range, last)) if *last == source => range.end = end,
            _ => runs.push((at..end, source)),
        }
    }
    marks.next().is_none().then_some(runs)
}
