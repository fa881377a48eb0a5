use ledger::Stage;

use super::*;
use crate::metrics::fixture::{account, closed, run, steady};
use crate::sample::Sample;

fn slo() -> Slo {
    "ttft_p95<500ms,tpot_mean<50ms,errors<1%".parse().unwrap()
}

fn answers(runs: &[Results], slo: Option<&Slo>) -> [Option<Answer>; 4] {
    closing(runs, slo).map(|verdict| verdict.answer)
}

/// `users` calls at a time, one behind the other.
fn users(users: usize, make: impl Fn(u64, f64) -> Sample) -> Results {
    let mut samples = Vec::new();
    for user in 0..users {
        let mut at = user as f64 * 0.1;
        for _ in 0..60 {
            let sample = make(samples.len() as u64, at);
            at = sample.last_byte_ns.unwrap() as f64 / 1e6;
            samples.push(sample);
        }
    }
    samples.sort_by_key(|sample| sample.intended_ns);
    closed(users, samples)
}

fn told(ttft: f64, itl: f64, queue: f64) -> impl Fn(u64, f64) -> Sample {
    move |id, at| {
        let sample = steady(id, at, ttft + queue, itl, 11);
        account(sample, &[(Stage::Queue, queue), (Stage::Prefill, ttft)], &[(Stage::Decode, 10.0 * itl)])
    }
}

fn opaque(ttft: f64, itl: f64) -> impl Fn(u64, f64) -> Sample {
    move |id, at| steady(id, at, ttft, itl, 11)
}

#[test]
fn one_opaque_run_under_load_answers_nothing_but_its_objectives() {
    let runs = [users(8, opaque(900.0, 20.0))];
    let verdicts = closing(&runs, Some(&slo()));
    assert_eq!(verdicts.clone().map(|verdict| verdict.answer), [None, None, None, Some(Answer::NotLive)]);
    assert!(verdicts[0].missing[0].contains("a run with one user"));
    assert!(verdicts[1].missing[0].contains("one user"));
    assert!(verdicts[2].missing[0].contains("one user"));
}

#[test]
fn without_objectives_what_is_good_is_not_said() {
    let runs = [users(1, told(100.0, 20.0, 0.0)), users(8, told(100.0, 20.0, 2000.0))];
    let verdicts = closing(&runs, None);
    assert_eq!((verdicts[2].answer, verdicts[3].answer), (None, None));
    assert!(verdicts[2].missing[0].contains("--slo") && verdicts[3].missing[0].contains("--slo"));
    assert_eq!(verdicts[0].answer, Some(Answer::System));
}

#[test]
fn waiting_is_the_systems_and_work_alone_the_models() {
    assert_eq!(answers(&[users(8, told(100.0, 20.0, 900.0))], None)[0], Some(Answer::System));
    assert_eq!(answers(&[users(1, told(100.0, 20.0, 1.0))], None)[0], Some(Answer::Model));
    // Under load, long steps may be long because they are shared: not told from one run.
    let shared = closing(&[users(8, told(100.0, 60.0, 10.0))], None);
    assert_eq!(shared[0].answer, None);
    assert!(shared[0].text.contains("shared"), "{}", shared[0].text);
}

#[test]
fn an_opaque_sweep_from_one_user_tells_model_from_system() {
    let alone = || users(1, opaque(100.0, 20.0)); // 300 ms
    assert_eq!(answers(&[alone(), users(8, opaque(150.0, 25.0))], None)[0], Some(Answer::Model)); // 400
    assert_eq!(answers(&[users(8, opaque(800.0, 60.0)), alone()], None)[0], Some(Answer::System)); // 1400
    assert_eq!(answers(&[alone(), users(8, opaque(200.0, 40.0))], None)[0], Some(Answer::Both)); // 600
}

#[test]
fn prefill_and_decode_are_told_by_stages_or_by_one_call_at_a_time() {
    assert_eq!(answers(&[users(8, told(100.0, 90.0, 500.0))], None)[1], Some(Answer::Decode));
    assert_eq!(answers(&[users(8, told(900.0, 9.0, 500.0))], None)[1], Some(Answer::Prefill));
    assert_eq!(answers(&[users(8, told(100.0, 10.0, 500.0))], None)[1], Some(Answer::Both));
    assert_eq!(answers(&[users(1, opaque(900.0, 9.0))], None)[1], Some(Answer::Prefill));
    assert_eq!(answers(&[users(2, opaque(900.0, 9.0))], None)[1], None);
    // A server that tells only its prefill does not tell of decode.
    let half = users(8, |id, at| account(steady(id, at, 900.0, 9.0, 11), &[(Stage::Prefill, 880.0)], &[]));
    assert_eq!(answers(&[half], None)[1], None);
}

#[test]
fn stages_that_cover_too_little_of_the_users_time_do_not_answer() {
    // The account says 100 ms of the 1,300 that users waited.
    let runs = [users(8, |id, at| {
        account(steady(id, at, 1100.0, 20.0, 11), &[(Stage::Queue, 80.0)], &[(Stage::Decode, 20.0)])
    })];
    let verdict = &closing(&runs, None)[0];
    assert_eq!(verdict.answer, None);
    assert!(verdict.text.contains("in no stage"), "{}", verdict.text);
}

#[test]
fn one_user_or_capacity_needs_both_ends_of_a_sweep() {
    let slo = slo();
    let third = |runs: &[Results]| answers(runs, Some(&slo))[2];
    assert_eq!(third(&[users(1, opaque(900.0, 20.0)), users(4, opaque(900.0, 20.0))]), Some(Answer::OneUser));
    assert_eq!(third(&[users(1, opaque(90.0, 20.0)), users(4, opaque(900.0, 20.0))]), Some(Answer::Capacity));
    assert_eq!(
        third(&[users(1, opaque(90.0, 20.0)), users(4, opaque(90.0, 20.0))]),
        Some(Answer::NoLimitSeen)
    );
    assert_eq!(third(&[users(1, opaque(90.0, 20.0))]), None);
    assert_eq!(third(&[users(4, opaque(90.0, 20.0))]), None);
}

/// 20 calls a second for 100 s, each of 100 tokens, with a growth of the time to first token over the run.
fn arrivals(growth: f64) -> Results {
    run((0..2000)
        .map(|id| steady(id, id as f64 * 50.0, 100.0 + growth * id as f64 / 2000.0, 20.0, 20))
        .collect())
}

#[test]
fn going_live_takes_every_check() {
    let slo = slo();
    let fourth = |runs: &[Results]| closing(runs, Some(&slo))[3].clone();
    let live = fourth(&[arrivals(0.0)]);
    assert_eq!(live.answer, Some(Answer::Live), "{}", live.text);

    let lacks = |run: Results, why: &str| {
        let verdict = fourth(&[run]);
        assert_eq!(verdict.answer, Some(Answer::BenchmarkOnly), "{}", verdict.text);
        assert!(verdict.text.contains(why), "{} lacks {why}", verdict.text);
    };
    lacks(Results { pacing: Pacing::Closed { users: 10, think_ms: 0.0 }, ..arrivals(0.0) }, "closed loop");
    let mut few = arrivals(0.0);
    few.samples.truncate(500);
    lacks(few, "500 calls are few");
    let mut repeated = arrivals(0.0);
    repeated.samples.iter_mut().for_each(|sample| sample.body = "same".to_owned());
    lacks(repeated, "distinct");
    let mut cached = arrivals(0.0);
    cached.samples.iter_mut().for_each(|sample| sample.tokens.cached = Some(90));
    lacks(cached, "90% of the prompts came from the cache");
    // Within the objectives to the end, and growing: 480 + 400 ms is below 500 at p95 of TTFT only with care.
    let drifting = run((0..2000)
        .map(|id| steady(id, id as f64 * 50.0, 10.0 + 420.0 * id as f64 / 2000.0, 5.0, 20))
        .collect());
    lacks(drifting, "does not keep up");
    lacks(
        run((0..2000).map(|id| steady(id, id as f64 * 50.0, 480.0, 20.0, 20)).collect()),
        "of a limit is left",
    );
    assert_eq!(fourth(&[arrivals(2000.0)]).answer, Some(Answer::NotLive));
}

#[test]
fn void_runs_and_mixed_sweeps_are_no_evidence() {
    let mut void = arrivals(0.0);
    void.health.void.push("the generator lagged".to_owned());
    assert_eq!(answers(&[void], Some(&slo())), [None; 4]);
    let mut other = arrivals(0.0);
    other.workload = "another".to_owned();
    let verdicts = closing(&[arrivals(0.0), other], Some(&slo()));
    assert!(
        verdicts
            .iter()
            .all(|verdict| verdict.answer.is_none() && verdict.text.contains("sweep of one workload"))
    );
    assert_eq!(answers(&[], None), [None; 4]);
    let json = serde_json::to_string(&verdicts).unwrap();
    assert_eq!(serde_json::from_str::<[Verdict; 4]>(&json).unwrap(), verdicts);
}
