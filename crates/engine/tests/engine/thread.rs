//! The engine on its own thread, with the real clock.

use std::sync::mpsc;
use std::time::Duration;

use engine::simulate::{FakeExecutor, Fault, VirtualClock};
use engine::{Engine, Handle, LimitsError, Outputs, StartError};
use ledger::Account;
use protocol::{Output, RefusalKind};

use crate::harness::{expected, greedy, limits, prompt, submission};

fn start(change: impl FnOnce(FakeExecutor) -> FakeExecutor + Send + 'static) -> Handle {
    Engine::start(move || change(FakeExecutor::new(&limits(), VirtualClock::default())), limits())
        .expect("it starts")
}

/// Polls for what another thread brings about within a step or two.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not within ten seconds: {what}");
}

/// The next output, which must come soon.
fn receive(outputs: &mut Outputs) -> Output {
    let mut output = None;
    eventually("an output", || {
        output = outputs.try_recv();
        output.is_some()
    });
    output.expect("it came")
}

#[test]
fn it_answers_rests_and_answers_again() {
    let handle = start(|executor| executor);
    for request in 0..3 {
        let mut outputs = handle.submit(submission(request, prompt(request, 40), greedy(150))).unwrap();
        let mut tokens = Vec::new();
        while tokens.len() < 150 {
            let Output::Token { token, .. } = receive(&mut outputs) else { panic!("no token") };
            tokens.push(token);
        }
        assert!(outputs.blocking_recv().is_none());
        assert_eq!(tokens, expected(&prompt(request, 40), 150), "more tokens than the outbox holds at once");
        let state = handle.state();
        assert!(state.is_idle() && state.blocks_free == state.blocks_total && state.alive, "{state:?}");
    }
    handle.stop();
}

#[test]
fn a_client_that_reads_again_wakes_the_engine() {
    let handle = start(|executor| executor);
    let mut outputs = handle.submit(submission(1, prompt(1, 5), greedy(150))).unwrap();
    let full = limits().outbox_max as u64;
    eventually("its outbox is full", || {
        handle.state().steps == full && handle.state().step_running_ns.is_none()
    });
    // Nobody else would wake it now.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(handle.state().steps, full);
    let mut tokens = Vec::new();
    eventually("the rest of the answer", || {
        while let Some(Output::Token { token, .. }) = outputs.try_recv() {
            tokens.push(token);
        }
        tokens.len() == 150
    });
    assert_eq!(tokens, expected(&prompt(1, 5), 150));
    handle.stop();
}

#[test]
fn the_account_of_a_request_sums_to_its_whole_time() {
    let handle = start(|executor| executor);
    let opened = ledger::now_ns();
    let mut account = Account::open(opened);
    let mut outputs = handle.submit(submission(1, prompt(1, 40), greedy(20))).unwrap();
    let mut unattributed = 0;
    while let Some(Output::Token { timeline, step, .. }) = outputs.blocking_recv() {
        let now = ledger::now_ns();
        assert!(
            timeline.segments().iter().all(|segment| segment.since <= now),
            "no stamp lies in the future"
        );
        unattributed += timeline.begins().unwrap().saturating_sub(account.delivered());
        account.deliver(&timeline, 1, Some(step), now);
    }
    let sum: u64 = account.stages().iter().map(|charge| charge.ns).sum();
    assert_eq!(sum, account.delivered() - opened);
    let first =
        account.units().0[0].gap.iter().find(|charge| charge.stage == ledger::Stage::Unattributed).cloned();
    // Only what this test itself did between opening the account and submitting.
    assert_eq!(first.map_or(0, |charge| charge.ns), unattributed);
    handle.stop();
}

/// A gate that the executor waits at in every step.
fn gated() -> (Handle, mpsc::Sender<Option<Fault>>, mpsc::Receiver<()>) {
    let (open, gate) = mpsc::channel();
    let (entered, inside) = mpsc::channel();
    let handle = start(move |executor| {
        executor.watched(move |_| {
            let _ = entered.send(());
            gate.recv().unwrap_or(None)
        })
    });
    (handle, open, inside)
}

#[test]
fn state_can_be_read_while_a_step_takes_its_time() {
    let (handle, open, inside) = gated();
    let outputs = handle.submit(submission(1, prompt(1, 5), greedy(3))).unwrap();
    inside.recv().unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let state = handle.state();
    assert!(state.step_running_ns.is_some_and(|ns| ns >= 5_000_000), "{state:?}");
    assert_eq!((state.running, state.alive), (1, true));
    drop(outputs);
    assert_eq!(handle.state().running, 0, "a client that left is not counted, though the step goes on");
    open.send(None).unwrap();
    eventually("the step has ended", || handle.state().steps == 1);
    assert_eq!(handle.state().blocks_free, handle.state().blocks_total);
    handle.stop();
}

#[test]
fn a_stop_tells_everyone_and_ends_the_thread() {
    let (handle, open, inside) = gated();
    let mut running = handle.submit(submission(1, prompt(1, 5), greedy(50))).unwrap();
    inside.recv().unwrap();
    let mut waiting = handle.submit(submission(2, prompt(2, 5), greedy(50))).unwrap();
    let other = handle.clone();
    let stopper = std::thread::spawn(move || other.stop());
    eventually("it was told", || handle.state().draining);
    drop(open);
    stopper.join().unwrap();
    assert!(matches!(running.blocking_recv(), Some(Output::Token { .. })), "the step's token still came");
    for outputs in [&mut running, &mut waiting] {
        let Some(Output::Failed { refusal, .. }) = outputs.blocking_recv() else { panic!("it was not told") };
        assert_eq!(refusal.kind, RefusalKind::Unavailable);
        assert!(outputs.blocking_recv().is_none());
    }
    let state = handle.state();
    assert!(!state.alive && state.is_idle() && state.blocks_free == state.blocks_total, "{state:?}");
    assert_eq!(
        handle.submit(submission(3, prompt(3, 5), greedy(1))).err().unwrap().kind,
        RefusalKind::Unavailable
    );
}

#[test]
fn the_last_handle_takes_the_engine_with_it() {
    let handle = start(|executor| executor);
    let mut outputs = handle.submit(submission(1, prompt(1, 5), greedy(1000))).unwrap();
    outputs.blocking_recv().unwrap();
    drop(handle);
    let mut last = None;
    while let Some(output) = outputs.blocking_recv() {
        last = Some(output);
    }
    assert!(matches!(last, Some(Output::Failed { .. })), "{last:?}");
}

#[test]
fn a_panic_in_the_executor_does_not_end_the_thread() {
    let (handle, open, _inside) = gated();
    let mut outputs = handle.submit(submission(1, prompt(1, 5), greedy(50))).unwrap();
    open.send(Some(Fault::Panic)).unwrap();
    let Some(Output::Failed { refusal, .. }) = outputs.blocking_recv() else { panic!("it was not told") };
    assert!(refusal.message.contains("a panic was asked for"), "{refusal}");
    assert!(handle.state().alive);
    drop(open);
    let mut outputs = handle.submit(submission(2, prompt(2, 5), greedy(2))).unwrap();
    assert!(matches!(outputs.blocking_recv(), Some(Output::Token { .. })));
    handle.stop();
}

#[test]
fn an_executor_that_cannot_be_made_leaves_a_dead_engine() {
    let make = || -> FakeExecutor { panic!("no model") };
    let handle = Engine::start(make, limits()).unwrap();
    eventually("it is known to be dead", || !handle.state().alive);
    assert!(handle.submit(submission(1, prompt(1, 5), greedy(1))).is_err());
}

#[test]
fn limits_are_checked_before_anything_starts() {
    let mut wrong = limits();
    wrong.blocks = 0;
    let make = || FakeExecutor::new(&limits(), VirtualClock::default());
    let Err(StartError::Limits(LimitsError::Zero("blocks"))) = Engine::start(make, wrong) else {
        panic!("limits without blocks were taken")
    };
}
