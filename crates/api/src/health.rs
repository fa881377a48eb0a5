//! Whether the server lives, and whether it takes requests.
//!
//! **Invariant:** nothing here waits for anything, so a busy engine answers as fast as an idle one.

use hyper::Response;
use protocol::{Refusal, RefusalKind};
use serde::Serialize;

use crate::App;
use crate::errors::Fault;
use crate::frames::FrameBody;
use crate::routes::{check_serving, json};

/// The process answers.
#[derive(Serialize)]
pub struct Alive {
    status: &'static str,
}

impl Default for Alive {
    fn default() -> Self {
        Alive { status: "alive" }
    }
}

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    models: Vec<ModelState>,
}

#[derive(Serialize)]
struct ModelState {
    running: usize,
    waiting: usize,
    blocks_free: usize,
    blocks_cached: usize,
    waiting_tokens: usize,
    blocks_total: usize,
    /// Tokens of all prompts so far, and those of them that came from the prefix cache.
    prompt_tokens: u64,
    cached_tokens: u64,
    /// Mean relative error of recent forecasts of how long an engine step takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast_error: Option<f64>,
}

/// 200 where every model takes requests.
///
/// # Errors
/// One does not, or a shutdown is under way; with the reason, and when to ask again.
pub fn ready(app: &App) -> Result<Response<FrameBody>, Fault> {
    check_serving(app)?;
    let mut models = Vec::with_capacity(app.models.len());
    for served in &app.models {
        let state = served.backend.state();
        if !state.ready {
            let reason = state.reason.unwrap_or_else(|| "not ready".into());
            return Err(Refusal::new(RefusalKind::Unavailable, reason).into());
        }
        models.push(ModelState {
            running: state.running,
            waiting: state.waiting,
            blocks_free: state.blocks_free,
            blocks_cached: state.blocks_cached,
            waiting_tokens: state.waiting_tokens,
            blocks_total: state.blocks_total,
            prompt_tokens: state.prompt_tokens,
            cached_tokens: state.cached_tokens,
            forecast_error: state.forecast_error,
        });
    }
    Ok(json(&Ready { status: "ok", models }))
}
