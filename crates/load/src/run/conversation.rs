//! Calls that were taken from the schedule and are not on their way yet, and the answers that they wait for. A call that comes
//! after others waits here, where it keeps nobody from sending; once they have ended it is ready.
//!
//! **Invariant:** a call that is waiting comes after one that has not ended, and is looked at again when that one ends.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::adapter::{Resolved, ResolvedPrompt};
use crate::sample::Ns;
use crate::schedule::{Call, CallId, Prompt, Said};

/// Answers that are kept; older ones are forgotten, and a call that needs one of them fails.
const ANSWERS_MAX: usize = 200_000;

/// A call that was taken from the schedule.
pub(super) struct Due {
    pub call: Call,
    /// When the schedule wanted it, or its user was ready.
    pub wanted: Ns,
    /// It was ready, and the run's own limit kept it back.
    pub held: bool,
}

/// What the calls of a run were answered, and those that wait for it.
#[derive(Default)]
pub(super) struct Conversations {
    line: Mutex<Line>,
    news: Notify,
}

#[derive(Default)]
struct Line {
    ended: Ended,
    /// By a call that they come after, and that has not ended.
    waiting: HashMap<CallId, Vec<Due>>,
    waiting_count: usize,
    ready: BTreeMap<CallId, Due>,
    /// Those of `ready` that have not been looked at by [`Conversations::hold`].
    fresh: Vec<CallId>,
}

impl Conversations {
    /// Takes a call in. It is ready if those that it comes after have ended, or if one of them has failed.
    pub fn add(&self, due: Due) {
        self.line().add(due);
    }

    /// The first call of the schedule that is ready, if any is.
    pub fn next(&self) -> Option<Due> {
        self.line().ready.pop_first().map(|(_, due)| due)
    }

    /// Calls that are here, waiting or ready.
    pub fn len(&self) -> usize {
        let line = self.line();
        line.waiting_count + line.ready.len()
    }

    /// Marks the calls that are ready as held back; says how many of them were not before, and how many there are.
    pub fn hold(&self) -> (usize, usize) {
        let mut line = self.line();
        let Line { fresh, ready, .. } = &mut *line;
        let mut newly = 0;
        for id in fresh.drain(..) {
            if let Some(due) = ready.get_mut(&id).filter(|due| !due.held) {
                due.held = true;
                newly += 1;
            }
        }
        (newly, ready.len())
    }

    /// Everything that is here, in the order of the schedule; nothing stays.
    pub fn drain(&self) -> Vec<Due> {
        let mut line = self.line();
        let mut left: Vec<Due> = std::mem::take(&mut line.ready).into_values().collect();
        left.extend(std::mem::take(&mut line.waiting).into_values().flatten());
        line.waiting_count = 0;
        left.sort_by_key(|due| due.call.id);
        left
    }

    /// Ends when the next call ends, counted from now and not from when it is awaited.
    pub fn news(&self) -> Notified<'_> {
        self.news.notified()
    }

    /// `call` has ended `at` that moment, with `text` if it was answered.
    pub fn ended(&self, call: &Call, text: Option<String>, at: Ns) {
        let mut line = self.line();
        line.ended.add(call, text, at);
        let released = line.waiting.remove(&call.id).unwrap_or_default();
        line.waiting_count -= released.len();
        released.into_iter().for_each(|due| line.add(due));
        drop(line);
        self.news.notify_waiters();
    }

    /// When the last of the calls that a ready `call` comes after ended (0 if there is none), and the call with their answers
    /// in it, or why they are not there.
    pub fn resolve(&self, call: &Call) -> (Ns, Result<Resolved, String>) {
        let line = self.line();
        let kept = call.after.iter().filter_map(|id| line.ended.by_call.get(id));
        (kept.map(|end| end.at).max().unwrap_or(0), line.ended.resolve(call))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no holder panics")
    }
}

impl Line {
    fn add(&mut self, due: Due) {
        // One that does not come earlier cannot be waited for; `resolve` says so.
        let earlier = due.call.after.iter().filter(|id| **id < due.call.id);
        let failed = self.ended.failed(&due.call).is_some();
        match earlier.copied().find(|id| !self.ended.holds(*id)).filter(|_| !failed) {
            Some(missing) => {
                self.waiting.entry(missing).or_default().push(due);
                self.waiting_count += 1;
            }
            None => {
                self.fresh.push(due.call.id);
                self.ready.insert(due.call.id, due);
            }
        }
    }
}

/// How a call ended.
struct End {
    at: Ns,
    said: Told,
}

enum Told {
    Failed,
    Text(Arc<str>),
    /// It was answered, and nobody will ask for the text.
    Forgotten,
}

/// The calls that have ended: of all of them one bit, so that nobody waits for what was forgotten, and of the latest how.
#[derive(Default)]
struct Ended {
    by_call: HashMap<CallId, End>,
    order: VecDeque<CallId>,
    bits: Vec<u64>,
}

impl Ended {
    fn add(&mut self, call: &Call, text: Option<String>, at: Ns) {
        let word = usize::try_from(call.id.0 / 64).expect("ids of one run");
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (call.id.0 % 64);
        let said = match text {
            None => Told::Failed,
            Some(text) if call.session.is_some() => Told::Text(Arc::from(text)),
            Some(_) => Told::Forgotten,
        };
        self.by_call.insert(call.id, End { at, said });
        self.order.push_back(call.id);
        if self.order.len() > ANSWERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_call.remove(&oldest);
        }
    }

    fn holds(&self, id: CallId) -> bool {
        let word = usize::try_from(id.0 / 64).ok().and_then(|word| self.bits.get(word));
        word.is_some_and(|word| (word >> (id.0 % 64)) & 1 == 1)
    }

    /// A failed call among those that `call` comes after.
    fn failed(&self, call: &Call) -> Option<CallId> {
        let failed = |id: &CallId| matches!(self.by_call.get(id), Some(End { said: Told::Failed, .. }));
        call.after.iter().copied().find(failed)
    }

    fn resolve(&self, call: &Call) -> Result<Resolved, String> {
        if let Some(failed) = self.failed(call) {
            return Err(format!("call {} failed", failed.0));
        }
        if let Some(missing) = call.after.iter().find(|id| !self.holds(**id)) {
            return Err(format!("call {} does not come before it in the schedule", missing.0));
        }
        let prompt = match &call.prompt {
            Prompt::Text(text) => ResolvedPrompt::Text(Arc::clone(text)),
            Prompt::Tokens(tokens) => ResolvedPrompt::Tokens(Arc::clone(tokens)),
            Prompt::Chat(said) => {
                let message = |said: &Said| match said {
                    Said::Message { role, content } => Ok((Arc::clone(role), Arc::clone(content))),
                    Said::Answer(id) => match self.by_call.get(id) {
                        Some(End { said: Told::Text(text), .. }) => {
                            Ok((Arc::from("assistant"), Arc::clone(text)))
                        }
                        _ => Err(format!("the answer of call {} is not there", id.0)),
                    },
                };
                ResolvedPrompt::Chat(said.iter().map(message).collect::<Result<_, _>>()?)
            }
        };
        Ok(Resolved { id: call.id, prompt, max_tokens: call.max_tokens, ignore_eos: call.ignore_eos })
    }
}
