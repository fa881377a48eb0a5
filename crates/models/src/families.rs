//! The model families: one row per architecture name, each a set of flags over the one transformer.
//!
//! A row says what a GGUF file does not: how the family is built, and the few constants that converters leave out. What
//! the file does say (sizes, bases, counts) is read by [`Config`](crate::Config).
//!
//! **Invariant:** `transformer` asks for flags and never for a family's name.

use kernels::RopeStyle;

/// How one family differs from the others.
#[derive(Debug, PartialEq)]
pub struct Family {
    /// `general.architecture`, which is also the prefix of the family's metadata keys.
    pub architecture: &'static str,
    /// Models that a user would know the family by.
    pub known_as: &'static str,
    /// Which pairs of a head's values RoPE turns. Converters permute llama's weights so that neighbours belong together.
    pub rope_style: RopeStyle,
    /// The feed-forward gate's activation.
    pub activation: Activation,
    /// Whether query, key and value have a bias: without one the file is incomplete.
    pub attention_biases: Biases,
    /// Whether queries and keys pass an RMS norm per head before RoPE.
    pub qk_norm: bool,
    /// Whether the outputs of attention and feed-forward pass a norm of their own before they are added.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the square root of the width.
    pub scales_embedding: bool,
    /// What `attention.sliding_window` means.
    pub window: WindowRule,
    /// The factor on attention scores where it is not `1 / sqrt(head_dim)`.
    pub score_scale: ScoreScale,
    /// The normalization that the original tokenizer applies to text, which GGUF does not carry.
    pub normalization: Normalization,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    Silu,
    /// The tanh approximation.
    Gelu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// Loaded where the file has them.
    Optional,
    /// The family's models were trained with them.
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowRule {
    /// The family has none: a file that asks for one is refused.
    Unsupported,
    /// Every layer looks back `sliding_window` tokens, if the file says so.
    EveryLayer,
    /// Layers take turns: each `global_every`th sees everything, the others look back `sliding_window` tokens and have
    /// a RoPE base of their own.
    Interleaved { global_every: usize, rope_base: f32 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScoreScale {
    HeadDim,
    /// Models of exactly this many layers use `1 / sqrt(width / heads)` (Gemma 3 27B, by its configuration).
    WidthPerHead {
        layers: usize,
    },
}

/// What becomes of text before it is tokenized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    None,
    /// Unicode canonical composition.
    Nfc,
}

const LLAMA: Family = Family {
    architecture: "llama",
    known_as: "Llama, Mistral, SmolLM2",
    rope_style: RopeStyle::Norm,
    activation: Activation::Silu,
    attention_biases: Biases::Optional,
    qk_norm: false,
    post_norms: false,
    scales_embedding: false,
    window: WindowRule::EveryLayer,
    score_scale: ScoreScale::HeadDim,
    normalization: Normalization::None,
};

const QWEN2: Family = Family {
    architecture: "qwen2",
    known_as: "Qwen2, Qwen2.5",
    rope_style: RopeStyle::Neox,
    attention_biases: Biases::Required,
    window: WindowRule::Unsupported,
    normalization: Normalization::Nfc,
    ..LLAMA
};

const QWEN3: Family = Family {
    architecture: "qwen3",
    known_as: "Qwen3",
    attention_biases: Biases::Optional,
    qk_norm: true,
    ..QWEN2
};

const GEMMA3: Family = Family {
    architecture: "gemma3",
    known_as: "Gemma 3",
    rope_style: RopeStyle::Neox,
    activation: Activation::Gelu,
    qk_norm: true,
    post_norms: true,
    scales_embedding: true,
    // Both constants are from the family's published configuration; files leave them out.
    window: WindowRule::Interleaved { global_every: 6, rope_base: 1e4 },
    score_scale: ScoreScale::WidthPerHead { layers: 62 },
    ..LLAMA
};

/// Every supported family.
pub static FAMILIES: [Family; 4] = [LLAMA, QWEN2, QWEN3, GEMMA3];

/// The family of an architecture name.
pub fn find(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.architecture == architecture)
}

/// The supported architectures as a message lists them.
pub fn supported() -> String {
    let names: Vec<&str> = FAMILIES.iter().map(|family| family.architecture).collect();
    names.join(", ")
}
