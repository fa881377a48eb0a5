//! A template from a hostile file neither hangs nor takes the memory, and says no more than it should.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod small;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use text::{ChatTemplate, Conversation, TemplateError, Tokenizer};

fn tokenizer() -> Arc<Tokenizer> {
    small::tokenizer(small::byte_level(&["<|im_start|>", "<|im_end|>"], &[]))
}

fn conversation() -> Conversation {
    let say = |role: &str, text: &str| json!({"role": role, "content": text});
    Conversation {
        messages: vec![say("user", "Hi"), say("assistant", "Yo"), say("user", "Bye")],
        ..Conversation::default()
    }
}

fn refused(source: &str) -> String {
    let began = Instant::now();
    let template = ChatTemplate::new(source, tokenizer()).unwrap();
    let refusal = template.render(&conversation()).expect_err(source);
    assert!(began.elapsed() < Duration::from_secs(20), "{source} took {:?}", began.elapsed());
    assert!(refusal.message.len() < 500, "{refusal}");
    refusal.message
}

#[test]
fn endless_work_runs_out_of_fuel() {
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['x']) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}",
        "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x.replace('x', 'xxxxxxxx') %}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ ('x' * 1000000) | indent(1000) | length }}{% for i in range(1000) %}{{ 'y' * 1000000 }}{% endfor %}",
        "{{ ('\n' * 10000000) | indent(1000) | length }}",
        "{% for i in range(100000) %}{{ messages | tojson }}{% endfor %}{% for i in range(100000) %}{{ messages | tojson }}{% endfor %}{% for i in range(100000) %}{{ messages | tojson }}{% endfor %}",
    ] {
        refused(source);
    }
}

#[test]
fn values_nested_without_end_do_not_overflow_the_stack() {
    let nest =
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    for print in [
        "{{ ns.x }}",
        "{{ ns.x | tojson }}",
        "{{ ns.x | string }}",
        "{{ ns.x ~ '' }}",
        "{{ ns.x == [ns.x] }}",
        "",
    ] {
        // Whatever the answer, the process lives.
        let template = ChatTemplate::new(&format!("{nest}{print}"), tokenizer()).unwrap();
        let _ = template.render(&conversation());
    }
}

#[test]
fn a_source_nested_without_end_or_too_long_is_refused_at_load() {
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(ChatTemplate::new(&deep, tokenizer()), Err(TemplateError::Syntax(_))));
    let long = "x".repeat(ChatTemplate::SOURCE_BYTES_MAX + 1);
    assert!(matches!(ChatTemplate::new(&long, tokenizer()), Err(TemplateError::TooLarge { .. })));
    assert!(matches!(ChatTemplate::new("{% if %}", tokenizer()), Err(TemplateError::Syntax(_))));
}

#[test]
fn a_refusal_quotes_the_templates_sentence_and_names_the_message() {
    let source = "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('No assistants, please!') }}{% endif %}{% endfor %}SECRET SOURCE";
    let template = ChatTemplate::new(source, tokenizer()).unwrap();
    let refusal = template.render(&conversation()).unwrap_err();
    assert_eq!(refusal.param.as_deref(), Some("messages[1]"));
    assert_eq!(refusal.message, "is rejected by the model's chat template: No assistants, please!");
    let long = refused("{{ raise_exception('é' * 5000) }}");
    assert!(long.contains("éééé"));
    assert!(!refused("{{ nothing.at.all }} SECRET SOURCE").contains("SECRET"));
}

#[test]
fn contents_are_data_and_never_code() {
    let template = ChatTemplate::new("{{ messages[0].content }}", tokenizer()).unwrap();
    for text in ["{{ 7*7 }}", "{% raw %}", "{% for m in messages %}", "{# x #}", "}}{{"] {
        let conversation = Conversation {
            messages: vec![json!({"role": "user", "content": text})],
            ..Conversation::default()
        };
        assert_eq!(template.render(&conversation).unwrap().text, text);
    }
}

#[test]
fn nothing_is_read_from_the_environment_or_from_files() {
    for source in [
        "{% include '/etc/hostname' %}",
        "{% include 'chat_template' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ lookup('HOME') }}",
        "{{ open('/etc/hostname') }}",
        "{{ cycler.__init__.__globals__ }}",
    ] {
        refused(source);
    }
    for source in ["{{ environ }}{{ env }}{{ PATH }}{{ self }}", "{{ ''.__class__ }}{{ messages.__class__ }}"]
    {
        let printed = ChatTemplate::new(source, tokenizer())
            .unwrap()
            .render(&conversation())
            .map(|rendered| rendered.text);
        assert_eq!(printed.unwrap_or_default(), "", "{source}");
    }
}
