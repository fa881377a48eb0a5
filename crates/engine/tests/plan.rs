//! The planner alone: policy cases, and any situation that could be, judged by the oracle.

use std::sync::LazyLock;

use engine::Limits;
use engine::blocks::Look;
use engine::cost::{CostModel, Pace, Prices, Work};
use engine::plan::{Admission, Place, RunningView, Situation, WaitingView, plan};
use engine::simulate::{Dice, examine};
use ledger::{Cause, RequestId};

fn limits() -> Limits {
    let mut limits = Limits::new(20, 160, 100);
    limits.block_tokens = 10;
    limits.max_num_seqs = 6;
    limits.max_num_batched_tokens = 30;
    limits.prefill_chunk_max = 20;
    limits.prefill_chunk_min = 6;
    limits.bypass_max = 3;
    limits
}

/// A decoding sequence with `computed` tokens in its KV.
fn decoding(request: u64, computed: usize) -> RunningView {
    RunningView {
        request: RequestId(request),
        known: computed + 1,
        computed,
        blocks: computed.div_ceil(10),
        own: computed.div_ceil(10),
        next: None,
        produced: true,
        outbox_full: false,
    }
}

fn prefilling(request: u64, computed: usize, known: usize) -> RunningView {
    let blocks = (known + 1).div_ceil(10);
    let (own, next, produced, outbox_full) = (blocks, None, false, false);
    RunningView { request: RequestId(request), known, computed, blocks, own, next, produced, outbox_full }
}

fn waiting(request: u64, known: usize) -> WaitingView {
    let look = Look::default();
    WaitingView {
        request: RequestId(request),
        known,
        look,
        preempted: false,
        rank: 0,
        headroom: 0,
        bypassed: 0,
        outbox_full: false,
    }
}

fn situation(running: Vec<RunningView>, waiting: Vec<WaitingView>) -> Situation {
    let held: usize = running.iter().map(|running| running.blocks).sum();
    Situation { blocks_free: limits().blocks - held, running, waiting, pace: None }
}

/// The plan in short: `running index:tokens` for chunks, then what was admitted, preempted, and left out.
fn check(situation: &Situation, expected: &str) {
    let plan = plan(situation, &limits());
    examine(situation, &plan, &limits()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut words: Vec<String> =
        plan.chunks.iter().map(|chunk| format!("r{}:{}", chunk.running, chunk.tokens)).collect();
    let admitted = plan.admit.iter().map(|Admission { waiting, tokens, .. }| format!("w{waiting}:{tokens}"));
    words.extend(admitted);
    words.extend(plan.preempt.iter().map(|preemption| format!("r{} preempted", preemption.running)));
    words.extend(plan.left_out.iter().map(|(place, cause)| {
        let place = match place {
            Place::Running(index) => format!("r{index}"),
            Place::Waiting(index) => format!("w{index}"),
        };
        let why = match cause {
            Cause::NoFreeBlocks { .. } => "blocks",
            Cause::BatchFull { .. } => "seats",
            Cause::TokenBudget { .. } => "budget",
            Cause::Behind { .. } => "behind",
            Cause::HigherPriority { .. } => "class",
            Cause::SamePrefix { .. } => "prefix",
            Cause::StepTime { .. } => "time",
            Cause::ClientSlow => "slow",
            _ => "?",
        };
        format!("{place} {why}")
    }));
    assert_eq!(words.join(", "), expected);
}

#[test]
fn decodes_go_first_then_prompts_that_have_begun_then_new_ones() {
    let running = vec![prefilling(1, 5, 13), decoding(2, 8), decoding(3, 3)];
    check(&situation(running, vec![waiting(4, 40), waiting(5, 2)]), "r1:1, r2:1, r0:8, w0:18, w1:2");
}

#[test]
fn a_prompt_takes_at_most_its_chunk() {
    check(&situation(vec![], vec![waiting(1, 90)]), "w0:20");
}

#[test]
fn a_prompt_takes_its_share_while_others_wait_and_what_they_leave() {
    check(&situation(vec![], vec![waiting(1, 90), waiting(2, 70)]), "w0:15, w1:15");
    check(&situation(vec![], vec![waiting(1, 90), waiting(2, 5)]), "w0:20, w1:5");
    check(&situation(vec![], vec![waiting(1, 90), waiting(2, 12), waiting(3, 9)]), "w0:15, w1:12, w2:3");
    check(&situation(vec![], vec![waiting(1, 19), waiting(2, 70)]), "w0:19, w1:11");
    check(&situation(vec![prefilling(1, 5, 90)], vec![waiting(2, 8)]), "r0:20, w0:8");
    check(&situation(vec![prefilling(1, 5, 90), prefilling(2, 9, 80)], vec![]), "r0:15, r1:15");
}

#[test]
fn who_was_preempted_often_waits_for_more_room() {
    let often = |headroom| WaitingView { preempted: true, headroom, ..waiting(2, 15) };
    // Ten blocks are free, of which it needs two.
    let with = |headroom| situation(vec![decoding(1, 95)], vec![often(headroom)]);
    check(&with(8), "r0:1, w0:15");
    check(&with(9), "r0:1, w0 blocks");
    check(&situation(vec![], vec![often(100)]), "w0:15");
}

#[test]
fn seats_are_limited() {
    let running = (1..=6).map(|request| decoding(request, 3)).collect();
    check(&situation(running, vec![waiting(7, 2)]), "r0:1, r1:1, r2:1, r3:1, r4:1, r5:1, w0 seats");
}

#[test]
fn small_ones_pass_a_big_one_only_so_often() {
    let running = vec![decoding(1, 85)];
    let mut big = waiting(2, 130);
    let small = |request| waiting(request, 2);
    let queue = |big| vec![big, small(3), small(4), small(5), small(6)];
    check(&situation(running.clone(), queue(big)), "r0:1, w1:2, w2:2, w3:2, w0 blocks, w4 behind");
    big.bypassed = 2;
    check(&situation(running.clone(), queue(big)), "r0:1, w1:2, w0 blocks, w2 behind, w3 behind, w4 behind");
    big.bypassed = 3;
    check(&situation(running, queue(big)), "r0:1, w0 blocks, w1 behind, w2 behind, w3 behind, w4 behind");
}

#[test]
fn who_waits_behind_a_better_class_is_told_so() {
    let mut big = WaitingView { rank: -1, ..waiting(2, 130) };
    big.bypassed = 3;
    let same = WaitingView { rank: -1, ..waiting(3, 2) };
    check(
        &situation(vec![decoding(1, 85)], vec![big, same, waiting(4, 2)]),
        "r0:1, w0 blocks, w1 behind, w2 class",
    );
}

#[test]
fn nobody_passes_one_that_was_preempted() {
    let mut victim = waiting(2, 130);
    victim.preempted = true;
    check(&situation(vec![decoding(1, 85)], vec![victim, waiting(3, 2)]), "r0:1, w0 blocks, w1 behind");
}

#[test]
fn admission_leaves_room_for_the_running_ones_to_grow() {
    // 18 blocks are held, 2 are free; each running sequence may soon need one of them.
    let running = vec![decoding(1, 85), decoding(2, 85)];
    check(&situation(running.clone(), vec![waiting(3, 5)]), "r0:1, r1:1, w0 blocks");
    check(&situation(running[..1].to_vec(), vec![waiting(3, 5)]), "r0:1, w0:5");
}

#[test]
fn the_youngest_decode_gives_way_when_blocks_run_out() {
    let running = vec![decoding(1, 70), decoding(2, 60), decoding(3, 70)];
    check(&situation(running, vec![waiting(4, 1)]), "r0:1, r1:1, r2 preempted, w0 behind");
}

#[test]
fn one_preemption_is_enough_where_it_frees_enough() {
    let running = vec![decoding(1, 50), decoding(2, 50), decoding(3, 50), decoding(4, 50)];
    check(&situation(running, vec![]), "r0:1, r1:1, r2:1, r3 preempted");
}

#[test]
fn a_client_that_does_not_read_gives_way_first() {
    let mut running = vec![decoding(1, 70), decoding(2, 60), decoding(3, 70)];
    running[0].outbox_full = true;
    check(&situation(running, vec![]), "r1:1, r2:1, r0 preempted");
}

#[test]
fn a_prompt_under_way_is_never_preempted() {
    let running = vec![decoding(1, 100), prefilling(2, 20, 99)];
    check(&situation(running, vec![]), "r1:20, r0 preempted");
}

#[test]
fn clients_that_do_not_read_cannot_hold_everything_for_ever() {
    let mut running = vec![decoding(1, 95), decoding(2, 95)];
    running.iter_mut().for_each(|running| running.outbox_full = true);
    check(&situation(running.clone(), vec![waiting(3, 5)]), "r1 preempted, r0 slow, w0 blocks");
    check(&situation(running, vec![]), "r0 slow, r1 slow");
}

#[test]
fn a_cause_names_the_largest_holders() {
    let mut limits = limits();
    (limits.blocks, limits.max_num_seqs) = (40, 20);
    let running: Vec<_> = (1..=12).map(|request| decoding(request, 5 * request as usize)).collect();
    let held: usize = running.iter().map(|running| running.blocks).sum();
    let situation =
        Situation { running, waiting: vec![waiting(99, 150)], blocks_free: 48 - held, pace: None };
    let plan = plan(&situation, &limits);
    let (_, cause) = plan.left_out.last().unwrap();
    let Cause::NoFreeBlocks { holders, .. } = cause else { panic!("{cause:?}") };
    assert_eq!(*holders, (5..=12).map(RequestId).collect::<Vec<_>>());
}

#[test]
fn what_is_cached_is_not_computed_and_costs_no_free_block_while_others_hold_it() {
    // 15 blocks are held; 40 tokens of the prompt, in 4 blocks, are there.
    let cached = |idle| {
        let look = Look { blocks: 4, idle, next: None };
        vec![WaitingView { look, ..waiting(3, 55) }]
    };
    let running = vec![decoding(1, 75), decoding(2, 65)];
    check(&situation(running.clone(), cached(1)), "r0:1, r1:1, w0:15");
    check(&situation(running.clone(), cached(2)), "r0:1, r1:1, w0 blocks");
    check(&situation(running, vec![waiting(3, 55)]), "r0:1, r1:1, w0 blocks");
}

#[test]
fn a_prefix_that_another_one_computes_is_waited_for() {
    let alike = |request, next| {
        let look = Look { next: Some(next), ..Look::default() };
        WaitingView { look, ..waiting(request, 5) }
    };
    check(&situation(vec![], vec![alike(1, 7), alike(2, 8), alike(3, 7)]), "w0:5, w1:5, w2 prefix");
    let mut first = prefilling(1, 10, 40);
    first.next = Some(7);
    check(&situation(vec![first], vec![alike(2, 7), alike(3, 8)]), "r0:20, w1:5, w0 prefix");
    // A decoding sequence computes no prompt, and where nobody computes it any more it is computed here.
    check(&situation(vec![decoding(1, 40)], vec![alike(2, 7)]), "r0:1, w0:5");
}

/// A pace at which a step costs 10, a prompt token 1 and a decode 5.
fn pace(target: f64) -> Option<Pace> {
    static PRICES: LazyLock<Prices> = LazyLock::new(prices);
    Some(Pace { target_ns: target * 1e6, prices: *PRICES })
}

fn prices() -> Prices {
    let mut model = CostModel::default();
    for (prefill, decodes) in [(0, 1), (10, 0), (0, 4), (30, 2), (5, 5)].into_iter().cycle().take(400) {
        let mut work = Work::default();
        work.add_prefill(0, prefill);
        (0..decodes).for_each(|_| work.add_decode(7));
        model.learn(&work, (10 + prefill + 5 * decodes) as u64 * 1_000_000);
    }
    model.prices()
}

#[test]
fn prompts_take_what_time_the_decodes_leave() {
    let with = |pace, waiting| Situation { pace, ..situation(vec![decoding(1, 8)], waiting) };
    let prompts = || vec![waiting(2, 40), waiting(3, 40)];
    // 15 for the decode alone.
    check(&with(None, prompts()), "r0:1, w0:15, w1:14");
    // What the first one's share leaves is too little for a chunk of its own.
    check(&with(pace(26.5), prompts()), "r0:1, w0:11, w1 time");
    check(&with(pace(40.0), prompts()), "r0:1, w0:12, w1:12");
    check(&with(pace(1000.0), prompts()), "r0:1, w0:15, w1:14");
    // A target that the decodes alone miss leaves half of their time.
    check(&with(pace(1.0), prompts()), "r0:1, w0:7, w1 time");
    // Nobody waits for the end of a step without a decode.
    let alone = Situation { pace: pace(1.0), ..situation(vec![], prompts()) };
    check(&alone, "w0:15, w1:15");
}

/// Not only what a run leads to: whatever the types allow.
#[test]
fn any_situation_gets_a_plan_that_the_oracle_accepts() {
    let mut dice = Dice::new(2026);
    let mut preemptions = 0;
    for case in 0..100_000 {
        let mut limits = limits();
        limits.max_num_seqs = dice.between(1, 12);
        limits.max_num_batched_tokens = dice.between(limits.max_num_seqs + 1, 40);
        limits.prefill_chunk_max = dice.between(1, 40);
        limits.prefill_chunk_min = dice.between(1, 8);
        limits.blocks = dice.between(2, 40);
        limits.growth_blocks = dice.between(0, 2);
        limits.prompt_share_percent = dice.between(1, 100);
        limits.bypass_max = dice.between(0, 4);
        let situation = any_situation(&mut dice, &limits);
        let plan = plan(&situation, &limits);
        preemptions += plan.preempt.len();
        if let Err(wrong) = examine(&situation, &plan, &limits) {
            panic!("case {case}: {wrong}\n{limits:?}\n{situation:#?}\n{plan:#?}");
        }
    }
    assert!(preemptions > 3_000, "{preemptions} preemptions");
}

fn any_situation(dice: &mut Dice, limits: &Limits) -> Situation {
    let pace = if dice.chance(0.5) { pace(dice.between(0, 60) as f64) } else { None };
    let mut situation = Situation { blocks_free: limits.blocks, pace, ..Situation::default() };
    let context = limits.context();
    for request in 0..dice.between(0, limits.max_num_seqs) {
        let known = dice.between(1, context - 1);
        let produced = known > 1 && dice.chance(0.7);
        let computed = if produced { known - 1 } else { dice.between(0, known - 1) };
        let blocks = limits.blocks_for(if produced { computed } else { known + 1 });
        if blocks > situation.blocks_free {
            continue;
        }
        situation.blocks_free -= blocks;
        let outbox_full = produced && dice.chance(0.2);
        let next = (!produced && dice.chance(0.5)).then_some(request as u64);
        let own = blocks - dice.between(0, blocks.saturating_sub(1));
        let request = RequestId(request as u64);
        situation.running.push(RunningView {
            request,
            known,
            computed,
            blocks,
            own,
            next,
            produced,
            outbox_full,
        });
    }
    let preempted = dice.between(0, 3);
    for index in 0..dice.between(0, 12) {
        let known = dice.between(1, context - 1);
        let blocks = dice.between(0, (known - 1) / limits.block_tokens);
        let look = Look {
            blocks,
            idle: dice.between(0, blocks).min(situation.blocks_free),
            next: dice.chance(0.5).then(|| dice.between(0, 8) as u64),
        };
        situation.waiting.push(WaitingView {
            request: RequestId(100 + index as u64),
            known,
            look,
            preempted: index < preempted,
            rank: index as i8 / 3,
            headroom: if index < preempted { dice.between(0, 8) } else { 0 },
            bypassed: dice.between(0, limits.bypass_max),
            outbox_full: index < preempted && dice.chance(0.3),
        });
    }
    situation
}
