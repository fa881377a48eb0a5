//! Logits against two witnesses that share no code with this project: a float32 forward pass over the dequantized weights,
//! and llama.cpp on the same file. Both are committed (`goldens/`, written by `tools/golden`); models are forced along the
//! goldens' tokens.
//!
//! Distances are mean absolute differences of log-probabilities over the witness's 20 likeliest tokens at each position.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use kernels::{Isa, KvDtype, Precision};
use ledger::Parts;
use models::{Batch, KvCache, LoadOptions, Model};
use serde::Deserialize;

/// The exact path's bar against float32 on real models.
const EXACT_MAX: f64 = 0.02;
/// The same on tiny models, whose goldens are rounded to 0.0001.
const EXACT_TINY_MAX: f64 = 0.0001;
const TINY: [&str; 8] = [
    "gemma3-scaled-rope",
    "gemma3-window-8",
    "llama-gqa-freq-factors",
    "llama-tied-mha",
    "mistral-wide-heads",
    "qwen2-biases",
    "qwen3",
    "qwen3-untied",
];

/// What float32 says to one prompt.
#[derive(Deserialize)]
struct Golden {
    prompt: String,
    tokens: Vec<u32>,
    top: Vec<Vec<usize>>,    // [tokens, 20]
    logprobs: Vec<Vec<f64>>, // [tokens, 20]
}

/// What llama.cpp says to some positions of the same prompt.
#[derive(Deserialize)]
struct PeerGolden {
    prompt: String,
    positions: Vec<usize>,
    top: Vec<Vec<usize>>,    // [positions, 20]
    logprobs: Vec<Vec<f64>>, // [positions, 20]
}

/// One value per prompt and position.
type Table<T> = BTreeMap<(String, usize), T>;
type Top = Vec<(usize, f64)>;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Vec<T> {
    let file = File::open(path).unwrap_or_else(|error| panic!("cannot read {path:?}: {error}"));
    let lines = BufReader::new(GzDecoder::new(file)).lines();
    let parse = |line: String| serde_json::from_str(&line).expect("a golden is one JSON object per line");
    lines.map(|line| parse(line.expect("a golden unpacks"))).collect()
}

/// Both witnesses of a model: the prompts with what float32 says, and what llama.cpp says where it was asked.
fn witnesses(stem: &Path) -> (Vec<Golden>, Table<Top>) {
    let with = |suffix: &str| PathBuf::from(format!("{}.{suffix}.jsonl.gz", stem.display()));
    let mut peer = Table::new();
    for PeerGolden { prompt, positions, top, logprobs } in read(&with("llamacpp")) {
        for ((position, top), logprobs) in positions.into_iter().zip(top).zip(logprobs) {
            peer.insert((prompt.clone(), position), top.into_iter().zip(logprobs).collect());
        }
    }
    (read(&with("float32")), peer)
}

/// Log-probabilities at every position of a prompt, handed to `each` as (position, over the vocabulary).
fn force(model: &mut Model, dtype: KvDtype, tokens: &[u32], mut each: impl FnMut(usize, &[f64])) {
    const CHUNK: usize = 64;
    const BLOCK_TOKENS: usize = 16;
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK_TOKENS) as u32).collect();
    let mut kv = KvCache::new(model.config(), dtype, BLOCK_TOKENS, blocks.len());
    for (chunk, tokens) in tokens.chunks(CHUNK).enumerate() {
        let first = chunk * CHUNK;
        let mut batch = Batch::default();
        batch.push(tokens, first, usize::MAX, &blocks, false);
        batch.logit_rows = (0..tokens.len()).collect();
        let logits = model.forward(&batch, &mut kv, &mut Parts::default());
        for row in 0..tokens.len() {
            each(first + row, &log_softmax(logits.row(row)));
        }
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - greatest).exp()).sum();
    logits.iter().map(|logit| f64::from(logit - greatest) - sum.ln()).collect()
}

/// A running mean of absolute differences.
#[derive(Default)]
struct Distance {
    sum: f64,
    count: usize,
}

impl Distance {
    fn add(&mut self, difference: f64) {
        self.sum += difference.abs();
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        assert!(self.count > 0, "nothing was compared");
        self.sum / self.count as f64
    }
}

/// How far apart this model and its two witnesses are.
#[derive(Default)]
struct Distances {
    /// From float32, over its 20 likeliest at every position.
    float32: Distance,
    /// The same where llama.cpp was asked, over the tokens that it named as well.
    float32_there: Distance,
    /// llama.cpp from float32, over the same.
    peer_from_float32: Distance,
    /// From llama.cpp, over its 20 likeliest.
    peer: Distance,
}

fn measure<'a>(
    model: &mut Model,
    dtype: KvDtype,
    goldens: impl IntoIterator<Item = &'a Golden>,
    peer: &Table<Top>,
) -> Distances {
    let mut distances = Distances::default();
    for golden in goldens {
        force(model, dtype, &golden.tokens, |position, ours| {
            let float32 = golden.top[position].iter().zip(&golden.logprobs[position]);
            let at = peer.get(&(golden.prompt.clone(), position));
            for (&token, &logprob) in float32 {
                distances.float32.add(ours[token] - logprob);
                let named = at.and_then(|top| top.iter().find(|(id, _)| *id == token));
                if let Some((_, theirs)) = named {
                    distances.float32_there.add(ours[token] - logprob);
                    distances.peer_from_float32.add(theirs - logprob);
                }
            }
            for (token, theirs) in at.into_iter().flatten() {
                distances.peer.add(ours[*token] - theirs);
            }
        });
    }
    distances
}

fn load(path: &Path, isa: Isa, precision: Precision) -> Model {
    let options = LoadOptions { isa: Some(isa), precision, threads: 2, progress: None };
    Model::load(path, &options).unwrap_or_else(|error| panic!("cannot load {path:?}: {error}"))
}

#[test]
fn tiny_models_of_every_family_match_float32_on_every_instruction_set() {
    for name in TINY {
        let stem = goldens().join("tiny").join(name);
        let (golden, peer) = witnesses(&stem);
        for isa in Isa::available() {
            let mut model = load(&stem.with_extension("gguf"), isa, Precision::Exact);
            let found = measure(&mut model, KvDtype::F32, &golden, &peer);
            let (mean, there) = (found.float32.mean(), found.peer_from_float32.mean());
            println!(
                "{name} {isa}: {mean:.5} from float32, {:.4} from llama.cpp ({there:.4})",
                found.peer.mean()
            );
            assert!(mean < EXACT_TINY_MAX, "{name} on {isa}: {mean} from float32");
        }
    }
}

#[test]
fn tiny_models_on_the_fast_path_are_about_as_near_to_float32_as_llama_cpp() {
    let (mut ours, mut theirs) = (Distance::default(), Distance::default());
    for name in TINY {
        let stem = goldens().join("tiny").join(name);
        let (golden, peer) = witnesses(&stem);
        let mut model = load(&stem.with_extension("gguf"), Isa::best(), Precision::Fast);
        let found = measure(&mut model, KvDtype::F16, &golden, &peer);
        let (here, there) = (found.float32_there.mean(), found.peer_from_float32.mean());
        println!("{name}: {here:.4} from float32, llama.cpp {there:.4}, {:.4} between us", found.peer.mean());
        for (sum, one) in [(&mut ours, &found.float32_there), (&mut theirs, &found.peer_from_float32)] {
            sum.sum += one.sum;
            sum.count += one.count;
        }
    }
    // Both round activations to 8 bits; over so few tokens one or the other comes out a little ahead.
    assert!(ours.mean() < 1.2 * theirs.mean(), "{} against llama.cpp's {}", ours.mean(), theirs.mean());
}

/// A real model on both paths. `peer_max` is llama.cpp's own distance from float32 on this model, over long texts.
fn check(name: &str, peer_max: f64) {
    let path = catalogue::require(name);
    let (golden, peer) = witnesses(&goldens().join("logits").join(name));
    for precision in [Precision::Exact, Precision::Fast] {
        let mut model = load(&path, Isa::best(), precision);
        // The exact path is slow, and only a window makes the long prompt another one than the short: the fast path, which
        // shares everything with it but the products, takes it on all models.
        let spared = |golden: &&Golden| {
            precision == Precision::Exact && golden.prompt == "long" && !name.starts_with("gemma")
        };
        let prompts = golden.iter().filter(|golden| !spared(golden));
        let found = measure(&mut model, KvDtype::F16, prompts, &peer);
        let (mean, here, there) =
            (found.float32.mean(), found.float32_there.mean(), found.peer_from_float32.mean());
        println!(
            "{name} {precision:?}: {mean:.4} from float32; where llama.cpp was asked {here:.4}, llama.cpp itself {there:.4}; \
             {:.4} between us",
            found.peer.mean()
        );
        match precision {
            Precision::Exact => assert!(mean < EXACT_MAX, "{name}: {mean} from float32"),
            Precision::Fast => {
                assert!(mean < peer_max, "{name}: {mean} from float32");
                // Over the few positions that llama.cpp was asked at, two paths that round alike differ by some percent.
                assert!(here < 1.1 * there, "{name}: {here} from float32, llama.cpp {there}");
            }
        }
        // Two engines that are both near float32 are near each other.
        assert!(found.peer.mean() < 2.0 * peer_max, "{name}: {} from llama.cpp", found.peer.mean());
    }
}

#[test]
fn smollm2_is_nearer_to_float32_than_llama_cpp() {
    check("smollm2-135m-instruct", 0.10);
}

#[test]
fn gemma_is_nearer_to_float32_than_llama_cpp() {
    check("gemma-3-270m", 0.14);
}

#[test]
fn qwen_half_billion_is_nearer_to_float32_than_llama_cpp() {
    check("qwen2.5-coder-0.5b-instruct", 0.06);
}

#[test]
fn qwen_one_and_a_half_billion_is_nearer_to_float32_than_llama_cpp() {
    if std::env::var_os("FIRSTLIGHT_TEST_1_5B").is_none_or(|value| value != "1") {
        eprintln!("not run: set FIRSTLIGHT_TEST_1_5B=1 to test the 1.5B model as well");
        return;
    }
    check("qwen2.5-coder-1.5b-instruct", 0.09);
}
