//! A sequence's life: its ends, its cancellation in every stage, and the stages it is charged to.

use ledger::{Cause, Part, Stage, StepId, Timeline};
use protocol::{Finish, Sampling, TokenId};

use crate::harness::{Client, END, House, expected, greedy, limits, prompt, submission};

fn stages(timeline: &Timeline) -> Vec<Stage> {
    let mut stages: Vec<Stage> = timeline.segments().iter().map(|segment| segment.stage).collect();
    stages.dedup();
    stages
}

#[test]
fn a_token_is_charged_to_its_stages_in_order() {
    let mut house = House::new(limits());
    let mut client = house.ask(1, 70, 3);
    house.settle();
    let seen = client.read();
    use Stage::*;
    assert_eq!(
        stages(&seen.timelines[0]),
        [Handoff, Queue, Prefill, PrefillWait, Prefill, PrefillWait, Prefill, Sample, Return]
    );
    for timeline in &seen.timelines[1..] {
        assert_eq!(stages(timeline), [DecodeWait, Decode, Sample, Return]);
    }
    for pair in seen.timelines.windows(2) {
        let (_, emitted) =
            pair[0].spans(0).map(|(segment, _)| (segment.stage, segment.since)).last().unwrap();
        assert_eq!(
            pair[1].begins(),
            Some(emitted),
            "the next token's way begins where the last one's went out"
        );
    }
    assert_eq!(seen.steps, [3, 4, 5].map(StepId));
}

#[test]
fn prefill_and_decode_last_as_long_as_the_execution_of_their_steps() {
    let mut house = House::with(limits(), |mut executor| {
        (executor.step_ns, executor.token_ns) = (5_000_000, 1_000);
        executor
    });
    let mut client = house.ask(1, 30, 2);
    house.settle();
    let seen = client.read();
    let ns = |timeline: &Timeline, stage| -> u64 {
        let spans = timeline.spans(0).filter(|(segment, _)| segment.stage == stage);
        spans.map(|(segment, end)| end - segment.since).sum()
    };
    // Looking at the virtual clock takes a nanosecond.
    assert_eq!(ns(&seen.timelines[0], Stage::Prefill), 5_000_000 + 30 * 1_000 + 1);
    assert_eq!(ns(&seen.timelines[1], Stage::Decode), 5_000_000 + 1_000 + 1);
}

#[test]
fn answers_end_where_they_should() {
    let answer = expected(&prompt(1, 20), 200);
    let run = |change: &dyn Fn(&mut Sampling)| {
        let mut house = House::new(limits());
        let mut sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        change(&mut sampling);
        let mut client = house.submit(submission(1, prompt(1, 20), sampling));
        for _ in 0..1100 {
            house.steps(1);
            client.read();
        }
        house.assert_empty();
        (client.answer(), client.read().finish.unwrap())
    };
    let first_end =
        answer.iter().position(|token| *token == END).expect("the fake model ends within 200 tokens");
    assert_eq!(run(&|_| {}), (answer[..=first_end].to_vec(), Finish::Stop));
    let (stop, at) = (answer[3], answer.iter().position(|token| *token == answer[3]).unwrap());
    assert_eq!(run(&|it| it.stop_token_ids = vec![stop]), (answer[..=at].to_vec(), Finish::Stop));
    assert_eq!(run(&|it| it.max_tokens = Some(3)), (answer[..3].to_vec(), Finish::Length));
    let (long, finish) = run(&|it| (it.ignore_eos, it.max_tokens) = (true, Some(first_end + 9)));
    assert_eq!((&long[..], finish), (&answer[..first_end + 9], Finish::Length));
    let (full, finish) = run(&|it| it.ignore_eos = true);
    assert_eq!((full.len(), finish), (1024 - 20, Finish::Length), "prompt and answer fill the context");
    let (patient, _) = run(&|it| it.min_tokens = first_end + 5);
    assert!(patient.len() > first_end + 5 && !patient[..first_end + 5].contains(&END));
}

#[test]
fn an_end_token_in_the_last_place_is_a_stop() {
    let answer = expected(&prompt(1, 20), 200);
    let end = answer.iter().position(|token| *token == END).unwrap();
    let mut house = House::new(limits());
    let sampling = Sampling { temperature: 0.0, max_tokens: Some(end + 1), ..Sampling::default() };
    let mut client = house.submit(submission(1, prompt(1, 20), sampling));
    for _ in 0..300 {
        house.steps(1);
        client.read();
    }
    assert_eq!(client.read().finish, Some(Finish::Stop));
}

/// Brings a sequence into a stage, then ends it, once by a word and once by walking away.
fn check_cancel(stage: Stage, arrange: impl Fn(&mut House) -> (Client, Vec<Client>)) {
    for says_so in [true, false] {
        let mut limits = limits();
        (limits.max_num_seqs, limits.blocks) = (3, 30);
        let mut house = House::new(limits);
        let (mut client, mut others) = arrange(&mut house);
        let before = house.handle.state();
        let tokens = client.read().tokens.len();
        if says_so {
            client.outputs.cancel();
            assert_eq!(
                house.handle.state().running + house.handle.state().waiting,
                before.running + before.waiting - 1
            );
            house.steps(1);
            let seen = client.read();
            assert!(seen.cancelled && seen.tokens.len() == tokens, "{seen:?}");
            let last = stages(seen.timelines.last().expect("it was told"));
            assert_eq!(
                last[last.len() - 2..],
                [stage, Stage::Return],
                "it is charged up to its cancellation"
            );
        } else {
            drop(client);
            house.steps(1);
        }
        let expected = before.running + before.waiting - 1;
        let state = house.handle.state();
        assert_eq!(state.running + state.waiting, expected);
        house.settle();
        others.iter_mut().for_each(|other| drop(other.read().clone()));
        house.settle();
        drop(others);
        house.steps(1);
        house.assert_empty();
    }
}

#[test]
fn a_cancel_works_in_every_stage() {
    check_cancel(Stage::Queue, |house| {
        let others = (1..=3).map(|request| house.ask(request, 5, 30)).collect();
        let client = house.ask(9, 5, 30);
        house.steps(2);
        (client, others)
    });
    check_cancel(Stage::PrefillWait, |house| {
        let client = house.ask(9, 150, 30);
        house.steps(2);
        (client, vec![])
    });
    check_cancel(Stage::DecodeWait, |house| {
        let client = house.ask(9, 5, 30);
        house.steps(4);
        (client, vec![])
    });
    check_cancel(Stage::Preempted, |house| {
        let others = vec![house.ask(1, 100, 100)];
        house.steps(5);
        let mut client = house.ask(9, 100, 100);
        for _ in 0..40 {
            house.steps(1);
            client.read();
        }
        assert_eq!(house.handle.state().waiting, 1, "the younger one was preempted");
        (client, others)
    });
    check_cancel(Stage::DecodeWait, |house| {
        // Its outbox is full: it is paused.
        let client = house.ask(9, 5, 500);
        house.steps(100);
        (client, vec![])
    });
}

#[test]
fn a_cancel_before_the_engine_has_looked_leaves_no_trace() {
    let mut house = House::new(limits());
    drop(house.ask(1, 5, 5));
    assert_eq!(house.handle.state().waiting, 0);
    house.steps(1);
    house.assert_empty();
    assert_eq!(house.handle.state().steps, 0);
}

#[test]
fn a_full_outbox_pauses_its_sequence_and_nobody_else() {
    let mut limits = limits();
    limits.outbox_max = 4;
    let mut house = House::new(limits);
    let mut slow = house.ask(1, 5, 12);
    let mut quick = house.ask(2, 5, 12);
    for _ in 0..12 {
        house.steps(1);
        quick.read();
    }
    assert_eq!(quick.answer(), expected(&prompt(2, 5), 12));
    house.settle();
    assert_eq!(slow.read().tokens.len(), 4, "as many as the outbox holds");
    for _ in 0..10 {
        house.steps(1);
        slow.read();
    }
    assert_eq!(slow.answer(), expected(&prompt(1, 5), 12));
    let waits = slow.read().timelines.iter().flat_map(|timeline| timeline.segments());
    let paused: Vec<_> = waits.filter(|segment| segment.cause == Some(Cause::ClientSlow)).collect();
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].stage, Stage::DecodeWait);
}

#[test]
fn a_preempted_sequence_says_who_has_its_blocks_and_answers_the_same() {
    let mut limits = limits();
    limits.blocks = 30;
    let mut house = House::new(limits);
    let mut first = house.ask(1, 100, 60);
    house.steps(5);
    let mut second = house.ask(2, 100, 60);
    house.settle();
    assert_eq!(first.answer(), expected(&prompt(1, 100), 60));
    assert_eq!(second.answer(), expected(&prompt(2, 100), 60));
    let timelines = &second.read().timelines;
    let preempted: Vec<&Timeline> =
        timelines.iter().filter(|timeline| stages(timeline).contains(&Stage::Preempted)).collect();
    assert_eq!(preempted.len(), 1);
    use Stage::*;
    let visited = stages(preempted[0]);
    assert_eq!(visited[..3], [DecodeWait, Preempted, Prefill], "{visited:?}");
    let cause = preempted[0].segments().iter().find(|it| it.stage == Preempted).unwrap().cause.clone();
    let Some(Cause::NoFreeBlocks { needed: 1, free: 0, holders }) = cause else { panic!("{cause:?}") };
    assert_eq!(holders, [ledger::RequestId(1)]);
    house.assert_empty();
}

#[test]
fn a_wait_with_the_same_reason_is_one_segment() {
    let mut limits = limits();
    limits.max_num_seqs = 1;
    let mut house = House::new(limits);
    let mut first = house.ask(1, 5, 50);
    let mut second = house.ask(2, 5, 1);
    house.settle();
    first.answer();
    second.answer();
    let timeline = second.read().timelines[0].clone();
    let queued: Vec<_> = timeline.segments().iter().filter(|it| it.stage == Stage::Queue).collect();
    assert_eq!(queued.len(), 2, "picked up, then one wait of 50 steps: {queued:?}");
    assert_eq!(queued[1].cause, Some(Cause::BatchFull { running: 1, max: 1 }));
}

#[test]
fn a_step_record_says_who_did_what_and_where_the_time_went() {
    let mut house = House::new(limits());
    let mut decoding = house.ask(1, 5, 20);
    house.steps(2);
    let mut prompt_under_way = house.ask(2, 80, 1);
    house.steps(1);
    let record = house.handle.steps(1).remove(0);
    assert_eq!(record.id, StepId(3));
    let members: Vec<_> = record
        .members
        .iter()
        .map(|member| (member.request.0, member.prefill_tokens, member.decode_tokens, member.context_tokens))
        .collect();
    assert_eq!(members, [(1, 0, 1, 7), (2, 32, 0, 32)]);
    assert_eq!(record.blocks_total - record.blocks_free, 1 + 11);
    // The fake executor's time is no part of its own; sampling and scheduling are the engine's.
    let (sampling, scheduling) = (record.parts.ns(Part::Sampling), record.parts.ns(Part::Scheduling));
    let computed = 1_000_000 + 33 * 10_000 + 1;
    assert_eq!(record.ended_ns - record.started_ns, sampling + scheduling + computed);
    assert!(sampling > 0 && scheduling > 0);
    house.settle();
    assert_eq!(decoding.answer().len() + prompt_under_way.answer().len(), 21);
    let between = house.handle.steps_between(StepId(2), StepId(4));
    assert_eq!(between.iter().map(|record| record.id.0).collect::<Vec<_>>(), [2, 3, 4]);
}

#[test]
fn the_ring_of_step_records_is_bounded() {
    let mut limits = limits();
    limits.steps_kept = 10;
    let mut house = House::new(limits);
    let mut client = house.ask(1, 5, 40);
    house.settle();
    client.answer();
    let kept = house.handle.steps(1000);
    assert_eq!(kept.iter().map(|record| record.id.0).collect::<Vec<_>>(), (31..=40).collect::<Vec<_>>());
}

#[test]
fn what_arrives_during_a_step_is_handed_off_when_it_ends() {
    let (sender, receiver) = std::sync::mpsc::channel::<engine::Handle>();
    let mut submitted = None;
    let (outputs_sender, outputs) = std::sync::mpsc::channel();
    let mut house = House::with(limits(), |executor| {
        executor.watched(move |_| {
            if submitted.is_none() {
                let handle = receiver.recv().unwrap();
                submitted = Some(());
                outputs_sender.send(handle.submit(submission(2, prompt(2, 5), greedy(1))).unwrap()).unwrap();
            }
            None
        })
    });
    sender.send(house.handle.clone()).unwrap();
    let mut first = house.ask(1, 5, 3);
    house.settle();
    assert_eq!(first.answer().len(), 3);
    let mut second = outputs.recv().unwrap();
    let Some(protocol::Output::Token { timeline, .. }) = second.try_recv() else { panic!("no token") };
    let first_segment = &timeline.segments()[0];
    assert_eq!((first_segment.stage, &first_segment.cause), (Stage::Handoff, &Some(Cause::StepRunning)));
    let handoff = timeline.segments()[1].since - first_segment.since;
    assert!(handoff > 1_000_000, "it waited {handoff} ns for the step to end");
}

#[test]
fn tokens_are_never_beyond_the_vocabulary() {
    let mut limits = limits();
    limits.vocabulary = 10;
    // The executor's rows stay 64 wide: a padded head.
    let clock = engine::simulate::VirtualClock::default();
    let executor = engine::simulate::FakeExecutor::new(&crate::harness::limits(), clock.clone());
    let (mut engine, handle) = engine::Engine::new(executor, limits, clock.clock()).unwrap();
    let sampling = Sampling { max_tokens: Some(60), ignore_eos: true, ..Sampling::default() };
    let prompt: Vec<TokenId> = (1..9).map(TokenId).collect();
    let mut outputs = handle.submit(submission(1, prompt.into(), sampling)).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..70 {
        engine.step();
        while let Some(protocol::Output::Token { token, .. }) = outputs.try_recv() {
            tokens.push(token.0);
        }
    }
    assert_eq!(tokens.len(), 60);
    assert!(tokens.iter().all(|token| *token < 10), "{tokens:?}");
}
