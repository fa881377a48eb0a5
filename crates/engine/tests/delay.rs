//! A delay put into one stage is charged to that stage, in full, and to no other.
//!
//! `cargo test -p engine --features delay --test delay`

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![cfg(feature = "delay")]

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use engine::simulate::{FakeExecutor, VirtualClock};
use engine::{Engine, Limits, Outputs};
use ledger::{Account, RequestId, Stage};
use protocol::{Output, Sampling, Submission, Terms, TokenId};

/// Longer than anything that a busy machine adds by itself.
const DELAY_MS: u64 = 200;

fn submission(request: u64, length: u32, max: usize) -> Submission {
    Submission {
        request: RequestId(request),
        choice: 0,
        // No two requests share a block, so that every prompt is computed.
        prompt: (0..length).map(|at| TokenId(1 + (at + request as u32) % 40)).collect(),
        cache_salt: None,
        terms: Terms::default(),
        sampling: Sampling {
            temperature: 0.0,
            max_tokens: Some(max),
            ignore_eos: true,
            ..Sampling::default()
        },
        eog: Arc::new([]),
    }
}

/// Runs in a process of its own, with a delay in its environment: prints what a request was charged, by stage.
#[test]
#[ignore = "run by the other test"]
fn one_request() {
    let mut limits = Limits::new(6, 48, 64);
    (limits.block_tokens, limits.prefill_chunk_max, limits.growth_blocks) = (8, 6, 0);
    let of_executor = limits.clone();
    // The engine begins when everything has been submitted: the fake model is too quick for two to meet by chance.
    let (begin, began) = std::sync::mpsc::channel::<()>();
    let make = move || {
        let _ = began.recv();
        FakeExecutor::new(&of_executor, VirtualClock::default())
    };
    let handle = Engine::start(make, limits).unwrap();
    let preempted = std::env::var("ENGINE_TEST_PREEMPTED").is_ok();
    // Together they need more blocks than there are; the second gives way.
    let other = preempted.then(|| handle.submit(submission(1, 12, 30)).unwrap());
    let opened = ledger::now_ns();
    let outputs = handle.submit(submission(2, 12, if preempted { 20 } else { 3 })).unwrap();
    begin.send(()).unwrap();
    let account = charged(outputs, opened);
    drop(other);
    for charge in account.stages() {
        println!("charged {} {}", charge.stage, charge.ns);
    }
}

fn charged(mut outputs: Outputs, opened: u64) -> Account {
    let mut account = Account::open(opened);
    while let Some(output) = outputs.blocking_recv() {
        let Output::Token { timeline, step, .. } = output else { panic!("{output:?}") };
        account.deliver(&timeline, 1, Some(step), ledger::now_ns());
    }
    account
}

/// Milliseconds by stage, as the child charged them.
fn run(delayed: Option<Stage>, preempted: bool) -> HashMap<Stage, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "one_request", "--ignored", "--nocapture"]);
    child.env_remove("FIRSTLIGHT_DELAY");
    if let Some(stage) = delayed {
        child.env("FIRSTLIGHT_DELAY", format!("{stage}={}", DELAY_MS * 1000));
    }
    if preempted {
        child.env("ENGINE_TEST_PREEMPTED", "1");
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut charged = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((_, charge)) = line.split_once("charged ") else { continue };
        let (stage, ns) = charge.split_once(' ').unwrap();
        *charged.entry(stage.parse().unwrap()).or_insert(0) += ns.parse::<u64>().unwrap() / 1_000_000;
    }
    charged
}

/// The request enters the stage `times` times.
fn check(stage: Stage, times: u64) {
    let charged = run(Some(stage), stage == Stage::Preempted);
    let wanted = times * DELAY_MS;
    let got = charged.get(&stage).copied().unwrap_or(0);
    // The fake model is so quick that a stage may begin while the token before is still on its way: that part is hidden.
    assert!(
        (wanted - DELAY_MS / 10..wanted + DELAY_MS / 2).contains(&got),
        "{stage}: {got} ms, not {wanted}: {charged:?}"
    );
    for (other, ms) in charged.iter().filter(|(other, _)| **other != stage) {
        assert!(*ms < DELAY_MS / 2, "a delay in {stage} was charged to {other}: {charged:?}");
    }
}

#[test]
fn a_delay_is_charged_to_its_stage_and_to_no_other() {
    // A prompt of 12 tokens in two chunks, then an answer of 3 tokens, of which the first comes with the prompt.
    check(Stage::Handoff, 1);
    check(Stage::Queue, 1);
    check(Stage::Prefill, 2);
    check(Stage::PrefillWait, 1);
    check(Stage::Decode, 2);
    check(Stage::DecodeWait, 2);
    check(Stage::Preempted, 1);
    check(Stage::Sample, 3);
    check(Stage::Return, 3);
}
