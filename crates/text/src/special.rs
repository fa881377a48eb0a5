//! Tokens that are found in text by their spelling, before anything else splits it.
//!
//! User-defined tokens match wherever they occur. Control tokens match only where the caller allows it: in text that
//! the template wrote, or in a raw prompt.
//!
//! **Invariant:** matches do not overlap; the leftmost wins, and of several that begin together the longest.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use protocol::TokenId;

use crate::tokenizer::SPACE_MARK;
use crate::vocabulary::{Model, TokenType, Vocabulary};

/// Finds special tokens.
#[derive(Debug)]
pub struct Specials {
    user_defined: Finder,
    control: Finder,
}

/// A special token's place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub token: TokenId,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug)]
struct Finder {
    automaton: AhoCorasick,
    /// By pattern; a token of two spellings stands here twice.
    tokens: Vec<TokenId>,
}

impl Finder {
    fn new(vocabulary: &Vocabulary, wanted: TokenType) -> Self {
        let mut tokens = Vec::new();
        let mut spellings: Vec<Cow<[u8]>> = Vec::new();
        for token in vocabulary.ids().filter(|token| vocabulary.token_type(*token) == wanted) {
            let bytes = vocabulary.token_bytes(token);
            tokens.push(token);
            spellings.push(bytes.into());
            // SentencePiece's tokens of several spaces match typed U+2581 as well, which is how they are spelled there.
            if matches!(vocabulary.model, Model::SentencePiece { .. }) && bytes.contains(&b' ') {
                tokens.push(token);
                spellings.push(String::from_utf8_lossy(bytes).replace(' ', SPACE_MARK).into_bytes().into());
            }
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(spellings)
            .expect("a vocabulary's size is far below the automaton's limits");
        Finder { automaton, tokens }
    }

    fn find(&self, text: &str, from: usize) -> Option<Found> {
        let found = self.automaton.find(Input::new(text).range(from..))?;
        let token = self.tokens[found.pattern().as_usize()];
        Some(Found { token, start: found.start(), end: found.end() })
    }
}

impl Specials {
    /// Collects the special tokens of `vocabulary`.
    pub fn new(vocabulary: &Vocabulary) -> Self {
        Specials {
            user_defined: Finder::new(vocabulary, TokenType::UserDefined),
            control: Finder::new(vocabulary, TokenType::Control),
        }
    }

    /// All special tokens of `text`; `allowed` says whether a control token may be parsed at a place.
    pub fn find_all<'a>(
        &'a self,
        text: &'a str,
        mut allowed: impl FnMut(&Found) -> bool + 'a,
    ) -> impl Iterator<Item = Found> + 'a {
        let mut at = 0;
        let mut user_defined = Cursor::default();
        let mut control = Cursor::default();
        std::iter::from_fn(move || {
            let plain = user_defined.next(at, |from| self.user_defined.find(text, from));
            let marker = control.next(at, |from| {
                let mut from = from;
                loop {
                    let found = self.control.find(text, from)?;
                    if allowed(&found) {
                        return Some(found);
                    }
                    from = text.ceil_char_boundary(found.start + 1);
                }
            });
            let first = match (plain, marker) {
                (Some(plain), Some(marker)) => {
                    let marker_first = (marker.start, plain.end) < (plain.start, marker.end);
                    if marker_first { marker } else { plain }
                }
                (plain, marker) => plain.or(marker)?,
            };
            at = first.end;
            Some(first)
        })
    }
}

/// Remembers the next match of one kind, so that no text is searched twice for it.
#[derive(Default)]
struct Cursor {
    searched: bool,
    found: Option<Found>,
}

impl Cursor {
    fn next(&mut self, at: usize, find: impl FnOnce(usize) -> Option<Found>) -> Option<Found> {
        let stale = match self.found {
            Some(found) => found.start < at,
            None => !self.searched,
        };
        if stale {
            self.found = find(at);
            self.searched = true;
        }
        self.found
    }
}
