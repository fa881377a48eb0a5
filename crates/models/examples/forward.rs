//! Measures a model file: load, prefill and decode, with the time of each part.
//!
//! `cargo run --release -p models --example forward -- MODEL.gguf [--exact] [--threads N] [--prefill N] [--decode N] [--depth N] [--batch N] [--shared]`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kernels::{KvDtype, Precision};
use ledger::{Part, Parts};
use models::{Batch, KvCache, LoadOptions, Model};

const BLOCK_TOKENS: usize = 16;

struct Arguments {
    path: PathBuf,
    precision: Precision,
    threads: usize,
    /// Tokens of the measured prompt.
    prefill: usize,
    /// Measured decode steps.
    decode: usize,
    /// Positions that lie before both.
    depth: usize,
    /// Sequences that decode together.
    batch: usize,
    /// The positions before are the same blocks for all sequences, computed once.
    shared: bool,
}

impl Arguments {
    fn parse() -> Result<Arguments, String> {
        let mut found = Arguments {
            path: PathBuf::new(),
            precision: Precision::Fast,
            threads: 2,
            prefill: 512,
            decode: 64,
            depth: 0,
            batch: 1,
            shared: false,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || -> Result<usize, String> {
                let value = arguments.next().ok_or(format!("{argument} wants a number"))?;
                value.parse().map_err(|error| format!("{argument} {value}: {error}"))
            };
            match argument.as_str() {
                "--exact" => found.precision = Precision::Exact,
                "--threads" => found.threads = number()?,
                "--prefill" => found.prefill = number()?,
                "--decode" => found.decode = number()?,
                "--depth" => found.depth = number()?,
                "--batch" => found.batch = number()?.max(1),
                "--shared" => found.shared = true,
                flag if flag.starts_with('-') => return Err(format!("unknown flag {flag}")),
                path => found.path = path.into(),
            }
        }
        Ok(found)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse()?;
    let options =
        LoadOptions { precision: arguments.precision, threads: arguments.threads, ..LoadOptions::default() };
    let started = Instant::now();
    let mut model = Model::load(&arguments.path, &options)?;
    println!(
        "load: {:.2} s, {:.1} MB of weights, {} on {} threads",
        started.elapsed().as_secs_f64(),
        model.memory_bytes() as f64 / 1e6,
        model.kernels().isa(),
        arguments.threads
    );
    let per_sequence = (arguments.depth + arguments.prefill + arguments.decode).div_ceil(BLOCK_TOKENS);
    // Whole blocks only: the one in which a prefix ends is every sequence's own.
    let shared = if arguments.shared { arguments.depth / BLOCK_TOKENS } else { 0 };
    let mut bench = Bench {
        kv: KvCache::new(model.config(), KvDtype::F16, BLOCK_TOKENS, per_sequence * arguments.batch),
        per_sequence,
        shared,
        model: &mut model,
    };
    bench.prefill(&arguments);
    bench.decode(&arguments);
    Ok(())
}

struct Bench<'a> {
    model: &'a mut Model,
    kv: KvCache,
    per_sequence: usize,
    /// The first blocks of every sequence that are the first sequence's.
    shared: usize,
}

impl Bench<'_> {
    fn blocks(&self, sequence: usize) -> Vec<u32> {
        let owner = |block: usize| if block < self.shared { 0 } else { sequence };
        (0..self.per_sequence).map(|block| (owner(block) * self.per_sequence + block) as u32).collect()
    }

    /// Any tokens do; these spread over the vocabulary.
    fn tokens(&self, count: usize, seed: usize) -> Vec<u32> {
        (0..count).map(|index| ((index + seed) * 7919 % self.model.config().vocabulary) as u32).collect()
    }

    /// Fills positions before `depth` in chunks, and measures the prompt after them.
    fn prefill(&mut self, arguments: &Arguments) {
        for sequence in 0..arguments.batch {
            let blocks = self.blocks(sequence);
            let computed = if sequence > 0 { self.shared * BLOCK_TOKENS } else { 0 };
            for start in (computed..arguments.depth).step_by(512) {
                let chunk = self.tokens(512.min(arguments.depth - start), start + sequence);
                let mut batch = Batch::default();
                batch.push(&chunk, start, usize::MAX, &blocks, false);
                self.model.forward(&batch, &mut self.kv, &mut Parts::default());
            }
            let mut batch = Batch::default();
            batch.push(&self.tokens(arguments.prefill, sequence), arguments.depth, usize::MAX, &blocks, true);
            let mut parts = Parts::default();
            let started = Instant::now();
            self.model.forward(&batch, &mut self.kv, &mut parts);
            report("prefill", arguments.prefill, started.elapsed(), &parts);
        }
    }

    fn decode(&mut self, arguments: &Arguments) {
        let mut parts = Parts::default();
        let started = Instant::now();
        for step in 0..arguments.decode {
            let mut batch = Batch::default();
            for sequence in 0..arguments.batch {
                let position = arguments.depth + arguments.prefill + step;
                batch.push(&self.tokens(1, position + sequence), position, 0, &self.blocks(sequence), true);
            }
            self.model.forward(&batch, &mut self.kv, &mut parts);
        }
        report("decode", arguments.decode * arguments.batch, started.elapsed(), &parts);
    }
}

fn report(what: &str, tokens: usize, took: Duration, parts: &Parts) {
    print!("{what}: {tokens} tokens, {:.1} tok/s;", tokens as f64 / took.as_secs_f64());
    for part in Part::ALL.into_iter().filter(|part| parts.ns(*part) > 0) {
        print!(" {} {:.1}%", part.name(), 100.0 * parts.ns(part) as f64 / took.as_nanos() as f64);
    }
    println!();
}
