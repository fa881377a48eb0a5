//! An answer in the making: its choices, each a sequence of the backend and the text that comes of it.
//!
//! **Invariant:** a choice that ended has given its backend sequence back.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use protocol::{
    Finish, Output, Refusal, RefusalKind, Request, Submission, TokenId, TokenLogprob, TopLogprob,
};
use text::{AnswerText, Prompt, ShowSpecial, StopStrings, Vocabulary};

use crate::ids;
use crate::life::Life;
use crate::wire::{Alternative, Delta, Piece, Usage};
use crate::{Answers, Served};

/// The choices of one request.
pub struct Answer {
    choices: Vec<Choice>,
    vocabulary: Arc<Vocabulary>,
    /// Where the next poll begins, so that no choice is served last for ever.
    turn: usize,
    prompt_tokens: usize,
    completion_tokens: usize,
}

struct Choice {
    /// Which of the request's prompts it answers.
    prompt: usize,
    /// Tokens of the prompt that its sequence found in the cache; `None` before its first token.
    cached_tokens: Option<usize>,

    answers: Option<Box<dyn Answers>>,
    text: AnswerText,
    /// The tokens whose text is held back; `None` for one that has none.
    held: VecDeque<Option<Piece>>,
    /// Completions only: the prompt's text, which the answer begins with.
    echo: String,
    done: bool,
}

/// What came of a backend's output.
pub enum Event {
    /// Something to show: text, or the end of the choice. `tokens` are delivered with it.
    Delta { delta: Delta, tokens: usize },
    /// A token that shows nothing yet, or the news that a choice is given up.
    Nothing,
    /// The choice broke.
    Failed(Refusal),
}

impl Answer {
    /// Submits every choice of `request` to the model's backend: all of them, or none.
    ///
    /// # Errors
    /// The backend's refusal.
    pub fn submit(served: &Served, request: &Request, prompts: &[Prompt]) -> Result<Self, Refusal> {
        let stop = if request.stop.is_empty() { None } else { Some(StopStrings::new(&request.stop)?) };
        let vocabulary = served.text.tokenizer.vocabulary();
        let seed = request.sampling.seed.unwrap_or_else(ids::random);
        let mut choices = Vec::with_capacity(prompts.len() * request.n);
        for (index, prompt) in prompts.iter().enumerate() {
            let tokens: Arc<[TokenId]> = prompt.tokens.as_slice().into();
            for choice in index * request.n..(index + 1) * request.n {
                let mut sampling = request.sampling.clone();
                sampling.seed = Some(seed.wrapping_add(choice as u64));
                let submission = Submission {
                    request: request.id,
                    choice,
                    prompt: Arc::clone(&tokens),
                    cache_salt: request.cache_salt.clone(),
                    terms: request.terms.clone(),
                    sampling,
                    eog: Arc::clone(&served.text.eog),
                };
                // With nothing to generate (an echo of the prompt alone), there is nothing to submit.
                let answers = match request.sampling.max_tokens {
                    Some(0) => None,
                    _ => Some(served.backend.submit(submission)?),
                };
                choices.push(Choice {
                    prompt: index,
                    cached_tokens: None,
                    answers,
                    text: AnswerText::new(Arc::clone(vocabulary), ShowSpecial::No, stop.as_ref()),
                    held: VecDeque::new(),
                    echo: if request.echo { served.text.echo(request, index) } else { String::new() },
                    done: false,
                });
            }
        }
        Ok(Answer {
            choices,
            vocabulary: Arc::clone(vocabulary),
            turn: 0,
            prompt_tokens: prompts.iter().map(|prompt| prompt.tokens.len()).sum(),
            completion_tokens: 0,
        })
    }

    /// How many choices there are.
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// What `choice` shows before its first token; with nothing to generate this is all of it.
    pub fn opening(&mut self, choice: usize) -> Option<Delta> {
        let state = &mut self.choices[choice];
        let finish = (state.answers.is_none()).then_some(Finish::Length);
        let text = std::mem::take(&mut state.echo);
        (finish.is_some() || !text.is_empty()).then(|| Delta { choice, text, pieces: Vec::new(), finish })
    }

    /// The next output of any choice; `None` once all have ended. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<(usize, Output)> {
        poll_fn(|context| {
            let count = self.choices.len();
            let mut open = false;
            for index in (self.turn..count).chain(0..self.turn) {
                let choice = &mut self.choices[index];
                let Some(answers) = &mut choice.answers else { continue };
                match answers.poll_next(context) {
                    Poll::Ready(output) => {
                        self.turn = (index + 1) % count;
                        return Poll::Ready(Some((index, output.unwrap_or_else(vanished))));
                    }
                    Poll::Pending => open = true,
                }
            }
            if open { Poll::Pending } else { Poll::Ready(None) }
        })
        .await
    }

    /// Turns an output of `choice` into what there is to show, and tells `life` where its token is.
    pub fn receive(&mut self, life: &mut Life, choice: usize, output: Output) -> Event {
        let (token, logprob, finish) = match output {
            Output::Token { token, logprob, finish, timeline, step, cached_tokens, miss } => {
                life.received(choice, timeline, step);
                if self.choices[choice].cached_tokens.replace(cached_tokens).is_none() {
                    life.prompt.cached_tokens = self.cached_tokens();
                    life.prompt.miss = life.prompt.miss.or(miss);
                }
                self.completion_tokens += 1;
                (token, logprob, finish)
            }
            Output::Failed { refusal, timeline } => {
                life.ended(choice, timeline);
                self.choices[choice].answers = None;
                return Event::Failed(refusal);
            }
            Output::Cancelled { timeline } => {
                life.ended(choice, timeline);
                self.choices[choice].answers = None;
                return Event::Nothing;
            }
        };
        let state = &mut self.choices[choice];
        // A token that ends the answer by itself has no text.
        let silent = finish == Some(Finish::Stop);
        let piece = logprob.map(|logprob| piece(&self.vocabulary, &logprob));
        state.held.push_back(piece.filter(|_| !silent));
        let mut news = if silent { state.text.push_silent() } else { state.text.push(token) };
        if finish.is_some() && !news.stopped {
            let rest = state.text.finish();
            news.text.push_str(&rest.text);
            news.tokens_released += rest.tokens_released;
            news.tokens_withheld += rest.tokens_withheld;
            news.stopped |= rest.stopped;
        }
        let finish = if news.stopped { Some(Finish::Stop) } else { finish };
        let tokens = news.tokens_released + news.tokens_withheld;
        let pieces = state.held.drain(..news.tokens_released).flatten().collect();
        state.held.drain(..news.tokens_withheld);
        if let Some(finish) = finish {
            state.answers = None;
            state.done = true;
            life.finished(choice, finish.name());
        }
        if news.text.is_empty() && finish.is_none() && tokens == 0 {
            return Event::Nothing;
        }
        Event::Delta { delta: Delta { choice, text: news.text, pieces, finish }, tokens }
    }

    /// Asks the backend to end what still runs; [`Answer::next`] then gives the last outputs.
    pub fn cancel(&mut self) {
        for answers in self.choices.iter_mut().filter_map(|choice| choice.answers.as_mut()) {
            answers.cancel();
        }
    }

    /// Tokens of the prompts that none of their choices had to compute.
    fn cached_tokens(&self) -> usize {
        let of_prompt =
            |choices: &[Choice]| choices.iter().filter_map(|it| it.cached_tokens).min().unwrap_or(0);
        self.choices.chunk_by(|a, b| a.prompt == b.prompt).map(of_prompt).sum()
    }

    /// Tokens so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens(),
            completion_tokens: self.completion_tokens,
        }
    }
}

/// A backend that ends a sequence without a last word has broken.
fn vanished() -> Output {
    let refusal = Refusal::new(RefusalKind::Internal, "the engine ended the sequence without saying why");
    Output::Failed { refusal, timeline: ledger::Timeline::default() }
}

fn piece(vocabulary: &Vocabulary, logprob: &TokenLogprob) -> Piece {
    let bytes = |entry: &TopLogprob| vocabulary.token_bytes(entry.token).to_vec();
    let top = logprob.top.iter().map(|entry| Alternative { bytes: bytes(entry), logprob: entry.logprob });
    Piece { bytes: bytes(&logprob.chosen), logprob: logprob.chosen.logprob, top: top.collect() }
}
