//! Whether the client itself kept up: a figure that its own lag made is not the server's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::collect::Collector;
use crate::results::Health;

/// A run is void if its sends lag by more than this at p99 ...
pub const LAG_P99_MAX: Duration = Duration::from_millis(5);
/// ... and by more than this share of the median TTFT, under which nobody would see it.
pub const LAG_SHARE_MAX: f64 = 0.05;
/// A run is void if a timer of the client was late by more than this, and by more than that share.
pub const STALL_MAX: Duration = Duration::from_millis(100);
/// How often the watch looks.
const TICK: Duration = Duration::from_millis(1);

/// Watches the client's event loop from within.
pub struct Watch {
    worst_ns: Arc<AtomicU64>,
    ticker: tokio::task::JoinHandle<()>,
    began: Instant,
    own_cpu: Option<Duration>,
    machine: Option<(u64, u64)>,
}

impl Watch {
    /// Starts watching the runtime that this is called on.
    pub fn start() -> Self {
        let worst_ns = Arc::new(AtomicU64::new(0));
        let worst = Arc::clone(&worst_ns);
        let ticker = tokio::spawn(async move {
            loop {
                let before = Instant::now();
                tokio::time::sleep(TICK).await;
                // The timer's own grain is a millisecond.
                let late = before.elapsed().saturating_sub(TICK + Duration::from_millis(1));
                worst.fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Watch { worst_ns, ticker, began: Instant::now(), own_cpu: own_cpu(), machine: machine() }
    }

    /// What was seen since the start, with what the calls say.
    pub fn end(self, collector: &Collector) -> Health {
        self.ticker.abort();
        let wall = self.began.elapsed().as_secs_f64().max(1e-9);
        let cpu = own_cpu().zip(self.own_cpu).map(|(now, then)| now.saturating_sub(then).as_secs_f64());
        let busy = machine().zip(self.machine).and_then(|((busy, all), (busy_then, all_then))| {
            let all = all.checked_sub(all_then).filter(|all| *all > 0)?;
            Some(busy.saturating_sub(busy_then) as f64 / all as f64)
        });
        let lag = collector.lag.figures();
        let ttft = collector.ttft.figures();
        let mut health = Health {
            lag_ns: [lag.p50_ns, lag.p99_ns, lag.max_ns],
            stall_ns: self.worst_ns.load(Ordering::Relaxed),
            cpu_cores: cpu.unwrap_or_default() / wall,
            machine_busy: busy,
            connection_errors: collector.connection_errors,
            retries: collector.retries,
            void: Vec::new(),
        };
        health.void = void(&health, ttft.p50_ns);
        health
    }
}

/// Why a run does not count. `ttft_p50_ns` is 0 where no call had a token; then any lag counts.
fn void(health: &Health, ttft_p50_ns: u64) -> Vec<String> {
    let felt = |ns: u64| ns as f64 > LAG_SHARE_MAX * ttft_p50_ns as f64;
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut reasons = Vec::new();
    let lag = health.lag_ns[1];
    if Duration::from_nanos(lag) > LAG_P99_MAX && felt(lag) {
        reasons.push(format!(
            "one call in a hundred was sent {:.1} ms late or more (allowed: {} ms, or {:.0}% of the median TTFT): the client was too \
             busy; give it a core of its own, or send less",
            ms(lag),
            LAG_P99_MAX.as_millis(),
            LAG_SHARE_MAX * 100.0
        ));
    }
    if Duration::from_nanos(health.stall_ns) > STALL_MAX && felt(health.stall_ns) {
        reasons.push(format!(
            "the client stood still for {:.0} ms (allowed: {} ms, or {:.0}% of the median TTFT)",
            ms(health.stall_ns),
            STALL_MAX.as_millis(),
            LAG_SHARE_MAX * 100.0
        ));
    }
    reasons
}

/// Processor time of this process so far, where the system tells.
fn own_cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold spaces and parentheses; what follows its last `)` is fields 3 and on (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // USER_HZ is 100 on every Linux.
    Some(Duration::from_millis(ticks * 10))
}

/// Busy and total processor ticks of the machine.
fn machine() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let all: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(lag_p99_ms: u64, stall_ms: u64) -> Health {
        Health { lag_ns: [0, lag_p99_ms * 1_000_000, 0], stall_ns: stall_ms * 1_000_000, ..Health::default() }
    }

    #[test]
    fn a_run_is_void_where_its_own_lag_could_be_taken_for_the_servers() {
        assert!(void(&health(4, 0), 0).is_empty());
        assert_eq!(void(&health(6, 0), 50_000_000).len(), 1);
        assert!(void(&health(6, 0), 1_000_000_000).is_empty(), "6 ms of a second are not felt");
        assert_eq!(void(&health(80, 300), 1_000_000_000).len(), 2);
    }
}
