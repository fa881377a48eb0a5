//! Text whose length in tokens is exact.
//!
//! Tokens do not add up: two texts put together may have fewer tokens than apart, where the tokenizer merges across
//! the seam, or more. So a text is made of the vocabulary's plain words, encoded as a whole, and repaired at its end until the count is right.
//!
//! **Invariant:** a text that is called exact has been encoded as a whole, and has the wanted number of tokens.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use rand::RngExt;
use rand::rngs::ChaCha12Rng;

use super::text::{Content, Front, TAG_WORDS, Tag, TextTokens};

/// Words that are taken from a vocabulary, at most: the first ones, which in vocabularies sorted by frequency are the
/// most common.
const WORDS_MAX: usize = 4096;
/// Fewer would make texts of hardly any variety.
const WORDS_MIN: usize = 16;
const LETTERS: std::ops::RangeInclusive<usize> = 2..=12;
/// Encodings of one text until it is given up.
const ATTEMPTS_MAX: u32 = 64;

pub(super) struct ExactWords {
    tokens: Arc<dyn TextTokens>,
    /// Words that cost one token behind another word.
    words: Vec<Box<str>>,
    /// Those that also are one token where a text begins; all words, if there are none.
    starters: Vec<Box<str>>,
}

/// A text, and whether it came out right.
pub(super) struct Made {
    pub text: Arc<str>,
    /// With its front.
    pub tokens: u32,
    /// Why it does not have the wanted length.
    pub inexact: Option<String>,
}

impl ExactWords {
    /// Looks for plain words in the vocabulary; fails if there are too few.
    pub fn new(tokens: Arc<dyn TextTokens>) -> Result<Self> {
        let mut seen = HashSet::new();
        let (mut words, mut starters) = (Vec::new(), Vec::new());
        let vocabulary = u32::try_from(tokens.vocabulary()).unwrap_or(u32::MAX);
        for id in 0..vocabulary {
            let piece = tokens.decode(&[id]);
            let word = piece.trim_start();
            let plain = LETTERS.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase());
            if !plain || !seen.insert(word.to_owned()) {
                continue;
            }
            let alone = tokens.encode(word).len();
            if tokens.encode(&format!("{word} {word}")).len() != alone + 1 {
                continue;
            }
            words.push(Box::from(word));
            if alone == 1 {
                starters.push(Box::from(word));
            }
            if words.len() == WORDS_MAX {
                break;
            }
        }
        if words.len() < WORDS_MIN {
            bail!(
                "the tokenizer's vocabulary has {} plain words, too few to make prompts of exact length; leave the \
                 tokenizer out for approximate lengths",
                words.len()
            );
        }
        if starters.is_empty() {
            starters.clone_from(&words);
        }
        Ok(Self { tokens, words, starters })
    }

    /// The words that may stand at a place of a text.
    fn for_place(&self, place: usize, at_start: bool) -> &[Box<str>] {
        if place == 0 && at_start { &self.starters } else { &self.words }
    }

    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.tokens.encode(text)
    }

    /// A text of `wanted` tokens, behind a front if there is one. The front's own tokens stay as they are.
    pub fn make(&self, random: &mut ChaCha12Rng, tag: Tag, wanted: u32, front: Option<&Front>) -> Made {
        let (front_text, front_ids) = match front {
            Some(Front { piece, ids }) => match &piece.content {
                Content::Text(text) => (&**text, ids.as_slice()),
                Content::Ids(_) => ("", [].as_slice()),
            },
            None => ("", [].as_slice()),
        };
        let mut draft = Draft { from: self, random, at_start: front.is_none(), words: Vec::new() };
        draft.begin(tag, wanted.max(1) as usize);
        let goal = front_ids.len() + wanted as usize;
        let mut attempt = 0;
        loop {
            let text = draft.text(front_text);
            let ids = self.tokens.encode(&text);
            let front_stands = ids.starts_with(front_ids);
            if ids.len() == goal && front_stands {
                return Made { text: text.into(), tokens: goal as u32, inexact: None };
            }
            attempt += 1;
            if attempt == ATTEMPTS_MAX {
                let inexact = Some(format!(
                    "no text of {goal} tokens was found in {ATTEMPTS_MAX} attempts; the last one has {}{}",
                    ids.len(),
                    if front_stands { "" } else { ", and its front has other tokens than alone" }
                ));
                return Made { text: text.into(), tokens: ids.len() as u32, inexact };
            }
            draft.repair(goal, ids.len(), front_stands, attempt);
        }
    }
}

/// A text in the making.
struct Draft<'a> {
    from: &'a ExactWords,
    random: &'a mut ChaCha12Rng,
    /// No front stands before it.
    at_start: bool,
    /// Never empty, since a length is at least 1.
    words: Vec<&'a str>,
}

impl<'a> Draft<'a> {
    /// The text's number in words, and random words behind it.
    fn begin(&mut self, tag: Tag, count: usize) {
        let places: [&[Box<str>]; TAG_WORDS] =
            std::array::from_fn(|place| self.from.for_place(place, self.at_start));
        let digits = tag.digits(places.map(|from| from.len() as u32));
        self.words.extend(places.iter().zip(digits).take(count).map(|(from, digit)| &*from[digit as usize]));
        self.push(count.saturating_sub(TAG_WORDS));
    }

    fn text(&self, front: &str) -> String {
        let own = self.words.join(" ");
        if front.is_empty() { own } else { format!("{front} {own}") }
    }

    /// Brings the length nearer to the goal by changing the end; the number at the beginning is given up last.
    fn repair(&mut self, goal: usize, have: usize, front_stands: bool, attempt: u32) {
        /// Attempts that only lengthen or shorten. Then words at the end are exchanged as well, more with time, so that
        /// a tokenizer that keeps jumping over the goal meets other seams.
        const PLAIN: u32 = 4;
        if !front_stands {
            // What stands behind the front merges with it.
            self.words[0] = self.draw(0);
        }
        let cannot_shrink = have > goal && self.words.len() == 1;
        if attempt > PLAIN || cannot_shrink {
            let exchanged = (1 + attempt as usize / 8).min(self.words.len());
            self.words.truncate(self.words.len() - exchanged);
            self.push(exchanged);
        }
        if have < goal {
            self.push(goal - have);
        } else {
            let surplus = (have - goal).min(self.words.len() - 1);
            self.words.truncate(self.words.len() - surplus);
        }
    }

    fn push(&mut self, count: usize) {
        for _ in 0..count {
            let word = self.draw(self.words.len());
            self.words.push(word);
        }
    }

    fn draw(&mut self, place: usize) -> &'a str {
        let from = self.from.for_place(place, self.at_start);
        &from[self.random.random_range(0..from.len() as u32) as usize]
    }
}
