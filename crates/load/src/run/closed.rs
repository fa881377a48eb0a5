//! The closed loop: users who each send a call, wait for the answer, think, and send the next.
//!
//! **Invariant:** a user is idle only while it thinks, or while no call of the schedule is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::SeedableRng;
use rand::rngs::ChaCha12Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::conversation::Due;
use super::{Limits, Run, Think, WAITING_MAX};
use crate::schedule::{Call, CallId, Workload};

/// The users of a closed loop.
#[derive(Clone, Copy)]
pub(super) struct Users {
    pub count: usize,
    pub think: Think,
    pub seed: u64,
}

pub(super) async fn closed(
    run: &Arc<Run>,
    workload: &Arc<dyn Workload>,
    users: Users,
    limits: Limits,
    cancel: &mut watch::Receiver<bool>,
) -> JoinSet<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut calls = JoinSet::new();
    for user in 0..users.count {
        let (workload, next, cancel) = (Arc::clone(workload), Arc::clone(&next), cancel.clone());
        let schedule = Schedule { run: Arc::clone(run), workload, next, limits, cancel };
        let mut random =
            ChaCha12Rng::seed_from_u64(users.seed ^ (user as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        calls.spawn(async move {
            while let Some(due) = schedule.take().await {
                schedule.run.follow(due).await;
                tokio::time::sleep(users.think.draw(&mut random)).await;
            }
        });
    }
    // Users stop by themselves; the time until then is the run's, not its drain.
    let over = async {
        match limits.until {
            Some(until) => {
                tokio::time::sleep_until(run.client.clock.instant(until.as_nanos() as u64).into()).await
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        _ = cancel.wait_for(|cancel| *cancel) => {}
        () = async { while calls.join_next().await.is_some() {} } => {}
    }
    calls
}

/// The schedule, as a user takes calls from it.
struct Schedule {
    run: Arc<Run>,
    workload: Arc<dyn Workload>,
    /// The first call that nobody has looked at.
    next: Arc<AtomicU64>,
    limits: Limits,
    cancel: watch::Receiver<bool>,
}

impl Schedule {
    /// The first call that is ready, for a user who is ready now; waits while there is none, and gives None behind the last.
    /// A call that was looked at and is not ready stays with the conversations, for whoever comes when it is.
    async fn take(&self) -> Option<Due> {
        let conversations = &self.run.conversations;
        let user_ready = self.run.client.clock.now();
        let mut stop = self.run.stop.clone();
        loop {
            let mut news = std::pin::pin!(conversations.news());
            news.as_mut().enable();
            if *self.cancel.borrow() || self.limits.over(self.run.client.clock.now()) {
                return None;
            }
            if let Some(due) = conversations.next() {
                return Some(Due { wanted: user_ready, ..due });
            }
            if let Some(call) = self.look() {
                conversations.add(Due { call, wanted: user_ready, held: false });
                // Others are not kept waiting by one who looks through a long schedule.
                tokio::task::yield_now().await;
                continue;
            }
            if conversations.len() == 0 {
                return None;
            }
            tokio::select! {
                () = news => {}
                _ = stop.wait_for(|stop| *stop) => return None,
            }
        }
    }

    /// The schedule's next call; None behind the last, and while so many wait already.
    fn look(&self) -> Option<Call> {
        let ended = self.next.load(Ordering::Relaxed) >= self.limits.planned;
        if ended || self.run.conversations.len() >= WAITING_MAX {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.workload.call(CallId(id)).filter(|_| id < self.limits.planned)
    }
}
