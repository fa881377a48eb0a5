//! Whole and streamed answers, and their accounts.

use serde_json::{Value, json};

use crate::support::{Server, assert_sums};

fn chat(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "Name three colours of the rainbow." }],
        "max_tokens": 12, "temperature": 0,
    });
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    body
}

fn streamed_text(events: &[Value], choice: u64) -> String {
    let of_choice = events.iter().flat_map(|event| event["choices"].as_array().into_iter().flatten());
    let of_choice = of_choice.filter(|entry| entry["index"] == choice);
    of_choice.filter_map(|entry| entry["delta"]["content"].as_str()).collect()
}

#[test]
fn every_answers_account_sums_to_its_time_streamed_or_not() {
    let server = Server::start(&[], &[]);
    for more in [json!({}), json!({ "n": 3, "temperature": 1.0, "seed": 5 }), json!({ "stop": ["the"] })] {
        let whole = server.post("/v1/chat/completions", &chat(&more));
        let mut streaming = more.clone();
        streaming["stream"] = json!(true);
        let streamed = server.post("/v1/chat/completions", &chat(&streaming));
        let events = streamed.events();
        for (index, choice) in whole.json()["choices"].as_array().unwrap().iter().enumerate() {
            assert_eq!(choice["message"]["content"], streamed_text(&events, index as u64), "{more}");
        }
        for answer in [whole, streamed] {
            let account = server.account(&answer);
            assert_sums(&account);
            assert_eq!(account["outcome"], "finished");
            assert!(account["ttft_ns"].as_u64().unwrap() <= account["e2e_ns"].as_u64().unwrap());
            let timing = answer.header("server-timing").unwrap();
            assert!(timing.contains("tokenize;dur="), "{timing}");
            // A whole answer's head goes out when its tokens have been made.
            let whole = answer.header("content-length").is_some();
            assert_eq!(timing.contains("prefill;dur="), whole, "{timing}");
        }
    }
}

#[test]
fn a_refusal_has_an_account_too() {
    let server = Server::start(&[], &[]);
    let refused = server.post("/v1/chat/completions", &chat(&json!({ "temperature": -1 })));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("temperature")));
    let account = server.account(&refused);
    assert_sums(&account);
    assert_eq!((&account["outcome"], &account["status"]), (&json!("refused"), &json!(400)));
}

#[test]
fn the_account_in_the_answer_is_the_one_that_is_kept_but_for_its_last_bytes() {
    let server = Server::start(&[], &[]);
    let answer =
        server.post("/v1/chat/completions", &chat(&json!({ "stream": true, "include_lifecycle": true })));
    let events = answer.events();
    let carried = events.iter().find(|event| event["lifecycle"].is_object()).expect("one event carries it");
    let (open, closed) = (&carried["lifecycle"], server.account(&answer));
    assert_sums(open);
    assert_eq!(open["open"], true);
    assert_eq!(open["id"], closed["id"]);
    assert_eq!(open["ttft_ns"], closed["ttft_ns"]);
    assert!(open["e2e_ns"].as_u64() <= closed["e2e_ns"].as_u64());
}

/// Eight different conversations at once answer as each does alone, and so does a seeded one among them.
#[test]
fn answers_do_not_depend_on_what_else_runs() {
    let server = Server::start(&["--max-num-batched-tokens", "96", "--max-num-seqs", "16"], &[]);
    let bodies: Vec<Value> = (0..8)
        .map(|index| {
            let content =
                format!("Count from {index} and tell me about {}.", "numbers ".repeat(index * 5 + 1));
            chat(&json!({
                "messages": [{ "role": "user", "content": content }],
                "temperature": if index == 3 { 0.8 } else { 0.0 },
                "seed": 42, "max_tokens": 16, "top_p": 0.9,
            }))
        })
        .collect();
    let text = |body: &Value| {
        let answer = server.post("/v1/chat/completions", body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0]["message"]["content"].clone()
    };
    let alone: Vec<Value> = bodies.iter().map(text).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = bodies.iter().map(|body| scope.spawn(move || text(body))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}
