//! Carrying a plan out: waits get their causes, blocks change hands, members get their chunks.
//!
//! **Invariant:** the plan's indexes mean the order in which running and waiting sequences were surveyed, so nothing moves
//! before the last index has been read.

use ledger::{Cause, Stage, delay};

use super::Engine;
use crate::Executor;
use crate::blocks::Found;
use crate::plan::Place;
use crate::sequence::{Cached, Running};

impl<E: Executor> Engine<E> {
    pub(super) fn carry_out_plan(&mut self) {
        self.note_waits();
        for chunk in &self.plan.chunks {
            self.running[chunk.running].chunk = chunk.tokens;
        }
        self.admit();
        self.preempt();
        self.grow();
    }

    /// Tells everyone who is left out why.
    fn note_waits(&mut self) {
        let now = self.shared.now();
        let mut waiting = self.queue.iter_mut().enumerate();
        for (place, cause) in &self.plan.left_out {
            match place {
                Place::Running(index) => {
                    let running = &mut self.running[*index];
                    running.sequence.wait(running.wait_stage(), cause, now);
                }
                Place::Waiting(index) => {
                    let (_, sequence) = waiting
                        .find(|(place, _)| place == index)
                        .expect("the planner lists those that wait in the queue's order");
                    if matches!(cause, Cause::NoFreeBlocks { .. }) {
                        let before = self.plan.admit.partition_point(|admission| admission.waiting < *index);
                        sequence.bypassed += self.plan.admit.len() - before;
                    }
                    let stage = if sequence.preemptions > 0 { Stage::Preempted } else { Stage::Queue };
                    sequence.wait(stage, cause, now);
                }
            }
        }
        for stage in [Stage::PrefillWait, Stage::DecodeWait] {
            if self.running.iter().any(|running| running.sequence.timeline.current() == Some(stage)) {
                delay::inject(stage);
            }
        }
    }

    /// Moves admitted sequences from the queue to the running ones.
    fn admit(&mut self) {
        let now = self.shared.now();
        let mut admissions = self.plan.admit.iter().peekable();
        let mut index = 0;
        let admitted = self.queue.take(|_| {
            let wanted = admissions.next_if(|admission| admission.waiting == index).is_some();
            index += 1;
            wanted
        });
        debug_assert_eq!(admitted.len(), self.plan.admit.len(), "every admission names a waiting sequence");
        if !admitted.is_empty() {
            let tokens = admitted.iter().map(|sequence| sequence.prompt_tokens).sum();
            if self.queue.len() > 0 {
                self.shared.gauges.tokens_admitted(tokens, now.saturating_sub(self.last_admission));
            }
            self.last_admission = now;
        }
        // All take what they found before any takes more: that may cost the cache blocks, but not these.
        let mut begun = Vec::with_capacity(admitted.len());
        for (mut sequence, admission) in admitted.into_iter().zip(&self.plan.admit) {
            if !sequence.outbox.starts_running() {
                sequence.outbox.confirm_cancel(sequence.timeline);
                continue;
            }
            self.shares.had_its_turn(sequence.class, now);
            let lease = self.pool.adopt(sequence.request, &sequence.found);
            let tokens = lease.blocks().len() * self.shared.limits.block_tokens;
            if !sequence.has_begun() {
                let miss = self.pool.miss(&sequence.found, &sequence.content());
                sequence.cached = Cached { tokens, miss };
                self.shared.gauges.prompt_admitted(sequence.prompt_tokens, tokens);
            }
            sequence.found = Found::default();
            begun.push((Running::new(sequence, lease, tokens, admission.tokens), admission.blocks));
        }
        for (mut running, blocks) in begun {
            assert!(running.lease.extend(blocks), "the planner admits within the blocks there are");
            let place = self.running.partition_point(|other| other.order() < running.order());
            self.running.insert(place, running);
        }
    }

    /// Takes the blocks of those who must give way; they wait, first of their class, and keep their tokens.
    fn preempt(&mut self) {
        if self.plan.preempt.is_empty() {
            return;
        }
        debug_assert!(
            self.plan.admit.is_empty(),
            "a plan that preempts admits nobody, so no index has moved"
        );
        let now = self.shared.now();
        let mut index = 0;
        let preempted: Vec<_> = self
            .running
            .extract_if(.., |running| {
                let cause = self.plan.preempt.iter().find(|preemption| preemption.running == index);
                index += 1;
                if let Some(preemption) = cause {
                    running.sequence.wait(Stage::Preempted, &preemption.cause, now);
                }
                cause.is_some()
            })
            .collect();
        for Running { mut sequence, lease, .. } in preempted {
            drop(lease);
            if sequence.outbox.starts_waiting() {
                sequence.preemptions += 1;
                self.queue.push(sequence);
            } else {
                sequence.outbox.confirm_cancel(sequence.timeline);
            }
        }
        delay::inject(Stage::Preempted);
    }

    /// Leases the blocks that this step's chunks still lack.
    fn grow(&mut self) {
        let limits = &self.shared.limits;
        for running in self.running.iter_mut().filter(|running| running.chunk > 0) {
            let needed = limits.blocks_for(running.computed + running.chunk);
            let lacking = needed.saturating_sub(running.lease.blocks().len());
            assert!(running.lease.extend(lacking), "the planner schedules within the free blocks");
        }
    }
}
