//! What the next step does, as a pure function of what runs, what waits, and how many blocks are free.
//!
//! The policy: every running decode first, one token each; when blocks run out for them, one victim at a time gives its
//! blocks back. Then prompts that have begun, then new ones, in the order of arrival and within the token budget. A
//! sequence that waits for blocks may be passed by later ones that fit, at most `bypass_max` times; a preempted one is
//! never passed. While others decode, prompts get what is left of the time that a step may take. One prompt gets no more than
//! its share of that while others wait for it, unless it is done with what there is. Whoever would compute the same block as
//! another one in this very step waits until it can be found.
//!
//! **Invariant:** whoever can be stepped and is not has a cause that is true. A sequence is preempted only after it got a
//! token since its last admission, so every admission brings its sequence forward and preemption cannot go on for ever.

use std::cell::OnceCell;
use std::collections::HashMap;

use ledger::{Cause, RequestId};

use crate::Limits;
use crate::blocks::Look;
use crate::cost::{Pace, Work};

/// A sequence that holds blocks.
#[derive(Clone, Copy, Debug)]
pub struct RunningView {
    pub request: RequestId,
    /// Tokens that are known (prompt and answer so far).
    pub known: usize,
    /// Tokens whose KV exists; fewer than `known`.
    pub computed: usize,
    /// Blocks held.
    pub blocks: usize,
    /// Those of them that nobody else holds.
    pub own: usize,
    /// The next block of its prompt that others might wait for; see [`Look::next`].
    pub next: Option<u64>,
    /// It got a token since it was admitted: from here on each step decodes one. Before, its prompt is computed.
    pub produced: bool,
    /// Its client has not taken what was handed out.
    pub outbox_full: bool,
}

/// A sequence that holds none.
#[derive(Clone, Copy, Debug)]
pub struct WaitingView {
    pub request: RequestId,
    pub known: usize,
    /// What of it can be found in the cache.
    pub look: Look,
    /// It ran before and lost its blocks.
    pub preempted: bool,
    /// The class that it counts as.
    pub rank: i8,
    /// Blocks that must be free beyond its own while others run, since it lost what it had before.
    pub headroom: usize,
    /// How many later ones were admitted while it waited for blocks.
    pub bypassed: usize,
    pub outbox_full: bool,
}

/// All that the planner looks at.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// By class, then by arrival: the last ones give way first.
    pub running: Vec<RunningView>,
    /// In the order of service.
    pub waiting: Vec<WaitingView>,
    /// Blocks that can be leased: free ones, and those that only the cache keeps.
    pub blocks_free: usize,
    /// How long a step may take, and what makes it long; `None` where that does not matter.
    pub pace: Option<Pace>,
}

/// What a running sequence computes in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Index into [`Situation::running`].
    pub running: usize,
    pub tokens: usize,
    /// Blocks to lease first.
    pub blocks: usize,
}

/// A waiting sequence that gets its blocks and its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Index into [`Situation::waiting`].
    pub waiting: usize,
    pub tokens: usize,
    /// Blocks to lease besides those that were found.
    pub blocks: usize,
}

/// A running sequence that gives its blocks back and waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Index into [`Situation::running`].
    pub running: usize,
    pub cause: Cause,
}

/// Who is left out of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Running(usize),
    Waiting(usize),
}

/// One step, to be carried out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub preempt: Vec<Preemption>,
    pub chunks: Vec<Chunk>,
    /// In the order of service.
    pub admit: Vec<Admission>,
    pub left_out: Vec<(Place, Cause)>,
}

impl Plan {
    /// Tokens computed in the step.
    pub fn tokens(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.tokens);
        chunks.chain(self.admit.iter().map(|admission| admission.tokens)).sum()
    }
}

/// Plans one step.
pub fn plan(situation: &Situation, limits: &Limits) -> Plan {
    let mut planner = Planner::new(situation, limits);
    planner.decode();
    planner.keep_pace();
    planner.continue_prefills();
    planner.admit();
    planner.share_what_is_left();
    planner.unblock();
    planner.plan
}

struct Planner<'a> {
    situation: &'a Situation,
    limits: &'a Limits,
    /// Tokens that the step may still take.
    budget: usize,
    /// Nanoseconds that it may still take; infinite where nobody waits for its end.
    time: f64,
    /// Both, as they were when prompts had taken nothing.
    room: (usize, f64),
    /// More than one prompt could use them.
    contended: bool,
    free: usize,
    /// Sequences from here on that decode have been preempted.
    decodes_end: usize,
    /// Sequences from here on whose clients are slow have been preempted.
    slow_end: usize,
    /// Whose prompts this step computes, for those left out because of them.
    prefilling: Vec<RequestId>,
    /// Blocks that others compute now, and who.
    under_way: HashMap<u64, RequestId>,
    /// Who holds most blocks, worked out when somebody first asks.
    holders: OnceCell<Vec<RequestId>>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(situation: &'a Situation, limits: &'a Limits) -> Self {
        Planner {
            situation,
            limits,
            budget: limits.max_num_batched_tokens,
            time: f64::INFINITY,
            room: (limits.max_num_batched_tokens, f64::INFINITY),
            contended: false,
            free: situation.blocks_free,
            decodes_end: situation.running.len(),
            slow_end: situation.running.len(),
            prefilling: Vec::new(),
            under_way: HashMap::new(),
            holders: OnceCell::new(),
            plan: Plan { left_out: Vec::with_capacity(situation.waiting.len()), ..Plan::default() },
        }
    }

    /// Gives every decoding sequence its token, the oldest first, and blocks taken from the youngest where none are free.
    fn decode(&mut self) {
        for (index, running) in self.situation.running.iter().enumerate() {
            if running.is_slow() || !running.produced || index >= self.decodes_end {
                continue;
            }
            let blocks = self.limits.blocks_for(running.computed + 1).saturating_sub(running.blocks);
            while blocks > self.free && index < self.decodes_end {
                self.preempt_for(index, blocks);
            }
            if index < self.decodes_end {
                self.free -= blocks;
                self.budget -= 1;
                self.plan.chunks.push(Chunk { running: index, tokens: 1, blocks });
            }
        }
        for (index, running) in self.situation.running.iter().enumerate().take(self.slow_end) {
            if running.is_slow() {
                self.plan.left_out.push((Place::Running(index), Cause::ClientSlow));
            }
        }
    }

    /// Works out what room is left for prompts, and whether several want it.
    fn keep_pace(&mut self) {
        if let (Some(pace), false) = (self.situation.pace, self.plan.chunks.is_empty()) {
            let mut decodes = Work::default();
            for chunk in &self.plan.chunks {
                decodes.add_decode(self.situation.running[chunk.running].computed);
            }
            self.time = pace.left(&decodes);
        }
        self.room = (self.budget, self.time);
        let begun = self.situation.running.iter().filter(|running| !running.produced);
        let new = self.situation.waiting.iter().filter(|waiting| !waiting.outbox_full);
        self.contended = begun.count() + new.count() > 1;
    }

    /// Preempts whoever loses least by it: the youngest of those whose clients do not read, else the youngest that
    /// decodes, which may be the one in need itself.
    fn preempt_for(&mut self, needer: usize, needed: usize) {
        let running = &self.situation.running;
        let cause =
            |planner: &Self, victim: usize| planner.no_free_blocks(needed, Some(running[victim].request));
        if let Some(victim) = running[..self.slow_end].iter().rposition(RunningView::is_slow) {
            self.slow_end = victim;
            self.preempt(victim, cause(self, victim));
            return;
        }
        let younger = &running[needer + 1..self.decodes_end];
        let victim = younger
            .iter()
            .rposition(|running| running.produced && !running.is_slow())
            .map_or(needer, |offset| needer + 1 + offset);
        self.decodes_end = victim;
        self.preempt(victim, cause(self, victim));
    }

    fn preempt(&mut self, running: usize, cause: Cause) {
        self.free += self.situation.running[running].own;
        self.plan.preempt.push(Preemption { running, cause });
    }

    /// Goes on with prompts that have begun; their blocks were leased at admission.
    fn continue_prefills(&mut self) {
        for (index, running) in self.situation.running.iter().enumerate().filter(|(_, it)| !it.produced) {
            self.under_way.extend(running.next.map(|next| (next, running.request)));
            let tokens = self.chunk(running.computed, running.known);
            if tokens == 0 {
                let cause = self.no_room();
                self.plan.left_out.push((Place::Running(index), cause));
                continue;
            }
            self.take(running.computed, tokens, running.request);
            self.plan.chunks.push(Chunk { running: index, tokens, blocks: 0 });
        }
    }

    /// Admits waiting sequences while seats, budget and blocks last.
    fn admit(&mut self) {
        let mut running = self.situation.running.len() - self.plan.preempt.len();
        let mut ahead = self.plan.preempt.len();
        // Whoever waits for blocks, and how often it may still be passed. A victim of this very step cannot be at all.
        let victim = self.plan.preempt.first().map(|victim| self.situation.running[victim.running].request);
        let mut blocked = victim.map(|victim| (victim, 0));
        let mut blocker_rank = i8::MAX;
        for (index, waiting) in self.situation.waiting.iter().enumerate() {
            let blocks = self.limits.blocks_for(waiting.known + 1) - waiting.look.blocks;
            let taken = blocks + waiting.look.idle;
            let reserve = if running == 0 { 0 } else { waiting.headroom };
            let needed = taken + reserve.max(running * self.limits.growth_blocks);
            let other = waiting.look.next.and_then(|next| self.under_way.get(&next));
            let found = waiting.look.blocks * self.limits.block_tokens;
            let cause = if waiting.outbox_full {
                Cause::ClientSlow
            } else if running >= self.limits.max_num_seqs {
                Cause::BatchFull { running, max: self.limits.max_num_seqs }
            } else if let Some(by) = other {
                Cause::SamePrefix { by: *by }
            } else if self.chunk(found, waiting.known) == 0 {
                self.no_room()
            } else if let Some((next, 0)) = blocked {
                match blocker_rank < waiting.rank {
                    true => Cause::HigherPriority { behind: next },
                    false => Cause::Behind { ahead, next },
                }
            } else if needed > self.free {
                let passes = self.passes(waiting);
                if blocked.is_none_or(|(_, fewest)| passes < fewest) {
                    blocked = Some((waiting.request, passes));
                    blocker_rank = waiting.rank;
                }
                self.no_free_blocks(needed, None)
            } else {
                let tokens = self.chunk(found, waiting.known);
                self.take(found, tokens, waiting.request);
                self.free -= taken;
                self.under_way.extend(waiting.look.next.map(|next| (next, waiting.request)));
                running += 1;
                blocked = blocked.map(|(request, passes)| (request, passes - 1));
                self.plan.admit.push(Admission { waiting: index, tokens, blocks });
                continue;
            };
            ahead += 1;
            self.plan.left_out.push((Place::Waiting(index), cause));
        }
    }

    /// Where nothing can be done because clients that do not read hold everything, one of them gives way.
    fn unblock(&mut self) {
        let nothing =
            self.plan.chunks.is_empty() && self.plan.admit.is_empty() && self.plan.preempt.is_empty();
        if !nothing || self.situation.waiting.iter().all(|waiting| waiting.outbox_full) {
            return;
        }
        if let Some(slow) = self.situation.running.iter().rposition(RunningView::is_slow) {
            self.plan.left_out.retain(|(place, _)| *place != Place::Running(slow));
            self.preempt(slow, Cause::ClientSlow);
        }
    }

    /// How often `waiting` may still be passed.
    fn passes(&self, waiting: &WaitingView) -> usize {
        if waiting.preempted { 0 } else { self.limits.bypass_max.saturating_sub(waiting.bypassed) }
    }

    /// Tokens of a prompt, of which `computed` are there, that this step takes: as many as may be and as there is room for; its
    /// share of that, if it would not be done with all. The first prompt of a step gets some in any case, and none gets a few
    /// that are not worth it.
    fn chunk(&self, computed: usize, known: usize) -> usize {
        let all = self.fitting(computed, known - computed, self.budget, self.time);
        if !self.contended || all == known - computed {
            return all;
        }
        let share = |whole: f64| whole * self.limits.prompt_share_percent as f64 / 100.0;
        let (budget, time) = self.room;
        let left = |room: f64, whole: f64| room.min(share(whole).max(0.0));
        let budget = left(self.budget as f64, budget as f64).ceil() as usize;
        let share = self.fitting(computed, known - computed, budget, left(self.time, time));
        share.max(self.limits.prefill_chunk_min).min(all)
    }

    /// How many of `wanted` tokens after `computed` fit both `budget` tokens and `time` nanoseconds.
    fn fitting(&self, computed: usize, wanted: usize, budget: usize, time: f64) -> usize {
        let most = wanted.min(self.limits.prefill_chunk_max).min(budget);
        let Some(Pace { prices, .. }) = self.situation.pace.filter(|_| time.is_finite()) else { return most };
        let least = most.min(self.limits.prefill_chunk_min);
        if prices.of_prefill(computed, least) > time {
            return if self.prefilling.is_empty() { least } else { 0 };
        }
        prices.prefill_within(time, computed, most)
    }

    /// Gives prompts that were held to their shares what nobody else has taken.
    fn share_what_is_left(&mut self) {
        if !self.contended {
            return;
        }
        for place in 0..self.plan.chunks.len() + self.plan.admit.len() {
            let (of_running, of_waiting) = (place, place.wrapping_sub(self.plan.chunks.len()));
            let (computed, known, tokens) = match self.plan.chunks.get(of_running) {
                Some(chunk) => {
                    let running = &self.situation.running[chunk.running];
                    (running.computed, running.known, chunk.tokens)
                }
                None => {
                    let admission = &self.plan.admit[of_waiting];
                    let waiting = &self.situation.waiting[admission.waiting];
                    let found = waiting.look.blocks * self.limits.block_tokens;
                    (found, waiting.known, admission.tokens)
                }
            };
            let (from, wanted) = (computed + tokens, known - computed - tokens);
            let wanted = wanted.min(self.limits.prefill_chunk_max - tokens).min(self.budget);
            let more = match self.situation.pace.filter(|_| self.time.is_finite()) {
                Some(Pace { prices, .. }) => prices.prefill_within(self.time.max(0.0), from, wanted),
                None => wanted,
            };
            if more == 0 {
                continue;
            }
            self.spend(from, more);
            match self.plan.chunks.get_mut(of_running) {
                Some(chunk) => chunk.tokens += more,
                None => self.plan.admit[of_waiting].tokens += more,
            }
        }
    }

    fn spend(&mut self, computed: usize, tokens: usize) {
        self.budget -= tokens;
        if let Some(pace) = self.situation.pace {
            self.time -= pace.prices.of_prefill(computed, tokens);
        }
    }

    fn take(&mut self, computed: usize, tokens: usize, request: RequestId) {
        self.spend(computed, tokens);
        if self.prefilling.len() < Cause::NAMED_MAX && !self.prefilling.contains(&request) {
            self.prefilling.push(request);
        }
    }

    /// Why the step takes no token of a prompt.
    fn no_room(&self) -> Cause {
        let prefill_of = self.prefilling.clone();
        match self.situation.pace {
            Some(pace) if self.budget > 0 => Cause::StepTime { target_ns: pace.target_ns as u64, prefill_of },
            _ => Cause::TokenBudget { budget: self.limits.max_num_batched_tokens, prefill_of },
        }
    }

    fn no_free_blocks(&self, needed: usize, except: Option<RequestId>) -> Cause {
        let holders = self.holders.get_or_init(|| largest_holders(&self.situation.running));
        let mut holders = holders.clone();
        holders.retain(|holder| Some(*holder) != except);
        Cause::NoFreeBlocks { needed, free: self.free, holders }
    }
}

/// Those that hold most, in the order of arrival, so that the names change only when the holders do.
fn largest_holders(running: &[RunningView]) -> Vec<RequestId> {
    let mut largest: Vec<(usize, usize)> = Vec::with_capacity(Cause::NAMED_MAX + 1); // (blocks, index), ascending
    for (index, running) in running.iter().enumerate() {
        let place = largest.partition_point(|(blocks, _)| *blocks < running.blocks);
        largest.insert(place, (running.blocks, index));
        if largest.len() > Cause::NAMED_MAX {
            largest.remove(0);
        }
    }
    largest.sort_by_key(|(_, index)| *index);
    let mut holders: Vec<_> = largest.iter().map(|(_, index)| running[*index].request).collect();
    holders.dedup();
    holders
}

impl RunningView {
    /// It could go on, but its client does not read.
    fn is_slow(&self) -> bool {
        self.produced && self.outbox_full
    }
}
