//! A whole run of the engine from one seed: clients that come, read slowly, go away; and checks after every step.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ledger::clock::Ns;
use ledger::{Cause, RequestId, Stage, Timeline};
use protocol::{Finish, Output, RefusalKind, Sampling, Submission, Terms, TokenId};

use super::{Dice, FakeExecutor, FakeModel, VirtualClock, examine};
use crate::plan::WaitingView;
use crate::sample::{Sampler, Scratch};
use crate::{Engine, Handle, Limits, Outputs, Progress};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// Steps during which clients come; afterwards what is there is finished.
    pub steps: u64,
    pub limits: Limits,
    /// How often a client comes in a step.
    pub arrival_chance: f64,
    pub prompt_max: usize,
    pub answer_max: usize,
    /// How often a client goes away, and how often it says so, in a step.
    pub leave_chance: f64,
    /// How many clients sometimes stop reading.
    pub slow_share: f64,
    /// How many prompts begin like others, of which there are [`STEMS`].
    pub alike: f64,
    /// Whether requests come in classes, of several tenants, and some with deadlines.
    pub terms: bool,
}

/// What the fake executor takes for each position that a token attends to.
const POSITION_NS: u64 = 20;

/// Beginnings that prompts share.
const STEMS: usize = 6;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub steps: u64,
    pub submitted: usize,
    pub refused: usize,
    pub finished: usize,
    pub cancelled: usize,
    pub tokens: usize,
    pub preemptions: usize,
    /// Prompt tokens that came from the cache, by what their answers say.
    pub cached_tokens: usize,
    /// Steps in which somebody waited for another one's prefix.
    pub waits_for_prefix: usize,
    /// Steps in which somebody waited because the step was long enough.
    pub cut_short: usize,
    /// Requests that were told that their deadlines could not be met.
    pub hopeless: usize,
    /// Steps that the longest wait at the head of the queue took.
    pub head_wait_max: u64,
    /// Summary of all tokens handed out, for comparing runs.
    pub digest: u64,
}

/// One client and what it got so far.
struct Client {
    submission: Submission,
    outputs: Outputs,
    slow: bool,
    /// Does not read at the moment.
    stalled: bool,
    /// Has said that it wants no more.
    cancelled: bool,
    answer: Vec<TokenId>,
    /// When its next token's way began.
    since: Ns,
}

impl Scenario {
    /// Runs it to the end.
    ///
    /// # Errors
    /// The first thing that is wrong, with seed and step.
    pub fn run(&self) -> Result<Report, String> {
        let mut run = Run::new(self)?;
        let mut idle = 0;
        while run.report.steps < self.steps || !run.clients.is_empty() {
            let coming = run.report.steps < self.steps;
            run.step(coming)
                .and_then(|progress| {
                    idle = if progress == Progress::Idle && !coming { idle + 1 } else { 0 };
                    if idle < 10_000 { Ok(()) } else { Err("requests are left and nothing moves".into()) }
                })
                .map_err(|wrong| format!("seed {}, step {}: {wrong}", self.seed, run.report.steps))?;
        }
        run.at_the_end()
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    dice: Dice,
    clock: VirtualClock,
    engine: Engine<FakeExecutor>,
    handle: Handle,
    clients: Vec<Client>,
    report: Report,
    /// Who is at the head of the queue, and since which step.
    head: Option<(RequestId, u64)>,
    model: FakeModel,
    scratch: Scratch,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, String> {
        let clock = VirtualClock::default();
        let mut executor = FakeExecutor::new(&scenario.limits, clock.clone());
        executor.position_ns = POSITION_NS;
        let engine = Engine::new(executor, scenario.limits.clone(), clock.clock());
        let (engine, handle) = engine.map_err(|error| error.to_string())?;
        Ok(Run {
            scenario,
            dice: Dice::new(scenario.seed),
            clock,
            engine,
            handle,
            clients: Vec::new(),
            report: Report::default(),
            head: None,
            model: FakeModel { vocabulary: scenario.limits.vocabulary },
            scratch: Scratch::default(),
        })
    }

    fn step(&mut self, coming: bool) -> Result<Progress, String> {
        self.report.steps += 1;
        if coming && self.dice.chance(self.scenario.arrival_chance) {
            self.somebody_comes();
        }
        self.somebody_leaves();
        self.clock.advance(1_000);
        let progress = self.engine.step();
        let (situation, plan) = self.engine.last_plan();
        examine(situation, plan, &self.scenario.limits)?;
        self.report.preemptions += plan.preempt.len();
        let for_prefix = |cause: &Cause| matches!(cause, Cause::SamePrefix { .. });
        let for_time = |cause: &Cause| matches!(cause, Cause::StepTime { .. });
        self.report.cut_short += usize::from(plan.left_out.iter().any(|(_, cause)| for_time(cause)));
        self.report.waits_for_prefix += plan.left_out.iter().filter(|(_, cause)| for_prefix(cause)).count();
        self.streams_keep_their_pace(progress)?;
        self.nobody_starves()?;
        self.engine.check_blocks()?;
        self.clients_read()?;
        Ok(progress)
    }

    fn somebody_comes(&mut self) {
        let dice = &mut self.dice;
        let vocabulary = self.scenario.limits.vocabulary;
        // Mostly small requests, sometimes one that takes most of the pool.
        let prompt_max =
            if dice.chance(0.05) { self.scenario.prompt_max } else { self.scenario.prompt_max / 8 + 1 };
        let length = dice.between(1, prompt_max);
        let sampling = Sampling {
            temperature: if dice.chance(0.5) { 0.0 } else { 1.0 },
            top_p: if dice.chance(0.3) { 0.9 } else { 1.0 },
            repetition_penalty: if dice.chance(0.2) { 1.2 } else { 1.0 },
            seed: Some(dice.number()),
            max_tokens: dice.chance(0.95).then(|| dice.between(1, self.scenario.answer_max)),
            ..Sampling::default()
        };
        let mut prompt: Vec<TokenId> =
            (0..length).map(|_| TokenId(dice.between(0, vocabulary - 1) as u32)).collect();
        if dice.chance(self.scenario.alike) {
            let mut stem = Dice::new(dice.between(1, STEMS) as u64);
            let shared = dice.between(0, length);
            prompt[..shared].fill_with(|| TokenId(stem.between(0, vocabulary - 1) as u32));
        }
        let salt = [None, None, Some("one"), Some("two")][dice.between(0, 3)];
        let terms = if self.scenario.terms { any_terms(dice) } else { Terms::default() };
        let submission = Submission {
            request: RequestId(self.report.submitted as u64),
            choice: 0,
            prompt: prompt.into(),
            cache_salt: salt.map(Arc::from),
            terms,
            sampling,
            eog: Arc::new([TokenId(0)]),
        };
        let slow = dice.chance(self.scenario.slow_share);
        let since = self.clock.now();
        match self.handle.submit(submission.clone()) {
            Ok(outputs) => {
                self.report.submitted += 1;
                let client = Client {
                    submission,
                    outputs,
                    slow,
                    stalled: false,
                    cancelled: false,
                    answer: Vec::new(),
                    since,
                };
                self.clients.push(client);
            }
            Err(_) => self.report.refused += 1,
        }
    }

    fn somebody_leaves(&mut self) {
        if self.clients.is_empty() || !self.dice.chance(self.scenario.leave_chance) {
            return;
        }
        let index = self.dice.between(0, self.clients.len() - 1);
        if self.dice.chance(0.5) {
            self.clients.swap_remove(index);
            self.report.cancelled += 1;
        } else {
            self.clients[index].cancelled = true;
            self.clients[index].outputs.cancel();
        }
    }

    /// Once the engine knows what steps cost, those in which somebody decodes are no longer than they may be.
    fn streams_keep_their_pace(&self, progress: Progress) -> Result<(), String> {
        const LEARNING: u64 = 500;
        let limits = &self.scenario.limits;
        let step = self.handle.steps(1).pop().filter(|_| progress == Progress::Worked);
        let Some(step) = step.filter(|step| limits.itl_target_ns > 0 && step.id.0 > LEARNING) else {
            return Ok(());
        };
        let decodes = step.members.iter().filter(|member| member.decode_tokens > 0).count() as u64;
        let prefill: usize = step.members.iter().map(|member| member.prefill_tokens).sum();
        if decodes == 0 || prefill <= limits.prefill_chunk_min {
            return Ok(());
        }
        // What decodes alone take at most, with the longest contexts.
        let decode_ns = 10_000 + POSITION_NS * limits.context() as u64;
        let limit = limits.itl_target_ns.max(3 * (1_000_000 + decode_ns * decodes) / 2);
        let took = step.ended_ns - step.started_ns;
        if took as f64 <= 1.1 * limit as f64 {
            Ok(())
        } else {
            Err(format!("a step took {took} of {limit} ns: {step:?}"))
        }
    }

    /// Whoever is first in the queue and could run is admitted within a bound.
    fn nobody_starves(&mut self) -> Result<(), String> {
        let limits = &self.scenario.limits;
        let (situation, _) = self.engine.last_plan();
        for waiting in &situation.waiting {
            if waiting.bypassed > limits.bypass_max {
                return Err(format!("{} was passed {} times", waiting.request, waiting.bypassed));
            }
        }
        // Requests are numbered as they come.
        let order = |waiting: &WaitingView| (!waiting.preempted, waiting.request);
        if !self.scenario.terms && !situation.waiting.iter().is_sorted_by_key(order) {
            return Err(format!("the queue is out of order: {:?}", situation.waiting));
        }
        let head =
            situation.waiting.iter().find(|waiting| !waiting.outbox_full).map(|waiting| waiting.request);
        let now = self.report.steps;
        self.head = match (self.head, head) {
            (Some((before, since)), Some(head)) if before == head => Some((head, since)),
            (_, head) => head.map(|head| (head, now)),
        };
        let waited = self.head.map_or(0, |(_, since)| now - since);
        self.report.head_wait_max = self.report.head_wait_max.max(waited);
        // All that may run before it, one after the other, each with the longest answer and prompt.
        let longest = limits.context() * 2;
        let bound = ((limits.max_num_seqs + limits.bypass_max) * longest) as u64;
        if waited > bound { Err(format!("{head:?} waited {waited} steps at the head")) } else { Ok(()) }
    }

    fn clients_read(&mut self) -> Result<(), String> {
        let mut index = 0;
        while index < self.clients.len() {
            let client = &mut self.clients[index];
            if client.slow && self.dice.chance(0.02) {
                client.stalled = !client.stalled;
            }
            let ended = if client.stalled { false } else { self.read(index)? };
            if ended {
                self.clients.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Takes what is there; says whether it was the end.
    fn read(&mut self, index: usize) -> Result<bool, String> {
        let now = self.clock.now();
        let client = &mut self.clients[index];
        while let Some(output) = client.outputs.try_recv() {
            match output {
                Output::Token { token, finish, timeline, cached_tokens, .. } => {
                    if client.answer.is_empty() {
                        self.report.cached_tokens += cached_tokens;
                    }
                    client.since = check_timeline(&timeline, client.since, now)?;
                    client.answer.push(token);
                    self.report.tokens += 1;
                    self.report.digest = self.report.digest.rotate_left(5) ^ u64::from(token.0);
                    if let Some(finish) = finish {
                        self.report.finished += 1;
                        let expected = self.expected(index);
                        return if expected == (self.clients[index].answer.clone(), finish) {
                            Ok(true)
                        } else {
                            Err(format!("an answer differs from {expected:?}, which it would be alone"))
                        };
                    }
                }
                Output::Cancelled { timeline } if client.cancelled => {
                    check_timeline(&timeline, client.since, now)?;
                    self.report.cancelled += 1;
                    return Ok(true);
                }
                Output::Failed { refusal, timeline } if refusal.kind == RefusalKind::Deadline => {
                    check_timeline(&timeline, client.since, now)?;
                    self.report.hopeless += 1;
                    let within = client.submission.terms.first_token_within;
                    let none = client.answer.is_empty();
                    return if within.is_some() && none { Ok(true) } else { Err(refusal.message) };
                }
                other => return Err(format!("an output that nothing asked for: {other:?}")),
            }
        }
        Ok(false)
    }

    /// What the sequence would be if nothing else existed: no blocks, no batches, no engine.
    fn expected(&mut self, index: usize) -> (Vec<TokenId>, Finish) {
        let Submission { prompt, sampling, eog, .. } = self.clients[index].submission.clone();
        let max = sampling.max_tokens.unwrap_or(usize::MAX);
        let mut sampler = Sampler::new(sampling, eog.clone(), &prompt);
        let mut tokens = prompt.to_vec();
        loop {
            let mut logits = self.model.logits(&tokens);
            let (position, answer) = (tokens.len(), tokens.len() - prompt.len());
            let sampled = sampler.sample(&mut logits, position, answer, &mut self.scratch);
            let token = sampled.expect("the fake model's logits are numbers").token;
            tokens.push(token);
            let answer = tokens[prompt.len()..].to_vec();
            if eog.contains(&token) {
                return (answer, Finish::Stop);
            }
            if answer.len() == max || tokens.len() == self.scenario.limits.context() {
                return (answer, Finish::Length);
            }
        }
    }

    fn at_the_end(mut self) -> Result<Report, String> {
        self.engine.step();
        let state = self.handle.state();
        if !state.is_idle() || state.blocks_free != state.blocks_total {
            return Err(format!("seed {}: something is left at the end: {state:?}", self.scenario.seed));
        }
        Ok(self.report)
    }
}

/// Few classes and tenants, so that they meet.
fn any_terms(dice: &mut Dice) -> Terms {
    Terms {
        priority: [-2, 0, 0, 0, 3][dice.between(0, 4)],
        tenant: [None, Some("many"), Some("many"), Some("few")][dice.between(0, 3)].map(Arc::from),
        first_token_within: dice.chance(0.2).then(|| Duration::from_micros(dice.between(1, 100_000) as u64)),
    }
}

/// A timeline begins where it should, holds only the engine's stages, and ends in `return`; gives the next one's beginning.
fn check_timeline(timeline: &Timeline, since: Ns, now: Ns) -> Result<Ns, String> {
    let segments = timeline.segments();
    let known = [
        Stage::Handoff,
        Stage::Queue,
        Stage::Prefill,
        Stage::PrefillWait,
        Stage::Decode,
        Stage::DecodeWait,
        Stage::Preempted,
        Stage::Sample,
        Stage::Return,
    ];
    let stages: HashSet<_> = segments.iter().map(|segment| segment.stage).collect();
    let last = segments.last().ok_or("an empty timeline")?;
    if segments[0].since != since {
        return Err(format!("a timeline begins at {} and not at {since}: {timeline:?}", segments[0].since));
    }
    if last.stage != Stage::Return || last.since > now || !stages.iter().all(|stage| known.contains(stage)) {
        return Err(format!("a timeline is not one of the engine's: {timeline:?}"));
    }
    Ok(last.since)
}
