//! Prompts whose length in tokens is exact, with a tokenizer that merges across words.

use std::collections::HashSet;
use std::sync::Arc;

use load::adapter::Endpoint;
use load::schedule::{CallId, Prompt, Said};
use load::workload::{Material, Setting, Spec, Summary, TextTokens};

use crate::merging::Merging;
use crate::support::{build, calls, setting, text};

fn exact(seed: u64, endpoint: Endpoint) -> Setting {
    Setting { endpoint, material: Material::Exact(Arc::new(Merging::new())), ..setting(seed) }
}

/// Without this the other tests would show nothing.
#[test]
fn this_tokenizer_makes_counting_words_wrong() {
    let tokenizer = Merging::new();
    let apart = tokenizer.encode("ba ce").len() + tokenizer.encode(" do fo").len();
    assert_eq!((apart, tokenizer.encode("ba ce do fo").len()), (4, 3));
    assert_eq!(tokenizer.decode(&tokenizer.encode("ba ce do fo")), "ba ce do fo");
}

#[test]
fn prompts_have_exactly_the_wanted_tokens_although_words_merge() {
    let tokenizer = Merging::new();
    let mut merged = 0;
    for seed in 0..3 {
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            let workload = build("synthetic:in=uniform(1..120),out=8", &exact(seed, endpoint));
            for call in calls(&*workload, 150) {
                let tokens = tokenizer.encode(text(&call)).len();
                assert_eq!(Some(tokens as u32), call.prompt_tokens, "{:?}", call.id);
                merged += usize::from(tokens != text(&call).split(' ').count());
            }
        }
    }
    assert!(merged > 600, "words merged in only {merged} of 900 prompts");
}

#[test]
fn every_length_can_be_had() {
    let tokenizer = Merging::new();
    for tokens in (1..40).chain([400]) {
        let workload = build(&format!("synthetic:in={tokens},out=8"), &exact(1, Endpoint::Completions));
        for call in calls(&*workload, 8) {
            assert_eq!(tokenizer.encode(text(&call)).len(), tokens);
            assert_eq!(call.prompt_tokens, Some(tokens as u32));
        }
    }
}

#[test]
fn exact_prompts_differ() {
    let workload = build("synthetic:in=20,out=8", &exact(1, Endpoint::Chat));
    assert_eq!(Summary::of(&*workload, 1000).totals().distinct_prompts, 1000);
}

#[test]
fn a_shared_prefix_is_shared_token_by_token_and_both_lengths_hold() {
    let tokenizer = Merging::new();
    let workload = build("prefix:groups=3,prefix=40,in=uniform(1..30),out=8", &exact(5, Endpoint::Chat));
    let mut prefixes = HashSet::new();
    for call in calls(&*workload, 200) {
        let ids = tokenizer.encode(text(&call));
        assert_eq!(Some(ids.len() as u32), call.prompt_tokens);
        assert!((41..=70).contains(&ids.len()));
        prefixes.insert(ids[..40].to_vec());
    }
    assert_eq!(prefixes.len(), 3);
}

#[test]
fn the_first_turn_of_a_conversation_counts_the_tokens_of_its_messages() {
    let tokenizer = Merging::new();
    let spec = "sessions:sessions=4,turns=3,in=10,out=8,system=25";
    for call in calls(&*build(spec, &exact(5, Endpoint::Chat)), 12) {
        let Prompt::Chat(messages) = &call.prompt else { panic!("no chat") };
        let made = messages.iter().filter_map(|said| match said {
            Said::Message { content, .. } => Some(tokenizer.encode(content).len() as u32),
            Said::Answer(_) => None,
        });
        let turn = call.id.0 as u32 / 4;
        assert_eq!(made.sum::<u32>(), 25 + 10 * (turn + 1));
        assert_eq!(call.prompt_tokens, (turn == 0).then_some(35));
    }
}

/// A tokenizer that has two tokens for each of the other's.
struct Even(Merging);

impl TextTokens for Even {
    fn encode(&self, text: &str) -> Vec<u32> {
        self.0.encode(text).into_iter().flat_map(|id| [2 * id, 2 * id + 1]).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.0.decode(&ids.iter().filter(|id| **id % 2 == 0).map(|id| id / 2).collect::<Vec<_>>())
    }

    fn vocabulary(&self) -> usize {
        2 * self.0.vocabulary()
    }
}

/// Words cost one token behind another, but the beginning costs two, so that a length of one cannot be had.
struct Heavy(Merging);

impl TextTokens for Heavy {
    fn encode(&self, text: &str) -> Vec<u32> {
        std::iter::once(0).chain(self.0.encode(text)).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        self.0.decode(ids)
    }

    fn vocabulary(&self) -> usize {
        self.0.vocabulary()
    }
}

#[track_caller]
fn refuse(tokenizer: impl TextTokens + 'static, spec: &str, expected: &str) {
    let setting = Setting { material: Material::Exact(Arc::new(tokenizer)), ..setting(1) };
    let told = Spec::parse(spec).unwrap().build(&setting).err().unwrap().to_string();
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_length_that_cannot_be_had_is_refused_before_the_run() {
    refuse(
        Heavy(Merging::new()),
        "synthetic:in=1,out=8",
        "workload `synthetic:in=1,out=8`, call 0: no text of 1 tokens was found in 64 attempts; the last one has 2",
    );
    let heavy = Setting { material: Material::Exact(Arc::new(Heavy(Merging::new()))), ..setting(1) };
    let call = build("synthetic:in=7,out=8", &heavy).call(CallId(3)).unwrap();
    assert_eq!(call.prompt_tokens, Some(7));
}

#[test]
fn a_vocabulary_without_plain_words_is_refused() {
    refuse(Even(Merging::new()), "synthetic:in=8,out=8", "vocabulary has 0 plain words, too few");
}
