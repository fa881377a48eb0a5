//! Clients that go away: in the queue, while their prompt is computed, in the middle of an answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, assert_sums, charged, request};

fn long_prompt() -> Value {
    json!({ "prompt": "one two three ".repeat(1000), "max_tokens": 8, "temperature": 0 })
}

fn long_answer() -> Value {
    json!({ "prompt": "one two", "max_tokens": 4000, "temperature": 0, "stream": true, "logit_bias": { "504": 100 } })
}

/// Waits until `reached` holds of the model's state; what never happens fails the test.
#[track_caller]
fn wait_until(server: &Server, what: &str, reached: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let state = server.get("/health")["models"][0].clone();
        if reached(&state) {
            return;
        }
        assert!(Instant::now() < deadline, "never {what}: {state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn idle(state: &Value) -> bool {
    state["running"] == 0 && state["waiting"] == 0 && state["blocks_free"] == state["blocks_total"]
}

/// The newest account, once there is one more than `before`.
fn newest(server: &Server, before: usize) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let accounts = server.get("/v1/requests");
        let list =
            accounts["data"].as_array().or_else(|| accounts.as_array()).expect("a list of accounts").clone();
        if list.len() > before {
            let path =
                format!("/v1/requests/{}/lifecycle", list[0]["id"].as_str().expect("an account has an id"));
            return server.get(&path);
        }
        assert!(Instant::now() < deadline, "no account was closed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_leaves_during_prefill_stops_the_work_and_is_accounted_for() {
    let flags = ["--max-num-batched-tokens", "96", "--max-num-seqs", "8", "--no-prefix-caching"];
    let server = Server::start(&flags, &[]);
    let began = Instant::now();
    assert_eq!(server.post("/v1/completions", &long_prompt()).status, 200);
    let whole = began.elapsed();
    // Closed, and half-closed: no client in use sends half and waits.
    let leaves: [fn(TcpStream); 2] = [drop, |connection| {
        connection.shutdown(Shutdown::Write).unwrap();
        std::mem::forget(connection); // still open to read; ends with the test
    }];
    for (stream, leave) in [false, true].into_iter().flat_map(|stream| leaves.map(|leave| (stream, leave))) {
        let mut body = long_prompt();
        body["stream"] = json!(stream);
        let before = server.get("/v1/requests")["data"].as_array().map_or(0, Vec::len);
        let mut connection = server.connect();
        connection
            .write_all(request(&server.address, "POST", "/v1/completions", Some(&body)).as_bytes())
            .unwrap();
        wait_until(&server, "running", |state| state["running"] == 1);
        leave(connection);
        let left = Instant::now();
        wait_until(&server, "idle", idle);
        let went_on = left.elapsed();
        let account = newest(&server, before);
        assert_sums(&account);
        assert_eq!(account["outcome"], "cancelled_by_client", "{account}");
        assert_eq!(account["completion_tokens"], 0);
        assert!(charged(&account, "prefill") > 0, "{account}");
        // The prompt has more than thirty chunks; one may be under way, and the test's own look takes a moment.
        assert!(went_on < whole / 8, "the work went on for {went_on:?}; the whole prompt takes {whole:?}");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_answer_gives_its_place_back() {
    let server = Server::start(&[], &[]);
    let mut connection = server.connect();
    let body = long_answer();
    connection
        .write_all(request(&server.address, "POST", "/v1/completions", Some(&body)).as_bytes())
        .unwrap();
    let mut some = [0; 2000];
    connection.read_exact(&mut some).unwrap();
    connection.shutdown(Shutdown::Both).unwrap();
    drop(connection);
    wait_until(&server, "idle", idle);
    let account = newest(&server, 0);
    assert_sums(&account);
    assert_eq!(account["outcome"], "cancelled_by_client");
    let tokens = account["completion_tokens"].as_u64().unwrap();
    assert!((1..4000).contains(&tokens), "{tokens} tokens were made");
}

/// Seen elsewhere: queued requests of clients that were gone ran all the same.
#[test]
fn of_twenty_queued_requests_only_the_one_whose_client_stays_is_computed() {
    let server = Server::start(&["--max-num-seqs", "1", "--max-num-batched-tokens", "512"], &[]);
    let mut running = server.connect();
    running
        .write_all(request(&server.address, "POST", "/v1/completions", Some(&long_answer())).as_bytes())
        .unwrap();
    wait_until(&server, "running", |state| state["running"] == 1);
    let short = json!({ "prompt": "one two three", "max_tokens": 2, "temperature": 0 });
    let mut queued: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for connection in &mut queued {
        connection
            .write_all(request(&server.address, "POST", "/v1/completions", Some(&short)).as_bytes())
            .unwrap();
    }
    wait_until(&server, "twenty waiting", |state| state["waiting"] == 20);
    let mut survivor = queued.pop().unwrap();
    drop(queued);
    wait_until(&server, "one waiting", |state| state["waiting"] == 1);
    drop(running);
    let mut answer = String::new();
    survivor.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    wait_until(&server, "idle", idle);
    let accounts = server.get("/v1/requests");
    let outcomes: Vec<_> =
        accounts["data"].as_array().unwrap().iter().map(|entry| entry["outcome"].clone()).collect();
    let cancelled = outcomes.iter().filter(|outcome| **outcome == "cancelled_by_client").count();
    assert_eq!((outcomes.len(), cancelled), (21, 20), "{accounts}");
}

#[test]
fn a_request_that_can_never_fit_is_refused_at_once_and_delays_nobody() {
    // 8 MiB hold about 360 tokens of this model.
    let server = Server::start(&["--kv-memory", "8MiB"], &[]);
    let too_long = json!({ "prompt": "one two three ".repeat(400), "max_tokens": 4 });
    let refused = server.post("/v1/completions", &too_long);
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("context_length_exceeded")));
    let to_the_end = json!({ "prompt": "one two three", "max_tokens": 500, "temperature": 0, "logit_bias": { "504": 100 } });
    let answer = server.post("/v1/completions", &to_the_end).json();
    assert_eq!(
        answer["choices"][0]["finish_reason"], "length",
        "the answer ends where the memory does: {answer}"
    );
    wait_until(&server, "idle", idle);
}
