//! One request's life, from its first byte in to its last byte out: the async spine of the product.
//!
//! **Invariant:** whatever way a request ends, its account is closed and recorded exactly once. A life is a task of its
//! own for that: a client that goes away ends the connection's future, and the life hears of it, but is not dropped.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use ledger::clock::Ns;
use ledger::{Outcome, Stage, delay, now_ns};
use protocol::{Refusal, RefusalKind, Request};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::{Answer, Event};
use crate::drain::Phase;
use crate::errors::Fault;
use crate::exchange::Exchange;
use crate::frames::{self, Delivery, FrameBody, Frames, Gone};
use crate::heavy::heavy;
use crate::life::Life;
use crate::openai::Format;
use crate::routes::check_serving;
use crate::throttle::Place;
use crate::wire::{Choice, Ending, Head, Wire};
use crate::{App, authorize, prompt, reply};

/// A client that takes nothing for so long is given up.
const STALL_MAX: Duration = Duration::from_secs(120);
/// How long a cancelled sequence may take to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(60);
/// What is recorded for a client that went away before it had its answer.
const CLIENT_GONE: u16 = 499;

/// Where the head of the answer goes; closed when the client is gone.
type HeadSender = oneshot::Sender<Response<FrameBody>>;

/// Serves one request for tokens.
pub async fn serve(app: Arc<App>, exchange: Exchange, format: Format) -> Response<FrameBody> {
    let (head, response) = oneshot::channel();
    let life = Life::begin(app.ids.next(), exchange.first_byte);
    tokio::spawn(live(app, life, exchange, format, head));
    response.await.unwrap_or_else(|_| reply::broken())
}

/// The line: from the head to a closed account.
async fn live(app: Arc<App>, mut life: Life, mut exchange: Exchange, format: Format, mut head: HeadSender) {
    delay::inject(Stage::Accept);
    let prepared = tokio::select! {
        prepared = prepare(&app, &mut life, &mut exchange, format) => prepared,
        () = head.closed() => return record(&app, life, End::Gone, now_ns()),
    };
    let Prepared { mut answer, request, mut wire, place } = match prepared {
        Ok(prepared) => prepared,
        Err(fault) => return refuse(&app, life, fault, head).await,
    };
    let delivered = match request.stream {
        true => stream(&app, &mut life, &request, &mut answer, &mut *wire, head).await,
        false => whole(&app, &mut life, &request, &mut answer, &mut *wire, head).await,
    };
    match delivered {
        Ok((end, last_byte)) => record(&app, life, end, last_byte),
        Err(Gone) => cancel(&app, life, answer).await,
    }
    drop(place);
}

/// How a life ends.
enum End {
    Finished,
    Refused(Fault),
    Failed(Refusal),
    /// The client went away.
    Gone,
}

/// Closes the account and keeps it.
fn record(app: &App, life: Life, end: End, last_byte: Ns) {
    let tenant = life.tenant;
    let record = match end {
        End::Finished => life.close(Outcome::Finished, 200, None, last_byte),
        End::Refused(fault) => {
            life.close(Outcome::Refused, fault.status().as_u16(), Some(fault.to_string()), last_byte)
        }
        End::Failed(refusal) => {
            let outcome = match refusal.kind {
                RefusalKind::Deadline => Outcome::Refused,
                _ => Outcome::Failed,
            };
            let fault = Fault::from(refusal);
            life.close(outcome, fault.status().as_u16(), Some(fault.to_string()), last_byte)
        }
        End::Gone => life.close(Outcome::CancelledByClient, CLIENT_GONE, None, last_byte),
    };
    app.records.push(tenant, Arc::new(record));
}

/// A request on its way to tokens.
struct Prepared {
    request: Request,
    answer: Answer,
    wire: Box<dyn Wire>,
    /// Held until the account is closed.
    place: Place,
}

/// From the head to submitted sequences.
async fn prepare(
    app: &App,
    life: &mut Life,
    exchange: &mut Exchange,
    format: Format,
) -> Result<Prepared, Fault> {
    life.enter(Stage::Authorize);
    life.tenant = authorize::check(app, &exchange.head)?;
    let tenant = authorize::tenant_name(app, &exchange.head.headers, life.tenant)?;
    life.enter(Stage::ReadBody);
    let body = exchange.read_json(&app.limits).await?;
    life.enter(Stage::Parse);
    let size = body.len();
    let mut request = heavy(size, || format.parse(life.id, &body, &app.limits))?;
    life.ignored.clone_from(&request.ignored);
    life.enter(Stage::Throttle);
    check_serving(app)?;
    let place = app.throttle.enter()?;
    life.enter(Stage::Route);
    let served = app.model(&request.model)?;
    life.model.clone_from(&served.names[0]);
    request.validate(served.vocabulary)?;
    life.enter(Stage::Render);
    let ready = heavy(size, || {
        let inputs = request.inputs.iter();
        inputs.map(|input| served.text.render(input)).collect::<Result<Vec<_>, _>>()
    })?;
    life.enter(Stage::Tokenize);
    let prompts: Vec<_> = heavy(size, || ready.iter().map(|ready| served.text.tokenize(ready)).collect());
    life.prompt = prompt::account(&prompts);
    for prompt in &prompts {
        prompt::check_length(prompt, served.context)?;
    }
    life.enter(Stage::Handoff);
    life.fork(prompts.len() * request.n);
    // What one tenant has computed no other one finds, whatever salt it sends.
    if let Some(tenant) = &tenant {
        let salt = request.cache_salt.as_deref().unwrap_or_default();
        request.cache_salt = Some(format!("{tenant}\0{salt}").into());
    }
    request.terms.tenant = tenant;
    if let Some(within) = &mut request.terms.first_token_within {
        *within = within.saturating_sub(life.age());
    }
    let answer = Answer::submit(served, &request, &prompts)?;
    let wire = format.wire(Head::of(&request, &served.names[0], reply::unix_seconds()));
    Ok(Prepared { request, answer, wire, place })
}

/// Writes the answer token by token.
async fn stream(
    app: &App,
    life: &mut Life,
    request: &Request,
    answer: &mut Answer,
    wire: &mut dyn Wire,
    head: HeadSender,
) -> Result<(End, Ns), Gone> {
    let (frames, body) = frames::stream(app.keepalive);
    head.send(reply::stream(life, body)).map_err(|_| Gone)?;
    let mut last = 0;
    for choice in 0..answer.choices() {
        send(&frames, wire.opening(choice)).await?;
        if let Some(delta) = answer.opening(choice) {
            send(&frames, wire.delta(&delta)).await?;
        }
    }
    let failure = loop {
        let (choice, output) = tokio::select! {
            biased;
            delivery = frames.delivered() => { arrived(life, delivery?); continue; }
            next = answer.next() => match next { Some(next) => next, None => break None },
            () = app.drain.reached(Phase::Ending) => break Some(ended_by_shutdown()),
        };
        match answer.receive(life, choice, output) {
            Event::Delta { delta, tokens } => {
                life.enter_write(choice);
                let frame = send(&frames, wire.delta(&delta)).await?;
                life.wrote(choice, tokens, frame);
                last = choice;
            }
            Event::Nothing => {}
            Event::Failed(refusal) => break Some(refusal),
        }
    };
    let closing = match &failure {
        Some(refusal) => wire.failure(refusal),
        None if request.include_lifecycle => {
            while life.is_writing() {
                arrived(life, frames.delivered().await?);
            }
            wire.ending(&Ending { usage: answer.usage(), lifecycle: Some(&life.snapshot()) })
        }
        None => wire.ending(&Ending { usage: answer.usage(), lifecycle: None }),
    };
    let frame = timeout(STALL_MAX, frames.finish(closing)).await.map_err(|_| Gone)??;
    life.wrote(last, 0, frame);
    let last_byte = all_arrived(life, &frames).await?;
    Ok((failure.map_or(End::Finished, End::Failed), last_byte))
}

/// Writes the answer once it is complete.
async fn whole(
    app: &App,
    life: &mut Life,
    request: &Request,
    answer: &mut Answer,
    wire: &mut dyn Wire,
    mut head: HeadSender,
) -> Result<(End, Ns), Gone> {
    let mut choices = vec![Choice::default(); answer.choices()];
    let mut last = 0;
    for (index, choice) in choices.iter_mut().enumerate() {
        if let Some(delta) = answer.opening(index) {
            choice.push(delta);
        }
    }
    let failure = loop {
        let (choice, output) = tokio::select! {
            () = head.closed() => return Err(Gone),
            next = answer.next() => match next { Some(next) => next, None => break None },
            () = app.drain.reached(Phase::Ending) => break Some(ended_by_shutdown()),
        };
        match answer.receive(life, choice, output) {
            Event::Delta { delta, tokens } => {
                choices[choice].push(delta);
                life.appended(choice, tokens);
                last = choice;
            }
            Event::Nothing => {}
            Event::Failed(refusal) => break Some(refusal),
        }
    };
    delay::inject(Stage::Write);
    let (frames, response) = match &failure {
        Some(refusal) => reply::fault(life, &Fault::from(refusal.clone())),
        None => {
            let snapshot = request.include_lifecycle.then(|| life.snapshot());
            let ending = Ending { usage: answer.usage(), lifecycle: snapshot.as_ref() };
            reply::whole(life, wire.whole(&choices, &ending))
        }
    };
    life.wrote(last, 0, 1);
    head.send(response).map_err(|_| Gone)?;
    let last_byte = all_arrived(life, &frames).await?;
    Ok((failure.map_or(End::Finished, End::Failed), last_byte))
}

/// Says no.
async fn refuse(app: &App, mut life: Life, fault: Fault, head: HeadSender) {
    life.refuse();
    let (frames, response) = reply::fault(&life, &fault);
    let delivery = match head.send(response) {
        Ok(()) => timeout(STALL_MAX, frames.delivered()).await.unwrap_or(Err(Gone)),
        Err(_) => Err(Gone),
    };
    match delivery {
        Ok(delivery) => record(app, life, End::Refused(fault), delivery.at),
        Err(Gone) => record(app, life, End::Gone, now_ns()),
    }
}

/// The client is gone: what runs for it is ended, and charged where it was.
async fn cancel(app: &App, mut life: Life, mut answer: Answer) {
    let gone = now_ns();
    answer.cancel();
    let ended = async {
        while let Some((choice, output)) = answer.next().await {
            answer.receive(&mut life, choice, output);
        }
    };
    // A backend ends a cancelled sequence within one step; this only guards against one that never does.
    let _ = timeout(CANCEL_PATIENCE, ended).await;
    record(app, life, End::Gone, gone);
}

/// Sends a frame, unless the client takes nothing for too long.
async fn send(frames: &Frames, bytes: bytes::Bytes) -> Result<u64, Gone> {
    timeout(STALL_MAX, frames.send(bytes)).await.unwrap_or(Err(Gone))
}

fn arrived(life: &mut Life, delivery: Delivery) {
    life.delivered(delivery.through, delivery.at);
}

/// Waits until everything that was written is with the socket; gives the moment of the last byte.
async fn all_arrived(life: &mut Life, frames: &Frames) -> Result<Ns, Gone> {
    let mut last_byte = now_ns();
    while life.is_writing() {
        let delivery = timeout(STALL_MAX, frames.delivered()).await.unwrap_or(Err(Gone))?;
        last_byte = delivery.at;
        arrived(life, delivery);
    }
    Ok(last_byte)
}

fn ended_by_shutdown() -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        "the server shut down before the answer was complete; send it again",
    )
}
