//! Both formats' bytes, checked as a client reads them.

use ledger::RequestId;
use protocol::{Finish, Refusal, RefusalKind};
use serde_json::{Value, json};

use super::Format;
use crate::wire::{Alternative, Choice, Delta, Ending, Head, Piece, Usage, Wire};

fn wire(format: Format, include_usage: bool, logprobs: bool) -> Box<dyn Wire> {
    let head = Head { id: RequestId(1), model: "m".into(), created: 7, choices: 2, include_usage, logprobs };
    format.wire(head)
}

const USAGE: Usage = Usage { prompt_tokens: 10, cached_tokens: 4, completion_tokens: 3 };
const ENDING: Ending<'static> = Ending { usage: USAGE, lifecycle: None };

fn frames(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    let events = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    events
        .map(|data| if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).unwrap() })
        .collect()
}

fn delta(choice: usize, text: &str, pieces: Vec<Piece>, finish: Option<Finish>) -> Delta {
    Delta { choice, text: text.into(), pieces, finish }
}

fn piece(bytes: &[u8], logprob: f32, top: &[(&[u8], f32)]) -> Piece {
    let top = top.iter().map(|(bytes, logprob)| Alternative { bytes: bytes.to_vec(), logprob: *logprob });
    Piece { bytes: bytes.to_vec(), logprob, top: top.collect() }
}

/// F02.
#[test]
fn chat_chunks_carry_the_role_first_and_one_finish_reason_per_choice() {
    let mut wire = wire(Format::Chat, false, false);
    let mut all = Vec::new();
    for choice in 0..2 {
        all.extend(frames(&wire.opening(choice)));
    }
    all.extend(frames(&wire.delta(&delta(0, "a", vec![], None))));
    all.extend(frames(&wire.delta(&delta(1, "b", vec![], Some(Finish::Length)))));
    all.extend(frames(&wire.delta(&delta(0, "", vec![], Some(Finish::Stop)))));
    all.extend(frames(&wire.ending(&ENDING)));
    assert_eq!(all.pop().unwrap(), "[DONE]");

    let chunk = |choice: Value| json!({"id": "req-0000000000000001", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]});
    let choice = |index: usize, delta: Value, finish: Value| {
        chunk(json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish}))
    };
    assert_eq!(
        all,
        [
            choice(0, json!({"role": "assistant", "content": ""}), json!(null)),
            choice(1, json!({"role": "assistant", "content": ""}), json!(null)),
            choice(0, json!({"content": "a"}), json!(null)),
            choice(1, json!({"content": "b"}), json!(null)),
            choice(1, json!({}), json!("length")),
            choice(0, json!({}), json!("stop")),
        ]
    );
}

/// F01.
#[test]
fn usage_comes_once_in_its_own_last_chunk_and_only_when_asked_for() {
    for format in [Format::Chat, Format::Completions] {
        for asked in [true, false] {
            let mut wire = wire(format, asked, false);
            let content = frames(&wire.delta(&delta(0, "a", vec![], None)));
            assert_eq!(content[0].get("usage"), asked.then_some(&Value::Null), "{}", content[0]);
            let end = frames(&wire.ending(&ENDING));
            if asked {
                let usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 4}});
                assert_eq!((&end[0]["choices"], &end[0]["usage"]), (&json!([]), &usage));
            }
            assert_eq!(end.len(), if asked { 2 } else { 1 });
            assert_eq!(end.last().unwrap(), "[DONE]");
        }
    }
}

/// F06.
#[test]
fn a_failure_in_a_stream_is_one_error_frame_and_the_end_mark() {
    for format in [Format::Chat, Format::Completions] {
        let frames =
            frames(&wire(format, true, false).failure(&Refusal::new(RefusalKind::Internal, "secret")));
        assert_eq!(frames.len(), 2);
        let error = &frames[0]["error"];
        assert!(
            error["message"].is_string() && error["type"].is_string() && error["code"].is_string(),
            "{error}"
        );
        assert!(!error.to_string().contains("secret"));
        assert_eq!(frames[1], "[DONE]");
    }
}

/// F39, F41.
#[test]
fn chat_logprobs_are_a_list_with_true_bytes() {
    let mut wire = wire(Format::Chat, false, true);
    let pieces = vec![
        piece(b" \xf0\x9f", -0.5, &[(b" \xf0\x9f", -0.5), (b"x", -1.5)]),
        piece(b"\x98\x80", f32::NEG_INFINITY, &[]),
    ];
    let frames = frames(&wire.delta(&delta(0, " 😀", pieces, None)));
    let expected = json!({"content": [
        {"token": " \\xf0\\x9f", "logprob": -0.5, "bytes": [32, 240, 159], "top_logprobs": [
            {"token": " \\xf0\\x9f", "logprob": -0.5, "bytes": [32, 240, 159]},
            {"token": "x", "logprob": -1.5, "bytes": [120]},
        ]},
        {"token": "\\x98\\x80", "logprob": -9999.0, "bytes": [152, 128], "top_logprobs": []},
    ], "refusal": null});
    assert_eq!(frames[0]["choices"][0]["logprobs"], expected);
    let bytes: Vec<u8> = expected["content"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|entry| entry["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), " 😀");
}

/// F41.
#[test]
fn completions_logprobs_are_four_parallel_arrays_whose_offsets_go_on_from_frame_to_frame() {
    let mut wire = wire(Format::Completions, false, true);
    assert!(wire.opening(0).is_empty());
    let parts = [
        delta(0, "é!", vec![piece("é".as_bytes(), -1.0, &[]), piece(b"!", -2.0, &[(b"?", -0.5)])], None),
        // A character over three tokens, the last of which begins another; such tokens leave together.
        delta(
            0,
            "😀aé",
            vec![
                piece(b"\xf0\x9f", -1.0, &[]),
                piece(b"\x98", -1.0, &[]),
                piece(b"\x80a", -1.0, &[]),
                piece("é".as_bytes(), -1.0, &[]),
            ],
            Some(Finish::Stop),
        ),
    ];
    let streamed: Vec<Value> = parts.iter().flat_map(|part| frames(&wire.delta(part))).collect();
    let logprobs = |frame: usize| streamed[frame]["choices"][0]["logprobs"].clone();
    assert_eq!(
        logprobs(0),
        json!({"tokens": ["é", "!"], "token_logprobs": [-1.0, -2.0], "top_logprobs": [{"é": -1.0}, {"?": -0.5, "!": -2.0}], "text_offset": [0, 1]})
    );
    assert_eq!(logprobs(1)["text_offset"], json!([2, 2, 2, 4]));
    assert_eq!((&streamed[2]["choices"][0]["finish_reason"], &logprobs(2)), (&json!("stop"), &Value::Null));

    let mut whole = Choice::default();
    parts.into_iter().for_each(|part| whole.push(part));
    let body: Value = serde_json::from_slice(&wire.whole(&[whole], &ENDING)).unwrap();
    let choice = &body["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("é!😀aé"), &json!("stop")));
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1, 2, 2, 2, 4]));
    assert_eq!(body["object"], "text_completion");
}

#[test]
fn an_echo_moves_the_offsets() {
    let mut wire = wire(Format::Completions, false, true);
    wire.delta(&delta(1, "prompt", vec![], None));
    let frames = frames(&wire.delta(&delta(1, "x", vec![piece(b"x", -1.0, &[])], None)));
    assert_eq!(frames[0]["choices"][0]["logprobs"]["text_offset"], json!([6]));
}

#[test]
fn a_whole_chat_has_messages_and_usage() {
    let mut wire = wire(Format::Chat, false, false);
    let choices = [
        Choice { text: "a".into(), pieces: vec![], finish: Some(Finish::Stop) },
        Choice { text: "b".into(), pieces: vec![], finish: Some(Finish::Length) },
    ];
    let body: Value = serde_json::from_slice(&wire.whole(&choices, &ENDING)).unwrap();
    let choice = |index: usize, text: &str, finish: &str| json!({"index": index, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": finish});
    assert_eq!(body["choices"], json!([choice(0, "a", "stop"), choice(1, "b", "length")]));
    assert_eq!((&body["object"], &body["usage"]["total_tokens"]), (&json!("chat.completion"), &json!(13)));
}
