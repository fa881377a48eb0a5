//! SIGTERM: what runs is finished, what comes is sent away, and the exit is orderly.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Server, request};

#[test]
fn the_first_signal_finishes_running_streams_and_exits_with_zero() {
    let server = Server::start(&[], &[]);
    let body = json!({ "prompt": "one two", "max_tokens": 200, "temperature": 0, "stream": true, "logit_bias": { "504": 100 } });
    let mut connection = server.connect();
    connection
        .write_all(request(&server.address, "POST", "/v1/completions", Some(&body)).as_bytes())
        .unwrap();
    let mut begun = vec![0; 600];
    connection.read_exact(&mut begun).unwrap();
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(50));
    let newcomer = server.post("/v1/completions", &json!({ "prompt": "one", "max_tokens": 1 }));
    assert_eq!(newcomer.status, 503, "{}", newcomer.body);
    assert!(newcomer.header("retry-after").is_some());
    assert_eq!(server.send("GET", "/health", None).status, 503);
    connection.read_to_end(&mut begun).unwrap();
    let answer = Answer::parse(&begun);
    let finish = answer
        .events()
        .iter()
        .rev()
        .find_map(|event| event["choices"][0]["finish_reason"].as_str().map(str::to_owned));
    assert_eq!(finish.as_deref(), Some("length"), "the stream ended properly: {}", answer.body);
    assert_eq!(server.wait(), 0);
}

#[test]
fn at_the_drains_limit_a_stream_ends_with_an_error_in_band() {
    let server = Server::start(&["--drain-timeout", "1"], &[]);
    let body = json!({ "prompt": "one two", "max_tokens": 8000, "temperature": 0, "stream": true, "logit_bias": { "504": 100 } });
    let mut connection = server.connect();
    connection
        .write_all(request(&server.address, "POST", "/v1/completions", Some(&body)).as_bytes())
        .unwrap();
    let mut bytes = vec![0; 600];
    connection.read_exact(&mut bytes).unwrap();
    server.signal("TERM");
    connection.read_to_end(&mut bytes).unwrap();
    let events = Answer::parse(&bytes).events();
    assert!(events.last().unwrap()["error"]["message"].is_string(), "{:?}", events.last());
    assert_eq!(server.wait(), 0);
}
