//! Arrival times against theory. Seeds are fixed, so a bound of five standard errors is either met for good or not.

use std::io::Write;
use std::time::Duration;

use load::arrivals::{ArrivalSpec, Gaps};
use load::schedule::Pacing;
use proptest::prelude::*;

const CALLS: usize = 20_000;
const SIGMAS: f64 = 5.0;

#[track_caller]
fn times_s(spec: &str, seed: u64, calls: usize) -> Vec<f64> {
    let open = ArrivalSpec::parse(spec).unwrap().open(seed).unwrap();
    open.arrivals.take(calls).map(|at| at.as_secs_f64()).collect()
}

fn gaps(times: &[f64]) -> Vec<f64> {
    std::iter::once(&0.0).chain(times).zip(times).map(|(before, at)| at - before).collect()
}

/// Mean and variance of gamma distributed gaps, each within five standard errors of theory. A gamma distribution of shape k
/// and mean m has variance m²/k and excess kurtosis 6/k; a sample variance has variance about σ⁴(2 + 6/k)/n.
#[track_caller]
fn check_gamma(gaps: &[f64], per_s: f64, shape: f64) {
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let (expected, expected_variance) = (1.0 / per_s, 1.0 / (shape * per_s * per_s));
    let mean_error = (expected_variance / n).sqrt();
    assert!((mean - expected).abs() < SIGMAS * mean_error, "mean {mean}, expected {expected}");
    let variance_error = expected_variance * ((2.0 + 6.0 / shape) / n).sqrt();
    assert!(
        (variance - expected_variance).abs() < SIGMAS * variance_error,
        "variance {variance}, expected {expected_variance}"
    );
}

#[test]
fn poisson_gaps_have_the_mean_and_variance_of_an_exponential() {
    for seed in 0..8 {
        for per_s in [0.5, 20.0, 4000.0] {
            let times = times_s(&format!("poisson:{per_s}"), seed, CALLS);
            check_gamma(&gaps(&times), per_s, 1.0);
        }
    }
}

/// Largest distance between the gaps' distribution and the exponential's, against Kolmogorov's limit: 2.2/√n is passed by
/// chance in about 1 of 8,000 samples.
#[test]
fn poisson_gaps_are_exponential_over_their_whole_range() {
    for seed in 0..8 {
        let mut gaps = gaps(&times_s("poisson:20", seed, CALLS));
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(at, gap)| {
                let theory = 1.0 - (-gap * 20.0).exp();
                (theory - at as f64 / n).abs().max((theory - (at + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance < 2.2 / n.sqrt(), "{distance}");
    }
}

#[test]
fn gamma_gaps_keep_the_rate_and_vary_as_the_burstiness_says() {
    for seed in 0..4 {
        for burstiness in [0.1, 0.5, 2.0, 10.0] {
            let times = times_s(&format!("gamma:20,burstiness={burstiness}"), seed, CALLS);
            check_gamma(&gaps(&times), 20.0, burstiness);
        }
    }
}

#[test]
fn burstiness_of_one_is_poisson_and_without_bound_is_even() {
    assert_eq!(times_s("gamma:20,burstiness=1", 7, 1000), times_s("poisson:20", 7, 1000));
    assert_eq!(times_s("gamma:20,burstiness=inf", 7, 1000), times_s("constant:20", 7, 1000));
}

#[test]
fn constant_calls_begin_at_once_and_no_error_adds_up() {
    let times = ArrivalSpec::parse("constant:20").unwrap().open(1).unwrap().arrivals;
    let in_20_s = times.take_while(|at| *at < Duration::from_secs(20)).count();
    assert_eq!(in_20_s, 400);
    let mut times = ArrivalSpec::parse("constant:3").unwrap().open(1).unwrap().arrivals;
    assert_eq!(times.nth(3_000_000), Some(Duration::from_secs(1_000_000)));
}

/// Calls that a line from `from` to `to` over `over_s`, and then `to`, has brought by `at_s`.
fn due(from: f64, to: f64, over_s: f64, at_s: f64) -> f64 {
    let in_ramp = at_s.min(over_s);
    let slope = (to - from) / over_s;
    from * in_ramp + slope * in_ramp * in_ramp / 2.0 + to * (at_s - in_ramp)
}

#[test]
fn an_even_ramp_has_brought_the_integral_of_its_rate() {
    for (from, to) in [(5.0, 50.0), (50.0, 5.0), (0.0, 30.0), (30.0, 0.0), (10.0, 10.0)] {
        let times = times_s(&format!("ramp:{from}..{to},over=60s,burstiness=inf"), 1, 5000);
        for at_s in [1.0, 10.0, 30.0, 59.0, 61.0, 90.0] {
            let seen = times.iter().filter(|at| **at <= at_s).count() as f64;
            let expected = due(from, to, 60.0, at_s);
            // The calls at 0 and at `at_s` itself both count.
            assert!((seen - expected).abs() <= 1.0 + 1e-6, "{from}..{to} by {at_s} s: {seen}, {expected}");
        }
    }
}

#[test]
fn a_ramp_is_poisson_in_the_time_of_its_integral() {
    for seed in 0..4 {
        for (from, to) in [(5.0, 50.0), (50.0, 5.0), (0.0, 30.0)] {
            let times = times_s(&format!("ramp:{from}..{to},over=60s"), seed, CALLS);
            let rescaled: Vec<f64> = times.iter().map(|at| due(from, to, 60.0, *at)).collect();
            check_gamma(&gaps(&rescaled), 1.0, 1.0);
        }
    }
}

#[test]
fn a_ramp_to_zero_ends() {
    let times = times_s("ramp:30..0,over=60s", 3, usize::MAX);
    let (expected, error) = (900.0, 30.0);
    assert!((times.len() as f64 - expected).abs() < SIGMAS * error, "{}", times.len());
    assert!(times.iter().all(|at| *at <= 60.0));
}

proptest! {
    #[test]
    fn times_ascend_and_come_again_with_their_seed(
        seed: u64,
        per_s in 0.001..10_000.0_f64,
        end in 0.001..10_000.0_f64,
        burstiness in 0.01..100.0_f64,
        kind in 0..4,
    ) {
        let spec = match kind {
            0 => format!("constant:{per_s}"),
            1 => format!("poisson:{per_s}"),
            2 => format!("gamma:{per_s},burstiness={burstiness}"),
            _ => format!("ramp:{per_s}..{end},over=10s,burstiness={burstiness}"),
        };
        let times = times_s(&spec, seed, 200);
        prop_assert_eq!(times.len(), 200);
        prop_assert!(times.is_sorted());
        prop_assert_eq!(&times, &times_s(&spec, seed, 200));
        let other = times_s(&spec, seed.wrapping_add(1), 200);
        prop_assert_eq!(times == other, kind == 0);
    }

    #[test]
    fn a_specification_reads_back_as_it_is_shown(
        per_s in 0.001..10_000.0_f64,
        burstiness in 0.01..100.0_f64,
        over_ms in 1..10_000_000_u32,
    ) {
        for spec in [
            format!("constant:{per_s}"),
            format!("poisson:{per_s}"),
            format!("gamma:{per_s},burstiness={burstiness}"),
            format!("ramp:0..{per_s},over={over_ms}ms"),
            format!("ramp:{per_s}..0,over={over_ms}ms,burstiness=inf"),
            "trace:a/b=c.jsonl,speed=2.5,unit=ms".to_owned(),
        ] {
            let parsed = ArrivalSpec::parse(&spec).unwrap();
            prop_assert_eq!(ArrivalSpec::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }
}

/// The numbers are those of this generator and seed; a change here means that schedules of earlier runs cannot be sent
/// again.
#[test]
fn the_times_of_a_seed_stay_as_they_were() {
    let micros: Vec<u128> = {
        let open = ArrivalSpec::parse("poisson:20").unwrap().open(42).unwrap();
        open.arrivals.take(5).map(|at| at.as_micros()).collect()
    };
    assert_eq!(micros, [76128, 104191, 128572, 162471, 185073]);
}

#[test]
fn a_search_can_ask_for_another_rate() {
    let gamma = ArrivalSpec::parse("gamma:20,burstiness=0.5").unwrap();
    let expected = ArrivalSpec::Steady { per_s: 35.0, gaps: Gaps::Gamma(0.5) };
    assert_eq!(gamma.at_rate(35.0), Some(expected));
    assert_eq!(ArrivalSpec::parse("ramp:1..2,over=1s").unwrap().at_rate(35.0), None);
}

#[test]
fn pacing_says_what_it_was_and_the_rate_where_there_is_one() {
    let pacing = |spec: &str| ArrivalSpec::parse(spec).unwrap().open(1).unwrap().pacing;
    let open = |description: &str, mean_per_s| Pacing::Open { description: description.into(), mean_per_s };
    assert_eq!(pacing("gamma:20,burstiness=0.5"), open("gamma:20,burstiness=0.5", Some(20.0)));
    assert_eq!(pacing("ramp:5..50,over=1m"), open("ramp:5..50,over=60s,burstiness=1", None));
}

fn trace(lines: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file
}

fn open_trace(lines: &str, options: &str) -> anyhow::Result<Vec<Duration>> {
    let file = trace(lines);
    let spec = ArrivalSpec::parse(&format!("trace:{}{options}", file.path().display()))?;
    Ok(spec.open(1)?.arrivals.collect())
}

#[test]
fn a_trace_begins_at_its_first_line_and_can_be_sped_up() {
    let lines = "{\"timestamp\": 1700000000.5}\n\n{\"timestamp\": 1700000002.5, \"x\": 1}\r\n{\"timestamp\":1700000002.5}";
    let seconds = |all: &[u64]| all.iter().map(|at| Duration::from_secs(*at)).collect::<Vec<_>>();
    assert_eq!(open_trace(lines, "").unwrap(), seconds(&[0, 2, 2]));
    assert_eq!(open_trace(lines, ",speed=2").unwrap(), seconds(&[0, 1, 1]));
    let lines = "{\"timestamp\": 27482}\n{\"timestamp\": 30482}\n";
    assert_eq!(open_trace(lines, ",unit=ms").unwrap(), seconds(&[0, 3]));
}

#[track_caller]
fn refuse_trace(lines: &str, expected: &str) {
    let told = open_trace(lines, "").unwrap_err().to_string();
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_bad_trace_is_refused_by_line_and_reason() {
    refuse_trace("{\"timestamp\":1}\n{\"time\":1}", "line 2: the field `timestamp` is missing");
    refuse_trace("{\"timestamp\":\"12:00\"}", "line 1: `timestamp` must be a number, and is \"12:00\"");
    refuse_trace("{\"timestamp\":5}\n\n{\"timestamp\":4}", "line 3: `timestamp` 4 is before 5");
    refuse_trace("{\"timestamp\":5}\nnot", "line 2: not JSON");
    refuse_trace("{\"timestamp\":0}\n{\"timestamp\":1e300}", "line 2: lies more than 104 days behind");
    refuse_trace("[{\"timestamp\":0}]", "is one JSON array");
    refuse_trace("\n", "has no lines");
    let absent = ArrivalSpec::parse("trace:/nowhere/x.jsonl").unwrap().open(1).err().unwrap();
    assert!(absent.to_string().contains("cannot open /nowhere/x.jsonl"), "{absent}");
}

#[test]
fn a_wrong_specification_is_told_what_is_wrong_and_what_would_do() {
    for (spec, expected) in [
        ("", "there is no kind ``"),
        ("uniform:20", "there is no kind `uniform`"),
        ("constant", "the rate is missing behind `constant:`"),
        ("poisson:0", "the rate `0` must be a number from 0.000001 to 1000000"),
        ("poisson:-3", "the rate `-3` must be"),
        ("poisson:inf", "the rate `inf` must be"),
        ("poisson:NaN", "the rate `NaN` must be"),
        ("gamma:20", "`burstiness=` is missing"),
        ("gamma:20,burstiness=0", "`burstiness=0`: must be a number from 0.001 to 1000000, or inf"),
        ("constant:20,burstiness=2", "`constant` has no option `burstiness`"),
        ("ramp:5,over=1s", "`5` must be a range"),
        ("ramp:5..50", "`over=` is missing"),
        ("ramp:5..50,over=60", "must be a time with its unit"),
        ("ramp:5..50,over=0s", "`over` must be more than 0s"),
        ("ramp:0..0,over=1s", "a ramp from 0 to 0 has no calls"),
        ("ramp:1e-9..5,over=1s", "the rate `1e-9` must be 0, or from 0.000001"),
        ("trace:", "the trace's file is missing"),
        ("trace:x,speed=0", "`speed=0`: must be a number"),
        ("trace:x,unit=us", "`unit=us`: must be s or ms"),
    ] {
        let told = ArrivalSpec::parse(spec).unwrap_err().to_string();
        assert!(told.contains(expected), "{spec}: {told}");
        assert!(told.contains("gamma:RATE,burstiness=B"), "{told}");
    }
}
