//! How exact the client's stamps are, and how much it carries: `cargo run --release -p load --example mock_accuracy`.
//!
//! The backend is this program again, as a process of its own, so that it shares nothing with the client but the machine.
//! `accuracy`: 200 calls a second, answered after 50 ms by 20 tokens 10 ms apart; the errors of TTFT and ITL are printed
//! against those delays, and against what the backend's own clock says it did: a machine that is busy makes both late. `spin`: the same with
//! a client that never sleeps.
//! `carry`: users that ask without a pause for answers of 100 tokens 5 ms apart. `long CALLS`: short answers, for memory
//! over a long run.

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/run/mock.rs"]
mod mock;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use load::adapter::openai::OpenAi;
use load::adapter::{Endpoint, Form};
use load::client::{Address, Client, Clock};
use load::results::{Results, Target};
use load::run::{Load, Plan, Progress, Think, run};
use load::sample::Sample;
use load::schedule::{Call, CallId, Prompt, Said, Workload};
use mock::{Mock, Step, at, done, finish, token, usage};
use tokio::sync::watch;

/// Calls whose times are kept, by both sides.
const KEPT_MAX: usize = 2000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    match arguments.first().map(String::as_str) {
        Some("serve") => serve(number(1, 0), number(2, 0), number(3, 1)),
        Some("carry") => carry(number(1, 50) as usize, number(2, 10)),
        Some("long") => long(number(1, 100_000)),
        mode => accuracy(number(1, 200), number(2, 10), mode == Some("spin")),
    }
}

/// Serves until its input closes, then tells when it did what: a line for each call, with the question's number and the
/// times of the request's end and of each token.
fn serve(first_ms: u64, gap_ms: u64, tokens: u64) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Arc::clone(&kept);
    let mock = Mock::start(move |_, body| {
        let text = body["messages"][0]["content"].as_str().unwrap();
        let question: u64 = text.rsplit(' ').next().unwrap().parse().unwrap();
        let times = Arc::new(Mutex::new(vec![question, unix_ns()]));
        let mut keeper = keeper.lock().unwrap();
        if keeper.len() < KEPT_MAX {
            keeper.push(Arc::clone(&times));
        }
        drop(keeper);
        let tokens_at = (0..tokens).flat_map(|index| {
            let times = Arc::clone(&times);
            let keep = Step::Do(Box::new(move || times.lock().unwrap().push(unix_ns())));
            [at(first_ms + gap_ms * index), keep, token("word ")]
        });
        tokens_at.chain([finish("length"), usage(7, tokens as u32), done()]).collect()
    });
    println!("{}", mock.url);
    let _ = std::io::stdin().read_line(&mut String::new());
    for times in kept.lock().unwrap().iter() {
        let words: Vec<String> = times.lock().unwrap().iter().map(u64::to_string).collect();
        println!("{}", words.join(" "));
    }
}

/// The one clock that two processes share.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64
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
fn against(
    [first_ms, gap_ms, tokens]: [u64; 3],
    load: Load,
    calls: u64,
    seconds: Option<u64>,
    spin: bool,
) -> (Results, String) {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .args([first_ms, gap_ms, tokens].map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut url, mut told) = (String::new(), String::new());
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut url).unwrap();
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
        samples_max: KEPT_MAX,
        spin,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let results = runtime.block_on(async {
        let address = Address::new(&url).unwrap();
        let client = Arc::new(Client::new(address, None, Duration::from_secs(60), Clock::start()));
        let (_cancel, cancelled) = watch::channel(false);
        run(plan, client, watch::channel(Progress::default()).0, cancelled).await.unwrap()
    });
    drop(server.stdin.take());
    output.read_to_string(&mut told).unwrap();
    server.wait().unwrap();
    (results, told)
}

fn accuracy(rate: u64, seconds: u64, spin: bool) {
    let gap = Duration::from_nanos(1_000_000_000 / rate);
    // Moved within their interval, evenly spread: otherwise all tokens of all answers fall on the same few instants, and the
    // backend's threads, which all wake then, make each other late.
    let spread = move |index: u32| gap.mul_f64((f64::from(index) * 0.618_033_988_75).fract());
    let arrivals = Box::new((0..).map(move |index: u32| gap * index + spread(index)));
    let load = Load::Open { arrivals, description: "even, spread".to_owned(), mean_per_s: None };
    let (results, told) = against([50, 10, 20], load, rate * seconds, None, spin);
    // Of each call, by its number: when the backend had read it, and when it wrote each token.
    let told: HashMap<u64, Vec<u64>> = told
        .lines()
        .map(|line| {
            let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
            (numbers.next().unwrap(), numbers.collect())
        })
        .collect();
    for (name, from) in [
        ("TTFT from the intended time", (|sample| sample.intended_ns) as fn(&Sample) -> u64),
        ("TTFT from the send time", |sample| sample.sent_ns.unwrap()),
    ] {
        let of = |sample: &Sample| ms(from(sample), sample.chunks[0].at_ns);
        print(name, "asked", results.samples.iter().map(|sample| of(sample) - 50.0));
        let did = |sample: &Sample| ms(told[&sample.call.0][0], told[&sample.call.0][1]);
        print(name, "did", results.samples.iter().map(|sample| of(sample) - did(sample)));
    }
    let gaps = |sample: &Sample| -> Vec<f64> {
        sample.chunks.windows(2).map(|pair| ms(pair[0].at_ns, pair[1].at_ns)).collect()
    };
    print("ITL", "asked", results.samples.iter().flat_map(gaps).map(|gap| gap - 10.0));
    let errors = results.samples.iter().flat_map(|sample| {
        let did = told[&sample.call.0][1..].windows(2).map(|pair| ms(pair[0], pair[1]));
        gaps(sample).into_iter().zip(did).map(|(gap, did)| gap - did)
    });
    print("ITL", "did", errors);
    summary(&results);
}

fn ms(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e6
}

fn carry(users: usize, seconds: u64) {
    let load = Load::Closed { users, think: Think::Constant(Duration::ZERO) };
    let (results, _) = against([5, 5, 100], load, u64::MAX, Some(seconds), false);
    // Each answer has its tokens, a finish reason, usage and [DONE].
    let events = results.outcomes["finished"] * 103;
    println!("{:.0} events/s", events as f64 * 1e9 / results.window.run_ns as f64);
    summary(&results);
}

fn long(calls: u64) {
    let load = Load::Closed { users: 16, think: Think::Constant(Duration::ZERO) };
    let (results, _) = against([0, 0, 3], load, calls, None, false);
    println!("{:.0} calls/s", calls as f64 * 1e9 / results.window.run_ns as f64);
    summary(&results);
}

/// Prints the errors against what the backend was asked to do, or against what it did.
fn print(name: &str, against: &str, errors: impl Iterator<Item = f64>) {
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    let last = errors.len() - 1;
    let error = |share: f64| errors[(last as f64 * share).round() as usize];
    println!(
        "{name} against what the backend {against}, error in ms: p1 {:+.3}, p50 {:+.3}, p99 {:+.3}, worst {:+.3}, of {}",
        error(0.01),
        error(0.5),
        error(0.99),
        error(1.0),
        errors.len()
    );
}

fn summary(results: &Results) {
    println!("{:?}\n{:?}", results.outcomes, results.health);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("peak memory unknown"));
}
