//! What breaks, and what does not break with it.

use engine::simulate::Fault;
use protocol::{RefusalKind, Sampling};

use crate::harness::{Client, House, expected, greedy, limits, prompt, submission};

/// An engine whose third step goes wrong while four sequences run, of which one is paused.
fn check(fault: Fault) {
    let mut step = 0;
    let mut limits = limits();
    limits.outbox_max = 1;
    let mut house = House::with(limits, |executor| {
        executor.watched(move |_| {
            step += 1;
            (step == 3).then_some(fault)
        })
    });
    let mut clients: Vec<Client> = (0..4).map(|request| house.ask(request, 9, 10)).collect();
    house.steps(1);
    // The last client does not read, so its outbox is full and it is no member of the next steps.
    clients[..3].iter_mut().for_each(|client| assert_eq!(client.read().tokens.len(), 1));
    house.steps(1);
    clients[..3].iter_mut().for_each(|client| assert_eq!(client.read().tokens.len(), 2));
    house.steps(1);
    let failed = if fault == Fault::NotANumber { 1 } else { 3 };
    for client in &mut clients[..failed] {
        let seen = client.read();
        let refusal = seen.failure.as_ref().expect("a member of the broken step has failed");
        assert_eq!(refusal.kind, RefusalKind::Internal);
        assert_eq!(seen.tokens.len(), 2);
        assert!(client.outputs.try_recv().is_none());
    }
    assert_eq!(house.handle.state().running, 4 - failed);
    for _ in 0..30 {
        house.steps(1);
        clients[failed..].iter_mut().for_each(|client| drop(client.read().clone()));
    }
    for (request, client) in clients.iter_mut().enumerate().skip(failed) {
        assert_eq!(client.answer(), expected(&prompt(request as u64, 9), 10), "the others go on unharmed");
    }
    house.assert_empty();
    assert!(house.handle.state().alive);
}

#[test]
fn an_error_of_the_executor_fails_the_steps_members_alone() {
    check(Fault::Error);
}

#[test]
fn a_panic_of_the_executor_fails_the_steps_members_alone() {
    check(Fault::Panic);
}

/// vllm-project/vllm#17246 and others: one request's NaN took the whole batch down.
#[test]
fn logits_that_are_not_numbers_fail_their_sequence_alone() {
    check(Fault::NotANumber);
}

#[test]
fn an_executor_that_always_breaks_is_called_dead_and_revives_with_the_first_good_step() {
    let mut step = 0;
    let mut house = House::with(limits(), |executor| {
        executor.watched(move |_| {
            step += 1;
            (step <= 3).then_some(Fault::Panic)
        })
    });
    for request in 0..3 {
        assert!(house.handle.state().alive);
        let mut client = house.ask(request, 5, 5);
        house.steps(1);
        assert!(client.read().failure.is_some());
    }
    assert!(!house.handle.state().alive);
    let mut client = house.ask(4, 5, 5);
    house.settle();
    client.answer();
    assert!(house.handle.state().alive);
}

#[test]
fn a_submission_that_no_validated_request_holds_is_refused() {
    let house = House::new(limits());
    let wrong = [
        ("prompt", prompt(1, 0), greedy(1)),
        ("prompt", [protocol::TokenId(64)].into(), greedy(1)),
        ("max_tokens", prompt(1, 3), greedy(0)),
        ("temperature", prompt(1, 3), Sampling { temperature: -1.0, ..Sampling::default() }),
    ];
    for (field, prompt, sampling) in wrong {
        let refusal = house.handle.submit(submission(1, prompt, sampling)).err().unwrap();
        assert_eq!((refusal.kind, refusal.param.as_deref()), (RefusalKind::Invalid, Some(field)));
    }
    house.assert_empty();
}

#[test]
fn forbidding_every_token_fails_with_the_field_at_fault() {
    let mut house = House::new(limits());
    let sampling = Sampling {
        min_tokens: 5,
        stop_token_ids: (0..64).map(protocol::TokenId).collect(),
        ..Sampling::default()
    };
    let mut client = house.submit(submission(1, prompt(1, 5), sampling));
    house.steps(1);
    let refusal = client.read().failure.clone().unwrap();
    assert_eq!((refusal.kind, refusal.param.as_deref()), (RefusalKind::Invalid, Some("min_tokens")));
    house.assert_empty();
}
