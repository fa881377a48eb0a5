//! What calls say: made-up prompts, shared prefixes, conversations, fan-outs, and files.
//!
//! **Invariant:** a call is a function of (seed, id) and nothing else, so that a run of a million calls keeps none of them, and the
//! same schedule can be sent to another server.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::adapter::Endpoint;
use crate::compact::{self, Compact};
use crate::schedule::{CallId, Workload};

// From a specification to calls.
mod maker;
mod waves;

// The kinds.
mod agents;
mod file;
mod prefix;
mod sessions;
mod synthetic;

// What prompts are made of.
mod exact;
mod lengths;
mod text;
mod words;

// What a schedule holds in all.
mod summary;

pub use file::{FileSpec, Turns};
pub use lengths::{Entry, LENGTH_FORMS, LENGTH_MAX, Lengths, Range};
pub use summary::{Summary, Totals};
pub use text::{Material, TextTokens};

use agents::Agents;
use file::FileOfCalls;
use maker::Maker;
use prefix::PrefixGroups;
use sessions::Sessions;
use synthetic::Synthetic;

/// The forms that [`Spec::parse`] accepts, one a line. [`LENGTH_FORMS`] are the forms of L.
pub const WORKLOAD_FORMS: &str = "  synthetic:in=L,out=L[,calls=N]
  prefix:groups=N,prefix=N,in=L,out=L[,calls=N]
  sessions:sessions=N,turns=N,in=L,out=L[,system=N][,together=N]
  agents:workflows=N,fan=N,context=N,in=L,out=L[,together=N]
  file:PATH[,out=L][,turns=first|last][,shuffle=yes][,repeat=N|forever][,bad=skip]
N is a number; L a number of tokens or a distribution, such as uniform(16..128) or lognormal(200,0.5)";

/// A workload, as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// Prompts that have nothing in common. `calls` is None where they never end.
    Synthetic { input: Lengths, output: Lengths, calls: Option<u64> },
    /// Each prompt begins with the prefix of one of the groups, at random; `input` is what stands behind it.
    Prefix { groups: u64, prefix: u32, input: Lengths, output: Lengths, calls: Option<u64> },
    /// Conversations that feed the server's own answers back. `together` of them go on at the same time.
    Sessions {
        sessions: u64,
        turns: u32,
        input: Lengths,
        output: Lengths,
        system: Option<u32>,
        together: u64,
    },
    /// A planning call, `fan` calls that all go on from it, and one that reads what they answered.
    Agents { workflows: u64, fan: u32, context: u32, input: Lengths, output: Lengths, together: u64 },
    /// Calls from a file.
    File(FileSpec),
}

/// What a workload is made for.
#[derive(Clone)]
pub struct Setting {
    pub seed: u64,
    pub endpoint: Endpoint,
    pub material: Material,
    /// Asks servers to go on until the length limit. None: yes for made-up prompts, whose answer lengths are part of the
    /// workload, and no for files.
    pub ignore_eos: Option<bool>,
}

/// Conversations, workflows, groups or calls, at most.
const COUNT_MAX: u64 = 1_000_000_000;
/// Turns of a conversation, and calls of a fan-out, at most.
const TURNS_MAX: u32 = 1024;

impl Spec {
    /// Reads one of [`WORKLOAD_FORMS`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut spec = Compact::parse("workload", text, WORKLOAD_FORMS)?;
        let parsed = match spec.name {
            "synthetic" => {
                let (input, output) = lengths(&mut spec)?;
                Self::Synthetic { input, output, calls: spec.read("calls", count)? }
            }
            "prefix" => {
                let (groups, prefix) = (spec.need("groups", count)?, spec.need("prefix", length)?);
                let (input, output) = lengths(&mut spec)?;
                Self::Prefix { groups, prefix, input, output, calls: spec.read("calls", count)? }
            }
            "sessions" => {
                let (sessions, turns) = (spec.need("sessions", count)?, spec.need("turns", turns)?);
                let (input, output) = lengths(&mut spec)?;
                let system = spec.read("system", length)?;
                let together = spec.read("together", count)?.unwrap_or(sessions).min(sessions);
                Self::Sessions { sessions, turns, input, output, system, together }
            }
            "agents" => {
                let (workflows, fan) = (spec.need("workflows", count)?, spec.need("fan", turns)?);
                let context = spec.need("context", length)?;
                let (input, output) = lengths(&mut spec)?;
                let together = spec.read("together", count)?.unwrap_or(workflows).min(workflows);
                Self::Agents { workflows, fan, context, input, output, together }
            }
            "file" => Self::File(FileSpec::take(&mut spec)?),
            name => return Err(spec.error(format!("there is no kind `{name}`"))),
        };
        spec.end()?;
        Ok(parsed)
    }

    /// The calls. Fails where the setting cannot carry the workload, where a file is bad, or where the tokenizer cannot make
    /// prompts of the wanted lengths.
    pub fn build(&self, setting: &Setting) -> Result<Arc<dyn Workload>> {
        if let Self::File(file) = self {
            return Ok(Arc::new(FileOfCalls::open(file, setting)?));
        }
        let needs_chat = matches!(self, Self::Sessions { .. } | Self::Agents { .. });
        if needs_chat && setting.endpoint != Endpoint::Chat {
            bail!("workload `{self}`: conversations need the chat endpoint");
        }
        if setting.endpoint == Endpoint::Chat && matches!(setting.material, Material::Ids { .. }) {
            bail!(
                "workload `{self}`: a vocabulary size asks for prompts of token ids, which only the completions \
                 endpoint takes"
            );
        }
        let maker = Arc::new(Maker::new(setting)?);
        let workload = self.made_of(Arc::clone(&maker));
        // A tokenizer that cannot be met in length is told before the run, not in its middle.
        const TRIED: u64 = 16;
        for id in 0..TRIED {
            workload.call(CallId(id));
            if let Some((_, why)) = maker.texts.inexact() {
                bail!(
                    "workload `{self}`, call {id}: {why}. Longer prompts are easier to make; without a tokenizer lengths are approximate"
                );
            }
        }
        Ok(workload)
    }

    fn made_of(&self, maker: Arc<Maker>) -> Arc<dyn Workload> {
        let shown = self.to_string();
        match self.clone() {
            Self::Synthetic { input, output, calls } => {
                Arc::new(Synthetic { shown, maker, input, output, calls })
            }
            Self::Prefix { groups, prefix, input, output, calls } => {
                Arc::new(PrefixGroups { shown, maker, groups, prefix, input, output, calls })
            }
            Self::Sessions { sessions, turns, input, output, system, together } => Arc::new(Sessions {
                shown,
                maker,
                waves: waves::Waves { groups: sessions, together, calls_each: u64::from(turns) },
                input,
                output,
                system,
            }),
            Self::Agents { workflows, fan, context, input, output, together } => Arc::new(Agents {
                shown,
                maker,
                waves: waves::Waves { groups: workflows, together, calls_each: u64::from(fan) + 2 },
                fan,
                context,
                input,
                output,
            }),
            Self::File(_) => unreachable!("files are opened, not made"),
        }
    }
}

fn lengths(spec: &mut Compact<'_>) -> Result<(Lengths, Lengths)> {
    Ok((spec.need("in", Lengths::parse)?, spec.need("out", Lengths::parse)?))
}

fn count(text: &str) -> Result<u64, String> {
    compact::whole(text, 1..=COUNT_MAX)
}

fn turns(text: &str) -> Result<u32, String> {
    compact::whole(text, 1..=TURNS_MAX)
}

fn length(text: &str) -> Result<u32, String> {
    compact::whole(text, 1..=LENGTH_MAX)
}

impl Display for Spec {
    /// A form that [`Spec::parse`] reads back.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synthetic { input, output, calls } => {
                write!(f, "synthetic:in={input},out={output}")?;
                option(f, "calls", calls.as_ref())
            }
            Self::Prefix { groups, prefix, input, output, calls } => {
                write!(f, "prefix:groups={groups},prefix={prefix},in={input},out={output}")?;
                option(f, "calls", calls.as_ref())
            }
            Self::Sessions { sessions, turns, input, output, system, together } => {
                write!(f, "sessions:sessions={sessions},turns={turns},in={input},out={output}")?;
                option(f, "system", system.as_ref())?;
                option(f, "together", (together < sessions).then_some(together))
            }
            Self::Agents { workflows, fan, context, input, output, together } => {
                write!(
                    f,
                    "agents:workflows={workflows},fan={fan},context={context},in={input},out={output}"
                )?;
                option(f, "together", (together < workflows).then_some(together))
            }
            Self::File(file) => file.fmt(f),
        }
    }
}

fn option(f: &mut Formatter<'_>, key: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, ",{key}={value}"))
}

impl FileSpec {
    fn take(spec: &mut Compact<'_>) -> Result<Self> {
        Ok(Self {
            path: PathBuf::from(spec.value("the file")?),
            output: spec.read("out", Lengths::parse)?,
            turns: spec.read("turns", Turns::parse)?.unwrap_or(Turns::Last),
            shuffle: spec.read("shuffle", compact::yes_or_no)?.unwrap_or(false),
            repeat: spec.read("repeat", file::parse_repeat)?.unwrap_or(Some(1)),
            skip_bad: spec.read("bad", file::parse_bad)?.unwrap_or(false),
        })
    }
}
