//! The compute threads: a fixed number that fork and join many times per step.
//!
//! A step has several joins per layer, so waking must be quick: a waiting thread spins for a short while and parks after
//! that, so that an idle engine costs nothing. The calling thread is worker 0.
//!
//! **Invariant:** [`Pool::run`] returns or unwinds only after every worker has left the work it was given, so that the work
//! may borrow from the caller's stack.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::error::KernelError;

/// More threads than this is taken for a mistake.
pub const THREADS_MAX: usize = 1024;

/// How long a waiting thread spins before it parks: longer than the gaps inside a step, shorter than those between steps.
const SPIN: Duration = Duration::from_micros(50);

/// Work that takes the index of the thread it runs on.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held for a whole run: two callers take turns.
    turn: Mutex<()>,
}

struct Shared {
    job: UnsafeCell<Option<Job>>,
    /// Counts the jobs; a change tells the workers that `job` is new.
    epoch: AtomicU64,
    /// Workers that have not finished the job yet. Zero means that `job` belongs to the caller.
    busy: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone)]
struct Job {
    work: *const Work<'static>,
    caller: Thread,
}

// SAFETY: `job` is written by the caller only while `busy` is zero, and read by workers only between the epoch's release
// and their decrement of `busy`. The work behind its pointer is `Sync` and outlives the run.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is bound to the thread that made it.
unsafe impl Send for Shared {}

thread_local! {
    /// Whether this thread is inside a pool's work, where another run would wait for itself.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// `threads` counts the caller: one thread means no workers.
    pub fn new(threads: usize) -> Result<Pool, KernelError> {
        if threads == 0 || threads > THREADS_MAX {
            return Err(KernelError::Threads { threads, max: THREADS_MAX });
        }
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            epoch: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new().name(format!("compute-{index}"));
            let worker = worker
                .spawn(move || shared.serve(index))
                .map_err(|error| KernelError::Spawn { index, reason: error.to_string() })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// How many threads work, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work(thread)` once on every thread and returns when all have finished. A panic in any of them resumes here.
    ///
    /// Panics when called from inside a pool's work.
    pub fn run(&self, work: &Work<'_>) {
        assert!(!INSIDE.get(), "a pool's work must not start another run");
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.post(work, &self.workers);
        let own = catch_unwind(AssertUnwindSafe(|| inside(|| work(0))));
        self.shared.wait_until_finished();
        let theirs = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(turn);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    /// Calls `work(item)` once for every item below `count`; threads claim items in order, each as it gets free.
    pub fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.workers.is_empty() {
            return (0..count).for_each(work);
        }
        let next = AtomicUsize::new(0);
        self.run(&|_thread| {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= count {
                    return;
                }
                work(item);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            worker.join().expect("a worker catches the panics of its work");
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

impl Shared {
    /// Hands `work` to the workers. Whoever calls this must not let `work` end before [`Shared::wait_until_finished`].
    fn post(&self, work: &Work<'_>, workers: &[JoinHandle<()>]) {
        let work: *const Work<'_> = work;
        // SAFETY: only the lifetime changes; `run` waits for all workers before `work` can end.
        let work: *const Work<'static> = unsafe { std::mem::transmute(work) };
        // SAFETY: `busy` is zero between runs and the caller holds the turn, so nobody else reads or writes the job.
        unsafe { *self.job.get() = Some(Job { work, caller: std::thread::current() }) };
        self.busy.store(workers.len(), Ordering::Relaxed);
        self.epoch.fetch_add(1, Ordering::Release);
        for worker in workers {
            worker.thread().unpark();
        }
    }

    fn wait_until_finished(&self) {
        wait_until(|| self.busy.load(Ordering::Acquire) == 0);
    }

    /// A worker's life: wait for a job, do it, say so.
    fn serve(&self, index: usize) {
        let mut seen = 0;
        loop {
            wait_until(|| self.epoch.load(Ordering::Acquire) != seen || self.stop.load(Ordering::Acquire));
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            seen = self.epoch.load(Ordering::Acquire);
            // SAFETY: the epoch's release published the job, and it stays until this worker has decremented `busy`.
            let job = unsafe { (*self.job.get()).clone() }.expect("an epoch begins with a job");
            // SAFETY: `run` keeps the work alive until every worker has decremented `busy`.
            let work = unsafe { &*job.work };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| inside(|| work(index)))) {
                self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                job.caller.unpark();
            }
        }
    }
}

fn inside(work: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    INSIDE.set(true);
    let _leave = Leave;
    work();
}

/// Spins, then parks until `done`. Whoever makes it true unparks this thread afterwards, so no wake-up is lost.
fn wait_until(done: impl Fn() -> bool) {
    const SPINS_PER_LOOK: u32 = 32;
    let start = Instant::now();
    loop {
        for _ in 0..SPINS_PER_LOOK {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            break;
        }
    }
    while !done() {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(threads: usize) -> Pool {
        Pool::new(threads).expect("a small pool starts")
    }

    #[test]
    fn every_thread_works_once_per_run() {
        for threads in [1, 2, 5] {
            let pool = pool(threads);
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..200 {
                pool.run(&|thread| {
                    counts[thread].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 200));
        }
    }

    #[test]
    fn every_item_is_claimed_exactly_once() {
        let pool = pool(3);
        for count in [0, 1, 2, 1000] {
            let claims: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each(count, &|item| {
                claims[item].fetch_add(1, Ordering::Relaxed);
            });
            assert!(claims.iter().all(|claim| claim.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_parked_worker_wakes_for_the_next_run() {
        let pool = pool(2);
        let hits = AtomicUsize::new(0);
        for _ in 0..3 {
            // Long enough for the worker to have parked; the claim holds either way.
            std::thread::sleep(SPIN * 4);
            pool.run(&|_| {
                hits.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(hits.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_survives() {
        let pool = pool(2);
        for culprit in [0, 1] {
            let caught =
                catch_unwind(AssertUnwindSafe(|| pool.run(&|thread| assert_ne!(thread, culprit, "culprit"))));
            assert!(caught.is_err());
        }
        let hits = AtomicUsize::new(0);
        pool.run(&|_| {
            hits.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(hits.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_run_inside_a_run_is_refused() {
        let pool = pool(2);
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(&|_| pool.run(&|_| ())))).is_err());
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = pool(2);
        let hits = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.run(&|_| {
                            hits.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(hits.load(Ordering::Relaxed), 4 * 50 * 2);
    }

    #[test]
    fn a_pool_of_no_threads_is_refused() {
        assert!(matches!(Pool::new(0), Err(KernelError::Threads { threads: 0, .. })));
    }
}
