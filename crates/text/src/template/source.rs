//! A template's source, cut into text, code and string literals, and prepared for the engine.
//!
//! **Invariant:** the pieces joined are the source.

/// A stretch of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Outside of tags, and comments.
    Text(&'a str),
    /// In tags, their delimiters included.
    Code(&'a str),
    /// A string literal in a tag, with its quotes.
    Literal(&'a str),
}

/// Cuts a template into pieces.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    rest: &'a str,
    tag: Option<Tag>,
}

/// A tag that is open.
#[derive(Clone, Copy, Debug)]
struct Tag {
    /// `{%` rather than `{{`.
    block: bool,
    /// Braces of dicts within.
    braces: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        Pieces { rest: source, tag: None }
    }

    fn cut(&mut self, bytes: usize) -> &'a str {
        let (piece, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        piece
    }

    fn text(&mut self) -> Piece<'a> {
        let tag =
            ["{{", "{%"].iter().filter_map(|open| self.rest.find(open)).min().unwrap_or(self.rest.len());
        match self.rest.find("{#") {
            Some(comment) if comment < tag => {
                let close =
                    self.rest[comment..].find("#}").map_or(self.rest.len(), |close| comment + close + 2);
                Piece::Text(self.cut(close))
            }
            _ => {
                self.tag = Some(Tag { block: self.rest[tag..].starts_with("{%"), braces: 0 });
                Piece::Text(self.cut(tag))
            }
        }
    }

    fn code(&mut self, tag: Tag) -> Piece<'a> {
        let bytes = self.rest.as_bytes();
        let opens = self.rest.starts_with("{{") || self.rest.starts_with("{%");
        let mut braces = tag.braces;
        for (at, byte) in bytes.iter().enumerate().skip(if opens { 2 } else { 0 }) {
            let next = bytes.get(at + 1);
            match byte {
                b'\'' | b'"' if at == 0 => return Piece::Literal(self.cut(literal(self.rest))),
                b'\'' | b'"' => {
                    self.tag = Some(Tag { braces, ..tag });
                    return Piece::Code(self.cut(at));
                }
                b'%' if tag.block && next == Some(&b'}') => {
                    self.tag = None;
                    return Piece::Code(self.cut(at + 2));
                }
                b'}' if !tag.block && braces == 0 && next == Some(&b'}') => {
                    self.tag = None;
                    return Piece::Code(self.cut(at + 2));
                }
                b'{' => braces += 1,
                b'}' => braces = braces.saturating_sub(1),
                _ => {}
            }
        }
        Piece::Code(self.cut(self.rest.len()))
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        Some(match self.tag {
            Some(tag) => self.code(tag),
            None => self.text(),
        })
    }
}

/// Bytes of the literal that `text` begins with.
fn literal(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A literal's text.
pub(crate) fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut characters = literal[1..].strip_suffix(&literal[..1]).unwrap_or(&literal[1..]).chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => text.extend(characters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            })),
            (plain, false) => text.push(plain),
        }
    }
    text
}

/// The filter that every assigned value goes through; its argument says whether it becomes a member.
pub(super) const ASSIGNED: &str = "__assigned";

/// The source without what the engine does not know, and with its assignments bounded.
///
/// `{% generation %}` marks what an assistant said, for training, and prints nothing: a condition that always holds treats
/// the whitespace around it alike. `'...' % value` is the filter `format`.
pub(super) fn prepared(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut pieces = Pieces::new(source);
    let mut after_literal = false;
    let mut assigning = None;
    loop {
        let tag = pieces.tag;
        let Some(piece) = pieces.next() else { return result };
        match piece {
            Piece::Text(text) | Piece::Literal(text) => result.push_str(text),
            Piece::Code(code) => match formatted(code, after_literal) {
                Some(operand) => {
                    // The operand may hold literals, so that it reaches beyond this piece.
                    pieces.rest = &source[source.len() - pieces.rest.len() - code.len() + operand..];
                    pieces.tag = tag;
                    let arguments = pieces.cut(argument(pieces.rest));
                    let inner = arguments.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
                    result.extend([" | format(", inner.unwrap_or(arguments), ")"]);
                }
                None => {
                    let mut code = &*without_generation(code);
                    if let Some(value) = assigned_value(code) {
                        assigning = Some(if code[..value].contains('.') { "(true)" } else { "(false)" });
                        result.extend([&code[..value], " ("]);
                        code = &code[value..];
                    }
                    let end = code.strip_suffix("%}").map(|code| code.trim_end_matches(['-', '+']).len());
                    match (end, assigning) {
                        (Some(end), Some(to_member)) => {
                            result.extend([&code[..end], ") | ", ASSIGNED, to_member, " ", &code[end..]]);
                            assigning = None;
                        }
                        _ => result.push_str(code),
                    }
                }
            },
        }
        after_literal = matches!(piece, Piece::Literal(_));
    }
}

/// Where the value begins, in code that begins a tag `{% set name = value %}`.
fn assigned_value(code: &str) -> Option<usize> {
    let inner = code.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start().strip_prefix("set")?;
    let target = inner.find(|c: char| !(c.is_ascii_alphanumeric() || "_., ()\t\r\n".contains(c)))?;
    let is_name = inner.starts_with(char::is_whitespace);
    let value = inner[target..].strip_prefix('=').filter(|value| is_name && !value.starts_with('='))?;
    Some(code.len() - value.len())
}

/// Where the operand begins, in code that goes on from a literal with `%`.
fn formatted(code: &str, after_literal: bool) -> Option<usize> {
    let operand = code.trim_start().strip_prefix('%').filter(|_| after_literal)?;
    if operand.starts_with('}') {
        return None;
    }
    Some(code.len() - operand.trim_start().len())
}

/// Bytes of the operand that `text` begins with: brackets or a word, and what is attached to it.
fn argument(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        at += match rest.bytes().next() {
            Some(b'(' | b'[') => brackets(rest),
            Some(b'\'' | b'"') => literal(rest),
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') => 1,
            _ => return at,
        };
        // Brackets of their own are the whole operand.
        if text.starts_with('(') {
            return at;
        }
    }
}

fn brackets(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'\'' | b'"' => at += literal(&text[at..]) - 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

fn without_generation(code: &str) -> String {
    let inner = code.strip_prefix("{%").and_then(|code| code.strip_suffix("%}"));
    match inner.map(|inner| inner.trim_matches(['-', '+']).trim()) {
        Some("generation") => code.replace("generation", "if true"),
        Some("endgeneration") => code.replace("endgeneration", "endif"),
        _ => code.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(prepared(source), expected);
    }

    #[test]
    fn pieces_joined_are_the_source() {
        let source = "a {# it's #} {{ 'x}}' ~ {'k': \"v\"} }} %} {%- if a['\\''] -%}{{ unclosed 'lit";
        let join = |piece| match piece {
            Piece::Text(text) | Piece::Code(text) | Piece::Literal(text) => text,
        };
        assert_eq!(Pieces::new(source).map(join).collect::<String>(), source);
    }

    #[test]
    fn generation_tags_become_conditions_with_the_same_whitespace_control() {
        check("{%- generation -%}x{% endgeneration +%}", "{%- if true -%}x{% endif +%}");
    }

    #[test]
    fn assigned_values_go_through_a_filter() {
        check("{%- set a.b = ['=', \"%}\"] -%}", "{%- set a.b = ( ['=', \"%}\"] ) | __assigned(true) -%}");
        check("{% set x | indent(width=4) %}y{% endset %}", "{% set x | indent(width=4) %}y{% endset %}");
        check("{% if set == 1 %}", "{% if set == 1 %}");
        check(
            "{% set a = {'b': {}} %}{{ {'c': {}} }}",
            "{% set a = ( {'b': {}} ) | __assigned(false) %}{{ {'c': {}} }}",
        );
        check("{% set a, b = c %}", "{% set a, b = ( c ) | __assigned(false) %}");
    }

    #[test]
    fn percent_after_a_literal_becomes_the_filter_format() {
        check("{{ '%s:%d' % (a.b, f(')')) ~ c }}", "{{ '%s:%d' | format(a.b, f(')')) ~ c }}");
        check("{{ '%s' % a.b['c'] }}", "{{ '%s' | format(a.b['c']) }}");
        check("{{ 7 % 2 }}{% if 'x' %}y{% endif %}", "{{ 7 % 2 }}{% if 'x' %}y{% endif %}");
    }
}
