//! What calls say, and on what they depend.

use std::collections::HashSet;
use std::sync::Arc;

use load::adapter::Endpoint;
use load::schedule::{Call, CallId, Prompt, Said};
use load::workload::{Material, Setting, Summary, Totals};
use proptest::prelude::*;

use crate::merging::Merging;
use crate::support::{build, calls, setting, text};

const SPECS: [&str; 5] = [
    "synthetic:in=lognormal(30,0.5,4..90),out=uniform(16..128)",
    "prefix:groups=4,prefix=30,in=uniform(3..20),out=32",
    "sessions:sessions=7,turns=5,in=uniform(3..20),out=64,together=3",
    "sessions:sessions=3,turns=4,in=5,out=64,system=10",
    "agents:workflows=5,fan=3,context=20,in=uniform(3..9),out=64,together=2",
];

fn settings(seed: u64) -> [Setting; 2] {
    let exact = Material::Exact(Arc::new(Merging::new()));
    [setting(seed), Setting { material: exact, ..setting(seed) }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_call_is_the_same_whenever_and_in_whatever_order_it_is_asked_for(seed: u64, ids in prop::collection::vec(0..40_u64, 12)) {
        for spec in SPECS {
            for setting in settings(seed) {
                let (one, other) = (build(spec, &setting), build(spec, &setting));
                for id in &ids {
                    prop_assert_eq!(one.call(CallId(*id)), other.call(CallId(*id)));
                }
                let id = CallId(ids[0] % 12);
                prop_assert_eq!(one.call(id), build(spec, &setting).call(id));
                prop_assert!(one.call(id).is_some());
            }
        }
    }

    #[test]
    fn calls_depend_only_on_earlier_ones_and_wait_for_every_answer_they_hold(seed: u64) {
        for spec in SPECS {
            let workload = build(spec, &setting(seed));
            let made = calls(&*workload, 60);
            if let Some(len) = workload.len() {
                prop_assert_eq!(made.len() as u64, len);
                prop_assert_eq!(workload.call(CallId(len)), None);
                prop_assert_eq!(workload.call(CallId(u64::MAX)), None);
            }
            for (at, call) in made.iter().enumerate() {
                prop_assert_eq!(call.id, CallId(at as u64));
                let awaited = awaited(&made, call);
                prop_assert!(call.after.iter().all(|after| after < &call.id));
                for answer in answers(call) {
                    prop_assert!(awaited.contains(&answer), "{:?} holds {answer:?}", call.id);
                    prop_assert_eq!(made[answer.0 as usize].session, call.session);
                }
            }
        }
    }
}

/// All calls that have ended when this one may be sent.
fn awaited(made: &[Call], call: &Call) -> HashSet<CallId> {
    call.after
        .iter()
        .flat_map(|after| awaited(made, &made[after.0 as usize]).into_iter().chain([*after]))
        .collect()
}

fn messages(call: &Call) -> &[Said] {
    match &call.prompt {
        Prompt::Chat(messages) => messages,
        other => panic!("not a chat: {other:?}"),
    }
}

fn answers(call: &Call) -> Vec<CallId> {
    messages(call)
        .iter()
        .filter_map(|said| match said {
            Said::Answer(id) => Some(*id),
            Said::Message { .. } => None,
        })
        .collect()
}

#[test]
fn another_seed_gives_other_calls() {
    for spec in SPECS {
        let (one, other) = (build(spec, &setting(1)), build(spec, &setting(2)));
        for id in 0..10 {
            assert_ne!(
                one.call(CallId(id)).unwrap().prompt,
                other.call(CallId(id)).unwrap().prompt,
                "{spec}"
            );
        }
    }
}

/// The calls are those of this generator and seed; a change here means that schedules of earlier runs cannot be sent again.
#[test]
fn the_calls_of_a_seed_stay_as_they_were() {
    let call =
        build("synthetic:in=uniform(4..8),out=uniform(16..128)", &setting(42)).call(CallId(7)).unwrap();
    assert_eq!((text(&call), call.max_tokens), ("say this past port", 23));
}

/// F82, aws-samples/sample-apj-sup-sa#181: 16,449 answers came from 12 prompts.
#[test]
fn a_thousand_prompts_are_a_thousand_different_ones() {
    let totals = Summary::of(&*build("synthetic:in=200,out=64", &setting(1)), 1000).totals();
    let expected = Totals {
        calls: 1000,
        distinct_prompts: 1000,
        prompt_tokens: 0,
        prompt_tokens_known: 0,
        answer_tokens_max: 64_000,
        dependent: 0,
    };
    assert_eq!(totals, expected);
    // Also where three words are all there is to differ in, and behind a shared prefix.
    for spec in ["synthetic:in=3,out=1", "prefix:groups=2,prefix=5,in=3,out=1"] {
        assert_eq!(
            Summary::of(&*build(spec, &setting(1)), 50_000).totals().distinct_prompts,
            50_000,
            "{spec}"
        );
    }
}

#[test]
fn prompts_that_cannot_all_differ_are_counted_as_they_are() {
    let totals = Summary::of(&*build("synthetic:in=1,out=1", &setting(1)), 5000).totals();
    assert_eq!((totals.calls, totals.distinct_prompts), (5000, 745));
}

#[test]
fn neighbours_share_not_even_their_first_word() {
    let made = calls(&*build("synthetic:in=20,out=1", &setting(9)), 500);
    let first: HashSet<&str> = made.iter().map(|call| text(call).split(' ').next().unwrap()).collect();
    assert_eq!(first.len(), 500);
}

#[test]
fn without_a_tokenizer_a_length_is_in_words_and_not_claimed_to_be_in_tokens() {
    let workload = build("synthetic:in=37,out=1", &setting(1));
    for call in calls(&*workload, 20) {
        assert_eq!((text(&call).split(' ').count(), call.prompt_tokens), (37, None));
    }
    assert_eq!(workload.describe(), "synthetic:in=37,out=1 (words, about a token each)");
}

#[test]
fn a_vocabulary_size_gives_token_ids_away_from_its_ends() {
    let ids = Setting {
        endpoint: Endpoint::Completions,
        material: Material::Ids { vocabulary: 32_000 },
        ..setting(1)
    };
    let workload = build("prefix:groups=2,prefix=100,in=10,out=1", &ids);
    let mut prefixes = HashSet::new();
    for call in calls(&*workload, 100) {
        let Prompt::Tokens(ids) = &call.prompt else { panic!("not token ids") };
        assert_eq!((ids.len(), call.prompt_tokens), (110, Some(110)));
        assert!(ids.iter().all(|id| (2000..30_000).contains(id)));
        prefixes.insert(ids[..100].to_vec());
    }
    assert_eq!(prefixes.len(), 2);
    assert_eq!(Summary::of(&*workload, 1000).totals().distinct_prompts, 1000);
}

#[test]
fn prefix_groups_are_used_alike() {
    let made = calls(&*build("prefix:groups=4,prefix=30,in=5,out=32", &setting(3)), 4000);
    let mut counts = std::collections::HashMap::new();
    for call in &made {
        let words: Vec<&str> = text(call).split(' ').collect();
        assert_eq!(words.len(), 35);
        *counts.entry(words[..30].to_vec()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4);
    // Binomial: 1000 ± 27.
    assert!(counts.values().all(|count| (863..1137).contains(count)), "{:?}", counts.values());
}

#[test]
fn a_turn_is_the_turn_before_with_its_answer_and_a_new_message() {
    let (sessions, turns) = (7, 5);
    let workload = build("sessions:sessions=7,turns=5,in=6,out=64", &setting(3));
    let made = calls(&*workload, 100);
    assert_eq!(made.len(), 35);
    for turn in 0..turns {
        for session in 0..sessions {
            let id = turn * sessions + session;
            let call = &made[id];
            assert_eq!(call.session, Some(session as u64));
            let Some(before) = id.checked_sub(sessions) else {
                assert!(call.after.is_empty() && messages(call).len() == 1);
                continue;
            };
            assert_eq!(call.after, [CallId(before as u64)]);
            let mut expected = messages(&made[before]).to_vec();
            expected.push(Said::Answer(CallId(before as u64)));
            expected.push(messages(call).last().unwrap().clone());
            assert_eq!(messages(call), expected);
        }
    }
}

#[test]
fn conversations_of_a_wave_go_on_together_and_the_next_wave_comes_behind() {
    let made = calls(&*build("sessions:sessions=5,turns=2,in=6,out=64,together=2", &setting(3)), 100);
    let sessions: Vec<u64> = made.iter().map(|call| call.session.unwrap()).collect();
    assert_eq!(sessions, [0, 1, 0, 1, 2, 3, 2, 3, 4, 4]);
    let after: Vec<Option<u64>> = made.iter().map(|call| call.after.first().map(|id| id.0)).collect();
    let expected = [None, None, Some(0), Some(1), None, None, Some(4), Some(5), None, Some(8)];
    assert_eq!(after, expected);
}

#[test]
fn conversations_share_the_system_message_and_nothing_else() {
    let made = calls(&*build("sessions:sessions=20,turns=2,in=6,out=64,system=30", &setting(3)), 40);
    let mut said = HashSet::new();
    for call in &made {
        let Said::Message { role, content } = &messages(call)[0] else { panic!("no message first") };
        assert_eq!(&**role, "system");
        said.insert(Arc::clone(content));
    }
    assert_eq!(said.len(), 1);
    let first: HashSet<String> = made[..20].iter().map(|call| format!("{:?}", messages(call)[1])).collect();
    assert_eq!(first.len(), 20);
}

#[test]
fn a_workflow_plans_then_fans_out_from_the_plan_then_joins_all_answers() {
    let workload = build("agents:workflows=3,fan=4,context=50,in=6,out=64,together=2", &setting(3));
    let made = calls(&*workload, 100);
    let sessions: Vec<u64> = made.iter().map(|call| call.session.unwrap()).collect();
    assert_eq!(sessions, [0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 2, 2, 2, 2, 2, 2]);

    for (plan, workers, join) in [(0, 2..6, 10), (1, 6..10, 11), (12, 13..17, 17)] {
        let workers: Vec<CallId> = workers.map(CallId).collect();
        let (plan, join) = (&made[plan], &made[join]);
        assert!(plan.after.is_empty());
        assert_eq!(text(plan).split(' ').count(), 56);
        for id in &workers {
            let worker = &made[id.0 as usize];
            assert_eq!(worker.after, [plan.id]);
            assert_eq!(messages(worker).len(), 3);
            assert_eq!(messages(worker)[0], messages(plan)[0]);
            assert_eq!(answers(worker), [plan.id]);
        }
        assert_eq!(join.after, workers);
        assert_eq!(answers(join)[1..], workers);
        assert_eq!(messages(join)[..2], messages(&made[workers[0].0 as usize])[..2]);
        // User and assistant alternate, and the user has the last word.
        for (at, said) in messages(join).iter().enumerate() {
            let is_user = matches!(said, Said::Message { role, .. } if &**role == "user");
            assert_eq!(is_user, at % 2 == 0);
        }
        assert_eq!(messages(join).len(), 11);
    }
}

#[test]
fn workflows_share_no_context() {
    let made = calls(&*build("agents:workflows=30,fan=1,context=50,in=6,out=64", &setting(3)), 30);
    let first: HashSet<&str> = made.iter().map(|call| text(call).split(' ').next().unwrap()).collect();
    assert_eq!(first.len(), 30);
}

#[test]
fn prompt_lengths_of_another_distribution_leave_answer_lengths_as_they_were() {
    let limits = |spec| -> Vec<u32> {
        calls(&*build(spec, &setting(3)), 50).iter().map(|call| call.max_tokens).collect()
    };
    let out = limits("synthetic:in=10,out=uniform(16..128)");
    assert_eq!(out, limits("synthetic:in=lognormal(40,1),out=uniform(16..128)"));
}

#[test]
fn answers_go_on_to_their_limit_unless_that_is_switched_off() {
    let spec = "synthetic:in=10,out=5";
    assert!(build(spec, &setting(1)).call(CallId(0)).unwrap().ignore_eos);
    let off = Setting { ignore_eos: Some(false), ..setting(1) };
    assert!(!build(spec, &off).call(CallId(0)).unwrap().ignore_eos);
}

#[test]
fn a_summary_sums_what_is_known_and_says_over_how_many() {
    let [_, exact] = settings(1);
    let summary = Summary::of(&*build("sessions:sessions=4,turns=3,in=10,out=5", &exact), 100);
    let expected = Totals {
        calls: 12,
        distinct_prompts: 12,
        prompt_tokens: 40,
        prompt_tokens_known: 4,
        answer_tokens_max: 60,
        dependent: 8,
    };
    assert_eq!(summary.totals(), expected);
    assert_eq!(
        summary.totals().to_string(),
        "12 calls, 12 distinct prompts, 40 prompt tokens in the 4 calls where known, at most 60 answer tokens"
    );
}
