//! Token ids against those of Hugging Face `tokenizers` (see tools/golden/README.md).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use protocol::TokenId;
use serde_json::Value;
use text::{Detokenizer, ShowSpecial, Special, Tokenizer};

static TOKENIZERS: LazyLock<[(&str, Tokenizer); 3]> =
    LazyLock::new(|| ["smollm2", "gemma3", "qwen2"].map(|family| (family, model::read(family).tokenizer())));

fn tokenizer(family: &Value) -> &'static Tokenizer {
    let found = TOKENIZERS.iter().find(|(name, _)| family == name);
    &found.expect("a known family").1
}

fn lines(name: &str) -> impl Iterator<Item = Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/tokenizer").join(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let reader: Box<dyn Read> =
        if name.ends_with(".gz") { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    BufReader::new(reader).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// Compares one line, and says what differs.
fn differs(tokenizer: &Tokenizer, family: &str, line: &Value) -> Option<String> {
    let text = line["text"].as_str().unwrap();
    let expected = &line[family];
    let plain = ids(&expected["plain"]);
    let special = if expected["special"].is_null() { plain.clone() } else { ids(&expected["special"]) };
    let got_plain = tokenizer.encode(text, Special::Plain);
    let got_special = tokenizer.encode(text, Special::Parse);
    let decoded = expected["decoded"].as_str().unwrap_or(text);
    let got_decoded = tokenizer.decode(&plain, ShowSpecial::Yes);
    let shown: String = text.chars().take(80).collect();
    if got_plain != plain {
        Some(format!("{family} plain {shown:?}: {got_plain:?}, not {plain:?}"))
    } else if got_special != special {
        Some(format!("{family} special {shown:?}: {got_special:?}, not {special:?}"))
    } else if got_decoded != decoded {
        Some(format!("{family} decoded {shown:?}: {got_decoded:?}"))
    } else {
        None
    }
}

fn check(file: &str) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in lines(file) {
        for (family, tokenizer) in &*TOKENIZERS {
            count += 1;
            wrong.extend(differs(tokenizer, family, &line));
        }
    }
    wrong.iter().take(20).for_each(|line| eprintln!("{}", line.chars().take(600).collect::<String>()));
    assert!(wrong.is_empty(), "{} of {count} differ", wrong.len());
    assert!(count > 3_000, "only {count} lines");
}

#[test]
fn ids_of_handwritten_texts_equal_the_reference() {
    check("handwritten.jsonl");
}

#[test]
fn ids_of_random_texts_equal_the_reference() {
    check("generated.jsonl.gz");
}

#[test]
fn any_ids_decode_to_the_references_bytes_at_once_and_one_by_one() {
    for line in lines("decoding.jsonl") {
        let tokenizer = tokenizer(&line["family"]);
        let tokens = ids(&line["ids"]);
        let hex = line["bytes"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let joined: Vec<u8> =
            tokens.iter().flat_map(|token| tokenizer.vocabulary().token_bytes(*token)).copied().collect();
        assert_eq!(joined, bytes, "{line}");
        let whole = String::from_utf8_lossy(&bytes);
        assert_eq!(tokenizer.decode(&tokens, ShowSpecial::Yes), whole, "{line}");
        let mut detokenizer = Detokenizer::new(tokenizer.vocabulary().clone(), ShowSpecial::Yes);
        let mut text = String::new();
        for token in &tokens {
            let mut piece = String::new();
            detokenizer.push(*token, &mut piece);
            text.push_str(&piece);
        }
        detokenizer.finish(&mut text);
        assert_eq!(text, whole, "{line}");
    }
}

#[test]
fn raw_prompts_begin_with_exactly_one_bos_where_the_file_wants_one() {
    for line in lines("bos.jsonl") {
        let tokenizer = tokenizer(&line["family"]);
        let prompt = tokenizer.encode_raw(line["text"].as_str().unwrap());
        assert_eq!(prompt.tokens, ids(&line["ids"]), "{line}");
        let counted: usize = prompt.account.by_origin.iter().map(|entry| entry.tokens).sum();
        assert_eq!(counted, prompt.tokens.len(), "{line}");
    }
}
