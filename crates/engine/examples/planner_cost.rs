//! What one plan costs with 256 sequences waiting and 64 running, in the situations that cost most.
//!
//! `cargo run --release -p engine --example planner_cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use engine::Limits;
use engine::blocks::Look;
use engine::plan::{Plan, RunningView, Situation, WaitingView, plan};
use ledger::RequestId;

const RUNNING: usize = 64;
const WAITING: usize = 256;
const ROUNDS: usize = 2_000;

fn main() {
    println!("{RUNNING} running, {WAITING} waiting, {ROUNDS} plans each; median and worst of ten");
    let full = limits(4096, RUNNING);
    measure("all seats taken", &situation(&full, false, 300), &full);
    let seats = limits(4096, 2 * RUNNING);
    measure("the step's budget spent on prompts", &situation(&seats, true, 600), &seats);
    let tight = limits(64 * 30 + 4, 2 * RUNNING);
    measure("everyone waits for blocks", &situation(&tight, false, 300), &tight);
    let none = limits(64 * 30, 2 * RUNNING);
    measure("no block free and every decode needs one", &situation(&none, false, 480), &none);
}

fn limits(blocks: usize, seats: usize) -> Limits {
    let mut limits = Limits::new(blocks, 8192, 32_000);
    limits.max_num_seqs = seats;
    limits.bypass_max = usize::MAX;
    limits
}

/// Every running sequence holds 30 blocks and has computed `computed` tokens.
fn situation(limits: &Limits, prefilling: bool, computed: usize) -> Situation {
    let running = (0..RUNNING).map(|index| RunningView {
        request: RequestId(index as u64),
        known: computed + if prefilling { 200 } else { 1 },
        computed,
        blocks: 30,
        own: 30,
        next: prefilling.then_some(index as u64),
        produced: !prefilling,
        outbox_full: false,
    });
    let waiting = (0..WAITING).map(|index| WaitingView {
        request: RequestId((RUNNING + index) as u64),
        known: 500 + index,
        look: Look { next: Some((RUNNING + index) as u64), ..Look::default() },
        preempted: false,
        rank: 0,
        headroom: 0,
        bypassed: 0,
        outbox_full: false,
    });
    Situation {
        running: running.collect(),
        waiting: waiting.collect(),
        pace: None,
        blocks_free: limits.blocks.saturating_sub(RUNNING * 30),
    }
}

fn measure(what: &str, situation: &Situation, limits: &Limits) {
    let mut rounds: Vec<Duration> = (0..10)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..ROUNDS / 10 {
                black_box(plan(black_box(situation), limits));
            }
            began.elapsed() / (ROUNDS / 10) as u32
        })
        .collect();
    rounds.sort();
    let Plan { chunks, admit, preempt, left_out } = plan(situation, limits);
    println!(
        "{what:42} {:>8.1?} {:>8.1?}   ({} stepped, {} admitted, {} preempted, {} left out)",
        rounds[5],
        rounds[9],
        chunks.len(),
        admit.len(),
        preempt.len(),
        left_out.len()
    );
}
