//! The whole edge over a scripted backend: what clients send, and what they get.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::App;
use api::drain::Phase;
use api::routes::ROUTES;
use api::server::Config;
use protocol::{Refusal, RefusalKind, TokenId};
use serde_json::{Value, json};
use support::backend::{Act, CONTEXT, Scripted, app, saying};
use support::http::{RawClient, RawResponse};
use support::server::TestServer;
use support::sse;
use tokio::time::{sleep, timeout};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

async fn serve(app: App) -> TestServer {
    let drain = app.drain.clone();
    let config = Config { linger: Duration::from_millis(200), ..Config::default() };
    TestServer::start_with(Arc::new(app), config, drain).await
}

async fn saying_server(text: &'static str) -> TestServer {
    serve(app(Scripted::saying(text))).await
}

fn chat(extra: Value) -> String {
    with(json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}), extra)
}

fn completion(extra: Value) -> String {
    with(json!({"model": "tiny", "prompt": "hi", "max_tokens": 100}), extra)
}

fn with(mut body: Value, extra: Value) -> String {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body.to_string()
}

async fn ask(server: &TestServer, path: &str, body: &str) -> RawResponse {
    server.client().await.post(path, body).await
}

/// The frames of a streamed answer, end mark checked and taken off.
async fn stream(server: &TestServer, path: &str, body: &str) -> Vec<Value> {
    let mut client = server.client().await;
    client.send(support::http::post(path, body)).await;
    sse::record(&mut client).await.json()
}

/// Checks an error's envelope; gives status, param and code.
fn refusal(response: &RawResponse) -> (u16, Option<String>, Option<String>) {
    let body = response.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|words| words.len() > 10), "{body}");
    assert!(error["type"].is_string(), "{body}");
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
    let text = |key: &str| error.get(key).expect(key).as_str().map(str::to_owned);
    (response.status, text("param"), text("code"))
}

fn refused(status: u16, param: Option<&str>, code: Option<&str>) -> (u16, Option<String>, Option<String>) {
    (status, param.map(str::to_owned), code.map(str::to_owned))
}

/// A choice's text and finish reason out of a stream, with its shape checked.
fn regroup(frames: &[Value]) -> BTreeMap<u64, (String, String)> {
    let mut choices: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for frame in frames {
        for key in ["id", "created", "model", "object"] {
            assert_eq!(frame[key], frames[0][key], "{frame}");
        }
        for choice in frame["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap();
            let is_chat = choice.get("delta").is_some();
            let opens = !choices.contains_key(&index);
            let (text, finish) = choices.entry(index).or_default();
            assert!(finish.is_empty(), "nothing follows a finish reason: {frame}");
            if is_chat {
                assert_eq!(
                    choice["delta"].get("role").is_some(),
                    opens,
                    "the role comes once, first: {frame}"
                );
            }
            let new = if is_chat { &choice["delta"]["content"] } else { &choice["text"] };
            text.push_str(new.as_str().unwrap_or_default());
            match choice.get("finish_reason").expect("finish_reason is always there") {
                Value::Null => {}
                reason => finish.push_str(reason.as_str().unwrap()),
            }
        }
    }
    assert!(choices.values().all(|(_, finish)| !finish.is_empty()), "each choice has its finish");
    choices
}

// F01, F02.

#[tokio::test]
async fn usage_is_streamed_only_when_asked_for_and_equals_the_whole_answers() {
    let server = saying_server("Hello 😀").await;
    let whole = ask(&server, CHAT, &chat(json!({}))).await.json();
    assert_eq!(whole["choices"][0]["message"]["content"], "Hello 😀");
    assert_eq!(whole["usage"]["completion_tokens"], 11, "ten bytes and the end of the turn");
    for (options, asked) in
        [(json!({}), false), (json!({"include_usage": false}), false), (json!({"include_usage": true}), true)]
    {
        let frames = stream(&server, CHAT, &chat(json!({"stream": true, "stream_options": options}))).await;
        let (last, content) = frames.split_last().unwrap();
        let usages = frames.iter().filter(|frame| frame.get("usage").is_some_and(|usage| !usage.is_null()));
        assert_eq!(usages.count(), usize::from(asked));
        if asked {
            assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
            assert!(content.iter().all(|frame| frame["usage"].is_null()));
        }
        assert_eq!(regroup(&frames)[&0], ("Hello 😀".into(), "stop".into()));
    }
    let response = ask(&server, CHAT, &chat(json!({"stream_options": {"include_usage": true}}))).await;
    assert_eq!(refusal(&response), refused(400, Some("stream_options"), None));
    server.stop().await;
}

#[tokio::test]
async fn each_way_to_end_has_its_reason_streamed_and_whole() {
    let server = saying_server("one two three").await;
    for (extra, text, reason) in [
        (json!({}), "one two three", "stop"),
        (json!({"max_tokens": 3}), "one", "length"),
        (json!({"max_completion_tokens": 4, "max_tokens": 9}), "one ", "length"),
        (json!({"stop": "two"}), "one ", "stop"),
        (json!({"stop": ["zzz", "e t"]}), "on", "stop"),
        (json!({"stop": ["e", "three"]}), "on", "stop"),
        (json!({"stop": "threeX"}), "one two three", "stop"),
        (json!({"stop": "o"}), "", "stop"),
    ] {
        for path in [CHAT, COMPLETIONS] {
            let body = |stream: bool| {
                let extra = with(json!({ "stream": stream }), extra.clone());
                let extra = serde_json::from_str(&extra).unwrap();
                if path == CHAT { chat(extra) } else { completion(extra) }
            };
            let whole = ask(&server, path, &body(false)).await.json();
            let choice = &whole["choices"][0];
            let content = if path == CHAT { &choice["message"]["content"] } else { &choice["text"] };
            assert_eq!(
                (content.as_str(), choice["finish_reason"].as_str()),
                (Some(text), Some(reason)),
                "{extra}"
            );
            let frames = stream(&server, path, &body(true)).await;
            assert_eq!(regroup(&frames)[&0], (text.into(), reason.into()), "{extra}");
        }
    }
    server.stop().await;
}

// F04.

#[tokio::test]
async fn a_stream_begins_at_once_and_says_that_it_lives_while_nothing_comes() {
    let script = |_: &_| Ok([vec![Act::Wait(Duration::from_millis(400))], saying("x")].concat());
    let server = serve(App { keepalive: Duration::from_millis(100), ..app(Scripted::new(script)) }).await;
    let mut client = server.client().await;
    let asked = Instant::now();
    client.send(support::http::post(CHAT, &chat(json!({"stream": true})))).await;
    let mut watch = RawClient::connect(server.address).await;
    assert_eq!(watch.get("/health").await.status, 200);
    let recording = sse::record(&mut client).await;
    assert!(recording.comments >= 2, "{} comments", recording.comments);
    let frames = recording.json();
    assert_eq!(regroup(&frames)[&0].0, "x");
    assert!(recording.events[0].at - asked < Duration::from_millis(350), "the role comes before any token");

    let whole = ask(&server, CHAT, &chat(json!({}))).await;
    assert_eq!((whole.status, whole.body[0]), (200, b'{'), "an answer in one piece has no comments");
    server.stop().await;
}

// F06.

#[tokio::test]
async fn a_failure_after_the_head_is_an_error_in_band_and_before_it_a_status() {
    let script = |_: &_| {
        let mut acts = saying("12345");
        acts.truncate(5);
        acts.push(Act::Fail(Refusal::new(RefusalKind::Internal, "the executor panicked: index 5")));
        Ok(acts)
    };
    let server = serve(app(Scripted::new(script))).await;
    let frames =
        stream(&server, CHAT, &chat(json!({"stream": true, "stream_options": {"include_usage": true}})))
            .await;
    let (last, content) = frames.split_last().unwrap();
    assert_eq!(last["error"]["code"], "internal_error");
    assert!(!last.to_string().contains("panicked"));
    let text: String =
        content.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "12345");
    assert!(
        content
            .iter()
            .all(|frame| frame["choices"][0]["finish_reason"].is_null() && frame["usage"].is_null())
    );

    let whole = ask(&server, CHAT, &chat(json!({}))).await;
    assert_eq!(refusal(&whole), refused(500, None, Some("internal_error")));

    let records = server.client().await.get("/v1/requests").await.json();
    for record in records["data"].as_array().unwrap() {
        assert_eq!((&record["outcome"], &record["completion_tokens"]), (&json!("failed"), &json!(5)));
    }
    server.stop().await;
}

// F08, F10.

#[tokio::test]
async fn zero_tokens_give_the_prompt_back_with_an_echo() {
    let server = saying_server("x").await;
    let echo = json!({"prompt": "A B", "max_tokens": 0, "echo": true});
    let body = ask(&server, COMPLETIONS, &completion(echo.clone())).await.json();
    assert_eq!(
        (&body["choices"][0]["text"], &body["choices"][0]["finish_reason"]),
        (&json!("A B"), &json!("length"))
    );
    assert_eq!(
        (&body["usage"]["completion_tokens"], &body["usage"]["prompt_tokens"]),
        (&json!(0), &json!(3))
    );
    let streamed = with(echo, json!({"stream": true, "model": "tiny"}));
    assert_eq!(regroup(&stream(&server, COMPLETIONS, &streamed).await)[&0], ("A B".into(), "length".into()));
    let echoed = ask(&server, COMPLETIONS, &completion(json!({"echo": true}))).await.json();
    assert_eq!(echoed["choices"][0]["text"], "hix");
    let response = ask(&server, COMPLETIONS, &completion(json!({"max_tokens": 0}))).await;
    assert_eq!(refusal(&response), refused(400, Some("max_tokens"), None));
    server.stop().await;
}

#[tokio::test]
async fn lists_of_prompts_give_choices_in_order_and_ids_equal_text() {
    let backend = Scripted::new(|submission| Ok(saying(&submission.choice.to_string())));
    let server = serve(app(backend.clone())).await;
    let body = ask(&server, COMPLETIONS, &completion(json!({"prompt": ["x", "yz"], "n": 2}))).await.json();
    let texts: Vec<_> =
        body["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["0", "1", "2", "3"]);
    assert_eq!(
        (&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]),
        (&json!(3), &json!(8))
    );

    backend.submissions.lock().unwrap().clear();
    ask(&server, COMPLETIONS, &completion(json!({"prompt": "A B"}))).await;
    ask(&server, COMPLETIONS, &completion(json!({"prompt": [65, 32, 66]}))).await;
    let submissions = backend.submissions.lock().unwrap().clone();
    assert_eq!(submissions[0].prompt, submissions[1].prompt);

    let response = ask(&server, COMPLETIONS, &completion(json!({"prompt": ""}))).await;
    assert_eq!(refusal(&response).0, 400, "this model has no token that begins a text");
    let response = ask(&server, COMPLETIONS, &completion(json!({"prompt": [70_000]}))).await;
    assert_eq!(refusal(&response).0, 400, "no such token");
    server.stop().await;
}

// F12.

#[tokio::test]
async fn a_prompt_longer_than_the_context_is_refused_before_any_byte_of_a_stream() {
    let server = saying_server("x").await;
    for stream in [true, false] {
        for length in [CONTEXT, CONTEXT + 88, 20 * CONTEXT] {
            let body = completion(json!({"prompt": "a".repeat(length), "stream": stream}));
            let response = ask(&server, COMPLETIONS, &body).await;
            assert_eq!(refusal(&response).0, 400);
            assert_eq!(refusal(&response).2.as_deref(), Some("context_length_exceeded"));
            let words = response.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(words.contains(&length.to_string()) && words.contains(&CONTEXT.to_string()), "{words}");
        }
        let long = completion(json!({"prompt": "a".repeat(CONTEXT - 1), "stream": stream}));
        assert_eq!(ask(&server, COMPLETIONS, &long).await.status, 200);
    }
    let messages = json!([{"role": "user", "content": "a".repeat(CONTEXT)}]);
    let response = ask(&server, CHAT, &chat(json!({"messages": messages}))).await;
    assert_eq!(refusal(&response).2.as_deref(), Some("context_length_exceeded"));
    server.stop().await;
}

// F13.

#[tokio::test]
async fn what_the_model_would_see_can_be_looked_at() {
    let server = saying_server("x").await;
    let render = async |messages: Value| {
        let body = json!({"model": "tiny", "messages": messages}).to_string();
        ask(&server, "/v1/chat/completions/render", &body).await.json()
    };
    let from_text = render(json!([{"role": "user", "content": "ab"}])).await;
    let prompt = &from_text["prompts"][0];
    assert_eq!(prompt["prompt"], "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(prompt["count"].as_u64().unwrap() as usize, prompt["tokens"].as_array().unwrap().len());
    let spans = prompt["spans"].as_array().unwrap();
    let user = spans.iter().find(|span| span["origin"] == "user").unwrap();
    assert_eq!(
        (&user["message"], user["end"].as_u64().unwrap() - user["begin"].as_u64().unwrap()),
        (&json!(0), 2)
    );
    assert_eq!(spans.last().unwrap()["end"], prompt["count"], "spans tile the prompt");

    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(render(json!([{"role": "user", "content": parts}])).await, from_text);

    let own = json!({"role": "assistant", "content": null, "refusal": null,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
    let round_trip = json!([{"role": "user", "content": "q"}, own, {"role": "tool", "tool_call_id": "c", "content": "42"}]);
    let text = render(round_trip).await["prompts"][0]["prompt"].as_str().unwrap().to_owned();
    assert!(text.contains("<call>f {\"a\": 1}</call>"), "{text}");
    assert!(!text.contains("None") && !text.contains("null"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn text_becomes_tokens_and_text_again() {
    let server = saying_server("x").await;
    let tokenized = ask(&server, "/tokenize", r#"{"prompt":"Aé<|im_end|>"}"#).await.json();
    assert_eq!(tokenized, json!({"tokens": [65, 195, 169, 257], "count": 4, "max_model_len": CONTEXT}));
    let back = ask(&server, "/detokenize", &json!({"tokens": tokenized["tokens"]}).to_string()).await.json();
    assert_eq!(back, json!({"prompt": "Aé<|im_end|>"}));
    for (path, body, param) in [
        ("/tokenize", "{}", "prompt"),
        ("/tokenize", r#"{"prompt":5}"#, "prompt"),
        ("/detokenize", "{}", "tokens"),
        ("/detokenize", r#"{"tokens":[1,5000]}"#, "tokens[1]"),
        ("/detokenize", r#"{"tokens":[-1]}"#, "tokens[0]"),
    ] {
        assert_eq!(
            refusal(&ask(&server, path, body).await),
            refused(400, Some(param), None),
            "{path} {body}"
        );
    }
    server.stop().await;
}

// F15.

#[tokio::test]
async fn every_choice_comes_once_and_whole_streamed_or_not() {
    let backend = Scripted::new(|submission| {
        let acts = saying(&format!("choice {}", "x".repeat(submission.choice)));
        let paced = acts.into_iter().flat_map(|act| [Act::Wait(Duration::from_millis(1)), act]);
        Ok(paced.collect())
    });
    let server = serve(app(backend.clone())).await;
    let body = json!({"n": 4, "temperature": 1, "seed": 7, "max_tokens": 9});
    let whole = ask(&server, CHAT, &chat(body.clone())).await.json();
    let expected: Vec<(String, String)> = (0..4)
        .map(|choice| {
            let text = format!("choice {}", "x".repeat(choice));
            if text.len() < 9 { (text, "stop".into()) } else { (text[..9].into(), "length".into()) }
        })
        .collect();
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        let (text, reason) = &expected[index];
        assert_eq!((&choice["index"], &choice["message"]["content"]), (&json!(index), &json!(text)));
        assert_eq!(choice["finish_reason"], json!(reason));
    }
    let streamed =
        stream(&server, CHAT, &chat(serde_json::from_str(&with(body, json!({"stream": true}))).unwrap()))
            .await;
    assert_eq!(regroup(&streamed).into_values().collect::<Vec<_>>(), expected);
    assert_eq!(whole["usage"]["completion_tokens"], 8 + 9 + 9 + 9);
    let submissions = backend.submissions.lock().unwrap().clone();
    let seeds: Vec<_> = submissions[..4].iter().map(|submission| submission.sampling.seed.unwrap()).collect();
    assert_eq!(seeds, [7, 8, 9, 10], "choices differ");
    assert_eq!(whole["usage"]["prompt_tokens"].as_u64().unwrap() as usize, submissions[0].prompt.len());
    server.stop().await;
}

// F39, F41.

#[tokio::test]
async fn logprobs_belong_to_the_text_they_come_with() {
    let server = saying_server("a 😀 stop here").await;
    for stop in [json!(null), json!("stop"), json!("never")] {
        let body =
            |stream: bool| json!({"stream": stream, "stop": stop, "logprobs": true, "top_logprobs": 2});
        let whole = ask(&server, CHAT, &chat(body(false))).await.json();
        let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        let content = &whole["choices"][0]["logprobs"]["content"];
        assert_eq!(joined(content), text.as_bytes(), "{stop}");
        assert!(
            content
                .as_array()
                .unwrap()
                .iter()
                .all(|entry| entry["top_logprobs"].as_array().unwrap().len() == 2)
        );

        let frames = stream(&server, CHAT, &chat(body(true))).await;
        let mut all = Vec::new();
        for frame in &frames {
            let choice = &frame["choices"][0];
            let new = choice["delta"]["content"].as_str().unwrap_or_default();
            if let Some(entries) = choice["logprobs"].get("content") {
                assert_eq!(joined(entries), new.as_bytes(), "a frame's entries carry its text: {frame}");
                all.extend(entries.as_array().unwrap().clone());
            } else {
                assert!(new.is_empty(), "{frame}");
            }
        }
        assert_eq!(json!(all), *content);

        let body = |stream: bool| completion(json!({"stream": stream, "stop": stop, "logprobs": 2}));
        let whole = ask(&server, COMPLETIONS, &body(false)).await.json();
        let logprobs = &whole["choices"][0]["logprobs"];
        assert_eq!(whole["choices"][0]["text"], text);
        let mut arrays: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for frame in stream(&server, COMPLETIONS, &body(true)).await {
            for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let entries = frame["choices"][0]["logprobs"][key].as_array().cloned().unwrap_or_default();
                arrays.entry(key).or_default().extend(entries);
            }
        }
        for (key, streamed) in arrays {
            assert_eq!(json!(streamed), logprobs[key], "{key}");
            assert_eq!(streamed.len(), text.len(), "one entry per token, and a token per byte");
        }
    }
    let off = ask(&server, CHAT, &chat(json!({}))).await.json();
    assert_eq!(off["choices"][0]["logprobs"], Value::Null);
    server.stop().await;
}

fn joined(entries: &Value) -> Vec<u8> {
    let bytes = entries.as_array().unwrap().iter().flat_map(|entry| entry["bytes"].as_array().unwrap());
    bytes.map(|byte| byte.as_u64().unwrap() as u8).collect()
}

// F87.

#[tokio::test]
async fn hostile_bodies_are_400_and_the_server_goes_on() {
    let server = saying_server("x").await;
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xc4\xe3\"}]}",
        br#"{"messages":[{"role":"user","content":"\ud800"}]}"#,
        br#"{"temperature":NaN}"#,
        br#"{"messages":[]} trailing"#,
        b"null",
        deep.as_bytes(),
    ];
    for body in bodies {
        for path in [CHAT, COMPLETIONS, "/tokenize", "/detokenize", "/v1/completions/render"] {
            let mut client = server.client().await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            client.send([head.as_bytes(), body].concat()).await;
            let response = client.response().await;
            assert_eq!(
                refusal(&response).0,
                400,
                "{path} {:?}",
                String::from_utf8_lossy(&body[..body.len().min(60)])
            );
            assert!(response.body.len() < 500, "no long quotes");
        }
    }
    assert_eq!(ask(&server, CHAT, &chat(json!({}))).await.status, 200);
    server.stop().await;
}

// F88.

#[tokio::test]
async fn every_route_but_the_open_ones_needs_a_key() {
    let server =
        serve(App { keys: vec!["right-key".into(), "other-key".into()], ..app(Scripted::saying("x")) }).await;
    for route in ROUTES {
        let path = route.path.replace("{}", "req-0000000000000001").replace("{*}", "tiny");
        for (authorization, lets_in) in [
            ("", false),
            ("Authorization: Bearer wrong\r\n", false),
            ("Authorization: Bearer right-ke\r\n", false),
            ("Authorization: Basic right-key\r\n", false),
            ("Authorization: bearer right-key\r\n", true),
        ] {
            for query in ["", "?api_key=right-key"] {
                let mut client = server.client().await;
                client
                    .send(format!(
                        "{} {path}{query} HTTP/1.1\r\nHost: a\r\n{authorization}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}",
                        route.method
                    ))
                    .await;
                let response = client.response().await;
                if route.open || lets_in {
                    assert_ne!(response.status, 401, "{path}");
                } else {
                    assert_eq!(refusal(&response), refused(401, None, Some("invalid_api_key")), "{path}");
                    assert_eq!(response.header("www-authenticate"), Some("Bearer"));
                }
                assert!(response.header("access-control-allow-origin").is_none());
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_keyless_server_answers_this_machines_pages_only() {
    let server = saying_server("x").await;
    for route in ROUTES {
        let path = route.path.replace("{}", "req-0000000000000001").replace("{*}", "tiny");
        for headers in ["Host: evil.example\r\n", "Host: localhost\r\nOrigin: https://evil.example\r\n"] {
            let mut client = server.client().await;
            client.send(format!("{} {path} HTTP/1.1\r\n{headers}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}", route.method)).await;
            assert_eq!(
                refusal(&client.response().await),
                refused(403, None, Some("foreign_host")),
                "{path} {headers}"
            );
        }
        if route.method == "POST" {
            let mut client = server.client().await;
            client.send(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}")).await;
            assert_eq!(refusal(&client.response().await).0, 415, "{path}");
        }
        let mut client = server.client().await;
        client
            .send(format!("OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n"))
            .await;
        let response = client.response().await;
        assert_eq!((refusal(&response).0, response.header("allow")), (405, Some(route.method)), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_account_belongs_to_the_key_it_was_made_with() {
    let server = serve(App { keys: vec!["one".into(), "two".into()], ..app(Scripted::saying("x")) }).await;
    let send = async |method: &str, path: &str, key: &str, body: &str| {
        let mut client = server.client().await;
        client
            .send(format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        client.response().await
    };
    let id = send("POST", CHAT, "one", &chat(json!({}))).await.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/requests/{id}/lifecycle");
    settled(async || send("GET", &path, "one", "").await.status == 200).await;
    assert_eq!(refusal(&send("GET", &path, "two", "").await), refused(404, None, Some("not_found")));
    let listed =
        async |key: &str| send("GET", "/v1/requests", key, "").await.json()["data"].as_array().unwrap().len();
    assert_eq!((listed("one").await, listed("two").await), (1, 0));
    assert_eq!(refusal(&send("GET", "/v1/steps", "one", "").await).0, 403);
    server.stop().await;
}

/// Waits for what happens right after an answer.
async fn settled(done: impl AsyncFn() -> bool) {
    let patience = async {
        while !done().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), patience).await.expect("it settles");
}

// Views.

#[tokio::test]
async fn models_are_listed_and_found_by_any_name() {
    let server = saying_server("x").await;
    let mut client = server.client().await;
    let list = client.get("/v1/models").await.json();
    let names: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((names, &list["object"]), (vec!["tiny", "org/tiny"], &json!("list")));
    let one = client.get("/v1/models/org/tiny").await.json();
    assert_eq!(
        one,
        json!({"id": "org/tiny", "object": "model", "created": 7, "owned_by": "firstlight", "max_model_len": CONTEXT})
    );
    assert_eq!(client.get("/v1/models/org%2Ftiny").await.json(), one);
    assert_eq!(
        refusal(&client.get("/v1/models/gpt-4").await),
        refused(404, Some("model"), Some("model_not_found"))
    );
    let response = ask(&server, CHAT, &chat(json!({"model": "gpt-4"}))).await;
    assert_eq!(refusal(&response), refused(404, Some("model"), Some("model_not_found")));
    assert_eq!(refusal(&client.get("/v1/nothing").await).0, 404);
    server.stop().await;
}

#[tokio::test]
async fn an_account_sums_to_its_whole_and_is_found_by_the_answers_id() {
    let server = saying_server("Hello").await;
    for stream in [true, false] {
        let mut client = server.client().await;
        client.send(support::http::post(CHAT, &chat(json!({"stream": stream, "metadata": {}})))).await;
        let response = client.response().await;
        let id = response.header("x-request-id").unwrap().to_owned();
        assert!(response.text().contains(&format!("\"id\":\"{id}\"")), "the answer has the same id");
        assert!(response.header("server-timing").is_some_and(|timing| timing.contains("parse;dur=")));
        let path = format!("/v1/requests/{id}/lifecycle");
        settled(async || server.client().await.get(&path).await.status == 200).await;
        let record = server.client().await.get(&path).await.json();
        let sum = |charges: &Value| {
            charges.as_array().unwrap().iter().map(|charge| charge["ns"].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(sum(&record["stages"]), record["e2e_ns"].as_u64().unwrap());
        let gaps: u64 = record["tokens"].as_array().unwrap().iter().map(|unit| sum(&unit["gap"])).sum();
        assert_eq!(gaps, record["e2e_ns"].as_u64().unwrap());
        assert!(
            !record["stages"].as_array().unwrap().iter().any(|charge| charge["stage"] == "unattributed"),
            "{record:#}"
        );
        assert_eq!(
            (&record["outcome"], &record["completion_tokens"], &record["ignored"]),
            (&json!("finished"), &json!(6), &json!(["metadata"]))
        );
        assert!(record["ttft_ns"].as_u64().unwrap() <= record["e2e_ns"].as_u64().unwrap());
    }
    let response = server.client().await.get("/v1/requests/req-00000000000000ff/lifecycle").await;
    assert_eq!(refusal(&response), refused(404, None, Some("not_found")));
    server.stop().await;
}

#[tokio::test]
async fn the_account_comes_with_the_answer_when_asked_for() {
    let server = saying_server("Hello").await;
    let whole = ask(&server, CHAT, &chat(json!({"include_lifecycle": true}))).await.json();
    let sum = |record: &Value| {
        record["stages"].as_array().unwrap().iter().map(|charge| charge["ns"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(sum(&whole["lifecycle"]), whole["lifecycle"]["e2e_ns"].as_u64().unwrap());
    assert_eq!(whole["usage"]["e2e_ns"], whole["lifecycle"]["e2e_ns"]);
    for usage in [true, false] {
        let body =
            json!({"stream": true, "include_lifecycle": true, "stream_options": {"include_usage": usage}});
        let frames = stream(&server, CHAT, &chat(body)).await;
        let with_account = frames.iter().filter(|frame| frame.get("lifecycle").is_some()).count();
        let last = frames.last().unwrap();
        assert_eq!((with_account, &last["choices"], last.get("usage").is_some()), (1, &json!([]), usage));
        assert_eq!(last["lifecycle"]["id"], last["id"]);
        assert_eq!(sum(&last["lifecycle"]), last["lifecycle"]["e2e_ns"].as_u64().unwrap());
    }
    server.stop().await;
}

#[tokio::test]
async fn the_newest_steps_and_requests_are_listed_as_many_as_asked_for() {
    let server = saying_server("x").await;
    let mut client = server.client().await;
    let steps = client.get("/v1/steps?count=2").await.json();
    let ids: Vec<_> =
        steps["data"].as_array().unwrap().iter().map(|step| step["id"].as_u64().unwrap()).collect();
    assert_eq!((ids, &steps["data"][0]["model"]), (vec![99, 100], &json!("tiny")));
    assert_eq!(refusal(&client.get("/v1/steps?count=x").await), refused(400, Some("count"), None));

    let mut answered = Vec::new();
    for _ in 0..3 {
        answered.push(client.post(CHAT, &chat(json!({}))).await.json()["id"].clone());
    }
    settled(async || server.client().await.get("/v1/requests").await.json()["data"][0]["id"] == answered[2])
        .await;
    let requests = client.get("/v1/requests?a=b&count=2").await.json();
    let ids: Vec<_> =
        requests["data"].as_array().unwrap().iter().map(|request| request["id"].clone()).collect();
    assert_eq!(ids, [answered[2].clone(), answered[1].clone()], "newest first");
    server.stop().await;
}

#[tokio::test]
async fn health_tells_readiness_from_liveness() {
    let backend = Scripted::saying("x");
    let served = app(backend.clone());
    let server = serve(served).await;
    let mut client = server.client().await;
    assert_eq!((client.get("/health").await.status, client.get("/livez").await.status), (200, 200));
    *backend.ready.lock().unwrap() = Some("the model is loading".into());
    let response = client.get("/health").await;
    assert_eq!(refusal(&response), refused(503, None, Some("unavailable")));
    assert!(response.text().contains("loading") && response.header("retry-after").is_some());
    assert_eq!(client.get("/livez").await.status, 200);
    server.stop().await;
}

// F49, F50.

#[tokio::test]
async fn a_client_that_goes_away_frees_its_sequences_and_is_recorded() {
    for (streamed, before) in [(true, 0), (false, 0), (true, 5), (false, 5)] {
        let backend = Scripted::new(move |_| {
            let mut acts = saying("12345");
            acts.truncate(before);
            acts.push(Act::Hang);
            Ok(acts)
        });
        let server = serve(app(backend.clone())).await;
        let mut client = server.client().await;
        client.send(support::http::post(CHAT, &chat(json!({"stream": streamed, "n": 2})))).await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(backend.cancelled(), 0);
        let left = Instant::now();
        drop(client);
        settled(async || backend.cancelled() == 2).await;
        assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
        settled(async || {
            !server.client().await.get("/v1/requests").await.json()["data"].as_array().unwrap().is_empty()
        })
        .await;
        let records = server.client().await.get("/v1/requests").await.json();
        let record = &records["data"][0];
        assert_eq!(
            (&record["outcome"], &record["completion_tokens"]),
            (&json!("cancelled_by_client"), &json!(2 * before))
        );
        server.stop().await;
    }
}

// F56, F57.

#[tokio::test]
async fn a_shutdown_finishes_what_runs_sends_newcomers_away_and_ends_at_its_limit() {
    let script = |submission: &protocol::Submission| match submission.sampling.max_tokens {
        Some(1) => Ok(vec![Act::Wait(Duration::from_millis(300)), Act::Say(TokenId(65))]),
        _ => Ok(vec![Act::Say(TokenId(66)), Act::Hang]),
    };
    let served = app(Scripted::new(script));
    let drain = served.drain.clone();
    let config = Config {
        drain_limit: Duration::from_millis(800),
        linger: Duration::from_millis(100),
        ..Config::default()
    };
    let server = TestServer::start_with(Arc::new(served), config, drain).await;
    let begin = async |max: usize| {
        let mut client = server.client().await;
        client.send(support::http::post(CHAT, &chat(json!({"stream": true, "max_tokens": max})))).await;
        client
    };
    let (mut short, mut long) = (begin(1).await, begin(9).await);
    sleep(Duration::from_millis(100)).await;
    server.drain.advance(Phase::Draining);
    sleep(Duration::from_millis(20)).await;

    assert_eq!(
        refusal(&server.client().await.get("/health").await),
        refused(503, None, Some("shutting_down"))
    );
    assert_eq!(server.client().await.get("/livez").await.status, 200);
    let newcomer = ask(&server, CHAT, &chat(json!({}))).await;
    assert_eq!(refusal(&newcomer), refused(503, None, Some("shutting_down")));
    assert_eq!((newcomer.header("retry-after"), newcomer.header("connection")), (Some("1"), Some("close")));

    assert_eq!(regroup(&sse::record(&mut short).await.json())[&0], ("A".into(), "length".into()));
    let cut = sse::record(&mut long).await.json();
    assert!(cut.last().unwrap()["error"]["message"].is_string(), "{cut:?}");
    timeout(Duration::from_secs(3), server.running).await.expect("the shutdown ends").unwrap();
}

#[tokio::test]
async fn a_full_backend_is_503_with_a_time_to_come_back_and_nothing_half_submitted_runs_on() {
    let backend = Scripted::new(|submission| match submission.choice {
        0 | 1 => Ok(vec![Act::Hang]),
        _ => Err(Refusal::new(RefusalKind::Unavailable, "the queue is full; come back soon")
            .retry_after(Duration::from_secs(2))),
    });
    let server = serve(app(backend.clone())).await;
    for stream in [true, false] {
        let response = ask(&server, CHAT, &chat(json!({"n": 3, "stream": stream}))).await;
        assert_eq!(refusal(&response), refused(503, None, Some("unavailable")));
        assert_eq!(response.header("retry-after"), Some("2"));
    }
    settled(async || backend.cancelled() == 4).await;
    server.stop().await;
}

// F86.

#[tokio::test]
async fn numbers_that_multiply_are_bounded() {
    let server = saying_server("x").await;
    for (extra, param) in [
        (json!({"n": 1_000_000}), "n"),
        (json!({"n": 128, "logprobs": true, "top_logprobs": 20}), "n"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"logit_bias": {"100000": 1}}), "logit_bias"),
        (json!({"stop_token_ids": [320]}), "stop_token_ids"),
    ] {
        assert_eq!(refusal(&ask(&server, CHAT, &chat(extra)).await), refused(400, Some(param), None));
    }
    server.stop().await;
}
