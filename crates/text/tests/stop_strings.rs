//! Stop strings (F31, F33, F41) against a plain definition, over every way to cut a text into tokens.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod clock;
mod small;

use std::sync::Arc;
use std::time::Duration;

use clock::cost;
use proptest::prelude::*;
use protocol::TokenId;
use text::{AnswerText, Delta, ShowSpecial, StopStrings, Tokenizer, Vocabulary};

/// Where the text ends by definition: the match that completes first, and of those the one that began first.
fn cut<'a>(text: &'a str, stops: &[String]) -> Option<&'a str> {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    for end in ends {
        let completed = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str()));
        if let Some(longest) = completed.map(String::len).max() {
            return Some(&text[..end - longest]);
        }
    }
    None
}

/// A vocabulary whose tokens are the bytes and all pieces given.
fn vocabulary(pieces: &[String]) -> Arc<Vocabulary> {
    let mut source = small::byte_level(&["<|end|>"], &[]);
    let mut unique: Vec<&String> = pieces.iter().filter(|piece| piece.len() > 1).collect();
    unique.sort();
    unique.dedup();
    for piece in unique {
        source.tokens.push(piece.as_bytes().to_vec());
        source.token_types.push(4);
    }
    Arc::new(Vocabulary::new(source).unwrap())
}

fn tokens(vocabulary: &Vocabulary, pieces: &[String]) -> Vec<TokenId> {
    pieces.iter().map(|piece| vocabulary.find(piece).unwrap()).collect()
}

/// Pushes tokens until the answer ends, and checks what must hold of every delta.
fn run(vocabulary: &Arc<Vocabulary>, tokens: &[TokenId], stops: &[String]) -> (String, bool, Vec<Delta>) {
    let compiled = (!stops.is_empty()).then(|| StopStrings::new(stops).unwrap());
    let mut answer = AnswerText::new(vocabulary.clone(), ShowSpecial::No, compiled.as_ref());
    let mut deltas = Vec::new();
    let mut pushed = 0;
    for token in tokens {
        deltas.push(answer.push(*token));
        pushed += 1;
        if deltas.last().unwrap().stopped {
            break;
        }
    }
    deltas.push(answer.finish());
    let accounted: usize = deltas.iter().map(|delta| delta.tokens_released + delta.tokens_withheld).sum();
    assert_eq!(accounted, pushed, "each token leaves once");
    assert_eq!(answer.tokens_held(), 0);
    let stopped = deltas.iter().any(|delta| delta.stopped);
    (deltas.iter().map(|delta| delta.text.as_str()).collect(), stopped, deltas)
}

fn check(pieces: &[&str], stops: &[&str], expected: &str, expect_stop: bool) -> Vec<Delta> {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let (pieces, stops) = (own(pieces), own(stops));
    let vocabulary = vocabulary(&pieces);
    let (text, stopped, deltas) = run(&vocabulary, &tokens(&vocabulary, &pieces), &stops);
    assert_eq!((text.as_str(), stopped), (expected, expect_stop), "{pieces:?} {stops:?}");
    deltas
}

#[test]
fn text_ends_before_the_match_however_tokens_lie() {
    check(&["one", " sto", "p two"], &["stop"], "one ", true);
    check(&["stop"], &["stop"], "", true);
    check(&["xxstopyy"], &["stop"], "xx", true);
    check(&["xa", "ab"], &["aab", "ab"], "x", true);
    check(&["ab", "c"], &["abc", "ab"], "", true);
    check(&["你", "好", "吗"], &["好吗"], "你", true);
    check(&["a", "\n", "\nb"], &["\n\n"], "a", true);
}

#[test]
fn a_prefix_that_does_not_complete_is_released_unharmed() {
    check(&["one st", "ep"], &["stop"], "one step", false);
    check(&["aa", "aa", "b"], &["aaaaa"], "aaaab", false);
    check(&["ends with sto"], &["stop"], "ends with sto", false);
    check(&["abab", "ac"], &["ababc"], "ababac", false);
}

#[test]
fn only_what_may_still_match_is_held_back() {
    let deltas = check(&["one", " sto", "ne"], &["stop"], "one stone", false);
    let texts: Vec<&str> = deltas.iter().map(|delta| delta.text.as_str()).collect();
    assert_eq!(texts, ["one", " ", "stone", ""]);
    let released: Vec<usize> = deltas.iter().map(|delta| delta.tokens_released).collect();
    assert_eq!(released, [1, 0, 2, 0], "a token leaves with the last of its text");
}

#[test]
fn tokens_that_a_stop_string_swallows_are_withheld() {
    let deltas = check(&["one s", "t", "op"], &["stop"], "one ", true);
    let last = deltas.iter().find(|delta| delta.stopped).unwrap();
    assert_eq!((last.tokens_released, last.tokens_withheld), (1, 2));
}

#[test]
fn a_character_cut_by_the_end_is_one_replacement_and_can_complete_no_other_text() {
    let vocabulary = vocabulary(&[]);
    let bytes = "a🙂".as_bytes();
    let tokens: Vec<TokenId> = bytes[..3]
        .iter()
        .map(|byte| vocabulary.ids().find(|id| vocabulary.token_bytes(*id) == [*byte]).unwrap())
        .collect();
    let (text, stopped, deltas) = run(&vocabulary, &tokens, &["🙂".to_owned()]);
    assert_eq!((text.as_str(), stopped), ("a\u{fffd}", false));
    assert_eq!(deltas.last().unwrap().tokens_released, 2);
}

#[test]
fn empty_strings_and_too_much_text_are_refused() {
    for stops in [vec![String::new()], vec!["x".into(), String::new()], vec!["x".repeat(1 << 20)]] {
        assert_eq!(StopStrings::new(&stops).unwrap_err().param.as_deref(), Some("stop"));
    }
}

#[test]
fn a_thousand_stop_strings_cost_no_more_per_token_than_one() {
    let tokenizer: Arc<Tokenizer> = small::tokenizer(small::byte_level(&[], &[]));
    let text = "the quick brown fox 0123456789 ".repeat(4_000);
    let tokens = tokenizer.encode(&text, text::Special::Plain);
    let time = |stops: &[String]| {
        let compiled = StopStrings::new(stops).unwrap();
        let once = || {
            let mut answer =
                AnswerText::new(tokenizer.vocabulary().clone(), ShowSpecial::No, Some(&compiled));
            let mut released = 0;
            let cost = cost(|| released = tokens.iter().map(|token| answer.push(*token).text.len()).sum());
            assert!(released + 64 > text.len());
            cost
        };
        (0..7).map(|_| once()).min().unwrap_or(Duration::MAX)
    };
    let few = time(&["zzz one".to_owned()]);
    let many: Vec<String> = (0..1_000).map(|index| format!("zzz {index} stop")).collect();
    let many = time(&many);
    assert!(many < few * 2, "{many:?} for 1,000 strings, {few:?} for one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn streamed_text_equals_the_definition_whatever_the_tokens(
        pieces in prop::collection::vec("[abж好]{1,4}", 0..12),
        stops in prop::collection::vec("[abж好]{1,5}", 0..5),
    ) {
        let vocabulary = vocabulary(&pieces.iter().flat_map(|piece| [piece.clone()]).collect::<Vec<_>>());
        let tokens: Vec<TokenId> = pieces.iter().map(|piece| vocabulary.find(piece).unwrap()).collect();
        let whole = pieces.concat();
        let (text, stopped, _) = run(&vocabulary, &tokens, &stops);
        match cut(&whole, &stops) {
            Some(cut) => prop_assert_eq!((text.as_str(), stopped), (cut, true)),
            None => prop_assert_eq!((text.as_str(), stopped), (whole.as_str(), false)),
        }
    }
}
