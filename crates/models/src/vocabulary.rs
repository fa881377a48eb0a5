//! The tokenizer's data as a model file carries it: types checked, meaning left to the tokenizer.
//!
//! **Invariant:** nothing is filled in. What the file does not say is `None` or empty, so that the defaults of each kind of
//! tokenizer stand in one place, where it is built.

use crate::families::{self, Normalization};
use crate::gguf::{GgufError, Metadata, required};

/// A model file's tokenizer data, borrowed from its metadata. Names are those of the keys under `tokenizer.ggml.`.
#[derive(Clone, Debug)]
pub struct Vocabulary<'a> {
    /// The tokenizer's kind: `gpt2` (byte-level BPE), `llama` (SentencePiece-style), ...
    pub model: &'a str,
    /// The name of the rule that splits text before BPE.
    pub pre: Option<&'a str>,
    /// In the file's own spelling; not necessarily UTF-8, nor unique.
    pub tokens: Vec<&'a [u8]>,
    /// One per token, if the file keeps its word; may be empty.
    pub scores: Vec<f32>,
    /// Likewise.
    pub token_types: Vec<i32>,
    /// Two tokens and a space between, the most urgent first; may be empty.
    pub merges: Vec<&'a [u8]>,
    pub special: SpecialTokens,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    /// Jinja source.
    pub chat_template: Option<&'a str>,
    /// From the family table; GGUF has no key for it.
    pub normalization: Normalization,
}

/// Ids of tokens that mean something by themselves, as the file has them: in range or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    pub bos: Option<i64>,
    pub eos: Option<i64>,
    /// Ends a turn.
    pub eot: Option<i64>,
    /// Ends a message to a tool.
    pub eom: Option<i64>,
    pub unknown: Option<i64>,
    pub padding: Option<i64>,
}

impl<'a> Vocabulary<'a> {
    /// Reads the tokenizer's keys.
    pub fn read(metadata: &'a Metadata) -> Result<Vocabulary<'a>, GgufError> {
        const MODEL: &str = "tokenizer.ggml.model";
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let architecture = metadata.str("general.architecture")?.unwrap_or_default();
        let id = |name: &str| metadata.integer(&format!("tokenizer.ggml.{name}_token_id"));
        Ok(Vocabulary {
            model: required(MODEL, metadata.str(MODEL)?)?,
            pre: metadata.str("tokenizer.ggml.pre")?,
            tokens: required(TOKENS, metadata.byte_strings(TOKENS)?)?,
            scores: metadata.floats("tokenizer.ggml.scores")?.unwrap_or_default(),
            token_types: metadata.integers("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: metadata.byte_strings("tokenizer.ggml.merges")?.unwrap_or_default(),
            special: SpecialTokens {
                bos: id("bos")?,
                eos: id("eos")?,
                eot: id("eot")?,
                eom: id("eom")?,
                unknown: id("unknown")?,
                padding: id("padding")?,
            },
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?,
            chat_template: metadata.str("tokenizer.chat_template")?,
            normalization: families::find(architecture)
                .map_or(Normalization::None, |family| family.normalization),
        })
    }
}
