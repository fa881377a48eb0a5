//! Calls from files.

use std::io::Write;
use std::sync::Arc;

use load::adapter::Endpoint;
use load::schedule::{Call, CallId, Prompt, Said, Workload};
use load::workload::{Setting, Spec, Summary};
use tempfile::NamedTempFile;

use crate::support::{calls, setting, text};

fn written(lines: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file
}

fn open(file: &NamedTempFile, options: &str, endpoint: Endpoint) -> anyhow::Result<Arc<dyn Workload>> {
    let spec = Spec::parse(&format!("file:{}{options}", file.path().display()))?;
    spec.build(&Setting { endpoint, ..setting(1) })
}

fn chat(messages: &[(&str, &str)]) -> Prompt {
    let said = |(role, text): &(&str, &str)| Said::Message { role: (*role).into(), content: (*text).into() };
    Prompt::Chat(messages.iter().map(said).collect())
}

#[track_caller]
fn check(line: &str, options: &str, endpoint: Endpoint, prompt: Prompt, max_tokens: u32) {
    let file = written(line);
    let workload = open(&file, options, endpoint).unwrap();
    let expected = Call {
        id: CallId(0),
        prompt_tokens: if let Prompt::Tokens(ids) = &prompt { Some(ids.len() as u32) } else { None },
        prompt,
        max_tokens,
        ignore_eos: false,
        after: Vec::new(),
        session: None,
    };
    assert_eq!(calls(&*workload, 5), [expected]);
}

#[test]
fn openai_requests_are_sent_as_they_are() {
    let line = r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Grüße 👋"}],"max_tokens":7}"#;
    let expected = chat(&[("system", "Be brief."), ("user", "Grüße 👋")]);
    check(line, "", Endpoint::Chat, expected.clone(), 7);
    // A mark of UTF-8, Windows' line ends and blank lines change nothing.
    check(&format!("\u{feff}{line}\r\n\r\n"), ",out=99", Endpoint::Chat, expected.clone(), 7);
    let batch = format!(r#"{{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{line}}}"#);
    check(&batch, "", Endpoint::Chat, expected, 7);
    let parts = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a "},{"type":"text","text":"b"}]}],"max_completion_tokens":3}"#;
    check(parts, "", Endpoint::Chat, chat(&[("user", "a b")]), 3);
}

#[test]
fn raw_prompts_go_to_either_endpoint_and_token_ids_to_one() {
    let line = r#"{"prompt":"Once upon"}"#;
    check(line, ",out=9", Endpoint::Completions, Prompt::Text("Once upon".into()), 9);
    check(line, ",out=9", Endpoint::Chat, chat(&[("user", "Once upon")]), 9);
    let ids = r#"{"prompt":[1,2,30000],"max_tokens":4}"#;
    check(ids, "", Endpoint::Completions, Prompt::Tokens(Arc::from([1, 2, 30000])), 4);
}

#[test]
fn a_sharegpt_conversation_is_sent_up_to_what_a_human_said() {
    let line = r#"{"id":"x","conversations":[{"from":"human","value":"A"},{"from":"gpt","value":"B"},{"from":"human","value":"C"},{"from":"gpt","value":"D"}]}"#;
    let last = chat(&[("user", "A"), ("assistant", "B"), ("user", "C")]);
    check(line, ",out=9", Endpoint::Chat, last, 9);
    check(line, ",out=9,turns=first", Endpoint::Chat, chat(&[("user", "A")]), 9);
}

#[test]
fn answer_lengths_that_no_line_gives_are_drawn_from_the_seed() {
    let file = written(
        &r#"{"prompt":"x"}
"#
        .repeat(50),
    );
    let lengths = |workload: Arc<dyn Workload>| -> Vec<u32> {
        calls(&*workload, 50).iter().map(|call| call.max_tokens).collect()
    };
    let one = lengths(open(&file, ",out=uniform(16..128)", Endpoint::Chat).unwrap());
    assert_eq!(one, lengths(open(&file, ",out=uniform(16..128)", Endpoint::Chat).unwrap()));
    assert!(one.iter().collect::<std::collections::HashSet<_>>().len() > 20);
}

const MANY: u64 = 40;

fn many() -> NamedTempFile {
    written(&(0..MANY).map(|at| format!("{{\"prompt\":\"p{at}\",\"max_tokens\":1}}\n")).collect::<String>())
}

fn texts(workload: &dyn Workload, count: u64) -> Vec<String> {
    calls(workload, count).iter().map(|call| text(call).to_owned()).collect()
}

#[test]
fn a_file_ends_unless_it_is_to_be_repeated() {
    let file = many();
    let once = open(&file, "", Endpoint::Chat).unwrap();
    assert_eq!((once.len(), calls(&*once, 1000).len()), (Some(MANY), 40));
    let thrice = open(&file, ",repeat=3", Endpoint::Chat).unwrap();
    assert_eq!(thrice.len(), Some(3 * MANY));
    let all = texts(&*thrice, 1000);
    assert_eq!(all.len(), 120);
    assert_eq!(all[..40], all[40..80]);
    assert_eq!(Summary::of(&*thrice, 1000).totals().distinct_prompts, MANY);
    let forever = open(&file, ",repeat=forever", Endpoint::Chat).unwrap();
    assert_eq!(forever.len(), None);
    assert_eq!(text(&forever.call(CallId(MANY * 1_000_000 + 3)).unwrap()), "p3");
}

#[test]
fn a_shuffle_is_a_permutation_that_comes_again_with_its_seed() {
    let file = many();
    let plain = texts(&*open(&file, "", Endpoint::Chat).unwrap(), 100);
    let shuffled = texts(&*open(&file, ",shuffle=yes", Endpoint::Chat).unwrap(), 100);
    assert_eq!(shuffled, texts(&*open(&file, ",shuffle=yes", Endpoint::Chat).unwrap(), 100));
    assert_ne!(shuffled, plain);
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    assert_eq!(sorted(shuffled), sorted(plain));
}

#[test]
fn prompts_that_come_twice_are_told() {
    let file = written("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"a\"}\n");
    let shown = open(&file, ",out=5", Endpoint::Chat).unwrap().describe();
    assert!(shown.ends_with(",out=5 (3 lines, 2 distinct prompts)"), "{shown}");
}

#[track_caller]
fn refuse(line: &str, endpoint: Endpoint, expected: &str) {
    let file = written(&format!("{{\"prompt\":\"good\",\"max_tokens\":1}}\n\n{line}\n"));
    let told = open(&file, "", endpoint).err().unwrap().to_string();
    assert!(told.contains(&format!("line 3: {expected}")), "{told}");
    let skipped = open(&file, ",bad=skip", endpoint).unwrap();
    assert_eq!(calls(&*skipped, 5).len(), 1);
    assert!(skipped.describe().contains("1 bad lines left out"), "{}", skipped.describe());
}

#[test]
fn a_bad_line_is_refused_by_its_number_and_reason() {
    for (line, expected) in [
        ("{\"prompt\": oops}", "not JSON: expected value at line 1 column 12"),
        ("\"text\"", "not a JSON object"),
        ("{}", "has none of `messages`, `prompt` and `conversations`"),
        (r#"{"prompt":"a","messages":[]}"#, "has more than one of"),
        (r#"{"prompt":"a"}"#, "gives no `max_tokens`; `out=` gives one"),
        (r#"{"prompt":"","max_tokens":1}"#, "`prompt` is empty"),
        (r#"{"prompt":7,"max_tokens":1}"#, "`prompt` must be a text or an array of token ids"),
        (
            r#"{"prompt":"a","max_tokens":0}"#,
            "`max_tokens` must be a whole number from 1 to 1048576, and is 0",
        ),
        (r#"{"prompt":"a","max_tokens":"9"}"#, "`max_tokens` must be a whole number"),
        (r#"{"prompt":[1],"max_tokens":1}"#, "`prompt` is token ids, which go to the completions endpoint"),
        (r#"{"messages":[]}"#, "`messages` is empty"),
        (r#"{"messages":[{"content":"a"}]}"#, "message 1 has no `role`"),
        (r#"{"messages":[{"role":"tool","content":"a"}]}"#, "message 1 has the role `tool`"),
        (r#"{"messages":[{"role":"user"}]}"#, "message 1: `content` must be a text"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}"#,
            "message 1: a part is of type `image_url`; only text is sent",
        ),
        (
            r#"{"messages":[{"role":"assistant","content":"","tool_calls":[{}]}]}"#,
            "message 1 has `tool_calls`, which are not sent",
        ),
        (r#"{"conversations":[]}"#, "`conversations` is empty"),
        (r#"{"conversations":[{"from":"gpt","value":"B"}]}"#, "`conversations` has no turn of a human"),
        (
            r#"{"conversations":[{"from":"gpt","value":"B"},{"from":"human","value":"C"}]}"#,
            "`conversations` begins with an answer",
        ),
        (r#"{"conversations":[{"from":"alice","value":"B"}]}"#, "turn 1 is from `alice`"),
        (r#"{"conversations":[{"from":"human"}]}"#, "turn 1 has no text in `value`"),
    ] {
        refuse(line, Endpoint::Chat, expected);
    }
    let messages = r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":1}"#;
    refuse(messages, Endpoint::Completions, "has `messages`, which go to the chat endpoint");
    refuse(
        r#"{"prompt":["a"],"max_tokens":1}"#,
        Endpoint::Completions,
        "`prompt` is an array, but not of token ids",
    );
    refuse(r#"{"prompt":[],"max_tokens":1}"#, Endpoint::Completions, "`prompt` is empty");
}

#[test]
fn of_many_bad_lines_some_are_listed_and_all_are_counted() {
    let told = open(&written(&"{}\n".repeat(30)), "", Endpoint::Chat).err().unwrap().to_string();
    assert!(told.contains("has 30 bad lines") && told.contains("line 10: "), "{told}");
    assert!(!told.contains("line 11: ") && told.ends_with("and 20 more"), "{told}");
    let none = open(&written(&"{}\n".repeat(3)), ",bad=skip", Endpoint::Chat).err().unwrap().to_string();
    assert!(none.contains("has no calls") && none.contains("line 3: has none of"), "{none}");
}

#[test]
fn a_file_that_is_one_array_is_told_how_to_become_lines() {
    for array in ["[{\"prompt\":\"a\"}]", "[\n  {\"prompt\":\"a\"}\n]\n"] {
        let told = open(&written(array), "", Endpoint::Chat).err().unwrap().to_string();
        assert!(told.contains("is one JSON array") && told.contains("jq -c"), "{told}");
    }
}

#[test]
fn a_file_that_is_not_there_or_has_a_line_without_end_is_told() {
    let told = Spec::parse("file:/nowhere.jsonl").unwrap().build(&setting(1)).err().unwrap().to_string();
    assert_eq!(told, "cannot open /nowhere.jsonl");
    let endless = written(&format!("{{\"prompt\":\"{}\"}}", "x".repeat(17 << 20)));
    let told = open(&endless, ",out=1", Endpoint::Chat).err().unwrap().to_string();
    assert!(told.contains("line 1: longer than 16777216 bytes"), "{told}");
}

#[test]
fn a_file_that_changes_during_the_run_ends_it_and_the_report_says_so() {
    let mut file = many();
    let workload = open(&file, "", Endpoint::Chat).unwrap();
    assert!(workload.call(CallId(30)).is_some());
    file.as_file_mut().set_len(100).unwrap();
    assert_eq!(workload.call(CallId(30)), None);
    assert!(
        workload.describe().contains("ended early: line 31 could not be read again"),
        "{}",
        workload.describe()
    );
}
