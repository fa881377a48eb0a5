use super::*;
use crate::simulate::Dice;

const PROMPT: [TokenId; 3] = [TokenId(1), TokenId(4), TokenId(4)];
const ANSWER: [TokenId; 4] = [TokenId(2), TokenId(4), TokenId(2), TokenId(7)];

fn row(seed: u64, vocabulary: usize) -> Vec<f32> {
    let mut dice = Dice::new(seed);
    (0..vocabulary).map(|_| (dice.number() >> 40) as f32 / (1 << 21) as f32 - 4.0).collect()
}

/// A sampler that has seen [`PROMPT`] and [`ANSWER`].
fn sampler(sampling: &Sampling) -> Sampler {
    let mut sampler = Sampler::new(sampling.clone(), Arc::new([TokenId(0)]), &PROMPT);
    for token in ANSWER {
        if let Some(seen) = &mut sampler.seen {
            *seen.entry(token).or_default() += 1;
        }
    }
    sampler
}

fn sample(sampling: &Sampling, logits: &[f32], position: usize) -> Result<Sampled, SampleError> {
    sampler(sampling).sample(&mut logits.to_vec(), position, ANSWER.len(), &mut Scratch::default())
}

fn token(sampling: &Sampling, logits: &[f32], position: usize) -> u32 {
    sample(sampling, logits, position).unwrap().token.0
}

/// Bias and penalties by their definitions, one token at a time.
fn plain_logits(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
    let adjusted = logits.iter().enumerate().map(|(index, logit)| {
        let token = TokenId(index as u32);
        let mut logit = f64::from(*logit);
        logit += sampling.logit_bias.iter().filter(|it| it.0 == token).map(|it| f64::from(it.1)).sum::<f64>();
        let count = ANSWER.iter().filter(|it| **it == token).count();
        if PROMPT.contains(&token) || count > 0 {
            let penalty = f64::from(sampling.repetition_penalty);
            logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
        }
        if count > 0 {
            logit -= f64::from(sampling.presence_penalty);
        }
        logit - f64::from(sampling.frequency_penalty) * count as f64
    });
    adjusted.collect()
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - best).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// The distribution that tokens are drawn from, by full sorts and renormalizing after every filter.
fn plain_distribution(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
    let mut logits = plain_logits(sampling, logits);
    if ANSWER.len() < sampling.min_tokens {
        for token in sampling.stop_token_ids.iter().chain(&[TokenId(0)]) {
            logits[token.index()] = f64::NEG_INFINITY;
        }
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    if sampling.is_greedy() {
        let best = order[0];
        return (0..logits.len()).map(|token| f64::from(token == best)).collect();
    }
    let scaled: Vec<f64> = logits.iter().map(|logit| logit / f64::from(sampling.temperature)).collect();
    let mut kept = order.len();
    if let Some(count) = sampling.top_k.filter(|count| *count > 0) {
        kept = kept.min(count as usize);
    }
    let distribution = |kept: usize| {
        let mut logits = vec![f64::NEG_INFINITY; scaled.len()];
        order[..kept].iter().for_each(|token| logits[*token] = scaled[*token]);
        softmax(&logits)
    };
    let probabilities = distribution(kept);
    let mut sum = 0.0;
    let reached = order[..kept].iter().position(|token| {
        sum += probabilities[*token];
        sum >= f64::from(sampling.top_p)
    });
    kept = reached.map_or(kept, |index| index + 1);
    let probabilities = distribution(kept);
    let floor = f64::from(sampling.min_p) * probabilities[order[0]];
    kept = order[..kept].iter().take_while(|token| probabilities[**token] >= floor).count();
    distribution(kept)
}

/// Draws at many positions and compares with the plain distribution; a forbidden token may not come up even once.
fn check(change: impl Fn(&mut Sampling)) {
    const DRAWS: usize = 8_000;
    for (seed, vocabulary) in [(1, 40), (2, 40), (3, 333)] {
        let mut sampling = Sampling { seed: Some(seed), ..Sampling::default() };
        change(&mut sampling);
        let logits = row(seed, vocabulary);
        let expected = plain_distribution(&sampling, &logits);
        let mut counts = vec![0usize; vocabulary];
        let mut scratch = Scratch::default();
        for position in 0..DRAWS {
            let mut fresh = sampler(&sampling);
            let sampled = fresh.sample(&mut logits.clone(), position, ANSWER.len(), &mut scratch).unwrap();
            counts[sampled.token.index()] += 1;
        }
        for (token, count) in counts.iter().enumerate() {
            let (share, wanted) = (*count as f64 / DRAWS as f64, expected[token]);
            // Five standard errors; a rare token's count is not normal, so a few draws more are no surprise.
            let rare = if wanted > 0.0 { 8.0 / DRAWS as f64 } else { 0.0 };
            let bound = 5.0 * (wanted * (1.0 - wanted) / DRAWS as f64).sqrt() + rare;
            assert!((share - wanted).abs() <= bound, "token {token}: {share}, not {wanted}: {sampling:?}");
        }
    }
}

#[test]
fn temperature_scales_logits() {
    for temperature in [0.3, 1.0, 2.5, 100.0] {
        check(|sampling| sampling.temperature = temperature);
    }
}

#[test]
fn top_k_keeps_that_many() {
    for count in [0, 1, 2, 7, 39, 40, 1_000_000] {
        check(|sampling| sampling.top_k = Some(count));
    }
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_it() {
    for share in [0.0, 1e-9, 0.2, 0.5, 0.9, 0.999, 1.0] {
        check(|sampling| sampling.top_p = share);
    }
}

#[test]
fn min_p_drops_what_is_much_less_probable_than_the_best() {
    for share in [0.0, 0.01, 0.2, 0.9, 1.0] {
        check(|sampling| sampling.min_p = share);
    }
}

#[test]
fn filters_apply_in_their_order_to_what_is_left() {
    check(|sampling| {
        *sampling = Sampling {
            temperature: 1.5,
            top_k: Some(12),
            top_p: 0.8,
            min_p: 0.1,
            seed: sampling.seed,
            ..Sampling::default()
        }
    });
}

#[test]
fn bias_and_penalties_shift_the_distribution() {
    check(|sampling| sampling.logit_bias = vec![(TokenId(3), 5.0), (TokenId(4), -100.0)]);
    check(|sampling| sampling.repetition_penalty = 1.7);
    check(|sampling| sampling.repetition_penalty = 0.5);
    check(|sampling| sampling.presence_penalty = 1.5);
    check(|sampling| sampling.frequency_penalty = -1.25);
    check(|sampling| {
        sampling.logit_bias = vec![(TokenId(2), 3.0), (TokenId(2), 1.0)];
        sampling.repetition_penalty = 1.3;
        sampling.presence_penalty = -0.5;
        sampling.frequency_penalty = 0.25;
        sampling.top_p = 0.9;
    });
}

#[test]
fn an_answer_cannot_end_before_its_minimum() {
    check(|sampling| {
        sampling.min_tokens = ANSWER.len() + 1;
        sampling.stop_token_ids = vec![TokenId(9)];
        sampling.logit_bias = vec![(TokenId(0), 20.0), (TokenId(9), 20.0)];
    });
    check(|sampling| {
        sampling.min_tokens = ANSWER.len();
        sampling.logit_bias = vec![(TokenId(0), 3.0)];
    });
    let everything =
        Sampling { min_tokens: 100, stop_token_ids: (0..40).map(TokenId).collect(), ..Sampling::default() };
    assert_eq!(sample(&everything, &row(1, 40), 0), Err(SampleError::NothingLeft));
}

#[test]
fn penalties_remember_what_was_sampled() {
    let logits = row(5, 40);
    let sampling = Sampling {
        temperature: 0.0,
        repetition_penalty: 1.1,
        presence_penalty: 0.3,
        frequency_penalty: 0.2,
        ..Sampling::default()
    };
    let mut sampler = Sampler::new(sampling, Arc::new([]), &PROMPT);
    let mut scratch = Scratch::default();
    let mut counts = [0usize; 40];
    for answer in 0..60 {
        let sampled = sampler.sample(&mut logits.clone(), 3 + answer, answer, &mut scratch).unwrap();
        let penalized = |token: usize| {
            let mut logit = f64::from(logits[token]);
            if counts[token] > 0 || PROMPT.contains(&TokenId(token as u32)) {
                let penalty = f64::from(1.1f32);
                logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
            logit - if counts[token] > 0 { 0.3 + 0.2 * counts[token] as f64 } else { 0.0 }
        };
        let best = (0..40).max_by(|a, b| penalized(*a).total_cmp(&penalized(*b))).unwrap();
        assert_eq!(sampled.token.index(), best, "after {answer} tokens");
        counts[best] += 1;
    }
    assert!(
        counts.iter().filter(|count| **count > 0).count() > 5,
        "penalties move the choice along: {counts:?}"
    );
}

#[test]
fn ties_go_to_the_lower_id() {
    let flat = vec![1.5f32; 1000];
    assert_eq!(token(&Sampling { temperature: 0.0, ..Sampling::default() }, &flat, 0), 0);
    for sampling in
        [Sampling { top_k: Some(10), ..Sampling::default() }, Sampling { top_p: 0.01, ..Sampling::default() }]
    {
        let drawn: Vec<u32> = (0..2000).map(|position| token(&sampling, &flat, position)).collect();
        assert_eq!(drawn.iter().max(), Some(&9), "{sampling:?}");
        assert_eq!(drawn.iter().min(), Some(&0), "{sampling:?}");
    }
}

#[test]
fn logprobs_are_of_the_distribution_after_penalties_and_before_temperature() {
    let sampling = Sampling {
        temperature: 3.0,
        top_k: Some(5),
        logprobs: Some(20),
        seed: Some(5),
        logit_bias: vec![(TokenId(6), 2.0)],
        repetition_penalty: 1.4,
        frequency_penalty: 0.5,
        ..Sampling::default()
    };
    let logits = row(11, 300);
    let expected: Vec<f64> = softmax(&plain_logits(&sampling, &logits)).iter().map(|p| p.ln()).collect();
    for position in 0..50 {
        let sampled = sample(&sampling, &logits, position).unwrap();
        let TokenLogprob { chosen, top } = sampled.logprob.unwrap();
        assert_eq!(chosen.token, sampled.token);
        assert_eq!(top.len(), 20);
        for entry in top.iter().chain([&chosen]) {
            let wanted = expected[entry.token.index()];
            assert!((f64::from(entry.logprob) - wanted).abs() < 1e-5, "{entry:?}, not {wanted}");
        }
        let mut best: Vec<usize> = (0..300).collect();
        best.sort_by(|a, b| expected[*b].total_cmp(&expected[*a]));
        assert!(top.iter().map(|entry| entry.token.index()).eq(best[..20].iter().copied()));
    }
}

#[test]
fn logprobs_are_never_positive_and_as_many_as_asked_for() {
    let mut certain = vec![-50.0f32; 64];
    certain[9] = 50.0;
    for count in [0, 1, 5] {
        let sampling = Sampling { temperature: 0.0, logprobs: Some(count), ..Sampling::default() };
        let logprob = sample(&sampling, &certain, 0).unwrap().logprob.unwrap();
        assert_eq!((logprob.chosen.token, logprob.top.len()), (TokenId(9), count));
        assert!(logprob.top.iter().chain([&logprob.chosen]).all(|entry| entry.logprob <= 0.0));
    }
    let none = Sampling { temperature: 0.0, ..Sampling::default() };
    assert_eq!(sample(&none, &certain, 0).unwrap().logprob, None);
}

/// vllm-project/vllm#33150 and others: one bad row must not take the server down.
#[test]
fn logits_that_are_not_numbers_are_a_typed_error() {
    for broken in [f32::NAN, f32::INFINITY] {
        for place in [0, 17, 39] {
            let mut logits = row(1, 40);
            logits[place] = broken;
            for temperature in [0.0, 1.0] {
                let sampling = Sampling { temperature, ..Sampling::default() };
                assert_eq!(sample(&sampling, &logits, 0), Err(SampleError::NotFinite), "{broken} at {place}");
            }
        }
    }
    let sampling = Sampling::default();
    assert_eq!(sample(&sampling, &[f32::NEG_INFINITY; 40], 0), Err(SampleError::NotFinite));
    let mut masked = vec![f32::NEG_INFINITY; 40];
    masked[21] = -3.0;
    for position in 0..100 {
        assert_eq!(token(&sampling, &masked, position), 21, "an impossible token is never drawn");
    }
}

/// Field case F38: ggml-org/llama.cpp#19367, huggingface/text-generation-inference#440, karpathy/nanoGPT#756.
#[test]
fn extreme_values_always_leave_a_token() {
    let logits: Vec<f32> = row(7, 500).iter().map(|logit| logit * 5.0).collect();
    let mut order: Vec<u32> = (0..500).collect();
    order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
    let bias: Vec<(TokenId, f32)> = order[..50].iter().map(|token| (TokenId(*token), -100.0)).collect();
    let mut combinations = 0;
    for temperature in [0.0, 1e-7, 1e-4, 2.0, 100.0] {
        for top_p in [0.0, 1e-9, 1.0] {
            for top_k in [None, Some(0), Some(1), Some(u32::MAX)] {
                for (min_p, penalty) in [(0.0, -2.0), (1.0, 2.0), (0.0, 2.0), (1.0, 0.0)] {
                    let sampling = Sampling {
                        temperature,
                        top_p,
                        top_k,
                        min_p,
                        presence_penalty: penalty,
                        frequency_penalty: penalty,
                        repetition_penalty: if penalty > 0.0 { 10.0 } else { 0.01 },
                        seed: Some(3),
                        logit_bias: bias.clone(),
                        ..Sampling::default()
                    };
                    sampling.validate(500).unwrap();
                    let drawn = token(&sampling, &logits, 9);
                    assert!(!order[..50].contains(&drawn), "{sampling:?}");
                    if temperature < 1e-3 || top_p < 1e-6 || top_k == Some(1) || min_p == 1.0 {
                        let greedy = Sampling { temperature: 0.0, ..sampling.clone() };
                        assert_eq!(drawn, token(&greedy, &logits, 9), "{sampling:?}");
                    }
                    combinations += 1;
                }
            }
        }
    }
    assert_eq!(combinations, 240);
    let hot = Sampling { temperature: Sampling::TEMPERATURE_MAX, seed: Some(1), ..Sampling::default() };
    let distinct: std::collections::HashSet<u32> =
        (0..50).map(|position| token(&hot, &logits, position)).collect();
    assert!(distinct.len() >= 45, "a huge temperature is nearly uniform, but only {} differ", distinct.len());
}

#[test]
fn values_outside_their_range_are_refused_by_name() {
    let wrong = [
        ("temperature", Sampling { temperature: 1e6, ..Sampling::default() }),
        ("temperature", Sampling { temperature: -1.0, ..Sampling::default() }),
        ("temperature", Sampling { temperature: f32::INFINITY, ..Sampling::default() }),
        ("temperature", Sampling { temperature: f32::NAN, ..Sampling::default() }),
        ("top_p", Sampling { top_p: 1.1, ..Sampling::default() }),
        ("top_p", Sampling { top_p: -1.0, ..Sampling::default() }),
        ("presence_penalty", Sampling { presence_penalty: 3.0, ..Sampling::default() }),
        ("repetition_penalty", Sampling { repetition_penalty: 0.0, ..Sampling::default() }),
    ];
    for (field, sampling) in wrong {
        assert_eq!(sampling.validate(100).unwrap_err().param.as_deref(), Some(field), "{sampling:?}");
    }
}

#[test]
fn a_draw_depends_on_seed_and_position_alone() {
    let logits = row(3, 400);
    let of = |seed: u64| {
        let sampling = Sampling { seed: Some(seed), ..Sampling::default() };
        let mut drawn: Vec<u32> = (0..64).map(|position| token(&sampling, &logits, position)).collect();
        let backwards: Vec<u32> = (0..64).rev().map(|position| token(&sampling, &logits, position)).collect();
        assert!(drawn.iter().eq(backwards.iter().rev()));
        drawn.truncate(32);
        drawn
    };
    assert_eq!(of(42), of(42));
    assert_ne!(of(42), of(43));
    let unseeded = || {
        let mut sampler = sampler(&Sampling::default());
        let mut scratch = Scratch::default();
        let mut drawn =
            |position| sampler.sample(&mut logits.clone(), position, 4, &mut scratch).unwrap().token;
        (0..32).map(&mut drawn).collect::<Vec<_>>()
    };
    assert_ne!(unseeded(), unseeded());
}

#[test]
fn padding_beyond_the_vocabulary_is_somebody_elses_to_cut_and_biases_there_are_ignored() {
    let sampling =
        Sampling { temperature: 0.0, logit_bias: vec![(TokenId(99), 100.0)], ..Sampling::default() };
    assert!(token(&sampling, &row(1, 40), 0) < 40);
}
