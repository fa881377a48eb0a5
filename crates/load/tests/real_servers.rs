//! Adapters against servers that run. Opt-in, since it needs llama.cpp's programs (`cargo xtask peers build`) and this
//! project's own: `cargo test -p load --test real_servers -- --ignored`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ledger::Stage;
use load::adapter::detect::{PROBES, Probed, decide};
use load::adapter::{Endpoint, Form, Frame, Read, Resolved, ResolvedPrompt, of_kind};
use load::schedule::CallId;

const MODEL: &str = "smollm2-135m-instruct";
const READY: Duration = Duration::from_secs(60);
const TOKENS: u32 = 8;

/// Ends with the test.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(mut command: Command) -> Server {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        command
            .args(["--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        let server = Server { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        let start = Instant::now();
        while server.ask("GET", "/health", b"").is_none_or(|(status, _, _)| status != 200) {
            assert!(start.elapsed() < READY, "the server was not ready in time");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Status, head and body of one answer, in as much HTTP as that takes.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, String, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let head = head.to_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { joined(body) } else { body.to_owned() };
        Some((head.split(' ').nth(1)?.parse().ok()?, head, body))
    }
}

/// The body behind a chunked transfer's lengths.
fn joined(mut chunked: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunked.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        body.push_str(&rest[..length]);
        chunked = rest[length..].trim_start_matches("\r\n");
    }
    body
}

fn cache() -> PathBuf {
    Path::new(&std::env::var("HOME").unwrap()).join(".cache/firstlight")
}

fn llama_server() -> Server {
    let built = || cache().join("peers/llama.cpp-0.3.36/build/bin");
    let folder = std::env::var_os("FIRSTLIGHT_LLAMA_CPP").map_or_else(built, PathBuf::from);
    let mut command = Command::new(folder.join("llama-server"));
    let model = cache().join("models").join(format!("{MODEL}.gguf"));
    command
        .env("LD_LIBRARY_PATH", &folder)
        .arg("-m")
        .arg(model)
        .args(["-c", "4096", "-t", "2", "--alias", MODEL]);
    Server::start(command)
}

fn firstlight() -> Server {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/firstlight");
    let program = std::env::var_os("FIRSTLIGHT_BINARY").map_or_else(built, PathBuf::from);
    let mut command = Command::new(program);
    command.args(["serve", MODEL]);
    Server::start(command)
}

/// What a running server is found to be, and its answer in each form.
fn check(server: &Server, kind: &str, account: impl Fn(&Read, &[Frame])) {
    let probed = |path: &&str| {
        let (status, head, body) = server.ask("GET", path, b"").unwrap();
        let named = head.lines().find_map(|line| line.strip_prefix("server: ")).map(str::to_owned);
        Probed { path: (*path).to_owned(), status: Some(status), server: named, body }
    };
    let found = decide(&PROBES.iter().map(probed).collect::<Vec<_>>());
    assert_eq!((found.kind, found.models.as_slice()), (kind, &[MODEL.to_owned()][..]), "{}", found.evidence);
    for endpoint in [Endpoint::Chat, Endpoint::Completions] {
        for stream in [true, false] {
            let form = Form { model: MODEL.to_owned(), endpoint, stream, extra: Default::default() };
            let adapter = of_kind(found.kind, form).unwrap();
            let prompt = ResolvedPrompt::Text("Name three colours.".into());
            let written =
                adapter.write(&Resolved { id: CallId(0), prompt, max_tokens: TOKENS, ignore_eos: true });
            let (status, _, body) = server.ask("POST", &written.path, &written.body).unwrap();
            assert_eq!(status, 200, "{body}");
            let data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            let data = if stream { data } else { vec![body.as_str()] };
            let mut reader = adapter.reader();
            let frames: Vec<Frame> = data.iter().map(|data| reader.frame(data)).collect();
            let read = reader.end();
            let what = format!("{kind}, {endpoint:?}, stream {stream}: {read:?}");
            assert_eq!(
                (read.tokens.output, read.finish_reason.as_deref()),
                (Some(TOKENS), Some("length")),
                "{what}"
            );
            assert_eq!(frames.last() == Some(&Frame::Done), stream, "{what}");
            assert!(!read.text.is_empty() && read.tokens.prompt.is_some(), "{what}");
            account(&read, &frames);
        }
    }
}

fn has(stages: &[(Stage, u64)], stage: Stage) -> bool {
    stages.iter().any(|(other, ns)| *other == stage && *ns > 0)
}

#[test]
#[ignore = "needs llama.cpp's programs: cargo xtask peers build"]
fn a_real_llama_server_is_known_and_shows_prefill_and_decode() {
    check(&llama_server(), "llama.cpp", |read, frames| {
        assert!(
            has(&read.server.to_first_token, Stage::Prefill) && has(&read.server.after_it, Stage::Decode)
        );
        assert!(
            frames.iter().all(|frame| !matches!(frame, Frame::Tokens { tokens: None, .. })),
            "{frames:?}"
        );
    });
}

#[test]
#[ignore = "needs target/release/firstlight"]
fn our_real_server_is_known_and_shows_its_whole_account() {
    check(&firstlight(), "firstlight", |read, _| {
        for stage in [Stage::Accept, Stage::Tokenize, Stage::Prefill] {
            assert!(has(&read.server.to_first_token, stage), "{stage}: {read:?}");
        }
        assert!(has(&read.server.after_it, Stage::Decode), "{read:?}");
    });
}
