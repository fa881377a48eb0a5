//! Answers that later calls of the same session need. Of every call one bit is kept, that it ended, so that nobody waits for
//! what was forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::adapter::{Resolved, ResolvedPrompt};
use crate::schedule::{Call, CallId, Prompt, Said};

/// Answers that are kept; older ones are forgotten, and a call that needs one of them fails.
const ANSWERS_MAX: usize = 200_000;

/// What the calls of sessions were answered. Calls outside of sessions leave no text here.
#[derive(Default)]
pub(super) struct Conversations {
    answers: Mutex<Answers>,
    news: Notify,
}

#[derive(Default)]
struct Answers {
    /// None: the call failed.
    by_call: HashMap<CallId, Option<Arc<str>>>,
    order: VecDeque<CallId>,
    /// A bit for each call.
    ended: Vec<u64>,
}

impl Answers {
    fn end(&mut self, id: CallId) {
        let word = usize::try_from(id.0 / 64).expect("ids of one run");
        if word >= self.ended.len() {
            self.ended.resize(word + 1, 0);
        }
        self.ended[word] |= 1 << (id.0 % 64);
    }

    fn has_ended(&self, id: CallId) -> bool {
        let word = usize::try_from(id.0 / 64).ok().and_then(|word| self.ended.get(word));
        word.is_some_and(|word| (word >> (id.0 % 64)) & 1 == 1)
    }
}

impl Conversations {
    /// `call` has ended, with `text` if it was answered.
    pub fn ended(&self, call: &Call, text: Option<String>) {
        let mut answers = self.answers.lock().expect("no holder panics");
        answers.end(call.id);
        if call.session.is_some() || text.is_none() {
            let text = text.map(Arc::from);
            answers.by_call.insert(call.id, text);
            answers.order.push_back(call.id);
        }
        if answers.order.len() > ANSWERS_MAX
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.by_call.remove(&oldest);
        }
        drop(answers);
        self.news.notify_waiters();
    }

    /// Waits for the calls that `call` comes after, and puts their answers in.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn answered(&self, call: &Call) -> Result<Resolved, String> {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            news.as_mut().enable();
            {
                let answers = self.answers.lock().expect("no holder panics");
                let state = |id: &CallId| answers.by_call.get(id);
                if let Some(failed) = call.after.iter().find(|id| matches!(state(id), Some(None))) {
                    return Err(format!("call {} failed", failed.0));
                }
                if call.after.iter().all(|id| answers.has_ended(*id)) {
                    return resolve(call, &answers);
                }
            }
            news.await;
        }
    }
}

fn resolve(call: &Call, answers: &Answers) -> Result<Resolved, String> {
    let prompt = match &call.prompt {
        Prompt::Text(text) => ResolvedPrompt::Text(Arc::clone(text)),
        Prompt::Tokens(tokens) => ResolvedPrompt::Tokens(Arc::clone(tokens)),
        Prompt::Chat(said) => {
            let message = |said: &Said| match said {
                Said::Message { role, content } => Ok((Arc::clone(role), Arc::clone(content))),
                Said::Answer(id) => match answers.by_call.get(id) {
                    Some(Some(text)) => Ok((Arc::from("assistant"), Arc::clone(text))),
                    _ => Err(format!("the answer of call {} is not there", id.0)),
                },
            };
            ResolvedPrompt::Chat(said.iter().map(message).collect::<Result<_, _>>()?)
        }
    };
    Ok(Resolved { id: call.id, prompt, max_tokens: call.max_tokens, ignore_eos: call.ignore_eos })
}
