//! What a model file is, for people: sizes, formats, memory, and what would keep it from running.
//!
//! **Invariant:** a file that opens can be inspected, supported or not; what is unsupported is a warning here and an error
//! only when the model is loaded.

use kernels::{Format, KvDtype};
use serde::Serialize;

use crate::config::Config;
use crate::gguf::{Gguf, GgufError};
use crate::kv;

/// A model file's description.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    pub architecture: String,
    pub name: Option<String>,
    pub file_bytes: usize,
    pub parameters: usize,
    /// Weights by format, the largest share first.
    pub formats: Vec<FormatShare>,
    /// Absent where the file's settings are unsupported or wrong; a warning says why.
    pub sizes: Option<Sizes>,
    pub tokenizer: Option<String>,
    pub tokens: Option<usize>,
    pub has_chat_template: bool,
    pub warnings: Vec<String>,
}

/// How much of a file is stored in one format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormatShare {
    pub format: &'static str,
    pub tensors: usize,
    pub values: usize,
    pub bytes: usize,
}

/// The settings that people ask for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: usize,
    /// Rows of the output head.
    pub vocabulary: usize,
    pub context: usize,
    pub tied_head: bool,
    pub window: Option<WindowSizes>,
    /// Bytes of keys and values that one more token takes in half precision.
    pub kv_bytes_per_token: usize,
    /// Bytes of keys and values that a full context needs in half precision, at least: windowed layers need no more
    /// than their window.
    pub kv_bytes_full_context: usize,
}

/// Sliding-window attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowSizes {
    pub tokens: usize,
    /// Layers that look no further back.
    pub layers: usize,
}

impl Inspection {
    /// Describes an open file.
    pub fn of(gguf: &Gguf) -> Result<Inspection, GgufError> {
        let metadata = gguf.metadata();
        let mut warnings = Vec::new();
        let sizes = match Config::read(gguf) {
            Ok(config) => Some(Sizes::of(&config)),
            Err(error) => {
                warnings.push(error.to_string());
                None
            }
        };
        let has_chat_template = metadata.str("tokenizer.chat_template")?.is_some();
        if !has_chat_template {
            warnings.push(
                "no chat template: a base model, or a file that lost it; chat requests need one".to_owned(),
            );
        }
        let tokenizer = match (metadata.str("tokenizer.ggml.model")?, metadata.str("tokenizer.ggml.pre")?) {
            (Some(model), Some(pre)) => Some(format!("{model} ({pre})")),
            (model, _) => model.map(str::to_owned),
        };
        if tokenizer.is_none() {
            warnings.push("no tokenizer in the file".to_owned());
        }
        Ok(Inspection {
            architecture: metadata.str("general.architecture")?.unwrap_or("(none)").to_owned(),
            name: metadata.str("general.name")?.map(str::to_owned),
            file_bytes: gguf.file_bytes(),
            parameters: gguf.tensors().iter().map(|tensor| tensor.values()).sum(),
            formats: format_shares(gguf),
            sizes,
            tokenizer,
            tokens: metadata.array_length("tokenizer.ggml.tokens")?,
            has_chat_template,
            warnings,
        })
    }
}

impl Sizes {
    fn of(config: &Config) -> Sizes {
        let windowed = (0..config.layers).filter(|layer| config.window_of(*layer).is_some()).count();
        Sizes {
            layers: config.layers,
            width: config.width,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            feed_forward: config.ffn,
            vocabulary: config.vocabulary,
            context: config.context,
            tied_head: config.tied_head,
            window: config.window.map(|window| WindowSizes { tokens: window.tokens, layers: windowed }),
            kv_bytes_per_token: kv::bytes_per_token(config, KvDtype::F16),
            kv_bytes_full_context: kv::bytes_needed(config, KvDtype::F16, config.context),
        }
    }
}

fn format_shares(gguf: &Gguf) -> Vec<FormatShare> {
    let mut shares: Vec<FormatShare> = Vec::new();
    for tensor in gguf.tensors() {
        let format = Format::name(tensor.format);
        let index = shares.iter().position(|share| share.format == format).unwrap_or_else(|| {
            shares.push(FormatShare { format, tensors: 0, values: 0, bytes: 0 });
            shares.len() - 1
        });
        let share = &mut shares[index];
        share.tensors += 1;
        share.values += tensor.values();
        share.bytes += tensor.bytes;
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}
