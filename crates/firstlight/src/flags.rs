//! Command-line flags: a pure parse, with names that users of vLLM and llama.cpp expect where the meaning is the same.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hyper::header::HeaderName;

use crate::bytesize::ByteSize;
use crate::span::Span;

/// Serves large language models and accounts for every nanosecond of every request.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a model through an OpenAI-compatible API.
    Serve(ServeFlags),
    /// Talk to a model in the terminal; each answer ends with where its time went.
    Chat(ChatFlags),
    /// Measure any OpenAI-compatible server; find the load at which its users' objectives break.
    Bench(Box<BenchFlags>),
    /// Compare two runs of the same schedule, call by call and stage by stage.
    Compare(CompareFlags),
    /// List, fetch and inspect models.
    #[command(subcommand)]
    Model(ModelCommand),
}

#[derive(Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub engine: EngineFlags,
    /// Address to listen on. Anything but a loopback address should come with --api-key.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Key that clients must send as `Authorization: Bearer KEY`; may be given several times.
    #[arg(long = "api-key", env = "FIRSTLIGHT_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_keys: Vec<String>,
    /// Header that names the tenant whose share of the service a request takes, such as X-Tenant-Id; for servers behind a
    /// gateway that sets it, since any client could [default: each API key is a tenant].
    #[arg(long, value_name = "HEADER")]
    pub tenant_header: Option<HeaderName>,
    /// Name(s) that requests use for the model, the first one being the one that answers carry [default: the model's own].
    #[arg(long = "served-model-name", value_name = "NAME", num_args = 1..)]
    pub served_model_names: Vec<String>,
    /// Seconds that running requests may take to finish after a first SIGTERM or Ctrl-C.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub drain_timeout: u64,
    /// Seconds between signs of life on a silent stream; 0 sends none.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub keepalive: u64,
}

/// What decides how the model runs; the same for `serve` and for a `chat` of its own.
#[derive(Debug, Args)]
pub struct EngineFlags {
    /// A name from `firstlight model ls`, or the path of a .gguf file [default: the catalogue's small default model].
    pub model: Option<String>,
    /// Tokens that prompt and answer may have together [default: the model's context, if the KV memory holds it].
    #[arg(long, value_name = "TOKENS")]
    pub max_model_len: Option<usize>,
    /// Sequences that run at once.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub max_num_seqs: usize,
    /// Tokens that one engine step computes, prompts and answers together.
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    pub max_num_batched_tokens: usize,
    /// Sequences that wait before new ones are refused with 503.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub max_queue: usize,
    /// Prompt tokens that wait before new requests are refused with 503 [default: eight times what the KV memory holds].
    #[arg(long, value_name = "TOKENS")]
    pub max_queue_tokens: Option<usize>,
    /// Share of a step's room for prompts, in percent, that one long prompt may take while others wait.
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub prompt_share: u8,
    /// Time without a turn after which a class of requests (`priority`) counts as one class better, such as 10s; 0 for never.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = span_or_zero)]
    pub priority_aging: Span,
    /// A tenant's weight in the sharing of the service, as TENANT=WEIGHT; may be given several times [default: 1 each].
    #[arg(long = "tenant-weight", value_name = "TENANT=WEIGHT", value_parser = tenant_weight)]
    pub tenant_weights: Vec<(String, u32)>,
    /// Memory for the KV cache, such as 512MiB or 4GiB [default: half of what is free beside the weights].
    #[arg(long, value_name = "BYTES")]
    pub kv_memory: Option<ByteSize>,
    /// Time between two tokens of a running answer that prompts computed beside it may cost, such as 100ms: engine steps are
    /// kept that short (or half as long again as the answers alone, if that is longer). 0 sets no limit.
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = span_or_zero)]
    pub itl_target: Span,
    /// Compute every prompt anew instead of finding what begins like an earlier one.
    #[arg(long)]
    pub no_prefix_caching: bool,
    /// Compute threads [default: the cores this process may use].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Compute with f32 activations and f32 KV: slower, and as near to the weights as they are stored.
    #[arg(long)]
    pub exact: bool,
}

#[derive(Debug, Args)]
pub struct ChatFlags {
    #[command(flatten)]
    pub engine: EngineFlags,
    /// Talk to this server instead of starting one, such as http://127.0.0.1:8000.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Key for --url.
    #[arg(long, env = "FIRSTLIGHT_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Say this, print the answer, and leave.
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// A system message to begin with.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Print the waterfall after each answer, not only on /why.
    #[arg(long)]
    pub waterfall: bool,
    /// Sampling temperature [default: the server's].
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
    /// Tokens that an answer has at most.
    #[arg(long, default_value_t = 1024, value_name = "TOKENS")]
    pub max_tokens: usize,
}

#[derive(Debug, Args)]
pub struct BenchFlags {
    /// The server, such as http://127.0.0.1:8000 (with or without /v1).
    pub url: String,
    /// Key to send as `Authorization: Bearer KEY`.
    #[arg(long, env = "FIRSTLIGHT_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Model to ask for [default: the first that the server lists].
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Endpoint to call.
    #[arg(long, value_enum, default_value_t = EndpointFlag::Chat)]
    pub endpoint: EndpointFlag,
    /// Ask for whole answers instead of streams.
    #[arg(long)]
    pub no_stream: bool,
    /// What the server is: firstlight, llama.cpp, vllm, sglang, opaque, or auto to ask it.
    #[arg(long, default_value = "auto")]
    pub kind: String,
    /// JSON object whose keys go into every request, such as '{"temperature": 0}'; null takes a key out.
    #[arg(long, value_name = "JSON")]
    pub extra: Option<String>,

    /// What to send; docs/load-workloads.md has all forms.
    #[arg(long, default_value = "synthetic:in=200,out=64", value_name = "SPEC", help_heading = "Workload")]
    pub workload: String,
    /// Tokenizer that gives made-up prompts their exact length: a catalogue's name or a .gguf file [default: the served
    /// model's, if it is here; else English words, about a token each].
    #[arg(long, value_name = "MODEL", help_heading = "Workload")]
    pub tokenizer: Option<String>,
    /// Make prompts of random token ids below this number (completions endpoint only).
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub vocab_size: Option<u32>,
    /// Seed of prompts, lengths, arrivals and think times.
    #[arg(long, default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Closed loop: this many users, each waiting for its answer before sending again [default: 1].
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub users: Option<usize>,
    /// Mean think time of a user between an answer and the next call.
    #[arg(long, default_value = "0s", value_name = "TIME", help_heading = "Load")]
    pub think: Span,
    /// Think times are all the same instead of exponentially distributed.
    #[arg(long, help_heading = "Load")]
    pub think_fixed: bool,
    /// Open loop: calls at their own times, such as poisson:20, constant:5, gamma:20,burstiness=0.5, trace:FILE.
    #[arg(long, value_name = "SPEC", help_heading = "Load")]
    pub rate: Option<String>,
    /// Calls to send.
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub requests: Option<u64>,
    /// Time to send for [default: 60s, if nothing else ends the run].
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub duration: Option<Span>,
    /// Calls intended so soon after the start are sent but do not count.
    #[arg(long, default_value = "0s", value_name = "TIME", help_heading = "Load")]
    pub warmup: Span,
    /// Calls intended so shortly before the end are sent but do not count.
    #[arg(long, default_value = "0s", value_name = "TIME", help_heading = "Load")]
    pub cooldown: Span,
    /// A call that takes longer has failed.
    #[arg(long, default_value = "300s", value_name = "TIME", help_heading = "Load")]
    pub timeout: Span,
    /// Calls under way at once; what comes on top waits and is measured from when it was intended.
    #[arg(long, default_value_t = 10_000, value_name = "N", help_heading = "Load")]
    pub max_in_flight: usize,

    /// Objectives, such as "ttft_p95<500ms,itl_p95<50ms,errors<1%". Without --users and --rate, the load that meets them is
    /// searched for.
    #[arg(long, value_name = "SLO", help_heading = "Objectives")]
    pub slo: Option<String>,
    /// What to search for: the number of users, or the rate of calls (with --rate's kind of arrivals).
    #[arg(long, value_enum, help_heading = "Objectives")]
    pub find: Option<Find>,
    /// The largest load that is tried.
    #[arg(long, value_name = "N", help_heading = "Objectives")]
    pub max_load: Option<f64>,
    /// The search ends after this long with what it knows.
    #[arg(long, default_value = "30m", value_name = "TIME", help_heading = "Objectives")]
    pub search_time: Span,
    /// Price of one GPU or machine, such as 1.20/h.
    #[arg(long, value_name = "PRICE", help_heading = "Objectives")]
    pub price: Option<String>,
    /// GPUs that the server has.
    #[arg(long, value_name = "N", help_heading = "Objectives")]
    pub gpus: Option<u32>,
    /// Machines that the server has.
    #[arg(long, value_name = "N", help_heading = "Objectives")]
    pub machines: Option<u32>,

    /// Print the run in another tool's definitions as well: vllm, aiperf, guidellm, mlperf.
    #[arg(long, value_name = "TOOL", help_heading = "Reports")]
    pub dialect: Option<load::dialect::Dialect>,
    /// Folder for report.html, report.json and calls.csv [default: firstlight-bench-SECONDS].
    #[arg(long, value_name = "DIR", help_heading = "Reports")]
    pub output: Option<PathBuf>,
    /// Write no files.
    #[arg(long, help_heading = "Reports")]
    pub no_files: bool,
    /// Poll without ever sleeping: no wake-up makes a send or a stamp late. It keeps one core busy, so it is for a machine (or
    /// a core) that the server does not need.
    #[arg(long, help_heading = "Load")]
    pub spin: bool,
    /// The report's title [default: the model and the kind of server].
    #[arg(long, value_name = "TEXT", help_heading = "Reports")]
    pub title: Option<String>,
    /// Calls that are kept one by one; of later ones only counts and histograms.
    #[arg(long, default_value_t = 100_000, value_name = "N", help_heading = "Reports")]
    pub max_samples: usize,
}

/// A time with its unit: a bare number would be taken for seconds by some and for milliseconds by others.
fn span_or_zero(text: &str) -> Result<Span, String> {
    match text.ends_with(|last: char| last.is_ascii_digit()) && text != "0" {
        true => Err(format!("{text:?} has no unit; write it like 100ms or 10s, or 0 for no limit")),
        false => text.parse(),
    }
}

fn tenant_weight(text: &str) -> Result<(String, u32), String> {
    let wrong = || format!("{text:?} is not of the form TENANT=WEIGHT, with a weight of at least 1");
    let (tenant, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight = weight.parse().ok().filter(|weight| *weight >= 1).ok_or_else(wrong)?;
    Ok((tenant.to_owned(), weight))
}

/// An endpoint, by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EndpointFlag {
    Chat,
    Completions,
}

impl From<EndpointFlag> for load::adapter::Endpoint {
    fn from(flag: EndpointFlag) -> Self {
        match flag {
            EndpointFlag::Chat => load::adapter::Endpoint::Chat,
            EndpointFlag::Completions => load::adapter::Endpoint::Completions,
        }
    }
}

/// What a search is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Find {
    Users,
    Qps,
}

#[derive(Debug, Args)]
pub struct CompareFlags {
    /// report.json of the first run.
    pub a: PathBuf,
    /// report.json of the second.
    pub b: PathBuf,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the catalogue's models and which of them are here.
    Ls,
    /// Fetch a model into the cache; does nothing if it is there.
    Pull {
        /// A name from `firstlight model ls` [default: the small default model].
        name: Option<String>,
    },
    /// Print what a model is, what it costs, and what of it is unsupported.
    Inspect {
        /// A name from `firstlight model ls`, or the path of a .gguf file.
        model: PathBuf,
        /// Print the chat template in full.
        #[arg(long)]
        template: bool,
        /// List every tensor.
        #[arg(long)]
        tensors: bool,
    },
}
