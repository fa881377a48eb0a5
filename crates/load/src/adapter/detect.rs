//! Which kind of server is behind a URL. What to ask is data ([`PROBES`]) and the decision is a pure function of the
//! answers, so that both are tested without a network.

use serde_json::Value;

/// Paths to GET behind the target's base path, all of them; a probe that fails is an answer too.
pub const PROBES: [&str; 6] =
    ["/v1/models", "/props", "/model_info", "/get_model_info", "/version", "/health"];

/// What came back for one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// One of [`PROBES`].
    pub path: String,
    /// None where no answer came.
    pub status: Option<u16>,
    /// The answer's `server` header.
    pub server: Option<String>,
    pub body: String,
}

/// What the probes tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// One of [`super::KINDS`].
    pub kind: &'static str,
    /// What it was told by, in words.
    pub evidence: String,
    /// The models that it lists, in its order; empty where it lists none.
    pub models: Vec<String>,
    /// The longest context of the first model, in tokens.
    pub context_max: Option<u32>,
    /// What the user should know, such as a key that is missing.
    pub warnings: Vec<String>,
}

/// Decides from the answers to the probes. Never fails: what nothing speaks for is `opaque`.
pub fn decide(answers: &[Probed]) -> Detected {
    let models = found(answers, "/v1/models").and_then(|body| body.get("data").cloned());
    let models: Vec<Value> = models.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let (kind, evidence) = kind(answers, &models);
    Detected {
        kind,
        evidence,
        models: models.iter().filter_map(|model| model.get("id")?.as_str().map(str::to_owned)).collect(),
        context_max: models.first().and_then(context_of),
        warnings: warnings(answers),
    }
}

/// The first of the signs that is there; the surer ones stand first.
fn kind(answers: &[Probed], models: &[Value]) -> (&'static str, String) {
    let owner = models.first().and_then(|model| model.get("owned_by")).and_then(Value::as_str).unwrap_or("");
    let says = |owner: &str| format!("/v1/models says owned_by {owner:?}");
    match owner {
        "firstlight" => return ("firstlight", says(owner)),
        "llamacpp" => return ("llama.cpp", says(owner)),
        "vllm" => return ("vllm", says(owner)),
        "sglang" => return ("sglang", says(owner)),
        _ => {}
    }
    if answers.iter().any(|answer| answer.server.as_deref() == Some("llama.cpp")) {
        return ("llama.cpp", "its header says server: llama.cpp".to_owned());
    }
    if found(answers, "/props").is_some_and(|body| body.get("default_generation_settings").is_some()) {
        return ("llama.cpp", "/props has default_generation_settings".to_owned());
    }
    // The second one is its older name.
    for path in ["/model_info", "/get_model_info"] {
        if found(answers, path).is_some_and(|body| body.get("is_generation").is_some()) {
            return ("sglang", format!("{path} has is_generation"));
        }
    }
    // Many servers have a version; only vLLM's own model cards carry this together with it.
    let version =
        found(answers, "/version").is_some_and(|body| body.get("version").is_some_and(Value::is_string));
    let card = models
        .first()
        .is_some_and(|model| model.get("max_model_len").is_some() && model.get("permission").is_some());
    if version && card {
        return ("vllm", "/version is there, and /v1/models has vLLM's cards".to_owned());
    }
    ("opaque", "nothing that it answers is particular to a known kind of server".to_owned())
}

fn warnings(answers: &[Probed]) -> Vec<String> {
    let mut warnings = Vec::new();
    if answers.iter().all(|answer| answer.status.is_none()) {
        warnings
            .push("no probe was answered; is the server up, and the URL its base (without /v1)?".to_owned());
        return warnings;
    }
    let status =
        |path: &str| answers.iter().find(|answer| answer.path == path).and_then(|answer| answer.status);
    match status("/v1/models") {
        Some(200) => {}
        Some(code @ (401 | 403)) => {
            warnings.push(format!("/v1/models answers {code}; give the server's key with --api-key"));
        }
        Some(code) => warnings.push(format!("/v1/models answers {code}; name the model with --model")),
        None => warnings.push("/v1/models did not answer; name the model with --model".to_owned()),
    }
    if status("/health") == Some(503) {
        warnings.push("/health answers 503: the server is still loading, or takes no requests".to_owned());
    }
    warnings
}

/// The body of a probe that succeeded, if it is JSON.
fn found(answers: &[Probed], path: &str) -> Option<Value> {
    let answer = answers.iter().find(|answer| answer.path == path && answer.status == Some(200))?;
    serde_json::from_str(&answer.body).ok()
}

/// The model card's context length: vLLM's and SGLang's and our name for it, or llama.cpp's.
fn context_of(model: &Value) -> Option<u32> {
    let length = model.get("max_model_len").or_else(|| model.get("meta")?.get("n_ctx"))?;
    length.as_u64().and_then(|length| u32::try_from(length).ok())
}
