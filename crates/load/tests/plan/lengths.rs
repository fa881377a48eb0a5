//! Lengths against theory; seeds are fixed, bounds are five standard errors.

use load::schedule::{Purpose, random_stream};
use load::workload::{LENGTH_MAX, Lengths};
use proptest::prelude::*;

const DRAWS: u64 = 20_000;
const SIGMAS: f64 = 5.0;

fn draws(form: &str, seed: u64) -> Vec<f64> {
    let lengths = Lengths::parse(form).unwrap();
    (0..DRAWS).map(|id| lengths.draw(&mut random_stream(seed, Purpose::PromptLength, id)).into()).collect()
}

#[track_caller]
fn check_moments(draws: &[f64], mean: f64, deviation: f64, excess_kurtosis: f64) {
    let n = draws.len() as f64;
    let seen = draws.iter().sum::<f64>() / n;
    let seen_variance = draws.iter().map(|draw| (draw - seen).powi(2)).sum::<f64>() / (n - 1.0);
    assert!((seen - mean).abs() < SIGMAS * deviation / n.sqrt(), "mean {seen}, expected {mean}");
    let variance = deviation * deviation;
    let error = variance * ((2.0 + excess_kurtosis) / n).sqrt();
    assert!(
        (seen_variance - variance).abs() < SIGMAS * error,
        "variance {seen_variance}, expected {variance}"
    );
}

#[test]
fn distributions_have_the_moments_they_are_named_by() {
    for seed in 0..4 {
        assert!(draws("200", seed).iter().all(|draw| *draw == 200.0));

        let uniform = draws("uniform(16..128)", seed);
        assert!(uniform.iter().all(|draw| (16.0..=128.0).contains(draw)));
        assert!(uniform.contains(&16.0) && uniform.contains(&128.0));
        check_moments(&uniform, 72.0, ((113.0_f64.powi(2) - 1.0) / 12.0).sqrt(), -1.2);

        // Rounding adds the variance of an even distribution of width 1.
        check_moments(&draws("normal(500,40)", seed), 500.0, (1600.0 + 1.0 / 12.0_f64).sqrt(), 0.0);

        let logarithms: Vec<f64> = draws("lognormal(20000,0.5)", seed).iter().map(|draw| draw.ln()).collect();
        check_moments(&logarithms, 20_000.0_f64.ln(), 0.5, 0.0);
    }
}

#[test]
fn a_histogram_is_drawn_by_its_weights() {
    for seed in 0..4 {
        let draws = draws("histogram(10:5,100..200:3,7:2)", seed);
        for (from, to, share) in [(10.0, 10.0, 0.5), (100.0, 200.0, 0.3), (7.0, 7.0, 0.2)] {
            let seen = draws.iter().filter(|draw| (from..=to).contains(*draw)).count() as f64;
            let (expected, error) = (share * DRAWS as f64, (share * (1.0 - share) * DRAWS as f64).sqrt());
            assert!((seen - expected).abs() < SIGMAS * error, "{from}..{to}: {seen}, expected {expected}");
        }
        let ranged: Vec<f64> = draws.into_iter().filter(|draw| *draw >= 100.0).collect();
        check_moments(&ranged, 150.0, ((101.0_f64.powi(2) - 1.0) / 12.0).sqrt(), -1.2);
    }
    let list = draws("list(16,32,64)", 1);
    for length in [16.0, 32.0, 64.0] {
        let seen = list.iter().filter(|draw| **draw == length).count() as f64;
        assert!((seen - DRAWS as f64 / 3.0).abs() < SIGMAS * (DRAWS as f64 * 2.0 / 9.0).sqrt());
    }
}

#[test]
fn what_falls_outside_the_limits_is_put_at_their_ends() {
    let normal = draws("normal(50,100,16..400)", 1);
    assert!(normal.iter().all(|draw| (16.0..=400.0).contains(draw)));
    // A third of a normal distribution lies below a mean less 0.34 deviations.
    let at_the_end = normal.iter().filter(|draw| **draw == 16.0).count() as f64 / DRAWS as f64;
    assert!((0.33..0.41).contains(&at_the_end), "{at_the_end}");
    assert!(draws("lognormal(1000000,3)", 1).iter().all(|draw| (1.0..=f64::from(LENGTH_MAX)).contains(draw)));
}

proptest! {
    #[test]
    fn a_form_reads_back_as_it_is_shown(a in 1..=LENGTH_MAX, b in 1..=LENGTH_MAX, x in 0.0..10.0_f64) {
        let (from, to) = (a.min(b), a.max(b));
        for form in [
            format!("{a}"),
            format!("uniform({from}..{to})"),
            format!("normal({a},{x})"),
            format!("normal({a},{x},{from}..{to})"),
            format!("lognormal({a},{x})"),
            format!("list({a},{b})"),
            format!("histogram({a}:{},{from}..{to}:3)", x + 1e-9),
        ] {
            let parsed = Lengths::parse(&form).unwrap();
            prop_assert_eq!(Lengths::parse(&parsed.to_string()).unwrap(), parsed);
        }
    }
}

#[test]
fn a_wrong_form_is_told_what_is_wrong_and_what_would_do() {
    for (form, expected) in [
        ("", "`` must be a whole number from 1 to 1048576"),
        ("0", "`0` must be a whole number from 1"),
        ("2000000", "`2000000` must be a whole number"),
        ("uniform", "`uniform` must be a whole number"),
        ("uniform(16)", "`16` must be a range"),
        ("uniform(20..10)", "`20..10` goes backwards"),
        ("uniform(0..10)", "`0` must be a whole number"),
        ("uniform(1..2", "the closing `)` is missing"),
        ("uniform(1..2,3)", "`uniform` has the wrong number of parts"),
        ("normal(200)", "`normal` has the wrong number of parts"),
        ("normal(200,-1)", "`-1` must be a number from 0"),
        ("normal(NaN,1)", "`NaN` must be a number"),
        ("normal(200,1,1..2,3)", "`3` is one part too many"),
        ("lognormal(200,11)", "`11` must be a number from 0 to 10"),
        ("list()", "`list` has the wrong number of parts"),
        ("histogram(10)", "`10` must be LENGTH:WEIGHT"),
        ("histogram(10:0)", "the weight `0` must be a number"),
        ("poisson(10)", "there is no distribution `poisson`"),
    ] {
        let told = Lengths::parse(form).unwrap_err();
        assert!(told.contains(expected), "{form}: {told}");
        assert!(told.contains("lognormal(MEDIAN,SIGMA"), "{told}");
    }
}
