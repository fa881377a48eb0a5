//! The forward pass on small random models of every family: what may not change its result, and what must.

mod invariance;
mod load;
mod settings;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernels::{Isa, KvDtype, Precision};
use ledger::Parts;
use models::testing::{FileBuilder, Random};
use models::{Batch, KvCache, LoadError, LoadOptions, Model};

const BLOCK_TOKENS: usize = 16;
/// Positions below this are a prompt's, which are rounded otherwise than generated ones.
pub(crate) const PROMPT: usize = 64;
const BLOCKS: usize = 64;

/// Loads what a builder describes.
fn try_load(file: &FileBuilder, options: &LoadOptions<'_>) -> Result<Model, LoadError> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name =
        format!("firstlight-forward-{}-{}.gguf", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path: PathBuf = std::env::temp_dir().join(name);
    file.build().write(&path);
    let model = Model::load(&path, options);
    // Nothing reads the file after loading, which is part of what these tests rely on.
    std::fs::remove_file(&path).expect("the file was just written");
    model
}

fn load(file: &FileBuilder, isa: Isa, precision: Precision, threads: usize) -> Model {
    try_load(file, &LoadOptions { isa: Some(isa), precision, threads, progress: None })
        .expect("the file is valid")
}

fn exact(file: &FileBuilder) -> Model {
    load(file, Isa::best(), Precision::Exact, 1)
}

fn cache(model: &Model) -> KvCache {
    KvCache::new(model.config(), KvDtype::F32, BLOCK_TOKENS, BLOCKS)
}

fn tokens(random: &mut Random, model: &Model, count: usize) -> Vec<u32> {
    (0..count).map(|_| random.below(model.config().vocabulary) as u32).collect()
}

/// Logits at every position of a sequence that is computed alone and at once.
fn logits_alone(model: &mut Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let blocks: Vec<u32> = (0..tokens.len().div_ceil(BLOCK_TOKENS) as u32).collect();
    let mut batch = Batch::default();
    batch.push(tokens, 0, PROMPT, &blocks, false);
    batch.logit_rows = (0..tokens.len()).collect();
    let mut kv = cache(model);
    let logits = model.forward(&batch, &mut kv, &mut Parts::default());
    (0..tokens.len()).map(|row| logits.row(row).to_vec()).collect()
}

/// Fisher-Yates.
fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, random.below(index + 1));
    }
}
