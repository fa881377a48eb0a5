//! Runs made by hand, for tests: milliseconds in, samples out.

use std::collections::BTreeMap;

use ledger::Stage;

use crate::results::{Health, Results, Target, Window};
use crate::sample::{Channel, Chunk, CountSource, Ns, Outcome, Sample, ServerAccount, Tokens};
use crate::schedule::{CallId, Pacing};

pub fn ns(ms: f64) -> Ns {
    (ms * 1e6).round() as Ns
}

/// A streamed call that is sent when it was intended, with one token in each chunk and one millisecond between its last
/// token and its last byte.
pub fn call(id: u64, intended_ms: f64, tokens_at_ms: &[f64]) -> Sample {
    let chunks: Vec<Chunk> =
        tokens_at_ms.iter().map(|&at| Chunk { at_ns: ns(at), tokens: 1, channel: Channel::Answer }).collect();
    let count = chunks.len() as u32;
    Sample {
        call: CallId(id),
        session: None,
        body: format!("{id:016x}"),
        outcome: Outcome::Finished,
        intended_ns: ns(intended_ms),
        sent_ns: Some(ns(intended_ms)),
        headers_ns: chunks.first().map(|chunk| chunk.at_ns),
        first_byte_ns: chunks.first().map(|chunk| chunk.at_ns),
        last_byte_ns: chunks.last().map(|chunk| chunk.at_ns + 1_000_000),
        chunks,
        empty_frames: Vec::new(),
        tokens: Tokens {
            prompt: Some(100),
            cached: Some(0),
            output: Some(count),
            reasoning: None,
            counted: count,
            source: CountSource::Server,
        },
        server: ServerAccount { kind: "opaque".to_owned(), ..ServerAccount::default() },
        status: Some(200),
        finish_reason: Some("length".to_owned()),
        retries: 0,
    }
}

/// A call whose first token comes after `ttft_ms` and whose `tokens` are `itl_ms` apart.
pub fn steady(id: u64, intended_ms: f64, ttft_ms: f64, itl_ms: f64, tokens: usize) -> Sample {
    let at: Vec<f64> = (0..tokens).map(|index| intended_ms + ttft_ms + index as f64 * itl_ms).collect();
    call(id, intended_ms, &at)
}

/// A call that timed out without a token.
pub fn timed_out(id: u64, intended_ms: f64) -> Sample {
    Sample {
        outcome: Outcome::TimedOut,
        tokens: Tokens::default(),
        status: None,
        ..call(id, intended_ms, &[])
    }
}

pub fn account(mut sample: Sample, first: &[(Stage, f64)], after: &[(Stage, f64)]) -> Sample {
    let stages = |stages: &[(Stage, f64)]| stages.iter().map(|&(stage, ms)| (stage, ns(ms))).collect();
    sample.server = ServerAccount {
        kind: "firstlight".to_owned(),
        to_first_token: stages(first),
        after_it: stages(after),
        left_out: None,
    };
    sample
}

/// An open-loop run of these calls, whose window is all of it.
pub fn run(samples: Vec<Sample>) -> Results {
    let end = samples
        .iter()
        .flat_map(|s| [Some(s.intended_ns + 1), s.last_byte_ns, s.chunks.last().map(|chunk| chunk.at_ns)])
        .flatten()
        .max()
        .unwrap_or(0);
    let mut outcomes = BTreeMap::new();
    for sample in &samples {
        *outcomes.entry(sample.outcome.class().to_owned()).or_default() += 1;
    }
    Results {
        schema: Results::SCHEMA,
        tool: "firstlight test".to_owned(),
        began_unix_s: 0,
        target: Target {
            url: "http://127.0.0.1:8000".to_owned(),
            kind: "opaque".to_owned(),
            model: "m".to_owned(),
            endpoint: "completions".to_owned(),
            stream: true,
        },
        workload: "by hand".to_owned(),
        seed: 1,
        pacing: Pacing::Open { description: "by hand".to_owned(), mean_per_s: None },
        window: Window { from_ns: 0, to_ns: end, run_ns: end },
        health: Health::default(),
        outcomes,
        held: 0,
        histograms: BTreeMap::new(),
        samples,
        server_means: None,
        samples_dropped: 0,
    }
}

/// The same in a closed loop.
pub fn closed(users: usize, samples: Vec<Sample>) -> Results {
    Results { pacing: Pacing::Closed { users, think_ms: 0.0 }, ..run(samples) }
}
