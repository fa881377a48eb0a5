//! Made-up runs from a seed, so that reports can be seen and tested without a server: a small simulation of a server that
//! computes prompts one after the other, decodes for a bounded number of calls at once, and queues the rest.

use std::collections::{BTreeMap, VecDeque};

use ledger::Stage;
use load::report::{Answer, Interval, LevelRow, MetricRow, Objective, Origin, Report, SloView};
use load::results::{Health, Results, Target, Window};
use load::sample::{Channel, Chunk, CountSource, Outcome, Sample, ServerAccount, Tokens};
use load::schedule::{CallId, Pacing};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

const MS: f64 = 1e6; // nanoseconds

/// What to make up.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub seed: u64,
    pub calls_per_s: f64,
    pub seconds: f64,
    /// Whether the server gives its account, as Firstlight does.
    pub account: bool,
    /// Tokens an answer has at most; fewer make large runs cheaper.
    pub output_max: u32,
}

impl Default for Made {
    fn default() -> Self {
        Made { seed: 7, calls_per_s: 4.0, seconds: 120.0, account: true, output_max: 260 }
    }
}

const RUNNING_MAX: usize = 16;
const WAITING_MAX: usize = 48;
const TIMEOUT: f64 = 8_000.0 * MS;
const NETWORK: f64 = 0.4 * MS;

struct Running {
    index: usize,
    left: u32,
    prefill_end: f64,
    decode: f64,
    waited: f64,
}

/// One run.
pub fn results(made: Made) -> Results {
    let mut rng = ChaCha12Rng::seed_from_u64(made.seed);
    let mut samples = calls(made, &mut rng);
    let (mut now, mut arrived) = (0.0f64, 0);
    let mut waiting = VecDeque::new();
    let mut running: Vec<Running> = Vec::new();
    let hands_over = |sample: &Sample| sample.sent_ns.unwrap_or(sample.intended_ns) as f64 + NETWORK;
    loop {
        while arrived < samples.len() && hands_over(&samples[arrived]) <= now {
            if waiting.len() < WAITING_MAX {
                waiting.push_back(arrived);
            } else {
                refuse(&mut samples[arrived]);
            }
            arrived += 1;
        }
        if running.len() < RUNNING_MAX
            && let Some(index) = waiting.pop_front()
        {
            if now - hands_over(&samples[index]) > TIMEOUT {
                samples[index].outcome = Outcome::TimedOut;
                continue;
            }
            let took = (4.0 + f64::from(samples[index].tokens.prompt.unwrap_or(0)) * 0.11) * MS;
            let before = now;
            now += took;
            running.iter_mut().for_each(|other| other.waited += took);
            first_token(&mut samples[index], before, now, made.account);
            let left = samples[index].tokens.output.unwrap_or(1) - 1;
            running.push(Running { index, left, prefill_end: now, decode: 0.0, waited: 0.0 });
        } else if !running.is_empty() {
            let took = (9.0 + 0.5 * running.len() as f64 + rng.random::<f64>() * 2.0) * MS;
            now += took;
            for call in &mut running {
                call.decode += took;
                call.left = call.left.saturating_sub(1);
                let at_ns = (now + NETWORK * (1.0 + rng.random::<f64>())) as u64;
                samples[call.index].chunks.push(Chunk { at_ns, tokens: 1, channel: Channel::Answer });
            }
            let (ended, on): (Vec<_>, Vec<_>) = running.into_iter().partition(|call| call.left == 0);
            ended.iter().for_each(|call| finish(&mut samples[call.index], call, made.account, &mut rng));
            running = on;
        } else if arrived < samples.len() {
            now = hands_over(&samples[arrived]);
        } else {
            break;
        }
    }
    account_for(made, samples)
}

/// The schedule: Poisson arrivals, log-normal prompt lengths.
fn calls(made: Made, rng: &mut ChaCha12Rng) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut at = 0.0;
    loop {
        at += -(1.0 - rng.random::<f64>()).ln() / made.calls_per_s;
        if at >= made.seconds {
            return samples;
        }
        let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let prompt = (600.0 * (normal * 0.7).exp()).clamp(20.0, 6_000.0) as u32;
        let output = rng.random_range(8..made.output_max.max(9));
        let intended_ns = (at * 1e9) as u64;
        let lag = (rng.random::<f64>() * 0.3 * MS) as u64;
        samples.push(Sample {
            call: CallId(samples.len() as u64),
            session: None,
            body: format!("{:016x}", rng.random::<u64>()),
            outcome: Outcome::Finished,
            intended_ns,
            sent_ns: Some(intended_ns + lag),
            headers_ns: None,
            first_byte_ns: None,
            chunks: Vec::new(),
            last_byte_ns: None,
            tokens: Tokens {
                prompt: Some(prompt),
                output: Some(output),
                source: CountSource::Usage,
                ..Tokens::default()
            },
            server: ServerAccount { kind: kind(made.account).to_owned(), ..ServerAccount::default() },
            status: None,
            finish_reason: None,
            retries: 0,
        });
    }
}

fn kind(account: bool) -> &'static str {
    if account { "firstlight" } else { "opaque" }
}

fn refuse(sample: &mut Sample) {
    let at = sample.sent_ns.map(|sent| sent + (1.2 * MS) as u64);
    sample.outcome = Outcome::Refused { detail: "the queue is full: 48 requests wait".to_owned() };
    (sample.headers_ns, sample.first_byte_ns, sample.last_byte_ns) = (at, at, at);
    sample.status = Some(503);
    sample.tokens = Tokens::default();
}

fn first_token(sample: &mut Sample, before: f64, now: f64, account: bool) {
    let at = (now + NETWORK) as u64;
    sample.status = Some(200);
    sample.headers_ns = Some(at - 90_000);
    sample.first_byte_ns = Some(at - 60_000);
    sample.chunks.push(Chunk { at_ns: at, tokens: 1, channel: Channel::Answer });
    if account {
        let queued = before - sample.sent_ns.unwrap_or(0) as f64 - NETWORK - 1.0 * MS;
        sample.server.to_first_token = vec![
            (Stage::Accept, (0.05 * MS) as u64),
            (Stage::Render, (0.25 * MS) as u64),
            (Stage::Tokenize, (0.6 * MS) as u64),
            (Stage::Queue, queued.max(0.0) as u64),
            (Stage::Prefill, (now - before - 0.3 * MS) as u64),
            (Stage::Sample, (0.1 * MS) as u64),
            (Stage::Write, (0.1 * MS) as u64),
        ];
    }
}

fn finish(sample: &mut Sample, call: &Running, account: bool, rng: &mut ChaCha12Rng) {
    let last = sample.chunks.last().map_or(0, |chunk| chunk.at_ns);
    sample.last_byte_ns = Some(last + 150_000);
    sample.tokens.counted = sample.chunks.len() as u32;
    sample.finish_reason = Some("stop".to_owned());
    if rng.random::<f64>() < 0.004 {
        let detail = "the connection was closed without a finish reason".to_owned();
        sample.outcome = Outcome::CutShort { detail };
        sample.finish_reason = None;
    } else if rng.random::<f64>() < 0.02 {
        // Two tokens came in one chunk.
        sample.tokens.counted -= 1;
    }
    if account && last as f64 - call.prefill_end > call.decode + call.waited {
        sample.server.after_it =
            vec![(Stage::Decode, call.decode as u64), (Stage::DecodeWait, call.waited as u64)];
    }
}

fn account_for(made: Made, samples: Vec<Sample>) -> Results {
    let mut outcomes = BTreeMap::new();
    for sample in &samples {
        *outcomes.entry(sample.outcome.class().to_owned()).or_insert(0) += 1;
    }
    let run_ns = samples.iter().filter_map(|sample| sample.last_byte_ns).max().unwrap_or(0);
    let end_ns = (made.seconds * 1e9) as u64;
    Results {
        schema: Results::SCHEMA,
        tool: "firstlight 0.1.0".to_owned(),
        began_unix_s: 1_790_000_000,
        target: Target {
            url: "http://127.0.0.1:8000/v1".to_owned(),
            kind: kind(made.account).to_owned(),
            model: "qwen2.5-coder-1.5b-instruct".to_owned(),
            endpoint: "chat".to_owned(),
            stream: true,
        },
        workload: format!(
            "synthetic, prompts log-normal around 600 tokens, answers 8 to {}",
            made.output_max
        ),
        seed: made.seed,
        pacing: Pacing::Open { description: "Poisson".to_owned(), mean_per_s: Some(made.calls_per_s) },
        window: Window { from_ns: end_ns / 12, to_ns: end_ns - end_ns / 12, run_ns: run_ns.max(end_ns) },
        health: Health {
            lag_ns: [148_000, 297_000, 299_900],
            stall_ns: 810_000,
            cpu_cores: 0.11,
            machine_busy: Some(0.93),
            connection_errors: 0,
            retries: 0,
            void: Vec::new(),
        },
        outcomes,
        samples,
        held: 0,
        histograms: std::collections::BTreeMap::new(),
        samples_dropped: 0,
    }
}

/// Milliseconds of calls that count, failed ones as infinite, sorted.
fn values(results: &Results, of: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
    let counted = results.samples.iter().filter(|sample| load::report::tally::counts(sample, results.window));
    let value = |sample: &Sample| if sample.outcome.is_failure() { Some(f64::INFINITY) } else { of(sample) };
    let mut found: Vec<f64> = counted.filter_map(value).collect();
    found.sort_by(f64::total_cmp);
    found
}

fn at(values: &[f64], q: f64) -> Option<f64> {
    values.get(((q * values.len() as f64).ceil() as usize).max(1) - 1).copied()
}

fn row(name: &str, definition: &str, from: Origin, values: &[f64]) -> MetricRow {
    let n = values.len() as f64;
    let spread = 1.96 * (0.95 * 0.05 / n).sqrt(); // of the rank, by the binomial distribution
    let ci95 = at(values, 0.95 - spread).zip(at(values, (0.95 + spread).min(1.0)));
    let infinite = values.iter().filter(|value| value.is_infinite()).count() as u64;
    MetricRow {
        name: name.to_owned(),
        definition: definition.to_owned(),
        unit: "ms".to_owned(),
        from,
        n: values.len() as u64,
        infinite,
        mean: Some(values.iter().sum::<f64>() / n),
        p50: at(values, 0.5),
        p90: at(values, 0.9),
        p95: at(values, 0.95),
        p99: at(values, 0.99),
        max: values.last().copied(),
        ci95: ci95.map(|(low, high)| Interval { of: "p95".to_owned(), low, high }),
        note: None,
    }
}

fn rate(name: &str, definition: &str, unit: &str, value: f64, n: u64) -> MetricRow {
    MetricRow {
        name: name.to_owned(),
        definition: definition.to_owned(),
        unit: unit.to_owned(),
        from: Origin::Neither,
        n,
        mean: Some(value),
        ..MetricRow::default()
    }
}

fn ms(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / MS
}

fn ttft(results: &Results) -> Vec<f64> {
    values(results, |sample| Some(ms(sample.intended_ns, sample.chunks.first()?.at_ns)))
}

fn itl(results: &Results) -> Vec<f64> {
    let counted = results.samples.iter().filter(|sample| load::report::tally::counts(sample, results.window));
    let gaps = counted.flat_map(|sample| sample.chunks.windows(2));
    let mut found: Vec<f64> = gaps.map(|pair| ms(pair[0].at_ns, pair[1].at_ns)).collect();
    found.sort_by(f64::total_cmp);
    found
}

fn throughput(results: &Results) -> f64 {
    let inside = results.window.from_ns..results.window.to_ns;
    let chunks = results.samples.iter().flat_map(|sample| &sample.chunks);
    let tokens: u64 =
        chunks.filter(|chunk| inside.contains(&chunk.at_ns)).map(|chunk| u64::from(chunk.tokens)).sum();
    tokens as f64 / ms(results.window.from_ns, results.window.to_ns) * 1e3
}

fn metrics(results: &Results) -> Vec<MetricRow> {
    let ttft = ttft(results);
    let from_sent = values(results, |sample| Some(ms(sample.sent_ns?, sample.chunks.first()?.at_ns)));
    let e2e = values(results, |sample| Some(ms(sample.intended_ns, sample.chunks.last()?.at_ns)));
    let n = ttft.len() as u64;
    let ended = ttft.iter().filter(|value| value.is_finite()).count() as u64;
    let seconds = ms(results.window.from_ns, results.window.to_ns) / 1e3;
    vec![
        row("TTFT", "From the intended time to the first token of any channel.", Origin::Intended, &ttft),
        row("E2E", "From the intended time to the last token.", Origin::Intended, &e2e),
        row("TTFT", "From the request's first byte to the first token.", Origin::Sent, &from_sent),
        row("ITL", "Between neighbouring chunks that carry tokens.", Origin::Neither, &itl(results)),
        rate(
            "Output throughput",
            "Output tokens that came within the window, over its length.",
            "tokens/s",
            throughput(results),
            n,
        ),
        rate(
            "Calls ended",
            "Calls that ended without failure, over the window's length.",
            "calls/s",
            ended as f64 / seconds,
            ended,
        ),
    ]
}

/// A report of one run.
pub fn single(made: Made) -> Report {
    let results = results(made);
    Report {
        schema: Report::SCHEMA,
        title: format!("{} at {} calls/s", results.target.model, made.calls_per_s),
        focus: 0,
        metrics: metrics(&results),
        slo: None,
        levels: Vec::new(),
        verdict: verdict(made.account),
        results: vec![results],
    }
}

const TTFT_LIMIT: f64 = 2_000.0; // ms
const ITL_LIMIT: f64 = 90.0; // ms

/// A report of a sweep, of which the last level that met its objectives, or else the first one, is shown in detail.
pub fn sweep(made: Made, loads: &[f64]) -> Report {
    let runs: Vec<Results> = loads
        .iter()
        .enumerate()
        .map(|(index, load)| results(Made { seed: made.seed + index as u64, calls_per_s: *load, ..made }))
        .collect();
    let levels: Vec<LevelRow> = runs.iter().zip(loads).map(|(run, load)| level(run, *load)).collect();
    let met = levels.iter().rposition(|level| level.passes == Some(true));
    let focus = met.map_or(0, |met| (met + 1).min(levels.len() - 1)); // the first level that breaks says most
    let capacity = met.map(|met| loads[met]);
    let metrics = metrics(&runs[focus]);
    let slo = slo(&levels[focus], capacity);
    Report {
        schema: Report::SCHEMA,
        title: format!("{}: calls a second @ SLO", runs[focus].target.model),
        focus,
        metrics,
        slo: Some(slo),
        levels,
        verdict: verdict(made.account),
        results: runs,
    }
}

fn level(run: &Results, load: f64) -> LevelRow {
    let ttft = ttft(run);
    let failed = ttft.iter().filter(|value| value.is_infinite()).count();
    let errors = failed as f64 / ttft.len() as f64;
    let (ttft_p95, itl_p95) = (at(&ttft, 0.95), at(&itl(run), 0.95));
    let below = |value: Option<f64>, limit| value.is_some_and(|value| value < limit);
    LevelRow {
        load,
        load_unit: "requests/s".to_owned(),
        throughput: throughput(run),
        passes: Some(below(ttft_p95, TTFT_LIMIT) && below(itl_p95, ITL_LIMIT) && errors < 0.01),
        ttft_p95,
        itl_p95,
        errors,
        n: ttft.len() as u64,
        void: Vec::new(),
    }
}

fn slo(focus: &LevelRow, capacity: Option<f64>) -> SloView {
    let objective = |metric: &str, text: &str, limit, unit: &str, measured: Option<f64>| Objective {
        metric: metric.to_owned(),
        text: text.to_owned(),
        limit,
        unit: unit.to_owned(),
        measured,
        passes: measured.map(|measured| measured < limit),
    };
    SloView {
        objectives: vec![
            objective("ttft_p95", "ttft_p95<2s", TTFT_LIMIT, "ms", focus.ttft_p95),
            objective("itl_p95", "itl_p95<90ms", ITL_LIMIT, "ms", focus.itl_p95),
            objective("errors", "errors<1%", 1.0, "%", Some(focus.errors * 100.0)),
        ],
        capacity_ci95: capacity.map(|capacity| Interval {
            of: "capacity".to_owned(),
            low: capacity * 0.94,
            high: capacity * 1.05,
        }),
        capacity,
        capacity_unit: "requests/s".to_owned(),
        binds: Some("ttft_p95<2s".to_owned()),
        binding_stage: Some("queue".to_owned()),
        evidence: vec![
            "At the first level that breaks it, 71 % of the time to the first token is spent in queue.".to_owned(),
            "From the last level that met it to this one, queue grew by 1.9 s in the mean; no other stage by more than 40 ms."
                .to_owned(),
        ],
        cost: vec![
            ("Output tokens per dollar".to_owned(), "1.31 million".to_owned()),
            ("Calls per dollar".to_owned(), "10,200".to_owned()),
        ],
    }
}

fn verdict(account: bool) -> Vec<Answer> {
    let answer = |question: &str, answer: &str, evidence: &[&str], abstains| Answer {
        question: question.to_owned(),
        answer: answer.to_owned(),
        evidence: evidence.iter().map(|line| (*line).to_owned()).collect(),
        abstains,
    };
    let opaque =
        ["The server gives no account of its stages, so queueing and computing look alike from outside."];
    let model_or_system = if account {
        let evidence = [
            "queue is 71 % of the time to the first token, prefill 26 %.",
            "The client was late by 0.3 ms at p99.",
        ];
        answer(
            "Is it the model or the system?",
            "The system: calls wait before they are computed.",
            &evidence,
            false,
        )
    } else {
        answer(
            "Is it the model or the system?",
            "Without the server's account this stays open.",
            &opaque,
            true,
        )
    };
    vec![
        model_or_system,
        answer(
            "Is it prefill or decode?",
            "Prefill: each new prompt also interrupts the answers under way.",
            &[
                "Pauses of more than 60 ms in a stream fall together with another call's prefill in 94 % of cases.",
            ],
            false,
        ),
        answer(
            "Is it one user's experience or the system's capacity?",
            "Capacity: the same calls are fast when fewer come.",
            &["At 2 requests/s TTFT p95 is within its objective by a factor of 5."],
            false,
        ),
        answer(
            "Does the benchmark look good, or can the service go live?",
            "Not from this run alone.",
            &[
                "One repetition; a capacity wants at least 3.",
                "The workload is synthetic, and has no shared prefixes.",
            ],
            true,
        ),
    ]
}
