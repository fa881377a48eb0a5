//! The whole engine over a fake model, more than a million steps, from seeds. Every step's plan goes to the
//! oracle, every block is accounted for, every request ends, and every answer is the one it would be alone.

use engine::Limits;
use engine::simulate::{Dice, Report, Scenario};

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
        steps: 20_000,
        limits,
        arrival_chance: 0.3,
        prompt_max: 200,
        answer_max: 60,
        leave_chance: 0.02,
        slow_share: 0.2,
        alike: 0.6,
        terms: false,
    };
    change(&mut scenario);
    scenario
}

fn check(scenario: &Scenario) -> Report {
    let report = scenario.run().unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{report:?}");
    let Report { submitted, finished, cancelled, .. } = report;
    assert_eq!(
        finished + cancelled + report.hopeless,
        submitted,
        "every request that was taken on has ended"
    );
    assert!(submitted > 100, "the scenario is not empty: {report:?}");
    report
}

#[test]
fn a_mixed_crowd_is_served() {
    for seed in [1, 2] {
        check(&scenario(seed, |_| {}));
    }
}

#[test]
fn a_tiny_pool_preempts_and_changes_no_answer() {
    let report = check(&scenario(3, |scenario| {
        scenario.limits.blocks = 24;
        scenario.limits.growth_blocks = 0;
        scenario.prompt_max = 70;
    }));
    assert!(report.preemptions > 1000, "{} preemptions", report.preemptions);
}

#[test]
fn an_overload_is_refused_and_nobody_starves() {
    let report = check(&scenario(4, |scenario| {
        scenario.arrival_chance = 0.9;
        scenario.leave_chance = 0.0;
        scenario.slow_share = 0.0;
    }));
    assert!(report.refused > 1000, "{} refusals", report.refused);
}

#[test]
fn clients_that_hardly_read_do_not_stop_the_others() {
    check(&scenario(5, |scenario| {
        scenario.slow_share = 0.9;
        scenario.limits.outbox_max = 1;
    }));
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let report = check(&scenario(6, |scenario| scenario.leave_chance = 0.3));
    assert!(report.cancelled > report.finished / 4, "{report:?}");
}

#[test]
fn a_budget_of_hardly_any_tokens_still_serves_everyone() {
    check(&scenario(7, |scenario| {
        scenario.limits.max_num_batched_tokens = 9;
        scenario.limits.prefill_chunk_max = 3;
        scenario.arrival_chance = 0.05;
    }));
}

#[test]
fn prompts_that_begin_alike_are_computed_once_and_change_no_answer() {
    let report = check(&scenario(9, |scenario| {
        scenario.alike = 1.0;
        scenario.arrival_chance = 0.5;
        scenario.limits.blocks = 200;
    }));
    assert!(report.cached_tokens > 20_000, "{report:?}");
    assert!(report.waits_for_prefix > 50, "{report:?}");
    let without = check(&scenario(9, |scenario| {
        scenario.alike = 1.0;
        scenario.arrival_chance = 0.5;
        scenario.limits.blocks = 200;
        scenario.limits.prefix_caching = false;
    }));
    assert_eq!((without.cached_tokens, without.waits_for_prefix), (0, 0));
}

#[test]
fn a_cache_that_is_always_too_small_changes_no_answer() {
    let report = check(&scenario(10, |scenario| {
        scenario.alike = 1.0;
        scenario.limits.blocks = 24;
        scenario.limits.growth_blocks = 0;
        scenario.prompt_max = 70;
    }));
    assert!(report.cached_tokens > 500 && report.preemptions > 1000, "{report:?}");
}

#[test]
fn steps_are_kept_to_their_time() {
    let report = check(&scenario(11, |scenario| {
        scenario.limits = Limits { blocks: 500, ..scenario.limits.clone() };
        (scenario.limits.max_num_batched_tokens, scenario.limits.prefill_chunk_max) = (200, 200);
        scenario.limits.itl_target_ns = 1_600_000;
        (scenario.arrival_chance, scenario.prompt_max) = (0.6, 380);
    }));
    assert!(report.cut_short > 200, "{report:?}");
}

#[test]
fn classes_tenants_and_deadlines_starve_nobody() {
    for seed in [12, 13] {
        let report = check(&scenario(seed, |scenario| {
            scenario.terms = true;
            scenario.limits.aging_ns = 20_000_000;
            scenario.arrival_chance = 0.6;
        }));
        assert!(report.hopeless > 50 && report.refused > 100, "{report:?}");
    }
    let report = check(&scenario(14, |scenario| {
        scenario.terms = true;
        scenario.limits.aging_ns = 20_000_000;
        scenario.limits.blocks = 24;
        scenario.limits.growth_blocks = 0;
        scenario.prompt_max = 70;
    }));
    assert!(report.preemptions > 100, "{report:?}");
}

/// Limits and traffic of every kind, from one seed.
#[test]
fn a_million_steps_of_any_kind() {
    const RUNS: u64 = 50;
    const THREADS: u64 = 2;
    let any = |seed: u64| {
        scenario(1_000 + seed, |scenario| {
            let mut dice = Dice::new(seed);
            let limits = &mut scenario.limits;
            limits.max_num_seqs = dice.between(1, 16);
            limits.max_num_batched_tokens = limits.max_num_seqs + dice.between(1, 100);
            limits.prefill_chunk_max = dice.between(1, 100);
            limits.prefill_chunk_min = dice.between(1, 16);
            limits.prompt_share_percent = dice.between(1, 100);
            limits.blocks = dice.between(12, 300);
            limits.growth_blocks = dice.between(0, 2);
            limits.bypass_max = dice.between(0, 10);
            limits.outbox_max = dice.between(1, 8);
            limits.queue_max = dice.between(1, 60);
            limits.queue_tokens_max = dice.between(10, 10_000);
            limits.aging_ns = [0, 5_000_000, 100_000_000][dice.between(0, 2)];
            limits.itl_target_ns = [0, 1_200_000, 3_000_000][dice.between(0, 2)];
            limits.prefix_caching = dice.chance(0.8);
            scenario.arrival_chance = dice.between(1, 90) as f64 / 100.0;
            scenario.prompt_max = dice.between(2, 350).min(limits.pool_tokens() - 1);
            scenario.answer_max = dice.between(1, 120);
            scenario.leave_chance = dice.between(0, 20) as f64 / 100.0;
            scenario.slow_share = dice.between(0, 50) as f64 / 100.0;
            scenario.alike = dice.between(0, 100) as f64 / 100.0;
            scenario.terms = dice.chance(0.7);
        })
    };
    let steps: u64 = std::thread::scope(|scope| {
        let run = |first: u64| {
            (first..RUNS).step_by(THREADS as usize).map(|seed| check(&any(seed)).steps).sum::<u64>()
        };
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || run(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(steps >= 1_000_000, "{steps} steps");
}

#[test]
fn one_seed_is_one_run() {
    let scenario = scenario(8, |scenario| scenario.steps = 3_000);
    assert_eq!(check(&scenario), check(&scenario));
}
