//! What is shown while a run is under way: lines that are drawn again on a terminal, and a line every ten seconds where
//! there is none.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::number::{count, duration, printable, quantity, value_text};

/// A run's state at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What is running, such as `level 3 of 7: 16 users`.
    pub title: String,
    pub elapsed: Duration,
    /// How long the run is meant to take, and how many calls it is meant to make; None where it has no such end.
    pub planned: Option<Duration>,
    pub planned_calls: Option<u64>,
    pub sent: u64,
    /// Ended without failure.
    pub done: u64,
    pub failed: u64,
    pub in_flight: u64,
    /// Over the last few seconds.
    pub sent_per_s: f64,
    /// Over the last few seconds.
    pub output_tokens_per_s: f64,
    /// p50, p95, p99 in milliseconds so far, failures as infinite; None before the first value.
    pub ttft_ms: Option<[f64; 3]>,
    pub itl_ms: Option<[f64; 3]>,
    /// Sent minus intended at p99, milliseconds.
    pub lag_p99_ms: f64,
    pub last_error: Option<String>,
}

impl Progress {
    /// The part of the run that is over, 0 to 1; None where it has no end.
    pub fn share(&self) -> Option<f64> {
        let share = match (self.planned_calls, self.planned) {
            (Some(calls), _) if calls > 0 => (self.done + self.failed) as f64 / calls as f64,
            (_, Some(planned)) if !planned.is_zero() => self.elapsed.as_secs_f64() / planned.as_secs_f64(),
            _ => return None,
        };
        Some(share.clamp(0.0, 1.0))
    }
}

/// A line is written this often where nothing can be drawn again.
pub const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Shows snapshots of a run as they come. Dropping it clears the terminal's lines.
pub struct Live(Kind);

enum Kind {
    Drawn(ProgressBar),
    Plain { next: Duration, out: Box<dyn Write + Send> },
}

impl Live {
    /// On standard error: drawn if it is a terminal, plain if not.
    pub fn on_stderr() -> Self {
        if std::io::stderr().is_terminal() {
            Live::drawn(ProgressDrawTarget::stderr_with_hz(8))
        } else {
            Live::plain(Box::new(std::io::stderr()))
        }
    }

    /// Drawn again and again on `target`.
    pub fn drawn(target: ProgressDrawTarget) -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("the template is a valid constant");
        Live(Kind::Drawn(ProgressBar::with_draw_target(None, target).with_style(style)))
    }

    /// One line every [`PLAIN_EVERY`] of the run's time.
    pub fn plain(out: Box<dyn Write + Send>) -> Self {
        Live(Kind::Plain { next: PLAIN_EVERY, out })
    }

    /// Shows a snapshot. What cannot be written is not: a run does not fail because nobody looks at it.
    pub fn show(&mut self, progress: &Progress) {
        match &mut self.0 {
            Kind::Drawn(bar) => {
                let columns = console_columns();
                bar.set_message(lines(progress, columns).join("\n"));
                bar.tick();
            }
            Kind::Plain { next, out } => {
                if progress.elapsed >= *next {
                    while *next <= progress.elapsed {
                        *next += PLAIN_EVERY;
                    }
                    let _ = writeln!(out, "{}", line(progress));
                    let _ = out.flush();
                }
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Kind::Drawn(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The terminal's columns, as the shell tells them; indicatif cuts what is longer.
fn console_columns() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100)
}

/// A snapshot in four or five lines of at most `columns` characters.
pub fn lines(progress: &Progress, columns: usize) -> Vec<String> {
    let columns = columns.clamp(60, 120);
    let mut lines = vec![heading(progress, columns)];
    let rate = value_text(progress.sent_per_s);
    let tokens = value_text(progress.output_tokens_per_s);
    lines.push(format!(
        "  sent {:>9}  {:>9}/s    in flight {:>6}    failed {:>6}    {tokens} tokens/s",
        count(progress.sent),
        rate,
        count(progress.in_flight),
        count(progress.failed)
    ));
    let [ttft, itl] = [progress.ttft_ms, progress.itl_ms].map(percentiles);
    lines.push(format!("  TTFT {ttft}"));
    lines.push(format!("  ITL  {itl}    client late by {} at p99", duration(progress.lag_p99_ms)));
    if let Some(error) = &progress.last_error {
        lines.push(format!("  last error: {error}"));
    }
    lines.iter().map(|line| printable(line, columns)).collect()
}

fn heading(progress: &Progress, columns: usize) -> String {
    let title = printable(&progress.title, 40);
    let time = clock(progress.elapsed);
    match progress.share() {
        None => format!("{title}  {time}"),
        Some(share) => {
            let of = progress.planned.map_or_else(String::new, |planned| format!(" of {}", clock(planned)));
            let room = columns.saturating_sub(title.chars().count() + 30).clamp(10, 40);
            let full = (share * room as f64).round() as usize;
            let bar: String = (0..room).map(|at| if at < full { '━' } else { '─' }).collect();
            format!("{title}  {bar}  {:>3.0} %  {time}{of}", share * 100.0)
        }
    }
}

fn percentiles(values: Option<[f64; 3]>) -> String {
    let [p50, p95, p99] =
        values.map_or([None; 3], |values| values.map(Some)).map(|value| quantity(value, "ms"));
    format!("p50 {p50:>8}  p95 {p95:>8}  p99 {p99:>8}")
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// A snapshot in one line, for logs.
pub fn line(progress: &Progress) -> String {
    let share = progress.share().map_or_else(String::new, |share| format!(" {:.0} %", share * 100.0));
    let p95 = |values: Option<[f64; 3]>| quantity(values.map(|[_, p95, _]| p95), "ms");
    let error =
        progress.last_error.as_ref().map_or_else(String::new, |error| format!("; last error: {error}"));
    let line = format!(
        "{} {}{share}: {} sent ({}/s), {} done, {} failed, {} in flight, {} tokens/s, TTFT p95 {}, ITL p95 {}, client late by {}{error}",
        progress.title,
        clock(progress.elapsed),
        count(progress.sent),
        value_text(progress.sent_per_s),
        count(progress.done),
        count(progress.failed),
        count(progress.in_flight),
        value_text(progress.output_tokens_per_s),
        p95(progress.ttft_ms),
        p95(progress.itl_ms),
        duration(progress.lag_p99_ms),
    );
    printable(&line, 400)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn progress() -> Progress {
        Progress {
            title: "level 3 of 7: 16 users".to_owned(),
            elapsed: Duration::from_secs(75),
            planned: Some(Duration::from_secs(100)),
            planned_calls: None,
            sent: 1_234,
            done: 1_200,
            failed: 3,
            in_flight: 31,
            sent_per_s: 16.4,
            output_tokens_per_s: 2_345.0,
            ttft_ms: Some([210.0, 812.0, f64::INFINITY]),
            itl_ms: Some([18.2, 24.0, 61.0]),
            lag_p99_ms: 0.4,
            last_error: Some("503 \u{1b}[2Jqueue is full\nbye".to_owned()),
        }
    }

    #[test]
    fn a_snapshot_fits_the_terminal_and_cannot_be_driven_by_the_server() {
        for columns in [60, 80, 100, 200] {
            let lines = lines(&progress(), columns);
            assert_eq!(lines.len(), 5);
            for line in &lines {
                assert!(line.chars().count() <= columns, "{line:?}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
        let text = lines(&progress(), 100).join("\n");
        for part in
            ["1,234", "16.4/s", "31", "2,345 tokens/s", "p99        ∞", "18.2 ms", "75 %", "1:15 of 1:40"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn the_share_is_of_calls_where_they_are_planned() {
        let by_time = progress();
        assert_eq!(by_time.share(), Some(0.75));
        assert_eq!(Progress { planned_calls: Some(2_406), ..by_time.clone() }.share(), Some(0.5));
        assert_eq!(Progress { planned: None, ..by_time }.share(), None);
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_there_is_one_line_every_ten_seconds() {
        let out = Shared::default();
        let mut live = Live::plain(Box::new(out.clone()));
        for tenth in 0..350 {
            let elapsed = Duration::from_millis(tenth * 100);
            live.show(&Progress { elapsed, ..progress() });
        }
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let times: Vec<&str> = text.lines().map(|line| line.split(' ').nth(6).unwrap()).collect();
        assert_eq!(times, ["0:10", "0:20", "0:30"], "{text}");
    }

    #[test]
    fn a_view_that_nobody_sees_harms_nobody() {
        let mut live = Live::drawn(ProgressDrawTarget::hidden());
        live.show(&progress());
        live.show(&Progress::default());
    }
}
