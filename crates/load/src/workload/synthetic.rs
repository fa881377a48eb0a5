//! Prompts that have nothing in common.

use std::sync::Arc;

use super::lengths::Lengths;
use super::maker::Maker;
use crate::schedule::{Call, CallId, Workload};

pub(super) struct Synthetic {
    pub shown: String,
    pub maker: Arc<Maker>,
    pub input: Lengths,
    pub output: Lengths,
    pub calls: Option<u64>,
}

impl Workload for Synthetic {
    fn len(&self) -> Option<u64> {
        self.calls
    }

    fn call(&self, id: CallId) -> Option<Call> {
        if self.calls.is_some_and(|calls| id.0 >= calls) {
            return None;
        }
        let piece = self.maker.texts.own(id.0, self.maker.prompt_length(&self.input, id.0));
        Some(self.maker.single(id, piece, self.maker.answer_length(&self.output, id.0)))
    }

    fn describe(&self) -> String {
        self.maker.describe(&self.shown)
    }
}
