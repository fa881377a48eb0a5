//! A prompt's tokens and where they came from.

use std::ops::Range;

use ledger::record::OriginTokens;
use ledger::{Origin, PromptAccount};
use protocol::TokenId;

use crate::rendered::Span;
use crate::tokenizer::Encoding;

/// Consecutive tokens of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpan {
    pub tokens: Range<usize>,
    pub origin: Origin,
    pub message: Option<usize>,
}

/// Token ids with their origins.
///
/// **Invariant:** the spans tile the tokens, and the account's counts sum to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub tokens: Vec<TokenId>,
    pub spans: Vec<TokenSpan>,
    /// By origin and message, in that order; nothing is cached yet.
    pub account: PromptAccount,
}

impl Prompt {
    /// Adds BOS if the text does not begin with it already, and EOS. A token belongs to the origin that its first
    /// character has; BOS and EOS belong to the template.
    pub(crate) fn new(
        encoding: Encoding,
        spans: &[Span],
        bos: Option<TokenId>,
        eos: Option<TokenId>,
    ) -> Self {
        let mut builder = Builder::default();
        if let Some(bos) = bos.filter(|bos| encoding.tokens.first() != Some(bos)) {
            builder.push(bos, Origin::Template, None);
        }
        let mut spans = spans.iter().peekable();
        for (token, start) in encoding.tokens.iter().zip(&encoding.starts) {
            while spans.next_if(|span| span.range.end <= *start).is_some() {}
            let (origin, message) =
                spans.peek().map_or((Origin::Template, None), |span| (span.origin, span.message));
            builder.push(*token, origin, message);
        }
        if let Some(eos) = eos.filter(|eos| encoding.tokens.last() != Some(eos)) {
            builder.push(eos, Origin::Template, None);
        }
        builder.finish()
    }
}

#[derive(Default)]
struct Builder {
    tokens: Vec<TokenId>,
    spans: Vec<TokenSpan>,
}

impl Builder {
    fn push(&mut self, token: TokenId, origin: Origin, message: Option<usize>) {
        let at = self.tokens.len();
        self.tokens.push(token);
        match self.spans.last_mut() {
            Some(last) if (last.origin, last.message) == (origin, message) => last.tokens.end = at + 1,
            _ => self.spans.push(TokenSpan { tokens: at..at + 1, origin, message }),
        }
    }

    fn finish(self) -> Prompt {
        let counted = |span: &TokenSpan| OriginTokens {
            origin: span.origin,
            message: span.message,
            tokens: span.tokens.len(),
        };
        let mut by_origin: Vec<OriginTokens> = self.spans.iter().map(counted).collect();
        by_origin.sort_by_key(|entry| (entry.origin, entry.message));
        by_origin.dedup_by(|later, kept| {
            let same = (later.origin, later.message) == (kept.origin, kept.message);
            kept.tokens += if same { later.tokens } else { 0 };
            same
        });
        let account = PromptAccount { tokens: self.tokens.len(), by_origin, ..PromptAccount::default() };
        Prompt { tokens: self.tokens, spans: self.spans, account }
    }
}
