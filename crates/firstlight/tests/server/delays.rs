//! The proof of the ledger: a delay put into one stage shows in this stage, by that much, and in no other.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Server, assert_sums, charged};

/// Far above the noise of a busy machine.
const DELAY: Duration = Duration::from_millis(400);
/// What a stage may move by for other reasons.
const NOISE_NS: u64 = 150_000_000;
/// Requests of which each stage's shortest time counts, since noise only ever adds.
const REQUESTS: usize = 3;

/// A request that enters `prefill`, `sample` and everything around them once, and `decode` and `decode_wait` as often as
/// it has tokens after the first.
fn body(max_tokens: usize, stream: bool) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "one two three four five six seven eight nine ten ".repeat(6) }],
        "max_tokens": max_tokens, "temperature": 0, "stream": stream,
    })
}

/// How a stage is made to occur exactly once.
struct Case {
    max_tokens: usize,
    flags: &'static [&'static str],
}

const PLAIN: Case = Case { max_tokens: 1, flags: &[] };
const TWO_TOKENS: Case = Case { max_tokens: 2, flags: &[] };
/// The prompt (about 95 tokens) takes two steps.
const TWO_CHUNKS: Case = Case {
    max_tokens: 1,
    flags: &["--max-num-seqs", "8", "--max-num-batched-tokens", "80", "--no-prefix-caching"],
};

#[track_caller]
fn check(stage: &str, case: &Case) {
    let delay = format!("{stage}={}", DELAY.as_micros());
    let plain = Server::start(case.flags, &[]);
    let slow = Server::start(case.flags, &[("FIRSTLIGHT_DELAY", &delay)]);
    for stream in [false, true] {
        let body = body(case.max_tokens, stream);
        let before = shortest(&plain, &body);
        let after = shortest(&slow, &body);
        for (name, ns) in &after {
            let moved = *ns as i64 - before.get(name).map_or(0, |ns| *ns as i64);
            let expected = if name == stage { DELAY.as_nanos() as i64 } else { 0 };
            let off = (moved - expected).unsigned_abs();
            assert!(
                off < NOISE_NS,
                "{stage} was delayed, {name} moved by {moved} ns (streamed: {stream}): {after:?}"
            );
        }
        // What of the delay overlaps with the delivery before it is hidden, so `off` says more than an exact bound.
        assert!(after.contains_key(stage), "{stage} was entered: {after:?}");
    }
}

/// Each stage's shortest time over a few requests.
fn shortest(server: &Server, body: &Value) -> BTreeMap<String, u64> {
    let mut shortest = BTreeMap::new();
    for _ in 0..REQUESTS {
        let answer = server.post("/v1/chat/completions", body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let account = server.account(&answer);
        assert_sums(&account);
        for charge in account["stages"].as_array().expect("an account has stages") {
            let name = charge["stage"].as_str().expect("a charge has a stage");
            let ns = charged(&account, name);
            shortest
                .entry(name.to_owned())
                .and_modify(|least: &mut u64| *least = ns.min(*least))
                .or_insert(ns);
        }
    }
    shortest
}

macro_rules! stages {
    ($($name:ident: $case:expr,)*) => {
        $(#[test] fn $name() { check(stringify!($name), &$case); })*
    };
}

stages! {
    accept: PLAIN,
    authorize: PLAIN,
    read_body: PLAIN,
    parse: PLAIN,
    throttle: PLAIN,
    route: PLAIN,
    render: PLAIN,
    tokenize: PLAIN,
    handoff: PLAIN,
    queue: PLAIN,
    prefill: PLAIN,
    prefill_wait: TWO_CHUNKS,
    decode: TWO_TOKENS,
    decode_wait: TWO_TOKENS,
    sample: PLAIN,
    detokenize: PLAIN,
    write: PLAIN,
}

/// `return` is a keyword, hence a test of its own.
#[test]
fn return_stage() {
    check("return", &PLAIN);
}

/// Two answers that do not fit the KV pool together: one is put back and runs again, and its delay shows in `preempted`.
#[test]
fn preempted() {
    let flags = ["--kv-memory", "7MiB", "--max-model-len", "300"];
    let run = |environment: &[(&str, &str)]| -> Vec<Value> {
        let server = Server::start(&flags, environment);
        let accounts = std::thread::scope(|scope| {
            // Each says another word again and again: equal answers would share their blocks.
            let threads = ["504", "505"].map(|word| {
                let server = &server;
                scope.spawn(move || {
                    let body = json!({
                        "prompt": "one two three", "max_tokens": 220, "temperature": 0,
                        "logit_bias": { (word): 100 },
                    });
                    let answer = server.post("/v1/completions", &body);
                    assert_eq!(answer.status, 200, "{}", answer.body);
                    assert_eq!(answer.json()["usage"]["completion_tokens"], 220, "nothing is lost");
                    server.account(&answer)
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        accounts.iter().for_each(assert_sums);
        accounts.to_vec()
    };
    let preempted =
        |accounts: &[Value]| accounts.iter().map(|account| charged(account, "preempted")).max().unwrap();
    let before = preempted(&run(&[]));
    let after = preempted(&run(&[("FIRSTLIGHT_DELAY", "preempted=400000")]));
    assert!(before > 0, "the pool is small enough that one of the two is put back");
    assert!(after >= before.min(NOISE_NS) && after >= 400_000_000, "{after} ns after {before} ns");
}
