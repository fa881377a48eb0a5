use ledger::Stage;
use proptest::prelude::*;

use super::*;
use crate::metrics::fixture::{account, run, steady, timed_out};

fn slo(text: &str) -> Slo {
    text.parse().unwrap()
}

fn error(text: &str) -> String {
    text.parse::<Slo>().unwrap_err()
}

#[test]
fn reads_what_the_manual_shows() {
    let slo = slo("ttft_p95<500ms,itl_p95<50ms,errors<1%,e2e_p99<10s,tpot_mean<40ms,goodput>90%");
    let limits: Vec<f64> = slo.objectives.iter().map(|objective| objective.limit).collect();
    assert_eq!(limits, [500.0, 50.0, 0.01, 10_000.0, 40.0, 0.9]);
    assert_eq!(
        slo.objectives[3].subject,
        Subject::Call { metric: Metric::E2e, statistic: Statistic::Percentile(99.0) }
    );
    assert_eq!(slo.objectives[5].subject, Subject::GoodputShare);
}

#[test]
fn reads_names_with_underscores_rates_and_fractions_of_percentiles() {
    let slo = slo("ttft_sent_p99.9 <= 2s, output_speed_p5 > 20tok/s, goodput>=5/s, qps>3, tbt_max_max<1.5s");
    assert_eq!(
        slo.objectives[0].subject,
        Subject::Call { metric: Metric::TtftSent, statistic: Statistic::Percentile(99.9) }
    );
    assert_eq!(slo.objectives[2].subject, Subject::GoodputRate);
    assert_eq!(slo.objectives[4].limit, 1500.0);
    assert_eq!(
        slo.objectives[4].subject,
        Subject::Call { metric: Metric::TbtMax, statistic: Statistic::Max }
    );
}

#[test]
fn errors_name_the_term_and_what_is_accepted() {
    let unknown = error("errors<1%,ttfx_p95<500ms");
    assert!(
        unknown.contains("\"ttfx_p95<500ms\"") && unknown.contains("ttft") && unknown.contains("goodput"),
        "{unknown}"
    );
    assert!(error("ttft<500ms").contains("ttft_p95"));
    assert!(error("ttft_p95=500ms").contains("<="));
    assert!(error("ttft_p95<500").contains("no unit"));
    assert!(error("ttft_p95<500tok/s").contains("us, ms, s, min"));
    assert!(error("ttft_p95<fast").contains("\"fast\""));
    assert!(error("ttft_p100<1s").contains("_max"));
    assert!(error("ttft_p95>500ms").contains("write <"));
    assert!(error("output_speed_mean<20tok/s").contains("write >"));
    assert!(error("errors<300%").contains("more than all"));
    assert!(error(" , ").contains("empty"));
    assert!(error("goodput>5min").contains("% (of calls), /s"));
}

#[test]
fn the_smallest_relative_margin_binds() {
    let results = run((0..100).map(|id| steady(id, id as f64, 400.0, 30.0, 5)).collect());
    let judgement = slo("ttft_p95<500ms,itl_p95<60ms,errors<1%").judge(&results, false);
    let margins: Vec<f64> = judgement.objectives.iter().map(|one| one.margin.unwrap().0).collect();
    assert_eq!(judgement.met, Met::Yes);
    assert!((margins[0] - 0.2).abs() < 1e-9 && (margins[1] - 0.5).abs() < 1e-9 && margins[2] == 1.0);
    assert_eq!(judgement.binding, Some(0));
    let broken = slo("ttft_p95<500ms,itl_p95<20ms").judge(&results, false);
    assert_eq!((broken.met, broken.binding), (Met::No, Some(1)));
    assert!((broken.binding().unwrap().margin.unwrap().0 + 0.5).abs() < 1e-9);
}

#[test]
fn too_few_samples_are_neither_a_pass_nor_a_fail() {
    let results = run((0..50).map(|id| steady(id, id as f64, 400.0, 30.0, 5)).collect());
    let judgement = slo("ttft_p99<500ms,errors<1%").judge(&results, false);
    assert_eq!(judgement.met, Met::Unknown);
    assert_eq!(slo("ttft_p99<500ms,ttft_p95<100ms").judge(&results, false).met, Met::No);
}

#[test]
fn timeouts_break_a_percentile_that_the_survivors_would_meet() {
    let mut samples: Vec<_> = (0..90).map(|id| steady(id, id as f64, 10.0, 5.0, 3)).collect();
    samples.extend((90..100).map(|id| timed_out(id, id as f64)));
    let judgement = slo("ttft_p95<500ms").judge(&run(samples), false);
    assert_eq!(judgement.met, Met::No);
    assert_eq!(judgement.binding().unwrap().margin.unwrap().0, f64::NEG_INFINITY);
    let Some(StageFinding::Failures { by_class }) = judgement.stage else { panic!() };
    assert_eq!(by_class["timed_out"], 10);
}

#[test]
fn what_cannot_be_seen_is_not_broken_by_failures() {
    let mut samples: Vec<_> = (0..50).map(|id| steady(id, id as f64, 10.0, 5.0, 3)).collect();
    samples.extend((50..100).map(|id| timed_out(id, id as f64)));
    let mut results = run(samples);
    // No server told of decode, and an answer in one piece has no first token: neither is known, however many failed.
    assert_eq!(slo("decode_speed_mean>20").judge(&results, false).met, Met::Unknown);
    assert_eq!(slo("ttft_p50<1s").judge(&results, false).met, Met::No);
    results.target.stream = false;
    assert_eq!(slo("ttft_p50<1s").judge(&results, false).met, Met::Unknown);
    assert_eq!(slo("e2e_p90<1s").judge(&results, false).met, Met::No);
}

#[test]
fn goodput_counts_calls_that_meet_everything() {
    let mut samples: Vec<_> = (0..10).map(|id| steady(id, id as f64, 10.0, 5.0, 3)).collect();
    samples.extend((10..15).map(|id| steady(id, id as f64, 900.0, 5.0, 3))); // late
    samples.extend((15..18).map(|id| steady(id, id as f64, 10.0, 90.0, 3))); // slow
    samples.push(steady(18, 18.0, 10.0, 0.0, 1)); // one token has no gap: good
    samples.push(timed_out(19, 19.0));
    let slo = slo("ttft_p50<500ms,itl_p50<50ms,goodput>60%");
    let results = run(samples);
    assert_eq!(slo.good_calls(&results, metrics::rules(&results)), (11, 20));
    let judgement = slo.judge(&results, false);
    assert_eq!(judgement.objectives[2].value.value(), Some(0.55));
    assert_eq!(judgement.objectives[2].met, Met::No);
}

/// 80 fast calls and 20 that queued for 400 ms longer, while prefill was a little longer too.
fn queued(kind: impl Fn(Sample, f64, f64) -> Sample) -> Results {
    run((0..100)
        .map(|id| {
            let (queue, prefill) = if id % 5 == 0 { (420.0, 70.0) } else { (20.0 + id as f64 * 0.01, 60.0) };
            kind(steady(id, id as f64 * 10.0, queue + prefill + 10.0, 5.0, 5), queue, prefill)
        })
        .collect())
}

#[test]
fn the_stage_with_the_largest_excess_binds() {
    let results = queued(|sample, queue, prefill| {
        account(sample, &[(Stage::Queue, queue), (Stage::Prefill, prefill)], &[(Stage::Decode, 20.0)])
    });
    let judgement = slo("ttft_p95<300ms").judge(&results, false);
    let Some(StageFinding::Stage { place, excess_ms, share_of_excess, places, slow, .. }) = judgement.stage
    else {
        panic!("{judgement:?}")
    };
    assert_eq!(place, Place::Stage(Stage::Queue));
    assert!((excess_ms.0 - 399.7).abs() < 1.0, "{excess_ms}");
    assert!(share_of_excess.0 > 0.95);
    assert_eq!(slow.calls, 20);
    // Prefill is the longer stage in the fast calls, and does not bind.
    assert_eq!(places[0].place, Place::Stage(Stage::Queue));
}

#[test]
fn what_the_server_does_not_show_can_bind() {
    // The server tells of its prefill alone, so that waiting is in no stage of its.
    let results = queued(|sample, _, prefill| account(sample, &[(Stage::Prefill, prefill)], &[]));
    let judgement = slo("ttft_p95<300ms").judge(&results, false);
    let Some(StageFinding::Stage { place, .. }) = judgement.stage else { panic!("{judgement:?}") };
    assert_eq!(place, Place::Unseen);
}

#[test]
fn a_server_that_tells_nothing_is_opaque() {
    let judgement = slo("ttft_p95<300ms").judge(&queued(|sample, _, _| sample), false);
    assert!(matches!(judgement.stage, Some(StageFinding::Opaque { .. })));
}

#[test]
fn stages_behind_the_first_token_are_told_per_token() {
    let results = run((0..60)
        .map(|id| {
            let wait = if id % 3 == 0 { 20.0 } else { 0.1 };
            let sample = steady(id, id as f64, 50.0, 10.0 + wait, 11);
            account(
                sample,
                &[(Stage::Prefill, 50.0)],
                &[(Stage::Decode, 100.0), (Stage::DecodeWait, 10.0 * wait)],
            )
        })
        .collect());
    let judgement = slo("tpot_p95<20ms").judge(&results, false);
    let Some(StageFinding::Stage { place, excess_ms, per_token, .. }) = judgement.stage else {
        panic!("{judgement:?}")
    };
    assert_eq!((place, per_token), (Place::Stage(Stage::DecodeWait), true));
    assert!((excess_ms.0 - 19.9).abs() < 1e-6, "{excess_ms}");
}

#[test]
fn a_judgement_survives_json() {
    let judgement = slo("ttft_p95<300ms,errors<1%,goodput>90%").judge(&queued(|sample, _, _| sample), true);
    let json = serde_json::to_string(&judgement).unwrap();
    assert_eq!(serde_json::from_str::<Judgement>(&json).unwrap(), judgement);
}

proptest! {
    #[test]
    fn a_margin_is_positive_where_and_only_where_a_strict_limit_is_met(value in 0.0..1e4f64, limit in 1.0..1e4f64) {
        prop_assume!(value != limit);
        for bound in [Bound::Below, Bound::Above] {
            prop_assert_eq!(bound.margin(value, limit) > 0.0, bound.is_met(value, limit));
        }
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "[a-z_0-9.<>=%,/ µ]{0,40}") {
        let _ = text.parse::<Slo>();
    }
}
