use fancy_regex::Regex;
use proptest::prelude::*;

use super::*;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

fn cl100k(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

fn expressions(name: &str) -> Vec<String> {
    match name {
        "gpt-2" => vec![GPT2.into()],
        "smollm" => vec![r"\p{N}".into(), GPT2.into()],
        "qwen2" => vec![cl100k(r"\p{N}")],
        "llama-bpe" => vec![cl100k(r"\p{N}{1,3}")],
        "default" => {
            vec![r"[\p{P}\$\+<=>\^~\|]+".into(), GPT2.into(), r"\p{N}+".into(), "[0-9][0-9][0-9]".into()]
        }
        _ => unreachable!("no such row"),
    }
}

/// Matches and the gaps between them, as a chain of isolating splits gives them.
fn by_expressions<'a>(expressions: &[Regex], text: &'a str) -> Vec<&'a str> {
    let mut pieces = vec![text];
    for expression in expressions {
        let mut next = Vec::new();
        for piece in pieces {
            let mut at = 0;
            for found in expression.find_iter(piece) {
                let found = found.unwrap();
                if found.start() > at {
                    next.push(&piece[at..found.start()]);
                }
                next.push(found.as_str());
                at = found.end();
            }
            if at < piece.len() {
                next.push(&piece[at..]);
            }
        }
        pieces = next;
    }
    pieces
}

fn check(name: &str, text: &str) {
    let compiled: Vec<Regex> =
        expressions(name).iter().map(|expression| Regex::new(expression).unwrap()).collect();
    let mut words = Vec::new();
    PreTokenizer::named(name).unwrap().split(text, &mut |word| words.push(word));
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    assert_eq!(words, by_expressions(&compiled, text), "{name} on {text:?}");
}

const ROWS: [&str; 5] = ["gpt-2", "smollm", "qwen2", "llama-bpe", "default"];

#[test]
fn words_equal_the_models_expressions_on_chosen_texts() {
    let texts = [
        "",
        " ",
        "  ",
        "   x",
        "\n\n  \n x",
        "a\r\n\r\n b",
        "I'll you'Ve 'S 'ſ 're 'l 'LL'D's",
        "12345 6 78,9 ½ ٣٤٥",
        "x\u{a0}y\u{2028}z\u{85}w",
        "don't  stop…  “now” \t\ttab",
        "é e\u{301} नमस्ते 你好，世界 👩‍👩‍👧‍👦",
        "!!!\n\n\n???\r\r",
        "tab\tword \u{3000}ideographic",
        "'",
        "''s",
        " 's",
        "a'",
        "1'st",
        "100000000000000",
        " \n",
        "x \n y",
        "= 3.14e-10;",
    ];
    for (row, text) in ROWS.iter().flat_map(|row| texts.map(|text| (row, text))) {
        check(row, text);
    }
}

#[test]
fn unknown_names_have_no_pre_tokenizer() {
    assert!(PreTokenizer::named("qwen9000").is_none());
    assert!(PreTokenizer::named("").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn words_equal_the_models_expressions_on_random_texts(
        text in prop_oneof![
            // Dense in what the expressions tell apart.
            "[a-z'sStTlL ſ0-9\\r\\n\\t .!$<|\u{a0}\u{85}\u{2028}é\u{301}½你🙂]{0,40}",
            "\\PC{0,30}",
            any::<String>(),
        ],
    ) {
        for row in ROWS {
            check(row, &text);
        }
    }
}
