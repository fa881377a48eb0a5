//! How much the client carries, against a trivial server in the same process (how right it is: `mock_accuracy`):
//! `cargo run --release -p load --example client_limits`
//!
//! Both share the machine's cores, so the figures are a lower bound of what the client can do alone.

#![allow(clippy::unwrap_used, reason = "what fails here ends the measurement")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/run/mock.rs"]
mod mock;

use std::sync::Arc;
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
            prompt: Prompt::Text("one two three".into()),
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
    events(100);
    events(200);
    many(20_000);
    many(200_000);
}
