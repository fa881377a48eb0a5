//! `GET /v1/models` and `GET /v1/models/{id}`.

use protocol::Refusal;
use serde::Serialize;

use crate::{App, Served};

/// One served name. `max_model_len` is an extension that other servers have too.
#[derive(Serialize)]
pub struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: usize,
}

#[derive(Serialize)]
pub struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// Every name that a request may use.
pub fn list(app: &App) -> List<'_> {
    let named = app.models.iter().flat_map(|served| served.names.iter().map(|name| model(served, name)));
    List { object: "list", data: named.collect() }
}

/// One name, as asked for.
///
/// # Errors
/// No model has it.
pub fn one<'a>(app: &'a App, name: &'a str) -> Result<Model<'a>, Refusal> {
    app.model(name).map(|served| model(served, name))
}

fn model<'a>(served: &Served, name: &'a str) -> Model<'a> {
    Model {
        id: name,
        object: "model",
        created: served.created,
        owned_by: "firstlight",
        max_model_len: served.context,
    }
}
