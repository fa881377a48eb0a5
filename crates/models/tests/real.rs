//! Real models: what batching, chunking and the order of blocks must not change, at real sizes and across Gemma's window.

use kernels::{Isa, KvDtype, Precision};
use ledger::Parts;
use models::testing::Random;
use models::{Batch, Gguf, Inspection, KvCache, LoadOptions, Model, Vocabulary};

const BLOCK_TOKENS: usize = 16;
/// Positions below this are a prompt's, which are rounded otherwise than generated ones.
const PROMPT: usize = 70;

fn load(name: &str) -> Model {
    let options =
        LoadOptions { isa: Some(Isa::best()), precision: Precision::Fast, threads: 2, progress: None };
    Model::load(&catalogue::require(name), &options)
        .unwrap_or_else(|error| panic!("cannot load {name}: {error}"))
}

/// Logits of the wanted positions (ascending), computed in chunks of the lengths that `cut` gives, beside a second sequence
/// if `beside` says so.
fn run(
    model: &mut Model,
    tokens: &[u32],
    wanted: &[usize],
    beside: bool,
    mut cut: impl FnMut(usize) -> usize,
) -> Vec<Vec<f32>> {
    let needed = tokens.len().div_ceil(BLOCK_TOKENS);
    // Blocks of both sequences interleave, and this one's run backwards.
    let blocks: Vec<u32> = (0..needed as u32).rev().map(|block| 2 * block + 1).collect();
    let others: Vec<u32> = (0..needed as u32).map(|block| 2 * block).collect();
    let mut kv = KvCache::new(model.config(), KvDtype::F16, BLOCK_TOKENS, 2 * needed);
    let (mut done, mut found) = (0, Vec::new());
    while done < tokens.len() {
        let chunk = cut(done).min(tokens.len() - done);
        let mut batch = Batch::default();
        if beside {
            batch.push(&tokens[tokens.len() - done - 1..][..1], done, PROMPT, &others, true);
        }
        let first_row = batch.tokens.len();
        batch.push(&tokens[done..done + chunk], done, PROMPT, &blocks, false);
        let rows = wanted.iter().filter(|position| (done..done + chunk).contains(position));
        batch.logit_rows.extend(rows.map(|position| first_row + position - done));
        let logits = model.forward(&batch, &mut kv, &mut Parts::default());
        found.extend((usize::from(beside)..logits.rows).map(|row| logits.row(row).to_vec()));
        done += chunk;
    }
    found
}

/// Whole, in random chunks beside another sequence, and decoding one by one from `decode_from` on: the same bits.
fn check(name: &str, length: usize, decode_from: usize) {
    let mut model = load(name);
    let mut random = Random(63);
    let tokens: Vec<u32> = (0..length).map(|_| random.below(model.config().vocabulary) as u32).collect();
    let wanted: Vec<usize> =
        (0..length).filter(|position| position % 37 == 0 || *position >= decode_from).collect();
    let whole = run(&mut model, &tokens, &wanted, false, |_| length);
    assert_eq!(whole.len(), wanted.len());
    let chunked = run(&mut model, &tokens, &wanted, true, |_| 1 + random.below(200));
    assert!(chunked == whole, "{name}: chunks change the result");
    let decoded = run(&mut model, &tokens, &wanted, false, |done| match done {
        0 => decode_from,
        _ => 1,
    });
    assert!(decoded == whole, "{name}: decoding differs from prefilling");
}

#[test]
fn smollm2_does_not_depend_on_batch_chunks_or_blocks() {
    check("smollm2-135m-instruct", 530, 500);
}

#[test]
fn gemma_does_not_depend_on_batch_chunks_or_blocks_across_its_window() {
    check("gemma-3-270m", 600, 500);
}

#[test]
fn gemma_prompts_around_its_window_equal_the_same_positions_of_a_longer_one() {
    let mut model = load("gemma-3-270m");
    let mut random = Random(62);
    let tokens: Vec<u32> = (0..1024).map(|_| random.below(model.config().vocabulary) as u32).collect();
    let lengths = [511, 512, 513, 1024];
    let wanted = lengths.map(|length| length - 1);
    let long = run(&mut model, &tokens, &wanted, false, |_| 300);
    for (length, expected) in lengths.into_iter().zip(long) {
        let alone = run(&mut model, &tokens[..length], &[length - 1], false, |_| length);
        assert!(alone[0] == expected, "a prompt of {length}");
    }
}

#[test]
fn the_real_files_are_what_their_makers_say() {
    let inspect = |name: &str| {
        let gguf = Gguf::open(&catalogue::require(name)).expect("the file is valid");
        let tokens = Vocabulary::read(gguf.metadata()).expect("the vocabulary is valid").tokens.len();
        (Inspection::of(&gguf).expect("the file is valid"), tokens)
    };
    let (smollm, tokens) = inspect("smollm2-135m-instruct");
    assert_eq!((smollm.parameters, tokens, smollm.has_chat_template), (134_515_008, 49_152, true));
    let sizes = smollm.sizes.expect("supported");
    assert_eq!((sizes.layers, sizes.kv_heads, sizes.head_dim, sizes.tied_head), (30, 3, 64, true));
    assert_eq!(sizes.kv_bytes_per_token, 30 * 2 * 3 * 64 * 2);
    assert_eq!(smollm.warnings, Vec::<String>::new());

    let (gemma, tokens) = inspect("gemma-3-270m");
    assert_eq!((gemma.parameters, tokens, gemma.has_chat_template), (268_098_176, 262_144, false));
    let sizes = gemma.sizes.expect("supported");
    let window = sizes.window.expect("it has a window");
    assert_eq!((window.tokens, window.layers), (512, 15));
    assert_eq!(sizes.kv_bytes_full_context, (15 * 512 + 3 * 32_768) * 2 * 256 * 2);

    let (qwen, tokens) = inspect("qwen2.5-coder-0.5b-instruct");
    assert_eq!((qwen.formats[0].format, qwen.formats[0].tensors, tokens), ("Q5_0", 133, 151_936));
    assert!(!qwen.sizes.expect("supported").tied_head);
}
