//! Inputs made to be too much: each is refused, and the server's memory does not grow with them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, request};

/// What a server may come to hold above what it held after a few ordinary requests: some bodies of the 16 MiB allowed,
/// read, parsed and rendered.
const GROWTH_KIB: u64 = 192 << 10;

/// Runs `hostile` and asserts that memory stayed bounded and the server still answers.
#[track_caller]
fn check_memory(server: &Server, what: &str, hostile: impl FnOnce()) {
    let before = server.memory_peak_kib();
    hostile();
    let grown = server.memory_peak_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{what}: the server grew by {grown} KiB");
    let answer = server.post("/v1/completions", &json!({ "prompt": "one two", "max_tokens": 3 }));
    assert_eq!(answer.status, 200, "{what}: {}", answer.body);
}

fn warm() -> Server {
    // So little for the KV cache that filling it is no growth to speak of.
    let server = Server::start(&["--max-num-seqs", "64", "--kv-memory", "128MiB"], &[]);
    for _ in 0..3 {
        server.post("/v1/completions", &json!({ "prompt": "one two ".repeat(500), "max_tokens": 3 }));
    }
    server
}

/// Sends `bytes` until the server has had enough, and gives the status it answers with, if any.
fn status_after(server: &Server, chunks: impl Iterator<Item = Vec<u8>>) -> Option<u16> {
    let mut stream = server.connect();
    // A server that closes early makes this fail: it has said what it had to say.
    for chunk in chunks {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    status_of(&mut stream)
}

fn status_of(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 64];
    let length = stream.read(&mut head).ok()?;
    std::str::from_utf8(&head[..length]).ok()?.split(' ').nth(1)?.parse().ok()
}

#[test]
fn heads_and_bodies_without_end_are_refused_and_not_kept() {
    let server = warm();
    let post = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    // `count` lines, a few thousand to a write.
    let lines = |line: &str, count: usize| std::iter::repeat_n(line.repeat(4096).into_bytes(), count / 4096);
    let after = |head: String, rest: Box<dyn Iterator<Item = Vec<u8>>>| {
        std::iter::once(head.into_bytes()).chain(rest)
    };
    check_memory(&server, "a header of 64 MB", || {
        let status = status_after(&server, after(format!("{post}x-a: "), Box::new(lines("a", 64 << 20))));
        assert!(matches!(status, None | Some(431)), "{status:?}");
    });
    check_memory(&server, "a million headers", || {
        let status = status_after(&server, after(post.into(), Box::new(lines("x-a: b\r\n", 1_000_000))));
        assert!(matches!(status, None | Some(431)), "{status:?}");
    });
    check_memory(&server, "a URL of 64 MB", || {
        let status = status_after(&server, after("GET /".into(), Box::new(lines("a", 64 << 20))));
        assert!(matches!(status, None | Some(414)), "{status:?}");
    });
    check_memory(&server, "a body of 1 GiB, announced", || {
        let head = format!("{post}content-length: 1073741824\r\n\r\n");
        assert_eq!(status_after(&server, after(head, Box::new(std::iter::empty()))), Some(413));
    });
    check_memory(&server, "a body without end, in chunks", || {
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).into_bytes();
        let head = format!("{post}transfer-encoding: chunked\r\n\r\n");
        let status = status_after(&server, after(head, Box::new(std::iter::repeat_n(chunk, 16 << 10))));
        assert!(matches!(status, None | Some(413)), "{status:?}");
    });
}

#[test]
fn numbers_that_multiply_are_refused_before_anything_is_kept_for_them() {
    let server = warm();
    let prompts: Vec<Value> = (0..2048).map(|_| json!("x")).collect();
    let messages: Vec<Value> = (0..100_000).map(|_| json!({ "role": "user", "content": "x" })).collect();
    let tools: Vec<Value> = (0..5000)
        .map(|index| json!({ "type": "function", "function": { "name": format!("f{index}") } }))
        .collect();
    let say = json!([{ "role": "user", "content": "x" }]);
    let cases = [
        ("/v1/completions", "n", json!({ "prompt": "x", "n": 1_000_000 })),
        ("/v1/completions", "logprobs", json!({ "prompt": "x", "logprobs": 1_000_000 })),
        ("/v1/completions", "logprobs", json!({ "prompt": "x", "logprobs": -1 })),
        ("/v1/completions", "prompt", json!({ "prompt": prompts })),
        (
            "/v1/chat/completions",
            "n",
            json!({ "messages": say, "n": 128, "logprobs": true, "top_logprobs": 20 }),
        ),
        (
            "/v1/chat/completions",
            "top_logprobs",
            json!({ "messages": say, "logprobs": true, "top_logprobs": 21 }),
        ),
        ("/v1/chat/completions", "messages", json!({ "messages": messages })),
        ("/v1/chat/completions", "tools", json!({ "messages": say, "tools": tools })),
    ];
    for (path, param, body) in cases {
        check_memory(&server, param, || {
            for _ in 0..2 {
                let refused = server.post(path, &body);
                assert_eq!(
                    (refused.status, &refused.json()["error"]["param"]),
                    (400, &json!(param)),
                    "{path}"
                );
            }
        });
    }
}

/// Seen elsewhere: 200 with an empty stream, and a prompt that was cut without a word.
#[test]
fn a_prompt_of_800_000_tokens_is_refused_with_both_numbers() {
    let server = warm();
    let prompt = "one two ".repeat(400_000);
    for (path, body) in [
        ("/v1/completions", json!({ "prompt": prompt, "stream": true })),
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": prompt }], "stream": true }),
        ),
    ] {
        let refused = server.post(path, &body);
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["code"]), (400, &json!("context_length_exceeded")), "{error}");
        let message = error["message"].as_str().unwrap();
        let numbers: Vec<u64> = message
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        assert!(numbers[0] >= 800_000 && numbers[1] < 10_000, "{message}");
        assert_eq!(server.account(&refused)["prompt"]["tokens"].as_u64(), Some(numbers[0]), "{message}");
    }
}

/// Seen elsewhere: a stream that nobody reads grows without bound in the server.
#[test]
fn fifty_clients_that_do_not_read_cost_bounded_memory_and_hold_up_nobody() {
    let server = warm();
    let body = json!({
        "prompt": "one two", "max_tokens": 40, "temperature": 0, "stream": true, "ignore_eos": true, "logprobs": 5,
    });
    let mut slow = Vec::new();
    check_memory(&server, "fifty streams that nobody reads", || {
        for _ in 0..50 {
            let mut stream = server.connect();
            let bytes = request(&server.address, "POST", "/v1/completions", Some(&body));
            stream.write_all(bytes.as_bytes()).unwrap();
            slow.push(stream);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.get("/health")["models"][0]["running"].as_u64() < Some(50) {
            assert!(Instant::now() < deadline, "not all of them run");
            std::thread::sleep(Duration::from_millis(10));
        }
        for _ in 0..4 {
            let answer = server.post("/v1/completions", &json!({ "prompt": "one two", "max_tokens": 16 }));
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    });
}
