//! What others send at the same time changes neither an answer nor, by much, its speed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::{Server, charged};

/// Seen elsewhere: one user's megabytes stop everybody while they are tokenized.
#[test]
fn others_are_answered_while_a_megabyte_of_one_letter_is_tokenized() {
    let server = Server::start(&[], &[]);
    let short = json!({ "prompt": "one two", "max_tokens": 3 });
    let answered = |body: &Value| assert_eq!(server.post("/v1/completions", body).status, 200);
    answered(&short);
    for letter in ["A", "é", "'s", " ", "\n"] {
        let long = json!({ "prompt": letter.repeat(8_000_000 / letter.len()) });
        let over = AtomicBool::new(false);
        let meanwhile = thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(server.post("/tokenize", &long).status, 200);
                over.store(true, Ordering::Relaxed);
            });
            let mut meanwhile = 0;
            while !over.load(Ordering::Relaxed) {
                answered(&short);
                meanwhile += 1;
            }
            meanwhile
        });
        // A server that made them wait would answer one while the text is on its way, and a second one behind it.
        assert!(meanwhile >= 4, "{letter:?}: {meanwhile} were answered meanwhile");
    }
}

/// Seen elsewhere: a request's seed was lost when a neighbour had none, or none was kept over HTTP.
#[test]
fn a_seeded_answer_is_the_same_twenty_times_beside_up_to_31_others_and_after_a_restart() {
    let flags = ["--max-num-batched-tokens", "64", "--max-num-seqs", "40"];
    let seeded = |seed: u64| json!({ "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0.8, "seed": seed });
    let text = |server: &Server, body: &Value| {
        let answer = server.post("/v1/completions", body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let alone = {
        let server = Server::start(&[], &[]);
        assert_ne!(text(&server, &seeded(42)), text(&server, &seeded(43)));
        text(&server, &seeded(42))
    };
    let server = Server::start(&flags, &[]);
    for neighbours in [0, 1, 7, 31] {
        for repeat in 0..5 {
            let texts = thread::scope(|scope| {
                let others: Vec<_> = (0..neighbours)
                    .map(|index| {
                        let body = json!({
                            "prompt": "one two three ".repeat(1 + (index * 7 + repeat) % 6), "max_tokens": 6,
                            "temperature": 1.3, "top_p": 0.5 + 0.01 * index as f64, "top_k": index,
                        });
                        let server = &server;
                        scope.spawn(move || text(server, &body))
                    })
                    .collect();
                let found = text(&server, &seeded(42));
                others.into_iter().for_each(|other| drop(other.join().unwrap()));
                found
            });
            assert_eq!(texts, alone, "beside {neighbours} others, round {repeat}");
        }
    }
    let mut streamed = seeded(42);
    streamed["stream"] = json!(true);
    let events = server.post("/v1/completions", &streamed).events();
    let pieces = events.iter().filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), alone);
    let mut two = seeded(42);
    two["n"] = json!(2);
    assert_eq!(text(&server, &two), alone);
}

/// Seen elsewhere: each token is compared with each stop string.
#[test]
fn a_thousand_stop_strings_take_less_than_a_tenth_of_an_answers_time() {
    let server = Server::start(&[], &[]);
    let stop: Vec<String> = (0..1000).map(|index| format!("the {index} never said")).collect();
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 64, "temperature": 0, "ignore_eos": true, "stop": stop });
    let answer = server.post("/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let account = server.account(&answer);
    let after_the_first: u64 = account["e2e_ns"].as_u64().unwrap() - account["ttft_ns"].as_u64().unwrap();
    let detokenize = charged(&account, "detokenize");
    assert!(detokenize < after_the_first / 10, "{detokenize} of {after_the_first} ns");
}
