use protocol::{Content, Role, TokenId};
use serde_json::json;

use super::*;

/// Parses a chat of one user message with `extra` laid over it.
fn parsed(extra: Value) -> Result<Request, Refusal> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    parse(RequestId(1), body.to_string().as_bytes(), &Limits::default())
}

/// The field that a body is refused for, and the words.
fn refused(extra: Value) -> (String, String) {
    let refusal = parsed(extra.clone()).expect_err(&extra.to_string());
    (refusal.param.clone().unwrap_or_default(), refusal.to_string())
}

/// Checks that each body is refused, naming `param`.
fn check_refused(param: &str, bodies: &[Value]) {
    for body in bodies {
        let (named, words) = refused(body.clone());
        assert_eq!(named, param, "{body}: {words}");
    }
}

fn messages(items: Value) -> Result<Vec<protocol::Message>, Refusal> {
    let request = parsed(json!({ "messages": items }))?;
    match request.inputs.into_iter().next() {
        Some(Input::Chat { messages, .. }) => Ok(messages),
        other => panic!("a chat has one conversation, not {other:?}"),
    }
}

#[test]
fn a_plain_chat_has_the_documented_defaults() {
    let request = parsed(json!({})).unwrap();
    assert_eq!(request.sampling, Sampling::default());
    assert_eq!((request.n, request.stream, request.stop.len()), (1, false, 0));
    assert!(request.ignored.is_empty());
}

/// F14.
#[test]
fn null_is_absent_for_every_field() {
    let mut body = json!({});
    for key in [
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "stop_token_ids",
        "ignore_eos",
        "min_tokens",
        "cache_salt",
        "priority",
        "ttft_deadline_ms",
        "tools",
        "tool_choice",
        "response_format",
        "best_of",
        "include_lifecycle",
        "chat_template_kwargs",
        "add_generation_prompt",
        "modalities",
        "parallel_tool_calls",
        "reasoning_effort",
        "some_unknown_key",
    ] {
        body[key] = Value::Null;
    }
    let request = parsed(body).unwrap();
    assert_eq!(request, Request { model: String::new(), ..parsed(json!({})).unwrap() });
}

/// F14, F38.
#[test]
fn a_wrong_type_or_range_is_refused_by_name() {
    for (param, values) in [
        ("temperature", json!(["0.7", true, [], -1, 1e6, 1e39])),
        ("top_p", json!(["1", 1.1, -1])),
        ("min_p", json!([-0.1, 1.5, {}])),
        ("top_k", json!([-2, 1.5, "5"])),
        ("n", json!([0, 2.0, "2", -1, 1_000_000])),
        ("seed", json!([-1, 1e30, "7", 1.5])),
        ("stream", json!(["true", 1])),
        ("max_tokens", json!([0, -1, -1971, 1.5, "5", true])),
        ("max_completion_tokens", json!([0, -1, 1.5, "5"])),
        ("presence_penalty", json!([-3, 3, "0"])),
        ("frequency_penalty", json!([2.5])),
        ("repetition_penalty", json!([0, -1, "1.1"])),
        ("logprobs", json!([1, "true", 5])),
        ("logit_bias", json!([[], 5, {"x": 1}, {"-1": 1}, {"5": 101}])),
        ("logit_bias.5", json!([{"5": "x"}])),
        ("stop_token_ids", json!([5, "5"])),
        ("stop_token_ids[1]", json!([[1, -1], [1, "x"], [1, 5_000_000_000u64]])),
        ("ignore_eos", json!([1, "yes"])),
        ("min_tokens", json!([-1, 1.5])),
        ("cache_salt", json!(["", 5, "x".repeat(1025)])),
        ("priority", json!([11, -11, 1.5, "high", 1e40])),
        ("ttft_deadline_ms", json!([0, -5, "1s", 0.5])),
        ("include_lifecycle", json!([1])),
        ("add_generation_prompt", json!(["no"])),
        ("chat_template_kwargs", json!([[], "x"])),
        ("model", json!([5, ["m"]])),
        ("tools", json!([{}, "x"])),
        ("stream_options", json!([[], true])),
    ] {
        for value in values.as_array().unwrap() {
            check_refused(param, &[json!({ param.split(['.', '[']).next().unwrap(): value })]);
        }
    }
    check_refused("repetition_penalty", &[json!({"repeat_penalty": 0})]);
    check_refused(
        "top_logprobs",
        &[json!({"logprobs": true, "top_logprobs": 21}), json!({"top_logprobs": 5})],
    );
    check_refused("min_tokens", &[json!({"min_tokens": 5, "max_tokens": 4})]);
}

/// F14: an effect for what is accepted.
#[test]
fn sampling_fields_arrive() {
    let request = parsed(json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7, "n": 2, "best_of": 2,
        "presence_penalty": 1, "frequency_penalty": -1.5, "repeat_penalty": 1.2,
        "logit_bias": {"5": -100, "6": 2.5}, "stop_token_ids": [3], "ignore_eos": true, "min_tokens": 2,
        "max_tokens": 9, "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 3,
    }))
    .unwrap();
    let expected = Sampling {
        temperature: 0.5,
        top_k: Some(40),
        top_p: 0.9,
        min_p: 0.05,
        repetition_penalty: 1.2,
        presence_penalty: 1.0,
        frequency_penalty: -1.5,
        seed: Some(7),
        logit_bias: vec![(TokenId(5), -100.0), (TokenId(6), 2.5)],
        stop_token_ids: vec![TokenId(3)],
        ignore_eos: true,
        min_tokens: 2,
        max_tokens: Some(4),
        logprobs: Some(3),
    };
    assert_eq!((request.n, request.sampling), (2, expected));
    assert!(request.ignored.is_empty());
    for all in [0, -1] {
        assert_eq!(parsed(json!({ "top_k": all })).unwrap().sampling.top_k, None);
    }
    assert_eq!(parsed(json!({"logprobs": true})).unwrap().sampling.logprobs, Some(0));
    assert_eq!(parsed(json!({"logprobs": false, "top_logprobs": 0})).unwrap().sampling.logprobs, None);
    assert_eq!(parsed(json!({"seed": u64::MAX})).unwrap().sampling.seed, Some(u64::MAX));
}

/// F08, F09.
#[test]
fn a_huge_limit_is_none_and_the_newer_name_wins() {
    let max_tokens = |body: &str| {
        let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],{body}}}");
        parse(RequestId(1), body.as_bytes(), &Limits::default()).unwrap().sampling.max_tokens
    };
    assert_eq!(max_tokens("\"max_tokens\":2147483648"), Some(2_147_483_648));
    assert_eq!(max_tokens("\"max_tokens\":18446744073709551616"), Some(usize::MAX));
    assert_eq!(max_tokens("\"max_tokens\":null"), None);
    assert_eq!(max_tokens("\"max_completion_tokens\":4"), Some(4));
    assert_eq!(max_tokens("\"max_tokens\":9,\"max_completion_tokens\":4"), Some(4));
}

/// F14.
#[test]
fn what_would_matter_is_refused_and_what_cannot_is_listed() {
    for (key, value) in [
        ("response_format", json!({"type": "json_object"})),
        ("response_format", json!({"type": "json_schema", "json_schema": {}})),
        ("audio", json!({"voice": "alloy"})),
        ("functions", json!([{"name": "f"}])),
        ("reasoning_effort", json!("low")),
        ("verbosity", json!("low")),
        ("web_search_options", json!({})),
        ("guided_json", json!({})),
        ("structured_outputs", json!({"json": {}})),
        ("grammar", json!("root ::= x")),
        ("use_beam_search", json!(true)),
        ("typical_p", json!(0.5)),
        ("n_predict", json!(5)),
        ("skip_special_tokens", json!(false)),
        ("continue_final_message", json!(true)),
        ("echo", json!(true)),
        ("modalities", json!(["text", "audio"])),
        ("best_of", json!(2)),
        ("tool_choice", json!("required")),
        ("tool_choice", json!({"type": "function", "function": {"name": "f"}})),
    ] {
        let (param, words) = refused(json!({ key: value }));
        assert!(param.starts_with(key), "{key}: {param}");
        assert!(words.contains("not supported") || words.contains("supported yet"), "{words}");
    }
    check_refused("best_of", &[json!({"best_of": 1, "n": 2})]);

    let request = parsed(json!({
        "user": "u", "metadata": {"a": 1}, "store": true, "service_tier": "auto", "prompt_cache_key": "k",
        "typical_p": 1.0, "skip_special_tokens": true, "functions": [], "response_format": {"type": "text"},
        "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false}, "zzz": 1,
    }))
    .unwrap();
    assert_eq!(
        request.ignored,
        [
            "stream_options.include_obfuscation",
            "user",
            "metadata",
            "store",
            "service_tier",
            "prompt_cache_key",
            "zzz"
        ]
    );
}

#[test]
fn the_list_of_ignored_keys_is_bounded() {
    let many: serde_json::Map<_, _> =
        (0..10_000).map(|index| (format!("{index}{}", "x".repeat(99)), json!(1))).collect();
    let request = parsed(Value::Object(many)).unwrap();
    assert_eq!(request.ignored.len(), 64);
    assert!(request.ignored.iter().all(|key| key.len() <= 64));
}

/// F01.
#[test]
fn usage_is_asked_for_with_streams_only() {
    let usage = |body: Value| parsed(body).map(|request| (request.stream, request.include_usage));
    assert_eq!(usage(json!({"stream": true})).unwrap(), (true, false));
    assert_eq!(
        usage(json!({"stream": true, "stream_options": {"include_usage": true}})).unwrap(),
        (true, true)
    );
    assert_eq!(
        usage(json!({"stream": true, "stream_options": {"include_usage": false}})).unwrap(),
        (true, false)
    );
    check_refused("stream_options", &[json!({"stream_options": {"include_usage": true}})]);
    check_refused(
        "stream_options.include_usage",
        &[json!({"stream": true, "stream_options": {"include_usage": 1}})],
    );
}

/// F33.
#[test]
fn stop_takes_every_form_and_no_empty_string() {
    let stop = |value: Value| parsed(json!({ "stop": value })).map(|request| request.stop);
    assert_eq!(stop(json!("x")).unwrap(), ["x"]);
    assert_eq!(stop(json!(["x", "yz"])).unwrap(), ["x", "yz"]);
    for none in [json!(null), json!([]), json!(""), json!([""])] {
        assert!(stop(none).unwrap().is_empty());
    }
    assert_eq!(stop(json!(["", "x"])).unwrap(), ["x"]);
    assert_eq!(stop(json!(["1", "2", "3", "4", "5"])).unwrap().len(), 5);
    check_refused("stop", &[json!({"stop": vec!["x"; 10_000]}), json!({"stop": 5}), json!({"stop": {}})]);
    check_refused("stop[0]", &[json!({"stop": "x".repeat(1 << 20)}), json!({"stop": [5]})]);
}

/// F86.
#[test]
fn counts_are_bounded() {
    let user = json!({"role": "user", "content": "x"});
    let tool = json!({"type": "function", "function": {"name": "f"}});
    check_refused("n", &[json!({"n": 128})]);
    check_refused("messages", &[json!({"messages": vec![user; 100_000]})]);
    check_refused("tools", &[json!({"tools": vec![tool; 5000]})]);
}

/// F87.
#[test]
fn deep_nesting_is_refused_wherever_it_is() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"unknown":{deep}}}"#),
        format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"metadata":{{"a":{deep}}}}}"#),
        format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"a":{deep}}}}}}}]}}"#
        ),
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"1","type":"function","function":{{"name":"f","arguments":"{{\"a\":{deep}}}"}}}}]}}]}}"#
        ),
    ] {
        let refusal = parse(RequestId(1), body.as_bytes(), &Limits::default()).unwrap_err();
        assert!(refusal.to_string().contains("nested deeper than 64 levels"), "{refusal}");
        assert!(refusal.to_string().contains("at byte"), "{refusal}");
        assert!(refusal.to_string().len() < 300);
    }
}

/// F13.
#[test]
fn content_is_a_string_or_text_parts_joined_without_separator() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    for role in ["system", "developer", "user", "assistant", "tool"] {
        let from_parts = messages(json!([{"role": role, "content": parts}])).unwrap();
        assert_eq!(from_parts[0].content, Content::Text("ab".into()));
        assert_eq!(from_parts, messages(json!([{"role": role, "content": "ab"}])).unwrap());
    }
    assert_eq!(messages(json!([{"role": "developer", "content": "x"}])).unwrap()[0].role, Role::System);
    assert_eq!(
        messages(json!([{"role": "user", "content": []}])).unwrap()[0].content,
        Content::Text(String::new())
    );
    assert_eq!(
        messages(json!([{"role": "user", "content": ""}])).unwrap()[0].content,
        Content::Text(String::new())
    );
}

/// F13.
#[test]
fn content_that_cannot_be_read_is_refused_by_place() {
    let refused = |items: Value| messages(items).unwrap_err().param.unwrap_or_default();
    for role in ["user", "system", "tool"] {
        assert_eq!(refused(json!([{"role": role, "content": null}])), "messages[0].content");
        assert_eq!(refused(json!([{"role": role}])), "messages[0].content");
    }
    let user = json!({"role": "user", "content": "x"});
    assert_eq!(refused(json!([user, {"role": "user", "content": 5}])), "messages[1].content");
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    assert_eq!(refused(json!([{"role": "user", "content": image}])), "messages[0].content[0].type");
    let unknown = json!([{"type": "text", "text": "x"}, {"type": "smell"}]);
    assert_eq!(refused(json!([{"role": "user", "content": unknown}])), "messages[0].content[1].type");
    assert_eq!(refused(json!([{"role": "user", "content": ["x"]}])), "messages[0].content[0]");
    assert_eq!(
        refused(json!([{"role": "user", "content": [{"type": "text"}]}])),
        "messages[0].content[0].text"
    );
    assert_eq!(refused(json!([])), "messages");
    assert_eq!(refused(json!("x")), "messages");
    assert_eq!(refused(json!(["x"])), "messages[0]");
    assert_eq!(refused(json!([{"content": "x"}])), "messages[0].role");
    assert_eq!(refused(json!([{"role": "king", "content": "x"}])), "messages[0].role");
    assert_eq!(parsed(json!({ "messages": null })).unwrap_err().param.as_deref(), Some("messages"));
}

/// F13: the round trip of a server's own tool call.
#[test]
fn a_tool_call_comes_back_as_templates_read_it() {
    let own = json!({
        "role": "assistant", "content": null, "refusal": null, "annotations": null, "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\":1,\"a\":\"é\"}"}}],
    });
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "42"});
    let read = messages(json!([{"role": "user", "content": "x"}, own, result])).unwrap();
    assert_eq!(read[1].content, Content::None);
    assert_eq!(
        read[1].tool_calls[0].arguments.to_string(),
        r#"{"b":1,"a":"é"}"#,
        "the order of keys is kept"
    );
    assert_eq!(
        read[1].extra.keys().collect::<Vec<_>>(),
        ["reasoning_content"],
        "nulls do not reach the template"
    );
    assert_eq!(read[2].tool_call_id.as_deref(), Some("c1"));

    let arguments = |arguments: Value| {
        let call = json!({"id": "c", "function": {"name": "f", "arguments": arguments}});
        messages(json!([{"role": "assistant", "tool_calls": [call]}]))
            .map(|messages| messages[0].tool_calls[0].arguments.to_string())
    };
    for none in [json!(""), json!(null), json!("{}"), json!({})] {
        assert_eq!(arguments(none).unwrap(), "{}");
    }
    for bad in [json!("{"), json!("[1]"), json!(5)] {
        let refusal = arguments(bad).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("messages[0].tool_calls[0].function.arguments"));
    }
}

#[test]
fn an_assistant_without_content_said_nothing() {
    let read = messages(json!([{"role": "assistant"}, {"role": "assistant", "content": null}])).unwrap();
    assert!(read.iter().all(|message| message.content == Content::Text(String::new())));
}

#[test]
fn tools_are_shown_unless_none_may_be_called() {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}});
    let shown = |extra: Value| {
        let mut body = json!({ "tools": [tool] });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        match &parsed(body).unwrap().inputs[0] {
            Input::Chat { tools, .. } => tools.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(shown(json!({})), [Tool(tool.clone())]);
    assert_eq!(shown(json!({"tool_choice": "auto", "parallel_tool_calls": true})).len(), 1);
    assert!(shown(json!({"tool_choice": "none"})).is_empty());
    check_refused("tools[0].type", &[json!({"tools": [{}]}), json!({"tools": [{"type": "retrieval"}]})]);
    check_refused("tools[0].function", &[json!({"tools": [{"type": "function"}]})]);
    check_refused(
        "tools[0].function.name",
        &[json!({"tools": [{"type": "function", "function": {"name": ""}}]})],
    );
    check_refused("tool_choice", &[json!({"tool_choice": "maybe"}), json!({"tool_choice": 5})]);
    check_refused("parallel_tool_calls", &[json!({"tools": [tool], "parallel_tool_calls": false})]);
}

#[test]
fn template_variables_pass_but_ours() {
    let request = parsed(json!({"chat_template_kwargs": {"enable_thinking": false}})).unwrap();
    let Input::Chat { template_kwargs, .. } = &request.inputs[0] else { panic!() };
    assert_eq!(template_kwargs["enable_thinking"], false);
    check_refused("chat_template_kwargs.messages", &[json!({"chat_template_kwargs": {"messages": []}})]);
}

/// Whatever comes, parsing says yes or no: no panic, no hang.
#[test]
fn damaged_bodies_are_read_or_refused() {
    let body = json!({
        "model": "m", "n": 2, "stop": ["a", ""], "logit_bias": {"5": 1.5}, "stream": true, "seed": 1,
        "stream_options": {"include_usage": true}, "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "é\u{0}"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        ],
    });
    let body = body.to_string().into_bytes();
    let pieces: [&[u8]; 12] =
        [b"null", b"-1", b"1e999", b"[", b"{", b"}", b"\"", b"\\u", b"\xff", b"true", b",", b""];
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    let mut draw = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut read = 0;
    for _ in 0..4_000 {
        let mut damaged = body.clone();
        for _ in 0..=draw(3) {
            let at = draw(damaged.len());
            let end = (at + draw(6)).min(damaged.len());
            damaged.splice(at..end, pieces[draw(pieces.len())].iter().copied());
        }
        match parse(RequestId(1), &damaged, &Limits::default()) {
            Ok(_) => read += 1,
            Err(refusal) => assert!(refusal.to_string().len() < 400, "{refusal}"),
        }
    }
    assert!(read > 10, "some damage is harmless, or nothing was tested: {read}");
}
