//! Keys and values of past positions, in blocks that sequences lease.
//!
//! **Invariant:** a position's keys and values are written before anything attends to them, and blocks mean the same
//! tokens in every layer: one block table serves all layers.

use kernels::{KvDtype, KvLayer};

use crate::config::Config;

/// The paged keys and values of every layer.
pub struct KvCache {
    pub(crate) layers: Vec<KvLayer>,
    block_tokens: usize,
    blocks: usize,
}

impl KvCache {
    /// Room for `blocks` blocks of `block_tokens` positions, which must be a multiple of 16. Memory is taken when it is
    /// first written.
    pub fn new(config: &Config, dtype: KvDtype, block_tokens: usize, blocks: usize) -> KvCache {
        let layer = |_| KvLayer::new(dtype, blocks, block_tokens, config.kv_heads, config.head_dim);
        KvCache { layers: (0..config.layers).map(layer).collect(), block_tokens, blocks }
    }

    /// Positions in a block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// Blocks in all.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Makes block `to` the same as block `from` in every layer.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        for layer in &mut self.layers {
            layer.copy_block(from, to);
        }
    }

    /// Bytes mapped for all blocks.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(KvLayer::bytes).sum()
    }
}

/// Bytes that one more position takes in this cache, over all layers. Windowed layers keep what lies behind their window
/// until the sequence ends, so they count in full.
pub fn bytes_per_token(config: &Config, dtype: KvDtype) -> usize {
    config.layers * bytes_per_token_and_layer(config, dtype)
}

/// Bytes that a context of `tokens` positions needs at least: windowed layers need no more than their window.
pub fn bytes_needed(config: &Config, dtype: KvDtype, tokens: usize) -> usize {
    let kept = |layer| config.window_of(layer).map_or(tokens, |window| tokens.min(window));
    (0..config.layers).map(kept).sum::<usize>() * bytes_per_token_and_layer(config, dtype)
}

fn bytes_per_token_and_layer(config: &Config, dtype: KvDtype) -> usize {
    KvLayer::bytes_for(dtype, 1, 1, config.kv_heads, config.head_dim)
}
