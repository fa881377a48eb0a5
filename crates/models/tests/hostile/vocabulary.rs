//! Tokenizer data of wrong types or of impossible size. What contradicts itself is the tokenizer's to refuse.

use models::testing::{Datum, FileBuilder, tiny_model};
use models::{Gguf, Vocabulary};

use crate::{TemporaryFile, accept, check};

fn tiny() -> FileBuilder {
    tiny_model("llama")
}

#[test]
fn keys_of_a_wrong_type_are_refused() {
    for name in ["bos", "eos", "eot", "eom", "unknown", "padding"] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        check(tiny().set(&key, "2").build().bytes(), &[&key, "must be an integer"]);
        check(tiny().set(&key, Datum::U64(u64::MAX)).build().bytes(), &[&key, "18446744073709551615"]);
    }
    for (key, wanted) in [
        ("tokenizer.ggml.model", "must be a string"),
        ("tokenizer.ggml.pre", "must be a string"),
        ("tokenizer.chat_template", "must be a string"),
        ("tokenizer.ggml.add_bos_token", "must be a bool"),
        ("tokenizer.ggml.tokens", "must be an array"),
        ("tokenizer.ggml.merges", "must be an array of strings"),
        ("tokenizer.ggml.scores", "must be an array of f32"),
        ("tokenizer.ggml.token_type", "must be an array of 32-bit integers"),
    ] {
        check(tiny().set(key, Datum::U32(1)).build().bytes(), &[key, wanted]);
    }
    let numbers = Datum::Integers(vec![1; 80]);
    check(
        tiny().set("tokenizer.ggml.tokens", numbers).build().bytes(),
        &["tokens", "must be an array of strings"],
    );
    let template = Datum::Bytes(vec![0xff, 0xfe]);
    check(
        tiny().set("tokenizer.chat_template", template).build().bytes(),
        &["chat_template", "not valid UTF-8"],
    );
}

#[test]
fn missing_keys_are_named() {
    for key in ["tokenizer.ggml.model", "tokenizer.ggml.tokens"] {
        check(tiny().remove(key).build().bytes(), &[key, "is missing"]);
    }
}

#[test]
fn what_the_file_says_is_handed_on_as_it_is() {
    let image = tiny()
        .set("tokenizer.ggml.tokens", Datum::Strings(vec![vec![0xff], b"a".to_vec(), vec![]]))
        .set("tokenizer.ggml.token_type", Datum::Integers(vec![-1, 99]))
        .set("tokenizer.ggml.eos_token_id", Datum::U32(u32::MAX))
        .set("tokenizer.ggml.bos_token_id", Datum::I32(-1))
        .remove("tokenizer.ggml.unknown_token_id")
        .remove("tokenizer.ggml.scores")
        .build();
    let file = TemporaryFile::of(image.bytes());
    let gguf = Gguf::open(&file.0).expect("the file is valid");
    let vocabulary = Vocabulary::read(gguf.metadata()).expect("every key has its type");
    assert_eq!(vocabulary.tokens, [&[0xff][..], b"a", b""]);
    assert_eq!(vocabulary.token_types, [-1, 99]);
    assert_eq!(vocabulary.scores, []);
    assert_eq!(vocabulary.merges, [&b"a b"[..], b"ab c"]);
    assert_eq!((vocabulary.special.eos, vocabulary.special.bos), (Some(i64::from(u32::MAX)), Some(-1)));
    assert_eq!((vocabulary.special.unknown, vocabulary.special.eot), (None, None));
}

#[test]
fn ten_million_merges_are_read() {
    let merges = Datum::Strings(vec![b"a b".to_vec(); 10_000_000]);
    accept(&tiny().set("tokenizer.ggml.merges", merges).build());
}

#[test]
fn more_tokens_than_embedding_rows_are_refused_and_fewer_accepted() {
    let tokens = |count: usize| Datum::Strings((0..count).map(|id| id.to_string().into_bytes()).collect());
    let with = |count: usize| tiny().set("tokenizer.ggml.tokens", tokens(count)).build();
    check(with(81).bytes(), &["tokenizer.ggml.tokens", "81 tokens", "80 rows"]);
    accept(&with(79));
}
