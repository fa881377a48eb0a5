//! The scanners: each gives the length of the first piece of a text.
//!
//! **Invariant:** a piece is never empty and ends between two characters.

use super::Stage;
use crate::unicode::Class;

const LETTER_OR_NUMBER: Class = Class::LETTER.or(Class::NUMBER);
const WORD_OR_SPACE: Class = LETTER_OR_NUMBER.or(Class::SPACE);

impl Stage {
    /// Bytes of the first piece of `text`, which is not empty.
    pub(super) fn piece(self, text: &str) -> usize {
        match self {
            Stage::EachNumber => {
                let first = first(text);
                if is_number(first) { first.len_utf8() } else { run(text, |c| !is_number(c)) }
            }
            Stage::Numbers => alternating(text, is_number),
            Stage::Punctuation => alternating(text, is_symbol),
            Stage::TripleDigits => triple_digits(text),
            Stage::Gpt2 => gpt2(text),
            Stage::Cl100k { digits } => cl100k(text, digits),
        }
    }
}

fn gpt2(text: &str) -> usize {
    if let Some(length) = contraction(text, str::eq) {
        return length;
    }
    let (space, body) = match text.strip_prefix(' ') {
        Some(body) => (1, body),
        None => (0, text),
    };
    let class = body.chars().next().map(Class::of);
    match class {
        Some(class) if class.is(Class::LETTER) => space + run(body, is_letter),
        Some(class) if class.is(Class::NUMBER) => space + run(body, is_number),
        Some(class) if !class.is(Class::SPACE) => space + run(body, is_other),
        _ => spaces(text),
    }
}

fn cl100k(text: &str, digits: usize) -> usize {
    // `ſ` is what case folding makes equal to `s`.
    let same = |a: &str, b: &str| a.chars().map(fold).eq(b.chars());
    if let Some(length) = contraction(text, same) {
        return length;
    }
    let first = first(text);
    let class = Class::of(first);
    let after = &text[first.len_utf8()..];
    if class.is(Class::LETTER) {
        return run(text, is_letter);
    }
    if !matches!(first, '\r' | '\n') && !class.is(Class::NUMBER) && after.starts_with(is_letter) {
        return first.len_utf8() + run(after, is_letter);
    }
    if class.is(Class::NUMBER) {
        return text.chars().take(digits).take_while(|c| is_number(*c)).map(char::len_utf8).sum();
    }
    let (space, body) = match text.strip_prefix(' ') {
        Some(body) => (1, body),
        None => (0, text),
    };
    if body.starts_with(is_other) {
        let others = space + run(body, is_other);
        return others + run(&text[others..], is_newline);
    }
    let blank = &text[..run(text, char::is_whitespace)];
    match blank.rfind(is_newline) {
        Some(last_newline) => last_newline + 1,
        None => spaces(text),
    }
}

/// `\s+(?!\S)|\s+`: a run of whitespace, less its last character if a word follows, which takes that one along.
fn spaces(text: &str) -> usize {
    let blank = &text[..run(text, char::is_whitespace)];
    let last = blank.chars().next_back().map_or(0, char::len_utf8);
    if blank.len() == text.len() || blank.len() == last { blank.len() } else { blank.len() - last }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`
fn contraction(text: &str, same: impl Fn(&str, &str) -> bool) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let matches = |ending: &&str| {
        let end = body.char_indices().nth(ending.len()).map_or(body.len(), |(end, _)| end);
        same(&body[..end], ending).then_some(1 + end)
    };
    ["s", "t", "re", "ve", "m", "ll", "d"].iter().find_map(matches)
}

fn fold(character: char) -> char {
    if character == 'ſ' { 's' } else { character.to_ascii_lowercase() }
}

/// A run of characters that are all `inside`, or all not.
fn alternating(text: &str, inside: impl Fn(char) -> bool) -> usize {
    let first = inside(first(text));
    run(text, |c| inside(c) == first)
}

fn triple_digits(text: &str) -> usize {
    let bytes = text.as_bytes();
    let triple = |at: usize| bytes.get(at..at + 3).is_some_and(|three| three.iter().all(u8::is_ascii_digit));
    if triple(0) {
        return 3;
    }
    (1..bytes.len()).find(|at| triple(*at)).unwrap_or(bytes.len())
}

/// Bytes of the characters at the start that satisfy `inside`.
fn run(text: &str, inside: impl Fn(char) -> bool) -> usize {
    text.find(|c| !inside(c)).unwrap_or(text.len())
}

fn first(text: &str) -> char {
    text.chars().next().expect("a piece is asked only of a text that is not empty")
}

fn is_letter(character: char) -> bool {
    Class::of(character).is(Class::LETTER)
}

fn is_number(character: char) -> bool {
    Class::of(character).is(Class::NUMBER)
}

fn is_other(character: char) -> bool {
    !Class::of(character).is(WORD_OR_SPACE)
}

fn is_newline(character: char) -> bool {
    matches!(character, '\r' | '\n')
}

fn is_symbol(character: char) -> bool {
    Class::of(character).is(Class::PUNCTUATION) || "$+<=>^~|".contains(character)
}
