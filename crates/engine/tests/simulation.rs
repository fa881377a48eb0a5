//! The whole engine over a fake model, a hundred thousand steps and more, from seeds.

use engine::Limits;
use engine::simulate::{Report, Scenario};

fn scenario(seed: u64, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut limits = Limits::new(64, 400, 24);
    limits.max_num_seqs = 8;
    limits.max_num_batched_tokens = 32;
    limits.prefill_chunk_max = 24;
    limits.block_tokens = 4;
    limits.queue_max = 40;
    limits.outbox_max = 4;
    limits.bypass_max = 5;
    let mut scenario = Scenario {
        seed,
        steps: 10_000,
        limits,
        arrival_chance: 0.35,
        prompt_max: 200,
        answer_max: 60,
        leave_chance: 0.02,
        slow_share: 0.2,
    };
    change(&mut scenario);
    scenario
}

fn check(scenario: &Scenario) -> Report {
    let report = scenario.run().unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{report:?}");
    report
}

#[test]
fn smoke() {
    check(&scenario(1, |_| {}));
}
