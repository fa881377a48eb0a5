//! Calls that wait for earlier ones keep nobody else from sending, in either loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use load::client::{Address, Client, Clock};
use load::results::Results;
use load::run::{Load, Plan, Progress, Think, run};
use load::sample::Sample;
use load::schedule::{Call, CallId, Workload};
use tokio::sync::watch;

use super::mock::{Mock, at, done, finish, token};
use super::{Numbers, at_rate, plan, results};

/// Two calls of which the second needs the first, `sessions` times: all first ones, then all second ones.
struct Pairs {
    sessions: u64,
}

impl Workload for Pairs {
    fn len(&self) -> Option<u64> {
        Some(2 * self.sessions)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let call = Numbers { count: 2 * self.sessions, turns: 1 }.call(id)?;
        let after = id.0.checked_sub(self.sessions).map(CallId).into_iter().collect();
        Some(Call { after, session: Some(id.0 % self.sessions), ..call })
    }

    fn describe(&self) -> String {
        "pairs".into()
    }
}

/// Calls of which all but the first need the first.
struct Fan {
    count: u64,
}

impl Workload for Fan {
    fn len(&self) -> Option<u64> {
        Some(self.count)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let call = Numbers { count: self.count, turns: 1 }.call(id)?;
        Some(Call { after: (id.0 > 0).then_some(CallId(0)).into_iter().collect(), ..call })
    }

    fn describe(&self) -> String {
        "fan".into()
    }
}

/// A server that takes so long for each answer.
fn slow(ms: u64) -> Mock {
    Mock::start(move |_, _| vec![at(ms), token("x"), finish("stop"), done()])
}

fn users(count: usize) -> Load {
    Load::Closed { users: count, think: Think::Constant(Duration::ZERO) }
}

fn end(sample: &Sample) -> u64 {
    sample.last_byte_ns.unwrap()
}

fn sent(sample: &Sample) -> u64 {
    sample.sent_ns.unwrap()
}

/// The most calls that were on their way at once.
fn most_at_once(found: &Results) -> usize {
    let on_the_way = |moment| found.samples.iter().filter(|s| sent(s) <= moment && moment < end(s)).count();
    found.samples.iter().map(|sample| on_the_way(sent(sample))).max().unwrap()
}

#[track_caller]
fn assert_all_finished(found: &Results, count: u64) {
    assert_eq!(found.outcomes.get("finished"), Some(&count), "{:?}", found.outcomes);
}

#[test]
fn a_turn_that_waits_takes_no_place_of_the_open_loop() {
    let mock = slow(60);
    let mut plan = plan(&mock, at_rate(1000.0), 6);
    // One session's three turns, then the other's: the first session's second turn had the second place.
    (plan.workload, plan.in_flight_max) = (Arc::new(Numbers { count: 6, turns: 3 }), 2);
    let found = results(plan);
    assert_all_finished(&found, 6);
    assert!(sent(&found.samples[3]) < end(&found.samples[0]), "{:?}", found.samples[3]);
    assert_eq!(most_at_once(&found), 2);
    let last = found.samples.iter().map(end).max().unwrap();
    assert!(last < 260_000_000, "three times two calls of 60 ms took {} ms", last / 1_000_000);
}

#[test]
fn one_place_serves_two_sessions_without_a_pause_and_one_call_at_a_time() {
    let mock = slow(30);
    for workload in
        [Arc::new(Pairs { sessions: 2 }) as Arc<dyn Workload>, Arc::new(Numbers { count: 4, turns: 2 })]
    {
        let mut plan = plan(&mock, at_rate(1000.0), 4);
        (plan.workload, plan.in_flight_max) = (workload, 1);
        let found = results(plan);
        assert_all_finished(&found, 4);
        assert_eq!(most_at_once(&found), 1);
        let mut by_sending: Vec<&Sample> = found.samples.iter().collect();
        by_sending.sort_by_key(|sample| sent(sample));
        for pair in by_sending.windows(2) {
            assert!(sent(pair[1]) - end(pair[0]) < 20_000_000, "{pair:?}");
        }
    }
}

#[test]
fn a_turn_is_measured_from_the_answer_before_it_and_its_wait_for_a_place_is_counted() {
    let mock = slow(50);
    let mut plan = plan(&mock, at_rate(1000.0), 6);
    // Both other first turns come before the first session's second one.
    (plan.workload, plan.in_flight_max) = (Arc::new(Pairs { sessions: 3 }), 1);
    let found = results(plan);
    assert_all_finished(&found, 6);
    let (first, second) = (&found.samples[0], &found.samples[3]);
    assert!((end(first)..end(first) + 10_000_000).contains(&second.intended_ns), "{second:?}");
    assert!(sent(second) - second.intended_ns > 80_000_000, "{second:?}");
    assert_eq!(found.held, 5, "all but the first");
    assert!(found.health.void.is_empty(), "the limit's waits are not the client's lag: {:?}", found.health);
}

#[test]
fn users_take_the_next_call_that_is_ready() {
    let mock = slow(60);
    let mut plan = plan(&mock, users(2), 6);
    plan.workload = Arc::new(Numbers { count: 6, turns: 3 });
    let found = results(plan);
    assert_all_finished(&found, 6);
    assert!(sent(&found.samples[3]) < end(&found.samples[0]), "{:?}", found.samples[3]);
    let last = found.samples.iter().map(end).max().unwrap();
    assert!(last < 260_000_000, "three times two calls of 60 ms took {} ms", last / 1_000_000);
    for session in [&found.samples[..3], &found.samples[3..]] {
        for turns in session.windows(2) {
            assert!(turns[1].intended_ns >= end(&turns[0]), "{turns:?}");
        }
    }
}

#[test]
fn users_without_a_ready_call_wait_and_all_calls_are_sent_in_the_end() {
    let mock = slow(10);
    let mut plan = plan(&mock, users(5), 8);
    plan.workload = Arc::new(Numbers { count: 8, turns: 4 });
    let found = results(plan);
    assert_all_finished(&found, 8);
    assert_eq!(most_at_once(&found), 2);
}

#[test]
fn more_calls_than_may_wait_are_held_back_and_all_are_sent() {
    let count = 4_500;
    let server = || {
        Mock::start(|number, _| {
            vec![at(if number == 0 { 400 } else { 0 }), token("x"), finish("stop"), done()]
        })
    };
    for load in [at_rate(100_000.0), users(20)] {
        let mock = server();
        let open = matches!(load, Load::Open { .. });
        let mut plan = plan(&mock, load, count);
        (plan.workload, plan.in_flight_max, plan.samples_max) = (Arc::new(Fan { count }), 20, 10_000);
        let found = results(plan);
        assert_all_finished(&found, count);
        assert!(found.samples.iter().skip(1).all(|sample| sample.intended_ns >= end(&found.samples[0])));
        assert!(!open || found.held > 400, "{}", found.held);
    }
}

#[test]
fn a_stopped_run_sends_no_more_and_counts_every_call_that_was_wanted() {
    let served = Arc::new(AtomicUsize::new(0));
    let serves = Arc::clone(&served);
    let mock = Mock::start(move |_, _| {
        serves.fetch_add(1, Ordering::SeqCst);
        vec![at(150), token("x"), finish("stop"), done()]
    });
    let mut plan: Plan = plan(&mock, at_rate(1000.0), 8);
    plan.workload = Arc::new(Numbers { count: 8, turns: 4 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(async {
        let address = Address::new(&plan.target.url).unwrap();
        let client = Client::new(address, None, Duration::from_secs(10), Clock::start());
        let (cancel, cancelled) = watch::channel(false);
        let running = run(plan, Arc::new(client), watch::channel(Progress::default()).0, cancelled);
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(70)).await;
            cancel.send(true).unwrap();
        };
        tokio::join!(running, stopping).0.unwrap()
    });
    assert_eq!(served.load(Ordering::SeqCst), 2);
    assert_eq!((found.outcomes["finished"], found.outcomes["in_flight"]), (2, 6), "{:?}", found.outcomes);
}
