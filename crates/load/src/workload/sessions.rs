//! Conversations. Each turn holds all earlier ones, with what the server answered to them.
//!
//! Within a wave all first turns come first, then all second turns, and so on: as many calls as conversations can be on
//! their way at once.

use std::sync::Arc;

use super::lengths::Lengths;
use super::maker::{Maker, said, user};
use super::waves::Waves;
use crate::schedule::{Call, CallId, Prompt, Said, Workload};

pub(super) struct Sessions {
    pub shown: String,
    pub maker: Arc<Maker>,
    /// Conversations, and their turns.
    pub waves: Waves,
    pub input: Lengths,
    pub output: Lengths,
    /// Tokens of the system message, which all conversations share.
    pub system: Option<u32>,
}

impl Workload for Sessions {
    fn len(&self) -> Option<u64> {
        Some(self.waves.len())
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let wave = self.waves.of(id)?;
        let (turn, within) = (wave.place / wave.groups, wave.place % wave.groups);
        let session = wave.first_group + within;
        let at = |turn: u64| CallId(wave.first_id + turn * wave.groups + within);

        let mut messages = Vec::new();
        let mut known = Some(0);
        if let Some(tokens) = self.system {
            let piece = self.maker.texts.front(0, tokens).piece.clone();
            known = piece.tokens;
            messages.push(said("system", piece));
        }
        for earlier in 0..=turn {
            let number = session * self.waves.calls_each + earlier;
            let piece = self.maker.texts.own(number, self.maker.prompt_length(&self.input, number));
            known = known.zip(piece.tokens).map(|(known, tokens)| known + tokens);
            messages.push(user(piece));
            if earlier < turn {
                messages.push(Said::Answer(at(earlier)));
            }
        }
        let number = session * self.waves.calls_each + turn;
        let max_tokens = self.maker.answer_length(&self.output, number);
        Some(Call {
            after: turn.checked_sub(1).map(at).into_iter().collect(),
            session: Some(session),
            // Later prompts hold answers, whose lengths nobody knows before the run.
            prompt_tokens: if turn == 0 { known } else { None },
            ..self.maker.call(id, Prompt::Chat(messages), max_tokens)
        })
    }

    fn describe(&self) -> String {
        self.maker.describe(&self.shown)
    }
}
