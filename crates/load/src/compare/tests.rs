use ledger::Stage;
use proptest::prelude::*;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::metrics::fixture::{account, closed, run, steady, timed_out};
use crate::schedule::Pacing;

/// Calls whose time varies a lot from call to call and is `shift` ms longer throughout, give or take a little.
fn noisy(shift: f64, seed: u64) -> Results {
    let mut hard = ChaCha12Rng::seed_from_u64(1);
    let mut jitter = ChaCha12Rng::seed_from_u64(seed);
    run((0..100)
        .map(|id| {
            let ttft = hard.random_range(100.0..2000.0) + shift + jitter.random_range(-5.0..5.0);
            steady(id, id as f64 * 100.0, ttft, 10.0, 5)
        })
        .collect())
}

fn of(comparison: &Comparison, metric: Metric) -> &MetricDifference {
    comparison.metrics.iter().find(|difference| difference.metric == metric).unwrap()
}

#[test]
fn pairing_sees_a_shift_that_is_small_beside_the_calls_own_differences() {
    let comparison = compare(&noisy(0.0, 2), &noisy(5.0, 3)).unwrap();
    let ttft = of(&comparison, Metric::Ttft);
    let difference = ttft.difference.as_ref().unwrap();
    assert_eq!((difference.pairs, ttft.better), (100, Better::A));
    let interval = difference.mean_interval.unwrap();
    assert!(interval.holds(5.0) && interval.low.0 > 3.0 && interval.high.0 < 7.0, "{interval:?}");
    assert!(difference.median_interval.unwrap().holds(5.0));
    assert!(difference.ratio_interval.unwrap().holds(difference.ratio.unwrap().0));
    // The gaps are the same: nothing is claimed of them.
    assert_eq!(of(&comparison, Metric::Tpot).better, Better::Unsure);
}

#[test]
fn two_runs_of_one_server_are_rarely_told_apart() {
    // A 95% interval leaves out zero once in twenty.
    let wrong = (0..100_u64)
        .filter(|&seed| {
            let comparison = compare(&noisy(0.0, 10 + seed), &noisy(0.0, 1000 + seed)).unwrap();
            of(&comparison, Metric::Ttft).better != Better::Unsure
        })
        .count();
    assert!(wrong <= 12, "{wrong} of 100");
}

#[test]
fn a_speed_is_better_where_it_is_larger() {
    let runs = [20.0, 10.0].map(|itl| run((0..20).map(|id| steady(id, id as f64, 50.0, itl, 5)).collect()));
    let comparison = compare(&runs[0], &runs[1]).unwrap();
    let speed = of(&comparison, Metric::OutputSpeed);
    assert_eq!((speed.better, speed.difference.as_ref().unwrap().ratio), (Better::B, Some(Real(2.0))));
    assert_eq!(of(&comparison, Metric::Itl).better, Better::B);
    assert_eq!(of(&comparison, Metric::DecodeSpeed).difference, None);
}

#[test]
fn other_schedules_are_refused_with_what_differs() {
    let calls = || (0..20).map(|id| steady(id, id as f64, 50.0, 10.0, 5)).collect::<Vec<_>>();
    let base = closed(4, calls());
    let refused = |change: &dyn Fn(&mut Results)| {
        let mut other = base.clone();
        change(&mut other);
        compare(&base, &other).unwrap_err()
    };
    assert!(refused(&|run| run.seed = 7).contains("seed: 1 and 7"));
    assert!(refused(&|run| run.workload = "another".to_owned()).contains("workload"));
    assert!(refused(&|run| run.pacing = Pacing::Closed { users: 8, think_ms: 0.0 }).contains("pacing"));
    assert!(refused(&|run| run.target.stream = false).contains("stream"));
    let renamed = refused(&|run| run.samples.iter_mut().for_each(|sample| sample.body = "x".to_owned()));
    assert!(renamed.contains("20 calls were sent different bodies"), "{renamed}");
    assert!(compare(&base, &base).is_ok());
}

#[test]
fn what_is_not_paired_is_counted() {
    let mut a = run((0..30).map(|id| steady(id, id as f64, 50.0, 10.0, 5)).collect());
    let mut b = a.clone();
    a.samples[0] = timed_out(0, 0.0);
    a.samples[0].body = b.samples[0].body.clone();
    b.samples[1] = Sample { body: a.samples[1].body.clone(), ..timed_out(1, 1.0) };
    b.samples[2].body = "another".to_owned();
    b.samples[3].outcome = Outcome::InFlight;
    b.samples[4] = steady(4, 4.0, 50.0, 10.0, 9);
    b.samples.remove(5);
    let comparison = compare(&a, &b).unwrap();
    let expected = Pairing {
        pairs: 25,
        only_a: 1,
        bodies_differ: 1,
        failed_a: 1,
        failed_b: 1,
        in_flight: 1,
        lengths_differ: 1,
        ..Pairing::default()
    };
    assert_eq!(comparison.pairing, expected);
    assert_eq!(comparison.notes.len(), 7, "{:?}", comparison.notes);
}

#[test]
fn stages_are_compared_where_both_show_them() {
    let told = |queue: f64, tokenize: bool| {
        let calls = (0..20).map(|id| {
            let mut first = vec![(Stage::Queue, queue), (Stage::Prefill, 40.0)];
            if tokenize {
                first.push((Stage::Tokenize, 2.0));
            }
            account(steady(id, id as f64, 200.0, 10.0, 5), &first, &[(Stage::Decode, 36.0)])
        });
        run(calls.collect())
    };
    let comparison = compare(&told(100.0, true), &told(30.0, false)).unwrap();
    let stage = |place| comparison.stages.iter().find(|stage| stage.place == place).unwrap();
    let Shown::Both { difference } = &stage(Place::Stage(Stage::Queue)).shown else { panic!() };
    assert_eq!((difference.mean, difference.ratio), (Real(-70.0), Some(Real(0.3))));
    assert_eq!(stage(Place::Stage(Stage::Tokenize)).shown, Shown::OnlyA { mean_ms: Real(2.0) });
    let Shown::Both { difference } = &stage(Place::Stage(Stage::Decode)).shown else { panic!() };
    assert_eq!(difference.mean_a, Real(9.0)); // 36 ms over 4 tokens
    // What b does not show of the same 200 ms is in what is unseen of it.
    let Shown::Both { difference } = &stage(Place::Unseen).shown else { panic!() };
    assert_eq!(difference.mean, Real(72.0));
    let json = serde_json::to_string(&comparison).unwrap();
    assert!(serde_json::from_str::<Comparison>(&json).is_ok(), "{json}");
}

#[test]
fn opaque_servers_have_no_stages_to_compare() {
    let comparison = compare(&noisy(0.0, 1), &noisy(0.0, 2)).unwrap();
    assert!(comparison.stages.is_empty());
    assert!(comparison.notes.iter().any(|note| note.contains("shows no stages")));
}

#[test]
fn the_calls_that_differ_most_come_first() {
    let a = run((0..30).map(|id| steady(id, id as f64, 50.0, 10.0, 5)).collect());
    let mut b = a.clone();
    b.samples[17] = steady(17, 17.0, 5000.0, 10.0, 5);
    b.samples[3] = steady(3, 3.0, 20.0, 10.0, 5);
    b.window.to_ns = a.window.to_ns;
    let most = compare(&a, &b).unwrap().most;
    assert_eq!((most.len(), most[0].call, most[1].call), (MOST, CallId(17), CallId(3)));
    assert_eq!((most[0].e2e_a_ms, most[0].e2e_b_ms), (Real(90.0), Real(5040.0)));
}

proptest! {
    #[test]
    fn exchanging_the_sides_changes_the_sign(values in prop::collection::vec((1.0..1e3f64, 1.0..1e3f64), 1..60)) {
        let turned: Vec<(f64, f64)> = values.iter().map(|(a, b)| (*b, *a)).collect();
        let (there, back) = (difference(&values, 1).unwrap(), difference(&turned, 1).unwrap());
        prop_assert!((there.mean.0 + back.mean.0).abs() < 1e-9);
        prop_assert!((there.ratio.unwrap().0 * back.ratio.unwrap().0 - 1.0).abs() < 1e-9);
    }
}
