//! One sequence inside the engine: token ids, a sampler, an outbox; nothing of text or HTTP.
//!
//! **Invariant:** a sequence that waits holds no blocks, by type: only [`Running`] has a lease.

use std::sync::Arc;

use ledger::clock::Ns;
use ledger::{Cause, Member, Miss, RequestId, Stage, StepId, Timeline};
use protocol::{Finish, Output, Refusal, Terms, TokenId};

use crate::Limits;
use crate::blocks::{Content, Found, Lease, Look};
use crate::fair::{Claim, Tenant};
use crate::outputs::{Gone, Outbox};
use crate::plan::{RunningView, WaitingView};
use crate::queue::Arrival;
use crate::sample::{SampleError, Sampled, Sampler, Scratch};

/// Numbers sequences in the order in which they were picked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// A sequence, whether it runs or waits.
pub(crate) struct Sequence {
    pub id: SequenceId,
    pub request: RequestId,
    /// Prompt, then answer.
    pub tokens: Vec<TokenId>,
    pub prompt_tokens: usize,
    /// It shares blocks only with sequences of the same salt.
    pub salt: Option<Arc<str>>,
    pub class: i8,
    /// The class that it counts as, since it waited so long.
    pub rank: i8,
    pub tenant: Arc<Tenant>,
    pub arrived: Ns,
    /// When its first token is of no use any more.
    pub deadline: Option<Ns>,
    /// How often it lost its blocks.
    pub preemptions: u32,
    /// What of it is in the cache, as it was last looked for.
    pub found: Found,
    pub look: Look,
    /// What the cache did for it when it was first admitted.
    pub cached: Cached,
    pub sampler: Sampler,
    pub outbox: Outbox,
    /// The way of its next token.
    pub timeline: Timeline,
    /// Later sequences that were admitted while this one waited for blocks.
    pub bypassed: usize,
}

/// Prompt tokens that came from the cache, and why no more did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached {
    pub tokens: usize,
    pub miss: Option<Miss>,
}

/// A sequence with blocks.
pub(crate) struct Running {
    pub sequence: Sequence,
    pub lease: Lease,
    /// Tokens whose KV lies in the blocks.
    pub computed: usize,
    /// Whether it got a token since it was admitted.
    pub produced: bool,
    /// Tokens that the step in progress computes; 0 if it is left out.
    pub chunk: usize,
    /// It has said its last word.
    pub ended: bool,
}

/// Causes that one token's timeline tells apart; later changes of cause are charged to the last one.
const CAUSES_MAX: usize = 256;

impl Sequence {
    pub fn new(id: SequenceId, arrival: Arrival, tenant: Arc<Tenant>, timeline: Timeline) -> Self {
        let Arrival { submission, outbox, submitted } = arrival;
        let Terms { priority, first_token_within, .. } = submission.terms;
        Sequence {
            id,
            request: submission.request,
            tokens: submission.prompt.to_vec(),
            prompt_tokens: submission.prompt.len(),
            salt: submission.cache_salt,
            class: priority,
            rank: priority,
            tenant,
            arrived: submitted,
            deadline: first_token_within.map(|within| submitted.saturating_add(within.as_nanos() as u64)),
            preemptions: 0,
            found: Found::default(),
            look: Look::default(),
            cached: Cached::default(),
            sampler: Sampler::new(submission.sampling, submission.eog, &submission.prompt),
            outbox,
            timeline,
            bypassed: 0,
        }
    }

    /// What its blocks hold or will hold.
    pub fn content(&self) -> Content<'_> {
        Content { tokens: &self.tokens, prompt: self.prompt_tokens, salt: self.salt.as_ref() }
    }

    /// Whether it has an answer, even if that is not handed out.
    pub fn has_begun(&self) -> bool {
        self.tokens.len() > self.prompt_tokens
    }

    /// What decides whether it is first; `price_ns` is what its prompt will take.
    pub fn claim(&self, price_ns: u64) -> Claim<'_> {
        Claim {
            class: self.class,
            preempted: self.preemptions > 0,
            tenant: &self.tenant,
            arrival: self.id.0,
            arrived: self.arrived,
            deadline: self.deadline,
            price_ns,
        }
    }

    /// Tokens that need computing before it can go on, after those that the cache has.
    pub fn lacking(&self, limits: &Limits) -> (usize, usize) {
        let found = self.look.blocks * limits.block_tokens;
        (found, self.tokens.len() - found)
    }

    /// Blocks that must be free beyond its own before it runs again: twice as many each time that it lost what it had, up to
    /// all that it can still need.
    fn headroom(&self, limits: &Limits) -> usize {
        if self.preemptions == 0 {
            return 0;
        }
        let answer = self.tokens.len() - self.prompt_tokens;
        let longest = self.tokens.len() + self.sampler.left(answer).min(limits.context() - self.tokens.len());
        let all = limits.blocks_for(longest)
            - limits.blocks_for(self.tokens.len() + 1).min(limits.blocks_for(longest));
        all.min(1_usize.checked_shl(self.preemptions).unwrap_or(usize::MAX))
    }

    pub fn view(&self, limits: &Limits) -> WaitingView {
        WaitingView {
            request: self.request,
            known: self.tokens.len(),
            look: self.look,
            preempted: self.preemptions > 0,
            rank: self.rank,
            headroom: self.headroom(limits),
            bypassed: self.bypassed,
            outbox_full: self.outbox.is_full(),
        }
    }

    /// The sequence waits in `stage`. The same reason with other numbers is the same wait.
    pub fn wait(&mut self, stage: Stage, cause: &Cause, now: Ns) {
        let segments = self.timeline.segments();
        let goes_on = segments.last().is_some_and(|last| {
            let same = |before: &Cause| segments.len() >= CAUSES_MAX || same_reason(before, cause);
            last.stage == stage && last.cause.as_ref().is_some_and(same)
        });
        if !goes_on {
            self.timeline.wait(stage, cause.clone(), now);
        }
    }

    /// Chooses the next token from its row of logits.
    pub fn sample(&mut self, logits: &mut [f32], scratch: &mut Scratch) -> Result<Sampled, SampleError> {
        let position = self.tokens.len();
        self.sampler.sample(logits, position, position - self.prompt_tokens, scratch)
    }

    /// Appends a sampled token; says whether it is the last one.
    pub fn commit(&mut self, token: TokenId, limits: &Limits) -> Option<Finish> {
        self.tokens.push(token);
        let answer = self.tokens.len() - self.prompt_tokens;
        if self.sampler.ends(token) {
            Some(Finish::Stop)
        } else if self.sampler.is_full(answer) || self.tokens.len() >= limits.context() {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// Hands the token out; the next token's timeline begins where this one's enters `return`.
    pub fn emit(
        &mut self,
        sampled: Sampled,
        finish: Option<Finish>,
        step: StepId,
        now: Ns,
    ) -> Result<(), Gone> {
        let next = Timeline::starting(Stage::DecodeWait, now);
        let mut timeline = std::mem::replace(&mut self.timeline, next);
        timeline.enter(Stage::Return, now);
        ledger::delay::inject(Stage::Return);
        self.outbox.send(Output::Token {
            token: sampled.token,
            logprob: sampled.logprob,
            finish,
            timeline,
            step,
            cached_tokens: self.cached.tokens,
            miss: self.cached.miss.take(),
        })
    }
}

impl Running {
    /// A sequence of which `computed` tokens are in the lease's blocks already.
    pub fn new(sequence: Sequence, lease: Lease, computed: usize, chunk: usize) -> Self {
        Running { sequence, lease, computed, produced: false, chunk, ended: false }
    }

    pub fn view(&self) -> RunningView {
        RunningView {
            request: self.sequence.request,
            known: self.sequence.tokens.len(),
            computed: self.computed,
            blocks: self.lease.blocks().len(),
            own: self.lease.own(),
            next: if self.produced { None } else { self.lease.next(&self.sequence.content()) },
            produced: self.produced,
            outbox_full: self.sequence.outbox.is_full(),
        }
    }

    /// Who is before whom among those that run: the last one gives way first.
    pub fn order(&self) -> (i8, SequenceId) {
        (self.sequence.rank, self.sequence.id)
    }

    /// The stage it is in while it is stepped.
    pub fn stage(&self) -> Stage {
        if self.produced { Stage::Decode } else { Stage::Prefill }
    }

    /// The stage it is in between steps.
    pub fn wait_stage(&self) -> Stage {
        if self.produced { Stage::DecodeWait } else { Stage::PrefillWait }
    }

    /// Whether the step in progress computes its last known token, so that the next one can be sampled.
    pub fn samples(&self) -> bool {
        self.chunk > 0 && self.computed + self.chunk == self.sequence.tokens.len()
    }

    /// Its share of the step in progress.
    pub fn member(&self) -> Member {
        Member {
            request: self.sequence.request,
            prefill_tokens: if self.produced { 0 } else { self.chunk },
            decode_tokens: if self.produced { self.chunk } else { 0 },
            context_tokens: self.computed + self.chunk,
            service_ns: 0,
        }
    }

    /// The sequence's last word follows: its blocks are free before anyone hears it.
    pub fn end(&mut self) {
        self.lease.release();
        self.ended = true;
        self.sequence.outbox.leave();
    }

    /// The step has computed its chunk: full blocks can be found from now on.
    pub fn advance(&mut self) {
        self.computed += self.chunk;
        self.lease.publish(&self.sequence.content(), self.computed);
    }

    /// Ends the sequence with a failure; nobody goes on from what it computed.
    pub fn fail(&mut self, refusal: Refusal) {
        self.lease.withdraw();
        self.end();
        self.sequence.outbox.fail(refusal, std::mem::take(&mut self.sequence.timeline));
    }
}

fn same_reason(a: &Cause, b: &Cause) -> bool {
    match (a, b) {
        (Cause::NoFreeBlocks { holders: a, .. }, Cause::NoFreeBlocks { holders: b, .. }) => a == b,
        (Cause::TokenBudget { prefill_of: a, .. }, Cause::TokenBudget { prefill_of: b, .. }) => a == b,
        (Cause::StepTime { prefill_of: a, .. }, Cause::StepTime { prefill_of: b, .. }) => a == b,
        (Cause::Behind { next: a, .. }, Cause::Behind { next: b, .. }) => a == b,
        (Cause::BatchFull { .. }, Cause::BatchFull { .. }) => true,
        _ => a == b,
    }
}
