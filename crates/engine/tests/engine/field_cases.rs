//! Faults that bit users of other servers, at the engine's level. The numbers are those of the project's list.

use engine::simulate::Dice;
use ledger::{Cause, Stage};
use protocol::{Finish, RefusalKind, Sampling, TokenId};

use crate::harness::{Client, House, expected, greedy, limits, prompt, submission};

/// F35: a seeded request in a mixed batch (vllm-project/vllm#51226, ggml-org/llama.cpp#7381).
#[test]
fn f35_a_seeded_request_is_the_same_in_any_company() {
    let seeded = |seed| Sampling {
        temperature: 0.8,
        max_tokens: Some(32),
        ignore_eos: true,
        seed: Some(seed),
        ..Sampling::default()
    };
    let run = |neighbours: u64, chunk: usize, seed: u64| {
        let mut limits = limits();
        limits.prefill_chunk_max = chunk;
        let mut house = House::new(limits);
        let mut others: Vec<Client> = (0..neighbours)
            .map(|other| {
                let sampling = Sampling {
                    temperature: 1.5,
                    top_p: 0.5 + other as f32 / 80.0,
                    top_k: Some(3 + other as u32),
                    max_tokens: Some(20),
                    ignore_eos: true,
                    ..Sampling::default()
                };
                house.submit(submission(100 + other, prompt(100 + other, 10 + other as usize), sampling))
            })
            .collect();
        house.steps(neighbours as usize % 5);
        let mut client = house.submit(submission(1, prompt(1, 50), seeded(seed)));
        house.settle();
        others.iter_mut().for_each(|other| drop(other.answer()));
        house.assert_empty();
        client.answer()
    };
    let alone = run(0, 32, 42);
    for (neighbours, chunk) in [(1, 32), (7, 32), (31, 32), (0, 5), (7, 1), (31, 9)] {
        assert_eq!(run(neighbours, chunk, 42), alone, "{neighbours} neighbours, chunks of {chunk}");
    }
    assert_ne!(run(0, 32, 43), alone);
    let unseeded = || {
        let mut house = House::new(limits());
        let mut client = house.submit(submission(1, prompt(1, 50), Sampling { seed: None, ..seeded(0) }));
        house.settle();
        client.answer()
    };
    assert_ne!(unseeded(), unseeded());
}

/// F36: greedy answers under load (ollama/ollama#5636, vllm-project/vllm#12621).
#[test]
fn f36_greedy_answers_do_not_depend_on_load() {
    let lengths: Vec<usize> = (0..32).map(|request| 3 + request * 7 % 60).collect();
    let alone: Vec<Vec<TokenId>> = (0..32)
        .map(|request| {
            let mut house = House::new(limits());
            let mut client = house.ask(request, lengths[request as usize], 24);
            house.settle();
            client.answer()
        })
        .collect();
    for (request, answer) in alone.iter().enumerate() {
        assert_eq!(*answer, expected(&prompt(request as u64, lengths[request]), 24));
    }
    for (seed, blocks) in [(1, 128), (2, 128), (3, 40)] {
        let mut dice = Dice::new(seed);
        let mut limits = limits();
        limits.blocks = blocks;
        let mut house = House::new(limits);
        let mut order: Vec<u64> = (0..32).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, dice.between(0, last));
        }
        let mut clients: Vec<(u64, Client)> = Vec::new();
        for request in order {
            clients.push((request, house.ask(request, lengths[request as usize], 24)));
            let gone = house.ask(1000 + request, 20, 24);
            house.steps(dice.between(0, 2));
            drop(gone);
        }
        house.settle();
        for (request, client) in &mut clients {
            assert_eq!(client.answer(), alone[*request as usize], "request {request} with {blocks} blocks");
        }
        house.assert_empty();
    }
}

/// F49: disconnect during prefill (ikawrakow/ik_llama.cpp#1020, ggml-org/llama.cpp#24496).
#[test]
fn f49_a_client_that_leaves_during_prefill_stops_the_work_within_a_step() {
    let mut house = House::new(limits());
    let client = house.ask(1, 900, 10);
    house.steps(3);
    assert_eq!(house.handle.state().running, 1);
    let computed: usize =
        house.handle.steps(9).iter().flat_map(|step| &step.members).map(|it| it.prefill_tokens).sum();
    assert_eq!(computed, 96);
    drop(client);
    assert_eq!(house.handle.state().running, 0, "the count is right at once");
    house.steps(1);
    house.assert_empty();
    assert_eq!(house.handle.state().steps, 3, "no step was executed for the one that left");
}

/// F50: dead clients in the queue (ggml-org/llama.cpp#13262).
#[test]
fn f50_clients_that_left_the_queue_are_never_computed() {
    let mut limits = limits();
    limits.max_num_seqs = 2;
    let mut house = House::new(limits);
    let mut first = [house.ask(1, 10, 30), house.ask(2, 10, 30)];
    house.steps(2);
    let mut queued: Vec<Client> = (10..30).map(|request| house.ask(request, 10, 5)).collect();
    house.steps(1);
    assert_eq!(house.handle.state().waiting, 20);
    let mut living = queued.swap_remove(7);
    drop(queued);
    assert_eq!(house.handle.state().waiting, 1, "the gauge is right at once");
    house.settle();
    living.answer();
    first.iter_mut().for_each(|client| drop(client.answer()));
    let steps = house.handle.steps(1000);
    let computed: usize = steps.iter().flat_map(|step| &step.members).map(|it| it.prefill_tokens).sum();
    assert_eq!(computed, 30, "three prompts of 10 tokens");
    house.assert_empty();
}

/// F52: a request that can never fit (vllm-project/vllm#39734).
#[test]
fn f52_what_can_never_fit_is_refused_at_once_and_what_fills_the_pool_ends() {
    let mut limits = limits();
    limits.max_model_len = 8192;
    assert_eq!(limits.pool_tokens(), 1024);
    let mut house = House::new(limits.clone());
    for (length, fits) in [(1500, false), (1024, false), (1023, true)] {
        match house.handle.submit(submission(1, prompt(1, length), greedy(5))) {
            Ok(_) => assert!(fits, "{length} tokens were taken on"),
            Err(refusal) => {
                assert!(!fits);
                assert_eq!(refusal.kind, RefusalKind::ContextLength);
                assert!(refusal.message.contains(&length.to_string()), "{refusal}");
                assert!(refusal.message.contains("1024"), "{refusal}");
            }
        }
    }
    let mut long = house.ask(2, 900, 500);
    let mut small: Vec<Client> = (3..8).map(|request| house.ask(request, 10, 10)).collect();
    let mut small_done = None;
    for step in 0..2000 {
        house.steps(1);
        long.read();
        if small_done.is_none() && small.iter_mut().all(|client| client.read().finish.is_some()) {
            small_done = Some(step);
        }
    }
    let seen = long.read();
    assert_eq!(seen.finish, Some(Finish::Length));
    assert_eq!(seen.tokens, expected(&prompt(2, 900), 124), "until the pool is full");
    assert!(small_done.is_some_and(|step| step < 60), "the small ones were done after {small_done:?} steps");
    house.assert_empty();

    limits.max_model_len = 100;
    let house = House::new(limits);
    let refusal = house.handle.submit(submission(1, prompt(1, 100), greedy(5))).err().unwrap();
    assert_eq!(refusal.kind, RefusalKind::ContextLength);
    assert!(
        refusal.message.contains("prompt has 100") && refusal.message.contains("context is 100"),
        "{refusal}"
    );
}

/// F53: head of line under KV pressure (vllm-project/vllm#31731, #25538).
#[test]
fn f53_small_prompts_pass_a_big_one_within_a_bound_and_it_is_served_too() {
    let mut limits = limits();
    limits.bypass_max = 8;
    limits.max_model_len = 1000;
    let mut house = House::new(limits);
    let mut holders: Vec<Client> = (1..=2).map(|request| house.ask(request, 250, 90)).collect();
    house.steps(20);
    let mut big = house.ask(50, 800, 5);
    house.steps(1);
    let mut small: Vec<Client> = (100..120).map(|request| house.ask(request, 10, 10)).collect();
    for _ in 0..400 {
        house.steps(1);
        holders.iter_mut().chain([&mut big]).chain(&mut small).for_each(|client| drop(client.read().clone()));
    }
    let admitted = |client: &mut Client| {
        client.answer();
        let segments = client.read().timelines[0].segments();
        segments.iter().find(|segment| segment.stage == Stage::Prefill).unwrap().since
    };
    let big_admitted = admitted(&mut big);
    let passed =
        small.iter_mut().filter_map(|client| (admitted(client) < big_admitted).then_some(())).count();
    assert_eq!(passed, 8, "as many as may pass do");
    let causes: Vec<Cause> = big.read().timelines[0]
        .segments()
        .iter()
        .filter(|segment| segment.stage == Stage::Queue)
        .filter_map(|segment| segment.cause.clone())
        .collect();
    let names_holders = causes.iter().any(|cause| match cause {
        Cause::NoFreeBlocks { needed, free, holders } => {
            needed > free
                && holders.contains(&ledger::RequestId(1))
                && holders.contains(&ledger::RequestId(2))
        }
        _ => false,
    });
    assert!(names_holders, "it waited for blocks that 1 and 2 held: {causes:?}");
    let behind = small.iter_mut().flat_map(|client| client.read().timelines[0].segments().to_vec());
    let behind =
        behind.filter(|it| matches!(it.cause, Some(Cause::Behind { next: ledger::RequestId(50), .. })));
    assert_eq!(behind.count(), 12, "the others waited behind it");
}

/// F53, second half: resume and preempt by turns (vllm-project/vllm#25538).
#[test]
fn f53_nobody_is_preempted_twice_without_a_token_in_between() {
    let mut limits = limits();
    limits.blocks = 12;
    limits.growth_blocks = 0;
    let mut house = House::new(limits);
    let mut clients: Vec<Client> = (1..=6).map(|request| house.ask(request, 12, 60)).collect();
    house.settle();
    let mut preemptions = 0;
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer(), expected(&prompt(index as u64 + 1, 12), 60));
        for timeline in &client.read().timelines {
            // One visit to `preempted` may have several causes one after the other.
            let stages: Vec<Stage> = timeline.segments().iter().map(|segment| segment.stage).collect();
            let visits =
                stages.windows(2).filter(|pair| pair[1] == Stage::Preempted && pair[0] != pair[1]).count();
            assert!(visits <= 1, "{timeline:?}");
            preemptions += visits;
        }
    }
    assert!(preemptions > 3, "{preemptions} preemptions");
    house.assert_empty();
}

/// F56: drain (vllm-project/vllm#24885).
#[test]
fn f56_a_drain_finishes_what_is_there_and_takes_nothing_new() {
    let mut limits = limits();
    limits.max_num_seqs = 8;
    let mut house = House::new(limits);
    let mut clients: Vec<Client> = (0..12).map(|request| house.ask(request, 10, 20)).collect();
    house.steps(3);
    house.handle.drain();
    let state = house.handle.state();
    assert!(state.draining && state.running == 8 && state.waiting == 4, "{state:?}");
    let refusal = house.handle.submit(submission(99, prompt(9, 9), greedy(1))).err().unwrap();
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    assert!(refusal.retry_after.is_some());
    house.settle();
    assert!(clients.iter_mut().all(|client| client.answer().len() == 20));
    house.assert_empty();
}

/// F57: overload says so (vllm-project/vllm#49445).
#[test]
fn f57_surplus_is_refused_with_a_time_to_come_back() {
    let mut limits = limits();
    limits.queue_max = 32;
    let mut house = House::new(limits);
    let mut clients = Vec::new();
    let mut refused = 0;
    for request in 0..500 {
        match house.handle.submit(submission(request, prompt(request, 5), greedy(3))) {
            Ok(outputs) => clients.push(outputs),
            Err(refusal) => {
                assert_eq!(refusal.kind, RefusalKind::Unavailable);
                assert!(refusal.retry_after.is_some_and(|wait| wait.as_secs() >= 1));
                assert!(refusal.message.contains("32"), "{refusal}");
                refused += 1;
            }
        }
    }
    assert_eq!((clients.len(), refused), (32, 468));
    house.settle();
    house.assert_empty();
}
