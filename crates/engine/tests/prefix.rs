//! The prefix cache over real forward passes: on a small random model of every family, an answer whose beginning was found has
//! the very bits of one that was computed anew.

use std::sync::Arc;

use engine::{CpuExecutor, Engine, Handle, Limits, Outputs, Progress};
use kernels::{KvDtype, Precision};
use ledger::{Miss, RequestId};
use models::families::FAMILIES;
use models::testing::{Random, tiny_model};
use models::{KvCache, LoadOptions, Model};
use protocol::{Output, Sampling, Submission, Terms, TokenId, TokenLogprob};

const ANSWER: usize = 20;
const BLOCK_TOKENS: usize = 16;
/// Longer than what is rounded wide from.
const STEM: usize = 100;

struct House {
    engine: Engine<CpuExecutor>,
    handle: Handle,
    asked: u64,
}

/// What one request got.
#[derive(Debug, PartialEq)]
struct Answer {
    tokens: Vec<TokenLogprob>,
    cached: usize,
    miss: Option<Miss>,
}

impl House {
    fn new(architecture: &str, precision: Precision, prefix_caching: bool) -> House {
        let kind = format!("{architecture}-{precision:?}-{prefix_caching}");
        let name = format!("firstlight-prefix-{}-{kind}.gguf", std::process::id());
        let path = std::env::temp_dir().join(name);
        tiny_model(architecture).build().write(&path);
        let options = LoadOptions { precision, threads: 1, ..LoadOptions::default() };
        let model = Model::load(&path, &options).expect("a tiny model is a valid one");
        std::fs::remove_file(&path).expect("it was just written");
        let mut limits = Limits::new(64, 256, model.config().vocabulary);
        (limits.prefix_caching, limits.prefill_chunk_max) = (prefix_caching, 37);
        let kv = KvCache::new(model.config(), KvDtype::F32, BLOCK_TOKENS, limits.blocks);
        let clock = Arc::new(ledger::now_ns);
        let (engine, handle) = Engine::new(CpuExecutor::new(model, kv), limits, clock).expect("sound limits");
        House { engine, handle, asked: 0 }
    }

    fn ask(&mut self, prompt: &[TokenId], salt: Option<&str>) -> Outputs {
        self.asked += 1;
        let sampling = Sampling {
            temperature: 0.0,
            max_tokens: Some(ANSWER),
            logprobs: Some(1),
            ignore_eos: true,
            ..Sampling::default()
        };
        let submission = Submission {
            request: RequestId(self.asked),
            choice: 0,
            prompt: prompt.into(),
            cache_salt: salt.map(Arc::from),
            terms: Terms::default(),
            sampling,
            eog: Arc::new([]),
        };
        self.handle.submit(submission).expect("it is taken on")
    }

    fn settle(&mut self) {
        while self.engine.step() == Progress::Worked {
            self.engine.check_blocks().expect("no block is lost");
        }
    }

    fn answer(&mut self, prompt: &[TokenId], salt: Option<&str>) -> Answer {
        let outputs = self.ask(prompt, salt);
        self.settle();
        read(outputs)
    }
}

fn read(mut outputs: Outputs) -> Answer {
    let mut answer = Answer { tokens: Vec::new(), cached: 0, miss: None };
    while let Some(output) = outputs.try_recv() {
        let Output::Token { logprob, cached_tokens, miss, .. } = output else { panic!("{output:?}") };
        if answer.tokens.is_empty() {
            (answer.cached, answer.miss) = (cached_tokens, miss);
        }
        answer.tokens.push(logprob.expect("it was asked for"));
    }
    assert_eq!(answer.tokens.len(), ANSWER);
    answer
}

/// A common beginning and an end of its own.
fn prompts(random: &mut Random, vocabulary: usize, stem: usize, count: usize) -> Vec<Vec<TokenId>> {
    let mut tokens =
        |count| -> Vec<TokenId> { (0..count).map(|_| TokenId(random.below(vocabulary) as u32)).collect() };
    let stem = tokens(stem);
    (0..count).map(|index| [stem.clone(), tokens(3 + 9 * index)].concat()).collect()
}

fn check(architecture: &str, precision: Precision) {
    let mut random = Random(21);
    let mut anew = House::new(architecture, precision, false);
    let mut house = House::new(architecture, precision, true);
    let vocabulary = house.handle.limits().vocabulary;
    for stem in [STEM, 20] {
        let prompts = prompts(&mut random, vocabulary, stem, 4);
        let expected: Vec<Answer> = prompts.iter().map(|prompt| anew.answer(prompt, None)).collect();
        assert!(expected.iter().all(|answer| (answer.cached, answer.miss) == (0, None)), "there is no cache");
        for (index, (prompt, expected)) in prompts.iter().zip(&expected).enumerate() {
            let answer = house.answer(prompt, None);
            let what = format!("{architecture} {precision:?}, stem of {stem}, prompt {index}");
            assert_eq!(answer.tokens, expected.tokens, "{what}");
            let whole = stem / BLOCK_TOKENS * BLOCK_TOKENS;
            assert_eq!(answer.cached, if index == 0 { 0 } else { whole }, "{what}");
            assert_eq!(house.answer(prompt, None).tokens, expected.tokens, "{what}, again");
            // Under another salt it is another prompt.
            assert_eq!(
                house.answer(prompt, Some(&what)),
                Answer { miss: Some(Miss::NeverSeen { from: 0 }), ..answer_of(expected) }
            );
        }
    }
}

fn answer_of(answer: &Answer) -> Answer {
    Answer { tokens: answer.tokens.clone(), ..*answer }
}

#[test]
fn a_hit_gives_the_same_answer_as_a_miss_in_every_family() {
    for family in &FAMILIES {
        for precision in [Precision::Exact, Precision::Fast] {
            check(family.architecture, precision);
        }
    }
}

#[test]
fn requests_that_come_together_compute_their_common_beginning_once() {
    for family in &FAMILIES {
        let mut random = Random(22);
        let mut anew = House::new(family.architecture, Precision::Fast, false);
        let mut house = House::new(family.architecture, Precision::Fast, true);
        let prompts = prompts(&mut random, house.handle.limits().vocabulary, STEM, 4);
        let outputs: Vec<Outputs> = prompts.iter().map(|prompt| house.ask(prompt, None)).collect();
        house.settle();
        for (index, (prompt, outputs)) in prompts.iter().zip(outputs).enumerate() {
            let answer = read(outputs);
            assert_eq!(answer.tokens, anew.answer(prompt, None).tokens, "{}", family.architecture);
            assert_eq!(answer.cached, if index == 0 { 0 } else { STEM / BLOCK_TOKENS * BLOCK_TOKENS });
        }
    }
}

/// F61: lengths around whole blocks, each twice, then each as the beginning of a longer one.
#[test]
fn every_length_around_whole_blocks_is_found_again_but_for_its_last_token() {
    for architecture in ["llama", "gemma3"] {
        let mut random = Random(24);
        let mut anew = House::new(architecture, Precision::Fast, false);
        let mut house = House::new(architecture, Precision::Fast, true);
        let vocabulary = house.handle.limits().vocabulary;
        for length in (1..=5 * BLOCK_TOKENS + 1).filter(|length| (length + 1) % BLOCK_TOKENS < 3) {
            // Nothing but its own first turn is found: prompts differ in their first token's block.
            let longer = prompts(&mut random, vocabulary, length + 7, 1).remove(0);
            let prompt = &longer[..length];
            let expected = anew.answer(prompt, None).tokens;
            let found = |length: usize| (length - 1) / BLOCK_TOKENS * BLOCK_TOKENS;
            for (turn, cached) in [0, found(length)].into_iter().enumerate() {
                let answer = house.answer(prompt, None);
                assert_eq!(answer.tokens, expected, "{architecture}, {length} tokens, turn {turn}");
                assert_eq!(answer.cached, cached, "{architecture}, {length} tokens, turn {turn}");
            }
            let answer = house.answer(&longer, None);
            assert_eq!(answer.tokens, anew.answer(&longer, None).tokens, "{architecture}, {length} and 7");
            assert_eq!(answer.cached, length / BLOCK_TOKENS * BLOCK_TOKENS, "{architecture}, {length} and 7");
        }
    }
}

/// With an exact path the next turn of a conversation is the same, too, where it goes on from what was generated.
#[test]
fn a_conversation_goes_on_from_its_own_answers() {
    for family in &FAMILIES {
        let mut random = Random(23);
        let mut anew = House::new(family.architecture, Precision::Exact, false);
        let mut house = House::new(family.architecture, Precision::Exact, true);
        let vocabulary = house.handle.limits().vocabulary;
        let mut talk = prompts(&mut random, vocabulary, 70, 1).remove(0);
        for turn in 0..5 {
            let answer = house.answer(&talk, None);
            assert_eq!(answer.tokens, anew.answer(&talk, None).tokens, "{} turn {turn}", family.architecture);
            // All but what does not fill a block, and the last token, whose keys and values nobody needed.
            let before = talk.len() - 10 - 1;
            assert!(
                turn == 0 || answer.cached == before / BLOCK_TOKENS * BLOCK_TOKENS,
                "{answer:?} of {}",
                talk.len()
            );
            talk.extend(answer.tokens.iter().map(|token| token.chosen.token));
            talk.extend((0..10).map(|_| TokenId(random.below(vocabulary) as u32)));
        }
    }
}
