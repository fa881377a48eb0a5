//! What accounting for one token costs: all stamps, segments and charges of its way through the server, the clock read
//! anew for each. `cargo bench -p ledger`
//!
//! The end-to-end figure (tools/bench/ledger_cost.py) is a difference of two speeds that vary by more than it; this one
//! is the work itself.

use std::hint::black_box;

use ledger::{Account, Stage, StepId, Timeline, now_ns};

const TOKENS: u64 = 256;
const ROUNDS: usize = 200;

fn main() {
    let mut nanoseconds_per_token: Vec<u64> = (0..ROUNDS).map(|_| answer() / TOKENS).collect();
    nanoseconds_per_token.sort_unstable();
    println!(
        "accounting for a token: {} ns (median of {ROUNDS} answers of {TOKENS} tokens; 95%: {} ns)",
        nanoseconds_per_token[ROUNDS / 2],
        nanoseconds_per_token[ROUNDS * 95 / 100]
    );
}

/// An answer's accounting, and how long it took.
fn answer() -> u64 {
    let began = now_ns();
    let mut account = Account::open(began);
    for token in 0..TOKENS {
        let mut timeline = Timeline::starting(Stage::DecodeWait, now_ns());
        for stage in [Stage::Decode, Stage::Sample, Stage::Return] {
            timeline.enter(stage, now_ns());
        }
        let mut coming = Timeline::default();
        coming.append(black_box(timeline));
        for stage in [Stage::Detokenize, Stage::Write] {
            coming.enter(stage, now_ns());
        }
        account.deliver(&coming, 1, Some(StepId(token)), now_ns());
    }
    black_box(account.stages());
    now_ns() - began
}
