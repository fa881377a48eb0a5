//! The phases of a step around the plan, in the order in which [`Engine::step`] goes through them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ledger::{Cause, Member, Part, Parts, Stage, StepId, StepRecord, Timeline, delay};
use models::{Batch, Logits};
use protocol::{Finish, Refusal, RefusalKind};

use super::{Engine, Progress, Step, pool};
use crate::cost::{Pace, Work};
use crate::sample::{SampleError, Sampled};
use crate::sequence::{Running, Sequence, SequenceId};
use crate::{ExecuteError, Executor};

impl<E: Executor> Engine<E> {
    pub(super) fn begin(&mut self) -> Step {
        let started = self.shared.now();
        self.shared.gauges.step_began(started);
        let id = StepId(self.shared.gauges.steps.load(Ordering::Relaxed) + 1);
        Step { id, started, parts: Parts::default(), computing_ns: 0, went_well: false, members: Vec::new() }
    }

    /// Queues what has arrived.
    pub(super) fn drain_inbox(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.shared.inbox.drain(&mut arrivals);
        let now = self.shared.now();
        let any = !arrivals.is_empty();
        for arrival in arrivals.drain(..) {
            let (reason, until) = &self.absence;
            let mut timeline = Timeline::default();
            if arrival.submitted < *until {
                timeline.wait(Stage::Handoff, reason.clone(), arrival.submitted);
            }
            timeline.enter(Stage::Handoff, (*until).max(arrival.submitted));
            timeline.enter(Stage::Queue, now);
            let name = arrival.submission.terms.tenant.as_ref();
            let weights = &self.shared.limits.tenant_weights;
            let weight = name.and_then(|name| weights.get(&**name)).copied().unwrap_or(1);
            let tenant = self.shares.enter(name, weight);
            self.queue.push(Sequence::new(self.next_sequence, arrival, tenant, timeline));
            self.next_sequence = SequenceId(self.next_sequence.0 + 1);
        }
        self.arrivals = arrivals;
        if any {
            delay::inject(Stage::Queue);
        }
    }

    /// Ends sequences whose receivers want no more; their blocks are free before the receivers hear so.
    pub(super) fn release_cancelled(&mut self) {
        let running = self.running.extract_if(.., |running| running.sequence.outbox.is_cancelled());
        let mut cancelled: Vec<Sequence> = running.map(|Running { sequence, .. }| sequence).collect();
        cancelled.extend(self.queue.take(|sequence| sequence.outbox.is_cancelled()));
        self.publish_blocks();
        for sequence in cancelled {
            sequence.outbox.confirm_cancel(sequence.timeline);
        }
    }

    /// Looks for everyone's beginning in the cache, and refuses those whose first token would come too late.
    pub(super) fn look_up(&mut self) {
        let now = self.shared.now();
        self.pool.tell_time(now);
        for sequence in self.queue.iter_mut() {
            let mut found = std::mem::take(&mut sequence.found);
            sequence.look = self.pool.look(&mut found, &sequence.content(), sequence.has_begun());
            sequence.found = found;
        }
        let (prices, limits) = (self.cost.prices(), &self.shared.limits);
        let soonest = |sequence: &Sequence| {
            let (found, lacking) = sequence.lacking(limits);
            now.saturating_add(prices.of_prefill(found, lacking) as u64)
        };
        let hopeless = self.queue.take(|sequence| {
            !sequence.has_begun() && sequence.deadline.is_some_and(|deadline| deadline < soonest(sequence))
        });
        for sequence in hopeless {
            let late = soonest(&sequence).saturating_sub(sequence.deadline.unwrap_or(now));
            let refusal = Refusal::new(
                RefusalKind::Deadline,
                format!(
                    "the first token would come at least {} ms after its deadline (`ttft_deadline_ms`): the request waited \
                     {} ms; try again later, or allow more time",
                    late.div_ceil(1_000_000),
                    now.saturating_sub(sequence.arrived) / 1_000_000,
                ),
            );
            sequence.outbox.fail(refusal.retry_after(self.shared.gauges.turnover()), sequence.timeline);
        }
    }

    /// Puts those that wait into the order of service.
    pub(super) fn arrange(&mut self) {
        let (prices, limits, now) = (self.cost.prices(), &self.shared.limits, self.shared.now());
        let claim = |sequence| {
            let (found, lacking) = Sequence::lacking(sequence, limits);
            sequence.claim((prices.of_prefill(found, lacking) as u64).max(lacking as u64))
        };
        let claims: Vec<_> = self.queue.iter().map(claim).collect();
        let order = self.shares.order(&claims, now, limits.aging_ns);
        drop(claims);
        self.queue.arrange(order.iter().map(|(index, _)| *index));
        for (sequence, (_, rank)) in self.queue.iter_mut().zip(order) {
            sequence.rank = rank;
        }
    }

    /// Writes down what the planner looks at.
    pub(super) fn survey(&mut self) {
        let limits = &self.shared.limits;
        let situation = &mut self.situation;
        situation.running.clear();
        situation.running.extend(self.running.iter().map(Running::view));
        situation.waiting.clear();
        situation.waiting.extend(self.queue.iter().map(|sequence| sequence.view(limits)));
        situation.blocks_free = self.pool.available();
        let target_ns = limits.itl_target_ns as f64;
        situation.pace = (target_ns > 0.0).then(|| Pace { target_ns, prices: self.cost.prices() });
    }

    /// Nothing to execute.
    pub(super) fn rest(&mut self, step: Step) -> Progress {
        self.publish_blocks();
        self.absence = (Cause::StepRunning, step.started);
        self.shared.gauges.step_ended();
        // A preemption alone is progress: the next plan has blocks to give.
        if self.plan.preempt.is_empty() { Progress::Idle } else { Progress::Worked }
    }

    /// Has the batch computed. Its members are charged to prefill or decode for exactly this long.
    pub(super) fn execute(&mut self, batch: &Batch, step: &mut Step) -> Result<Logits, ExecuteError> {
        let began = self.shared.now();
        for running in self.running.iter_mut().filter(|running| running.chunk > 0) {
            running.sequence.timeline.enter(running.stage(), began);
            step.members.push(running.member());
        }
        self.delay_computation(step);
        let executor = &mut self.executor;
        let executed = catch_unwind(AssertUnwindSafe(|| executor.execute(batch, &mut step.parts)));
        let logits = executed.unwrap_or_else(|panic| Err(ExecuteError::Panicked(message(&*panic))))?;
        let ended = self.shared.now();
        self.charge(step, ended.saturating_sub(began));
        for running in self.running.iter_mut().filter(|running| running.chunk > 0) {
            let next = if running.samples() { Stage::Sample } else { Stage::PrefillWait };
            running.sequence.timeline.enter(next, ended);
            running.advance();
        }
        step.computing_ns += ended.saturating_sub(began);
        let (rows, wanted) = (logits.rows, batch.logit_rows.len());
        if rows != wanted || logits.values.len() != rows * logits.vocabulary {
            let (values, vocabulary) = (logits.values.len(), logits.vocabulary);
            let shape = format!(
                "{values} logits for {rows} rows of {vocabulary}, where {wanted} rows were asked for"
            );
            return Err(ExecuteError::Failed(shape));
        }
        self.shared.gauges.step_went_well();
        Ok(logits)
    }

    /// Divides what the step's computation took among its members, by what their tokens are thought to take, and puts it down to
    /// their tenants.
    fn charge(&self, step: &mut Step, took_ns: u64) {
        let prices = self.cost.prices();
        let price = |member: &Member| match member.decode_tokens {
            0 => prices.of_prefill(member.context_tokens - member.prefill_tokens, member.prefill_tokens),
            tokens => prices.of_decode(member.context_tokens - tokens),
        };
        let known: f64 = step.members.iter().map(price).sum();
        // While nothing is known, every token counts the same.
        let tokens: usize =
            step.members.iter().map(|member| member.prefill_tokens + member.decode_tokens).sum();
        let mut left = took_ns;
        let running = self.running.iter().filter(|running| running.chunk > 0);
        for (member, running) in step.members.iter_mut().zip(running) {
            let share = match known > 0.0 {
                true => price(member) / known,
                false => (member.prefill_tokens + member.decode_tokens) as f64 / tokens as f64,
            };
            member.service_ns = ((took_ns as f64 * share).round() as u64).min(left);
            left -= member.service_ns;
            running.sequence.tenant.charge(member.service_ns);
        }
        // What rounding leaves goes to the last one, so that the sum is exact.
        if let Some(last) = step.members.last_mut() {
            last.service_ns += left;
        }
    }

    /// Test only: makes the step's computation longer.
    fn delay_computation(&self, step: &Step) {
        if step.members.iter().any(|member| member.prefill_tokens > 0) {
            delay::inject(Stage::Prefill);
        }
        if step.members.iter().any(|member| member.decode_tokens > 0) {
            delay::inject(Stage::Decode);
        }
    }

    /// Which running sequences have a row of logits now, in the rows' order.
    pub(super) fn sampling_rows(&self) -> Vec<usize> {
        let all = self.running.iter().enumerate();
        let complete =
            |running: &Running| running.chunk > 0 && running.computed == running.sequence.tokens.len();
        all.filter(|(_, running)| complete(running)).map(|(index, _)| index).collect()
    }

    /// Chooses a token from row `row`; a sequence for which none can be chosen fails.
    pub(super) fn sample(
        &mut self,
        index: usize,
        logits: &mut Logits,
        row: usize,
        step: &mut Step,
    ) -> Option<Sampled> {
        let began = self.shared.now();
        delay::inject(Stage::Sample);
        let vocabulary = self.shared.limits.vocabulary;
        let width = logits.vocabulary;
        let running = &mut self.running[index];
        let sampled = match logits.values[row * width..][..width].get_mut(..vocabulary) {
            Some(row) => running.sequence.sample(row, &mut self.scratch),
            None => Err(SampleError::TooShort { logits: width, vocabulary }),
        };
        let spent = self.shared.now().saturating_sub(began);
        step.parts.add(Part::Sampling, Duration::from_nanos(spent));
        step.computing_ns += spent;
        match sampled {
            Ok(sampled) => Some(sampled),
            Err(error) => {
                running.fail(refusal(&error));
                None
            }
        }
    }

    /// Makes the token a part of its sequence; says whether it is the last one.
    pub(super) fn commit(&mut self, index: usize, sampled: &Sampled) -> Option<Finish> {
        let running = &mut self.running[index];
        running.produced = true;
        running.sequence.commit(sampled.token, &self.shared.limits)
    }

    /// Hands the token out. After a last one the sequence's blocks are free before its receiver hears so.
    pub(super) fn emit(&mut self, index: usize, sampled: Sampled, finish: Option<Finish>, step: StepId) {
        if finish.is_some() {
            self.running[index].end();
            self.publish_blocks();
        }
        let running = &mut self.running[index];
        let now = self.shared.now();
        if running.sequence.emit(sampled, finish, step, now).is_err() {
            running.end();
        }
    }

    /// The step broke: its members' KV is not to be trusted, everyone else's is.
    pub(super) fn fail_members(&mut self, error: &ExecuteError) {
        self.shared.gauges.step_broke();
        for running in self.running.iter_mut().filter(|running| running.chunk > 0) {
            running.fail(Refusal::new(RefusalKind::Internal, error.to_string()));
        }
    }

    pub(super) fn release_ended(&mut self) {
        let now = self.shared.now();
        for _ in self.running.extract_if(.., |running| running.ended) {
            if self.queue.len() > 0 {
                self.shared.gauges.place_freed(now.saturating_sub(self.last_end));
            }
            self.last_end = now;
        }
    }

    /// Closes the step: its record, the gauges, and everyone's chunk.
    pub(super) fn record(&mut self, mut step: Step) -> Progress {
        for running in &mut self.running {
            running.chunk = 0;
        }
        self.publish_blocks();
        let ended = self.shared.now();
        let scheduling = ended.saturating_sub(step.started + step.computing_ns);
        step.parts.add(Part::Scheduling, Duration::from_nanos(scheduling));
        let mut work = Work::default();
        for Member { prefill_tokens, decode_tokens, context_tokens, .. } in &step.members {
            match decode_tokens {
                0 => work.add_prefill(context_tokens - prefill_tokens, *prefill_tokens),
                _ => work.add_decode(context_tokens - decode_tokens),
            }
        }
        let forecast = self.cost.prices().forecast(&work) as u64;
        if step.went_well {
            self.cost.learn(&work, ended.saturating_sub(step.started));
            self.shared.gauges.forecast_error(self.cost.error());
        }
        let record = StepRecord {
            forecast_ns: (forecast > 0).then_some(forecast),
            id: step.id,
            started_ns: step.started,
            ended_ns: ended,
            members: step.members,
            parts: step.parts,
            blocks_free: self.pool.available(),
            blocks_cached: self.pool.idle(),
            blocks_total: self.pool.total(),
            waiting: self.queue.len(),
        };
        self.shared.gauges.record(record, self.shared.limits.steps_kept);
        self.shared.gauges.steps.store(step.id.0, Ordering::Relaxed);
        self.shared.gauges.step_ended();
        self.absence = (Cause::StepRunning, ended);
        Progress::Worked
    }

    /// A bug outside the executor: nothing the engine believes is certain, so it begins anew.
    pub(super) fn fail_all(&mut self, panic: &str) {
        self.shared.gauges.step_broke();
        self.shared.gauges.step_ended();
        self.end_all(&Refusal::new(
            RefusalKind::Internal,
            format!("the engine broke down and began anew: {panic}"),
        ));
        self.pool = pool(&self.shared.limits, &self.executor);
        self.publish_blocks();
    }

    /// Ends everything, what is in the inbox included.
    pub(super) fn shut_down(&mut self) {
        self.shared.inbox.close();
        self.drain_inbox();
        self.end_all(&Refusal::new(RefusalKind::Unavailable, "the server has shut down"));
    }

    fn end_all(&mut self, refusal: &Refusal) {
        for mut running in self.running.drain(..) {
            running.fail(refusal.clone());
        }
        self.publish_blocks();
        for sequence in self.queue.take(|_| true) {
            sequence.outbox.fail(refusal.clone(), sequence.timeline);
        }
    }

    fn publish_blocks(&self) {
        let gauges = &self.shared.gauges;
        gauges.blocks_free.store(self.pool.available(), Ordering::Relaxed);
        gauges.blocks_cached.store(self.pool.idle(), Ordering::Relaxed);
    }
}

/// What to tell the client whose token could not be chosen.
fn refusal(error: &SampleError) -> Refusal {
    match error {
        SampleError::NothingLeft => Refusal::invalid("min_tokens", error.to_string()),
        SampleError::NotFinite | SampleError::TooShort { .. } => {
            Refusal::new(RefusalKind::Internal, error.to_string())
        }
    }
}

/// What a panic said.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it did not say why".to_owned())
}
