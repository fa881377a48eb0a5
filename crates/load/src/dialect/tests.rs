use super::*;
use crate::metrics::fixture::{call, ns, run, steady, timed_out};

/// Two calls, whose every figure is worked out by hand below. The second is sent 40 ms late.
///
/// Call 0: intended and sent 0, role frame 10, tokens 100 120 140 160 180, last byte 190.
/// Call 1: intended 1000, sent 1040, role frame 1045, tokens 1140 and 1340 (4 tokens in the second frame), last byte 1350.
fn two() -> Results {
    let mut first = call(0, 0.0, &[100.0, 120.0, 140.0, 160.0, 180.0]);
    first.first_byte_ns = Some(ns(10.0));
    first.last_byte_ns = Some(ns(190.0));
    first.empty_frames = vec![ns(10.0), ns(190.0)];
    let mut second = call(1, 1000.0, &[1140.0, 1340.0]);
    second.sent_ns = Some(ns(1040.0));
    second.first_byte_ns = Some(ns(1045.0));
    second.last_byte_ns = Some(ns(1350.0));
    second.empty_frames = vec![ns(1045.0), ns(1350.0)];
    second.chunks[1].tokens = 4;
    second.tokens.output = Some(5);
    let mut results = run(vec![first, second]);
    results.target.endpoint = "chat".to_owned();
    results
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6 * expected.abs().max(1.0), "{value} is not {expected}");
}

#[test]
fn vllm_counts_role_and_finish_frames_and_starts_at_sending() {
    let figures = vllm::figures(&two(), None);
    let ttft = figures.ttft_ms.unwrap();
    near(ttft.mean, 7.5); // 10 and 5: the role frames
    // Gaps: 90, 20, 20, 20, 20, 10 and 95, 200, 10.
    let itl = figures.itl_ms.unwrap();
    assert_eq!(itl.count, 9);
    near(itl.mean, (180.0 + 305.0) / 9.0);
    near(itl.p50, 20.0);
    near(figures.e2el_ms.unwrap().mean, (190.0 + 310.0) / 2.0);
    near(figures.tpot_ms.unwrap().mean, (180.0 / 4.0 + 305.0 / 4.0) / 2.0);
    near(figures.duration, 1.350);
    near(figures.output_throughput, 10.0 / 1.350);
    near(figures.total_token_throughput, 210.0 / 1.350);
    assert_eq!((figures.completed, figures.max_concurrent_requests), (2, 1));
}

#[test]
fn vllm_on_completions_of_vllm_has_tokens_alone() {
    let mut results = two();
    for sample in &mut results.samples {
        sample.empty_frames.clear();
    }
    let slo: Slo = "ttft_p95<100ms,tpot_mean<30ms".parse().unwrap();
    let Report::Vllm(figures) = translate(&results, Dialect::Vllm, Some(&slo)) else { panic!() };
    near(figures.ttft_ms.unwrap().mean, 100.0);
    near(figures.tpot_ms.unwrap().mean, (20.0 + 50.0) / 2.0);
    near(figures.itl_ms.unwrap().mean, (80.0 + 200.0) / 5.0);
    // Limits are inclusive: 100 ms is within 100 ms, 50 ms a token is not within 30.
    near(figures.request_goodput.unwrap(), 1.0 / 1.350);
}

#[test]
fn vllm_takes_a_cut_stream_for_a_success_and_a_timeout_for_a_failure() {
    let mut results = two();
    results.samples[0].outcome = Outcome::CutShort { detail: String::new() };
    results.samples.push(timed_out(2, 100.0));
    let Report::Vllm(figures) = translate(&results, Dialect::Vllm, None) else { panic!() };
    assert_eq!((figures.completed, figures.failed), (2, 1));
    assert!(figures.notes.iter().any(|note| note.contains("1 calls failed after their first token")));
}

#[test]
fn aiperf_has_one_itl_a_call_and_pooled_chunks() {
    let Report::Aiperf(figures) = translate(&two(), Dialect::Aiperf, None) else { panic!() };
    near(figures.time_to_first_token_ms.unwrap().mean, 100.0); // content alone, from sending
    near(figures.inter_token_latency_ms.unwrap().mean, (20.0 + 50.0) / 2.0);
    near(figures.inter_chunk_latency_ms.unwrap().mean, (80.0 + 200.0) / 5.0);
    near(figures.request_latency_ms.unwrap().mean, (180.0 + 300.0) / 2.0);
    near(figures.time_to_second_token_ms.unwrap().mean, (20.0 + 200.0) / 2.0);
    near(figures.output_token_throughput_per_user.unwrap().mean, (50.0 + 20.0) / 2.0);
    near(figures.benchmark_duration_s, 1.340); // to the last content
    near(figures.output_token_throughput, 10.0 / 1.340);
    near(figures.prefill_throughput_per_user.unwrap().mean, 1000.0);
    assert_eq!(figures.adj_request_latency_ms, None);
}

#[test]
fn aiperf_adjusts_percentiles_for_failures() {
    let mut samples: Vec<_> = (0..9).map(|id| steady(id, id as f64, 10.0 + id as f64, 1.0, 3)).collect();
    samples.push(timed_out(9, 9.0));
    let Report::Aiperf(figures) = translate(&run(samples), Dialect::Aiperf, None) else { panic!() };
    let adjusted = figures.adj_time_to_first_token_ms.unwrap().map(|real| real.0);
    // Ranks 4.5 (to even: 4), 8.1, 8.55 and 8.91 of 10.
    assert_eq!(adjusted, [14.0, 18.0, f64::INFINITY, f64::INFINITY]);
    assert_eq!(figures.time_to_first_token_ms.unwrap().max, 18.0);
    near(figures.request_error_rate, 10.0);
}

#[test]
fn guidellm_puts_the_first_token_into_tpot_and_weighs_by_tokens() {
    let Report::Guidellm(figures) = translate(&two(), Dialect::Guidellm, None) else { panic!() };
    near(figures.time_to_first_token_ms.unwrap().mean, 100.0);
    near(figures.time_per_output_token_ms.unwrap().mean, (36.0 * 5.0 + 60.0 * 5.0) / 10.0);
    near(figures.inter_token_latency_ms.unwrap().mean, (20.0 * 4.0 + 50.0 * 4.0) / 8.0);
    near(figures.request_latency_s.unwrap().mean, (0.190 + 0.310) / 2.0);
    near(figures.request_concurrency_mean, 0.5 / 1.350);
    near(figures.output_tokens_per_second, 10.0 / 1.350);
}

#[test]
fn guidellm_percentiles_are_the_first_value_that_reaches_the_share() {
    let weighted = guidellm::Weighted::of(vec![(10.0, 1.0), (20.0, 8.0), (30.0, 1.0)]).unwrap();
    assert_eq!((weighted.p50, weighted.p90, weighted.p95), (20.0, 20.0, 30.0));
    near(weighted.mean, 20.0);
    assert_eq!(guidellm::Weighted::of(vec![(1.0, 0.0)]), None);
}

#[test]
fn mlperf_counts_from_the_schedule_and_to_completion() {
    let Report::Mlperf(figures) = translate(&two(), Dialect::Mlperf, None) else { panic!() };
    near(figures.first_token_latency_ms.unwrap().mean, (100.0 + 140.0) / 2.0);
    near(figures.time_per_output_token_ms.unwrap().mean, (90.0 / 4.0 + 210.0 / 4.0) / 2.0);
    near(figures.latency_ms.unwrap().mean, (190.0 + 350.0) / 2.0);
    near(figures.scheduled_samples_per_second, 1.0);
    near(figures.completed_samples_per_second, 1.0 / 1.350);
    near(figures.completed_tokens_per_second, 10.0 / 1.350);
    // Of two values, index 2 * 0.5 = 1 is the larger one.
    near(figures.first_token_latency_ms.unwrap().p50, 140.0);
}

#[test]
fn every_dialect_survives_a_run_without_calls_and_json() {
    for &dialect in Dialect::ALL {
        let empty = translate(&run(Vec::new()), dialect, None);
        let json = serde_json::to_string(&empty).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), empty);
        assert_eq!(dialect.name().parse(), Ok(dialect));
    }
    assert!("locust".parse::<Dialect>().unwrap_err().contains("guidellm"));
}
