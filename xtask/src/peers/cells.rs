//! What is measured: a table of cells, each of which both engines can do.

/// One cell: one speed, in tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub name: &'static str,
    pub what: &'static str,
    pub speed: Speed,
    /// Tokens that lie in the context before what is measured; shared by all sequences where `shared`.
    pub depth: usize,
    /// Tokens measured, for each sequence.
    pub tokens: usize,
    pub sequences: usize,
    pub shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    Prefill,
    Decode,
}

const fn cell(name: &'static str, what: &'static str, speed: Speed, depth: usize, tokens: usize) -> Cell {
    Cell { name, what, speed, depth, tokens, sequences: 1, shared: false }
}

const fn batch(name: &'static str, what: &'static str, sequences: usize) -> Cell {
    Cell { name, what, speed: Speed::Decode, depth: 128, tokens: 32, sequences, shared: false }
}

/// All cells, in the order of the table.
pub const CELLS: &[Cell] = &[
    cell("prefill", "a prompt of 512 tokens", Speed::Prefill, 0, 512),
    cell("decode", "64 tokens, one sequence", Speed::Decode, 0, 64),
    cell("decode-4096", "32 tokens, one sequence, behind 4,096", Speed::Decode, 4096, 32),
    batch("batch-1", "32 tokens behind 128", 1),
    batch("batch-4", "32 tokens behind 128 each, 4 sequences", 4),
    batch("batch-8", "32 tokens behind 128 each, 8 sequences", 8),
    batch("batch-16", "32 tokens behind 128 each, 16 sequences", 16),
    Cell {
        name: "shared-prefix",
        what: "32 tokens each, 8 sequences behind one prefix of 1,024",
        speed: Speed::Decode,
        depth: 1024,
        tokens: 32,
        sequences: 8,
        shared: true,
    },
];
