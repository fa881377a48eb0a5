//! From tokens to text, one token at a time.
//!
//! **Invariant:** the pieces of text joined are the text of all tokens decoded at once, whatever the tokens, and no piece
//! ends within a character.

use std::sync::Arc;

use protocol::TokenId;

use crate::tokenizer::ShowSpecial;
use crate::vocabulary::{Model, TokenType, Vocabulary};

/// Turns one sequence's tokens into text.
///
/// Bytes that are not UTF-8 become U+FFFD, one for each longest part that could have begun a character.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    special: ShowSpecial,
    /// The beginning of a character whose other bytes are still to come; at most 3 bytes.
    pending: Vec<u8>,
    /// SentencePiece with a space prefix: the first space of the text was added by encoding.
    strip_space: bool,
}

impl Detokenizer {
    /// Begins a text.
    pub fn new(vocabulary: Arc<Vocabulary>, special: ShowSpecial) -> Self {
        let strip_space = matches!(vocabulary.model, Model::SentencePiece { add_space_prefix: true });
        Detokenizer { vocabulary, special, pending: Vec::new(), strip_space }
    }

    /// Continues a text, whose beginning keeps its space.
    pub fn continuing(mut self) -> Self {
        self.strip_space = false;
        self
    }

    /// Appends to `text` the characters that `token` completes.
    pub fn push(&mut self, token: TokenId, text: &mut String) {
        if self.vocabulary.is_special(token) && self.special == ShowSpecial::No {
            return;
        }
        let mut bytes = self.vocabulary.token_bytes(token);
        if bytes.is_empty() {
            return;
        }
        let normal = self.vocabulary.token_type(token) == TokenType::Normal;
        if std::mem::take(&mut self.strip_space) && normal {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let consumed = append_complete(&self.pending, text);
        self.pending.drain(..consumed);
    }

    /// Ends the text: a character that was never completed is one U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Whether part of a character waits for its other bytes.
    pub fn is_mid_character(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Appends what of `bytes` cannot change any more, and says how many bytes that was.
fn append_complete(bytes: &[u8], text: &mut String) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return bytes.len();
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                let Some(invalid) = error.error_len() else { return bytes.len() - after.len() };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &after[invalid..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_split_of_any_bytes_equals_decoding_the_whole(
            chunks in prop::collection::vec(prop::collection::vec(prop_oneof![
                any::<u8>(), Just(0xF0), Just(0x9F), Just(0x98), Just(0x80), Just(0xE4), Just(b'a')
            ], 0..6), 0..12),
        ) {
            let whole = chunks.concat();
            let (mut pending, mut text) = (Vec::new(), String::new());
            for chunk in &chunks {
                pending.extend_from_slice(chunk);
                let consumed = append_complete(&pending, &mut text);
                pending.drain(..consumed);
                prop_assert!(pending.len() <= 3);
            }
            if !pending.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }
}
