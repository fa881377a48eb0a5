use ledger::Stage;
use proptest::prelude::*;

use super::call::{Reading, read};
use super::fixture::{account, call, ns, run as run_of, steady, timed_out};
use super::*;
use crate::sample::{Channel, Sample};

const RULES: Rules = Rules { stream: true, prefill: PrefillBasis::Ttft };

/// The metric's values of one call, rounded to a thousandth.
fn check(sample: &Sample, metric: Metric, expected: &[f64]) {
    let Reading::Values(values) = read(sample, metric, RULES) else { panic!("{metric} is absent") };
    let rounded: Vec<f64> = values.iter().map(|value| (value * 1e3).round() / 1e3).collect();
    assert_eq!(rounded, expected, "{metric}");
}

/// Field case F76: role frame at 10 ms, keepalive, first token at 500, ten tokens each 20 ms, usage and terminator later.
fn f76() -> Sample {
    let at: Vec<f64> = (0..10).map(|index| 500.0 + 20.0 * f64::from(index)).collect();
    let mut sample = call(0, 0.0, &at);
    sample.headers_ns = Some(ns(9.0));
    sample.first_byte_ns = Some(ns(10.0));
    sample.last_byte_ns = Some(ns(1080.0));
    sample
}

#[test]
fn only_frames_with_tokens_are_tokens_f76() {
    let sample = f76();
    check(&sample, Metric::Ttft, &[500.0]);
    check(&sample, Metric::Itl, &[20.0; 9]);
    check(&sample, Metric::E2e, &[680.0]);
    check(&sample, Metric::StreamEnd, &[1080.0]);
    check(&sample, Metric::FirstByte, &[10.0]);
    check(&sample, Metric::Headers, &[9.0]);
    check(&sample, Metric::Tpot, &[20.0]);
    check(&sample, Metric::OutputSpeed, &[50.0]);
}

#[test]
fn reasoning_counts_for_ttft_and_not_for_ttfat_f77() {
    let mut sample = call(0, 0.0, &[100.0, 200.0, 300.0]);
    sample.chunks[0].channel = Channel::Reasoning;
    sample.chunks[1].channel = Channel::ToolCall;
    check(&sample, Metric::Ttft, &[100.0]);
    check(&sample, Metric::Ttfat, &[300.0]);
    sample.chunks[2].channel = Channel::Refusal;
    assert_eq!(read(&sample, Metric::Ttfat, RULES), Reading::Absent);
    check(&sample, Metric::Ttft, &[100.0]);
}

#[test]
fn an_empty_answer_has_an_end_and_no_first_token_f77() {
    let mut sample = call(0, 0.0, &[]);
    sample.outcome = Outcome::Empty;
    sample.last_byte_ns = Some(ns(70.0));
    check(&sample, Metric::E2e, &[70.0]);
    assert_eq!(read(&sample, Metric::Ttft, RULES), Reading::Absent);
}

#[test]
fn gaps_are_given_per_token_and_per_chunk_f78() {
    // Four tokens a frame, 40 ms apart.
    let mut sample = call(0, 0.0, &[100.0, 140.0, 180.0]);
    sample.chunks.iter_mut().for_each(|chunk| chunk.tokens = 4);
    check(&sample, Metric::ItlChunk, &[40.0, 40.0]);
    check(&sample, Metric::Itl, &[10.0; 8]);
    check(&sample, Metric::Tbt, &[40.0, 0.0, 0.0, 0.0, 40.0, 0.0, 0.0, 0.0]);
    check(&sample, Metric::TbtMax, &[40.0]);
    // 8 tokens behind the first chunk in 80 ms.
    check(&sample, Metric::Tpot, &[10.0]);
    check(&sample, Metric::OutputSpeed, &[100.0]);
}

#[test]
fn counts_that_disagree_are_reported_f78() {
    let samples = (0..12)
        .map(|id| {
            let mut sample = steady(id, id as f64, 10.0, 1.0, 38);
            sample.tokens.output = Some(if id < 3 { 40 } else { 38 });
            if id == 11 {
                sample.tokens.output = None;
            }
            sample
        })
        .collect();
    let table = Table::quick(&run_of(samples));
    let counts = &table.run.counts;
    assert_eq!((counts.compared, counts.differ, counts.difference, counts.without_usage), (11, 3, 6, 1));
    assert!(table.notes.iter().any(|note| note.contains("3 of 11 calls")), "{:?}", table.notes);
}

#[test]
fn latency_counts_from_the_intended_time_f81() {
    // 20 a second for 20 s; the server freezes from 8 to 13 s, and the client could not send meanwhile.
    let samples = (0..400)
        .map(|id| {
            let intended = id as f64 * 50.0;
            let sent = if (8000.0..13000.0).contains(&intended) { 13000.0 } else { intended };
            let mut sample = call(id, intended, &[sent + 10.0]);
            sample.sent_ns = Some(ns(sent));
            sample
        })
        .collect();
    let table = Table::quick(&run_of(samples));
    let p99 = |metric| table.metric(metric).judged.percentile(99.0).unwrap().value().unwrap();
    // 100 of 400 calls waited, evenly from 5000 down to 50 ms: the 99th percentile of all lies at the fourth longest.
    assert!((p99(Metric::Ttft) - 4810.5).abs() < 1.0, "{}", p99(Metric::Ttft));
    assert!((p99(Metric::TtftSent) - 10.0).abs() < 1e-6);
    assert_eq!(table.metric(Metric::Lag).judged.max.value(), Some(5000.0));
}

#[test]
fn failures_are_infinite_and_calls_under_way_are_neither() {
    let mut samples: Vec<Sample> = (0..95).map(|id| steady(id, id as f64, 10.0, 5.0, 3)).collect();
    samples.extend((95..98).map(|id| timed_out(id, id as f64)));
    samples.extend(
        (98..100).map(|id| Sample { outcome: Outcome::InFlight, ..steady(id, id as f64, 900.0, 5.0, 3) }),
    );
    let table = Table::quick(&run_of(samples));
    let ttft = table.metric(Metric::Ttft);
    assert_eq!((ttft.calls, ttft.failed, ttft.in_flight), (95, 3, 2));
    assert_eq!(ttft.judged.max.value(), Some(f64::INFINITY));
    assert_eq!(ttft.judged.mean.value(), Some(f64::INFINITY));
    assert_eq!(ttft.judged.percentile(95.0).unwrap().value(), Some(10.0));
    assert_eq!(ttft.seen.as_ref().unwrap().max.value(), Some(10.0));
    // 98 values are too few for a p99.
    assert_eq!(ttft.judged.percentile(99.0).unwrap().value(), None);
    assert_eq!(table.metric(Metric::OutputSpeed).judged.min.value(), Some(0.0));
    assert_eq!(table.run.error_rate.value(), Some(3.0 / 98.0));
    assert_eq!(table.run.outcomes["in_flight"], 2);
}

#[test]
fn a_cut_stream_is_infinite_though_its_first_token_came_f80() {
    let cut = Sample {
        outcome: Outcome::CutShort { detail: "no finish reason".to_owned() },
        ..steady(0, 0.0, 10.0, 5.0, 5)
    };
    assert_eq!(read(&cut, Metric::Ttft, RULES), Reading::Failed);
    assert_eq!(read(&cut, Metric::Itl, RULES).judged(Unit::Ms), Some(vec![f64::INFINITY]));
}

#[test]
fn only_the_window_counts() {
    let mut results = run_of((0..100).map(|id| steady(id, id as f64 * 10.0, 5.0, 1.0, 4)).collect());
    results.samples[0] = steady(0, 0.0, 5000.0, 1.0, 4);
    results.window.from_ns = ns(200.0);
    results.window.to_ns = ns(800.0);
    let table = Table::quick(&results);
    assert_eq!(table.metric(Metric::Ttft).calls, 60);
    assert_eq!(table.metric(Metric::Ttft).judged.max.value(), Some(5.0));
    // Four tokens every 10 ms.
    assert!((table.run.output_tokens_per_s.value().unwrap() - 400.0).abs() < 1e-6);
    assert!((table.run.offered_per_s.value().unwrap() - 100.0).abs() < 1e-6);
    assert!((table.run.prompt_tokens_per_s.value().unwrap() - 10_000.0).abs() < 1e-6);
}

#[test]
fn concurrency_is_calls_times_their_time_over_the_window() {
    // Ten calls of 100 ms, one every 50 ms: two at a time, one at both ends. From 0 to 550 ms.
    let samples = (0..10).map(|id| {
        let mut sample = call(id, id as f64 * 50.0, &[id as f64 * 50.0 + 100.0]);
        sample.last_byte_ns = Some(ns(id as f64 * 50.0 + 100.0));
        sample
    });
    let run = Table::quick(&run_of(samples.collect())).run;
    assert!((run.concurrency_mean.0 - 1000.0 / 550.0).abs() < 1e-9);
    assert_eq!(run.concurrency_max, 2);
}

#[test]
fn dropped_samples_end_the_window_of_rates() {
    let mut results = run_of((0..100).map(|id| steady(id, id as f64 * 10.0, 5.0, 1.0, 4)).collect());
    results.window.to_ns = ns(10_000.0);
    results.window.run_ns = ns(10_000.0);
    results.samples_dropped = 900;
    let rate = Table::quick(&results).run.output_tokens_per_s.value().unwrap();
    assert!((rate - 400.0).abs() < 1e-6, "{rate}");
}

#[test]
fn speeds_of_the_server_are_absent_where_it_does_not_tell_and_prefill_says_its_basis() {
    let opaque = run_of((0..20).map(|id| steady(id, id as f64, 50.0, 10.0, 11)).collect());
    let table = Table::quick(&opaque);
    assert_eq!(table.prefill_basis, PrefillBasis::Ttft);
    assert_eq!(table.metric(Metric::DecodeSpeed).calls, 0);
    assert_eq!(table.metric(Metric::PrefillSpeed).judged.mean.value(), Some(2000.0)); // 100 tokens in 50 ms

    let told =
        |s: Sample| account(s, &[(Stage::Queue, 10.0), (Stage::Prefill, 25.0)], &[(Stage::Decode, 50.0)]);
    let mut told = run_of((0..20).map(|id| told(steady(id, id as f64, 50.0, 10.0, 11))).collect());
    told.samples.iter_mut().for_each(|sample| sample.tokens.cached = Some(50));
    let table = Table::quick(&told);
    assert_eq!(table.prefill_basis, PrefillBasis::Server);
    assert_eq!(table.metric(Metric::PrefillSpeed).judged.mean.value(), Some(2000.0)); // 50 tokens in 25 ms
    assert_eq!(table.metric(Metric::DecodeSpeed).judged.mean.value(), Some(200.0)); // 10 tokens in 50 ms
    assert_eq!(table.metric(Metric::OutputSpeed).judged.mean.value(), Some(100.0)); // 10 tokens in 100 ms
}

#[test]
fn an_answer_in_one_piece_has_no_time_to_first_token() {
    let mut results = run_of((0..20).map(|id| call(id, id as f64, &[id as f64 + 80.0])).collect());
    results.target.stream = false;
    let table = Table::quick(&results);
    assert_eq!(table.metric(Metric::Ttft).calls, 0);
    assert_eq!(table.metric(Metric::E2e).judged.mean.value(), Some(80.0));
}

#[test]
fn the_whole_table_survives_json() {
    let mut samples: Vec<Sample> = (0..30).map(|id| steady(id, id as f64, 10.0, 5.0, 3)).collect();
    samples.push(timed_out(30, 30.0));
    let table = Table::full(&run_of(samples));
    let json = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<Table>(&json).unwrap(), table);
}

#[test]
fn every_metric_is_found_by_its_name() {
    for &metric in Metric::ALL {
        assert_eq!(metric.name().parse(), Ok(metric));
        assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{}\"", metric.name()));
    }
}

#[test]
fn the_page_of_definitions_has_every_metric_as_the_table_has_it() {
    let page = include_str!("../../../../docs/load-definitions.md");
    for metric in Metric::ALL {
        let definition = metric.definition();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", definition.name)));
        let row = row.unwrap_or_else(|| panic!("{metric} is not on the page"));
        assert!(row.contains(definition.meaning) && row.contains(definition.unit.symbol()), "{row}");
    }
}

proptest! {
    #[test]
    fn gaps_of_every_kind_sum_to_the_time_from_first_to_last_token(
        steps in prop::collection::vec((0.0..100.0f64, 1..6_u32), 2..40)
    ) {
        let mut at = 0.0;
        let times: Vec<f64> = steps.iter().map(|(gap, _)| { at += gap; at }).collect();
        let mut sample = call(0, 0.0, &times);
        sample.chunks.iter_mut().zip(&steps).for_each(|(chunk, (_, tokens))| chunk.tokens = *tokens);
        let whole = times[times.len() - 1] - times[0];
        for metric in [Metric::Itl, Metric::ItlChunk, Metric::Tbt] {
            let Reading::Values(values) = read(&sample, metric, RULES) else { panic!() };
            prop_assert!((values.iter().sum::<f64>() - whole).abs() < 1e-3);
        }
        let Reading::Values(itl) = read(&sample, Metric::Itl, RULES) else { panic!() };
        let Reading::Values(tpot) = read(&sample, Metric::Tpot, RULES) else { panic!() };
        prop_assert!((itl.iter().sum::<f64>() / itl.len() as f64 - tpot[0]).abs() < 1e-6);
    }
}

#[test]
fn one_token_a_chunk_makes_one_of_the_three_times_between_tokens() {
    let mut samples: Vec<Sample> =
        (0..30).map(|id| steady(id, id as f64, 10.0, 5.0 + id as f64, 4)).collect();
    samples.push(timed_out(30, 30.0));
    let table = |samples: &[Sample]| Table::full(&run_of(samples.to_vec()));
    let alike = table(&samples);
    for metric in [Metric::Itl, Metric::ItlChunk, Metric::Tbt] {
        assert_eq!(*alike.metric(metric), summarize(&run_of(samples.clone()), metric, RULES, true));
    }
    samples[7].chunks[2].tokens = 2;
    let apart = table(&samples);
    let values = |metric| apart.metric(metric).values;
    assert_eq!([Metric::Itl, Metric::ItlChunk, Metric::Tbt].map(values), [91, 90, 91]);
    assert_ne!(apart.metric(Metric::Itl).judged, apart.metric(Metric::Tbt).judged);
}

/// `cargo nextest run -p load --run-ignored only a_report_of_a_long_run --no-capture` tells the time.
#[test]
#[ignore = "a measurement"]
fn a_report_of_a_long_run_is_there_in_a_second_or_two() {
    let odd = |number: u64| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1 << 24) as f64;
    let samples = (0..50_000_u64).map(|id| {
        let mut at = id as f64 * 10.0;
        let gap =
            |token: u64| -(10.0 + 90.0 * f64::from(u8::from(token == 0))) * (1.0 - odd(id * 64 + token)).ln();
        let times: Vec<f64> = (0..64)
            .map(|token| {
                at += gap(token);
                at
            })
            .collect();
        call(id, id as f64 * 10.0, &times)
    });
    let mut results = run_of(samples.collect());
    for tokens in [1, 2] {
        results.samples[0].chunks[5].tokens = tokens;
        let began = std::time::Instant::now();
        let table = Table::full(&results);
        println!("{:.2} s", began.elapsed().as_secs_f64());
        assert!(table.metric(Metric::Itl).judged.mean.interval().is_some());
    }
}
