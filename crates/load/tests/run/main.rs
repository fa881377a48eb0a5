//! The client and the runner against a server whose delays and faults are known (field cases, area L).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod turns;

mod tls;

#[allow(dead_code, reason = "the examples use the rest")]
mod mock;

use std::sync::Arc;
use std::time::Duration;

use load::adapter::openai::OpenAi;
use load::adapter::{Endpoint, Form};
use load::client::{Address, Client, Clock};
use load::results::{Results, Target};
use load::run::{Load, Plan, Progress, Think, run};
use load::sample::{Channel, CountSource, Outcome, Sample};
use load::schedule::{Call, CallId, Prompt, Said, Workload};
use mock::{Mock, Step, at, done, finish, frame, role, token, usage};
use serde_json::json;
use tokio::sync::watch;

/// `count` calls that say their number; in `sessions` of so many turns, if any.
struct Numbers {
    count: u64,
    turns: u64,
}

impl Workload for Numbers {
    fn len(&self) -> Option<u64> {
        Some(self.count)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let say = |id: u64| Said::Message { role: "user".into(), content: format!("number {id}").into() };
        let first = id.0 - id.0 % self.turns;
        let mut said: Vec<Said> =
            (first..id.0).flat_map(|earlier| [say(earlier), Said::Answer(CallId(earlier))]).collect();
        said.push(say(id.0));
        (id.0 < self.count).then(|| Call {
            id,
            prompt: Prompt::Chat(said),
            max_tokens: 16,
            ignore_eos: false,
            after: (first..id.0).map(CallId).collect(),
            session: (self.turns > 1).then_some(first),
            prompt_tokens: None,
        })
    }

    fn describe(&self) -> String {
        format!("{} numbers", self.count)
    }
}

fn plan(mock: &Mock, load: Load, count: u64) -> Plan {
    let form =
        Form { model: "mock".into(), endpoint: Endpoint::Chat, stream: true, extra: serde_json::Map::new() };
    Plan {
        target: Target {
            url: mock.url.clone(),
            kind: "opaque".into(),
            model: "mock".into(),
            endpoint: "chat".into(),
            stream: true,
        },
        adapter: Arc::new(OpenAi::new(form)),
        workload: Arc::new(Numbers { count, turns: 1 }),
        load,
        seed: 1,
        requests: None,
        duration: None,
        warm_up: Duration::ZERO,
        cool_down: Duration::ZERO,
        in_flight_max: 1000,
        drain: Duration::from_secs(20),
        samples_max: 1000,
        spin: false,
    }
}

fn one_user() -> Load {
    Load::Closed { users: 1, think: Think::Constant(Duration::ZERO) }
}

fn at_rate(per_s: f64) -> Load {
    Load::Open {
        arrivals: Box::new((0u32..).map(move |index| Duration::from_secs_f64(f64::from(index) / per_s))),
        description: format!("{per_s}/s"),
        mean_per_s: Some(per_s),
    }
}

fn results(plan: Plan) -> Results {
    results_within(plan, Duration::from_secs(10))
}

fn results_within(plan: Plan, timeout: Duration) -> Results {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = Address::new(&plan.target.url).unwrap();
        let client = Arc::new(Client::new(address, None, timeout, Clock::start()));
        let (_cancel, cancelled) = watch::channel(false);
        run(plan, client, watch::channel(Progress::default()).0, cancelled).await.unwrap()
    })
}

/// The sample of the only call against a server that answers so.
fn sample_of(steps: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Sample {
    let mock = Mock::start(move |_, _| steps());
    results(plan(&mock, one_user(), 1)).samples.remove(0)
}

fn since_sent_ms(sample: &Sample, moment: u64) -> f64 {
    (moment - sample.sent_ns.unwrap()) as f64 / 1e6
}

#[track_caller]
fn assert_near(found_ms: f64, expected_ms: f64) {
    assert!((expected_ms - 0.5..expected_ms + 15.0).contains(&found_ms), "{found_ms} ms, not {expected_ms}");
}

/// F76: `[DONE]`, role and usage frames and comments were stamped as tokens elsewhere.
#[test]
fn only_frames_with_tokens_are_stamped_and_the_streams_end_is_told_apart() {
    let sample = sample_of(|| {
        let mut steps = vec![at(10), role(), at(50), Step::Frame(": keepalive\n\n".into())];
        for index in 0..10 {
            steps.extend([at(200 + 20 * index), token(" x")]);
        }
        steps.extend([finish("length"), at(600), usage(7, 10), at(700), done()]);
        steps
    });
    assert_eq!((&sample.outcome, sample.chunks.len()), (&Outcome::Finished, 10));
    assert_near(since_sent_ms(&sample, sample.headers_ns.unwrap()), 0.0);
    assert_near(since_sent_ms(&sample, sample.first_byte_ns.unwrap()), 10.0);
    for (index, chunk) in sample.chunks.iter().enumerate() {
        assert_near(since_sent_ms(&sample, chunk.at_ns), 200.0 + 20.0 * index as f64);
    }
    assert_near(since_sent_ms(&sample, sample.last_byte_ns.unwrap()), 700.0);
    assert_eq!((sample.tokens.prompt, sample.tokens.output, sample.tokens.counted), (Some(7), Some(10), 10));
    assert_eq!(sample.finish_reason.as_deref(), Some("length"));
}

/// F77: a reasoning-only answer had no first token elsewhere, and an empty one crashed.
#[test]
fn tokens_of_any_channel_are_tokens_and_an_empty_answer_is_a_class_of_its_own() {
    let delta = |delta: serde_json::Value| frame(&json!({ "choices": [{ "index": 0, "delta": delta }] }));
    let thinking = sample_of(move || {
        vec![at(5), delta(json!({ "reasoning_content": "hm" })), at(30), token("x"), finish("stop"), done()]
    });
    let channels: Vec<Channel> = thinking.chunks.iter().map(|chunk| chunk.channel).collect();
    assert_eq!(channels, [Channel::Reasoning, Channel::Answer]);
    let tools = sample_of(move || {
        let call = json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{}" } }] });
        vec![delta(call), finish("tool_calls"), done()]
    });
    assert_eq!(tools.chunks[0].channel, Channel::ToolCall);
    let refusal = sample_of(move || vec![delta(json!({ "refusal": "no" })), finish("stop"), done()]);
    assert_eq!(refusal.chunks[0].channel, Channel::Refusal);
    let empty = sample_of(|| vec![role(), finish("stop"), usage(3, 0), done()]);
    assert_eq!((empty.outcome, empty.chunks.len()), (Outcome::Empty, 0));
}

/// F78: throughput by frames was called throughput by tokens elsewhere.
#[test]
fn usage_counts_the_tokens_and_where_the_count_comes_from_is_said() {
    let four_a_frame = |output: Option<u32>| {
        sample_of(move || {
            let mut steps: Vec<Step> = (0..10).map(|_| token("four tokens in one")).collect();
            steps.push(finish("length"));
            steps.extend(output.map(|output| usage(5, output)));
            steps.push(done());
            steps
        })
    };
    let told = four_a_frame(Some(40));
    assert_eq!((told.tokens.source, told.tokens.counted), (CountSource::Usage, 10));
    assert!(told.chunks.iter().all(|chunk| chunk.tokens == 4));
    let untold = four_a_frame(None);
    assert_eq!((untold.tokens.source, untold.tokens.output), (CountSource::Chunks, None));
    let lies = four_a_frame(Some(3));
    assert_eq!(
        (lies.tokens.output, lies.tokens.counted),
        (Some(3), 10),
        "both are kept, so that they can be compared"
    );
}

/// F80: cut streams and errors in band were successes elsewhere.
#[test]
fn each_way_to_fail_has_its_class_and_what_the_standard_allows_is_read() {
    let error = || frame(&json!({ "error": { "message": "no memory", "type": "server_error" } }));
    let outcome = |steps: fn() -> Vec<Step>| sample_of(steps).outcome;
    let in_band = sample_of(move || vec![token("a"), token("b"), error(), done()]);
    assert!(
        matches!(&in_band.outcome, Outcome::ErrorInBand { detail } if detail.contains("no memory")),
        "{in_band:?}"
    );
    let cut = outcome(|| (0..5).map(|_| token("a")).collect());
    assert!(matches!(cut, Outcome::CutShort { .. }), "{cut:?}");
    let broken = outcome(|| vec![token("a"), Step::Close]);
    assert!(matches!(broken, Outcome::CutShort { .. }), "{broken:?}");
    assert_eq!(outcome(|| vec![token("a"), finish("stop")]), Outcome::Finished, "no [DONE] is needed");
    assert_eq!(outcome(|| vec![token("a"), done()]), Outcome::Finished, "[DONE] is an end");
    let garbage = outcome(|| vec![token("a"), Step::Frame("data: {not json\n\n".into()), done()]);
    assert!(matches!(garbage, Outcome::Malformed { .. }), "{garbage:?}");
    let refused = outcome(|| {
        vec![Step::Raw(b"HTTP/1.1 503 Busy\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n{\"error\":\"come later\"".to_vec())]
    });
    assert!(matches!(&refused, Outcome::Refused { detail } if detail.contains("come later")), "{refused:?}");
    let odd = sample_of(|| {
        let text = "data:{\"choices\":[{\"delta\":{\"content\":\"é中\"}}]}\r\n\r\n".as_bytes();
        let chunk =
            |bytes: &[u8]| Step::Raw([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
        let head =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let end = b"data: {\"choices\":[{\"delta\":{},\ndata: \"finish_reason\":\"stop\"}]}\n\n";
        // Cut in the middle of a character.
        let cut = text.iter().position(|byte| *byte > 0x7f).unwrap() + 1;
        vec![
            Step::Raw(head.to_vec()),
            chunk(&text[..cut]),
            at(20),
            chunk(&text[cut..]),
            chunk(end),
            Step::Raw(b"0\r\n\r\n".to_vec()),
        ]
    });
    assert_eq!((&odd.outcome, odd.chunks.len()), (&Outcome::Finished, 1));
    assert_near(since_sent_ms(&odd, odd.chunks[0].at_ns), 20.0);
}

#[test]
fn a_server_that_is_not_there_or_never_answers_is_a_failure_and_no_hole() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Mock { url: format!("http://{gone}") };
    let found = results(plan(&nobody, one_user(), 1));
    assert!(matches!(found.samples[0].outcome, Outcome::ConnectionFailed { .. }), "{:?}", found.samples[0]);
    assert_eq!(found.health.connection_errors, 1);
    let silent = Mock::start(|_, _| vec![at(60_000)]);
    let found = results_within(plan(&silent, one_user(), 1), Duration::from_millis(100));
    assert_eq!((&found.samples[0].outcome, found.outcomes["timed_out"]), (&Outcome::TimedOut, 1));
}

/// F81: a tool that waits for answers before it sends misses what a stall does to those who come meanwhile.
#[test]
fn a_stall_is_felt_by_every_call_that_was_intended_during_it() {
    let frozen = std::sync::Mutex::new(());
    let mock = Mock::start(move |number, _| {
        // The tenth call stops the server for a second; whoever comes meanwhile waits.
        let _turn = frozen.lock().unwrap();
        if number == 10 {
            std::thread::sleep(Duration::from_secs(1));
        }
        vec![token("x"), finish("stop"), done()]
    });
    let mut plan = plan(&mock, at_rate(20.0), u64::MAX);
    plan.duration = Some(Duration::from_secs(2));
    let found = results(plan);
    assert_eq!(found.samples.len(), 40, "all that the schedule wanted");
    let waits: Vec<f64> = found
        .samples
        .iter()
        .map(|sample| (sample.chunks[0].at_ns - sample.intended_ns) as f64 / 1e6)
        .collect();
    for (number, wait) in waits.iter().enumerate() {
        let stalled = 1000.0 - 50.0 * (number as f64 - 10.0);
        let expected = if (10..30).contains(&number) { stalled } else { 0.0 };
        assert!(
            (expected - 30.0..expected + 60.0).contains(wait),
            "call {number} waited {wait} ms, not {expected}"
        );
    }
}

/// F81: with a limit on calls under way, those who wait for it are counted and measured from their intended time.
#[test]
fn calls_held_back_by_the_limit_are_counted_and_still_measured_from_their_intended_time() {
    let mock = Mock::start(|_, _| vec![at(200), token("x"), finish("stop"), done()]);
    let mut plan = plan(&mock, at_rate(20.0), 12);
    plan.in_flight_max = 1;
    let found = results(plan);
    assert_eq!(found.samples.len(), 12);
    assert!(found.held >= 10, "{} were held", found.held);
    let last = found.samples.last().unwrap();
    assert!(last.chunks[0].at_ns - last.intended_ns > 1_500_000_000, "{last:?}");
    assert!(found.health.void.is_empty(), "the limit's waits are not the client's lag: {:?}", found.health);
}

/// F82: what was still under way at the end was dropped, or called a failure, elsewhere.
#[test]
fn calls_under_way_at_the_end_are_in_flight_neither_failed_nor_lost() {
    let mock = Mock::start(|number, _| {
        let end = if number < 3 { 20 } else { 60_000 };
        vec![token("x"), at(end), finish("stop"), done()]
    });
    let mut plan = plan(&mock, at_rate(10.0), u64::MAX);
    (plan.duration, plan.drain) = (Some(Duration::from_millis(600)), Duration::from_millis(100));
    let found = results(plan);
    assert_eq!((found.outcomes["finished"], found.outcomes["in_flight"]), (3, 3), "{:?}", found.outcomes);
    assert!(found.samples.iter().all(|sample| sample.chunks.len() == 1), "what they had said so far is kept");
}

#[test]
fn later_turns_carry_the_servers_own_answers_and_wait_for_them() {
    let heard: Arc<std::sync::Mutex<Vec<serde_json::Value>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let mock = Mock::start(move |_, body| {
        let messages = body["messages"].as_array().unwrap().clone();
        let last = messages.last().unwrap()["content"].as_str().unwrap().to_owned();
        hears.lock().unwrap().push(json!(messages));
        vec![at(30), token("to "), token(&last), finish("stop"), done()]
    });
    let mut plan = plan(&mock, at_rate(1000.0), 6);
    plan.workload = Arc::new(Numbers { count: 6, turns: 3 });
    let found = results(plan);
    assert_eq!(found.outcomes["finished"], 6, "{:?}", found.outcomes);
    let heard = heard.lock().unwrap();
    // Of the first session: the other's may well be heard before it.
    let last = |messages: &&serde_json::Value| messages.as_array().unwrap().last().unwrap().clone();
    let third_turn = heard.iter().find(|messages| last(messages)["content"] == "number 2").unwrap();
    assert_eq!(third_turn.as_array().unwrap().len(), 5);
    assert_eq!(third_turn[1], json!({ "role": "assistant", "content": "to number 0" }).clone());
    let (first, second) = (&found.samples[0], &found.samples[1]);
    assert!(
        second.intended_ns >= first.last_byte_ns.unwrap(),
        "a turn is wanted once the one before is answered"
    );
}

#[test]
fn a_session_whose_earlier_turn_failed_fails_with_the_reason() {
    let mock = Mock::start(|_, _| vec![token("x"), Step::Close]);
    let mut plan = plan(&mock, one_user(), 2);
    plan.workload = Arc::new(Numbers { count: 2, turns: 2 });
    let found = results(plan);
    assert!(
        matches!(&found.samples[1].outcome, Outcome::NotSent { detail } if detail.contains("call 0 failed")),
        "{:?}",
        found.samples[1]
    );
}

#[test]
fn more_calls_than_samples_are_kept_still_count() {
    let mock = Mock::start(|_, _| vec![token("x"), finish("stop"), done()]);
    let mut plan = plan(&mock, Load::Closed { users: 4, think: Think::Constant(Duration::ZERO) }, 200);
    plan.samples_max = 50;
    let found = results(plan);
    assert_eq!((found.samples.len(), found.samples_dropped, found.outcomes["finished"]), (50, 150, 200));
    assert_eq!(found.histograms["ttft"].count, 200);
}

#[test]
fn a_run_that_nothing_ends_or_a_window_with_nothing_in_it_is_refused() {
    let mock = Mock::start(|_, _| vec![token("x"), finish("stop"), done()]);
    let refused = |plan: Plan| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::new(
                Address::new(&plan.target.url).unwrap(),
                None,
                Duration::from_secs(1),
                Clock::start(),
            );
            let (_cancel, cancelled) = watch::channel(false);
            run(plan, Arc::new(client), watch::channel(Progress::default()).0, cancelled)
                .await
                .unwrap_err()
                .to_string()
        })
    };
    struct Endless(Numbers);
    impl Workload for Endless {
        fn len(&self) -> Option<u64> {
            None
        }
        fn call(&self, id: CallId) -> Option<Call> {
            self.0.call(id)
        }
        fn describe(&self) -> String {
            "endless".into()
        }
    }
    let mut endless = plan(&mock, one_user(), 1);
    endless.workload = Arc::new(Endless(Numbers { count: u64::MAX, turns: 1 }));
    assert!(refused(endless).contains("--duration"));
    let mut short = plan(&mock, one_user(), 2);
    short.warm_up = Duration::from_secs(60);
    assert!(refused(short).contains("leave nothing"));
}

/// A workload whose calls need the one before them, of no session.
struct Chain;

impl Workload for Chain {
    fn len(&self) -> Option<u64> {
        Some(3)
    }

    fn call(&self, id: CallId) -> Option<Call> {
        let call = Numbers { count: 3, turns: 1 }.call(id)?;
        Some(Call { after: (0..id.0).map(CallId).collect(), ..call })
    }

    fn describe(&self) -> String {
        "chain".into()
    }
}

#[test]
fn calls_without_a_session_are_waited_for_as_well() {
    let mock = Mock::start(|_, _| vec![at(20), token("x"), finish("stop"), done()]);
    let mut plan = plan(&mock, at_rate(1000.0), 3);
    plan.workload = Arc::new(Chain);
    plan.drain = Duration::from_secs(3);
    let found = results(plan);
    assert_eq!(found.outcomes.get("finished"), Some(&3), "{:?}", found.outcomes);
}

#[test]
fn a_call_that_was_sent_and_never_answered_says_when_it_was_sent() {
    let silent = Mock::start(|_, _| vec![Step::Raw(Vec::new()), at(60_000)]);
    let found = results_within(plan(&silent, one_user(), 1), Duration::from_millis(100));
    assert_eq!(found.samples[0].outcome, Outcome::TimedOut);
    assert!(found.samples[0].sent_ns.is_some(), "{:?}", found.samples[0]);
}

#[test]
fn a_kept_connection_that_the_server_closes_under_a_request_is_replaced() {
    // The second request on a connection is read and answered by a close, as a server does whose idle time has run out.
    let mock = Mock::start(|number, _| match number {
        1 => vec![Step::Raw(Vec::new()), Step::Close],
        _ => vec![token("x"), finish("stop"), done()],
    });
    let found = results(plan(&mock, one_user(), 3));
    assert_eq!(found.outcomes.get("finished"), Some(&3), "{:?}", found.outcomes);
    assert_eq!((found.samples[1].retries, found.health.retries), (1, 1));
}

#[test]
fn a_server_that_closes_after_each_answer_is_no_failure() {
    let mock = Mock::start(|_, _| {
        let body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        vec![Step::Raw(format!("{head}{body}").into_bytes()), Step::Close]
    });
    let found = results(plan(&mock, one_user(), 3));
    assert_eq!(found.outcomes.get("finished"), Some(&3), "{:?}", found.outcomes);
}

#[test]
fn a_connection_that_stays_open_behind_done_or_breaks_behind_the_finish_spoils_no_answer() {
    let open = Mock::start(|_, _| vec![token("x"), finish("stop"), done(), at(60_000)]);
    let found = results_within(plan(&open, one_user(), 1), Duration::from_secs(5));
    assert_eq!(found.samples[0].outcome, Outcome::Finished);
    let breaks = sample_of(|| vec![token("x"), finish("stop"), Step::Close]);
    assert_eq!(breaks.outcome, Outcome::Finished);
}

/// F81, F82: a limit on calls under way made a run of a set duration last as long as its backlog.
#[test]
fn a_backlog_ends_with_the_run_and_every_call_of_it_is_counted() {
    let mock = Mock::start(|_, _| vec![at(100), token("x"), finish("stop"), done()]);
    let mut plan = plan(&mock, at_rate(200.0), u64::MAX);
    (plan.duration, plan.drain, plan.in_flight_max) =
        (Some(Duration::from_millis(500)), Duration::from_millis(200), 1);
    let found = results(plan);
    assert!(found.window.run_ns < 2_000_000_000, "{} s", found.window.run_ns as f64 / 1e9);
    assert_eq!(found.outcomes.values().sum::<u64>(), 100, "{:?}", found.outcomes);
    assert!(found.outcomes["in_flight"] > 80 && found.held > 80, "{:?} {}", found.outcomes, found.held);
}

#[test]
fn a_server_that_is_slow_to_accept_is_not_the_clients_lag() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        Mock::start_at(std::net::TcpListener::bind(address).unwrap(), |_, _| {
            vec![at(50), token("x"), finish("stop"), done()]
        })
    });
    let nobody_yet = Mock { url: format!("http://{address}") };
    let found = results(plan(&nobody_yet, at_rate(1000.0), 1));
    late.join().unwrap();
    assert_eq!((&found.samples[0].outcome, found.samples[0].retries), (&Outcome::Finished, 1));
    assert!(found.samples[0].sent_ns.unwrap() - found.samples[0].intended_ns > 30_000_000);
    assert!(found.health.lag_ns[2] < 30_000_000, "{:?}", found.health);
}

/// The samples that are kept are the first of the schedule, not the first to end, which would be the short ones.
#[test]
fn the_first_calls_are_kept_however_long_they_take() {
    let mock = Mock::start(|number, _| {
        vec![at(if number == 0 { 200 } else { 0 }), token("x"), finish("stop"), done()]
    });
    let mut plan = plan(&mock, at_rate(200.0), 10);
    plan.samples_max = 2;
    let ids: Vec<u64> = results(plan).samples.iter().map(|sample| sample.call.0).collect();
    assert_eq!(ids, [0, 1]);
}
