use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, LogNormal};

use super::*;
use crate::stats::bootstrap::resample;
use crate::stats::exact;

const MEAN: Statistic = Statistic::Mean;

fn p(percent: f64) -> Statistic {
    Statistic::Percentile(percent)
}

fn interval(pool: &Pool, statistic: Statistic) -> Option<Interval> {
    Calls::of(pool).interval(statistic)
}

fn exponential(random: &mut ChaCha12Rng) -> f64 {
    Exp1.sample(random)
}

/// Of median 1; its mean is `exp(0.5)`, and its skewness 6.
fn log_normal(random: &mut ChaCha12Rng) -> f64 {
    LogNormal::new(0.0, 1.0).unwrap().sample(random)
}

/// Calls of `sizes` gaps, each of which is the call's own exponential time plus one of its own.
fn calls(random: &mut ChaCha12Rng, count: usize, sizes: std::ops::Range<usize>) -> Vec<Vec<f64>> {
    let call = |random: &mut ChaCha12Rng| {
        let (size, slow) = (random.random_range(sizes.clone()), exponential(random));
        (0..size).map(|_| slow + exponential(random)).collect()
    };
    (0..count).map(|_| call(random)).collect()
}

/// What resampling calls gives, gap by gap: slow, and beyond doubt.
fn resampled(calls: &[Vec<f64>], statistic: Statistic) -> Interval {
    resample(calls.len(), 1, Over::Calls, |picked| {
        let mut values: Vec<f64> = picked.iter().flat_map(|&call| calls[call].iter().copied()).collect();
        values.sort_by(f64::total_cmp);
        exact(&values, statistic)
    })
}

/// Both ends lie where resampling puts them, within a quarter of the interval's width.
#[track_caller]
fn check_agrees(calls: &[Vec<f64>], statistic: Statistic) {
    let (found, expected) =
        (interval(&Pool::new(calls.to_vec()), statistic).unwrap(), resampled(calls, statistic));
    let tolerance = (expected.high.0 - expected.low.0) / 4.0;
    assert!((found.low.0 - expected.low.0).abs() < tolerance, "{statistic}: {found:?}, not {expected:?}");
    assert!((found.high.0 - expected.high.0).abs() < tolerance, "{statistic}: {found:?}, not {expected:?}");
}

#[test]
fn intervals_are_those_of_resampling_on_skewed_values() {
    let mut random = ChaCha12Rng::seed_from_u64(1);
    for draw in [exponential, log_normal] {
        let single: Vec<Vec<f64>> = (0..2_000).map(|_| vec![draw(&mut random)]).collect();
        for statistic in [MEAN, p(5.0), p(50.0), p(90.0), p(95.0), p(99.0)] {
            check_agrees(&single, statistic);
        }
    }
    let several = calls(&mut random, 400, 1..40);
    for statistic in [MEAN, p(50.0), p(90.0), p(95.0), p(99.0)] {
        check_agrees(&several, statistic);
    }
}

/// Of 1,000 intervals, so many hold the truth. 950 should; chance moves that by 7, and 3 times 7 is allowed for.
#[track_caller]
fn check_holds(
    statistic: Statistic,
    truth: f64,
    expected: std::ops::Range<usize>,
    draw: impl Fn(&mut ChaCha12Rng) -> Vec<Vec<f64>>,
) {
    let held = (0..1_000)
        .filter(|&seed| {
            let pool = Pool::new(draw(&mut ChaCha12Rng::seed_from_u64(seed)));
            interval(&pool, statistic).unwrap().holds(truth)
        })
        .count();
    println!("{statistic} {held}");
    assert!(expected.contains(&held), "{statistic}: {held} of 1000 hold {truth}");
}

#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let single = |count: usize, draw: fn(&mut ChaCha12Rng) -> f64| {
        move |random: &mut ChaCha12Rng| (0..count).map(|_| vec![draw(random)]).collect()
    };
    for (percent, count, expected) in [
        (50.0, 10, 958..1_000),
        (50.0, 100, 929..990),
        (95.0, 72, 929..990),
        (95.0, 1_000, 929..990),
        (99.0, 1_000, 929..990),
    ] {
        // Exact whatever the distribution; ranks being whole numbers, few values are held too often rather than too seldom.
        check_holds(p(percent), -(1.0 - percent / 100.0_f64).ln(), expected, single(count, exponential));
    }
    check_holds(MEAN, 1.0, 929..972, single(100, exponential));
    check_holds(MEAN, 1.0, 929..972, single(1_000, exponential));
    check_holds(MEAN, 0.5_f64.exp(), 920..972, single(300, log_normal));
}

#[test]
fn intervals_hold_the_truth_where_calls_have_many_gaps() {
    // The sum of two exponentials: mean 2, and a median of 1.678347 (the gamma distribution of shape 2).
    let of = |count| move |random: &mut ChaCha12Rng| calls(random, count, 1..40);
    check_holds(MEAN, 2.0, 929..972, of(100));
    check_holds(p(50.0), 1.678_347, 929..990, of(100));
    check_holds(p(95.0), 4.743_865, 920..990, of(200));
    check_holds(p(50.0), 1.678_347, 920..995, of(20));
}

#[test]
fn a_call_counts_once_however_many_gaps_it_has() {
    // 20 calls whose gaps are all alike within a call: as independent values the interval would be far too narrow.
    let mut random = ChaCha12Rng::seed_from_u64(3);
    let calls: Vec<Vec<f64>> = (0..20).map(|_| vec![exponential(&mut random); 100]).collect();
    let (once, apart) =
        (Pool::single(calls.iter().map(|call| call[0])), Pool::single(calls.iter().flatten().copied()));
    let together = Pool::new(calls);
    let width = |pool: &Pool, statistic| {
        let interval = interval(pool, statistic).unwrap();
        interval.high.0 - interval.low.0
    };
    for statistic in [MEAN, p(50.0)] {
        let [once, apart, together] = [&once, &apart, &together].map(|pool| width(pool, statistic));
        println!("{once} {apart} {together}");
        assert!(together > 3.0 * apart, "{statistic}: {together}, and {apart} apart");
        assert!(
            (0.99..1.5).contains(&(together / once)),
            "{statistic}: {together}, and {once} of one gap each"
        );
    }
    // Equal values hide how much calls resemble each other; that must not make an interval narrow.
    let two_kinds = Pool::new((0..20).map(|call| vec![f64::from(call / 11); 100]));
    assert_eq!(interval(&two_kinds, p(50.0)).map(|found| (found.low.0, found.high.0)), Some((0.0, 1.0)));
}

#[test]
fn ranks_are_those_of_the_tables() {
    // Conover, Practical Nonparametric Statistics: of 10 values the 2nd to the 9th hold the median, of 100 the 40th to
    // the 61st.
    let of = |count: i32| Pool::single((1..=count).map(f64::from));
    let ends = |count, statistic| interval(&of(count), statistic).map(|found| (found.low.0, found.high.0));
    assert_eq!(ends(10, p(50.0)), Some((2.0, 9.0)));
    assert_eq!(ends(100, p(50.0)), Some((40.0, 61.0)));
    // 0.95^71 is above 2.5%, 0.95^72 below.
    assert_eq!((ends(71, p(95.0)), ends(72, p(95.0)).map(|(_, high)| high)), (None, Some(72.0)));
    assert_eq!((ends(367, p(99.0)), ends(368, p(99.0)).map(|(_, high)| high)), (None, Some(368.0)));
    assert!((student(9) - 2.2622).abs() < 1e-3 && (student(30) - 2.0423).abs() < 1e-4);
}

#[test]
fn failures_make_an_interval_reach_to_infinity() {
    let pool = Pool::single((0..200).map(|i| if i < 192 { f64::from(i) } else { f64::INFINITY }));
    let found = interval(&pool, p(95.0)).unwrap();
    assert!(found.low.0.is_finite() && found.high.0.is_infinite());
    let mean = interval(&pool, MEAN).unwrap();
    assert!(mean.low.0.is_infinite() && mean.high.0.is_infinite());
}

#[test]
fn few_calls_and_the_ends_have_no_interval() {
    let of = |count: i32| Pool::single((0..count).map(f64::from));
    assert!(interval(&of(9), MEAN).is_none() && interval(&of(9), p(50.0)).is_none());
    assert!(interval(&of(10), MEAN).is_some() && interval(&of(10), p(50.0)).is_some());
    assert!(interval(&of(1_000), Statistic::Max).is_none() && interval(&of(1_000), Statistic::Min).is_none());
    // Calls without values are no calls here.
    let mostly_empty = Pool::new((0..100).map(|i| if i < 9 { vec![1.0, f64::from(i)] } else { Vec::new() }));
    assert!(interval(&mostly_empty, MEAN).is_none());
}
