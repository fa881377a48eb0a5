//! A second opinion on a plan, written against the situation and not with the planner's own arithmetic.
//!
//! **Invariant:** shares no code with [`crate::plan`] beyond its types.

use std::collections::HashSet;

use ledger::{Cause, RequestId};

use crate::Limits;
use crate::cost::{Pace, Work};
use crate::plan::{Admission, Place, Plan, Situation, WaitingView};

/// Checks that a plan keeps its limits, accounts for everyone exactly once, and gives true causes.
///
/// # Errors
/// What is wrong, in words.
pub fn examine(situation: &Situation, plan: &Plan, limits: &Limits) -> Result<(), String> {
    let oracle = Oracle { situation, plan, limits };
    oracle.everyone_is_accounted_for_once()?;
    oracle.limits_are_kept()?;
    oracle.nobody_is_preempted_without_progress()?;
    oracle.nothing_is_computed_twice()?;
    oracle.pace_is_kept()?;
    oracle.nobody_takes_more_than_its_share()?;
    for (place, cause) in &plan.left_out {
        oracle
            .cause_is_true(*place, cause)
            .map_err(|wrong| format!("{place:?} because of {cause:?}: {wrong}"))?;
    }
    oracle.something_happens()
}

struct Oracle<'a> {
    situation: &'a Situation,
    plan: &'a Plan,
    limits: &'a Limits,
}

fn ensure(holds: bool, claim: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("not so: {claim}")) }
}

impl Oracle<'_> {
    fn everyone_is_accounted_for_once(&self) -> Result<(), String> {
        let mut running = vec![0; self.situation.running.len()];
        let mut waiting = vec![0; self.situation.waiting.len()];
        let chunks = self.plan.chunks.iter().map(|chunk| Place::Running(chunk.running));
        let preempted = self.plan.preempt.iter().map(|preemption| Place::Running(preemption.running));
        let admitted = self.plan.admit.iter().map(|admission| Place::Waiting(admission.waiting));
        let left_out = self.plan.left_out.iter().map(|(place, _)| *place);
        for place in chunks.chain(preempted).chain(admitted).chain(left_out) {
            let times = match place {
                Place::Running(index) => running.get_mut(index),
                Place::Waiting(index) => waiting.get_mut(index),
            };
            *times.ok_or_else(|| format!("{place:?} is not there"))? += 1;
        }
        let once = running.iter().chain(&waiting).all(|times| *times == 1);
        ensure(once, "everyone is planned for or left out exactly once")
    }

    fn limits_are_kept(&self) -> Result<(), String> {
        ensure(self.plan.tokens() <= self.limits.max_num_batched_tokens, "the token budget is kept")?;
        ensure(self.running_after() <= self.limits.max_num_seqs, "no more run than may")?;
        let mut free = self.situation.blocks_free + self.freed();
        for chunk in &self.plan.chunks {
            let running = &self.situation.running[chunk.running];
            ensure(!(running.produced && running.outbox_full), "no token is made for a full outbox")?;
            ensure((1..=self.limits.prefill_chunk_max).contains(&chunk.tokens), "a chunk has its size")?;
            let end = running.computed + chunk.tokens;
            ensure(end <= running.known, "only known tokens are computed")?;
            let capacity = (running.blocks + chunk.blocks) * self.limits.block_tokens;
            ensure(end <= capacity, "a chunk's tokens have blocks")?;
            ensure(chunk.blocks <= free, "only free blocks are leased to running sequences")?;
            free -= chunk.blocks;
        }
        for admission in &self.plan.admit {
            let waiting = &self.situation.waiting[admission.waiting];
            let found = waiting.look.blocks * self.limits.block_tokens;
            ensure(
                admission.tokens > 0 && found + admission.tokens <= waiting.known,
                "an admission computes something known",
            )?;
            ensure(admission.tokens <= self.limits.prefill_chunk_max, "a first chunk has its size")?;
            ensure(
                found + admission.blocks * self.limits.block_tokens > waiting.known,
                "an admission has room for a token",
            )?;
            let taken = admission.blocks + waiting.look.idle;
            ensure(taken <= free, "only free blocks are leased to new sequences")?;
            ensure(!waiting.outbox_full, "nobody is admitted whose outbox is full")?;
            free -= taken;
        }
        Ok(())
    }

    fn nobody_is_preempted_without_progress(&self) -> Result<(), String> {
        for preemption in &self.plan.preempt {
            let victim = &self.situation.running[preemption.running];
            ensure(victim.produced, "a victim got a token since it was admitted")?;
            match &preemption.cause {
                Cause::ClientSlow => ensure(victim.outbox_full, "the victim's client is slow")?,
                Cause::NoFreeBlocks { needed, free, .. } => ensure(needed > free, "a victim was needed")?,
                other => return Err(format!("a preemption because of {other:?}")),
            }
        }
        ensure(
            self.plan.preempt.is_empty() || self.plan.admit.is_empty(),
            "nobody is admitted into a victim's place",
        )
    }

    fn cause_is_true(&self, place: Place, cause: &Cause) -> Result<(), String> {
        match (place, cause) {
            (Place::Running(index), Cause::ClientSlow) => {
                ensure(self.situation.running[index].outbox_full, "its outbox is full")
            }
            (Place::Waiting(index), Cause::ClientSlow) => {
                ensure(self.situation.waiting[index].outbox_full, "its outbox is full")
            }
            (Place::Running(index), Cause::TokenBudget { .. }) => {
                ensure(!self.situation.running[index].produced, "only prompts wait for the budget")?;
                self.budget_is_spent(cause)
            }
            (Place::Waiting(_), Cause::TokenBudget { .. }) => self.budget_is_spent(cause),
            (Place::Running(index), Cause::StepTime { .. }) => {
                let running = &self.situation.running[index];
                ensure(!running.produced, "only prompts wait for time")?;
                self.time_is_spent(cause, running.computed, running.known)
            }
            (Place::Waiting(index), Cause::StepTime { .. }) => {
                let WaitingView { look, known, .. } = &self.situation.waiting[index];
                self.time_is_spent(cause, look.blocks * self.limits.block_tokens, *known)
            }
            (Place::Waiting(_), Cause::BatchFull { running, max }) => {
                // A slow client may give way after everyone else was found to have no seat.
                let unblocked = self.plan.preempt.iter().filter(|it| it.cause == Cause::ClientSlow).count();
                ensure(*max == self.limits.max_num_seqs, "the limit is the limit")?;
                ensure(running == max && self.running_after() + unblocked == *max, "all seats are taken")
            }
            (Place::Waiting(index), Cause::SamePrefix { by }) => self.is_computed_by(index, *by),
            (Place::Waiting(index), Cause::NoFreeBlocks { needed, free, holders }) => {
                self.blocks_are_short(index, *needed, *free, holders)
            }
            (Place::Waiting(index), Cause::Behind { ahead, next }) => {
                self.others_go_first(index, *ahead, *next)
            }
            (Place::Waiting(index), Cause::HigherPriority { behind }) => {
                let blockers = self.situation.waiting[..index].iter();
                let better = |blocker: &WaitingView| {
                    blocker.request == *behind && blocker.rank < self.situation.waiting[index].rank
                };
                ensure(blockers.clone().any(better), "who is before it is of a better class")?;
                let left_out = self.plan.left_out.iter();
                let ahead =
                    left_out.filter(|(place, _)| matches!(place, Place::Waiting(other) if *other < index));
                self.others_go_first(index, ahead.count() + self.preempted_for_blocks(), *behind)
            }
            _ => Err("nobody waits there for that".into()),
        }
    }

    /// Somebody who computes in this step, or waits for its budget with blocks in hand, computes what it would.
    fn is_computed_by(&self, index: usize, by: RequestId) -> Result<(), String> {
        let next = self.situation.waiting[index].look.next;
        ensure(next.is_some(), "it has a block to wait for")?;
        let running = self.situation.running.iter().filter(|running| !running.produced);
        let admitted = self.plan.admit.iter().filter(|admission| admission.waiting < index);
        let admitted = admitted.map(|admission| &self.situation.waiting[admission.waiting]);
        let running = running.map(|running| (running.next, running.request));
        let mut others = running.chain(admitted.map(|waiting| (waiting.look.next, waiting.request)));
        ensure(others.any(|other| other == (next, by)), "the one named computes the same block")
    }

    fn nothing_is_computed_twice(&self) -> Result<(), String> {
        let running = self.situation.running.iter().filter(|running| !running.produced);
        let admitted = self.plan.admit.iter().map(|admission| &self.situation.waiting[admission.waiting]);
        let mut under_way: HashSet<u64> = running.filter_map(|running| running.next).collect();
        let fresh = admitted.filter_map(|waiting| waiting.look.next).all(|next| under_way.insert(next));
        ensure(fresh, "nobody is admitted to compute a block that another one computes")
    }

    fn budget_is_spent(&self, cause: &Cause) -> Result<(), String> {
        let Cause::TokenBudget { budget, prefill_of } = cause else { return Err("no budget".into()) };
        ensure(*budget == self.limits.max_num_batched_tokens, "the budget is the budget")?;
        ensure(self.plan.tokens() == *budget, "the budget is spent")?;
        let chunks = self.plan.chunks.iter().map(|chunk| &self.situation.running[chunk.running]);
        let prefills = chunks.filter(|running| !running.produced).map(|running| running.request);
        let admitted = self.plan.admit.iter().map(|it| self.situation.waiting[it.waiting].request);
        let prefilling: HashSet<_> = prefills.chain(admitted).collect();
        let named: HashSet<_> = prefill_of.iter().copied().collect();
        ensure(named.is_subset(&prefilling), "those named are computed in this step")?;
        ensure(named.len() == prefilling.len().min(Cause::NAMED_MAX), "as many are named as may be")?;
        ensure(!named.is_empty(), "the budget went to somebody's prompt")
    }

    /// Forecast time of the plan's step, with some more of a prompt.
    fn forecast(&self, pace: &Pace, more: (usize, usize)) -> f64 {
        let mut work = Work::default();
        for chunk in &self.plan.chunks {
            let running = &self.situation.running[chunk.running];
            match running.produced {
                true => work.add_decode(running.computed),
                false => work.add_prefill(running.computed, chunk.tokens),
            }
        }
        for admission in &self.plan.admit {
            let found = self.situation.waiting[admission.waiting].look.blocks * self.limits.block_tokens;
            work.add_prefill(found, admission.tokens);
        }
        work.add_prefill(more.0, more.1);
        pace.prices.forecast(&work)
    }

    /// The longest that the step may take.
    fn time_limit(&self, pace: &Pace) -> f64 {
        let mut decodes = Work::default();
        for chunk in self.plan.chunks.iter().filter(|chunk| self.situation.running[chunk.running].produced) {
            decodes.add_decode(self.situation.running[chunk.running].computed);
        }
        if decodes.decodes == 0 {
            f64::INFINITY
        } else {
            pace.target_ns.max(1.5 * pace.prices.forecast(&decodes))
        }
    }

    fn time_is_spent(&self, cause: &Cause, computed: usize, known: usize) -> Result<(), String> {
        let Some(pace) = &self.situation.pace else { return Err("time does not matter".into()) };
        let Cause::StepTime { target_ns, prefill_of } = cause else { return Err("no time".into()) };
        ensure(*target_ns == pace.target_ns as u64, "the target is the target")?;
        ensure(!prefill_of.is_empty(), "the time went to somebody's prompt")?;
        let budget = self.limits.max_num_batched_tokens - self.plan.tokens();
        let least = (known - computed).min(self.limits.prefill_chunk_min).min(self.limits.prefill_chunk_max);
        let with_more = self.forecast(pace, (computed, least));
        // What the plan took after this one was looked at counts as well, so this holds all the more.
        ensure(budget < least || with_more > self.time_limit(pace) * (1.0 - 1e-9), "no more would fit")
    }

    /// A step that somebody waits for is no longer than it may be, unless it is as small as prompts may be cut.
    fn pace_is_kept(&self) -> Result<(), String> {
        let Some(pace) = &self.situation.pace else { return Ok(()) };
        let chunks = self.plan.chunks.iter().filter(|chunk| !self.situation.running[chunk.running].produced);
        let sizes = chunks.map(|chunk| chunk.tokens).chain(self.plan.admit.iter().map(|it| it.tokens));
        let sizes: Vec<usize> = sizes.collect();
        let least = sizes.is_empty() || (sizes.len() == 1 && sizes[0] <= self.limits.prefill_chunk_min);
        let fits = self.forecast(pace, (0, 0)) <= self.time_limit(pace) * (1.0 + 1e-9);
        ensure(least || fits, "prompts take no more time than there is")
    }

    /// Where somebody gets nothing for lack of budget or time, nobody got more than its share of it, save who is done.
    fn nobody_takes_more_than_its_share(&self) -> Result<(), String> {
        let any = |short: fn(&Cause) -> bool| self.plan.left_out.iter().any(|(_, cause)| short(cause));
        let of_tokens = any(|cause| matches!(cause, Cause::TokenBudget { .. }));
        let of_time = any(|cause| matches!(cause, Cause::StepTime { .. }));
        let chunks =
            self.plan.chunks.iter().map(|chunk| (&self.situation.running[chunk.running], chunk.tokens));
        let decodes = chunks.clone().filter(|(running, _)| running.produced).count();
        let begun = chunks
            .filter(|(running, _)| !running.produced)
            .map(|(running, tokens)| (running.computed, tokens, running.known));
        let new = self.plan.admit.iter().map(|admission| {
            let waiting = &self.situation.waiting[admission.waiting];
            (waiting.look.blocks * self.limits.block_tokens, admission.tokens, waiting.known)
        });
        let share = self.limits.prompt_share_percent as f64 / 100.0;
        let by_tokens = share * (self.limits.max_num_batched_tokens - decodes) as f64;
        let time = self.situation.pace.map(|pace| {
            let mut work = Work::default();
            for chunk in &self.plan.chunks {
                let running = &self.situation.running[chunk.running];
                if running.produced {
                    work.add_decode(running.computed);
                }
            }
            (pace.prices, share * (self.time_limit(&pace) - pace.prices.forecast(&work)))
        });
        for (computed, tokens, _) in
            begun.chain(new).filter(|(computed, tokens, known)| computed + tokens < *known)
        {
            let least = self.limits.prefill_chunk_min;
            // What is too little for a chunk that is worth it may be left for nobody else.
            let in_tokens = !of_tokens || tokens <= least || (tokens as f64) < by_tokens + 1.0;
            let in_time = time.is_none_or(|(prices, time)| {
                let depths = self.plan.left_out.iter().map(|(place, _)| match place {
                    Place::Running(index) => self.situation.running[*index].computed,
                    Place::Waiting(index) => {
                        self.situation.waiting[*index].look.blocks * self.limits.block_tokens
                    }
                });
                let spare = depths.map(|depth| prices.of_prefill(depth, least)).fold(0.0, f64::max);
                !of_time
                    || tokens <= least
                    || prices.of_prefill(computed, tokens)
                        <= time.max(prices.of_prefill(computed, least)) * (1.0 + 1e-9) + spare
            });
            ensure(in_tokens && in_time, "nobody takes more than its share while others get nothing")?;
        }
        Ok(())
    }

    fn blocks_are_short(
        &self,
        index: usize,
        needed: usize,
        free: usize,
        holders: &[RequestId],
    ) -> Result<(), String> {
        let look = self.situation.waiting[index].look;
        let own =
            self.situation.waiting[index].known / self.limits.block_tokens + 1 - look.blocks + look.idle;
        let before = self.plan.admit.iter().filter(|admission| admission.waiting < index);
        let running = self.situation.running.len() - self.preempted_for_blocks() + before.clone().count();
        let reserve = if running == 0 { 0 } else { self.situation.waiting[index].headroom };
        ensure(
            needed == own + reserve.max(running * self.limits.growth_blocks),
            "it needs its tokens' blocks and the reserve",
        )?;
        let leased: usize = self.plan.chunks.iter().map(|chunk| chunk.blocks).sum();
        let taken = |it: &Admission| it.blocks + self.situation.waiting[it.waiting].look.idle;
        let admitted: usize = before.map(taken).sum();
        let freed = if self.preempted_for_blocks() > 0 { self.freed() } else { 0 };
        ensure(
            free == self.situation.blocks_free + freed - leased - admitted,
            "so many were free at its turn",
        )?;
        ensure(needed > free, "too few were free")?;
        let held = |request: RequestId| {
            let own = self.situation.running.iter().filter(|running| running.request == request);
            own.map(|running| running.blocks).max()
        };
        let least = holders.iter().map(|holder| held(*holder).unwrap_or(0)).min();
        ensure(
            holders.iter().all(|holder| held(*holder).is_some_and(|blocks| blocks > 0)),
            "holders hold blocks",
        )?;
        let unnamed = self.situation.running.iter().filter(|running| !holders.contains(&running.request));
        let largest = unnamed.map(|running| running.blocks).max().unwrap_or(0);
        ensure(least.is_none_or(|least| least >= largest), "the largest holders are named")
    }

    fn others_go_first(&self, index: usize, ahead: usize, next: RequestId) -> Result<(), String> {
        let left_out = self.plan.left_out.iter();
        let before =
            left_out.filter(|(place, _)| matches!(place, Place::Waiting(other) if *other < index)).count();
        ensure(ahead == before + self.preempted_for_blocks(), "so many wait before it")?;
        let victim = self.plan.preempt.iter().any(|it| self.situation.running[it.running].request == next);
        let blocker = self.plan.left_out.iter().any(|(place, cause)| {
            let Place::Waiting(other) = *place else { return false };
            let waiting = &self.situation.waiting[other];
            let passed = self.plan.admit.iter().filter(|it| it.waiting > other).count();
            let worn = waiting.preempted || waiting.bypassed + passed >= self.limits.bypass_max;
            other < index && waiting.request == next && worn && matches!(cause, Cause::NoFreeBlocks { .. })
        });
        ensure(victim || blocker, "the one named waits for blocks and may not be passed")
    }

    /// Not a step without any progress while somebody could make some.
    fn something_happens(&self) -> Result<(), String> {
        let plan = self.plan;
        let nothing = plan.chunks.is_empty() && plan.admit.is_empty() && plan.preempt.is_empty();
        let eager = self.situation.running.iter().any(|running| !running.outbox_full)
            || self.situation.waiting.iter().any(|waiting| !waiting.outbox_full);
        ensure(!nothing || !eager, "something is done while somebody can go on")
    }

    fn running_after(&self) -> usize {
        self.situation.running.len() - self.plan.preempt.len() + self.plan.admit.len()
    }

    fn preempted_for_blocks(&self) -> usize {
        let for_blocks = |cause: &Cause| matches!(cause, Cause::NoFreeBlocks { .. });
        self.plan.preempt.iter().filter(|preemption| for_blocks(&preemption.cause)).count()
    }

    fn freed(&self) -> usize {
        self.plan.preempt.iter().map(|it| self.situation.running[it.running].own).sum()
    }
}
