//! `firstlight bench`: measures any OpenAI-compatible server, and finds the load at which its users' objectives break.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use load::adapter::detect::{self, Detected, PROBES, Probed};
use load::adapter::{Adapter, Endpoint, Form, of_kind, totals};
use load::arrivals::ArrivalSpec;
use load::capacity::{Capacity, Machines, Price, capacity};
use load::client::{Address, Client, Clock};
use load::dialect::{Dialect, translate};
use load::report::assemble::{Parts, answers, report};
use load::report::live::Live;
use load::report::{Report, csv, html, json, table};
use load::results::{Results, Target};
use load::run::{Load, Plan, Progress, Think, run as send};
use load::search::{self, LoadUnit};
use load::slo::{Slo, Subject};
use load::verdict;
use load::workload::{Setting, Spec};
use tokio::sync::watch;

use crate::flags::{BenchFlags, Find};

pub mod compare;

mod material;

mod watching;

/// How long the questions before a run may take each.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// Calls of a search's trial for each user, and for each percentile's smallest sample.
const CALLS_PER_USER: u64 = 6;
const CALLS_PER_SAMPLE: u64 = 2;
const CALLS_MIN: u64 = 40;
/// A trial of a search ends after this long, whatever it has sent.
const TRIAL_MAX: Duration = Duration::from_secs(120);

/// Measures, prints the table, and writes the files.
pub fn run(flags: &BenchFlags) -> anyhow::Result<()> {
    // One thread: the client's own work must not compete with itself for the cores it shares with the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bench = Bench::prepare(flags).await?;
        bench.warm_up().await?;
        let outcome = match bench.mode()? {
            Mode::Single => bench.single().await?,
            Mode::Search(unit) => bench.search(unit).await?,
        };
        bench.tell(outcome)
    })
}

enum Mode {
    Single,
    Search(LoadUnit),
}

/// What was measured.
struct Measured {
    results: Vec<Results>,
    focus: usize,
    answer: Option<search::Answer>,
    capacity: Option<Capacity>,
}

struct Bench<'a> {
    flags: &'a BenchFlags,
    address: Address,
    adapter: Arc<dyn Adapter>,
    target: Target,
    spec: Spec,
    setting: Setting,
    slo: Option<Slo>,
    price: Option<Price>,
    machines: Machines,
    /// The user wants no more.
    stopped: Cell<bool>,
}

impl<'a> Bench<'a> {
    /// Reads the flags and asks the server what it is.
    async fn prepare(flags: &'a BenchFlags) -> anyhow::Result<Self> {
        let own = anyhow::Error::msg;
        let spec = Spec::parse(&flags.workload)?;
        let slo = flags.slo.as_deref().map(str::parse).transpose().map_err(own)?;
        let price = flags.price.as_deref().map(str::parse).transpose().map_err(own)?;
        let machines = Machines::of(flags.gpus, flags.machines).map_err(own)?;
        let address = Address::new(&flags.url)?;
        let found = probe(&address, flags.api_key.clone()).await;
        let kind = if flags.kind == "auto" { found.kind } else { flags.kind.as_str() };
        let model = match (&flags.model, found.models.first()) {
            (Some(model), _) => model.clone(),
            (None, Some(first)) => first.clone(),
            (None, None) => bail!("{}", no_model(&flags.url, &found)),
        };
        let extra = match &flags.extra {
            Some(text) => serde_json::from_str(text).context("--extra must be a JSON object")?,
            None => serde_json::Map::new(),
        };
        let endpoint = Endpoint::from(flags.endpoint);
        let form = Form { model: model.clone(), endpoint, stream: !flags.no_stream, extra };
        let adapter = of_kind(kind, form)?;
        let setting = Setting {
            seed: flags.seed,
            endpoint,
            material: material::choose(flags, &model)?,
            ignore_eos: None,
        };
        let target = Target {
            url: flags.url.clone(),
            kind: kind.to_owned(),
            model,
            endpoint: match endpoint {
                Endpoint::Chat => "chat",
                Endpoint::Completions => "completions",
            }
            .to_owned(),
            stream: !flags.no_stream,
        };
        eprintln!("{} at {}: {} ({})", target.model, target.url, target.kind, found.evidence);
        let stopped = Cell::new(false);
        Ok(Bench { flags, address, adapter, target, spec, setting, slo, price, machines, stopped })
    }

    fn mode(&self) -> anyhow::Result<Mode> {
        let set = self.flags.users.is_some() || self.flags.rate.is_some();
        match (self.flags.find, &self.slo) {
            (Some(_), None) => bail!("--find needs --slo: what is to be found is the load that meets it"),
            (Some(Find::Users), Some(_)) => Ok(Mode::Search(LoadUnit::Users)),
            (Some(Find::Qps), Some(_)) => Ok(Mode::Search(LoadUnit::Qps)),
            (None, Some(_)) if !set => Ok(Mode::Search(LoadUnit::Users)),
            (None, _) => Ok(Mode::Single),
        }
    }

    /// One call before anything counts: it says whether there is anything to measure.
    async fn warm_up(&self) -> anyhow::Result<()> {
        let load = Load::Closed { users: 1, think: Think::Constant(Duration::ZERO) };
        let mut plan = self.plan(load, 0)?;
        (plan.requests, plan.duration) = (Some(1), None);
        (plan.warm_up, plan.cool_down) = (Duration::ZERO, Duration::ZERO);
        let results = self.send(plan, "warming up").await?;
        let sample = results.samples.first().context("the first call was stopped")?;
        ensure!(
            !sample.outcome.is_failure(),
            "the first call failed, so nothing was measured: {:?}",
            sample.outcome
        );
        Ok(())
    }

    fn plan(&self, load: Load, trial: u64) -> anyhow::Result<Plan> {
        // Each trial has prompts of its own, or a server's prefix cache would answer for the trial before.
        let seed = self.flags.seed.wrapping_add(trial);
        let workload = self.spec.build(&Setting { seed, ..self.setting.clone() })?;
        Ok(Plan {
            target: self.target.clone(),
            adapter: Arc::clone(&self.adapter),
            workload,
            load,
            seed,
            requests: self.flags.requests,
            duration: self.flags.duration.map(|duration| duration.0),
            warm_up: self.flags.warmup.0,
            cool_down: self.flags.cooldown.0,
            in_flight_max: self.flags.max_in_flight,
            drain: self.flags.timeout.0,
            samples_max: self.flags.max_samples,
            spin: self.flags.spin,
        })
    }

    async fn send(&self, plan: Plan, title: &str) -> anyhow::Result<Results> {
        let client = Client::new(
            self.address.clone(),
            self.flags.api_key.clone(),
            self.flags.timeout.0,
            Clock::start(),
        );
        let (progress, watched) = watch::channel(Progress::default());
        let (cancel, cancelled) = watch::channel(false);
        let live = tokio::spawn(watching::show(watched, title.to_owned(), Live::on_stderr()));
        let interrupts = tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() && cancel.send(true).is_ok() {}
        });
        let stopped = cancelled.clone();
        let client = Arc::new(client);
        let before = self.totals(&client).await;
        let results = send(plan, Arc::clone(&client), progress, cancelled).await;
        interrupts.abort();
        self.stopped.set(*stopped.borrow());
        live.await?;
        let mut results = results?;
        if let (Some(before), Some(after)) = (before, self.totals(&client).await) {
            results.server_means = totals::between(&self.target.kind, &before, &after);
        }
        Ok(results)
    }

    /// What a server that tells only in sum has told so far.
    async fn totals(&self, client: &Client) -> Option<String> {
        if !totals::has_totals(&self.target.kind) {
            return None;
        }
        client.get("/metrics").await.filter(|(status, ..)| *status == 200).map(|(_, _, body)| body)
    }

    async fn single(&self) -> anyhow::Result<Measured> {
        let flags = self.flags;
        let load = match (&flags.rate, flags.users) {
            (Some(_), Some(_)) => bail!("--users (closed loop) and --rate (open loop) exclude each other"),
            (Some(rate), None) => self.open(&ArrivalSpec::parse(rate)?, flags.seed)?,
            (None, users) => self.closed(users.unwrap_or(1)),
        };
        let mut plan = self.plan(load, 1)?;
        if plan.requests.is_none() && plan.duration.is_none() && plan.workload.len().is_none() {
            plan.duration = Some(Duration::from_secs(60));
        }
        let results = self.send(plan, "measuring").await?;
        Ok(Measured { results: vec![results], focus: 0, answer: None, capacity: None })
    }

    fn closed(&self, users: usize) -> Load {
        let think = self.flags.think.0;
        let think = if self.flags.think_fixed { Think::Constant(think) } else { Think::Exponential(think) };
        Load::Closed { users, think }
    }

    fn open(&self, spec: &ArrivalSpec, seed: u64) -> anyhow::Result<Load> {
        let arrivals = spec.open(seed)?.arrivals;
        Ok(Load::Open { arrivals, description: spec.to_string(), mean_per_s: spec.mean_per_s() })
    }

    async fn search(&self, unit: LoadUnit) -> anyhow::Result<Measured> {
        let slo = self.slo.as_ref().context("a search needs --slo")?;
        let shape = ArrivalSpec::parse(self.flags.rate.as_deref().unwrap_or("poisson:1"))?;
        let mut plan = search::Plan::new(unit);
        plan.max = self.flags.max_load.unwrap_or(plan.max);
        plan.seconds_max = self.flags.search_time.0.as_secs_f64();
        let mut runs: Vec<Results> = Vec::new();
        let answer = search::run(&plan, slo, async |load: f64, attempt: usize| {
            let trial = runs.len() as u64 + 1;
            let (sent, title) = match unit {
                LoadUnit::Users => {
                    (self.closed(load as usize), format!("{load} users, trial {}", attempt + 1))
                }
                LoadUnit::Qps => {
                    let at = shape
                        .at_rate(load)
                        .context("--rate must be constant, poisson or gamma for --find qps")?;
                    (
                        self.open(&at, self.flags.seed + trial)?,
                        format!("{load} calls/s, trial {}", attempt + 1),
                    )
                }
            };
            let mut trial_plan = self.plan(sent, trial)?;
            if trial_plan.requests.is_none() && trial_plan.duration.is_none() {
                trial_plan.requests = Some(trial_calls(slo, unit, load));
                trial_plan.duration = Some(TRIAL_MAX);
            }
            let results = self.send(trial_plan, &title).await?;
            // A trial that was cut off decides nothing, and no other is wanted.
            ensure!(!self.stopped.get(), "stopped during {title}; a search has no answer before its end");
            eprintln!("{}", trial_line(&title, &results, slo));
            runs.push(results.clone());
            Ok(results)
        })
        .await?;
        let capacity = capacity(&answer, self.machines, self.price.as_ref());
        let (results, focus) = levels(runs, &answer);
        Ok(Measured { results, focus, answer: Some(answer), capacity: Some(capacity) })
    }

    fn tell(&self, measured: Measured) -> anyhow::Result<()> {
        let verdict = answers(&verdict::closing(&measured.results, self.slo.as_ref()));
        let focused = measured.results.get(measured.focus).context("nothing was measured")?;
        let spoken = self.flags.dialect.map(|dialect| dialect_text(focused, dialect, self.slo.as_ref()));
        let report = report(Parts {
            title: self
                .flags
                .title
                .clone()
                .unwrap_or_else(|| format!("{} ({})", self.target.model, self.target.kind)),
            results: measured.results,
            focus: measured.focus,
            slo: self.slo.as_ref(),
            search: measured.answer.as_ref(),
            capacity: measured.capacity.as_ref(),
            verdict,
        });
        print!("{}", table::table(&report, std::io::stdout().is_terminal()));
        if let Some(spoken) = spoken.transpose()? {
            println!("{spoken}");
        }
        if !self.flags.no_files {
            let folder = self.flags.output.clone().unwrap_or_else(folder_of_now);
            write_files(&report, &folder)?;
            println!("\nwritten: {0}/report.html, {0}/report.json, {0}/calls.csv", folder.display());
        }
        Ok(())
    }
}

/// Calls that a trial needs so that every objective can be judged.
fn trial_calls(slo: &Slo, unit: LoadUnit, load: f64) -> u64 {
    let samples = slo.objectives.iter().map(|objective| match objective.subject {
        Subject::Call { statistic, .. } => statistic.samples_min() as u64,
        _ => 1,
    });
    let users = if unit == LoadUnit::Users { load as u64 } else { 0 };
    CALLS_MIN.max(CALLS_PER_SAMPLE * samples.max().unwrap_or(1)).max(CALLS_PER_USER * users)
}

fn trial_line(title: &str, results: &Results, slo: &Slo) -> String {
    let (verdict, judgement) = search::verdict(results, slo);
    let values = judgement.objectives.iter().map(|judged| match judged.value.value() {
        Some(value) => format!("{} ({value:.1})", judged.objective.text),
        None => format!("{} (too few calls)", judged.objective.text),
    });
    let said = match verdict {
        search::Verdict::Pass => "meets".to_owned(),
        search::Verdict::Fail => "misses".to_owned(),
        search::Verdict::Void(reason) => format!("void, {reason}:"),
        search::Verdict::TooFew(_) => "cannot be judged:".to_owned(),
    };
    format!("{title}: {said} {}", values.collect::<Vec<_>>().join(", "))
}

/// One run for each level, the one told in detail being at the answer; levels ascend.
fn levels(runs: Vec<Results>, answer: &search::Answer) -> (Vec<Results>, usize) {
    let load = |run: &Results| match &run.pacing {
        load::schedule::Pacing::Closed { users, .. } => *users as f64,
        load::schedule::Pacing::Open { mean_per_s, .. } => mean_per_s.unwrap_or_default(),
    };
    let mut kept: Vec<Results> = Vec::new();
    // Of a level's trials the last one that counts: earlier ones may have found a cold server.
    for run in runs {
        match kept.iter_mut().find(|other| load(other) == load(&run)) {
            Some(other) if run.health.void.is_empty() || !other.health.void.is_empty() => *other = run,
            Some(_) => {}
            None => kept.push(run),
        }
    }
    kept.sort_by(|a, b| load(a).total_cmp(&load(b)));
    let at = answer.load.map_or(0.0, |load| load.0);
    let focus = kept.iter().rposition(|run| load(run) <= at).unwrap_or(0);
    (kept, focus)
}

async fn probe(address: &Address, key: Option<String>) -> Detected {
    let client = Client::new(address.clone(), key, PROBE_PATIENCE, Clock::start());
    let (mut answers, mut why) = (Vec::new(), None);
    for path in PROBES {
        let got = client.get(path).await;
        let gone = got.is_none();
        let (status, server, body) =
            got.map_or((None, None, String::new()), |(status, server, body)| (Some(status), server, body));
        answers.push(Probed { path: path.to_owned(), status, server, body });
        if gone && answers.len() == 1 {
            // Nobody is there: the other questions would only wait.
            why = client.reach().await.err();
            break;
        }
    }
    let mut found = detect::decide(&answers);
    found.warnings.extend(why.map(|why| format!("{why:#}")));
    found
}

fn no_model(url: &str, found: &Detected) -> String {
    let mut why = found.warnings.join("; ");
    if why.is_empty() {
        why = "it lists no models; name one with --model".to_owned();
    }
    format!("{url} cannot be measured: {why}")
}

fn dialect_text(results: &Results, dialect: Dialect, slo: Option<&Slo>) -> anyhow::Result<String> {
    let spoken = serde_json::to_string_pretty(&translate(results, dialect, slo))?;
    Ok(format!("\nin the definitions of {dialect} (docs/load-definitions.md):\n{spoken}"))
}

fn folder_of_now() -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    PathBuf::from(format!("firstlight-bench-{now}"))
}

/// Writes the report in its three forms.
pub fn write_files(report: &Report, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    json::save(report, &folder.join("report.json"))?;
    let create = |name: &str| {
        let path = folder.join(name);
        File::create(&path).map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
    };
    csv::write(report, create("calls.csv")?)?;
    std::fs::write(folder.join("report.html"), html::page(report)).context("cannot write report.html")
}
