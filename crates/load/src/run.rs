//! A run: sends a schedule, follows every call to its end, and says what became of them.
//!
//! **Invariant:** every call that the schedule wanted sent within the run is in the outcomes once, whatever happens. In a closed
//! loop a call is wanted once a user is ready to send it and it can be sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rand::Rng;
use rand_distr::{Distribution, Exp};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::adapter::Adapter;
use crate::client::{self, Ended, Shared};
use crate::collect::{Collector, Figures};
use crate::health::Watch;
use crate::results::{Results, Target, Window};
use crate::sample::{Ns, Outcome, Sample};
use crate::schedule::{Arrivals, Call, Pacing, Workload};

mod ticking;

mod conversation;

mod open;

mod closed;

use closed::Users;
use conversation::{Conversations, Due};

/// How often the live view is told.
const TELL: Duration = Duration::from_millis(250);

/// How long before it is due a call is handed to a run that spins.
const LEAD: Duration = Duration::from_millis(5);

/// Calls that were taken from the schedule and wait for an earlier turn, at most. They hold their prompts, and so bound the
/// run's memory; behind them the schedule waits, and what it wants meanwhile counts as held back.
const WAITING_MAX: usize = 4096;

/// What is to be run.
pub struct Plan {
    pub target: Target,
    pub adapter: Arc<dyn Adapter>,
    pub workload: Arc<dyn Workload>,
    pub load: Load,
    pub seed: u64,
    /// No more calls than this, and none intended later than this. One of the two, or a workload that ends, bounds the run.
    pub requests: Option<u64>,
    pub duration: Option<Duration>,
    /// Calls intended so soon after the start, or so shortly before the last, are sent but do not count.
    pub warm_up: Duration,
    pub cool_down: Duration,
    /// Calls under way at once in an open loop. What comes on top waits, and is still measured from its intended time. A call
    /// that waits for an earlier turn is not under way.
    pub in_flight_max: usize,
    /// How long calls may take to end after the last one was sent; then they are left in flight.
    pub drain: Duration,
    pub samples_max: usize,
    /// Polls sockets and the clock without ever sleeping, so that no wake-up makes a send or a stamp late. It takes a core.
    pub spin: bool,
}

/// What decides when calls are sent.
pub enum Load {
    Open { arrivals: Arrivals, description: String, mean_per_s: Option<f64> },
    Closed { users: usize, think: Think },
}

/// What a user of a closed loop does between an answer and the next call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    Constant(Duration),
    /// Of this mean.
    Exponential(Duration),
}

impl Think {
    fn mean(self) -> Duration {
        match self {
            Think::Constant(time) | Think::Exponential(time) => time,
        }
    }

    fn draw(self, random: &mut impl Rng) -> Duration {
        match self {
            Think::Constant(time) => time,
            Think::Exponential(mean) if mean.is_zero() => mean,
            Think::Exponential(mean) => {
                let distribution = Exp::new(1.0 / mean.as_secs_f64()).expect("a mean above zero");
                Duration::from_secs_f64(distribution.sample(random))
            }
        }
    }
}

/// A run, as it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub elapsed: Duration,
    /// Calls that the run will send; None where time decides.
    pub planned: Option<u64>,
    pub duration: Option<Duration>,
    pub sent: u64,
    pub done: u64,
    pub failed: u64,
    /// Calls that could have been sent, and waited for [`Plan::in_flight_max`].
    pub held: u64,
    pub output_tokens: u64,
    pub ttft: Figures,
    pub itl: Figures,
    pub lag_p99_ns: u64,
    pub last_error: Option<String>,
}

/// What the tasks of a run share.
struct Run {
    client: Shared,
    adapter: Arc<dyn Adapter>,
    conversations: Conversations,
    collector: std::sync::Mutex<Collector>,
    sent: AtomicU64,
    held: AtomicU64,
    /// Intended time of the latest call.
    latest: AtomicU64,
    stop: watch::Receiver<bool>,
}

/// Sends the plan's calls through `client` and waits for them. Tells `progress` how far it is; when `cancel` becomes true,
/// sends no more and ends as if the time were over.
///
/// # Errors
/// A plan that nothing bounds, or a window with nothing in it.
pub async fn run(
    plan: Plan,
    client: Shared,
    progress: watch::Sender<Progress>,
    mut cancel: watch::Receiver<bool>,
) -> anyhow::Result<Results> {
    let planned = [plan.requests, plan.workload.len()].into_iter().flatten().min();
    anyhow::ensure!(
        planned.is_some() || plan.duration.is_some(),
        "nothing ends this run; give it --requests or --duration"
    );
    let began_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let (leave, stop) = watch::channel(false);
    let run = Arc::new(Run {
        client,
        adapter: Arc::clone(&plan.adapter),
        conversations: Conversations::default(),
        collector: std::sync::Mutex::new(Collector::new(plan.samples_max)),
        sent: AtomicU64::new(0),
        held: AtomicU64::new(0),
        latest: AtomicU64::new(0),
        stop,
    });
    let health = Watch::start();
    let end = plan.duration.map(|duration| run.client.clock.instant(0) + duration + plan.drain);
    let limits = Limits { planned: planned.unwrap_or(u64::MAX), until: plan.duration, end };
    let teller = tokio::spawn(tell(Arc::clone(&run), progress, planned, plan.duration));
    let spinner = plan.spin.then(|| {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        })
    });
    let (pacing, mut calls) = match plan.load {
        Load::Open { arrivals, description, mean_per_s } => {
            let lead = if plan.spin { LEAD } else { Duration::ZERO };
            let ticks = ticking::ticks(run.client.clock, arrivals, Arc::clone(&plan.workload), lead);
            let calls = open::open(&run, ticks, limits, plan.in_flight_max, cancel.clone()).await;
            (Pacing::Open { description, mean_per_s }, calls)
        }
        Load::Closed { users, think } => {
            let users_of = Users { count: users, think, seed: plan.seed };
            let calls = closed::closed(&run, &plan.workload, users_of, limits, &mut cancel).await;
            let think_ms = think.mean().as_secs_f64() * 1e3;
            (Pacing::Closed { users, think_ms }, calls)
        }
    };
    let sending_ended = run.client.clock.now();
    // Calls that were held back may have used up a part of the drain already.
    let end = plan.duration.map(|duration| duration + plan.drain);
    let left = end.map(|end| end.saturating_sub(Duration::from_nanos(sending_ended)));
    let drain = left.map_or(plan.drain, |left| left.min(plan.drain));
    finish(&mut calls, drain, &mut cancel, &leave).await;
    let run_ns = run.client.clock.now();
    teller.abort();
    if let Some(spinner) = spinner {
        spinner.abort();
    }
    drop(calls);
    let collector =
        std::mem::replace(&mut *run.collector.lock().expect("no holder panics"), Collector::new(0));
    let health = health.end(&collector);
    let window = window(
        &plan.duration,
        sending_ended,
        run.latest.load(Ordering::Relaxed),
        plan.warm_up,
        plan.cool_down,
    );
    let window = Window { run_ns, ..window? };
    let outcomes = collector.outcomes.clone();
    let histograms = collector.histograms();
    let (samples, samples_dropped) = collector.into_samples();
    Ok(Results {
        schema: Results::SCHEMA,
        tool: format!("firstlight {}", env!("CARGO_PKG_VERSION")),
        began_unix_s,
        target: plan.target,
        workload: plan.workload.describe(),
        seed: plan.seed,
        pacing,
        window,
        health,
        outcomes,
        held: run.held.load(Ordering::Relaxed),
        histograms,
        server_means: None,
        samples,
        samples_dropped,
    })
}

/// The calls that count: intended after the warm-up and before the cool-down. A run of a set duration ends there; any
/// other behind its last call.
fn window(
    duration: &Option<Duration>,
    sending_ended: Ns,
    latest: Ns,
    warm_up: Duration,
    cool_down: Duration,
) -> anyhow::Result<Window> {
    let ns = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let end =
        duration.as_ref().map_or(latest + 1, |duration| ns(duration).min(sending_ended.max(latest + 1)));
    let window = Window { from_ns: ns(&warm_up), to_ns: end.saturating_sub(ns(&cool_down)), run_ns: 0 };
    anyhow::ensure!(
        window.from_ns < window.to_ns,
        "a warm-up of {warm_up:?} and a cool-down of {cool_down:?} leave nothing of a run of {:.1} s; make it longer",
        end as f64 / 1e9
    );
    Ok(window)
}

/// When no more is sent.
#[derive(Clone, Copy)]
struct Limits {
    planned: u64,
    until: Option<Duration>,
    /// When even those that were held back are given up.
    end: Option<Instant>,
}

impl Limits {
    fn reached(&self, id: u64, intended: Ns) -> bool {
        id >= self.planned || self.over(intended)
    }

    fn over(&self, now: Ns) -> bool {
        self.until.is_some_and(|until| u128::from(now) >= until.as_nanos())
    }
}

/// Waits for calls under way, `drain` at most; a second wish to stop ends that as well.
async fn finish(
    calls: &mut JoinSet<()>,
    drain: Duration,
    cancel: &mut watch::Receiver<bool>,
    leave: &watch::Sender<bool>,
) {
    cancel.mark_unchanged();
    tokio::select! {
        () = async { while calls.join_next().await.is_some() {} } => return,
        () = tokio::time::sleep(drain) => {}
        _ = async { if cancel.changed().await.is_err() { std::future::pending::<()>().await } } => {}
    }
    let _ = leave.send(true);
    while calls.join_next().await.is_some() {}
}

impl Run {
    /// A call was due and is not sent: the run ended first.
    fn leave(&self, call: Call, intended: Ns) {
        self.latest.fetch_max(intended, Ordering::Relaxed);
        self.conversations.ended(&call, None, self.client.clock.now());
        let mut collector = self.collector.lock().expect("no holder panics");
        collector.add(client::blank(&call, intended), true, 0);
    }

    /// Sends one call that is ready, and takes its sample.
    async fn follow(&self, due: Due) {
        let Due { call, wanted, held } = due;
        // A turn cannot be wanted before the one before it was answered.
        let (answered_ns, resolved) = self.conversations.resolve(&call);
        let intended = wanted.max(answered_ns);
        self.latest.fetch_max(intended, Ordering::Relaxed);
        let ended = match resolved {
            Ok(resolved) => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                let stop = self.stop.clone();
                self.client.send(&call, &resolved, &*self.adapter, intended, stop).await
            }
            Err(reason) => {
                let detail = format!("an earlier call of its session is missing: {reason}");
                let outcome = Outcome::NotSent { detail };
                let sample = Sample { outcome, ..client::blank(&call, intended) };
                Ended { sample, text: String::new(), connecting_ns: 0 }
            }
        };
        let answered = !ended.sample.outcome.is_failure() && ended.sample.outcome != Outcome::InFlight;
        let text = answered.then_some(ended.text);
        self.conversations.ended(&call, text, self.client.clock.now());
        self.collector.lock().expect("no holder panics").add(ended.sample, held, ended.connecting_ns);
    }
}

async fn tell(
    run: Arc<Run>,
    progress: watch::Sender<Progress>,
    planned: Option<u64>,
    duration: Option<Duration>,
) {
    loop {
        tokio::time::sleep(TELL).await;
        let snapshot = {
            let collector = run.collector.lock().expect("no holder panics");
            Progress {
                elapsed: Duration::from_nanos(run.client.clock.now()),
                planned,
                duration,
                sent: run.sent.load(Ordering::Relaxed),
                done: collector.done(),
                failed: collector.failed(),
                held: run.held.load(Ordering::Relaxed),
                output_tokens: collector.output_tokens,
                ttft: collector.ttft.figures(),
                itl: collector.itl.figures(),
                lag_p99_ns: collector.lag.figures().p99_ns,
                last_error: collector.last_error.clone(),
            }
        };
        // Nobody has to look.
        let _ = progress.send(snapshot);
    }
}
