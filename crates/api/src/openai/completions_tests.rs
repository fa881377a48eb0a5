use protocol::RefusalKind;
use serde_json::json;

use super::*;

fn parsed(body: Value) -> Result<Request, Refusal> {
    parse(RequestId(1), body.to_string().as_bytes(), &Limits::default())
}

fn refused(body: Value) -> String {
    let refusal = parsed(body.clone()).expect_err(&body.to_string());
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    refusal.param.unwrap_or_default()
}

fn tokens(ids: &[u32]) -> Input {
    Input::Tokens(ids.iter().copied().map(TokenId).collect())
}

/// F10.
#[test]
fn prompts_come_in_four_forms() {
    let inputs = |prompt: Value| parsed(json!({ "prompt": prompt })).unwrap().inputs;
    assert_eq!(inputs(json!("x")), [Input::Text("x".into())]);
    assert_eq!(
        inputs(json!("")),
        [Input::Text(String::new())],
        "whether nothing is a prompt is the model's to say"
    );
    assert_eq!(inputs(json!([""])), [Input::Text(String::new())]);
    assert_eq!(inputs(json!(["x", "y"])), [Input::Text("x".into()), Input::Text("y".into())]);
    assert_eq!(inputs(json!([1])), [tokens(&[1])]);
    assert_eq!(inputs(json!([[1], [2, 3]])), [tokens(&[1]), tokens(&[2, 3])]);
}

/// F10.
#[test]
fn empty_and_mixed_prompts_are_refused_by_place() {
    for (prompt, param) in [
        (json!([]), "prompt"),
        (json!(null), "prompt"),
        (json!(5), "prompt"),
        (json!({}), "prompt"),
        (json!([[]]), "prompt[0]"),
        (json!(["a", [1]]), "prompt[1]"),
        (json!([[1], "a"]), "prompt[1]"),
        (json!([1, "a"]), "prompt[1]"),
        (json!([1, -1]), "prompt[1]"),
        (json!([1.5]), "prompt[0]"),
        (json!([[1], [2, "x"]]), "prompt[1][1]"),
        (json!([null]), "prompt[0]"),
        (json!(vec!["x"; 2048]), "prompt"),
    ] {
        assert_eq!(refused(json!({ "prompt": prompt })), param, "{prompt}");
    }
    assert_eq!(refused(json!({})), "prompt");
}

/// F08.
#[test]
fn zero_tokens_need_an_echo() {
    assert_eq!(refused(json!({"prompt": "x", "max_tokens": 0})), "max_tokens");
    let request = parsed(json!({"prompt": "x", "max_tokens": 0, "echo": true})).unwrap();
    assert_eq!((request.sampling.max_tokens, request.echo), (Some(0), true));
    assert_eq!(parsed(json!({"prompt": "x"})).unwrap().sampling.max_tokens, Some(16));
    assert_eq!(parsed(json!({"prompt": "x", "max_tokens": null})).unwrap().sampling.max_tokens, Some(16));
    for bad in [json!(-1), json!(1.5), json!("5")] {
        assert_eq!(refused(json!({"prompt": "x", "max_tokens": bad})), "max_tokens");
    }
}

/// F86.
#[test]
fn logprobs_count_alternatives() {
    for (sent, read) in [(json!(0), Some(0)), (json!(5), Some(5)), (json!(20), Some(20)), (json!(null), None)]
    {
        assert_eq!(parsed(json!({"prompt": "x", "logprobs": sent})).unwrap().sampling.logprobs, read);
    }
    for bad in [json!(21), json!(1_000_000), json!(-1), json!(true)] {
        assert_eq!(refused(json!({"prompt": "x", "logprobs": bad})), "logprobs");
    }
    assert_eq!(refused(json!({"prompt": "x", "logprobs": 1, "echo": true})), "logprobs");
}

/// F86: the product of prompts and choices is bounded.
#[test]
fn choices_are_counted_over_all_prompts() {
    assert_eq!(parsed(json!({"prompt": ["x", "y"], "n": 2})).unwrap().n, 2);
    assert_eq!(refused(json!({"prompt": vec!["x"; 10], "n": 7})), "n");
    assert_eq!(refused(json!({"prompt": "x", "n": 1_000_000})), "n");
    assert_eq!(refused(json!({"prompt": "x", "n": 1, "best_of": 3})), "best_of");
    assert_eq!(refused(json!({"prompt": "x", "suffix": "y"})), "suffix");
}
