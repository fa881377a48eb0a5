//! Adapters against answers that servers gave (tests/fixtures/README.md says which were recorded and which were made after
//! documentation), and against what field reports say that servers send.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

use ledger::Stage;
use load::adapter::detect::{PROBES, Probed, decide};
use load::adapter::{Endpoint, Form, Frame, KINDS, Read, Resolved, ResolvedPrompt, of_kind, totals};
use load::sample::{Channel, CountSource};
use load::schedule::CallId;
use serde_json::{Map, Value, json};

fn fixture(path: &str) -> String {
    std::fs::read_to_string(Path::new("tests/fixtures").join(path)).unwrap()
}

fn form(endpoint: Endpoint, stream: bool) -> Form {
    Form { model: "m".to_owned(), endpoint, stream, extra: Map::new() }
}

fn call(prompt: ResolvedPrompt) -> Resolved {
    Resolved { id: CallId(0), prompt, max_tokens: 6, ignore_eos: true }
}

fn chat() -> ResolvedPrompt {
    ResolvedPrompt::Chat(vec![("system".into(), "Be brief.".into()), ("user".into(), "Hi".into())])
}

/// Reads a recording: a stream's events, or a whole body.
fn replay(kind: &str, file: &str) -> (Vec<Frame>, Read) {
    let stream = file.ends_with(".sse");
    let text = fixture(file);
    let frames: Vec<&str> = if stream {
        text.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    } else {
        vec![&text]
    };
    read(kind, stream, &frames)
}

fn read(kind: &str, stream: bool, frames: &[&str]) -> (Vec<Frame>, Read) {
    let adapter = of_kind(kind, form(Endpoint::Chat, stream)).unwrap();
    let mut reader = adapter.reader();
    let frames = frames.iter().map(|data| reader.frame(data)).collect();
    (frames, reader.end())
}

fn streamed(frames: &[Value]) -> (Vec<Frame>, Read) {
    let texts: Vec<String> = frames.iter().map(Value::to_string).collect();
    read("opaque", true, &texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn token_frames(frames: &[Frame]) -> Vec<(Channel, Option<u32>)> {
    let tokens = |frame: &Frame| match frame {
        Frame::Tokens { channel, tokens } => Some((*channel, *tokens)),
        _ => None,
    };
    frames.iter().filter_map(tokens).collect()
}

fn delta(delta: Value) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn ns(stages: &[(Stage, u64)]) -> u64 {
    stages.iter().map(|(_, ns)| ns).sum()
}

fn of(stages: &[(Stage, u64)], stage: Stage) -> Option<u64> {
    stages.iter().find(|(other, _)| *other == stage).map(|(_, ns)| *ns)
}

// Our own server.

#[test]
fn our_account_is_split_at_the_first_token_and_loses_nothing() {
    for file in ["chat.sse", "chat.json", "completions.sse", "held-back.sse"] {
        let file = format!("firstlight/{file}");
        let text = fixture(&file);
        let event = text
            .lines()
            .map(|line| line.trim_start_matches("data: "))
            .find(|line| line.contains("\"lifecycle\""));
        let event: Value = serde_json::from_str(event.unwrap()).unwrap();
        let account = &event["lifecycle"];
        let (_, read) = replay("firstlight", &file);
        let server = &read.server;
        assert_eq!(server.kind, "firstlight");
        assert_eq!(ns(&server.to_first_token), account["ttft_ns"].as_u64().unwrap(), "{file}");
        let total = ns(&server.to_first_token) + ns(&server.after_it);
        assert_eq!(total, account["e2e_ns"].as_u64().unwrap(), "{file}");
        assert!(of(&server.to_first_token, Stage::Prefill).unwrap() > 0);
        assert_eq!(of(&server.after_it, Stage::Prefill), None);
        assert!(of(&server.after_it, Stage::Decode).unwrap() > 0);
        let order: Vec<Stage> = server.to_first_token.iter().map(|(stage, _)| *stage).collect();
        assert!(order.is_sorted(), "stages stand in the order of the line: {order:?}");
    }
}

#[test]
fn our_deliveries_say_how_many_tokens_each_frame_carried() {
    let (frames, read) = replay("firstlight", "firstlight/held-back.sse");
    assert_eq!(token_frames(&frames), [(Channel::Answer, None); 3]);
    assert_eq!(read.frame_tokens, Some(vec![3, 3, 3]));
    assert_eq!((read.tokens.source, read.tokens.output), (CountSource::Server, Some(9)));
    let (_, read) = replay("firstlight", "firstlight/chat.sse");
    assert_eq!(read.frame_tokens, Some(vec![1; 6]));
}

#[test]
fn our_account_without_its_frames_is_not_forced_onto_them() {
    let text = fixture("firstlight/chat.sse");
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    // The first three frames with text are lost: deliveries and frames no longer agree.
    let (_, read) = read("firstlight", true, &events[4..]);
    assert_eq!((read.frame_tokens, read.tokens.source), (None, CountSource::Usage));
}

#[test]
fn a_stage_of_a_later_version_keeps_its_time_and_is_opaque() {
    let event = json!({"id": "x", "choices": [], "lifecycle": {
        "stages": [{"stage": "teleport", "ns": 5}, {"stage": "prefill", "ns": 7}, {"stage": "decode", "ns": 2}],
        "tokens": [{"tokens": 0, "gap": [{"stage": "teleport", "ns": 5}]}, {"tokens": 1, "gap": [{"stage": "prefill", "ns": 7}]},
                   {"tokens": 1, "gap": [{"stage": "decode", "ns": 2}]}]}});
    let (_, read) = read("firstlight", true, &[&event.to_string()]);
    assert_eq!(read.server.to_first_token, [(Stage::Prefill, 7), (Stage::Opaque, 5)]);
    assert_eq!(read.server.after_it, [(Stage::Decode, 2)]);
}

#[test]
fn a_missing_account_is_said_to_be_missing() {
    for kind in KINDS {
        let (_, read) = read(kind, true, &[&delta(json!({"content": "a"})).to_string(), "[DONE]"]);
        assert_eq!((read.server.to_first_token.len(), read.server.after_it.len()), (0, 0), "{kind}");
        assert_eq!(read.server.kind, kind);
        assert!(read.server.left_out.is_some(), "{kind}");
    }
}

// llama.cpp.

#[test]
fn llama_timings_are_prefill_and_decode_and_count_each_frame() {
    let (frames, read) = replay("llama.cpp", "llama-server/chat.sse");
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(1)); 6]);
    assert_eq!((frames.first(), frames.last()), (Some(&Frame::Empty), Some(&Frame::Done)));
    let last = fixture("llama-server/chat.sse");
    let last = last.lines().rfind(|line| line.contains("\"usage\"")).unwrap();
    let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).unwrap();
    let ms = |key: &str| (last["timings"][key].as_f64().unwrap() * 1e6).round() as u64;
    assert_eq!(read.server.to_first_token, [(Stage::Prefill, ms("prompt_ms"))]);
    assert_eq!(read.server.after_it, [(Stage::Decode, ms("predicted_ms"))]);
    assert!(read.server.left_out.unwrap().contains("tokenization"));
    assert_eq!((read.tokens.prompt, read.tokens.output), (Some(34), Some(6)));
    assert_eq!((read.tokens.source, read.finish_reason.as_deref()), (CountSource::Server, Some("length")));
}

#[test]
fn llama_whole_answers_and_completions_have_the_same_account() {
    for file in ["chat.json", "completions.sse", "completions.json"] {
        let (frames, read) = replay("llama.cpp", &format!("llama-server/{file}"));
        assert!(of(&read.server.to_first_token, Stage::Prefill).unwrap() > 0, "{file}");
        assert!(of(&read.server.after_it, Stage::Decode).unwrap() > 0, "{file}");
        let counted: u32 = token_frames(&frames).iter().map(|(_, tokens)| tokens.unwrap()).sum();
        assert_eq!((counted, read.tokens.output), (6, Some(6)), "{file}");
        assert!(read.tokens.cached.is_some() && !read.text.is_empty(), "{file}");
    }
}

#[test]
fn llama_counts_come_from_timings_where_usage_is_missing() {
    let event = json!({"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}],
        "timings": {"cache_n": 30, "prompt_n": 4, "prompt_ms": 2.5, "predicted_n": 3, "predicted_ms": -1.0}});
    let (frames, read) = read("llama.cpp", true, &[&event.to_string()]);
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(3))]);
    assert_eq!((read.tokens.prompt, read.tokens.cached, read.tokens.output), (Some(34), Some(30), Some(3)));
    assert_eq!(read.server.to_first_token, [(Stage::Prefill, 2_500_000)]);
    assert_eq!(read.server.after_it, [], "a duration that cannot be is absent");
}

// vLLM.

#[test]
fn vllm_metrics_are_queue_prefill_and_decode_and_running_usage_counts_frames() {
    let (frames, read) = replay("vllm", "vllm-documented/chat.sse");
    let (reasoning, answer) = ((Channel::Reasoning, Some(2)), (Channel::Answer, Some(2)));
    assert_eq!(token_frames(&frames), [reasoning, reasoning, answer, answer]);
    assert_eq!(read.server.to_first_token, [(Stage::Queue, 12_300_000), (Stage::Prefill, 85_200_000)]);
    assert_eq!(read.server.after_it, [(Stage::Decode, 240_500_000)]);
    let tokens = &read.tokens;
    assert_eq!(
        (tokens.prompt, tokens.cached, tokens.output, tokens.reasoning),
        (Some(19), Some(16), Some(8), Some(4))
    );
    assert_eq!((tokens.source, read.text.as_str()), (CountSource::Server, "Red, green"));
    let (frames, read) = replay("vllm", "vllm-documented/chat.json");
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(4))]);
    assert_eq!(of(&read.server.to_first_token, Stage::Queue), Some(500_000));
}

/// The recorded model's answers are bytes of no character, so most frames have no text; its running usage counts them all the same.
#[test]
fn vllm_as_recorded_tells_its_stages_and_counts() {
    let check = |file: &str, prompt: u32, output: u32, finish: &str| {
        let (frames, read) = replay("vllm", file);
        let counted: u32 = token_frames(&frames).iter().map(|(_, tokens)| tokens.unwrap()).sum();
        assert_eq!(counted + read.tokens.counted, output, "{file}: {frames:?}");
        assert_eq!((read.tokens.prompt, read.tokens.output), (Some(prompt), Some(output)), "{file}");
        assert_eq!(read.finish_reason.as_deref(), Some(finish), "{file}");
        (read.server.to_first_token, read.server.after_it)
    };
    let (to_first, after) = check("vllm/chat.json", 62, 6, "length");
    assert_eq!(to_first, [(Stage::Queue, 30_355), (Stage::Prefill, 8_627_820)]);
    assert_eq!(after, [(Stage::Decode, 14_720_896)]);
    let (to_first, _) = check("vllm/chat.sse", 62, 6, "length");
    assert_eq!(to_first.len(), 2);
    check("vllm/completions.json", 9, 5, "length");
    let (to_first, _) = check("vllm/completions.sse", 4, 5, "length");
    assert_eq!(to_first, [(Stage::Queue, 24_366), (Stage::Prefill, 5_732_531)]);
}

#[test]
fn vllm_totals_as_recorded_are_of_the_four_calls_in_between() {
    let (before, after) = (fixture("vllm/metrics-before.txt"), fixture("vllm/metrics-after.txt"));
    let means = totals::between("vllm", &before, &after).unwrap();
    assert_eq!(means.requests, 4);
    assert_eq!(means.stages.len(), 3);
    assert!(ns(&means.stages) > 10_000_000 && ns(&means.stages) < 60_000_000, "{:?}", means.stages);
}

#[test]
fn vllm_null_metrics_are_absent() {
    let event = json!({"id": "x", "choices": [], "metrics": {"queue_time_ms": null, "time_to_first_token_ms": null,
        "generation_time_ms": null, "mean_itl_ms": null, "tokens_per_second": null}});
    let (_, read) = read("vllm", true, &[&event.to_string()]);
    assert_eq!(read.server.to_first_token, []);
    assert!(read.server.left_out.unwrap().contains("--enable-per-request-metrics"));
}

#[test]
fn vllm_totals_are_means_over_the_requests_in_between() {
    let (before, after) =
        (fixture("vllm-documented/metrics-before.txt"), fixture("vllm-documented/metrics-after.txt"));
    let means = totals::between("vllm", &before, &after).unwrap();
    assert_eq!(means.requests, 8);
    assert_eq!(
        means.stages,
        [(Stage::Queue, 50_000_000), (Stage::Prefill, 100_000_000), (Stage::Decode, 1_000_000_000)]
    );
    assert!(means.label.contains("means over the 8 requests"), "{}", means.label);
}

// SGLang.

#[test]
fn sglang_meta_info_is_opaque_queue_prefill_and_decode() {
    let (frames, read) = replay("sglang", "sglang/chat.json");
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(4))]);
    // Moments are seconds since 1970 in 64 bits, which resolves a quarter of a microsecond.
    let near = |stages: &[(Stage, u64)], stage: Stage, us: u64| {
        let found = of(stages, stage).unwrap_or_else(|| panic!("{stage} is missing")) / 1000;
        assert!(found.abs_diff(us) <= 1, "{stage}: {found} us, not {us}");
    };
    near(&read.server.to_first_token, Stage::Opaque, 5_600);
    near(&read.server.to_first_token, Stage::Queue, 10_000);
    near(&read.server.to_first_token, Stage::Prefill, 62_500);
    near(&read.server.after_it, Stage::Decode, 171_900);
    assert_eq!((read.tokens.cached, read.tokens.output), (Some(16), Some(4)));
}

#[test]
fn sglang_streams_count_frames_and_their_stages_are_not_seen() {
    let (frames, read) = replay("sglang", "sglang/chat.sse");
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(1)), (Channel::Answer, Some(3))]);
    assert_eq!((read.server.to_first_token.len(), read.finish_reason.as_deref()), (0, Some("length")));
    assert!(read.server.left_out.unwrap().contains("whole chat answers"));
}

// Any server.

#[test]
fn only_frames_with_tokens_are_tokens() {
    let (frames, read) = streamed(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "a"})),
        delta(json!({"content": null})),
        json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 40}}),
    ]);
    let answer = Frame::Tokens { channel: Channel::Answer, tokens: None };
    assert_eq!(frames, [Frame::Empty, answer, Frame::Empty, Frame::Empty, Frame::Other]);
    assert_eq!((read.tokens.output, read.tokens.source), (Some(40), CountSource::Usage));
    assert_eq!(read.finish_reason.as_deref(), Some("stop"));
}

#[test]
fn each_channel_is_told_apart() {
    let (frames, _) = streamed(&[
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"reasoning": "hm", "content": ""})),
        delta(json!({"reasoning": "hm", "content": "So"})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})),
        delta(json!({"refusal": "no"})),
        delta(json!({"content": [{"type": "text", "text": "part"}]})),
        delta(json!({"tool_calls": [], "content": ""})),
    ]);
    let channels: Vec<Channel> = token_frames(&frames).iter().map(|(channel, _)| *channel).collect();
    use Channel::{Answer, Reasoning, Refusal, ToolCall};
    assert_eq!(channels, [Reasoning, Reasoning, Answer, ToolCall, Refusal, Answer]);
}

#[test]
fn a_count_at_the_end_only_is_not_taken_for_the_last_frames() {
    let mut last = delta(json!({"content": "z"}));
    last["usage"] = json!({"prompt_tokens": 3, "completion_tokens": 3});
    let (frames, read) = streamed(&[delta(json!({"content": "x"})), delta(json!({"content": "y"})), last]);
    assert_eq!(token_frames(&frames), [(Channel::Answer, None); 3]);
    assert_eq!(read.tokens.source, CountSource::Usage);
}

#[test]
fn listed_tokens_are_counted_and_held_ones_go_to_the_frame_that_shows_them() {
    let with_ids = |content: &str, ids: &[u32]| {
        let mut event = delta(json!({"content": content}));
        event["choices"][0]["token_ids"] = json!(ids);
        event
    };
    let (frames, read) = streamed(&[with_ids("", &[7, 8]), with_ids("🌍", &[9]), with_ids("!", &[1])]);
    assert_eq!(token_frames(&frames), [(Channel::Answer, Some(3)), (Channel::Answer, Some(1))]);
    assert_eq!(read.tokens.source, CountSource::Server);
    let mut event = delta(json!({"content": "ab"}));
    event["choices"][0]["logprobs"] = json!({"content": [{"token": "a"}, {"token": "b"}]});
    assert_eq!(token_frames(&streamed(&[event]).0), [(Channel::Answer, Some(2))]);
}

#[test]
fn without_usage_the_source_is_chunks() {
    let (_, read) = streamed(&[delta(json!({"content": "x"}))]);
    assert_eq!((read.tokens.source, read.tokens.output), (CountSource::Chunks, None));
}

#[test]
fn errors_in_band_keep_their_words() {
    let (frames, _) = streamed(&[
        json!({"error": {"message": "out of blocks", "code": 500}}),
        json!({"error": "plain"}),
        json!({"object": "error", "message": "old form", "code": 400}),
        json!({"id": "x", "choices": [], "error": null}),
    ]);
    let error = |detail: &str| Frame::Error { detail: detail.to_owned() };
    assert_eq!(frames, [error("out of blocks"), error("plain"), error("old form"), Frame::Other]);
}

#[test]
fn what_is_not_the_protocol_is_malformed_and_quoted_in_short() {
    let long = format!("{{\"choices\": {}", "é".repeat(500));
    for data in ["{", "garbage", "[]", "3", "{}", r#"{"choices": 3}"#, long.as_str()] {
        let (frames, read) = read("opaque", true, &[data]);
        let Frame::Malformed { detail } = &frames[0] else { panic!("{data}: {frames:?}") };
        assert!(detail.len() < 400, "{detail}");
        assert_eq!(read.text, "");
    }
}

/// Every value of an event, each in turn replaced by `with`.
fn damaged(event: &Value, with: &Value) -> Vec<Value> {
    let mut all = vec![with.clone()];
    match event {
        Value::Object(fields) => {
            for (key, value) in fields {
                all.extend(damaged(value, with).into_iter().map(|value| {
                    let mut event = event.clone();
                    event[key] = value;
                    event
                }));
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                all.extend(damaged(value, with).into_iter().map(|value| {
                    let mut event = event.clone();
                    event[index] = value;
                    event
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn no_value_anywhere_in_an_answer_makes_a_reader_panic() {
    let values = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!("\u{1f30d}"),
        json!([[]]),
        json!({"": 0}),
    ];
    let files = [
        "firstlight/held-back.sse",
        "llama-server/completions.sse",
        "vllm-documented/chat.sse",
        "sglang/chat.json",
    ];
    for (file, kind) in files.into_iter().zip(["firstlight", "llama.cpp", "vllm", "sglang"]) {
        let text = fixture(file);
        for line in
            text.lines().map(|line| line.trim_start_matches("data: ")).filter(|line| line.starts_with('{'))
        {
            let event: Value = serde_json::from_str(line).unwrap();
            for event in values.iter().flat_map(|value| damaged(&event, value)) {
                let (frames, _) = read(kind, true, &[&event.to_string(), line]);
                assert_eq!(frames.len(), 2);
            }
        }
    }
}

#[test]
fn strange_numbers_in_usage_are_absent_and_spoil_nothing() {
    let mut event = delta(json!({"content": "x"}));
    event["usage"] = json!({"prompt_tokens": -1, "completion_tokens": "many", "prompt_tokens_details": null});
    let (frames, read) = streamed(&[event]);
    assert_eq!(token_frames(&frames).len(), 1);
    assert_eq!((read.tokens.prompt, read.tokens.output), (None, None));
}

#[test]
fn a_header_names_the_request_until_the_body_does() {
    let adapter = of_kind("opaque", form(Endpoint::Chat, true)).unwrap();
    let mut reader = adapter.reader();
    reader.header("x-request-id", "from-the-head");
    assert_eq!(reader.end().request_id.as_deref(), Some("from-the-head"));
    assert_eq!(streamed(&[delta(json!({}))]).1.request_id.as_deref(), Some("x"));
}

// Requests.

fn body(kind: &str, form: Form, prompt: ResolvedPrompt) -> (String, Value) {
    let written = of_kind(kind, form).unwrap().write(&call(prompt));
    (written.path, serde_json::from_slice(&written.body).unwrap())
}

#[test]
fn an_opaque_server_is_sent_only_what_openai_documents() {
    let (path, body) = body("opaque", form(Endpoint::Chat, true), chat());
    assert_eq!(path, "/v1/chat/completions");
    assert_eq!(
        body,
        json!({"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "max_tokens": 6, "stream": true, "stream_options": {"include_usage": true}})
    );
}

#[test]
fn each_kind_is_asked_for_its_account_in_its_own_way() {
    let own = |kind: &str, stream: bool| {
        let keys = |body: Value| body.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
        let (_, ours) = body(kind, form(Endpoint::Chat, stream), chat());
        let (_, plain) = body("opaque", form(Endpoint::Chat, stream), chat());
        keys(ours).difference(&keys(plain)).cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(own("firstlight", true), "ignore_eos include_lifecycle");
    assert_eq!(own("firstlight", false), "ignore_eos include_lifecycle");
    assert_eq!(own("llama.cpp", true), "ignore_eos timings_per_token");
    assert_eq!(own("vllm", true), "ignore_eos");
    assert_eq!(own("sglang", false), "ignore_eos return_meta_info");
    // SGLang refuses a stream that asks for it.
    assert_eq!(own("sglang", true), "ignore_eos");
}

#[test]
fn a_prompt_goes_where_there_is_a_place_for_it() {
    let text = || ResolvedPrompt::Text("Once".into());
    let (path, sent) = body("vllm", form(Endpoint::Completions, false), text());
    assert_eq!(
        (path.as_str(), &sent["prompt"], sent.get("stream_options")),
        ("/v1/completions", &json!("Once"), None)
    );
    let (_, sent) = body("vllm", form(Endpoint::Chat, false), text());
    assert_eq!(sent["messages"], json!([{"role": "user", "content": "Once"}]));
    let (path, sent) = body("vllm", form(Endpoint::Chat, false), ResolvedPrompt::Tokens([1, 2].into()));
    assert_eq!((path.as_str(), &sent["prompt"]), ("/v1/completions", &json!([1, 2])));
    let (_, sent) = body("vllm", form(Endpoint::Completions, false), chat());
    assert_eq!(sent["prompt"], json!("Be brief.\nHi"));
}

#[test]
fn the_users_own_fields_win_and_null_takes_a_field_out() {
    let mut form = form(Endpoint::Chat, true);
    form.extra.insert("temperature".to_owned(), json!(0));
    form.extra.insert("max_tokens".to_owned(), Value::Null);
    form.extra.insert("ignore_eos".to_owned(), json!(false));
    let (_, body) = body("llama.cpp", form, chat());
    assert_eq!(
        (&body["temperature"], body.get("max_tokens"), &body["ignore_eos"]),
        (&json!(0), None, &json!(false))
    );
}

#[test]
fn a_fingerprint_tells_calls_apart_and_does_not_see_the_server() {
    let base = call(chat()).fingerprint();
    assert_eq!((base.len(), call(chat()).fingerprint()), (16, base.clone()));
    let mut longer = call(chat());
    longer.max_tokens = 7;
    let mut stopping = call(chat());
    stopping.ignore_eos = false;
    let moved =
        ResolvedPrompt::Chat(vec![("system".into(), "Be brief.Hi".into()), ("user".into(), "".into())]);
    let prompts = [longer, stopping, call(moved), call(ResolvedPrompt::Text("1".into()))];
    let prints: BTreeSet<String> = prompts.iter().map(Resolved::fingerprint).chain([base]).collect();
    assert_eq!(prints.len(), 5);
}

#[test]
fn an_unknown_kind_is_refused_with_the_list() {
    let error = of_kind("tgi", form(Endpoint::Chat, true)).err().unwrap().to_string();
    assert!(error.contains("\"tgi\"") && error.contains("llama.cpp"), "{error}");
}

// Detection.

/// Answers to all probes: those given, and 404 from the others.
fn probed(given: &[(&str, u16, String)], server: Option<&str>) -> Vec<Probed> {
    let answer = |path: &&str| {
        let found = given.iter().find(|(given, _, _)| given == path);
        let (status, body) =
            found.map_or((404, "{\"error\": {}}".to_owned()), |(_, status, body)| (*status, body.clone()));
        Probed { path: (*path).to_owned(), status: Some(status), server: server.map(str::to_owned), body }
    };
    PROBES.iter().map(answer).collect()
}

#[track_caller]
fn check_kind(given: &[(&str, u16, String)], server: Option<&str>, expected: &str) {
    let found = decide(&probed(given, server));
    assert_eq!(found.kind, expected, "{}", found.evidence);
    assert!(KINDS.contains(&found.kind));
}

#[test]
fn each_kind_is_known_by_its_model_cards() {
    for (folder, kind) in
        [("firstlight", "firstlight"), ("llama-server", "llama.cpp"), ("vllm", "vllm"), ("sglang", "sglang")]
    {
        check_kind(&[("/v1/models", 200, fixture(&format!("{folder}/models.json")))], None, kind);
    }
    let found = decide(&probed(&[("/v1/models", 200, fixture("llama-server/models.json"))], None));
    assert_eq!((found.models, found.context_max), (vec!["smollm2-135m-instruct".to_owned()], Some(4096)));
    assert_eq!(found.warnings, Vec::<String>::new());
}

#[test]
fn each_kind_is_known_by_other_signs_where_the_cards_are_closed_or_renamed() {
    let closed = ("/v1/models", 401, String::new());
    check_kind(std::slice::from_ref(&closed), Some("llama.cpp"), "llama.cpp");
    check_kind(&[closed.clone(), ("/props", 200, fixture("llama-server/props.json"))], None, "llama.cpp");
    for path in ["/model_info", "/get_model_info"] {
        let info = (path, 200, fixture("sglang/get_model_info.json"));
        check_kind(&[closed.clone(), info], None, "sglang");
    }
    let version = ("/version", 200, json!({"version": "0.32.0"}).to_string());
    let renamed = fixture("vllm/models.json").replace("\"owned_by\":\"vllm\"", "\"owned_by\":\"us\"");
    check_kind(&[("/v1/models", 200, renamed), version.clone()], None, "vllm");
    let warned = decide(&probed(&[closed], None)).warnings;
    assert!(warned[0].contains("--api-key"), "{warned:?}");
}

#[test]
fn a_server_with_a_version_or_a_page_for_every_path_is_opaque() {
    let version = ("/version", 200, json!({"version": "1.0"}).to_string());
    let models = ("/v1/models", 200, json!({"data": [{"id": "gpt", "owned_by": "openai"}]}).to_string());
    check_kind(&[models, version], None, "opaque");
    let page: Vec<_> = PROBES.iter().map(|path| (*path, 200, "<html>hello</html>".to_owned())).collect();
    check_kind(&page, Some("nginx"), "opaque");
}

#[test]
fn a_server_that_does_not_answer_is_opaque_with_a_warning() {
    let silent =
        |path: &&str| Probed { path: (*path).to_owned(), status: None, server: None, body: String::new() };
    let found = decide(&PROBES.iter().map(silent).collect::<Vec<_>>());
    assert_eq!(found.kind, "opaque");
    assert!(found.warnings[0].contains("no probe was answered"), "{:?}", found.warnings);
}
