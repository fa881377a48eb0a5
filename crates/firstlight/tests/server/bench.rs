//! `firstlight bench` and `firstlight compare` as their users run them, against our own server.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Server;

fn firstlight(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight")).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a bench that must succeed; gives its report.
fn bench(server: &Server, folder: &Path, more: &[&str]) -> Value {
    let url = format!("http://{}", server.address);
    let folder = folder.to_str().expect("a test's folder is UTF-8");
    let mut arguments = vec!["bench", &url, "--output", folder, "--tokenizer", "smollm2-135m-instruct"];
    arguments.extend(more);
    let output = firstlight(&arguments);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let json = std::fs::read(Path::new(folder).join("report.json")).expect("there is a report");
    serde_json::from_slice(&json).expect("the report is JSON")
}

#[test]
fn a_run_sees_every_stage_of_our_server_and_two_runs_compare() {
    let server = Server::start(&[], &[]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench");
    let flags = ["--users", "2", "--requests", "12", "--workload", "synthetic:in=40,out=6"];
    let report = bench(&server, &folder.join("a"), &flags);
    let run = &report["results"][0];
    assert_eq!(
        (&run["target"]["kind"], &run["outcomes"]["finished"]),
        (&Value::from("firstlight"), &Value::from(12))
    );
    for sample in run["samples"].as_array().expect("samples") {
        assert_eq!(sample["tokens"]["output"], 6, "{sample}");
        assert_eq!(sample["tokens"]["source"], "server", "{sample}");
        let ns = |part: &str| -> u64 {
            let stages = sample["server"][part].as_array().expect("stages");
            stages.iter().map(|stage| stage[1].as_u64().expect("whole ns")).sum()
        };
        let first = sample["chunks"][0]["at_ns"].as_u64().expect("a first token");
        let seen = first - sample["sent_ns"].as_u64().expect("it was sent");
        let told = ns("to_first_token");
        // The socket's way is the difference; and the server's thread may be put aside between its write and its stamp.
        let apart = told.abs_diff(seen);
        assert!(apart < seen / 2, "the server told of {told} ns, the client saw {seen}: {sample}");
    }
    let page = std::fs::read_to_string(folder.join("a/report.html")).expect("there is a page");
    assert!(page.contains("</html>") && page.contains("prefill"), "the page is whole");
    let lines = std::fs::read_to_string(folder.join("a/calls.csv")).expect("there is a table");
    assert_eq!(lines.lines().count(), 13);

    bench(&server, &folder.join("b"), &flags);
    let paths = ["a", "b"].map(|name| folder.join(name).join("report.json"));
    let [a, b] = paths.each_ref().map(|path| path.to_str().expect("UTF-8"));
    let compared = firstlight(&["compare", a, b, "--json"]);
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    let compared: Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    assert_eq!(compared["pairing"]["pairs"], 12, "{compared}");
}

#[test]
fn a_search_names_the_load_the_objective_and_the_stage() {
    let server = Server::start(&[], &[]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-search");
    // No server answers within a microsecond, and every one within an hour, which is enough.
    let search = |slo: &str| {
        let flags =
            ["--slo", slo, "--max-load", "2", "--requests", "24", "--workload", "synthetic:in=8,out=2"];
        bench(&server, &folder, &flags)
    };
    let hopeless = search("ttft_p50<1us");
    assert_eq!(hopeless["slo"]["capacity"], Value::Null, "{}", hopeless["slo"]);
    assert_eq!(hopeless["slo"]["binds"], "ttft_p50<1us");
    let easy = search("ttft_p50<60min,errors<1%");
    assert_eq!(easy["slo"]["capacity"], 2.0, "{}", easy["slo"]);
}

#[test]
fn what_is_wrong_is_said_with_the_flag_and_what_to_do() {
    let server = Server::start(&[], &[]);
    let url = format!("http://{}", server.address);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{gone}");
    let cases: [(&[&str], &str); 8] = [
        (&[&nobody], "is the server up"),
        (&[&url, "--workload", "synthetic:in=many,out=1"], "workload"),
        (&[&url, "--slo", "speed<1"], "ttft"),
        (&[&url, "--find", "qps"], "--find needs --slo"),
        (&[&url, "--users", "1", "--rate", "poisson:1"], "exclude each other"),
        (&[&url, "--model", "no-such-model"], "no-such-model"),
        (&[&url, "--kind", "abacus"], "abacus"),
        (&["ftp://x"], "http"),
    ];
    for (arguments, expected) in cases {
        let output = firstlight(&[&["bench", "--no-files", "--requests", "1"], arguments].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn an_interrupt_ends_a_search_and_an_interrupted_run_still_reports() {
    let server = Server::start(&[], &[]);
    let url = format!("http://{}", server.address);
    let interrupted = |more: &[&str]| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_firstlight"))
            .args([&["bench", &url, "--no-files", "--workload", "synthetic:in=8,out=4"], more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(Duration::from_secs(3));
        let process = tool.id().to_string();
        assert!(Command::new("kill").args(["-INT", &process]).status().expect("kill runs").success());
        let since = Instant::now();
        while tool.try_wait().expect("its state is known").is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "{more:?}: it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        tool.wait_with_output().expect("it has ended")
    };
    // Neither ends by itself in this time: the search has to make a dozen trials, the run lasts ten minutes.
    let search = interrupted(&["--slo", "ttft_p50<60min", "--requests", "2000"]);
    let said = text(&search.stderr);
    assert!(!search.status.success() && said.contains("a search has no answer before its end"), "{said}");
    let run = interrupted(&["--users", "1", "--duration", "10m"]);
    assert!(run.status.success() && text(&run.stdout).contains("TTFT"), "{}", text(&run.stderr));
}
