//! From text to tokens.
//!
//! Special tokens are cut out first; the text between them is normalized, split into words where the vocabulary is
//! byte-level, and merged.
//!
//! **Invariant:** time is O(n log n) in the text's length, with no recursion, for any text.

use std::sync::Arc;

use ledger::Origin;
use protocol::TokenId;

use crate::detokenize::Detokenizer;
use crate::merge::{Symbol, merge};
use crate::normalize::Normalized;
use crate::prompt::Prompt;
use crate::rendered::{Rendered, Span};
use crate::special::Specials;
use crate::unicode;
use crate::vocabulary::{Model, TokenType, Vocabulary};

/// How SentencePiece writes a space.
pub(crate) const SPACE_MARK: &str = "\u{2581}";
const SPACE_MARK_CHAR: char = '\u{2581}';

/// Whether control tokens spelled in a text become control tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// They do: the text is trusted, such as a raw prompt.
    Parse,
    /// They stay plain text: somebody typed them.
    Plain,
}

/// Tokens, and where in the text each begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    pub tokens: Vec<TokenId>,
    /// Ascending; where normalization changed the text, the start of the changed part.
    pub starts: Vec<usize>,
}

impl Encoding {
    fn push(&mut self, token: TokenId, start: usize) {
        self.tokens.push(token);
        self.starts.push(start);
    }
}

/// A vocabulary, ready to encode and decode.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Arc<Vocabulary>,
    specials: Specials,
    /// SentencePiece: characters after which a token may go on with a space; merging cannot be cut there.
    joined_before_space: Vec<char>,
}

impl Tokenizer {
    /// Prepares `vocabulary`.
    pub fn new(vocabulary: Arc<Vocabulary>) -> Self {
        unicode::prepare();
        let specials = Specials::new(&vocabulary);
        let joined_before_space = joined_before_space(&vocabulary);
        Tokenizer { vocabulary, specials, joined_before_space }
    }

    /// The vocabulary.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The tokens of `text` alone, without BOS or EOS.
    pub fn encode(&self, text: &str, special: Special) -> Vec<TokenId> {
        self.encode_with(text, |_, _| special == Special::Parse).tokens
    }

    /// The prompt of a rendered conversation. Control tokens are parsed only where the template wrote them.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Prompt {
        let encoding = self.encode_with(&rendered.text, |start, end| {
            let place = rendered.control.binary_search_by_key(&start, |range| range.start);
            place.is_ok_and(|index| rendered.control[index].end == end)
        });
        Prompt::new(encoding, &rendered.spans, self.wanted_bos(), None)
    }

    /// The prompt of a raw completion: control tokens are parsed, BOS and EOS added as the vocabulary demands.
    pub fn encode_raw(&self, text: &str) -> Prompt {
        let encoding = self.encode_with(text, |_, _| true);
        let span = Span { range: 0..text.len(), origin: Origin::Raw, message: None };
        let eos = self.vocabulary.eos().filter(|_| self.vocabulary.add_eos());
        Prompt::new(encoding, &[span], self.wanted_bos(), eos)
    }

    /// The prompt of a request that came as tokens, used as they are.
    pub fn prompt_of_tokens(&self, tokens: &[TokenId]) -> Prompt {
        let encoding = Encoding { tokens: tokens.to_vec(), starts: (0..tokens.len()).collect() };
        let span = Span { range: 0..tokens.len(), origin: Origin::Raw, message: None };
        Prompt::new(encoding, &[span], None, None)
    }

    /// The text of `tokens`; control tokens are left out, or shown by name.
    pub fn decode(&self, tokens: &[TokenId], special: ShowSpecial) -> String {
        let mut detokenizer = Detokenizer::new(self.vocabulary.clone(), special);
        let mut text = String::new();
        tokens.iter().for_each(|token| detokenizer.push(*token, &mut text));
        detokenizer.finish(&mut text);
        text
    }

    /// The special tokens, to be found in text.
    pub(crate) fn specials(&self) -> &Specials {
        &self.specials
    }

    /// Whether a token is a control token.
    pub(crate) fn is_control(&self, token: TokenId) -> bool {
        self.vocabulary.token_type(token) == TokenType::Control
    }

    fn wanted_bos(&self) -> Option<TokenId> {
        self.vocabulary.bos().filter(|_| self.vocabulary.add_bos())
    }

    fn encode_with(&self, text: &str, mut allowed: impl FnMut(usize, usize) -> bool) -> Encoding {
        let mut encoding = Encoding::default();
        let mut at = 0;
        for found in self.specials.find_all(text, |found| allowed(found.start, found.end)) {
            self.encode_plain(&text[at..found.start], at, &mut encoding);
            encoding.push(found.token, found.start);
            at = found.end;
        }
        self.encode_plain(&text[at..], at, &mut encoding);
        encoding
    }

    /// Appends the tokens of text between special tokens, which begins at `offset` of the whole.
    fn encode_plain(&self, text: &str, offset: usize, encoding: &mut Encoding) {
        if text.is_empty() {
            return;
        }
        if !self.vocabulary.normalize_nfc {
            return self.encode_segment(text, encoding, |at| offset + at);
        }
        let normalized = Normalized::nfc(text);
        self.encode_segment(&normalized.text, encoding, |at| offset + normalized.source(at));
    }

    fn encode_segment(&self, text: &str, encoding: &mut Encoding, place: impl Fn(usize) -> usize) {
        let mut symbols = Vec::new();
        let mut emit = |symbols: &mut Vec<Symbol>| {
            merge(&self.vocabulary.merges, symbols);
            symbols.drain(..).for_each(|symbol| encoding.push(TokenId(symbol.token), place(symbol.start)));
        };
        match self.vocabulary.model {
            Model::ByteLevel(pre) => {
                let mut start = 0;
                pre.split(text, &mut |word| {
                    self.spell_bytes(word, start, &mut symbols);
                    emit(&mut symbols);
                    start += word.len();
                });
            }
            Model::SentencePiece { add_space_prefix } => {
                if let Some(mark) = self.character(SPACE_MARK_CHAR).filter(|_| add_space_prefix) {
                    symbols.push(Symbol { token: mark, start: 0 });
                }
                let mut previous = None;
                for (start, character) in text.char_indices() {
                    let character = if character == ' ' { SPACE_MARK_CHAR } else { character };
                    if character == SPACE_MARK_CHAR
                        && previous.is_some_and(|previous| self.ends_word(previous))
                    {
                        emit(&mut symbols);
                    }
                    self.spell_character(character, start, &mut symbols);
                    previous = Some(character);
                }
                emit(&mut symbols);
            }
        }
    }

    fn spell_bytes(&self, word: &str, start: usize, symbols: &mut Vec<Symbol>) {
        let Model::ByteLevel(pre) = self.vocabulary.model else { return };
        if let Some(token) = pre.whole_words.then(|| self.vocabulary.whole_word(word)).flatten() {
            symbols.push(Symbol { token, start });
            return;
        }
        for (at, byte) in word.bytes().enumerate() {
            // A byte without a token is left out, as the reference tokenizers do.
            if let Some(token) = self.vocabulary.byte_tokens[byte as usize] {
                symbols.push(Symbol { token, start: start + at });
            }
        }
    }

    fn spell_character(&self, character: char, start: usize, symbols: &mut Vec<Symbol>) {
        if let Some(token) = self.character(character) {
            symbols.push(Symbol { token, start });
            return;
        }
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).bytes();
        let byte_tokens = bytes.map(|byte| self.vocabulary.byte_tokens[byte as usize]);
        if let Some(tokens) = byte_tokens.collect::<Option<Vec<u32>>>() {
            symbols.extend(tokens.into_iter().map(|token| Symbol { token, start }));
        } else if let Some(unknown) = self.vocabulary.unknown
            // Neighbouring unknown characters are one unknown token.
            && symbols.last().is_none_or(|last| last.token != unknown.0)
        {
            symbols.push(Symbol { token: unknown.0, start });
        }
    }

    fn character(&self, character: char) -> Option<u32> {
        self.vocabulary.characters.get(&character).copied()
    }

    /// Whether no token goes on from this character with a space, so that merging may be cut between.
    fn ends_word(&self, character: char) -> bool {
        character != SPACE_MARK_CHAR && !self.joined_before_space.contains(&character)
    }
}

/// Whether control tokens show in decoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowSpecial {
    /// By name.
    Yes,
    /// Not at all.
    No,
}

fn joined_before_space(vocabulary: &Vocabulary) -> Vec<char> {
    let mut found = Vec::new();
    for token in vocabulary.ids().filter(|token| vocabulary.token_type(*token) == TokenType::Normal) {
        let text = String::from_utf8_lossy(vocabulary.token_bytes(token));
        let text = text.replace(SPACE_MARK_CHAR, " ");
        let pairs = text.chars().zip(text.chars().skip(1));
        found.extend(
            pairs.filter(|(before, after)| *before != ' ' && *after == ' ').map(|(before, _)| before),
        );
    }
    found.sort_unstable();
    found.dedup();
    found
}
