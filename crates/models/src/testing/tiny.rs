//! Small models with random weights: every family, every kind of layer, a few hundred kilobytes.

use super::{Datum, FileBuilder};

/// A plain generator (SplitMix64): the same seed gives the same model everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// Evenly spread from -1 to 1.
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

const WIDTH: u64 = 64;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD_DIM: u64 = 32;
const FFN: u64 = 96;
const VOCABULARY: u64 = 80;

/// A small model of one of the supported architectures. Gemma's has seven layers and a window of 8, so that windowed
/// layers and one that sees everything are all there.
pub fn tiny_model(architecture: &str) -> FileBuilder {
    let layers = if architecture == "gemma3" { 7 } else { 3 };
    let mut file = sizes(architecture, layers);
    let mut random = Random(7);
    let mut add = |file: FileBuilder, name: &str, dimensions: &[u64]| {
        let count = dimensions.iter().product::<u64>();
        // Norm weights lie around 1, matrices keep a row's variance near 1.
        let (center, spread) = match dimensions {
            [_] if name.ends_with("norm.weight") => (1.0, 0.2),
            [_] => (0.0, 0.5),
            _ => (0.0, (3.0 / dimensions[0] as f32).sqrt()),
        };
        let values: Vec<f32> = (0..count).map(|_| center + spread * random.signed()).collect();
        file.tensor_f32(name, dimensions, &values)
    };
    file = add(file, "token_embd.weight", &[WIDTH, VOCABULARY]);
    file = add(file, "output_norm.weight", &[WIDTH]);
    if architecture == "qwen2" {
        file = add(file, "output.weight", &[WIDTH, VOCABULARY]);
    }
    for layer in 0..layers {
        for (name, dimensions) in layer_tensors(architecture) {
            file = add(file, &format!("blk.{layer}.{name}"), &dimensions);
        }
    }
    file
}

fn sizes(architecture: &str, layers: u32) -> FileBuilder {
    let key = |name: &str| format!("{architecture}.{name}");
    let mut file = FileBuilder::default()
        .set("general.architecture", architecture)
        .set("general.name", "Tiny")
        .set(&key("block_count"), Datum::U32(layers))
        .set(&key("context_length"), Datum::U32(256))
        .set(&key("embedding_length"), Datum::U32(WIDTH as u32))
        .set(&key("feed_forward_length"), Datum::U32(FFN as u32))
        .set(&key("attention.head_count"), Datum::U32(HEADS as u32))
        .set(&key("attention.head_count_kv"), Datum::U32(KV_HEADS as u32))
        .set(&key("attention.key_length"), Datum::U32(HEAD_DIM as u32))
        .set(&key("attention.value_length"), Datum::U32(HEAD_DIM as u32))
        .set(&key("attention.layer_norm_rms_epsilon"), Datum::F32(1e-5))
        .set(&key("rope.freq_base"), Datum::F32(1e4));
    if architecture == "gemma3" {
        file = file.set(&key("attention.sliding_window"), Datum::U32(8));
    }
    vocabulary(file)
}

/// A tokenizer of single characters with a few merges: enough for the checks, not for text.
fn vocabulary(file: FileBuilder) -> FileBuilder {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend(('!'..).take(VOCABULARY as usize - tokens.len() - 2).map(String::from));
    tokens.extend(["ab", "abc"].map(str::to_owned));
    let mut kinds = vec![1; tokens.len()];
    kinds[..3].copy_from_slice(&[2, 3, 3]);
    file.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "smollm")
        .set("tokenizer.ggml.tokens", Datum::strings(tokens.iter().map(String::as_str)))
        .set("tokenizer.ggml.scores", Datum::Floats(vec![0.0; tokens.len()]))
        .set("tokenizer.ggml.token_type", Datum::Integers(kinds))
        .set("tokenizer.ggml.merges", Datum::strings(["a b", "ab c"]))
        .set("tokenizer.ggml.unknown_token_id", Datum::U32(0))
        .set("tokenizer.ggml.bos_token_id", Datum::U32(1))
        .set("tokenizer.ggml.eos_token_id", Datum::U32(2))
        .set("tokenizer.ggml.add_bos_token", Datum::Bool(false))
}

fn layer_tensors(architecture: &str) -> Vec<(&'static str, Vec<u64>)> {
    let (queries, keys) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
    let mut tensors = vec![
        ("attn_norm.weight", vec![WIDTH]),
        ("attn_q.weight", vec![WIDTH, queries]),
        ("attn_k.weight", vec![WIDTH, keys]),
        ("attn_v.weight", vec![WIDTH, keys]),
        ("attn_output.weight", vec![queries, WIDTH]),
        ("ffn_norm.weight", vec![WIDTH]),
        ("ffn_gate.weight", vec![WIDTH, FFN]),
        ("ffn_up.weight", vec![WIDTH, FFN]),
        ("ffn_down.weight", vec![FFN, WIDTH]),
    ];
    if architecture == "qwen2" {
        tensors.extend([
            ("attn_q.bias", vec![queries]),
            ("attn_k.bias", vec![keys]),
            ("attn_v.bias", vec![keys]),
        ]);
    }
    if matches!(architecture, "qwen3" | "gemma3") {
        tensors.extend([("attn_q_norm.weight", vec![HEAD_DIM]), ("attn_k_norm.weight", vec![HEAD_DIM])]);
    }
    if architecture == "gemma3" {
        tensors.extend([("post_attention_norm.weight", vec![WIDTH]), ("post_ffw_norm.weight", vec![WIDTH])]);
    }
    tensors
}
