//! A server that answers by a script: known delays, known frames, known faults. It runs on threads of its own and reads
//! each request whole.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// What an answer is made of.
pub enum Step {
    /// Sleeps until so long after the request was read.
    At(Duration),
    /// Writes these bytes as one chunk of the body.
    Frame(String),
    /// Writes these bytes as they are, chunked framing included.
    Raw(Vec<u8>),
    /// Does something of the test's own, such as keeping the time.
    Do(Box<dyn FnOnce() + Send>),
    /// Closes the connection here.
    Close,
}

/// `data:` frame of a chat's token.
pub fn token(text: &str) -> Step {
    frame(
        &serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }),
    )
}

pub fn frame(json: &Value) -> Step {
    Step::Frame(format!("data: {json}\n\n"))
}

pub fn role() -> Step {
    frame(
        &serde_json::json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": null }] }),
    )
}

pub fn finish(reason: &str) -> Step {
    frame(&serde_json::json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }))
}

pub fn usage(prompt: u32, output: u32) -> Step {
    frame(&serde_json::json!({ "choices": [], "usage": {
        "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output } }))
}

pub fn done() -> Step {
    Step::Frame("data: [DONE]\n\n".to_owned())
}

pub fn at(ms: u64) -> Step {
    Step::At(Duration::from_millis(ms))
}

type Script = dyn Fn(usize, &Value) -> Vec<Step> + Send + Sync;

pub struct Mock {
    pub url: String,
}

impl Mock {
    /// Answers request number `n` with body `json` by `script(n, json)`.
    pub fn start(script: impl Fn(usize, &Value) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Mock::start_at(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    pub fn start_at(
        listener: TcpListener,
        script: impl Fn(usize, &Value) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (script, count): (Arc<Script>, _) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, count) = (Arc::clone(&script), Arc::clone(&count));
                thread::spawn(move || serve(stream, &*script, &count));
            }
        });
        Mock { url }
    }
}

fn serve(stream: TcpStream, script: &Script, count: &AtomicUsize) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let began = Instant::now();
        let number = count.fetch_add(1, Ordering::SeqCst);
        let steps = script(number, &serde_json::from_slice(&body).ok()?);
        let raw = matches!(steps.first(), Some(Step::Raw(_)));
        if !raw {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
        }
        for step in steps {
            match step {
                Step::At(moment) => sleep_until(began + moment),
                Step::Frame(text) => write!(stream, "{:x}\r\n{text}\r\n", text.len()).ok()?,
                Step::Raw(bytes) => stream.write_all(&bytes).ok()?,
                Step::Do(act) => act(),
                Step::Close => return None,
            }
        }
        if !raw {
            stream.write_all(b"0\r\n\r\n").ok()?;
        }
    }
}

/// Sleeps most of the way and spins the rest, so that the delays are what they say.
fn sleep_until(moment: Instant) {
    let spin = Duration::from_micros(80);
    if let Some(left) = moment.checked_duration_since(Instant::now() + spin) {
        thread::sleep(left);
    }
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
}
