//! Views of what was recorded: requests, and the engine's steps.

use std::sync::Arc;

use ledger::{Outcome, Record, RequestId, StepRecord};
use protocol::{Refusal, RefusalKind};
use serde::Serialize;

use crate::App;
use crate::authorize::Tenant;
use crate::errors::Fault;
use crate::json::excerpt;

/// A list in OpenAI's form.
#[derive(Serialize)]
pub struct List<T> {
    object: &'static str,
    data: Vec<T>,
}

impl<T> List<T> {
    fn of(data: Vec<T>) -> Self {
        List { object: "list", data }
    }
}

/// One request in a line.
#[derive(Serialize)]
pub struct Summary {
    id: RequestId,
    model: String,
    outcome: Outcome,
    status: u16,
    began_unix_ns: u64,
    e2e_ns: u64,
    ttft_ns: Option<u64>,
    prompt_tokens: usize,
    completion_tokens: usize,
}

/// A tenant's newest requests, newest first; `count=` says how many.
///
/// # Errors
/// `count` is no number.
pub fn recent(app: &App, tenant: Tenant, query: &str) -> Result<List<Summary>, Fault> {
    const COUNT: usize = 50;
    let records = app.records.recent(tenant, count(query, COUNT)?);
    Ok(List::of(records.iter().map(|record| summary(record)).collect()))
}

fn summary(record: &Record) -> Summary {
    Summary {
        id: record.id,
        model: record.model.clone(),
        outcome: record.outcome,
        status: record.status,
        began_unix_ns: record.began_unix_ns,
        e2e_ns: record.e2e_ns,
        ttft_ns: record.ttft_ns,
        prompt_tokens: record.prompt.tokens,
        completion_tokens: record.completion_tokens,
    }
}

/// The account of one request. What belongs to somebody else does not exist.
///
/// # Errors
/// There is none.
pub fn lifecycle(app: &App, tenant: Tenant, id: &str) -> Result<Arc<Record>, Fault> {
    let record = id.parse().ok().and_then(|id| app.records.get(tenant, id));
    record.ok_or_else(|| {
        let message = format!(
            "there is no account of request {}: it is not finished, or too long ago; GET /v1/requests lists those kept",
            excerpt(id)
        );
        Refusal::new(RefusalKind::NotFound, message).into()
    })
}

/// A step of one model's backend.
#[derive(Serialize)]
pub struct Step<'a> {
    model: &'a str,
    #[serde(flatten)]
    record: StepRecord,
}

/// Each model's newest steps, oldest first; `count=` says how many.
///
/// # Errors
/// `count` is no number; there are several tenants.
pub fn steps<'a>(app: &'a App, query: &str) -> Result<List<Step<'a>>, Fault> {
    const COUNT: usize = 100;
    const COUNT_MAX: usize = 1000;
    if app.keys.len() > 1 {
        return Err(Fault::OthersShown);
    }
    let count = count(query, COUNT)?.min(COUNT_MAX);
    let steps = app.models.iter().flat_map(|served| {
        served.backend.steps(count).into_iter().map(|record| Step { model: &served.names[0], record })
    });
    Ok(List::of(steps.collect()))
}

fn count(query: &str, default: usize) -> Result<usize, Refusal> {
    match query.split('&').find_map(|pair| pair.strip_prefix("count=")) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| {
            Refusal::invalid("count", format!("is {}; it must be a whole number", excerpt(text)))
        }),
    }
}
