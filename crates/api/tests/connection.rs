//! The connection itself: framing, bounds, stamps, deliveries, and what happens when a client goes away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::drain::Phase;
use api::exchange::{Exchange, Pace};
use api::frames::{self, CAPACITY, FrameBody, Gone};
use api::server::{Answering, Config, Handler};
use bytes::Bytes;
use hyper::Response;
use ledger::now_ns;
use protocol::Limits;
use support::http::{RawClient, post};
use support::server::TestServer;
use support::sse;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A handler out of a closure.
struct Fn<F>(F);

impl<F: std::ops::Fn(Exchange) -> Answering + Send + Sync + 'static> Handler for Fn<F> {
    fn handle(self: Arc<Self>, exchange: Exchange) -> Answering {
        (self.0)(exchange)
    }
}

async fn server<F>(config: Config, handler: F) -> TestServer
where
    F: std::ops::Fn(Exchange) -> Answering + Send + Sync + 'static,
{
    TestServer::start(Arc::new(Fn(handler)), config).await
}

/// `/echo` gives the body back, `/stream` counts to three, anything else says "ok".
fn plain(mut exchange: Exchange) -> Answering {
    Box::pin(async move {
        match exchange.head.uri.path() {
            "/echo" => {
                match exchange.read_json(&Limits { body_bytes_max: 1000, ..Limits::default() }).await {
                    Ok(bytes) => Response::new(FrameBody::whole(bytes)),
                    Err(fault) => fault.response(),
                }
            }
            "/stream" => {
                if exchange.head.method == "POST" {
                    exchange.read_json(&Limits::default()).await.unwrap();
                }
                let (frames, body) = frames::stream(Duration::from_secs(10));
                tokio::spawn(async move {
                    for text in ["data: 1\n\n", "data: 2\n\n"] {
                        frames.send(Bytes::from(text)).await?;
                    }
                    frames.finish(Bytes::from("data: [DONE]\n\n")).await
                });
                Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
            }
            _ => Response::new(FrameBody::whole("ok")),
        }
    })
}

fn quick() -> Config {
    Config { linger: Duration::from_millis(300), ..Config::default() }
}

/// Waits for what happens soon, however busy the machine is.
async fn eventually(what: &str, done: impl AsyncFn() -> bool) {
    let patience = async {
        while !done().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), patience).await.unwrap_or_else(|_| panic!("{what}"));
}

/// The error envelope of `response`, checked.
fn code(response: &support::http::RawResponse) -> (u16, String) {
    let json = response.json();
    let error = &json["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
    assert!(error["type"].is_string() && error.get("param").is_some(), "{json}");
    (response.status, error["code"].as_str().unwrap_or_default().to_owned())
}

// F05: the connection after the end of a stream.

#[tokio::test]
async fn a_connection_serves_stream_whole_and_stream_again() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client.send(post("/stream", "{}")).await;
    let first = sse::record(&mut client).await;
    assert_eq!(first.events.len(), 3);
    assert_eq!(client.post("/echo", "{\"a\":1}").await.text(), "{\"a\":1}");
    client.send(post("/stream", "{}")).await;
    assert_eq!(sse::record(&mut client).await.raw, first.raw);
    server.stop().await;
}

#[tokio::test]
async fn the_last_frame_and_the_end_of_the_body_come_together() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client.send(post("/stream", "{}")).await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"[DONE]\n\n") {
        bytes.extend(client.take(1).await);
    }
    assert_eq!(client.buffered(), b"\r\n0\r\n\r\n", "in the same write");
    server.stop().await;
}

#[tokio::test]
async fn http_1_0_and_connection_close_end_with_the_connection() {
    let server = server(quick(), plain).await;
    let mut old = server.client().await;
    old.send("GET /stream HTTP/1.0\r\n\r\n").await;
    let text = String::from_utf8(old.rest().await).unwrap();
    assert!(text.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n"), "{text}");
    assert!(!text.to_lowercase().contains("transfer-encoding"), "{text}");

    let mut closing = server.client().await;
    closing.send("GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(closing.response().await.chunked);
    assert!(closing.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client.send(format!("{}{}{}", post("/echo", "[1]"), post("/stream", "{}"), post("/echo", "[2]"))).await;
    assert_eq!(client.response().await.text(), "[1]");
    assert_eq!(sse::record(&mut client).await.events.len(), 3);
    assert_eq!(client.response().await.text(), "[2]");
    server.stop().await;
}

// F07: ambiguous framing.

#[tokio::test]
async fn ambiguous_framing_is_refused_and_the_connection_closed() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let server = server(quick(), move |exchange| {
        counted.fetch_add(1, Ordering::SeqCst);
        plain(exchange)
    })
    .await;
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let cases = [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both lengths"),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            "both lengths, the other way round",
        ),
        ("Content-Length: 3\r\nContent-Length: 5\r\n\r\nabc", "two lengths"),
        ("Content-Length: 3, 5\r\n\r\nabc", "a list of lengths"),
        ("Content-Length: +3\r\n\r\nabc", "a signed length"),
        ("Content-Length: -3\r\n\r\nabc", "a negative length"),
        ("Content-Length: 99999999999999999999999\r\n\r\nabc", "a length that overflows"),
        ("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "chunked is not last"),
        ("Transfer-Encoding: identity\r\n\r\nabc", "not chunked"),
        ("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "a space before the colon"),
        ("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "a name that only ends so"),
        ("Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", "a signed chunk size"),
        ("Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", "a prefixed chunk size"),
        (
            "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nabc\r\n0\r\n\r\n",
            "a chunk size that overflows",
        ),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n", "a chunk longer than it says"),
    ];
    for (rest, case) in cases {
        let mut client = server.client().await;
        client.send(format!("{head}{rest}{smuggled}")).await;
        let response = client.response().await;
        assert_eq!(code(&response).0, 400, "{case}: {response:?}");
        let rest = client.rest().await;
        assert!(rest.is_empty(), "{case}: a second answer {:?}", String::from_utf8_lossy(&rest));
    }
    // The only ones that may reach a handler are those whose chunks turn out broken, each once.
    assert_eq!(seen.load(Ordering::SeqCst), 4);
    server.stop().await;
}

#[tokio::test]
async fn valid_framing_in_odd_forms_is_taken() {
    let server = server(quick(), plain).await;
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for rest in [
        "Transfer-Encoding: Chunked\r\n\r\n3\r\n[1]\r\n0\r\n\r\n",
        "Transfer-Encoding:\tchunked\r\n\r\n3;ext=1\r\n[1]\r\n0\r\nTrailer: x\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n\r\n[1]",
    ] {
        let mut client = server.client().await;
        client.send(format!("{head}{rest}")).await;
        assert_eq!(client.response().await.text(), "[1]", "{rest:?}");
        assert_eq!(client.get("/").await.text(), "ok", "the connection goes on after {rest:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_longer_than_it_says_is_not_part_of_the_request() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]garbage\r\n\r\n").await;
    assert_eq!(client.response().await.text(), "[1]");
    assert_eq!(client.response().await.status, 400, "what follows is a request of its own, and none");
    assert!(client.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let server = server(quick(), plain).await;
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let mut client = server.client().await;
        client.send(format!("GET / HTTP/1.1\r\n{hosts}\r\n")).await;
        assert_eq!(code(&client.response().await), (400, "bad_head".into()), "{hosts:?}");
    }
    server.stop().await;
}

// F83: sizes and slowness.

#[tokio::test]
async fn heads_out_of_bounds_get_the_envelope() {
    let server = server(quick(), plain).await;
    let megabyte = "x".repeat(1 << 20);
    let many: String = (0..10_000).map(|index| format!("X-{index}: 1\r\n")).collect();
    let some: String = (0..101).map(|index| format!("X-{index}: 1\r\n")).collect();
    let cases = [
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {megabyte}\r\n\r\n"), (431, "head_too_large")),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", &megabyte[..40_000]), (431, "head_too_large")),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), (431, "head_too_large")),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{some}\r\n"), (431, "head_too_large")),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", megabyte.repeat(10)), (414, "path_too_long")),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", &megabyte[..40_000]), (414, "path_too_long")),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", &megabyte[..9_000]), (414, "path_too_long")),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n".into(), (400, "bad_head")),
        ("\u{1}\u{2}\u{3}\r\n\r\n".into(), (400, "bad_head")),
    ];
    for (request, (status, expected)) in cases {
        let mut client = server.client().await;
        client.send(&request).await;
        let response = client.response().await;
        assert_eq!(code(&response), (status, expected.into()), "{}", &request[..40.min(request.len())]);
        assert!(client.is_closed().await);
    }
    assert_eq!(server.client().await.get("/").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_is_sent() {
    let server = server(quick(), plain).await;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut client = server.client().await;
        client
            .send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{expect}Content-Length: 1073741824\r\n\r\n"))
            .await;
        let response = client.response().await;
        assert_eq!(code(&response), (413, "body_too_large".into()));
        assert!(response.json()["error"]["message"].as_str().unwrap().contains("1000 bytes"));
        assert!(client.is_closed().await);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client
        .send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    for _ in 0..30 {
        client.send(format!("64\r\n{}\r\n", " ".repeat(100))).await;
    }
    assert_eq!(code(&client.response().await), (413, "body_too_large".into()));
    server.stop().await;
}

#[tokio::test]
async fn a_slow_body_and_a_slow_head_time_out() {
    let config = Config {
        pace: Pace { grace: Duration::from_millis(150), bytes_per_s: 1000 },
        head_timeout: Duration::from_millis(150),
        ..quick()
    };
    let server = server(config, plain).await;
    let mut body = server.client().await;
    body.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n",
    )
    .await;
    for _ in 0..4 {
        body.send(" ").await;
        sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(code(&body.response().await), (408, "request_timeout".into()));
    assert!(body.is_closed().await);

    let mut head = server.client().await;
    head.send("GET / HTTP/1.1\r\nHost: ").await;
    assert_eq!(code(&head.response().await), (408, "request_timeout".into()));
    assert!(head.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn a_slow_answer_does_not_time_out_the_next_head() {
    let config = Config { head_timeout: Duration::from_millis(500), ..quick() };
    let server = server(config, |exchange| {
        Box::pin(async move {
            let response = plain(exchange).await;
            sleep(Duration::from_millis(800)).await;
            response
        })
    })
    .await;
    let mut client = server.client().await;
    // The second head's beginning arrives while the first answer is awaited.
    client.send(format!("{}POST /echo HTT", post("/echo", "[1]"))).await;
    assert_eq!(client.response().await.text(), "[1]");
    client.send(&post("/echo", "[2]")["POST /echo HTT".len()..]).await;
    assert_eq!(client.response().await.text(), "[2]");
    server.stop().await;
}

#[tokio::test]
async fn encodings_and_types_other_than_plain_json_are_refused() {
    let server = server(quick(), plain).await;
    let send = async |headers: &str| {
        let mut client = server.client().await;
        client
            .send(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: 2\r\n\r\n{{}}"))
            .await;
        let response = client.response().await;
        if response.status == 200 { (200, String::new()) } else { code(&response) }
    };
    let unsupported = |code: &str| (415, code.to_owned());
    assert_eq!(
        send("Content-Type: application/json\r\nContent-Encoding: gzip\r\n").await,
        unsupported("unsupported_encoding")
    );
    assert_eq!(send("Content-Type: text/plain\r\n").await, unsupported("unsupported_media_type"));
    assert_eq!(send("").await, unsupported("unsupported_media_type"));
    assert_eq!(send("Content-Type: application/jsonx\r\n").await, unsupported("unsupported_media_type"));
    assert_eq!(
        send("Content-Type: Application/JSON; charset=utf-8\r\nContent-Encoding: identity\r\n").await.0,
        200
    );
    server.stop().await;
}

#[tokio::test]
async fn expect_100_continue_is_answered_when_the_body_is_wanted() {
    let server = server(quick(), plain).await;
    let mut client = server.client().await;
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    assert_eq!(client.response().await.status, 100);
    client.send("[7]").await;
    assert_eq!(client.response().await.text(), "[7]");
    server.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = server(Config { connections_max: 2, ..quick() }, plain).await;
    let mut first = server.client().await;
    let mut second = server.client().await;
    assert_eq!((first.get("/").await.status, second.get("/").await.status), (200, 200));
    let mut third = server.client().await;
    let response = third.response().await;
    assert_eq!(code(&response), (503, "unavailable".into()));
    assert_eq!(response.header("retry-after"), Some("1"));
    drop(first);
    eventually("a place comes free", async || server.client().await.get("/").await.status == 200).await;
    server.stop().await;
}

// Stamps.

#[tokio::test]
async fn a_request_begins_with_its_first_byte_also_on_a_kept_alive_connection() {
    let (sender, mut stamps) = mpsc::unbounded_channel();
    let server = server(quick(), move |exchange| {
        sender.send((exchange.first_byte, now_ns())).unwrap();
        plain(exchange)
    })
    .await;
    let mut client = server.client().await;
    for round in 0..3 {
        sleep(Duration::from_millis(30)).await;
        let before = now_ns();
        client.send("POST /ec").await;
        sleep(Duration::from_millis(40)).await;
        let after = now_ns();
        client.send(&post("/echo", "[1]")["POST /ec".len()..]).await;
        assert_eq!(client.response().await.text(), "[1]");
        let (first_byte, handled) = stamps.recv().await.unwrap();
        assert!((before..after).contains(&first_byte), "round {round}: {before} {first_byte} {after}");
        assert!(handled >= after, "the head was complete only then");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_request_sent_during_the_answer_before_it_begins_when_it_was_sent() {
    let (sender, mut stamps) = mpsc::unbounded_channel();
    let server = server(quick(), move |exchange| {
        sender.send((exchange.first_byte, now_ns())).unwrap();
        Box::pin(async move {
            let response = plain(exchange).await;
            sleep(Duration::from_millis(300)).await;
            response
        })
    })
    .await;
    let mut client = server.client().await;
    client.send(post("/echo", "[1]")).await;
    sleep(Duration::from_millis(30)).await;
    let before = now_ns();
    client.send(post("/echo", "[2]")).await;
    assert_eq!(client.response().await.text(), "[1]");
    assert_eq!(client.response().await.text(), "[2]");
    stamps.recv().await.unwrap();
    let (first_byte, handled) = stamps.recv().await.unwrap();
    assert!(first_byte >= before);
    assert!(
        handled - first_byte > 40_000_000,
        "it waited for the answer before it: {}",
        handled - first_byte
    );
    server.stop().await;
}

// Deliveries.

#[tokio::test]
async fn each_frame_is_delivered_when_the_client_can_have_it() {
    let (news, mut heard) = mpsc::unbounded_channel();
    let server = server(quick(), move |_| {
        let news = news.clone();
        Box::pin(async move {
            let (frames, body) = frames::stream(Duration::from_secs(10));
            tokio::spawn(async move {
                for number in 1..=5u64 {
                    sleep(Duration::from_millis(20)).await;
                    let sent = now_ns();
                    let frame = match number {
                        5 => frames.finish(Bytes::from("last")).await,
                        _ => frames.send(Bytes::from("some")).await,
                    };
                    assert_eq!(frame, Ok(number));
                    news.send((number, sent, frames.delivered().await.unwrap(), now_ns())).unwrap();
                }
                assert_eq!(frames.delivered().await, Err(Gone), "nothing follows the last frame");
            });
            Response::new(body)
        })
    })
    .await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.response().await;
    for expected in 1..=5 {
        let (number, sent, delivery, heard_at) = heard.recv().await.unwrap();
        assert_eq!((number, delivery.through), (expected, expected));
        assert!(sent <= delivery.at && delivery.at <= heard_at, "{sent} {} {heard_at}", delivery.at);
    }
    server.stop().await;
}

/// F85.
#[tokio::test]
async fn a_client_that_does_not_read_stops_its_sender_and_loses_nothing() {
    const FRAME: usize = 64 << 10;
    const FRAMES: u64 = 400;
    let sent = Arc::new(AtomicUsize::new(0));
    let delivered = Arc::new(AtomicUsize::new(0));
    let (counting, counted) = (Arc::clone(&sent), Arc::clone(&delivered));
    let server = server(quick(), move |_| {
        let (sent, delivered) = (Arc::clone(&counting), Arc::clone(&counted));
        Box::pin(async move {
            let (frames, body) = frames::stream(Duration::from_secs(10));
            tokio::spawn(async move {
                let sending = async {
                    for number in 1..=FRAMES {
                        let bytes = Bytes::from(vec![b'x'; FRAME]);
                        if number == FRAMES { frames.finish(bytes).await } else { frames.send(bytes).await }
                            .unwrap();
                        sent.store(number as usize, Ordering::SeqCst);
                    }
                };
                let hearing = async {
                    while let Ok(delivery) = frames.delivered().await {
                        delivered.store(delivery.through as usize, Ordering::SeqCst);
                    }
                };
                tokio::join!(sending, hearing);
            });
            Response::new(body)
        })
    })
    .await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    sleep(Duration::from_millis(300)).await;
    let stuck = (sent.load(Ordering::SeqCst), delivered.load(Ordering::SeqCst));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(stuck, (sent.load(Ordering::SeqCst), delivered.load(Ordering::SeqCst)), "nothing moves");
    assert!(stuck.0 < FRAMES as usize, "the sender had to stop, but sent {}", stuck.0);
    assert!(stuck.0 - stuck.1 <= CAPACITY + 17, "{stuck:?}: no more than channel and write buffer hold");
    assert_eq!(client.response().await.body.len(), FRAME * FRAMES as usize);
    eventually("all are delivered", async || delivered.load(Ordering::SeqCst) == FRAMES as usize).await;
    server.stop().await;
}

/// F04.
#[tokio::test]
async fn a_silent_stream_says_that_it_lives_between_frames_only() {
    let server = server(quick(), |_| {
        Box::pin(async move {
            let (frames, body) = frames::stream(Duration::from_millis(50));
            tokio::spawn(async move {
                sleep(Duration::from_millis(230)).await;
                for number in 1..=2 {
                    frames.send(Bytes::from(format!("data: {number}\n\n"))).await.unwrap();
                    assert_eq!(frames.delivered().await.unwrap().through, number, "comments are no frames");
                    sleep(Duration::from_millis(120)).await;
                }
                frames.finish(Bytes::from("data: [DONE]\n\n")).await
            });
            Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
        })
    })
    .await;
    let mut client = server.client().await;
    let asked = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let recording = sse::record(&mut client).await;
    assert_eq!(
        recording.events.iter().map(|event| event.data.as_str()).collect::<Vec<_>>(),
        ["1", "2", "[DONE]"]
    );
    // Timers of a busy machine come late, never early.
    let most = asked.elapsed().as_millis() as usize / 50 + 1;
    assert!((2..=most).contains(&recording.comments), "{} comments, at most {most}", recording.comments);
    assert!(recording.raw.starts_with(b": "), "the first comes before the first frame");
    assert!(recording.events[0].at - asked >= Duration::from_millis(200));
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let server = server(quick(), |_| {
        Box::pin(async move {
            let (frames, body) = frames::stream(Duration::from_secs(10));
            tokio::spawn(async move { frames.send(Bytes::from("data: half\n\n")).await });
            Response::new(body)
        })
    })
    .await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.head().await.chunked);
    let rest = client.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{:?}", String::from_utf8_lossy(&rest));
    server.stop().await;
}

// F49: clients that go away.

/// Far below any timeout, and above what a busy machine needs to run two tasks.
const KNOWN_AT_ONCE: Duration = Duration::from_millis(1000);

/// Serves an answer that never comes (or a stream that never ends), and reports how long after `leave` it was known
/// that nobody waits any more.
async fn until_known_gone(streamed: bool, leave: impl AsyncFnOnce(RawClient)) -> Duration {
    let (news, mut heard) = mpsc::unbounded_channel();
    let server = server(quick(), move |mut exchange| {
        let news = news.clone();
        Box::pin(async move {
            exchange.read_json(&Limits::default()).await.unwrap();
            let clock = Arc::clone(&exchange.clock);
            let (frames, body) = frames::stream(Duration::from_millis(100));
            tokio::spawn(async move {
                news.send("began").unwrap();
                if streamed {
                    while frames.delivered().await.is_ok() {}
                } else {
                    clock.gone().await;
                }
                news.send("gone").unwrap();
            });
            if !streamed {
                std::future::pending::<()>().await;
            }
            Response::new(body)
        })
    })
    .await;
    let mut client = server.client().await;
    client.send(post("/", "{}")).await;
    assert_eq!(heard.recv().await, Some("began"));
    sleep(Duration::from_millis(50)).await;
    assert!(heard.try_recv().is_err(), "it is still awaited");
    let left = Instant::now();
    leave(client).await;
    assert_eq!(timeout(Duration::from_secs(5), heard.recv()).await.unwrap(), Some("gone"));
    let known = left.elapsed();
    server.stop().await;
    known
}

#[tokio::test]
async fn a_client_that_closes_or_resets_is_gone_at_once() {
    for streamed in [true, false] {
        let closed = until_known_gone(streamed, async |client| drop(client)).await;
        let reset = until_known_gone(streamed, async |client| client.reset()).await;
        for known in [closed, reset] {
            assert!(known < KNOWN_AT_ONCE, "streamed {streamed}: {known:?}");
        }
    }
}

#[tokio::test]
async fn a_half_closed_connection_is_taken_as_closed() {
    use tokio::io::AsyncWriteExt;
    for streamed in [true, false] {
        let mut kept = None;
        let known = until_known_gone(streamed, async |mut client: RawClient| {
            client.stream.shutdown().await.unwrap();
            kept = Some(client);
        })
        .await;
        assert!(known < KNOWN_AT_ONCE, "streamed {streamed}: {known:?}");
    }
}

// F56: shutdown.

#[tokio::test]
async fn a_drain_lets_running_answers_end_and_closes_idle_connections() {
    let server = server(quick(), |exchange| {
        Box::pin(async move {
            if exchange.head.uri.path() == "/slow" {
                sleep(Duration::from_millis(300)).await;
            }
            plain(exchange).await
        })
    })
    .await;
    let mut idle = server.client().await;
    assert_eq!(idle.get("/").await.status, 200);
    let mut running = server.client().await;
    running.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    sleep(Duration::from_millis(150)).await;

    server.drain.advance(Phase::Draining);
    assert!(
        timeout(Duration::from_secs(2), idle.is_closed()).await.unwrap(),
        "idle connections are closed at once"
    );
    let mut newcomer = server.client().await;
    let response = newcomer.get("/").await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));

    let response = running.response().await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    drop((idle, running, newcomer));
    timeout(Duration::from_secs(2), server.running).await.expect("it ends when all have ended").unwrap();
}

#[tokio::test]
async fn a_drain_ends_at_its_limit() {
    let server = server(Config { drain_limit: Duration::from_millis(100), ..quick() }, |_| {
        Box::pin(std::future::pending())
    })
    .await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    sleep(Duration::from_millis(50)).await;
    server.drain.advance(Phase::Draining);
    timeout(Duration::from_secs(3), server.running).await.expect("the limit holds").unwrap();
    assert_eq!(server.drain.phase(), Phase::Ending);
}

#[tokio::test]
async fn a_panic_in_a_handler_ends_its_connection_only() {
    let server = server(quick(), |exchange| {
        Box::pin(async move {
            assert_ne!(exchange.head.uri.path(), "/panic", "a test's panic");
            plain(exchange).await
        })
    })
    .await;
    let mut client = server.client().await;
    client.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.is_closed().await);
    assert_eq!(server.client().await.get("/").await.status, 200);
    server.stop().await;
}
