//! Agents' workflows: a call that plans, calls that go on from the plan all at once, and a call that reads their answers.
//!
//! All calls of a workflow begin with the same long context. Within a wave the plans come first, then each workflow's
//! parallel calls side by side, then the calls that join them.

use std::sync::Arc;

use super::lengths::Lengths;
use super::maker::{Maker, user};
use super::waves::{Wave, Waves};
use crate::schedule::{Call, CallId, Prompt, Said, Workload};

pub(super) struct Agents {
    pub shown: String,
    pub maker: Arc<Maker>,
    /// Workflows, and their calls.
    pub waves: Waves,
    /// Parallel calls of a workflow.
    pub fan: u32,
    /// Tokens of the context at the beginning of all of a workflow's calls.
    pub context: u32,
    pub input: Lengths,
    pub output: Lengths,
}

/// A call's part in its workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Plan,
    /// The parallel call of this number.
    Worker(u64),
    Join,
}

impl Agents {
    /// Part, and workflow within the wave.
    fn part(&self, wave: Wave) -> (Part, u64) {
        let fan = u64::from(self.fan);
        match wave.place.checked_sub(wave.groups) {
            None => (Part::Plan, wave.place),
            Some(place) if place < wave.groups * fan => (Part::Worker(place % fan), place / fan),
            Some(place) => (Part::Join, place - wave.groups * fan),
        }
    }

    fn id(&self, wave: Wave, part: Part, within: u64) -> CallId {
        let fan = u64::from(self.fan);
        CallId(match part {
            Part::Plan => wave.first_id + within,
            Part::Worker(worker) => wave.first_id + wave.groups + within * fan + worker,
            Part::Join => wave.first_id + wave.groups * (1 + fan) + within,
        })
    }

    /// The number of a part's own text.
    fn number(&self, workflow: u64, part: Part) -> u64 {
        let base = workflow * self.waves.calls_each;
        match part {
            Part::Plan => base,
            Part::Worker(worker) => base + 1 + worker,
            Part::Join => base + 1 + u64::from(self.fan),
        }
    }

    /// What a part asks for.
    fn request(&self, workflow: u64, part: Part) -> Said {
        let number = self.number(workflow, part);
        user(self.maker.texts.own(number, self.maker.prompt_length(&self.input, number)))
    }
}

impl Workload for Agents {
    fn len(&self) -> Option<u64> {
        Some(self.waves.len())
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let wave = self.waves.of(id)?;
        let (part, within) = self.part(wave);
        let workflow = wave.first_group + within;
        let at = |part| self.id(wave, part, within);

        let number = self.number(workflow, Part::Plan);
        let front = self.maker.texts.front(workflow, self.context);
        let task = self.maker.texts.behind(&front, number, self.maker.prompt_length(&self.input, number));
        let task_tokens = task.tokens;
        let mut messages = vec![user(task)];
        let mut after = Vec::new();
        match part {
            Part::Plan => {}
            Part::Worker(_) => {
                messages.extend([Said::Answer(at(Part::Plan)), self.request(workflow, part)]);
                after.push(at(Part::Plan));
            }
            Part::Join => {
                // Each answer behind its request, so that user and assistant alternate, as some templates demand.
                messages.push(Said::Answer(at(Part::Plan)));
                for worker in (0..u64::from(self.fan)).map(Part::Worker) {
                    messages.extend([self.request(workflow, worker), Said::Answer(at(worker))]);
                    after.push(at(worker));
                }
                messages.push(self.request(workflow, part));
            }
        }
        let max_tokens = self.maker.answer_length(&self.output, self.number(workflow, part));
        Some(Call {
            after,
            session: Some(workflow),
            prompt_tokens: if part == Part::Plan { task_tokens } else { None },
            ..self.maker.call(id, Prompt::Chat(messages), max_tokens)
        })
    }

    fn describe(&self) -> String {
        self.maker.describe(&self.shown)
    }
}
