//! A real server on a real model, as a process of its own, and a client that sees raw bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Reads and writes of a test give up after this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// `firstlight serve` on a free port; ended when dropped.
pub struct Server {
    pub address: String,
    process: Child,
}

impl Server {
    /// Serves SmolLM2-135M-Instruct with further `flags` and environment.
    pub fn start(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let model = catalogue::require("smollm2-135m-instruct");
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
        command.arg("serve").arg(model).args(["--port", "0", "--served-model-name", "smollm2"]).args(flags);
        command.envs(environment.iter().copied()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let mut output = BufReader::new(process.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the server's output is text");
        let address = line.trim().strip_prefix("listening on http://");
        let address =
            address.unwrap_or_else(|| panic!("the server said {line:?} before it listened")).to_owned();
        Server { address, process }
    }

    /// Sends a request and reads the whole answer.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request(&self.address, method, path, body).as_bytes()).expect("the server reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the server answers");
        Answer::parse(&bytes)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("nodelay can be set");
        stream
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, None);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.json()
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body))
    }

    /// The closed account of the request that `answer` answered.
    pub fn account(&self, answer: &Answer) -> Value {
        let path = format!(
            "/v1/requests/{}/lifecycle",
            answer.header("x-request-id").expect("every answer has an id")
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            // The account is closed after the answer's last byte, which may be a moment after we read it.
            let found = self.send("GET", &path, None);
            if found.status == 200 {
                return found.json();
            }
            assert!(Instant::now() < deadline, "{path} never came: {}", found.body);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The most memory the process has held, in KiB.
    pub fn memory_peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("the system tells of its processes");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of the peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
    }

    /// Sends the process a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the process to end; gives its exit code.
    pub fn wait(mut self) -> i32 {
        let status = self.process.wait().expect("the process can be waited for");
        status.code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes of a request on a connection of its own.
pub fn request(host: &str, method: &str, path: &str, body: Option<&Value>) -> String {
    let body = body.map(Value::to_string).unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An HTTP answer, its chunks joined.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("answers are UTF-8");
        let (head, body) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not an HTTP answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { joined(body) } else { body.to_owned() };
        Answer { status, head, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// The `data:` of each server-sent event, `[DONE]` left out but required.
    pub fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "a stream ends with [DONE]: {}", self.body);
        data.into_iter().map(|json| serde_json::from_str(json).expect("events are JSON")).collect()
    }
}

fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk begins with its size");
        if size == 0 {
            assert_eq!(rest, "\r\n", "nothing follows the last chunk");
            return body;
        }
        body.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
    panic!("the last chunk is missing after {body:?}")
}

/// Nanoseconds charged to `stage` in an account.
pub fn charged(account: &Value, stage: &str) -> u64 {
    let stages = account["stages"].as_array().expect("an account has stages");
    let of_stage = stages.iter().filter(|charge| charge["stage"] == stage);
    of_stage.map(|charge| charge["ns"].as_u64().expect("ns are whole")).sum()
}

/// Asserts the identity that the ledger promises.
pub fn assert_sums(account: &Value) {
    let e2e = account["e2e_ns"].as_u64().expect("e2e_ns is whole");
    let sum = |charges: &Value| -> u64 {
        charges
            .as_array()
            .into_iter()
            .flatten()
            .map(|charge| charge["ns"].as_u64().expect("ns are whole"))
            .sum()
    };
    assert_eq!(sum(&account["stages"]), e2e, "stages sum to the whole: {account}");
    if account["tokens_dropped"] == 0 && account["tokens"].as_array().is_some_and(|units| !units.is_empty()) {
        let gaps: u64 =
            account["tokens"].as_array().into_iter().flatten().map(|unit| sum(&unit["gap"])).sum();
        assert_eq!(gaps, e2e, "gaps sum to the whole: {account}");
    }
    let origins = account["prompt"]["by_origin"].as_array().into_iter().flatten();
    let tokens: u64 = origins.map(|entry| entry["tokens"].as_u64().expect("tokens are whole")).sum();
    assert_eq!(
        tokens,
        account["prompt"]["tokens"].as_u64().unwrap_or(0),
        "origins sum to the prompt: {account}"
    );
    assert_eq!(charged(account, "unattributed"), 0, "no time is unattributed: {account}");
}
