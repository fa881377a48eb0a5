//! The open loop: calls are sent when the schedule wants them, whatever the server does.
//!
//! **Invariant:** only a call that is on its way takes one of the places; one that waits for an earlier turn takes none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::conversation::Due;
use super::{Limits, Run, WAITING_MAX};
use crate::sample::Ns;
use crate::schedule::Call;

/// How long the run's end waits for the next call that is overdue.
const BACKLOG: Duration = Duration::from_millis(20);

pub(super) async fn open(
    run: &Arc<Run>,
    mut ticks: mpsc::Receiver<(Ns, Call)>,
    limits: Limits,
    in_flight_max: usize,
    cancel: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    let (mut coming, mut cancelled) = (true, cancel.clone());
    // Until then the schedule was not looked at, for want of places.
    let mut blocked_until = 0;
    loop {
        let ready = send(run, &mut calls, in_flight_max);
        // While a ready call has no place, the schedule waits: what it has next would stand behind it.
        let look = coming && ready == 0 && run.conversations.len() < WAITING_MAX;
        if !coming && run.conversations.len() == 0 {
            break;
        }
        tokio::select! {
            tick = ticks.recv(), if look => {
                let due = tick.filter(|(intended, call)| !limits.reached(call.id.0, *intended));
                let Some((wanted, call)) = due else {
                    coming = false;
                    continue;
                };
                // Of a call that came ahead of its time, the rest is spun away.
                while run.client.clock.now() < wanted && !*cancel.borrow() {
                    send(run, &mut calls, in_flight_max);
                    tokio::task::yield_now().await;
                }
                let held = wanted < blocked_until;
                run.held.fetch_add(u64::from(held), Ordering::Relaxed);
                run.conversations.add(Due { call, wanted, held });
            }
            _ = calls.join_next(), if !calls.is_empty() => {}
            _ = cancelled.wait_for(|cancel| *cancel) => break,
            () = at(limits.end) => break,
        }
        if coming && !look {
            blocked_until = run.client.clock.now();
        }
    }
    // What was due by now, and is not sent any more, is in the outcomes all the same.
    run.conversations.drain().into_iter().for_each(|due| run.leave(due.call, due.wanted));
    while let (true, Ok(Some((wanted, call)))) = (coming, tokio::time::timeout(BACKLOG, ticks.recv()).await) {
        if wanted > run.client.clock.now() || limits.reached(call.id.0, wanted) {
            break;
        }
        run.held.fetch_add(1, Ordering::Relaxed);
        run.leave(call, wanted);
    }
    calls
}

/// Sends what is ready, in the order of the schedule, as far as there are places. What is left of it, of which it says how
/// many there are, is held back.
fn send(run: &Arc<Run>, calls: &mut JoinSet<()>, in_flight_max: usize) -> usize {
    while calls.try_join_next().is_some() {}
    while calls.len() < in_flight_max.max(1) {
        let Some(due) = run.conversations.next() else { break };
        let run = Arc::clone(run);
        calls.spawn(async move { run.follow(due).await });
    }
    let (newly, ready) = run.conversations.hold();
    run.held.fetch_add(newly as u64, Ordering::Relaxed);
    ready
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
