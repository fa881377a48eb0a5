use proptest::prelude::*;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};

use super::*;
use crate::metrics::fixture;

/// A search against a server of which each trial passes with the probability that `pass` gives for the load.
struct Simulated {
    low: Option<f64>,
    high: Option<f64>,
    load: Option<f64>,
    stopped: Stopped,
    trials: usize,
}

fn simulate(plan: &Plan, seed: u64, pass: impl Fn(f64) -> f64) -> Simulated {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut tried: BTreeMap<Level, Tally> = BTreeMap::new();
    let mut trials = 0;
    loop {
        match next(plan, &tried, 0.0) {
            Next::Trial(level) => {
                trials += 1;
                let passes = rng.random_range(0.0..1.0) < pass(plan.unit.load(level));
                let verdict = if passes { Verdict::Pass } else { Verdict::Fail };
                tried.entry(level).or_default().add(&verdict);
            }
            Next::Done(stopped) => {
                let load = |level: Option<Level>| level.map(|level| plan.unit.load(level));
                let (low, high) = interval(&tried);
                return Simulated {
                    low: load(low),
                    high: load(high),
                    load: load(bracket(plan, &tried).0),
                    stopped,
                    trials,
                };
            }
        }
    }
}

/// Falls from 1 to 0 around `at`; the larger `steep`, the less noise.
fn soft_step(at: f64, steep: f64) -> impl Fn(f64) -> f64 {
    move |load| 1.0 / (1.0 + (load / at).powf(steep))
}

#[test]
fn a_server_without_noise_is_found_to_the_user() {
    for limit in [1.0, 2.0, 7.0, 13.0, 64.0, 100.0] {
        let plan = Plan { resolution: 0.0, ..Plan::new(LoadUnit::Users) };
        let found = simulate(&plan, 1, |load| if load <= limit { 1.0 } else { 0.0 });
        assert_eq!((found.load, found.stopped), (Some(limit), Stopped::Found));
        assert_eq!((found.low, found.high), (Some(limit), Some(limit + 1.0)));
        assert!(found.trials <= 2 * 14 + 8, "{} trials", found.trials);
    }
}

#[test]
fn qps_is_found_to_its_resolution() {
    let found = simulate(&Plan::new(LoadUnit::Qps), 1, |load| if load <= 3.7 { 1.0 } else { 0.0 });
    let load = found.load.unwrap();
    assert!((3.7 / 1.06..=3.7).contains(&load), "{load}");
    let slow = simulate(&Plan::new(LoadUnit::Qps), 1, |load| if load <= 0.05 { 1.0 } else { 0.0 });
    assert!((0.046..=0.05).contains(&slow.load.unwrap()), "{:?}", slow.load);
}

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    for steep in [4.0, 10.0, 40.0] {
        let searches = 300;
        let (mut held, mut within, mut bounded) = (0, 0, 0);
        for seed in 0..searches {
            let found = simulate(&Plan::new(LoadUnit::Users), seed, soft_step(50.0, steep));
            let (low, high) = (found.low.unwrap_or(0.0), found.high.unwrap_or(f64::INFINITY));
            held += u64::from(low <= 50.0 && 50.0 <= high);
            within += u64::from(found.load.is_some_and(|load| low <= load && load <= high));
            bounded += u64::from(found.low.is_some() && found.high.is_some());
        }
        // 95% of 300 is 285; the ends are chosen after looking, which costs a little.
        assert!(held >= 270, "steepness {steep}: {held} of {searches} hold the truth");
        assert!(within >= 285, "steepness {steep}: {within} of {searches} hold their own answer");
        assert!(bounded >= 270, "steepness {steep}: {bounded} of {searches} are bounded");
    }
}

#[test]
fn the_answer_of_a_noisy_server_is_close_to_where_half_of_its_trials_pass() {
    let mut errors: Vec<f64> = (0..200)
        .map(|seed| {
            let found = simulate(&Plan::new(LoadUnit::Users), seed, soft_step(50.0, 20.0));
            (found.load.unwrap() / 50.0).ln().abs()
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors[100] < 0.08 && errors[190] < 0.25, "median {} p95 {}", errors[100], errors[190]);
}

#[test]
fn bounds_are_said_to_be_bounds() {
    let plan = Plan { max: 32.0, ..Plan::new(LoadUnit::Users) };
    let fast = simulate(&plan, 1, |_| 1.0);
    assert_eq!((fast.load, fast.stopped, fast.high), (Some(32.0), Stopped::AtMax, None));
    let slow = simulate(&plan, 1, |_| 0.0);
    assert_eq!((slow.load, slow.stopped, slow.low), (None, Stopped::BelowMin, None));
    let short = Plan { trials_max: 3, ..Plan::new(LoadUnit::Users) };
    assert_eq!(simulate(&short, 1, |_| 1.0).stopped, Stopped::TrialsSpent);
    assert_eq!(next(&plan, &BTreeMap::new(), 1e9), Next::Done(Stopped::TimeSpent));
}

#[test]
fn shares_are_pooled_until_they_fall() {
    let tally = |passes, fails| Tally { passes, fails, ..Tally::default() };
    let tried = BTreeMap::from([(1, tally(2, 0)), (2, tally(1, 3)), (4, tally(3, 1)), (8, tally(0, 2))]);
    assert_eq!(pass_shares(&tried), [(1, 1.0), (2, 0.5), (4, 0.5), (8, 0.0)]);
    assert_eq!(bracket(&Plan::new(LoadUnit::Users), &tried), (Some(1), Some(2)));
}

/// An M/M/1 server of 20 calls a second: the time to first token is exponential with rate 20 minus the load, so that its
/// 95th percentile is 500 ms at 20 - 2 ln 20 = 14.01 calls a second.
fn queue(load: f64, calls: u64, seed: u64) -> Results {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let wait = Exp::new((20.0 - load).max(0.05)).unwrap();
    let samples = (0..calls).map(|id| {
        let ttft: f64 = wait.sample(&mut rng);
        fixture::steady(id, id as f64 * 1000.0 / load, ttft * 1000.0, 10.0, 3)
    });
    fixture::run(samples.collect())
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn slo() -> Slo {
    "ttft_p95<500ms,errors<1%".parse().unwrap()
}

#[test]
fn a_queue_is_found_at_its_closed_form() {
    let truth = 20.0 - 2.0 * 20_f64.ln();
    let mut held = 0;
    for search in 0..20_u64 {
        let mut seed = search * 1000;
        let answer = block(run(&Plan::new(LoadUnit::Qps), &slo(), async |load, _| {
            seed += 1;
            Ok(queue(load, 400, seed))
        }))
        .unwrap();
        assert_eq!(answer.stopped, Stopped::Found);
        assert_eq!(answer.binding.as_deref(), Some("ttft_p95<500ms"));
        let load = answer.load.unwrap().0;
        assert!((load / truth - 1.0).abs() < 0.15, "{load} for {truth}");
        held += u32::from(answer.low.unwrap().0 <= truth && truth <= answer.high.unwrap().0);
        let read: Answer = serde_json::from_str(&serde_json::to_string(&answer).unwrap()).unwrap();
        assert_eq!(
            (read.load, read.stopped, read.levels.len()),
            (answer.load, answer.stopped, answer.levels.len())
        );
    }
    assert!(held >= 17, "{held} of 20 intervals hold {truth}");
}

#[test]
fn void_trials_are_repeated_and_then_bound_the_search() {
    let mut voids = 0;
    let answer = block(run(&Plan::new(LoadUnit::Qps), &slo(), async |load, attempt| {
        let mut results = queue(1.0, 100, (load * 100.0) as u64 + attempt as u64);
        // The client lags once at 2/s, which a repetition mends, and always above 4/s.
        if (load == 2.0 && attempt == 0) || load > 4.0 {
            voids += 1;
            results.health.void.push("the generator lagged by 20 ms".to_owned());
        }
        Ok(results)
    }))
    .unwrap();
    assert_eq!(answer.stopped, Stopped::ClientLimit);
    let load = answer.load.unwrap().0;
    assert!((3.8..=4.0).contains(&load), "{load}");
    assert!(answer.caveat.as_ref().unwrap().contains("the client could not carry"));
    let two = answer.levels.iter().find(|level| level.load.0 == 2.0).unwrap();
    assert_eq!((two.tally.voids, two.tally.passes), (1, 2));
    assert!(two.reasons[0].contains("lagged"));
    assert!(voids > 3);
}

#[test]
fn trials_too_short_for_a_percentile_end_the_search_with_that_reason() {
    let slo: Slo = "ttft_p99<500ms".parse().unwrap();
    let answer =
        block(run(&Plan::new(LoadUnit::Users), &slo, async |_, attempt| Ok(queue(1.0, 40, attempt as u64))))
            .unwrap();
    assert_eq!((answer.stopped, answer.load), (Stopped::TooFewSamples, None));
    assert!(answer.levels[0].reasons[0].contains("p99 needs 100 values"), "{:?}", answer.levels[0].reasons);
}

proptest! {
    #[test]
    fn every_search_ends_within_its_trials(
        seed in 0..10_000_u64, at in 0.001..10_000.0f64, steep in 0.1..50.0f64, users in any::<bool>()
    ) {
        let plan = Plan::new(if users { LoadUnit::Users } else { LoadUnit::Qps });
        let found = simulate(&plan, seed, soft_step(at, steep));
        prop_assert!(found.trials <= plan.trials_max);
        if let (Some(low), Some(high)) = (found.low, found.high) {
            prop_assert!(low < high || steep < 3.0, "{low} {high}");
        }
    }
}
