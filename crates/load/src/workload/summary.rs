//! What a schedule holds in all: whether its prompts differ, and how many tokens were wanted.
//!
//! A run of many calls from few prompts measures the prefix cache and little else. So reports show how many prompts were
//! distinct.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::schedule::{Call, CallId, Prompt, Said, Workload};

/// What some calls hold in all. Takes 8 bytes of memory a distinct prompt, and the room of a hash table.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    totals: Totals,
    prompts: HashSet<u64>,
}

/// Figures of a [`Summary`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub calls: u64,
    /// Prompts that differ. An answer that a prompt holds counts as whose it is, not as what it says.
    pub distinct_prompts: u64,
    /// Sum over the calls whose prompt length is known before the run.
    pub prompt_tokens: u64,
    /// How many calls that sum is over.
    pub prompt_tokens_known: u64,
    /// Sum of the answers' length limits.
    pub answer_tokens_max: u64,
    /// Calls that wait for other calls.
    pub dependent: u64,
}

impl Summary {
    /// The first `calls` calls of a workload, or all it has.
    pub fn of(workload: &dyn Workload, calls: u64) -> Self {
        let mut summary = Self::default();
        (0..calls).map_while(|id| workload.call(CallId(id))).for_each(|call| summary.add(&call));
        summary
    }

    pub fn add(&mut self, call: &Call) {
        let totals = &mut self.totals;
        self.prompts.insert(fingerprint(&call.prompt));
        totals.calls += 1;
        totals.distinct_prompts = self.prompts.len() as u64;
        totals.prompt_tokens += call.prompt_tokens.map_or(0, u64::from);
        totals.prompt_tokens_known += u64::from(call.prompt_tokens.is_some());
        totals.answer_tokens_max += u64::from(call.max_tokens);
        totals.dependent += u64::from(!call.after.is_empty());
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }
}

impl Display for Totals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls, {} distinct prompts, ", self.calls, self.distinct_prompts)?;
        match self.prompt_tokens_known {
            0 => f.write_str("prompt tokens not known beforehand, ")?,
            known if known == self.calls => write!(f, "{} prompt tokens, ", self.prompt_tokens)?,
            known => write!(f, "{} prompt tokens in the {known} calls where known, ", self.prompt_tokens)?,
        }
        write!(f, "at most {} answer tokens", self.answer_tokens_max)
    }
}

/// 64 bits of a prompt's SHA-256: among a million prompts, two that differ are taken for the same with a chance of 3 in 10⁸.
pub(super) fn fingerprint(prompt: &Prompt) -> u64 {
    let mut hash = Sha256::new();
    // Each part with its length, so that no two prompts hash the same bytes.
    let mut part = |kind: u8, bytes: &[u8]| {
        hash.update([kind]);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    match prompt {
        Prompt::Text(text) => part(0, text.as_bytes()),
        Prompt::Tokens(ids) => ids.iter().for_each(|id| part(1, &id.to_le_bytes())),
        Prompt::Chat(messages) => {
            for message in messages {
                match message {
                    Said::Message { role, content } => {
                        part(2, role.as_bytes());
                        part(3, content.as_bytes());
                    }
                    Said::Answer(id) => part(4, &id.0.to_le_bytes()),
                }
            }
        }
    }
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"))
}
