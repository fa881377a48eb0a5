//! The worst cases once more in a process of its own, with a limit on memory and time.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use models::testing::{Datum, tiny_model};

use crate::{TemporaryFile, load};

const FILE: &str = "FIRSTLIGHT_TEST_HOSTILE_FILE";
const MEMORY_KIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(10);

/// Run by the other tests as a child. It says what became of the file.
#[test]
#[ignore = "is the child of the tests in this module"]
fn child() {
    let path = std::env::var_os(FILE).expect("the parent names a file");
    match load(path.as_ref()) {
        Ok(()) => println!("accepted"),
        Err(message) => println!("refused: {message}"),
    }
}

/// Loads the file in a child that has 1 GiB of address space and 10 s, and returns what it said.
#[track_caller]
fn load_apart(bytes: &[u8]) -> String {
    let file = TemporaryFile::of(bytes);
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("a test knows its own path"))
        .args(["--exact", "process::child", "--ignored", "--nocapture"])
        .env(FILE, &file.0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell is there");
    let started = Instant::now();
    while child.try_wait().expect("the child can be asked").is_none() {
        if started.elapsed() > LIMIT {
            child.kill().expect("the child can be stopped");
            panic!("the child took more than {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("the child has ended");
    assert!(output.status.success(), "the child died: {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_whole_file_is_accepted_within_the_limits() {
    let said = load_apart(tiny_model("llama").build().bytes());
    assert!(said.contains("accepted"), "{said}");
}

#[test]
fn huge_claims_are_refused_within_the_limits() {
    let whole = tiny_model("llama").build();
    let huge = (1u64 << 40).to_le_bytes();
    for field in
        ["tensors", "keys", "general.name/value", "token_embd.weight/dimension-1", "token_embd.weight/offset"]
    {
        let said = load_apart(whole.clone().overwrite(field, &huge).bytes());
        assert!(said.contains("refused"), "{field}: {said}");
    }
    for kind in [0u32, 8, 9] {
        let payload = [kind.to_le_bytes().to_vec(), huge.to_vec()].concat();
        let file = tiny_model("llama").set("general.array", Datum::Raw { kind: 9, payload });
        let said = load_apart(file.build().bytes());
        assert!(said.contains("refused") && said.contains("general.array"), "{said}");
    }
    for key in ["llama.block_count", "llama.context_length", "llama.attention.head_count"] {
        let said = load_apart(tiny_model("llama").set(key, Datum::U32(1 << 31)).build().bytes());
        assert!(said.contains("refused") && said.contains(key), "{said}");
    }
}

#[test]
fn a_context_as_long_as_allowed_costs_nothing_until_it_is_used() {
    let file = tiny_model("llama").set("llama.context_length", Datum::U32(1 << 24));
    let said = load_apart(file.build().bytes());
    assert!(said.contains("accepted"), "{said}");
}
