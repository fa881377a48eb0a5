//! How exact the client's stamps are, and how much it carries: `cargo run --release -p load --example mock_accuracy`.
//!
//! The backend is this program again, as a process of its own, so that it shares nothing with the client but the machine.
//! `accuracy`: 200 calls a second, answered after 50 ms by 20 tokens 10 ms apart; the errors of TTFT and ITL are printed.
//! `carry`: users that ask without a pause for answers of 100 tokens 5 ms apart. `long CALLS`: short answers, for memory
//! over a long run.

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/run/mock.rs"]
mod mock;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use load::adapter::openai::OpenAi;
use load::adapter::{Endpoint, Form};
use load::client::{Address, Client, Clock};
use load::results::{Results, Target};
use load::run::{Load, Plan, Progress, Think, run};
use load::sample::Sample;
use load::schedule::{Call, CallId, Prompt, Said, Workload};
use mock::{Mock, at, done, finish, token, usage};
use tokio::sync::watch;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    match arguments.first().map(String::as_str) {
        Some("serve") => serve(number(1, 0), number(2, 0), number(3, 1)),
        Some("carry") => carry(number(1, 50) as usize, number(2, 10)),
        Some("long") => long(number(1, 100_000)),
        _ => accuracy(number(1, 200), number(2, 10)),
    }
}

/// Serves until its input closes.
fn serve(first_ms: u64, gap_ms: u64, tokens: u64) {
    let mock = Mock::start(move |_, _| {
        let tokens_at = (0..tokens).flat_map(|index| [at(first_ms + gap_ms * index), token("word ")]);
        tokens_at.chain([finish("length"), usage(7, tokens as u32), done()]).collect()
    });
    println!("{}", mock.url);
    let _ = std::io::stdin().read_line(&mut String::new());
}

struct Questions(u64);

impl Workload for Questions {
    fn len(&self) -> Option<u64> {
        Some(self.0)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let content = format!("question {}", id.0).into();
        (id.0 < self.0).then(|| Call {
            id,
            prompt: Prompt::Chat(vec![Said::Message { role: "user".into(), content }]),
            max_tokens: 16,
            ignore_eos: false,
            after: Vec::new(),
            session: None,
            prompt_tokens: None,
        })
    }

    fn describe(&self) -> String {
        "questions".to_owned()
    }
}

/// A run of `load` against a server of its own that answers with `tokens` tokens.
fn against([first_ms, gap_ms, tokens]: [u64; 3], load: Load, calls: u64, seconds: Option<u64>) -> Results {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .args([first_ms, gap_ms, tokens].map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let url = url.trim().to_owned();
    let form =
        Form { model: "mock".into(), endpoint: Endpoint::Chat, stream: true, extra: Default::default() };
    let target = Target {
        url: url.clone(),
        kind: "opaque".into(),
        model: "mock".into(),
        endpoint: "chat".into(),
        stream: true,
    };
    let plan = Plan {
        target,
        adapter: Arc::new(OpenAi::new(form)),
        workload: Arc::new(Questions(calls)),
        load,
        seed: 1,
        requests: None,
        duration: seconds.map(Duration::from_secs),
        warm_up: Duration::ZERO,
        cool_down: Duration::ZERO,
        in_flight_max: 4096,
        drain: Duration::from_secs(10),
        samples_max: 2000,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let results = runtime.block_on(async {
        let address = Address::new(&url).unwrap();
        let client = Arc::new(Client::new(address, None, Duration::from_secs(60), Clock::start()));
        let (_cancel, cancelled) = watch::channel(false);
        run(plan, client, watch::channel(Progress::default()).0, cancelled).await.unwrap()
    });
    drop(server.stdin.take());
    server.wait().unwrap();
    results
}

fn accuracy(rate: u64, seconds: u64) {
    let gap = Duration::from_nanos(1_000_000_000 / rate);
    // Moved within their interval, evenly spread: otherwise all tokens of all answers fall on the same few instants, and the
    // backend's threads, which all wake then, make each other late.
    let spread = move |index: u32| gap.mul_f64((f64::from(index) * 0.618_033_988_75).fract());
    let arrivals = Box::new((0..).map(move |index: u32| gap * index + spread(index)));
    let load = Load::Open { arrivals, description: "even, spread".to_owned(), mean_per_s: None };
    let results = against([50, 10, 20], load, rate * seconds, None);
    let first = |from: fn(&Sample) -> u64| {
        results.samples.iter().map(|sample| (sample.chunks[0].at_ns - from(sample)) as f64 / 1e6).collect()
    };
    print("TTFT from the intended time", first(|sample| sample.intended_ns), 50.0);
    print("TTFT from the send time", first(|sample| sample.sent_ns.unwrap()), 50.0);
    let gaps = results.samples.iter().flat_map(|sample| sample.chunks.windows(2));
    print("ITL", gaps.map(|pair| (pair[1].at_ns - pair[0].at_ns) as f64 / 1e6).collect(), 10.0);
    summary(&results);
}

fn carry(users: usize, seconds: u64) {
    let load = Load::Closed { users, think: Think::Constant(Duration::ZERO) };
    let results = against([5, 5, 100], load, u64::MAX, Some(seconds));
    // Each answer has its tokens, a finish reason, usage and [DONE].
    let events = results.outcomes["finished"] * 103;
    println!("{:.0} events/s", events as f64 * 1e9 / results.window.run_ns as f64);
    summary(&results);
}

fn long(calls: u64) {
    let load = Load::Closed { users: 16, think: Think::Constant(Duration::ZERO) };
    let results = against([0, 0, 3], load, calls, None);
    println!("{:.0} calls/s", calls as f64 * 1e9 / results.window.run_ns as f64);
    summary(&results);
}

fn print(name: &str, mut values: Vec<f64>, injected: f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let error = |share: f64| values[(last as f64 * share).round() as usize] - injected;
    println!(
        "{name}, error in ms: p1 {:+.3}, p50 {:+.3}, p99 {:+.3}, worst {:+.3}, of {}",
        error(0.01),
        error(0.5),
        error(0.99),
        error(1.0),
        values.len()
    );
}

fn summary(results: &Results) {
    println!("{:?}\n{:?}", results.outcomes, results.health);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("peak memory unknown"));
}
