//! A sequence's logits are the same bits whatever it is batched with, however its prompt is cut, wherever its blocks lie
//! and however many threads compute.

use kernels::{Isa, Precision};
use ledger::{Part, Parts};
use models::families::FAMILIES;
use models::testing::{Random, tiny_model};
use models::{Batch, KvCache, Model};

use crate::{BLOCK_TOKENS, BLOCKS, PROMPT, cache, exact, load, logits_alone, shuffle, tokens};

/// A sequence on its way through random batches.
struct Walk {
    tokens: Vec<u32>,
    done: usize,
    blocks: Vec<u32>,
    /// The logits at every position, from a pass over the whole sequence alone.
    expected: Vec<Vec<f32>>,
}

fn walks(random: &mut Random, model: &mut Model, count: usize) -> Vec<Walk> {
    let mut free: Vec<u32> = (0..BLOCKS as u32).collect();
    shuffle(random, &mut free);
    let mut walk = |_| {
        let length = 1 + random.below(90);
        let tokens = tokens(random, model, length);
        let blocks = free.split_off(free.len() - tokens.len().div_ceil(BLOCK_TOKENS));
        let expected = logits_alone(model, &tokens);
        Walk { tokens, done: 0, blocks, expected }
    };
    (0..count).map(&mut walk).collect()
}

/// Runs the walks to their end in random batches of random chunks, and compares every row that a batch returns.
fn check(random: &mut Random, model: &mut Model, walks: &mut [Walk]) {
    let mut kv = cache(model);
    while walks.iter().any(|walk| walk.done < walk.tokens.len()) {
        let (batch, wanted) = random_batch(random, walks);
        let logits = model.forward(&batch, &mut kv, &mut Parts::default());
        assert_eq!(logits.rows, wanted.len());
        for (row, (walk, position)) in wanted.into_iter().enumerate() {
            let same = logits.row(row) == walks[walk].expected[position];
            assert!(same, "sequence {walk} of {} differs at position {position}", walks[walk].tokens.len());
        }
    }
}

/// Some of the walks, each with one to thirty of its next tokens, in random order; logits of random rows, as (walk, position).
fn random_batch(random: &mut Random, walks: &mut [Walk]) -> (Batch, Vec<(usize, usize)>) {
    let mut order: Vec<usize> = (0..walks.len()).collect();
    shuffle(random, &mut order);
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    for index in order {
        let walk = &mut walks[index];
        let left = walk.tokens.len() - walk.done;
        if left == 0 || random.below(3) == 0 {
            continue;
        }
        let chunk = if random.below(2) == 0 { 1 } else { 1 + random.below(left.min(30)) };
        batch.push(&walk.tokens[walk.done..walk.done + chunk], walk.done, PROMPT, &walk.blocks, false);
        rows.extend((walk.done..walk.done + chunk).map(|position| (index, position)));
        walk.done += chunk;
    }
    let mut wanted: Vec<usize> = (0..rows.len()).filter(|_| random.below(3) == 0).collect();
    if random.below(4) == 0 {
        shuffle(random, &mut wanted);
    }
    let asked = wanted.iter().map(|row| rows[*row]).collect();
    batch.logit_rows = wanted;
    (batch, asked)
}

#[test]
fn batching_chunking_and_block_order_change_no_bit() {
    for family in &FAMILIES {
        for isa in Isa::available() {
            for precision in [Precision::Exact, Precision::Fast] {
                let mut random = Random(11);
                let mut model = load(&tiny_model(family.architecture), isa, precision, 2);
                for _ in 0..3 {
                    let mut walks = walks(&mut random, &mut model, 6);
                    check(&mut random, &mut model, &mut walks);
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for family in &FAMILIES {
        for precision in [Precision::Exact, Precision::Fast] {
            let run = |threads: usize| {
                let mut model = load(&tiny_model(family.architecture), Isa::best(), precision, threads);
                let tokens = tokens(&mut Random(3), &model, 80);
                logits_alone(&mut model, &tokens)
            };
            let one = run(1);
            for threads in [2, 3, 5] {
                assert!(run(threads) == one, "{} with {threads} threads", family.architecture);
            }
        }
    }
}

#[test]
fn a_copied_block_continues_like_the_original() {
    let mut model = exact(&tiny_model("gemma3"));
    let tokens = tokens(&mut Random(5), &model, 24);
    let expected = logits_alone(&mut model, &tokens);
    let mut kv = cache(&model);
    let mut batch = Batch::default();
    batch.push(&tokens[..20], 0, PROMPT, &[7, 3], false);
    model.forward(&batch, &mut kv, &mut Parts::default());
    kv.copy_block(3, 9);
    // The original goes another way, which must not reach the copy.
    let mut batch = Batch::default();
    batch.push(&[1, 2, 3], 20, PROMPT, &[7, 3], true);
    batch.push(&tokens[20..], 20, PROMPT, &[7, 9], true);
    let logits = model.forward(&batch, &mut kv, &mut Parts::default());
    assert!(logits.row(1) == expected[23]);
    assert!(logits.row(0) != expected[22]);
}

#[test]
fn a_batch_that_wants_no_logits_returns_none_and_still_writes_its_positions() {
    let mut model = exact(&tiny_model("qwen2"));
    let tokens = tokens(&mut Random(9), &model, 17);
    let expected = logits_alone(&mut model, &tokens);
    let mut kv = cache(&model);
    for (position, token) in tokens.iter().enumerate() {
        let mut batch = Batch::default();
        batch.push(&[*token], position, PROMPT, &[1, 0], position == 16);
        let logits = model.forward(&batch, &mut kv, &mut Parts::default());
        match position {
            16 => assert!(logits.row(0) == expected[16]),
            _ => assert_eq!((logits.rows, logits.values.len()), (0, 0)),
        }
    }
}

#[test]
fn the_parts_of_a_pass_add_up_to_the_pass() {
    let mut model = exact(&tiny_model("llama"));
    let mut batch = Batch::default();
    batch.push(&tokens(&mut Random(1), &model, 200), 0, PROMPT, &(0..13).collect::<Vec<u32>>(), true);
    let mut kv = cache(&model);
    let mut parts = Parts::default();
    let started = std::time::Instant::now();
    model.forward(&batch, &mut kv, &mut parts);
    let whole = started.elapsed().as_nanos() as u64;
    for part in
        [Part::Embedding, Part::Norm, Part::Projections, Part::Attention, Part::FeedForward, Part::Head]
    {
        assert!(parts.ns(part) > 0, "{} took no time", part.name());
    }
    assert!(parts.total_ns() <= whole);
    // What lies between is the check of the batch and the two calls: far less than the pass.
    assert!(parts.total_ns() * 2 > whole, "{} of {whole} ns are accounted for", parts.total_ns());
}

/// Runs one sequence that breaks the batch's invariant.
fn run_broken(break_it: impl FnOnce(&mut Batch)) {
    let mut model = exact(&tiny_model("llama"));
    let mut kv = KvCache::new(model.config(), kernels::KvDtype::F16, 16, 4);
    let mut batch = Batch::default();
    batch.push(&[1, 2, 3], 0, PROMPT, &[0], true);
    break_it(&mut batch);
    model.forward(&batch, &mut kv, &mut Parts::default());
}

#[test]
#[should_panic(expected = "a token id beyond the vocabulary of 80")]
fn a_token_beyond_the_vocabulary_panics() {
    run_broken(|batch| batch.tokens[1] = 80);
}

#[test]
#[should_panic(expected = "17 positions in 16 that have blocks")]
fn a_block_table_that_is_too_short_panics() {
    run_broken(|batch| batch.sequences[0].first_position = 14);
}

#[test]
#[should_panic(expected = "a block beyond the 4 of the cache")]
fn a_block_beyond_the_cache_panics() {
    run_broken(|batch| batch.sequences[0].blocks[0] = 4);
}

#[test]
#[should_panic(expected = "257 positions in a context of 256")]
fn a_position_beyond_the_context_panics() {
    run_broken(|batch| {
        batch.sequences[0].first_position = 254;
        batch.sequences[0].blocks = vec![0; 17];
    });
}

#[test]
#[should_panic(expected = "sequences cover all rows")]
fn a_row_of_no_sequence_panics() {
    run_broken(|batch| batch.tokens.push(1));
}

#[test]
#[should_panic(expected = "logits wanted of a row that is not there")]
fn logits_of_a_row_that_is_not_there_panic() {
    run_broken(|batch| batch.logit_rows.push(3));
}
