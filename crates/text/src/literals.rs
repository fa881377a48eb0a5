//! The string literals of a template: what it can look for in a message's content.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::template::source::{Piece, Pieces, unescaped};

/// All string literals in a template's tags.
#[derive(Debug)]
pub struct Literals {
    texts: Vec<String>,
    automaton: AhoCorasick,
}

impl Literals {
    /// Collects the literals of `source`; those for which `keep` is false are left out.
    pub fn new(source: &str, keep: impl Fn(&str) -> bool) -> Self {
        let mut texts = in_tags(source);
        texts.retain(|text| !text.is_empty() && keep(text));
        texts.sort_unstable();
        texts.dedup();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&texts);
        Literals { automaton: automaton.expect("a template's size is bounded"), texts }
    }

    /// Whether `text` is one of them.
    pub fn contain(&self, text: &str) -> bool {
        self.texts.binary_search_by(|literal| literal.as_str().cmp(text)).is_ok()
    }

    /// For each byte of `text`, whether it lies in an occurrence of a literal.
    pub fn cover(&self, text: &str) -> Vec<bool> {
        let mut edges = vec![0i32; text.len() + 1];
        for found in self.automaton.find_overlapping_iter(text) {
            edges[found.start()] += 1;
            edges[found.end()] -= 1;
        }
        let mut open = 0;
        let covered = edges[..text.len()].iter().map(|edge| {
            open += edge;
            open > 0
        });
        covered.collect()
    }
}

/// The string literals of all tags, unescaped.
fn in_tags(source: &str) -> Vec<String> {
    let literal = |piece| match piece {
        Piece::Literal(literal) => Some(unescaped(literal)),
        _ => None,
    };
    Pieces::new(source).filter_map(literal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_in_tags_and_unescaped() {
        let source =
            r#"'not' {%- if "a\n}}" in {'k': 'v'} -%} {# 'no' #}{{ x.split('</think>')[-1] }} "out""#;
        assert_eq!(in_tags(source), ["a\n}}", "k", "v", "</think>"]);
        assert_eq!(in_tags(r#"{{ {'a': {'b': 1}} ~ 'c' }}"#), ["a", "b", "c"]);
    }

    #[test]
    fn cover_is_the_union_of_all_occurrences() {
        let literals = Literals::new("{{ 'bcd' 'cd' 'ab' 'x' }}", |text| text != "x");
        let shown: String =
            literals.cover("abcdxab").into_iter().map(|covered| if covered { '#' } else { '.' }).collect();
        assert_eq!(shown, "####.##");
    }
}
