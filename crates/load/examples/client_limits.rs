//! How right the client is, and how much it carries, against a server with known delays in the same process:
//! `cargo run --release -p load --example client_limits`
//!
//! Both share the machine's cores, so the figures are a lower bound of what the client can do alone.

#![allow(clippy::unwrap_used, reason = "what fails here ends the measurement")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/run/mock.rs"]
mod mock;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use load::adapter::{Endpoint, Form, of_kind};
use load::arrivals::ArrivalSpec;
use load::client::{Address, Client, Clock};
use load::results::{Results, Target};
use load::run::{Load, Plan, Progress, Think, run};
use load::schedule::{Call, CallId, Prompt, Workload};
use mock::{Mock, Step, done, finish, token};
use tokio::sync::watch;

struct Short(u64);

impl Workload for Short {
    fn len(&self) -> Option<u64> {
        Some(self.0)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        (id.0 < self.0).then(|| Call {
            id,
            prompt: Prompt::Text(id.0.to_string().into()),
            max_tokens: 16,
            ignore_eos: false,
            after: Vec::new(),
            session: None,
            prompt_tokens: None,
        })
    }

    fn describe(&self) -> String {
        format!("{} short prompts", self.0)
    }
}

fn measure(mock: &Mock, load: Load, calls: u64, samples_max: usize) -> Results {
    let target = Target {
        url: mock.url.clone(),
        kind: "opaque".into(),
        model: "mock".into(),
        endpoint: "chat".into(),
        stream: true,
    };
    let form =
        Form { model: "mock".into(), endpoint: Endpoint::Chat, stream: true, extra: serde_json::Map::new() };
    let plan = Plan {
        target,
        adapter: of_kind("opaque", form).unwrap(),
        workload: Arc::new(Short(calls)),
        load,
        seed: 1,
        requests: None,
        duration: None,
        warm_up: Duration::ZERO,
        cool_down: Duration::ZERO,
        in_flight_max: 10_000,
        drain: Duration::from_secs(30),
        samples_max,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = Address::new(&plan.target.url).unwrap();
        let client = Arc::new(Client::new(address, None, Duration::from_secs(30), Clock::start()));
        let (_cancel, cancelled) = watch::channel(false);
        run(plan, client, watch::channel(Progress::default()).0, cancelled).await.unwrap()
    })
}

fn at_rate(spec: &str) -> Load {
    let spec = ArrivalSpec::parse(spec).unwrap();
    Load::Open {
        arrivals: spec.open(1).unwrap().arrivals,
        description: spec.to_string(),
        mean_per_s: spec.mean_per_s(),
    }
}

/// 200 calls a second, 50 ms to the first token, 10 ms between tokens. The server notes when it wrote each token, since
/// it is late itself now and then: the client's error is what it saw against what was done.
fn accuracy() {
    type Written = Mutex<HashMap<(u64, usize), Instant>>;
    let written: Arc<Written> = Arc::default();
    let notes = Arc::clone(&written);
    let mock = Mock::start(move |_, body| {
        let call: u64 = body["messages"][0]["content"].as_str().unwrap().parse().unwrap();
        let mut steps: Vec<Step> = Vec::new();
        for index in 0..8 {
            let notes = Arc::clone(&notes);
            let note = move || {
                notes.lock().unwrap().insert((call, index), Instant::now());
            };
            steps.extend([mock::at(50 + 10 * index as u64), Step::Do(Box::new(note)), token(" x")]);
        }
        steps.extend([finish("stop"), done()]);
        steps
    });
    let began = Instant::now();
    let found = measure(&mock, at_rate("constant:200"), 2000, 10_000);
    let written = written.lock().unwrap();
    let (mut ttft, mut itl, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    // The run's clock began within microseconds of `began`; the least difference ever seen takes that out.
    let ns = |moment: &Instant| (*moment - began).as_nanos() as f64;
    for sample in &found.samples {
        ttft.push((sample.chunks[0].at_ns - sample.intended_ns) as f64 / 1e6);
        for (index, chunk) in sample.chunks.iter().enumerate() {
            errors.push((chunk.at_ns as f64 - ns(&written[&(sample.call.0, index)])) / 1e6);
        }
        for (index, pair) in sample.chunks.windows(2).enumerate() {
            let done = ns(&written[&(sample.call.0, index + 1)]) - ns(&written[&(sample.call.0, index)]);
            itl.push((pair[1].at_ns - pair[0].at_ns) as f64 / 1e6 - done / 1e6);
        }
    }
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    errors.iter_mut().for_each(|error| *error -= least);
    itl.iter_mut().for_each(|error: &mut f64| *error = error.abs());
    for (name, values) in [
        ("TTFT with 50 ms injected", &mut ttft),
        ("moment of a token, late by", &mut errors),
        ("ITL, wrong by", &mut itl),
    ] {
        values.sort_by(f64::total_cmp);
        let at = |percent: f64| load::stats::percentile(values, percent);
        println!(
            "200 calls/s, {name}: p50 {:.3}, p99 {:.3}, worst {:.3} ms over {} values",
            at(50.0),
            at(99.0),
            at(100.0),
            values.len()
        );
    }
    println!(
        "  sent late: {:?} ns (p50, p99, worst); {:.2} cores with the server",
        found.health.lag_ns, found.health.cpu_cores
    );
}

/// Streams of 50 frames, `rate` of them a second.
fn events(rate: u32) {
    let mock = Mock::start(|_, _| {
        let mut steps: Vec<Step> = Vec::new();
        for index in 0..50 {
            steps.extend([mock::at(20 * index), token(" x")]);
        }
        steps.extend([finish("stop"), done()]);
        steps
    });
    let found = measure(&mock, at_rate(&format!("constant:{rate}")), u64::from(rate) * 10, 100);
    println!(
        "{} streamed events a second: sent late {:.2} ms at p99, stall {:.1} ms, {} finished, {:.2} cores with the server",
        rate * 50,
        found.health.lag_ns[1] as f64 / 1e6,
        found.health.stall_ns as f64 / 1e6,
        found.outcomes["finished"],
        found.health.cpu_cores
    );
}

/// As many calls as it can, with few kept: memory and rate.
fn many(calls: u64) {
    let mock = Mock::start(|_, _| vec![token("x"), finish("stop"), done()]);
    let began = Instant::now();
    let users = Load::Closed { users: 16, think: Think::Constant(Duration::ZERO) };
    let found = measure(&mock, users, calls, 1000);
    let seconds = began.elapsed().as_secs_f64();
    let peak = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
    println!(
        "{calls} calls in {seconds:.1} s ({:.0}/s), {} kept; {peak}",
        calls as f64 / seconds,
        found.samples.len()
    );
}

fn main() {
    accuracy();
    events(100);
    events(200);
    many(20_000);
    many(200_000);
}
