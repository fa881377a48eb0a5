//! Prompts that share prefixes: each begins with the prefix of one of several groups.
//!
//! A prompt is one text (one user's message in a chat): the prefix, a space, and the call's own part. So the shared part is shared
//! under every chat template, whatever it does with system messages.

use std::sync::Arc;

use rand::RngExt;

use super::lengths::Lengths;
use super::maker::Maker;
use crate::schedule::{Call, CallId, Purpose, Workload};

pub(super) struct PrefixGroups {
    pub shown: String,
    pub maker: Arc<Maker>,
    pub groups: u64,
    /// Tokens of each prefix.
    pub prefix: u32,
    pub input: Lengths,
    pub output: Lengths,
    pub calls: Option<u64>,
}

impl Workload for PrefixGroups {
    fn len(&self) -> Option<u64> {
        self.calls
    }

    fn call(&self, id: CallId) -> Option<Call> {
        if self.calls.is_some_and(|calls| id.0 >= calls) {
            return None;
        }
        let group = self.maker.random(Purpose::Group, id.0).random_range(0..self.groups);
        let front = self.maker.texts.front(group, self.prefix);
        let piece = self.maker.texts.behind(&front, id.0, self.maker.prompt_length(&self.input, id.0));
        Some(self.maker.single(id, piece, self.maker.answer_length(&self.output, id.0)))
    }

    fn describe(&self) -> String {
        self.maker.describe(&self.shown)
    }
}
