//! What requests share and what keeps them apart: the prefix cache, tenants, classes and deadlines, over HTTP.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use crate::support::{Answer, Server, request};

/// Sends `body` with further header lines.
fn post_with(server: &Server, headers: &str, body: &Value) -> Answer {
    let plain = request(&server.address, "POST", "/v1/completions", Some(body));
    let bytes = plain.replacen("\r\n\r\n", &format!("\r\n{headers}\r\n\r\n"), 1);
    let mut stream = server.connect();
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    Answer::parse(&answer)
}

fn cached(answer: &Answer) -> u64 {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("it is always told")
}

fn long_prompt() -> Value {
    json!({
        "prompt": "The quick brown fox jumps over the lazy dog. ".repeat(20), "max_tokens": 2, "temperature": 0,
    })
}

/// F58.
#[test]
fn one_tenant_never_finds_what_another_computed() {
    let server = Server::start(&["--api-key", "sk-one", "--api-key", "sk-two"], &[]);
    let ask = |key: &str, salt: Option<&str>| {
        let mut body = long_prompt();
        if let Some(salt) = salt {
            body["cache_salt"] = json!(salt);
        }
        cached(&post_with(&server, &format!("authorization: Bearer {key}"), &body))
    };
    assert_eq!(ask("sk-one", None), 0);
    assert!(ask("sk-one", None) > 150, "its own repeat is found, or this test shows nothing");
    assert_eq!(ask("sk-two", None), 0);
    assert!(ask("sk-two", None) > 150);
    // A salt narrows what is shared, within a tenant; it opens nothing.
    assert_eq!(ask("sk-one", Some("a")), 0);
    assert!(ask("sk-one", Some("a")) > 150);
    for guess in ["sk-one", "sk-one\u{0}", "\u{0}", "a"] {
        assert_eq!(ask("sk-two", Some(guess)), 0, "{guess:?}");
    }
}

#[test]
fn a_tenant_named_by_the_header_has_its_own_cache() {
    let server = Server::start(&["--tenant-header", "X-Tenant-Id", "--tenant-weight", "acme=3"], &[]);
    let ask = |tenant: &str| cached(&post_with(&server, &format!("x-tenant-id: {tenant}"), &long_prompt()));
    assert_eq!(ask("acme"), 0);
    assert!(ask("acme") > 150);
    assert_eq!(ask("other"), 0);
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_with_its_name() {
    let server = Server::start(&["--max-num-seqs", "1"], &[]);
    // The server learns what a step costs.
    assert_eq!(server.post("/v1/completions", &long_prompt()).status, 200);
    let long = json!({ "prompt": "Once", "max_tokens": 400, "ignore_eos": true });
    let mut hasty = long_prompt();
    hasty["ttft_deadline_ms"] = json!(20);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| server.post("/v1/completions", &long).status);
        while server.get("/health")["models"][0]["running"] != 1 {
            std::thread::yield_now();
        }
        let answer = server.post("/v1/completions", &hasty);
        assert_eq!(answer.status, 503, "{}", answer.body);
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "deadline_unreachable");
        assert!(error["message"].as_str().is_some_and(|message| message.contains("ttft_deadline_ms")));
        assert!(answer.header("retry-after").is_some());
        assert_eq!(server.account(&answer)["outcome"], "refused");
        assert_eq!(busy.join().unwrap(), 200);
    });
    hasty["ttft_deadline_ms"] = json!(60_000);
    hasty["priority"] = json!(-3);
    assert_eq!(server.post("/v1/completions", &hasty).status, 200);
}
