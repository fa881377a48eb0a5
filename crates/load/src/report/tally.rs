//! What tables and charts need of a run's samples: distributions, errors by class, and whether the server's usage agrees
//! with what was counted. One pass, and memory that does not grow with the run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::metrics::{self, Metric};
use crate::report::number::printable;
use crate::results::{Results, Window};
use crate::sample::{CountSource, Outcome, Sample};

/// A distribution of times whose bounds do not grow with the run: an HDR histogram of microseconds with three significant
/// digits, so that a value is off by 0.1 % at most. Failed calls count as infinite.
pub struct Distribution {
    finite: Histogram<u64>,
    pub infinite: u64,
}

/// Longer times are taken for this long.
const LONGEST_US: u64 = 24 * 3600 * 1_000_000;

impl Default for Distribution {
    fn default() -> Self {
        let finite = Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are valid constants");
        Distribution { finite, infinite: 0 }
    }
}

impl Distribution {
    /// Milliseconds; failed calls are infinite.
    fn record(&mut self, ms: f64) {
        if ms.is_finite() {
            self.finite.saturating_record((ms * 1e3).round().max(1.0) as u64);
        } else {
            self.infinite += 1;
        }
    }

    /// Finite values and infinite ones.
    pub fn n(&self) -> u64 {
        self.finite.len() + self.infinite
    }

    pub fn finite_n(&self) -> u64 {
        self.finite.len()
    }

    /// The value in milliseconds that `q` (0 to 1) of all values do not exceed; None of nothing.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = (q * self.n() as f64).ceil().max(1.0) as u64;
        if self.n() == 0 {
            None
        } else if rank > self.finite_n() {
            Some(f64::INFINITY)
        } else {
            let of_finite = rank as f64 / self.finite_n() as f64;
            Some(self.finite.value_at_quantile(of_finite) as f64 / 1e3)
        }
    }

    /// The smallest and largest finite value in milliseconds.
    pub fn range_ms(&self) -> Option<(f64, f64)> {
        let range = (self.finite.min() as f64 / 1e3, self.finite.max() as f64 / 1e3);
        (self.finite_n() > 0).then_some(range)
    }

    /// How many finite values lie in each of the intervals between neighbouring `edges_ms`; all of them lie within.
    pub fn counts(&self, edges_ms: &[f64]) -> Vec<u64> {
        let mut counts = vec![0; edges_ms.len().saturating_sub(1)];
        for value in self.finite.iter_recorded() {
            let ms = value.value_iterated_to() as f64 / 1e3;
            let bin = edges_ms.partition_point(|edge| *edge <= ms).clamp(1, counts.len().max(1)) - 1;
            if let Some(count) = counts.get_mut(bin) {
                *count += value.count_at_value();
            }
        }
        counts
    }
}

/// The three latencies that are drawn, of calls in the window, as [`Metric`] defines them.
#[derive(Default)]
pub struct Latencies {
    pub ttft: Distribution,
    pub itl: Distribution,
    pub e2e: Distribution,
}

pub fn latencies(results: &Results) -> Latencies {
    let mut found = Latencies::default();
    let rules = metrics::rules(results);
    for sample in results.samples.iter().filter(|sample| counts(sample, results.window)) {
        let drawn =
            [(Metric::Ttft, &mut found.ttft), (Metric::Itl, &mut found.itl), (Metric::E2e, &mut found.e2e)];
        for (metric, distribution) in drawn {
            let values = metrics::call::read(sample, metric, rules).judged(metric.definition().unit);
            values.into_iter().flatten().for_each(|ms| distribution.record(ms));
        }
    }
    found
}

/// Whether a call counts: intended within the window, and not cut off by the run's own end.
pub fn counts(sample: &Sample, window: Window) -> bool {
    let inside = (window.from_ns..window.to_ns).contains(&sample.intended_ns);
    inside && sample.outcome != Outcome::InFlight
}

/// A class of errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorClass {
    pub class: String,
    pub n: u64,
    /// What servers said, most frequent first, as [`printable`] text; the rest is in `others`.
    pub details: Vec<(String, u64)>,
    /// Calls whose detail is not among `details`.
    pub others: u64,
}

/// Details of a class that are told apart; further ones are counted together.
const DETAILS_MAX: usize = 256;
/// Details of a class that are shown.
const DETAILS_SHOWN: usize = 4;
/// Characters of a detail that are kept.
const DETAIL_CHARS: usize = 160;

/// The classes that count as errors, as [`Outcome::class`] has them.
const FAILURES: [&str; 7] =
    ["refused", "error_in_band", "cut_short", "connection_failed", "not_sent", "timed_out", "malformed"];

/// Failed calls by class over the whole run, the warm-up included, largest class first. How many there were is the run's
/// own count; what the server said is only known of calls whose samples were kept.
pub fn errors(results: &Results) -> Vec<ErrorClass> {
    let mut classes: BTreeMap<&str, (u64, BTreeMap<String, u64>)> = BTreeMap::new();
    for sample in results.samples.iter().filter(|sample| sample.outcome.is_failure()) {
        let (n, details) = classes.entry(sample.outcome.class()).or_default();
        *n += 1;
        if let Some(detail) = detail(sample) {
            if let Some(count) = details.get_mut(&detail) {
                *count += 1;
            } else if details.len() < DETAILS_MAX {
                details.insert(detail, 1);
            }
        }
    }
    for class in FAILURES {
        if let Some(n) = results.outcomes.get(class).filter(|n| **n > 0) {
            let counted = &mut classes.entry(class).or_default().0;
            *counted = (*counted).max(*n);
        }
    }
    let mut found: Vec<ErrorClass> = classes
        .into_iter()
        .map(|(class, (n, details))| {
            let mut details: Vec<(String, u64)> = details.into_iter().collect();
            details.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            details.truncate(DETAILS_SHOWN);
            let shown: u64 = details.iter().map(|(_, count)| count).sum();
            ErrorClass { class: class.to_owned(), n, others: n - shown, details }
        })
        .collect();
    found.sort_by_key(|class| std::cmp::Reverse(class.n));
    found
}

/// What is known of a failure besides its class.
pub fn detail(sample: &Sample) -> Option<String> {
    let text = match &sample.outcome {
        Outcome::Refused { detail }
        | Outcome::ErrorInBand { detail }
        | Outcome::CutShort { detail }
        | Outcome::ConnectionFailed { detail }
        | Outcome::NotSent { detail }
        | Outcome::Malformed { detail } => detail.as_str(),
        Outcome::Finished | Outcome::Empty | Outcome::TimedOut | Outcome::InFlight => "",
    };
    let status = match (&sample.outcome, sample.status) {
        (Outcome::Refused { .. }, Some(status)) => format!("{status} "),
        _ => String::new(),
    };
    let text = printable(&format!("{status}{text}"), DETAIL_CHARS);
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// Whether the server's usage agrees with the tokens that were counted chunk by chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Finished calls of which the server gave its usage.
    pub told: u64,
    pub finished: u64,
    /// Calls of `told` where the counts differ.
    pub differing: u64,
    /// Output tokens of the calls in `told`: by usage, and as counted.
    pub by_usage: u64,
    pub by_count: u64,
    /// How the counts of chunks are known, by the most frequent source.
    pub source: CountSource,
}

pub fn usage(results: &Results) -> Usage {
    let mut found = Usage::default();
    let mut sources = [0u64; 3];
    const SOURCES: [CountSource; 3] = [CountSource::Server, CountSource::Usage, CountSource::Chunks];
    for sample in results.samples.iter().filter(|sample| sample.outcome == Outcome::Finished) {
        found.finished += 1;
        for (count, source) in sources.iter_mut().zip(SOURCES) {
            *count += u64::from(sample.tokens.source == source);
        }
        if let Some(output) = sample.tokens.output {
            found.told += 1;
            found.by_usage += u64::from(output);
            found.by_count += u64::from(sample.tokens.counted);
            found.differing += u64::from(output != sample.tokens.counted);
        }
    }
    let most = sources.iter().zip(SOURCES).max_by_key(|(count, _)| **count);
    found.source = most.map_or(CountSource::Chunks, |(_, source)| source);
    found
}

impl Usage {
    /// The comparison in a sentence.
    pub fn sentence(&self) -> String {
        use crate::report::number::{count, percent};
        let source = match self.source {
            CountSource::Server => "the server says how many tokens each chunk carries",
            CountSource::Usage => "usage says how many in all, spread over the chunks",
            CountSource::Chunks => "each chunk is taken for one token",
        };
        if self.finished == 0 {
            return "no call finished".to_owned();
        }
        if self.told == 0 {
            return format!("the server gave no usage; {source}");
        }
        let told =
            format!("{} of {} finished calls told their usage", count(self.told), count(self.finished));
        if self.differing == 0 {
            return format!("{told}, and it agrees with what was counted in all of them; {source}");
        }
        let difference = (self.by_count as f64 - self.by_usage as f64) / (self.by_usage as f64).max(1.0);
        let more = if difference < 0.0 { "fewer" } else { "more" };
        format!(
            "{told}; in {} of them it DISAGREES with what was counted: {} by usage, {} counted ({} {more}); {source}",
            count(self.differing),
            count(self.by_usage),
            count(self.by_count),
            percent(difference.abs())
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::sample::{Channel, Chunk, ServerAccount, Tokens};
    use crate::schedule::{CallId, Pacing};

    pub const MS: u64 = 1_000_000;

    /// A call intended at `intended` ms, sent 10 ms later, whose chunks of one token came at `chunks` ms; its first byte
    /// came 5 ms before them, and its last byte 2 ms after them.
    pub fn sample(call: u64, intended: u64, chunks: &[u64]) -> Sample {
        let chunk = |at: &u64| Chunk { at_ns: at * MS, tokens: 1, channel: Channel::Answer };
        Sample {
            call: CallId(call),
            session: None,
            body: "00".to_owned(),
            outcome: Outcome::Finished,
            intended_ns: intended * MS,
            sent_ns: Some((intended + 10) * MS),
            headers_ns: chunks.first().map(|at| (at - 6) * MS),
            first_byte_ns: chunks.first().map(|at| (at - 5) * MS),
            chunks: chunks.iter().map(chunk).collect(),
            empty_frames: Vec::new(),
            last_byte_ns: chunks.last().map(|at| (at + 2) * MS),
            tokens: Tokens { counted: chunks.len() as u32, ..Tokens::default() },
            server: ServerAccount::default(),
            status: Some(200),
            finish_reason: Some("stop".to_owned()),
            retries: 0,
        }
    }

    pub fn results(samples: Vec<Sample>) -> Results {
        Results {
            schema: Results::SCHEMA,
            tool: "firstlight 0".to_owned(),
            began_unix_s: 0,
            target: crate::results::Target {
                url: "http://localhost:8000".to_owned(),
                kind: "opaque".to_owned(),
                model: "m".to_owned(),
                endpoint: "chat".to_owned(),
                stream: true,
            },
            workload: "w".to_owned(),
            seed: 1,
            pacing: Pacing::Closed { users: 1, think_ms: 0.0 },
            window: Window { from_ns: 50 * MS, to_ns: 1_000 * MS, run_ns: 2_000 * MS },
            health: Default::default(),
            outcomes: BTreeMap::new(),
            held: 0,
            histograms: BTreeMap::new(),
            samples,
            server_means: None,
            samples_dropped: 0,
        }
    }

    #[test]
    fn failed_calls_are_infinite_and_calls_outside_the_window_are_not_there() {
        let mut failed = sample(1, 200, &[240]);
        failed.outcome = Outcome::TimedOut;
        let mut cut = sample(2, 300, &[340]);
        cut.outcome = Outcome::InFlight;
        let found =
            latencies(&results(vec![sample(0, 100, &[140, 150, 190]), failed, cut, sample(3, 10, &[20])]));
        assert_eq!((found.ttft.n(), found.ttft.infinite), (2, 1));
        assert_eq!(found.ttft.quantile_ms(0.5).unwrap().round(), 40.0, "from the intended time");
        assert_eq!(found.ttft.quantile_ms(0.99), Some(f64::INFINITY));
        assert_eq!((found.itl.n(), found.itl.infinite), (3, 1));
        assert_eq!(found.itl.counts(&[1.0, 20.0, 100.0]), [1, 1]);
        assert_eq!(found.e2e.quantile_ms(0.5).unwrap().round(), 90.0, "to the last token");
    }

    #[test]
    fn errors_are_grouped_by_class_and_what_the_server_said() {
        let refused = |call, detail: &str| {
            let mut call = sample(call, 100, &[]);
            call.outcome = Outcome::Refused { detail: detail.to_owned() };
            call.status = Some(503);
            call
        };
        let mut timed_out = sample(9, 100, &[]);
        timed_out.outcome = Outcome::TimedOut;
        let samples = vec![refused(0, "full"), timed_out, refused(1, "full"), refused(2, "draining\u{7}")];
        let found = errors(&results(samples));
        assert_eq!((found[0].class.as_str(), found[0].n, found[0].others), ("refused", 3, 0));
        let details = [("503 full".to_owned(), 2), ("503 draining\u{fffd}".to_owned(), 1)];
        assert_eq!(found[0].details, details);
        assert_eq!((found[1].class.as_str(), found[1].n, found[1].others), ("timed_out", 1, 1));
    }

    #[test]
    fn a_disagreement_on_token_counts_is_said() {
        let mut lies = sample(0, 100, &[140, 150]);
        lies.tokens.output = Some(4);
        let mut honest = sample(1, 100, &[140, 150]);
        honest.tokens.output = Some(2);
        let told = usage(&results(vec![lies, honest.clone()]));
        assert_eq!((told.told, told.differing, told.by_usage, told.by_count), (2, 1, 6, 4));
        assert!(told.sentence().contains("DISAGREES"), "{}", told.sentence());
        assert!(usage(&results(vec![honest])).sentence().contains("agrees"));
    }
}
