//! F70, F23, F34: what a vocabulary may hold, and what follows from it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod small;

use protocol::TokenId;
use text::{ShowSpecial, Special, TokenType, Vocabulary, VocabularyError, VocabularySource};

fn good() -> VocabularySource {
    small::byte_level(&["<|im_start|>", "<|im_end|>"], &["<tool>"])
}

/// The error must name `key`.
fn check(key: &str, spoil: impl FnOnce(&mut VocabularySource)) {
    let mut source = good();
    spoil(&mut source);
    let error = Vocabulary::new(source).expect_err(key).to_string();
    assert!(error.contains(key), "{error:?} does not name {key}");
    assert!(error.len() < 600, "{error:?}");
}

#[test]
fn ids_out_of_range_are_refused_by_name() {
    let count = good().tokens.len() as i64;
    for id in [count, u32::MAX.into(), i64::MAX, -1, i64::MIN] {
        check("tokenizer.ggml.bos_token_id", |source| source.bos = Some(id));
        check("tokenizer.ggml.eos_token_id", |source| source.eos = Some(id));
        check("tokenizer.ggml.eot_token_id", |source| source.eot = Some(id));
        check("tokenizer.ggml.eom_token_id", |source| source.eom = Some(id));
        check("tokenizer.ggml.unknown_token_id", |source| source.unknown = Some(id));
        check("tokenizer.ggml.padding_token_id", |source| source.padding = Some(id));
    }
    assert!(Vocabulary::new(VocabularySource { bos: Some(count - 1), ..good() }).is_ok());
}

#[test]
fn arrays_of_another_length_are_refused() {
    check("tokenizer.ggml.token_type", |source| source.token_types.truncate(3));
    check("tokenizer.ggml.token_type", |source| source.token_types.push(1));
    check("tokenizer.ggml.scores", |source| source.scores = vec![0.0; 3]);
    check("tokenizer.ggml.tokens", |source| source.tokens.clear());
    check("tokenizer.ggml.merges", |source| source.merges.clear());
}

#[test]
fn contents_that_make_no_sense_are_refused_with_their_place() {
    check("tokenizer.ggml.token_type[2] is 99", |source| source.token_types[2] = 99);
    check("tokenizer.ggml.token_type[2] is -1", |source| source.token_types[2] = -1);
    check("tokenizer.ggml.merges[0] has no space", |source| source.merges[0] = b"th".to_vec());
    check("tokenizer.ggml.merges[1] needs the token \"zz\"", |source| source.merges[1] = b"th zz".to_vec());
    check("tokenizer.ggml.merges[1] needs the token \"tht\"", |source| source.merges[1] = b"th t".to_vec());
    check("tokenizer.ggml.merges[1] is not valid UTF-8", |source| source.merges[1] = vec![0xff, b' ', 0xfe]);
    check("tokenizer.ggml.tokens[5] is not valid UTF-8", |source| source.tokens[5] = vec![0xff, 0xfe]);
    check("tokenizer.ggml.tokens[5] has 0 bytes", |source| source.tokens[5].clear());
    check("tokenizer.ggml.tokens[5] has 5000 bytes", |source| source.tokens[5] = vec![b'x'; 5_000]);
    check("tokenizer.ggml.tokens[1] and [5]", |source| source.tokens[5] = source.tokens[1].clone());
    check("tokenizer.ggml.scores[1] is NaN", |source| {
        source.scores = vec![0.0; source.tokens.len()];
        source.scores[1] = f32::NAN;
    });
}

#[test]
fn counts_are_checked_before_anything_grows_with_them() {
    check("tokenizer.ggml.merges has 10000000 entries", |source| {
        source.merges = vec![Vec::new(); 10_000_000]
    });
    check("tokenizer.ggml.tokens has 5000000 entries", |source| source.tokens = vec![Vec::new(); 5_000_000]);
}

#[test]
fn unknown_rules_are_refused_since_they_would_change_ids_silently() {
    check("tokenizer.ggml.pre is \"qwen9000\"", |source| source.pre = Some("qwen9000".into()));
    check("tokenizer.ggml.pre is missing", |source| source.pre = None);
    check("tokenizer.ggml.model is \"wordpiece\"", |source| source.model = "wordpiece".into());
    let source = VocabularySource { pre: Some("qwen2".into()), ..small::sentence_piece(false) };
    assert!(matches!(Vocabulary::new(source), Err(VocabularyError::UnknownPre(_))));
}

#[test]
fn byte_tokens_must_be_spelled_as_bytes() {
    let mut source = small::sentence_piece(false);
    source.tokens[10] = b"<0xZZ>".to_vec();
    let error = Vocabulary::new(source).unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.tokens[10] is a byte token"), "{error}");
}

#[test]
fn a_vocabulary_of_one_token_has_no_ids_by_default() {
    let source = VocabularySource {
        model: "llama".into(),
        tokens: vec![b"a".to_vec()],
        token_types: vec![1],
        scores: vec![0.0],
        ..VocabularySource::default()
    };
    let tokenizer = small::tokenizer(source);
    assert_eq!(tokenizer.vocabulary().bos(), None);
    assert!(tokenizer.vocabulary().eog().is_empty());
    assert_eq!(tokenizer.encode_raw("aba c").tokens, [TokenId(0); 2], "what has no token is left out");
}

#[test]
fn every_end_of_generation_token_ends_an_answer_and_look_alikes_do_not() {
    let mut source =
        small::byte_level(&["<|endoftext|>", "<|im_end|>", "<|im_start|>"], &["</s>", "<|eot_id|>"]);
    source.eos = Some(256);
    let vocabulary = Vocabulary::new(source).unwrap();
    let names: Vec<&[u8]> = vocabulary.eog().iter().map(|token| vocabulary.token_bytes(*token)).collect();
    assert_eq!(names, [b"<|endoftext|>".as_slice(), b"<|im_end|>"]);
}

#[test]
fn bos_is_there_exactly_once() {
    let tokens = |add_bos: Option<bool>, text: &str| {
        let source = VocabularySource { add_bos, ..small::sentence_piece(false) };
        small::tokenizer(source).encode_raw(text).tokens
    };
    let bos = TokenId(1);
    for add_bos in [Some(true), None] {
        for text in ["ab", "<s>ab", "", "<s>"] {
            let tokens = tokens(add_bos, text);
            assert_eq!(tokens.iter().filter(|token| **token == bos).count(), 1, "{text:?}");
            assert_eq!(tokens[0], bos);
        }
    }
    assert!(!tokens(Some(false), "ab").contains(&bos));
    assert_eq!(tokens(Some(false), "<s>ab")[0], bos);
    let source = VocabularySource { bos: None, add_bos: Some(true), ..small::sentence_piece(false) };
    assert!(!small::tokenizer(source).encode_raw("ab").tokens.contains(&bos), "no id, no token");
    let given = [TokenId(9), TokenId(1)];
    assert_eq!(small::tokenizer(small::sentence_piece(false)).prompt_of_tokens(&given).tokens, given);
}

#[test]
fn a_space_prefix_is_added_by_encoding_and_taken_away_by_decoding() {
    let tokenizer = small::tokenizer(small::sentence_piece(true));
    let tokens = tokenizer.encode("ab a", Special::Plain);
    let spelled: Vec<&[u8]> = tokens.iter().map(|token| tokenizer.vocabulary().token_bytes(*token)).collect();
    assert_eq!(spelled, [b" ab".as_slice(), b" a"]);
    assert_eq!(tokenizer.decode(&tokens, ShowSpecial::Yes), "ab a");
    let plain = small::tokenizer(small::sentence_piece(false));
    for text in ["ab a", " ab", "  ab", "é 你 a", "\u{2581}a"] {
        let decoded = plain.decode(&plain.encode(text, Special::Plain), ShowSpecial::Yes);
        assert_eq!(decoded, text.replace('\u{2581}', " "));
    }
}

#[test]
fn control_tokens_are_parsed_on_request_and_user_defined_ones_always() {
    let tokenizer = small::tokenizer(good());
    let kinds = |text: &str, special| {
        let tokens = tokenizer.encode(text, special);
        let kind = |token: &TokenId| tokenizer.vocabulary().token_type(*token);
        tokens.iter().map(kind).filter(|kind| *kind != TokenType::Normal).collect::<Vec<_>>()
    };
    let text = "<|im_start|><tool>x<|im_end|";
    assert_eq!(kinds(text, Special::Parse), [TokenType::Control, TokenType::UserDefined]);
    assert_eq!(kinds(text, Special::Plain), [TokenType::UserDefined]);
    let tokens = tokenizer.encode("<|im_start|>a<|im_end|>", Special::Parse);
    assert_eq!(tokenizer.decode(&tokens, ShowSpecial::No), "a");
    assert_eq!(tokenizer.decode(&tokens, ShowSpecial::Yes), "<|im_start|>a<|im_end|>");
}
