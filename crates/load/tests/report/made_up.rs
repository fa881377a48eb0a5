//! Made-up runs from a seed, so that reports can be seen and tested without a server: a small simulation of a server that
//! computes prompts one after the other, decodes for a bounded number of calls at once, and queues the rest.

use std::collections::{BTreeMap, VecDeque};

use ledger::Stage;
use load::capacity::{Machines, Price, capacity};
use load::report::Report;
use load::report::assemble::{self, Parts};
use load::results::{Health, Results, Target, Window};
use load::sample::{Channel, Chunk, CountSource, Outcome, Sample, ServerAccount, Tokens};
use load::schedule::{CallId, Pacing};
use load::search::answer::Book;
use load::search::{LoadUnit, Plan, Stopped};
use load::slo::Slo;
use load::verdict::closing;
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
            empty_frames: Vec::new(),
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
        held: 0,
        histograms: BTreeMap::new(),
        samples,
        server_means: None,
        samples_dropped: 0,
    }
}

/// A report of one run.
pub fn single(made: Made) -> Report {
    let results = results(made);
    let title = format!("{} at {} calls/s", results.target.model, made.calls_per_s);
    let verdict = assemble::answers(&closing(std::slice::from_ref(&results), None));
    assemble::report(Parts {
        title,
        results: vec![results],
        focus: 0,
        slo: None,
        search: None,
        capacity: None,
        verdict,
    })
}

/// A report of a sweep, of which the first level that breaks an objective is shown in detail, because it says most.
pub fn sweep(made: Made, loads: &[f64]) -> Report {
    let slo: Slo = "ttft_p95<2s,itl_p95<90ms,errors<2%".parse().unwrap_or_else(|error| panic!("{error}"));
    let runs: Vec<Results> = loads
        .iter()
        .enumerate()
        .map(|(index, load)| results(Made { seed: made.seed + index as u64, calls_per_s: *load, ..made }))
        .collect();
    let mut book = Book::new(Plan::new(LoadUnit::Qps));
    for (run, load) in runs.iter().zip(loads) {
        book.record(LoadUnit::Qps.level(*load), run, &slo);
    }
    let answer = book.close(Stopped::Found);
    let machines = Machines::of(Some(1), None).unwrap_or_else(|error| panic!("{error}"));
    let price: Price = "1.20/h".parse().unwrap_or_else(|error| panic!("{error}"));
    let capacity = capacity(&answer, machines, Some(&price));
    let met = answer.load.map_or(0.0, |load| load.0);
    let verdict = assemble::answers(&closing(&runs, Some(&slo)));
    assemble::report(Parts {
        title: format!("{}: calls a second @ SLO", runs[0].target.model),
        focus: loads.iter().position(|load| *load > met).unwrap_or(0),
        results: runs,
        slo: Some(&slo),
        search: Some(&answer),
        capacity: Some(&capacity),
        verdict,
    })
}
