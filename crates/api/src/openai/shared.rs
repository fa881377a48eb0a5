//! The fields that chat and completions have in common.
//!
//! **Invariant:** a field that would change the answer is read, or refused by name; only what cannot matter is ignored,
//! and then the account lists it.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Limits, PRIORITIES, Refusal, Sampling, Terms, TokenId};
use serde_json::Value;

use crate::fields::{Fields, wrong};
use crate::json::{excerpt, kind};

/// Bytes of a cache salt: enough for any key or hash.
const CACHE_SALT_BYTES_MAX: usize = 1024;

/// What a streamed answer ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streaming {
    pub stream: bool,
    pub include_usage: bool,
}

/// Reads everything about sampling except `max_tokens` and `logprobs`, whose forms differ.
pub fn sampling(fields: &mut Fields) -> Result<Sampling, Refusal> {
    let default = Sampling::default();
    // llama.cpp's name for it; ours wins where both are sent.
    let repeat_penalty = fields.number("repeat_penalty")?;
    Ok(Sampling {
        temperature: fields.number("temperature")?.unwrap_or(default.temperature),
        top_k: top_k(fields)?,
        top_p: fields.number("top_p")?.unwrap_or(default.top_p),
        min_p: fields.number("min_p")?.unwrap_or(default.min_p),
        repetition_penalty: fields
            .number("repetition_penalty")?
            .or(repeat_penalty)
            .unwrap_or(default.repetition_penalty),
        presence_penalty: fields.number("presence_penalty")?.unwrap_or(default.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(default.frequency_penalty),
        seed: seed(fields)?,
        logit_bias: logit_bias(fields)?,
        stop_token_ids: token_ids(fields, "stop_token_ids")?,
        ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(default.ignore_eos),
        min_tokens: fields.count("min_tokens")?.unwrap_or(default.min_tokens),
        max_tokens: None,
        logprobs: None,
    })
}

/// Ranges that need no vocabulary; the rest is checked once the model is known.
pub fn check_ranges(sampling: &Sampling) -> Result<(), Refusal> {
    sampling.validate(usize::MAX)?;
    match sampling.max_tokens {
        Some(max) if sampling.min_tokens > max => {
            let message = format!("is {}, which is more than max_tokens, {max}", sampling.min_tokens);
            Err(Refusal::invalid("min_tokens", message))
        }
        _ => Ok(()),
    }
}

/// 0 and -1 both say "all", as other servers have it.
fn top_k(fields: &mut Fields) -> Result<Option<u32>, Refusal> {
    match fields.integer("top_k")? {
        None | Some(0 | -1) => Ok(None),
        Some(k) if k > 0 => Ok(Some(u32::try_from(k).unwrap_or(u32::MAX))),
        Some(k) => {
            Err(Refusal::invalid("top_k", format!("is {k}; it must be at least 1, or 0 or -1 for all")))
        }
    }
}

fn seed(fields: &mut Fields) -> Result<Option<u64>, Refusal> {
    match fields.take("seed") {
        None => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            let message = format!(
                "must be an integer from 0 to {}, but it is {}; leave it out for a random one",
                u64::MAX,
                if value.as_i64().is_some() { "negative" } else { kind(&value) },
            );
            Refusal::invalid("seed", message)
        }),
    }
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(TokenId, f32)>, Refusal> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    if map.len() > Sampling::LOGIT_BIAS_MAX {
        let message = format!("has {} entries; at most {} are taken", map.len(), Sampling::LOGIT_BIAS_MAX);
        return Err(Refusal::invalid("logit_bias", message));
    }
    map.iter()
        .map(|(key, value)| {
            let token = key.parse().map_err(|_| {
                Refusal::invalid("logit_bias", format!("has the key {}, which is no token id", excerpt(key)))
            })?;
            let bias =
                value.as_f64().ok_or_else(|| wrong(format!("logit_bias.{token}"), "a number", value))?;
            Ok((TokenId(token), bias as f32))
        })
        .collect()
}

/// A list of token ids.
fn token_ids(fields: &mut Fields, key: &str) -> Result<Vec<TokenId>, Refusal> {
    let ids = fields.array(key)?.unwrap_or_default();
    ids.iter().enumerate().map(|(index, id)| token_id(&format!("{key}[{index}]"), id)).collect()
}

/// One token id.
pub fn token_id(path: &str, value: &Value) -> Result<TokenId, Refusal> {
    value
        .as_u64()
        .and_then(|id| u32::try_from(id).ok())
        .map(TokenId)
        .ok_or_else(|| wrong(path, "a token id (an integer of at least 0)", value))
}

/// A string is a list of one; null and an empty list are none. An empty string can never be waited for and is dropped.
pub fn stop(fields: &mut Fields, limits: &Limits) -> Result<Vec<String>, Refusal> {
    let items = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("stop", "a string or an array of strings", &other)),
    };
    if items.len() > limits.stop_strings_max {
        let message = format!("has {} strings; at most {} are taken", items.len(), limits.stop_strings_max);
        return Err(Refusal::invalid("stop", message));
    }
    let mut strings = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("stop[{index}]");
        let Value::String(text) = item else { return Err(wrong(path, "a string", &item)) };
        if text.len() > limits.stop_string_bytes_max {
            let message =
                format!("has {} bytes; at most {} are taken", text.len(), limits.stop_string_bytes_max);
            return Err(Refusal::invalid(path, message));
        }
        if !text.is_empty() {
            strings.push(text);
        }
    }
    Ok(strings)
}

/// `n` and `best_of`, over `prompts` prompts.
pub fn choices(fields: &mut Fields, prompts: usize, limits: &Limits) -> Result<usize, Refusal> {
    let n = fields.count("n")?.unwrap_or(1);
    if n == 0 {
        return Err(Refusal::invalid("n", "is 0; ask for at least one choice"));
    }
    if n.saturating_mul(prompts) > limits.choices_max {
        let message = format!(
            "is {n}, which with {prompts} prompt(s) makes more than {} choices; send several requests",
            limits.choices_max
        );
        return Err(Refusal::invalid("n", message));
    }
    match fields.count("best_of")? {
        Some(best_of) if best_of != n => Err(Refusal::invalid(
            "best_of",
            format!("is {best_of}, which is not supported yet unless it equals n ({n}); leave it out"),
        )),
        _ => Ok(n),
    }
}

/// `cache_salt`, by vLLM's name and rules.
pub fn cache_salt(fields: &mut Fields) -> Result<Option<Arc<str>>, Refusal> {
    match fields.text("cache_salt")? {
        Some(salt) if salt.is_empty() || salt.len() > CACHE_SALT_BYTES_MAX => {
            let message = format!("has {} bytes; it must have 1 to {CACHE_SALT_BYTES_MAX}", salt.len());
            Err(Refusal::invalid("cache_salt", message))
        }
        salt => Ok(salt.map(Arc::from)),
    }
}

/// `priority`, by vLLM's name and sense, and `ttft_deadline_ms`, which is ours.
pub fn terms(fields: &mut Fields) -> Result<Terms, Refusal> {
    let priority = fields.integer("priority")?.unwrap_or(0);
    let Some(class) = i8::try_from(priority).ok().filter(|class| PRIORITIES.contains(class)) else {
        let (first, last) = (PRIORITIES.start(), PRIORITIES.end());
        let message =
            format!("is {priority}; classes go from {first} (served first) to {last}, with 0 as usual");
        return Err(Refusal::invalid("priority", message));
    };
    let within = fields.count("ttft_deadline_ms")?;
    if within == Some(0) {
        let message = "is 0; give the milliseconds within which the first token must come, or leave it out";
        return Err(Refusal::invalid("ttft_deadline_ms", message));
    }
    let first_token_within = within.map(|ms| Duration::from_millis(ms as u64));
    Ok(Terms { priority: class, tenant: None, first_token_within })
}

/// `stream` and `stream_options`. Unread options are added to `ignored`.
pub fn streaming(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Streaming, Refusal> {
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let Some(options) = fields.object("stream_options")? else {
        return Ok(Streaming { stream, include_usage: false });
    };
    if !stream {
        return Err(Refusal::invalid("stream_options", "is only allowed with \"stream\": true"));
    }
    let mut options = Fields::nested("stream_options", Value::Object(options))?;
    let include_usage = options.boolean("include_usage")?.unwrap_or(false);
    if options.boolean("continuous_usage_stats")?.unwrap_or(false) {
        let message = "is not supported yet; usage comes once, in the last chunk, with include_usage";
        return Err(Refusal::invalid("stream_options.continuous_usage_stats", message));
    }
    ignored.extend(options.rest().keys().map(|key| format!("stream_options.{}", excerpt_key(key))));
    Ok(Streaming { stream, include_usage })
}

/// A key that would change the answer and is not supported: its name, the value that would change nothing (and is
/// taken), and what to do instead.
type Unsupported = (&'static str, Neutral, &'static str);

/// Values that ask for nothing special.
#[derive(Clone, Copy)]
enum Neutral {
    None,
    False,
    True,
    Number(f64),
    Empty,
}

impl Neutral {
    fn matches(self, value: &Value) -> bool {
        match self {
            Neutral::None => false,
            Neutral::False => value == &Value::Bool(false),
            Neutral::True => value == &Value::Bool(true),
            Neutral::Number(neutral) => value.as_f64() == Some(neutral),
            Neutral::Empty => match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(map) => map.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
        }
    }
}

const UNSUPPORTED: &[Unsupported] = &[
    // OpenAI's own.
    ("audio", Neutral::None, "answers are text"),
    ("functions", Neutral::Empty, "use tools"),
    ("function_call", Neutral::None, "use tools and tool_choice"),
    ("reasoning_effort", Neutral::None, "templates that know such a switch take it in chat_template_kwargs"),
    ("verbosity", Neutral::None, "ask for it in a message"),
    ("web_search_options", Neutral::None, "this server does not search the web"),
    ("suffix", Neutral::Empty, "put the model's own fill-in-the-middle tokens into the prompt"),
    // vLLM's and SGLang's.
    ("structured_outputs", Neutral::None, "describe the format in the prompt"),
    ("guided_json", Neutral::None, "describe the format in the prompt"),
    ("guided_regex", Neutral::None, "describe the format in the prompt"),
    ("guided_choice", Neutral::None, "describe the choices in the prompt"),
    ("guided_grammar", Neutral::None, "describe the format in the prompt"),
    ("json_schema", Neutral::None, "describe the format in the prompt"),
    ("regex", Neutral::None, "describe the format in the prompt"),
    ("ebnf", Neutral::None, "describe the format in the prompt"),
    ("use_beam_search", Neutral::False, "sample n choices"),
    ("length_penalty", Neutral::Number(1.0), "it belongs to beam search"),
    ("bad_words", Neutral::Empty, "use logit_bias"),
    ("allowed_token_ids", Neutral::Empty, "use logit_bias"),
    ("prompt_logprobs", Neutral::None, "logprobs cover the answer"),
    ("truncate_prompt_tokens", Neutral::None, "shorten the prompt before sending it"),
    ("include_stop_str_in_output", Neutral::False, "answers end before the stop string"),
    ("skip_special_tokens", Neutral::True, "special tokens are never printed"),
    ("add_special_tokens", Neutral::None, "the model's own rule decides"),
    ("chat_template", Neutral::None, "the model's own template is used"),
    ("documents", Neutral::Empty, "put them into a message"),
    ("continue_final_message", Neutral::False, "use /v1/completions with the rendered prompt"),
    // llama.cpp's.
    ("grammar", Neutral::Empty, "describe the format in the prompt"),
    ("n_predict", Neutral::None, "use max_tokens"),
    ("typical_p", Neutral::Number(1.0), "use top_p or min_p"),
    ("tfs_z", Neutral::Number(1.0), "use top_p or min_p"),
    ("mirostat", Neutral::Number(0.0), "use temperature"),
    ("dry_multiplier", Neutral::Number(0.0), "use frequency_penalty"),
    ("xtc_probability", Neutral::Number(0.0), "use temperature"),
    ("dynatemp_range", Neutral::Number(0.0), "use temperature"),
];

/// Refuses what would change the answer and is not supported; names the rest, which cannot matter.
pub fn ignored(mut fields: Fields, ignored: &mut Vec<String>) -> Result<(), Refusal> {
    for (key, neutral, instead) in UNSUPPORTED {
        if fields.take(key).is_some_and(|value| !neutral.matches(&value)) {
            return Err(Refusal::invalid(*key, format!("is not supported yet; {instead}")));
        }
    }
    response_format(&mut fields)?;
    ignored.extend(fields.rest().keys().map(|key| excerpt_key(key)));
    // A record keeps the names, and a client may send any number of them.
    const IGNORED_MAX: usize = 64;
    ignored.truncate(IGNORED_MAX);
    Ok(())
}

fn response_format(fields: &mut Fields) -> Result<(), Refusal> {
    let Some(format) = fields.object("response_format")? else { return Ok(()) };
    match format.get("type") {
        Some(Value::String(name)) if name == "text" => Ok(()),
        Some(Value::String(name)) => Err(Refusal::invalid(
            "response_format.type",
            format!("is {}, which is not supported yet; only \"text\" is", excerpt(name)),
        )),
        Some(other) => Err(wrong("response_format.type", "a string", other)),
        None => Err(Refusal::invalid("response_format.type", "is missing; only \"text\" is supported yet")),
    }
}

fn excerpt_key(key: &str) -> String {
    const CHARACTERS_MAX: usize = 64;
    key.chars().take(CHARACTERS_MAX).collect()
}
