//! The engine on SmolLM2: a greedy answer does not depend on what else goes on (field case F36).
//!
//! Needs the model in the cache; without it the test says how to get it.

use std::sync::Arc;

use engine::simulate::Dice;
use engine::{CpuExecutor, Engine, Limits, Outputs, Progress};
use kernels::KvDtype;
use ledger::{RequestId, Stage};
use models::{KvCache, LoadOptions, Model};
use protocol::{Output, Sampling, Submission, Terms, TokenId, TokenLogprob};

const ANSWER: usize = 24;

/// Chats in SmolLM2's template, in its tokens.
const PROMPTS: [&[u32]; 8] = [
    // What is the capital of France?
    &[1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
    // Write a haiku about the sea.
    &[1, 4093, 198, 19161, 253, 421, 30614, 563, 260, 3426, 30, 2, 198, 1, 520, 9531, 198],
    // Explain in one sentence why the sky is blue.
    &[1, 4093, 198, 36971, 281, 582, 6330, 1701, 260, 6376, 314, 4461, 30, 2, 198, 1, 520, 9531, 198],
    // List three fruits.
    &[1, 4093, 198, 6106, 1296, 5574, 30, 2, 198, 1, 520, 9531, 198],
    // How do I reverse a list in Python?
    &[1, 4093, 198, 2020, 536, 339, 8535, 253, 1398, 281, 5905, 47, 2, 198, 1, 520, 9531, 198],
    // Tell me a short story about a fox and a crow who meet in the snow, and what they say to each other before the
    // evening comes.
    &[
        1, 4093, 198, 31530, 549, 253, 1890, 1977, 563, 253, 16438, 284, 253, 7467, 617, 2220, 281, 260,
        5806, 28, 284, 732, 502, 1643, 288, 971, 550, 1092, 260, 9053, 2216, 30, 2, 198, 1, 520, 9531, 198,
    ],
    // 2 + 2 =
    &[1, 4093, 198, 34, 1232, 216, 34, 446, 2, 198, 1, 520, 9531, 198],
    // Translate to French: The cat sleeps on the warm windowsill while it rains.
    &[
        1, 4093, 198, 8241, 12837, 288, 3432, 42, 378, 2644, 2801, 99, 335, 260, 3091, 8393, 388, 979, 357,
        19685, 30, 2, 198, 1, 520, 9531, 198,
    ],
];

fn model() -> Model {
    let path = catalogue::require("smollm2-135m-instruct");
    // One thread: on a busy machine threads that wait for each other make a small model many times slower.
    let options = LoadOptions { threads: 1, ..LoadOptions::default() };
    Model::load(&path, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// A step of the model takes real time; everything else is the test's.
struct House {
    engine: Engine<CpuExecutor>,
    handle: engine::Handle,
}

impl House {
    fn new(blocks: usize, change: impl FnOnce(&mut Limits)) -> Self {
        let model = model();
        let mut limits = Limits::new(blocks, 512, model.config().vocabulary);
        change(&mut limits);
        let kv = KvCache::new(model.config(), KvDtype::F16, limits.block_tokens, limits.blocks);
        let executor = CpuExecutor::new(model, kv);
        let (engine, handle) = Engine::new(executor, limits, Arc::new(ledger::now_ns)).expect("sound limits");
        House { engine, handle }
    }

    fn ask(&self, index: usize) -> Outputs {
        let submission = Submission {
            request: RequestId(index as u64),
            choice: 0,
            prompt: PROMPTS[index].iter().copied().map(TokenId).collect(),
            cache_salt: None,
            terms: Terms::default(),
            sampling: Sampling {
                temperature: 0.0,
                max_tokens: Some(ANSWER),
                logprobs: Some(2),
                // So that how long answers are, and with it who is preempted, is not up to the model.
                ignore_eos: true,
                ..Sampling::default()
            },
            eog: Arc::new([TokenId(2)]),
        };
        self.handle.submit(submission).expect("it is taken on")
    }

    fn settle(&mut self) {
        while self.engine.step() == Progress::Worked {
            self.engine.check_blocks().unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        let state = self.handle.state();
        assert!(state.is_idle() && state.blocks_free == state.blocks_total, "{state:?}");
    }
}

#[derive(Default)]
struct Answer {
    tokens: Vec<TokenLogprob>,
    preempted: bool,
}

fn answer(mut outputs: Outputs) -> Answer {
    let mut answer = Answer::default();
    let mut ended = false;
    while let Some(output) = outputs.try_recv() {
        let Output::Token { logprob, finish, timeline, .. } = output else { panic!("{output:?}") };
        answer.tokens.push(logprob.expect("it was asked for"));
        answer.preempted |= timeline.segments().iter().any(|segment| segment.stage == Stage::Preempted);
        ended = finish.is_some();
    }
    assert!(ended, "the answer has an end");
    answer
}

/// Compares with the answers given alone; where they differ, says how near the two best tokens were.
fn check(what: &str, alone: &[Answer], answers: &[Answer]) {
    let mut furthest = 0f32;
    for (index, (alone, other)) in alone.iter().zip(answers).enumerate() {
        for (position, (expected, got)) in alone.tokens.iter().zip(&other.tokens).enumerate() {
            let gap = expected.top[0].logprob - expected.top[1].logprob;
            assert_eq!(
                got.chosen.token, expected.chosen.token,
                "{what}: prompt {index}, token {position}; the two best lie {gap} apart"
            );
            furthest = furthest.max((got.chosen.logprob - expected.chosen.logprob).abs());
        }
        assert_eq!(alone.tokens.len(), other.tokens.len(), "{what}: prompt {index}");
    }
    println!("{what}: all answers equal; log-probabilities differ by at most {furthest:e}");
}

#[test]
fn greedy_answers_are_the_same_alone_together_preempted_and_among_cancelled_ones() {
    let mut house = House::new(256, |_| {});
    let alone: Vec<Answer> = (0..PROMPTS.len())
        .map(|index| {
            let outputs = house.ask(index);
            house.settle();
            answer(outputs)
        })
        .collect();
    assert!(alone.iter().all(|answer| answer.tokens.len() == ANSWER));

    let outputs: Vec<Outputs> = (0..PROMPTS.len()).map(|index| house.ask(index)).collect();
    house.settle();
    check("a batch of eight", &alone, &outputs.into_iter().map(answer).collect::<Vec<_>>());
    assert_eq!(house.handle.steps(1024).iter().map(|step| step.members.len()).max(), Some(8));

    let mut dice = Dice::new(36);
    let mut survivors = Vec::new();
    for index in 0..PROMPTS.len() {
        survivors.push(house.ask(index));
        let gone = house.ask(dice.between(0, PROMPTS.len() - 1));
        for _ in 0..dice.between(0, 3) {
            house.engine.step();
        }
        drop(gone);
    }
    house.settle();
    check("cancels in between", &alone, &survivors.into_iter().map(answer).collect::<Vec<_>>());

    let mut tiny = House::new(8, |limits| {
        (limits.growth_blocks, limits.prefill_chunk_max) = (0, 7);
        (limits.max_num_seqs, limits.max_num_batched_tokens) = (8, 20);
    });
    let outputs: Vec<Outputs> = (0..PROMPTS.len()).map(|index| tiny.ask(index)).collect();
    tiny.settle();
    let answers: Vec<Answer> = outputs.into_iter().map(answer).collect();
    assert!(answers.iter().filter(|answer| answer.preempted).count() >= 4, "a pool this small preempts");
    check("a tiny pool and small chunks", &alone, &answers);
}
