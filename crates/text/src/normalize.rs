//! Unicode's composed form (NFC), remembering where each part came from.
//!
//! **Invariant:** the normalized text is the NFC of the whole, though it is made part by part: parts begin only at
//! characters that never combine with what is before them.

use std::borrow::Cow;

use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc, is_nfc_quick};

/// A text in NFC.
#[derive(Debug)]
pub struct Normalized<'a> {
    pub text: Cow<'a, str>,
    /// Where parts begin, normalized and in the source, ascending; empty where nothing changed.
    parts: Vec<(usize, usize)>,
}

impl<'a> Normalized<'a> {
    /// Normalizes `text`; borrows it where it is NFC already.
    pub fn nfc(text: &'a str) -> Self {
        if is_nfc(text) {
            return Normalized { text: Cow::Borrowed(text), parts: Vec::new() };
        }
        let mut normalized = String::with_capacity(text.len());
        let mut parts = Vec::new();
        let mut start = 0;
        for (at, character) in text.char_indices().skip(1).filter(|(_, character)| begins_part(*character)) {
            debug_assert!(text.is_char_boundary(at) && begins_part(character));
            parts.push((normalized.len(), start));
            normalized.extend(text[start..at].nfc());
            start = at;
        }
        parts.push((normalized.len(), start));
        normalized.extend(text[start..].nfc());
        Normalized { text: Cow::Owned(normalized), parts }
    }

    /// The place in the source of a place in the normalized text: exact where a part begins, else that part's start.
    pub fn source(&self, at: usize) -> usize {
        match self.parts.partition_point(|(normalized, _)| *normalized <= at) {
            0 => at,
            index => self.parts[index - 1].1,
        }
    }
}

fn begins_part(character: char) -> bool {
    canonical_combining_class(character) == 0 && is_nfc_quick(std::iter::once(character)) == IsNormalized::Yes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_lead_back_to_the_source() {
        let normalized = Normalized::nfc("ae\u{301}b");
        assert_eq!(normalized.text, "aéb");
        assert_eq!([0, 1, 3].map(|at| normalized.source(at)), [0, 1, 4]);
    }

    proptest! {
        #[test]
        fn parts_compose_to_the_whole(text in "[ae\u{301}\u{327}\u{1100}\u{1161}\u{11a8}가\u{9c7}\u{9be} \\PC]{0,30}") {
            let whole: String = text.nfc().collect();
            prop_assert_eq!(Normalized::nfc(&text).text, whole);
        }
    }
}
