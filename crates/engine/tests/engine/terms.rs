//! On what terms requests are served: shares, classes, deadlines, and the queue's bounds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Limits;
use ledger::RequestId;
use protocol::{RefusalKind, Submission, Terms};

use crate::harness::{Client, House, greedy, limits, prompt, submission};

fn terms(priority: i8, tenant: &str) -> Terms {
    Terms { priority, tenant: Some(Arc::from(tenant)), first_token_within: None }
}

fn with_terms(request: u64, length: usize, max: usize, terms: Terms) -> Submission {
    Submission { terms, ..submission(request, prompt(request, length), greedy(max)) }
}

/// The step in which each request got its first token.
fn first_steps(clients: &mut [Client]) -> Vec<u64> {
    clients.iter_mut().map(|client| client.read().steps[0].0).collect()
}

fn one_at_a_time() -> Limits {
    Limits { max_num_seqs: 1, ..limits() }
}

#[test]
fn tenants_are_served_by_their_weights_whatever_they_ask_for() {
    let weights = [("double".to_owned(), 2)].into();
    let mut house = House::new(Limits { max_num_seqs: 4, tenant_weights: weights, ..limits() });
    // One has many short requests, the other has few long ones; both have work all the time.
    let mut owners = HashMap::new();
    let mut clients = Vec::new();
    for request in 0..150 {
        let (tenant, length, max) = if request < 120 { ("double", 20, 8) } else { ("single", 90, 20) };
        owners.insert(RequestId(request), tenant);
        clients.push(house.submit(with_terms(request, length, max, terms(0, tenant))));
    }
    house.steps(220);
    let (mut served, mut largest) = (HashMap::new(), 0);
    for record in house.handle.steps(usize::MAX) {
        for member in record.members {
            *served.entry(owners[&member.request]).or_insert(0u64) += member.service_ns;
            largest = largest.max(member.service_ns);
        }
    }
    assert!(clients.iter_mut().any(|client| client.read().tokens.is_empty()), "both still have work");
    let ratio = served["double"] as f64 / served["single"] as f64;
    assert!((1.7..2.3).contains(&ratio), "twice the weight, twice the service: {served:?} {ratio}");
}

#[test]
fn what_members_are_charged_is_what_the_step_computed() {
    let mut house = House::new(limits());
    let _clients: Vec<Client> = (0..6).map(|request| house.ask(request, 30, 10)).collect();
    house.settle();
    for record in house.handle.steps(usize::MAX) {
        let charged: u64 = record.members.iter().map(|member| member.service_ns).sum();
        let took = record.ended_ns - record.started_ns;
        assert!(charged > 0 && charged <= took, "{charged} of {took}");
        // The fake executor takes a million for a step, and the clock moves by single nanoseconds otherwise.
        assert!(took - charged < 1_000, "{charged} of {took}");
    }
}

#[test]
fn a_newcomer_does_not_wait_behind_anothers_flood() {
    let run = |flood: &str| {
        let mut house = House::new(Limits { max_num_seqs: 2, ..limits() });
        let mut clients: Vec<Client> =
            (0..40).map(|request| house.submit(with_terms(request, 20, 10, terms(0, flood)))).collect();
        house.steps(5);
        clients.push(house.submit(with_terms(40, 20, 10, terms(0, "light"))));
        house.settle();
        let steps = first_steps(&mut clients);
        steps.iter().filter(|step| **step < steps[40]).count()
    };
    assert_eq!(run("light"), 40, "of one tenant, who comes last is last");
    let before = run("flood");
    assert!(before <= 4, "{before} of the flood were first");
}

#[test]
fn classes_go_first_and_give_way_last() {
    let mut house = House::new(one_at_a_time());
    let mut clients: Vec<Client> = [0, 0, 5, -5]
        .into_iter()
        .enumerate()
        .map(|(request, class)| house.submit(with_terms(request as u64, 10, 3, terms(class, "one"))))
        .collect();
    house.settle();
    let steps = first_steps(&mut clients);
    assert!(steps[3] < steps[0] && steps[0] < steps[1] && steps[1] < steps[2], "{steps:?}");

    // Two that do not fit together: the lower class gives way although it came first.
    let mut house = House::new(Limits { blocks: 12, growth_blocks: 0, ..limits() });
    let mut low = house.submit(with_terms(1, 30, 60, terms(1, "one")));
    house.steps(2);
    let mut high = house.submit(with_terms(2, 30, 60, terms(0, "one")));
    house.settle();
    let preempted = |client: &mut Client| {
        let timelines = &client.read().timelines;
        let segments = timelines.iter().flat_map(|timeline| timeline.segments());
        segments.filter(|segment| segment.stage == ledger::Stage::Preempted).count()
    };
    assert!(preempted(&mut low) > 0 && preempted(&mut high) == 0);
    assert_eq!((low.answer().len(), high.answer().len()), (60, 60));
}

#[test]
fn a_low_class_gets_its_turn_however_much_there_is_of_a_high_one() {
    let run = |aging_ns| {
        let mut house = House::new(Limits { aging_ns, ..one_at_a_time() });
        let mut low = house.submit(with_terms(0, 10, 2, terms(3, "one")));
        let mut high = Vec::new();
        for request in 1..200 {
            high.push(house.submit(with_terms(request, 10, 2, terms(0, "one"))));
            house.steps(2);
        }
        low.read().steps.first().map(|step| step.0)
    };
    assert_eq!(run(0), None, "without aging, classes are strict");
    // Three classes of ten steps each, at a million nanoseconds a step.
    let step = run(10_000_000).expect("it got its turn");
    assert!((28..60).contains(&step), "{step}");
}

#[test]
fn a_deadline_that_cannot_be_met_is_said_so_at_once_and_costs_nothing() {
    let mut house = House::new(one_at_a_time());
    let mut busy = house.ask(1, 100, 50);
    house.steps(20);
    let within = |ms| Terms { first_token_within: Some(Duration::from_millis(ms)), ..Terms::default() };
    let mut patient = house.submit(with_terms(2, 10, 3, within(1_000)));
    let mut hasty = house.submit(with_terms(3, 10, 3, within(5)));
    let waits = house.handle.state().waiting;
    house.settle();
    assert_eq!(waits, 2);
    let refusal = hasty.read().failure.clone().expect("it is told");
    assert_eq!(refusal.kind, RefusalKind::Deadline);
    assert!(refusal.message.contains("ttft_deadline_ms") && refusal.retry_after.is_some(), "{refusal}");
    assert_eq!((busy.answer().len(), patient.answer().len()), (50, 3));
    let members = house.handle.steps(usize::MAX).into_iter().flat_map(|record| record.members);
    assert!(members.into_iter().all(|member| member.request != RequestId(3)), "it was not computed");
    house.assert_empty();
}

#[test]
fn of_one_tenants_requests_the_earliest_deadline_is_first() {
    let mut house = House::new(one_at_a_time());
    let within = |ms| Terms { first_token_within: Some(Duration::from_millis(ms)), ..Terms::default() };
    let mut clients = vec![house.ask(0, 10, 5)];
    clients.push(house.ask(1, 10, 5));
    clients.push(house.submit(with_terms(2, 10, 5, within(9_000))));
    clients.push(house.submit(with_terms(3, 10, 5, within(900))));
    house.settle();
    let steps = first_steps(&mut clients);
    assert!(steps[3] < steps[2] && steps[2] < steps[0] && steps[0] < steps[1], "{steps:?}");
}

#[test]
fn the_queue_is_bounded_in_tokens_and_says_when_to_come_back() {
    let mut house = House::new(Limits { queue_tokens_max: 500, ..one_at_a_time() });
    let mut clients = vec![house.ask(0, 700, 4)];
    house.steps(1);
    // A prompt longer than the bound was taken on, since nobody waited; now this one fills the queue.
    clients.extend((1..=5).map(|request| house.ask(request, 100, 4)));
    assert_eq!(house.handle.state().waiting_tokens, 500);
    let refusal = house.handle.submit(submission(6, prompt(6, 10), greedy(4))).err().expect("it is full");
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    assert!(refusal.message.contains("500 prompt tokens wait") && refusal.message.contains("10 of this"));
    assert!(refusal.retry_after.is_some());
    house.settle();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().len(), 4));
    assert_eq!(house.handle.state().waiting_tokens, 0);
    // Cancelled ones count no more.
    let held = house.ask(7, 400, 4);
    drop(held);
    assert_eq!(house.handle.state().waiting_tokens, 0);
}
