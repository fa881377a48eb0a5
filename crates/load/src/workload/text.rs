//! Made-up text: words in random order, no two texts alike, of a wanted length in tokens.
//!
//! A text begins with its number, said in words: one digit a word, in a number system that has as many digits as there
//! are words. So texts differ from their first words on, and a server's prefix cache finds nothing in one text that it
//! knows from another, unless the workload shares a front on purpose.
//!
//! **Invariant:** a text is a function of (seed, purpose, number, length); what is remembered only saves time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Result, bail};
use rand::RngExt;
use rand::rngs::ChaCha12Rng;

use super::exact::ExactWords;
use super::words::WORDS;
use crate::schedule::{Purpose, random_stream};

/// A tokenizer, as far as made-up text needs one. The binary puts the model's own behind it.
pub trait TextTokens: Send + Sync {
    /// The tokens of a text as the server would read it inside a message: no begin or end token is added.
    fn encode(&self, text: &str) -> Vec<u32>;

    /// The text of tokens; empty where they have none, such as control tokens.
    fn decode(&self, ids: &[u32]) -> String;

    /// How many tokens there are: ids are smaller.
    fn vocabulary(&self) -> usize;
}

/// What texts are made of.
#[derive(Clone)]
pub enum Material {
    /// Common English words, about a token each. Lengths are approximate, and nothing claims otherwise.
    Words,
    /// Token ids below this number, for raw completions. The first and last sixteenth of the vocabulary are left out, since
    /// control tokens lie there.
    Ids { vocabulary: u32 },
    /// Words of the tokenizer's vocabulary, put together so that the length is exact.
    Exact(Arc<dyn TextTokens>),
}

/// A text, or token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Arc<str>),
    Ids(Arc<[u32]>),
}

/// A made-up text.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub content: Content,
    /// Its length, where that is exact.
    pub tokens: Option<u32>,
}

/// A text that others begin with.
pub(super) struct Front {
    pub piece: Piece,
    /// Its tokens, where a tokenizer is at hand.
    pub ids: Vec<u32>,
}

/// Makes texts.
pub(super) struct Texts {
    seed: u64,
    source: Source,
    fronts: Mutex<Fronts>,
    /// Texts that are not as long as they were wanted, and why the first of them is not.
    inexact: AtomicU64,
    first_reason: OnceLock<String>,
}

enum Source {
    Words,
    Ids { first: u32, count: u32 },
    Exact(ExactWords),
}

impl Texts {
    /// Fails if a vocabulary is too small to make text of.
    pub fn new(material: &Material, seed: u64) -> Result<Self> {
        let source = match material {
            Material::Words => Source::Words,
            Material::Ids { vocabulary } if *vocabulary < IDS_MIN => {
                bail!(
                    "a vocabulary of {vocabulary} tokens is too small to make prompts of; {IDS_MIN} is the least"
                )
            }
            Material::Ids { vocabulary } => {
                let margin = vocabulary / 16;
                Source::Ids { first: margin, count: vocabulary - 2 * margin }
            }
            Material::Exact(tokens) => Source::Exact(ExactWords::new(Arc::clone(tokens))?),
        };
        Ok(Self {
            seed,
            source,
            fronts: Mutex::default(),
            inexact: AtomicU64::new(0),
            first_reason: OnceLock::new(),
        })
    }

    /// The text of this number, on its own.
    pub fn own(&self, number: u64, tokens: u32) -> Piece {
        self.make(Purpose::Text, number, tokens, None)
    }

    /// A front, and behind it the text of this number; both lengths hold.
    pub fn behind(&self, front: &Front, number: u64, tokens: u32) -> Piece {
        self.make(Purpose::Text, number, tokens, Some(front))
    }

    /// The shared text of this number.
    pub fn front(&self, number: u64, tokens: u32) -> Arc<Front> {
        let lock = || self.fronts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(front) = lock().known.get(&(number, tokens)) {
            return Arc::clone(front);
        }
        let piece = self.make(Purpose::SharedText, number, tokens, None);
        let ids = match (&self.source, &piece.content) {
            (Source::Exact(exact), Content::Text(text)) => exact.encode(text),
            _ => Vec::new(),
        };
        let front = Arc::new(Front { piece, ids });
        lock().remember((number, tokens), &front);
        front
    }

    /// What was not as long as wanted so far: how many texts, and why the first of them.
    pub fn inexact(&self) -> Option<(u64, &str)> {
        self.first_reason.get().map(|why| (self.inexact.load(Ordering::Relaxed), why.as_str()))
    }

    /// What lengths mean, in a few words.
    pub fn describe(&self) -> String {
        match (&self.source, self.inexact()) {
            (Source::Words, _) => "words, about a token each".to_owned(),
            (Source::Ids { first, count }, _) => format!("token ids {first} to {}", first + count - 1),
            (Source::Exact(_), None) => "exact lengths in tokens".to_owned(),
            (Source::Exact(_), Some((texts, why))) => {
                format!("exact lengths in tokens, but for {texts} texts: {why}")
            }
        }
    }

    fn make(&self, purpose: Purpose, number: u64, tokens: u32, front: Option<&Front>) -> Piece {
        let mut random = random_stream(self.seed, purpose, number);
        let tag = Tag { seed: self.seed, number };
        match &self.source {
            Source::Words => {
                Piece { content: Content::Text(words(&mut random, tag, tokens, front)), tokens: None }
            }
            Source::Ids { first, count } => {
                let mut ids = match front.map(|front| &front.piece.content) {
                    Some(Content::Ids(ids)) => ids.to_vec(),
                    _ => Vec::new(),
                };
                let digits = tag.digits([*count; TAG_WORDS]);
                ids.extend((0..tokens as usize).map(|at| {
                    first + digits.get(at).copied().unwrap_or_else(|| random.random_range(0..*count))
                }));
                Piece { tokens: u32::try_from(ids.len()).ok(), content: Content::Ids(ids.into()) }
            }
            Source::Exact(exact) => {
                let made = exact.make(&mut random, tag, tokens, front);
                if let Some(why) = made.inexact {
                    self.inexact.fetch_add(1, Ordering::Relaxed);
                    let _the_first_one_stays = self.first_reason.set(why);
                    return Piece { content: Content::Text(made.text), tokens: None };
                }
                Piece { content: Content::Text(made.text), tokens: Some(made.tokens) }
            }
        }
    }
}

/// The smallest vocabulary that prompts are made of.
const IDS_MIN: u32 = 64;

fn words(random: &mut ChaCha12Rng, tag: Tag, count: u32, front: Option<&Front>) -> Arc<str> {
    const LETTERS: usize = 6; // of a word and its space, rounded up
    let all = WORDS.len() as u32;
    let digits = tag.digits([all; TAG_WORDS]);
    let front = match front.map(|front| &front.piece.content) {
        Some(Content::Text(text)) => text,
        _ => "",
    };
    let mut text = String::with_capacity(front.len() + count as usize * LETTERS);
    text.push_str(front);
    for at in 0..count as usize {
        if !text.is_empty() {
            text.push(' ');
        }
        let word = digits.get(at).copied().unwrap_or_else(|| random.random_range(0..all));
        text.push_str(WORDS[word as usize]);
    }
    text.into()
}

/// Words that say a text's number: 745³ is 413 million texts.
pub(super) const TAG_WORDS: usize = 3;

/// A text's number.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub seed: u64,
    pub number: u64,
}

impl Tag {
    /// The digits, the one that changes fastest first; each is smaller than its base. Each is turned by an amount that
    /// depends on the seed, so that other seeds begin with other words.
    pub fn digits(self, bases: [u32; TAG_WORDS]) -> [u32; TAG_WORDS] {
        let mut random = random_stream(self.seed, Purpose::Tag, 0);
        let mut rest = self.number;
        bases.map(|base| {
            let digit = (rest % u64::from(base)) as u32;
            rest /= u64::from(base);
            ((u64::from(digit) + u64::from(random.random_range(0..base))) % u64::from(base)) as u32
        })
    }
}

/// Fronts that were made lately, up to [`FRONTS_BYTES_MAX`].
#[derive(Default)]
struct Fronts {
    known: HashMap<FrontKey, Arc<Front>>,
    oldest_first: VecDeque<FrontKey>,
    bytes: usize,
}

/// Number and length.
type FrontKey = (u64, u32);

/// Bytes of remembered fronts; what is beyond is made again when it is needed.
const FRONTS_BYTES_MAX: usize = 64 << 20;

impl Fronts {
    fn remember(&mut self, key: FrontKey, front: &Arc<Front>) {
        if self.known.contains_key(&key) || front.bytes() > FRONTS_BYTES_MAX {
            return;
        }
        self.bytes += front.bytes();
        self.known.insert(key, Arc::clone(front));
        self.oldest_first.push_back(key);
        while self.bytes > FRONTS_BYTES_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
            && let Some(front) = self.known.remove(&oldest)
        {
            self.bytes -= front.bytes();
        }
    }
}

impl Front {
    /// Bytes in memory, about.
    fn bytes(&self) -> usize {
        const OVERHEAD: usize = 256;
        let content = match &self.piece.content {
            Content::Text(text) => text.len(),
            Content::Ids(ids) => size_of_val(&**ids),
        };
        content + size_of_val(self.ids.as_slice()) + OVERHEAD
    }
}
