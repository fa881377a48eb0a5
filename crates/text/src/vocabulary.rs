//! The vocabulary that a model file carries: tokens, merges, special ids, and the rules of its tokenizer.
//!
//! **Invariant:** a [`Vocabulary`] is consistent. Every id is in range, every array has the vocabulary's length, every
//! merge joins known tokens into a known token, and no two tokens are spelled alike.

mod check;

use std::collections::HashMap;

use protocol::TokenId;

use crate::merge::Merges;
use crate::pretokenize::PreTokenizer;

/// The metadata as a model file gives it, unchecked. Keys are those of GGUF under `tokenizer.ggml.`.
#[derive(Clone, Debug, Default)]
pub struct VocabularySource {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece-style BPE).
    pub model: String,
    /// `pre`: the pre-tokenizer of byte-level BPE.
    pub pre: Option<String>,
    /// `tokens`, in the file's own spelling.
    pub tokens: Vec<Vec<u8>>,
    /// `token_type`; empty where the file has none.
    pub token_types: Vec<i32>,
    /// `scores`; empty where the file has none.
    pub scores: Vec<f32>,
    /// `merges`, each two tokens and a space between, best first; empty where the file has none.
    pub merges: Vec<Vec<u8>>,
    /// `bos_token_id`.
    pub bos: Option<i64>,
    /// `eos_token_id`.
    pub eos: Option<i64>,
    /// `eot_token_id`.
    pub eot: Option<i64>,
    /// `eom_token_id`.
    pub eom: Option<i64>,
    /// `unknown_token_id`.
    pub unknown: Option<i64>,
    /// `padding_token_id`.
    pub padding: Option<i64>,
    /// `add_bos_token`; absent means yes for `llama`, and what the pre-tokenizer's models do for `gpt2`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`; absent means no.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`; absent means yes for `llama`. Byte-level BPE never adds one.
    pub add_space_prefix: Option<bool>,
    /// Text is brought to Unicode's composed form first. No GGUF key says so; the model's family does.
    pub normalize_nfc: bool,
}

/// Why a vocabulary is refused. Every message names the metadata key at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VocabularyError {
    #[error(
        "tokenizer.ggml.model is {0:?}; `gpt2` (byte-level BPE) and `llama` (SentencePiece) are supported"
    )]
    UnknownModel(String),
    #[error(
        "tokenizer.ggml.pre is {0:?}, which is not known here; guessing one would change token ids silently \
         (known: {known})", known = PreTokenizer::names()
    )]
    UnknownPre(String),
    #[error("tokenizer.ggml.pre is missing; byte-level BPE cannot be split into words without it")]
    MissingPre,
    #[error("{key} is missing or empty")]
    Missing { key: &'static str },
    #[error("{key} has {count} entries; at most {max} are taken")]
    TooMany { key: &'static str, count: usize, max: usize },
    #[error("{key} has {count} entries, but tokenizer.ggml.tokens has {tokens}")]
    LengthMismatch { key: &'static str, count: usize, tokens: usize },
    #[error("{key} is {id}, but the vocabulary has {tokens} tokens")]
    IdOutOfRange { key: &'static str, id: i64, tokens: usize },
    #[error("tokenizer.ggml.tokens[{index}] {what}")]
    Token { index: usize, what: String },
    #[error("tokenizer.ggml.tokens[{first}] and [{second}] are both {text:?}")]
    DuplicateToken { first: usize, second: usize, text: String },
    #[error("tokenizer.ggml.token_type[{index}] is {value}; it must be 1 to 6")]
    TokenType { index: usize, value: i32 },
    #[error("tokenizer.ggml.scores[{index}] is {value}; it must be a finite number")]
    Score { index: usize, value: f32 },
    #[error("tokenizer.ggml.merges[{index}] {what}")]
    Merge { index: usize, what: String },
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Text, made by merging.
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// Never text: parsed only where special parsing is on, never shown.
    Control,
    /// Text that is always one token, wherever it occurs.
    UserDefined,
    /// A place that no text uses.
    Unused,
    /// One byte, for text that has no token of its own (SentencePiece).
    Byte,
}

/// How text becomes tokens.
#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// Words from a pre-tokenizer; bytes merged within each word.
    ByteLevel(&'static PreTokenizer),
    /// Spaces written as U+2581; characters merged over the whole text, bytes for what has no token.
    SentencePiece { add_space_prefix: bool },
}

/// Two neighbouring tokens that become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Lower ranks merge first.
    pub rank: u32,
    pub token: u32,
}

/// A checked vocabulary.
#[derive(Debug)]
pub struct Vocabulary {
    pub(crate) model: Model,
    pub(crate) normalize_nfc: bool,
    /// What each token stands for in text, all in one buffer; token `i` ends at `ends[i]`.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    types: Vec<TokenType>,
    pub(crate) merges: Merges,
    /// SentencePiece: the token of a single character.
    pub(crate) characters: HashMap<char, u32>,
    /// The token of a single byte.
    pub(crate) byte_tokens: [Option<u32>; 256],
    /// Normal tokens in the order of their bytes; empty where no word is taken whole.
    by_bytes: Vec<TokenId>,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    pub(crate) unknown: Option<TokenId>,
    padding: Option<TokenId>,
    add_bos: bool,
    add_eos: bool,
    eog: Vec<TokenId>,
}

impl Vocabulary {
    /// Tokens that a vocabulary may have.
    pub const TOKENS_MAX: usize = 1 << 21;
    /// Merges that a vocabulary may have.
    pub const MERGES_MAX: usize = 1 << 22;
    /// Bytes of one token.
    pub const TOKEN_BYTES_MAX: usize = 1 << 10;

    /// Checks `source`.
    ///
    /// # Errors
    /// A [`VocabularyError`] naming the key at fault.
    pub fn new(source: VocabularySource) -> Result<Self, VocabularyError> {
        check::vocabulary(source)
    }

    /// How many tokens there are. The model's logits may be wider.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never true of a checked vocabulary.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of text that a token stands for; empty for an id outside the vocabulary. Control tokens give their
    /// name.
    pub fn token_bytes(&self, token: TokenId) -> &[u8] {
        let Some(end) = self.ends.get(token.index()) else { return &[] };
        let start = token.index().checked_sub(1).map_or(0, |previous| self.ends[previous]);
        &self.bytes[start as usize..*end as usize]
    }

    /// What a token is for; ids outside the vocabulary are unused.
    pub fn token_type(&self, token: TokenId) -> TokenType {
        self.types.get(token.index()).copied().unwrap_or(TokenType::Unused)
    }

    /// Whether a token's name is not part of the answer's text.
    pub fn is_special(&self, token: TokenId) -> bool {
        matches!(self.token_type(token), TokenType::Control | TokenType::Unknown)
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = TokenId> + use<> {
        (0..self.ends.len() as u32).map(TokenId)
    }

    /// The token spelled exactly so; a linear search, meant for a few look-ups at load and in tests.
    pub fn find(&self, text: &str) -> Option<TokenId> {
        self.ids().find(|token| self.token_bytes(*token) == text.as_bytes())
    }

    /// The normal token of exactly these bytes, where the pre-tokenizer takes words whole.
    pub(crate) fn whole_word(&self, word: &str) -> Option<u32> {
        let order = |token: &TokenId| self.token_bytes(*token).cmp(word.as_bytes());
        self.by_bytes.binary_search_by(order).ok().map(|index| self.by_bytes[index].0)
    }

    /// Begins a text.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Ends a text.
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// Fills a batch.
    pub fn padding(&self) -> Option<TokenId> {
        self.padding
    }

    /// Whether prompts begin with BOS.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether raw prompts end with EOS.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Every token that ends an answer, ascending: the file's `eos`, `eot` and `eom`, and control tokens known by name,
    /// since files of chat models are found whose `eos` is the base model's.
    pub fn eog(&self) -> &[TokenId] {
        &self.eog
    }
}

/// Names of end-of-generation tokens across model families. They count only where the vocabulary has them as control
/// tokens: Gemma's `</s>` is an HTML tag.
const EOG_NAMES: [&str; 16] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<eos>",
    "<EOT>",
    "</s>",
    "<｜end▁of▁sentence｜>",
];
