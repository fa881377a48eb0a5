//! Renderings against those of transformers (see tools/golden/README.md).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;
mod others;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use text::{ChatTemplate, Conversation, Rendered, Tokenizer};

/// When the goldens were made: 2026-11-30 12:34:56.
const NOW_UNIX_S: i64 = 1_796_042_096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/templates")
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn conversation(given: &Value) -> Conversation {
    let flag = |name: &str| given.get(name).and_then(Value::as_bool).unwrap_or(false);
    Conversation {
        messages: given["messages"].as_array().unwrap().clone(),
        tools: given.get("tools").and_then(Value::as_array).cloned(),
        add_generation_prompt: flag("add_generation_prompt"),
        continue_final_message: flag("continue_final_message"),
        kwargs: given.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default(),
        now_unix_s: NOW_UNIX_S,
    }
}

fn template(source: &str, tokens: &Value, tokenizer: &Arc<Tokenizer>) -> ChatTemplate {
    let empty = Map::new();
    let tokens = tokens.as_object().unwrap_or(&empty);
    let tokens =
        tokens.iter().map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned())).collect();
    ChatTemplate::with_special_tokens(source, tokenizer.clone(), tokens).unwrap()
}

fn assert_consistent(rendered: &Rendered) {
    let mut at = 0;
    for span in &rendered.spans {
        assert_eq!(span.range.start, at, "spans tile the text");
        at = span.range.end;
    }
    assert_eq!(at, rendered.text.len(), "spans tile the text");
}

/// What differs between a rendering and its golden.
fn differs(template: &ChatTemplate, given: &Value, golden: &Value) -> Option<String> {
    let rendered = template.render(&conversation(given));
    match (rendered, &golden["expected"], &golden["raised"]) {
        (Ok(rendered), Value::String(expected), _) => {
            assert_consistent(&rendered);
            (rendered.text != *expected).then(|| format!("{:?}\n  not {expected:?}", rendered.text))
        }
        (Err(refusal), Value::Null, Value::String(sentence)) => {
            let quoted: String = sentence.chars().take(80).collect();
            assert!(refusal.message.len() < 500, "{refusal}");
            (!refusal.message.contains(&quoted)).then(|| format!("{refusal}, not {sentence:?}"))
        }
        (Err(_), Value::Null, Value::Null) => None,
        (Ok(rendered), ..) => Some(format!("{:?}, but it fails: {golden}", rendered.text)),
        (Err(refusal), ..) => Some(format!("{refusal}, but not {golden}")),
    }
}

/// Where Python stumbles over a template and we render it: what is missing (tools, documents) counts as an empty list.
/// Every conversation of these templates that is an `error` to Python is a text here.
const LENIENT: [(&str, &str); 6] = [
    ("public/CohereForAI-c4ai-command-r-plus-tool_use", "a loop over tools that are none"),
    ("public/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "a loop over tools that are none"),
    ("public/NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "a loop over tools that are none"),
    ("public/CohereForAI-c4ai-command-r7b-12-2024-tool_use", "a loop over tools that are none"),
    ("public/Cohere2MoE", "a loop over tools that are none"),
    ("public/llama-cpp-deepseek-r1", "what `map` makes is not a list to Python's JSON"),
];

/// Where we differ knowingly whenever there are tools: the template adds text to what it has marked as `safe`, at which
/// Python escapes the text for HTML, so that the model would read `&#34;` for a quote.
const NOT_ESCAPED: &str = "public/meetkai-functionary-medium-v3.1";

/// Where we differ knowingly: template, conversation, why. A line that no longer differs fails the test.
const KNOWN: [(&str, &str, &str); 4] = [
    (
        "own/strings.jinja",
        "continue the last message",
        "the template takes the content to pieces, and the mark behind it that each renderer has its own of",
    ),
    (
        "own/strings.jinja",
        "control tokens in content",
        "refused: typed control tokens are turned around, cut and re-cased until nothing tells them from the template's",
    ),
    (
        "own/loops.jinja",
        "only a system message",
        "in Python the `else` of a loop runs if every round was left by `continue`",
    ),
    (
        "own/dicts.jinja",
        "continue the last message",
        "transformers refuses, since the word `content` is not in the template; the message is printed all the same",
    ),
];

#[test]
fn our_own_templates_render_every_conversation_as_transformers_does() {
    let conversations = json(&folder().join("conversations.json"));
    let tokenizer = Arc::new(model::read("qwen2").tokenizer());
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(folder().join("renders")).unwrap() {
        let path = entry.unwrap().path();
        let golden = json(&path);
        let Some(name) = golden["template"].as_str() else { continue };
        let source = fs::read_to_string(folder().join(name)).unwrap();
        let template = template(&source, &golden["special_tokens"], &tokenizer);
        for (title, golden) in golden["renders"].as_object().unwrap() {
            count += 1;
            let difference = differs(&template, &conversations[title], golden);
            let known =
                KNOWN.iter().any(|(template, conversation, _)| (*template, *conversation) == (name, title));
            match difference {
                Some(difference) if !known => wrong.push(format!("{name}, {title}: {difference}")),
                None if known => wrong.push(format!("{name}, {title}: is listed, but does not differ")),
                _ => {}
            }
        }
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    assert!(wrong.is_empty(), "{} of {count} differ", wrong.len());
    assert!(count >= 400, "only {count} renderings");
}

/// The start of a text's SHA-256, as the goldens have it.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// What a rendering is in the goldens of others' templates, and its text.
fn outcome(template: &ChatTemplate, given: &Value) -> (String, String) {
    match template.render(&conversation(given)) {
        Ok(rendered) => {
            assert_consistent(&rendered);
            (digest(&rendered.text), rendered.text)
        }
        Err(refusal) => {
            assert!(refusal.message.len() < 500, "{refusal}");
            let kind = if refusal.message.starts_with("is rejected by") { "raised" } else { "error" };
            (kind.to_owned(), refusal.message)
        }
    }
}

/// Keeps a text to be compared with what `cargo xtask golden show` prints.
fn keep(name: &str, title: &str, text: &str) -> PathBuf {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}, {title}.txt", name.replace('/', " ")));
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_templates_of_public_models_render_every_conversation_as_transformers_does() {
    let conversations = json(&folder().join("conversations.json"));
    let goldens = json(&folder().join("hashes.json"));
    let tokenizer = Arc::new(model::read("qwen2").tokenizer());
    let (mut count, mut wrong, mut rendered_all_the_same) = (0, Vec::new(), BTreeSet::new());
    for others::Template { name, source } in others::templates() {
        let golden = &goldens[&name];
        assert_eq!(
            golden["template"],
            digest(&source),
            "{name} is not the template that the goldens were made with"
        );
        let template = template(&source, &golden["special_tokens"], &tokenizer);
        let expected = golden["renders"].as_array().unwrap();
        for ((title, given), expected) in conversations.as_object().unwrap().iter().zip(expected) {
            count += 1;
            let expected = expected.as_str().unwrap();
            let (found, text) = outcome(&template, given);
            let has_tools = given["tools"].as_array().is_some_and(|tools| !tools.is_empty());
            let lenient = expected == "error" && LENIENT.iter().any(|(template, _)| *template == name);
            let known = lenient || (name == NOT_ESCAPED && has_tools);
            if lenient && found != expected {
                rendered_all_the_same.insert(name.clone());
            }
            match found == expected {
                false if !known => {
                    let path = keep(&name, title, &text);
                    wrong.push(format!("{name}, {title}: {found}, not {expected}: {}", path.display()));
                }
                true if known && !lenient => {
                    wrong.push(format!("{name}, {title}: is listed, but does not differ"))
                }
                _ => {}
            }
        }
    }
    assert_eq!(
        rendered_all_the_same.len(),
        LENIENT.len(),
        "only {rendered_all_the_same:?} need to be listed"
    );
    wrong.iter().for_each(|line| eprintln!("{line}"));
    assert!(
        wrong.is_empty(),
        "{} of {count} differ; `cargo xtask golden show TEMPLATE TITLE` prints what is expected",
        wrong.len()
    );
}

#[test]
fn a_template_reaches_nothing_outside_of_its_variables() {
    let golden = json(&folder().join("renders/sandbox.json"));
    let tokenizer = Arc::new(model::read("qwen2").tokenizer());
    let given = Value::Object(Map::from_iter([("messages".to_owned(), golden["messages"].clone())]));
    let mut wrong = Vec::new();
    // Python prints nothing for an attribute of a format field; here it is an error. And it refuses to set what could
    // be an attribute of the object itself; here a namespace has no attributes but its own.
    let stricter_or_harmless = [
        "{{ '{0.__class__}'.format('x') }}",
        "{% set ns = namespace(a=1) %}{% set ns.__class__ = 2 %}{{ ns.a }}",
    ];
    for (source, golden) in golden["renders"].as_object().unwrap() {
        let compiled = ChatTemplate::with_special_tokens(source, tokenizer.clone(), Vec::new());
        let difference = match compiled {
            Ok(template) => differs(&template, &given, golden),
            Err(error) => golden["error"].is_null().then(|| error.to_string()),
        };
        let known = stricter_or_harmless.contains(&source.as_str());
        assert!(difference.is_some() || !known, "{source} is listed, but does not differ");
        wrong.extend(difference.filter(|_| !known).map(|difference| format!("{source}: {difference}")));
    }
    wrong.iter().for_each(|line| eprintln!("{line}"));
    assert!(wrong.is_empty(), "{} differ", wrong.len());
}
