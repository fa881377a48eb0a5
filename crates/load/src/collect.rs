//! What a run keeps of its calls: counts and histograms of all, and the first so many samples whole, so that a run of a
//! million calls fits in memory.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::sample::{Ns, Sample};

/// Significant digits of the histograms: values are within 0.1%.
const DIGITS: u8 = 3;
/// Longer times are counted as this one: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Histogram figures over all calls of a run, the dropped ones included. Values are within 0.1%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub count: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// A histogram of times.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Times(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are in order"))
    }
}

impl Times {
    pub fn add(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub fn figures(&self) -> Figures {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Figures {
            count: self.0.len(),
            mean_ns: self.0.mean() as u64,
            p50_ns: at(0.5),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            max_ns: self.0.max(),
        }
    }
}

/// Everything that is kept of a run's calls.
#[derive(Debug)]
pub struct Collector {
    samples: Vec<Sample>,
    samples_max: u64,
    dropped: u64,
    pub outcomes: BTreeMap<String, u64>,
    pub ttft: Times,
    pub itl: Times,
    pub e2e: Times,
    /// What the client itself was late: sent minus intended, without the time that connections took.
    pub lag: Times,
    pub output_tokens: u64,
    pub connection_errors: u64,
    pub retries: u64,
    pub last_error: Option<String>,
}

impl Collector {
    pub fn new(samples_max: usize) -> Self {
        Collector {
            samples: Vec::new(),
            samples_max: samples_max as u64,
            dropped: 0,
            outcomes: BTreeMap::new(),
            ttft: Times::default(),
            itl: Times::default(),
            e2e: Times::default(),
            lag: Times::default(),
            output_tokens: 0,
            connection_errors: 0,
            retries: 0,
            last_error: None,
        }
    }

    /// Takes a call that has ended. A call that the run itself held back says nothing of the client's lag, and so does the
    /// time that connections took to make. Samples are kept by id, not by who ends first, which would favour short answers.
    pub fn add(&mut self, sample: Sample, held: bool, connecting_ns: u64) {
        *self.outcomes.entry(sample.outcome.class().to_owned()).or_default() += 1;
        self.retries += u64::from(sample.retries);
        if let crate::sample::Outcome::ConnectionFailed { .. } = sample.outcome {
            self.connection_errors += 1;
        }
        if sample.outcome.is_failure() {
            self.last_error = Some(format!("{:?}", sample.outcome).chars().take(200).collect());
        }
        let since = |moment: Ns| moment.saturating_sub(sample.intended_ns);
        if let (Some(sent), false) = (sample.sent_ns, held) {
            self.lag.add(since(sent).saturating_sub(connecting_ns));
        }
        if let Some(first) = sample.chunks.first() {
            self.ttft.add(since(first.at_ns));
        }
        for pair in sample.chunks.windows(2) {
            let gap = pair[1].at_ns.saturating_sub(pair[0].at_ns) / u64::from(pair[1].tokens.max(1));
            (0..pair[1].tokens).for_each(|_| self.itl.add(gap));
        }
        if let (Some(last), false) = (sample.last_byte_ns, sample.outcome.is_failure()) {
            self.e2e.add(since(last));
        }
        self.output_tokens += u64::from(sample.tokens.output.unwrap_or(sample.tokens.counted));
        if sample.call.0 < self.samples_max {
            self.samples.push(sample);
        } else {
            self.dropped += 1;
        }
    }

    pub fn done(&self) -> u64 {
        self.outcomes.values().sum()
    }

    pub fn failed(&self) -> u64 {
        let fine = ["finished", "empty", "in_flight"];
        self.outcomes
            .iter()
            .filter(|(class, _)| !fine.contains(&class.as_str()))
            .map(|(_, count)| count)
            .sum()
    }

    /// Figures over all calls, by name.
    pub fn histograms(&self) -> BTreeMap<String, Figures> {
        let named = [("ttft", &self.ttft), ("itl", &self.itl), ("e2e", &self.e2e), ("lag", &self.lag)];
        named.into_iter().map(|(name, times)| (name.to_owned(), times.figures())).collect()
    }

    /// The samples in the order of their ids, and how many were not kept.
    pub fn into_samples(mut self) -> (Vec<Sample>, u64) {
        self.samples.sort_by_key(|sample| sample.call);
        (self.samples, self.dropped)
    }
}
