//! A chat server without a model, for comparing tools: `cargo run --release -p load --example mock_server`. It prints its URL and
//! serves until its input closes.
//!
//! The last number in a question decides the answer's time to the first token, the gap between tokens, and the number of
//! tokens, so that any tool that asks the same questions is given the same delays.

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/run/mock.rs"]
mod mock;

use mock::{Mock, Step, at, done, finish, role, token, usage};
use serde_json::Value;

fn main() {
    let mock = Mock::start(|_, body| {
        let number = last_number(&body["messages"]).unwrap_or(0);
        let (first_ms, gap_ms, tokens) = (100 + 20 * (number % 13), 20 + 10 * (number % 4), 10 + number % 23);
        let tokens_at = (0..tokens).flat_map(|index| [at(first_ms + gap_ms * index), token("word ")]);
        let end: [Step; 3] = [finish("length"), usage(7, tokens as u32), done()];
        [at(first_ms), role()].into_iter().chain(tokens_at).chain(end).collect()
    });
    println!("{}", mock.url);
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The last run of digits in a message, whether its content is a text or a list of parts.
fn last_number(messages: &Value) -> Option<u64> {
    let content = &messages.as_array()?.last()?["content"];
    let text = content.as_str().or_else(|| content.as_array()?.last()?["text"].as_str())?;
    text.rsplit(|letter: char| !letter.is_ascii_digit()).find(|run| !run.is_empty())?.parse().ok()
}
