//! Time that this thread spent on a processor: what a piece of work costs, however busy the machine is.

use std::time::{Duration, Instant};

/// Runs `work` and tells what it cost.
pub fn cost(work: impl FnOnce()) -> Duration {
    let (wall, before) = (Instant::now(), on_cpu());
    work();
    match (before, on_cpu()) {
        (Some(before), Some(after)) => after - before,
        _ => wall.elapsed(),
    }
}

/// The first number that Linux tells of a thread's schedule: nanoseconds on a processor.
fn on_cpu() -> Option<Duration> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(schedule.split_whitespace().next()?.parse().ok()?))
}
