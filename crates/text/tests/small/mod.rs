//! A vocabulary small enough to read: the 256 bytes, a few merges, and the special tokens that a test names.

#![allow(clippy::unwrap_used, reason = "test code outside of #[test] functions")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use text::{Tokenizer, Vocabulary, VocabularySource};

/// GPT-2's spelling of a byte.
fn spelled(byte: u8) -> String {
    let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if prints(&byte) {
        return char::from(byte).to_string();
    }
    let before = (0..byte).filter(|byte| !prints(byte)).count();
    char::from_u32(0x100 + before as u32).unwrap().to_string()
}

/// Byte-level, with `control` and `user_defined` tokens after the bytes.
pub fn byte_level(control: &[&str], user_defined: &[&str]) -> VocabularySource {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| spelled(byte).into_bytes()).collect();
    let mut token_types = vec![1; tokens.len()];
    for (text, kind) in control.iter().map(|text| (text, 3)).chain(user_defined.iter().map(|text| (text, 4)))
    {
        tokens.push(text.as_bytes().to_vec());
        token_types.push(kind);
    }
    tokens.extend([b"th".to_vec(), b"the".to_vec()]);
    token_types.extend([1, 1]);
    VocabularySource {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        token_types,
        merges: vec![b"t h".to_vec(), b"th e".to_vec()],
        ..VocabularySource::default()
    }
}

/// SentencePiece-style, with all byte tokens, single letters and a few words.
pub fn sentence_piece(add_space_prefix: bool) -> VocabularySource {
    let special = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("  ", 4)];
    let bytes = (0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6));
    let letters = ('a'..='z').map(|letter| (letter.to_string(), 1));
    let words = ["\u{2581}", "\u{2581}a", "ab", "\u{2581}ab", "<", ">", "/"].map(|word| (word.to_owned(), 1));
    let all = special
        .map(|(text, kind)| (text.to_owned(), kind))
        .into_iter()
        .chain(bytes)
        .chain(letters)
        .chain(words);
    let (tokens, token_types): (Vec<String>, Vec<i32>) = all.unzip();
    VocabularySource {
        model: "llama".into(),
        pre: Some("default".into()),
        scores: (0..tokens.len()).map(|rank| -(rank as f32)).collect(),
        tokens: tokens.into_iter().map(String::into_bytes).collect(),
        token_types,
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        add_bos: Some(true),
        add_space_prefix: Some(add_space_prefix),
        ..VocabularySource::default()
    }
}

pub fn tokenizer(source: VocabularySource) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::new(Arc::new(Vocabulary::new(source).unwrap())))
}
