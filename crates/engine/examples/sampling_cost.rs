//! What choosing one token costs, by vocabulary and by what is asked for.
//!
//! `cargo run --release -p engine --example sampling_cost`

use std::sync::Arc;
use std::time::Instant;

use engine::sample::{Sampler, Scratch};
use engine::simulate::Dice;
use protocol::Sampling;

const ROUNDS: usize = 60;

fn main() {
    let cases = [
        ("greedy", Sampling { temperature: 0.0, ..Sampling::default() }),
        ("temperature 1", Sampling::default()),
        ("top-p 0.9", Sampling { top_p: 0.9, ..Sampling::default() }),
        ("top-k 40", Sampling { top_k: Some(40), ..Sampling::default() }),
        (
            "top-k 40, top-p 0.9, min-p 0.05",
            Sampling { top_k: Some(40), top_p: 0.9, min_p: 0.05, ..Sampling::default() },
        ),
        ("temperature 100, top-p 0.9", Sampling { temperature: 100.0, top_p: 0.9, ..Sampling::default() }),
        ("greedy, 20 logprobs", Sampling { temperature: 0.0, logprobs: Some(20), ..Sampling::default() }),
    ];
    println!("median microseconds for one row, over {ROUNDS} rows");
    print!("{:34}", "vocabulary");
    let vocabularies = [49_152, 151_936, 262_144];
    vocabularies.iter().for_each(|vocabulary| print!("{vocabulary:>10}"));
    println!();
    for (name, sampling) in cases {
        print!("{name:34}");
        vocabularies.iter().for_each(|vocabulary| print!("{:>10.0}", median_us(&sampling, *vocabulary)));
        println!();
    }
}

fn median_us(sampling: &Sampling, vocabulary: usize) -> f64 {
    let mut dice = Dice::new(vocabulary as u64);
    let mut sampler = Sampler::new(sampling.clone(), Arc::new([]), &[]);
    let mut scratch = Scratch::default();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let mut logits = row(&mut dice, vocabulary);
            let began = Instant::now();
            let sampled = sampler.sample(&mut logits, round, round, &mut scratch);
            let spent = began.elapsed();
            assert!(sampled.is_ok());
            spent.as_secs_f64() * 1e6
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Logits shaped like a model's: most around 0, a few far above.
fn row(dice: &mut Dice, vocabulary: usize) -> Vec<f32> {
    let mut uniform = || (dice.number() >> 40) as f32 / (1 << 24) as f32;
    let mut logits: Vec<f32> = (0..vocabulary).map(|_| 6.0 * (uniform() + uniform() - 1.0)).collect();
    for _ in 0..20 {
        let token = (uniform() * vocabulary as f32) as usize;
        logits[token % vocabulary] = 12.0 + 6.0 * uniform();
    }
    logits
}
