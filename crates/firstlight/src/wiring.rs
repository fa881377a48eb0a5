//! How the crates are put together: a model file becomes an engine and a text, both become a served model, and a
//! server answers for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use api::drain::{Drain, Phase};
use api::prompt::ModelText;
use api::{Answers, App, Backend, BackendState, Served, server};
use engine::{CpuExecutor, Engine, Handle, Limits, Outputs};
use hyper::header::HeaderName;
use kernels::{KvDtype, Precision};
use ledger::StepRecord;
use models::{Gguf, KvCache, LoadOptions, Model};
use protocol::{Output, Refusal, Submission};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::bytesize::ByteSize;
use crate::flags::{EngineFlags, ServeFlags};
use crate::memory;
use crate::model::{Present, loading_bar, present};
use crate::vocabulary;

/// Tokens in one KV block.
const BLOCK_TOKENS: usize = 16;

/// The async side's threads. Two suffice: they parse, render and write, while the engine's own threads compute.
pub fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("edge")
        .build()?)
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    engine: Handle,
    drain: Drain,
    task: JoinHandle<()>,
}

impl Server {
    /// Loads the model and serves it.
    pub async fn start(flags: &ServeFlags) -> anyhow::Result<Self> {
        let address = SocketAddr::new(flags.host, flags.port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address}; is something else there? Choose another --port, or 0 for a free one")
        })?;
        let loaded = load(&flags.engine)?;
        let names = match flags.served_model_names.is_empty() {
            true => vec![loaded.name.clone()],
            false => flags.served_model_names.clone(),
        };
        let keepalive = match flags.keepalive {
            0 => Duration::MAX / 4,
            seconds => Duration::from_secs(seconds),
        };
        let config =
            server::Config { drain_limit: Duration::from_secs(flags.drain_timeout), ..Default::default() };
        let (keys, tenant_header) = (flags.api_keys.clone(), flags.tenant_header.clone());
        Server::serve(listener, loaded, Edge { names, keys, tenant_header, keepalive, config })
    }

    /// Loads the model and serves it to this process, on a free loopback port.
    pub async fn start_private(flags: &EngineFlags) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let loaded = load(flags)?;
        let names = vec![loaded.name.clone()];
        let keepalive = Duration::from_secs(10);
        Server::serve(
            listener,
            loaded,
            Edge {
                names,
                keys: Vec::new(),
                tenant_header: None,
                keepalive,
                config: server::Config::default(),
            },
        )
    }

    fn serve(listener: TcpListener, loaded: Loaded, edge: Edge) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let drain = Drain::default();
        let engine = loaded.engine.clone();
        let created = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let served = Served {
            names: edge.names,
            created,
            context: loaded.engine.limits().context(),
            vocabulary: loaded.engine.limits().vocabulary,
            backend: Arc::new(LocalBackend(loaded.engine)),
            text: loaded.text,
        };
        let app = App {
            keys: edge.keys,
            tenant_header: edge.tenant_header,
            loopback: address.ip().is_loopback(),
            keepalive: edge.keepalive,
            drain: drain.clone(),
            ..App::new(vec![served])
        };
        let task = tokio::spawn(server::run(listener, Arc::new(app), edge.config, drain.clone()));
        Ok(Server { address, engine, drain, task })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes nothing new, finishes what runs (up to the drain's limit), and ends.
    pub async fn stop(self) {
        self.engine.drain();
        self.drain.advance(Phase::Draining);
        // A panic of the accept loop was printed when it happened; what is left is to end.
        let _ = self.task.await;
        self.engine.stop();
    }

    /// Ends what still runs now.
    pub fn cut(drain: &Drain) {
        drain.advance(Phase::Ending);
    }

    /// The handle on the shutdown.
    pub fn drain(&self) -> Drain {
        self.drain.clone()
    }
}

/// What the edge is told besides the model.
struct Edge {
    names: Vec<String>,
    keys: Vec<String>,
    tenant_header: Option<HeaderName>,
    keepalive: Duration,
    config: server::Config,
}

/// A model that computes.
struct Loaded {
    name: String,
    text: ModelText,
    engine: Handle,
}

fn load(flags: &EngineFlags) -> anyhow::Result<Loaded> {
    let Present { name, path } = present(flags.model.as_deref())?;
    let started = std::time::Instant::now();
    let loading = || format!("cannot load {}", path.display());
    let gguf = Gguf::open(&path).with_context(loading)?;
    let text = vocabulary::text(gguf.metadata()).with_context(loading)?;
    let precision = if flags.exact { Precision::Exact } else { Precision::Fast };
    let threads =
        flags.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = loading_bar(&name);
    let progress = |done: usize, total: usize| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    };
    let options = LoadOptions { precision, threads, progress: Some(&progress), ..LoadOptions::default() };
    let model = Model::from_gguf(gguf, &options).with_context(loading)?;
    bar.finish_and_clear();
    let dtype = if flags.exact { KvDtype::F32 } else { KvDtype::F16 };
    let limits = limits(flags, &model, &text, dtype)?;
    eprintln!(
        "{name}: {} of weights, {} of KV cache for {} tokens, context {}, {} threads, {}, loaded in {:.2} s",
        ByteSize(model.memory_bytes() as u64),
        ByteSize((limits.pool_tokens() * models::kv::bytes_per_token(model.config(), dtype)) as u64),
        limits.pool_tokens(),
        limits.context(),
        threads,
        model.kernels().isa().name(),
        started.elapsed().as_secs_f64(),
    );
    let kv = KvCache::new(model.config(), dtype, limits.block_tokens, limits.blocks);
    let engine = Engine::start(move || CpuExecutor::new(model, kv), limits)?;
    // The model is loaded; only its thread has yet to take it over. Whoever is told the address may ask at once.
    while engine.state().loading && engine.state().alive {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Loaded { name, text, engine })
}

/// The engine's limits: as asked for, as the model allows, and as the KV memory holds.
fn limits(flags: &EngineFlags, model: &Model, text: &ModelText, dtype: KvDtype) -> anyhow::Result<Limits> {
    let config = model.config();
    let context = flags.max_model_len.unwrap_or(config.context);
    if context > config.context {
        bail!("--max-model-len {context} is more than the model's own context of {} tokens", config.context);
    }
    let block_bytes = models::kv::bytes_per_token(config, dtype) * BLOCK_TOKENS;
    let free = memory::free();
    let budget = flags.kv_memory.or(free.map(|free| ByteSize(free.0 / 2)));
    let budget =
        budget.context("the system does not say how much memory is free; say --kv-memory, such as 2GiB")?;
    let affordable = usize::try_from(budget.0)? / block_bytes;
    // More than every sequence at its full length could use would never be touched.
    let useful = flags.max_num_seqs.saturating_mul(context.div_ceil(BLOCK_TOKENS) + 1);
    let blocks = affordable.min(useful);
    if blocks == 0 {
        bail!(
            "{} of KV memory hold no KV block of {}; raise --kv-memory",
            budget,
            ByteSize(block_bytes as u64)
        );
    }
    let taken = ByteSize((blocks * block_bytes) as u64);
    if let Some(free) = free.filter(|free| taken.0 > free.0) {
        bail!(
            "--kv-memory {budget}: {taken} of KV cache do not fit the {free} that are free beside the weights; lower it, or \
             leave it out to take half of that"
        );
    }
    let pool = blocks * BLOCK_TOKENS;
    if flags.max_model_len.is_some_and(|wanted| wanted > pool) {
        bail!(
            "--max-model-len {context} does not fit {budget} of KV memory, which hold {pool} tokens; raise \
             --kv-memory"
        );
    }
    let vocabulary = text.tokenizer.vocabulary().len().min(config.vocabulary);
    let defaults = Limits::new(blocks, context, vocabulary);
    Ok(Limits {
        max_num_seqs: flags.max_num_seqs,
        max_num_batched_tokens: flags.max_num_batched_tokens,
        prefill_chunk_max: flags.max_num_batched_tokens,
        block_tokens: BLOCK_TOKENS,
        queue_max: flags.max_queue,
        queue_tokens_max: flags.max_queue_tokens.unwrap_or(defaults.queue_tokens_max),
        prompt_share_percent: usize::from(flags.prompt_share),
        aging_ns: u64::try_from(flags.priority_aging.0.as_nanos()).unwrap_or(u64::MAX),
        tenant_weights: flags.tenant_weights.iter().cloned().collect(),
        itl_target_ns: u64::try_from(flags.itl_target.0.as_nanos()).unwrap_or(u64::MAX),
        prefix_caching: !flags.no_prefix_caching,
        ..defaults
    })
}

/// The engine in this process, as the edge sees it.
struct LocalBackend(Handle);

impl Backend for LocalBackend {
    fn submit(&self, submission: Submission) -> Result<Box<dyn Answers>, Refusal> {
        Ok(Box::new(LocalAnswers(self.0.submit(submission)?)))
    }

    fn state(&self) -> BackendState {
        let state = self.0.state();
        let reason = match state {
            _ if !state.alive => Some("the engine has stopped"),
            _ if state.loading => Some("the model is loading"),
            _ if state.draining => Some("the server is shutting down"),
            _ => None,
        };
        BackendState {
            ready: reason.is_none(),
            reason: reason.map(str::to_owned),
            running: state.running,
            waiting: state.waiting,
            blocks_free: state.blocks_free,
            blocks_cached: state.blocks_cached,
            waiting_tokens: state.waiting_tokens,
            blocks_total: state.blocks_total,
            prompt_tokens: state.prompt_tokens,
            cached_tokens: state.cached_tokens,
            forecast_error: state.forecast_error,
            steps: state.steps,
        }
    }

    fn steps(&self, count: usize) -> Vec<StepRecord> {
        self.0.steps(count)
    }

    fn drain(&self) {
        self.0.drain();
    }
}

struct LocalAnswers(Outputs);

impl Answers for LocalAnswers {
    fn poll_next(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<Output>> {
        self.0.poll_recv(context)
    }

    fn cancel(&mut self) {
        self.0.cancel();
    }
}
