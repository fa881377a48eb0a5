//! A model's sizes and settings, read from metadata and tensor shapes and checked against each other.
//!
//! **Invariant:** every size is at least 1 and within a named limit, and products of sizes fit `usize`, so that later
//! code divides, multiplies and allocates without asking again.

use crate::error::LoadError;
use crate::families::{self, Family, ScoreScale, WindowRule};
use crate::gguf::{Gguf, GgufError, Metadata, TensorInfo, required};

/// The deepest models have some 130 layers.
const LAYERS_MAX: u64 = 1_024;
/// Width, feed-forward width, and heads times head size.
const WIDTH_MAX: u64 = 1 << 20;
const HEADS_MAX: u64 = 4_096;
const HEAD_DIM_MAX: u64 = 4_096;
/// 16 Mi positions.
const CONTEXT_MAX: u64 = 1 << 24;

/// Everything that the forward pass needs to know about a model besides its weights.
#[derive(Clone, Debug)]
pub struct Config {
    pub family: &'static Family,
    pub layers: usize,
    /// Values per token between layers.
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Values per head, of queries, keys and values alike.
    pub head_dim: usize,
    /// Values per token inside a feed-forward block.
    pub ffn: usize,
    /// Rows of the output head. The tokenizer may know fewer tokens; the rest must not be sampled.
    pub vocabulary: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    pub norm_eps: f32,
    pub rope: Rope,
    pub window: Option<Window>,
    /// Factor on the products of queries and keys.
    pub score_scale: f32,
    /// Caps scores at `cap * tanh(score / cap)`.
    pub score_softcap: Option<f32>,
    /// Caps logits likewise.
    pub logit_softcap: Option<f32>,
    /// Factor on embeddings.
    pub embedding_scale: f32,
    /// Whether the embedding is the output head as well.
    pub tied_head: bool,
}

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    pub base: f32,
    /// The base of layers with a window.
    pub window_base: f32,
    /// Divides positions in layers that see everything (linear scaling); 1 changes nothing.
    pub scaling_factor: f32,
    /// Values of each head that turn; the others pass unchanged.
    pub dims: usize,
    /// Whether the file has a factor per frequency (`rope_freqs.weight`, Llama 3.1 and later).
    pub has_factors: bool,
}

/// Sliding-window attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// A query at position p sees keys from p - tokens + 1 to p.
    pub tokens: usize,
    /// Each of these layers, counted from 1, sees everything; `None` if no layer does.
    pub global_every: Option<usize>,
}

impl Config {
    /// Reads and checks the settings of an open file.
    pub fn read(gguf: &Gguf) -> Result<Config, LoadError> {
        let metadata = gguf.metadata();
        let family = find_family(metadata)?;
        refuse_unsupported(metadata, family)?;
        let keys = Keys { metadata, architecture: family.architecture };

        let layers = keys.size("block_count", LAYERS_MAX)?;
        let width = keys.size("embedding_length", WIDTH_MAX)?;
        let heads = keys.size("attention.head_count", HEADS_MAX)?;
        let kv_heads = keys.optional_size("attention.head_count_kv", HEADS_MAX)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!("is {kv_heads}, which does not divide the {heads} heads");
            return Err(keys.invalid("attention.head_count_kv", problem));
        }
        let head_dim = head_dim(&keys, width, heads)?;
        let embedding = embedding_tensor(gguf, width)?;
        let window = window(&keys, family)?;
        Ok(Config {
            family,
            layers,
            width,
            heads,
            kv_heads,
            head_dim,
            ffn: keys.size("feed_forward_length", WIDTH_MAX)?,
            vocabulary: vocabulary(metadata, embedding)?,
            context: keys.size("context_length", CONTEXT_MAX)?,
            norm_eps: keys.positive("attention.layer_norm_rms_epsilon")?,
            rope: rope(&keys, gguf, family, head_dim)?,
            window,
            score_scale: score_scale(family, layers, width / heads, head_dim),
            score_softcap: keys.optional_positive("attn_logit_softcapping")?,
            logit_softcap: keys.optional_positive("final_logit_softcapping")?,
            embedding_scale: if family.scales_embedding { (width as f32).sqrt() } else { 1.0 },
            tied_head: gguf.tensor("output.weight").is_none(),
        })
    }

    /// How far back this layer looks, or `None` if it sees everything.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let window = self.window?;
        match window.global_every {
            Some(every) if (layer + 1).is_multiple_of(every) => None,
            _ => Some(window.tokens),
        }
    }
}

fn find_family(metadata: &Metadata) -> Result<&'static Family, LoadError> {
    const KEY: &str = "general.architecture";
    let architecture = required(KEY, metadata.str(KEY)?)?;
    families::find(architecture).ok_or_else(|| LoadError::Architecture {
        architecture: architecture.chars().take(64).collect(),
        supported: families::supported(),
    })
}

/// What a file of a supported family may ask for and this transformer cannot do.
fn refuse_unsupported(metadata: &Metadata, family: &Family) -> Result<(), LoadError> {
    let architecture = family.architecture;
    if metadata.unsigned(&format!("{architecture}.expert_count"))?.unwrap_or(0) > 0 {
        return Err(LoadError::Unsupported(format!("{architecture} with experts (mixture of experts)")));
    }
    if metadata.unsigned("split.count")?.unwrap_or(1) > 1 {
        return Err(LoadError::Unsupported("a model split over several files; join them into one".into()));
    }
    if let Some(kind) = metadata.str("general.type")?
        && kind != "model"
    {
        return Err(LoadError::Unsupported(format!("a file of type {kind:?}, which is no whole model")));
    }
    Ok(())
}

fn head_dim(keys: &Keys<'_>, width: usize, heads: usize) -> Result<usize, LoadError> {
    let Some(head_dim) = keys.optional_size("attention.key_length", HEAD_DIM_MAX)? else {
        if !width.is_multiple_of(heads) {
            let problem = format!("is {heads}, which does not divide the width {width}");
            return Err(keys.invalid("attention.head_count", problem));
        }
        return Ok(width / heads);
    };
    let value_dim = keys.optional_size("attention.value_length", HEAD_DIM_MAX)?.unwrap_or(head_dim);
    if value_dim != head_dim {
        return Err(LoadError::Unsupported(format!(
            "keys of {head_dim} and values of {value_dim} per head ({}, {})",
            keys.name("attention.key_length"),
            keys.name("attention.value_length")
        )));
    }
    Ok(head_dim)
}

fn embedding_tensor(gguf: &Gguf, width: usize) -> Result<&TensorInfo, LoadError> {
    const NAME: &str = "token_embd.weight";
    let tensor = gguf.tensor(NAME).ok_or_else(|| GgufError::tensor(NAME, "is missing"))?;
    if tensor.dimensions.len() != 2 || tensor.cols() != width {
        let problem =
            format!("has shape {:?}, but embedding_length asks for [{width}, tokens]", tensor.dimensions);
        return Err(GgufError::tensor(NAME, problem).into());
    }
    Ok(tensor)
}

fn vocabulary(metadata: &Metadata, embedding: &TensorInfo) -> Result<usize, LoadError> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let rows = embedding.rows();
    if u32::try_from(rows).is_err() {
        return Err(
            GgufError::tensor(&embedding.name, format!("has {rows} rows; token ids have 32 bits")).into()
        );
    }
    if let Some(tokens) = metadata.array_length(KEY)?
        && tokens > rows
    {
        let problem = format!("has {tokens} tokens, but token_embd.weight has only {rows} rows");
        return Err(GgufError::key(KEY, problem).into());
    }
    Ok(rows)
}

fn window(keys: &Keys<'_>, family: &Family) -> Result<Option<Window>, LoadError> {
    const KEY: &str = "attention.sliding_window";
    let tokens = keys.optional_size(KEY, CONTEXT_MAX)?;
    match (family.window, tokens) {
        (WindowRule::Unsupported, Some(tokens)) => Err(LoadError::Unsupported(format!(
            "a sliding window in {} ({tokens} tokens)",
            family.architecture
        ))),
        (WindowRule::Unsupported | WindowRule::EveryLayer, None) => Ok(None),
        (WindowRule::EveryLayer, Some(tokens)) => Ok(Some(Window { tokens, global_every: None })),
        (WindowRule::Interleaved { global_every, .. }, Some(tokens)) => {
            Ok(Some(Window { tokens, global_every: Some(global_every) }))
        }
        (WindowRule::Interleaved { .. }, None) => Err(keys.invalid(KEY, "is missing".into())),
    }
}

fn rope(keys: &Keys<'_>, gguf: &Gguf, family: &Family, head_dim: usize) -> Result<Rope, LoadError> {
    let dims = keys.optional_size("rope.dimension_count", HEAD_DIM_MAX)?.unwrap_or(head_dim);
    if dims > head_dim || !dims.is_multiple_of(2) {
        let problem = format!("is {dims}, but must be even and at most the head size {head_dim}");
        return Err(keys.invalid("rope.dimension_count", problem));
    }
    let base = keys.optional_positive("rope.freq_base")?.unwrap_or(1e4);
    let window_base = match family.window {
        WindowRule::Interleaved { rope_base, .. } => {
            keys.optional_positive("rope.freq_base_swa")?.unwrap_or(rope_base)
        }
        _ => base,
    };
    let scaling_factor = scaling_factor(keys)?;
    let has_factors = gguf.tensor("rope_freqs.weight").is_some();
    Ok(Rope { base, window_base, scaling_factor, dims, has_factors })
}

/// Linear scaling stretches positions; any other kind changes the frequencies in ways that are not built here.
fn scaling_factor(keys: &Keys<'_>) -> Result<f32, LoadError> {
    let kind = keys.metadata.str(&keys.name("rope.scaling.type"))?.unwrap_or("linear");
    let factor = match keys.optional_positive("rope.scaling.factor")? {
        Some(factor) => factor,
        None => keys.optional_positive("rope.scale_linear")?.unwrap_or(1.0),
    };
    match kind {
        "none" => Ok(1.0),
        "linear" => Ok(factor),
        other => Err(LoadError::Unsupported(format!(
            "RoPE scaling of type {other:?} ({}); \"none\" and \"linear\" are supported",
            keys.name("rope.scaling.type")
        ))),
    }
}

fn score_scale(family: &Family, layers: usize, width_per_head: usize, head_dim: usize) -> f32 {
    let dims = match family.score_scale {
        ScoreScale::WidthPerHead { layers: which } if which == layers => width_per_head,
        _ => head_dim,
    };
    1.0 / (dims as f32).sqrt()
}

/// Reads keys under the architecture's prefix.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn invalid(&self, key: &str, problem: String) -> LoadError {
        GgufError::key(self.name(key), problem).into()
    }

    /// A size from 1 to `max`.
    fn size(&self, key: &str, max: u64) -> Result<usize, LoadError> {
        Ok(required(&self.name(key), self.optional_size(key, max)?)?)
    }

    fn optional_size(&self, key: &str, max: u64) -> Result<Option<usize>, LoadError> {
        match self.metadata.unsigned(&self.name(key))? {
            None => Ok(None),
            Some(value) if (1..=max).contains(&value) => Ok(Some(value as usize)),
            Some(value) => Err(self.invalid(key, format!("is {value}, but must be from 1 to {max}"))),
        }
    }

    /// A finite number above 0.
    fn positive(&self, key: &str) -> Result<f32, LoadError> {
        Ok(required(&self.name(key), self.optional_positive(key)?)?)
    }

    fn optional_positive(&self, key: &str) -> Result<Option<f32>, LoadError> {
        match self.metadata.float(&self.name(key))? {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                Err(self.invalid(key, format!("is {value}, but must be a finite number above 0")))
            }
            other => Ok(other),
        }
    }
}
