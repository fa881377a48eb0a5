//! An answer's text as its tokens arrive: detokenizer and stop strings together.
//!
//! **Invariant:** text and tokens leave in order, and each token leaves exactly once: with the delta that carries the
//! last of its text, or withheld because a stop string swallowed it.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::TokenId;

use crate::detokenize::Detokenizer;
use crate::stop::{StopMatcher, StopStrings};
use crate::tokenizer::ShowSpecial;
use crate::vocabulary::Vocabulary;

/// What a token (or the end) sets free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// New text; may be empty.
    pub text: String,
    /// How many of the tokens pushed and not yet released this text carries.
    pub tokens_released: usize,
    /// How many tokens a stop string swallowed whole; they leave with this delta and carry no text.
    pub tokens_withheld: usize,
    /// A stop string was completed: the answer ends with this delta.
    pub stopped: bool,
}

/// The text of one choice.
#[derive(Clone, Debug)]
pub struct AnswerText {
    detokenizer: Detokenizer,
    stop: Option<StopMatcher>,
    /// Bytes of text detokenized, and released, since the answer began.
    made: usize,
    released: usize,
    /// Where the text of each token that is not released begins and ends; `None` while its last character is not
    /// complete.
    waiting: VecDeque<Waiting>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    begins: usize,
    ends: Option<usize>,
}

impl AnswerText {
    /// Begins an answer.
    pub fn new(vocabulary: Arc<Vocabulary>, special: ShowSpecial, stop: Option<&StopStrings>) -> Self {
        AnswerText {
            detokenizer: Detokenizer::new(vocabulary, special).continuing(),
            stop: stop.map(StopStrings::matcher),
            made: 0,
            released: 0,
            waiting: VecDeque::new(),
            ended: false,
        }
    }

    /// The answer's next token.
    pub fn push(&mut self, token: TokenId) -> Delta {
        self.waiting.push_back(Waiting { begins: self.made, ends: None });
        let mut text = String::new();
        self.detokenizer.push(token, &mut text);
        self.advance(&text)
    }

    /// A token that ends the answer and is not part of its text.
    pub fn push_silent(&mut self) -> Delta {
        self.waiting.push_back(Waiting { begins: self.made, ends: None });
        self.advance("")
    }

    /// No token follows: a character cut in two becomes U+FFFD, and held text is released. Nothing comes after a stop.
    pub fn finish(&mut self) -> Delta {
        if self.ended {
            return Delta::default();
        }
        let mut text = String::new();
        self.detokenizer.finish(&mut text);
        let mut delta = self.advance(&text);
        if delta.stopped {
            return delta;
        }
        if let Some(stop) = &mut self.stop {
            stop.finish(&mut delta.text);
        }
        self.ended = true;
        delta.tokens_released += self.waiting.len();
        self.waiting.clear();
        delta
    }

    /// Tokens whose text is held back.
    pub fn tokens_held(&self) -> usize {
        self.waiting.len()
    }

    fn advance(&mut self, text: &str) -> Delta {
        let mut delta = Delta::default();
        if self.ended {
            self.waiting.clear();
            return delta;
        }
        self.made += text.len();
        if !self.detokenizer.is_mid_character() {
            let open = self.waiting.iter_mut().rev().take_while(|token| token.ends.is_none());
            open.for_each(|token| token.ends = Some(self.made));
        }
        match &mut self.stop {
            Some(stop) => delta.stopped = stop.push(text, &mut delta.text),
            None => delta.text.push_str(text),
        }
        self.released += delta.text.len();
        let carried = |token: &Waiting| match delta.stopped {
            // The token in which the stop string begins still carries what is before it.
            true => token.begins < self.released,
            false => token.ends.is_some_and(|ends| ends <= self.released),
        };
        while self.waiting.front().is_some_and(carried) {
            self.waiting.pop_front();
            delta.tokens_released += 1;
        }
        if delta.stopped {
            delta.tokens_withheld = self.waiting.len();
            self.waiting.clear();
            self.ended = true;
        }
        delta
    }
}
