//! Calls from a file of one JSON object a line. The whole file is read and judged before the run; kept is where each line
//! lies, and a line is read again when its call is made.
//!
//! **Invariant:** a file with a bad line is refused, by line number and reason, unless bad lines are to be skipped; then
//! they are counted. No line is bent into shape.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};
use rand::seq::SliceRandom;

use super::lengths::Lengths;
use super::summary::fingerprint;
use super::{COUNT_MAX, Setting};
use crate::adapter::Endpoint;
use crate::compact;
use crate::jsonl;
use crate::schedule::{Call, CallId, Prompt, Purpose, Workload, random_stream};

mod line;

/// A file of calls, as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSpec {
    pub path: PathBuf,
    /// Answer lengths of lines that give none; without it such lines are bad.
    pub output: Option<Lengths>,
    pub turns: Turns,
    /// In an order from the seed instead of the file's.
    pub shuffle: bool,
    /// How often the whole file is sent; None: for ever.
    pub repeat: Option<u64>,
    /// Leaves bad lines out.
    pub skip_bad: bool,
}

/// How much of a recorded conversation is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Up to the first message of the user, as vLLM's ShareGPT data set has it.
    First,
    /// Up to the last message of the user, with the recorded answers between.
    Last,
}

impl Turns {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            _ => Err("must be first or last".to_owned()),
        }
    }
}

pub(super) fn parse_repeat(text: &str) -> Result<Option<u64>, String> {
    match text {
        "forever" => Ok(None),
        _ => compact::whole(text, 1..=COUNT_MAX).map(Some).map_err(|why| format!("{why}, or forever")),
    }
}

pub(super) fn parse_bad(text: &str) -> Result<bool, String> {
    match text {
        "skip" => Ok(true),
        "refuse" => Ok(false),
        _ => Err("must be skip or refuse".to_owned()),
    }
}

impl Display for FileSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.path.display())?;
        if let Some(output) = &self.output {
            write!(f, ",out={output}")?;
        }
        if self.turns == Turns::First {
            f.write_str(",turns=first")?;
        }
        if self.shuffle {
            f.write_str(",shuffle=yes")?;
        }
        match self.repeat {
            Some(1) => {}
            Some(times) => write!(f, ",repeat={times}")?,
            None => f.write_str(",repeat=forever")?,
        }
        if self.skip_bad {
            f.write_str(",bad=skip")?;
        }
        Ok(())
    }
}

/// The calls of a file.
pub(super) struct FileOfCalls {
    spec: FileSpec,
    seed: u64,
    endpoint: Endpoint,
    ignore_eos: bool,
    file: Mutex<File>,
    /// Where lines lie, in the order in which they are sent.
    places: Vec<Place>,
    distinct: u64,
    skipped: u64,
    /// Why a line could not be had again in the middle of the run.
    lost: OnceLock<String>,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    bytes: u32,
    /// From 1.
    line: u32,
}

/// Bad lines that an error lists.
const TOLD_MAX: u64 = 10;

impl FileOfCalls {
    pub fn open(spec: &FileSpec, setting: &Setting) -> Result<Self> {
        let shown = spec.path.display();
        let (mut places, mut prompts) = (Vec::new(), HashSet::new());
        let (mut bad, mut told) = (0, String::new());
        jsonl::for_each_line(&spec.path, |line| {
            match read(line.bytes, spec, setting.endpoint) {
                Ok(entry) => {
                    prompts.insert(fingerprint(&entry.prompt));
                    places.push(Place {
                        offset: line.offset,
                        bytes: u32::try_from(line.bytes.len())
                            .expect("a line is shorter than LINE_BYTES_MAX"),
                        line: u32::try_from(line.number).expect("a file has fewer lines than LINES_MAX"),
                    });
                }
                Err(why) => {
                    bad += 1;
                    if bad <= TOLD_MAX {
                        told.push_str(&format!("\n  line {}: {why}", line.number));
                    }
                }
            }
            Ok(())
        })?;
        if bad > 0 && !spec.skip_bad {
            let more =
                if bad > TOLD_MAX { format!("\n  and {} more", bad - TOLD_MAX) } else { String::new() };
            bail!("{shown} has {bad} bad lines; `bad=skip` leaves them out:{told}{more}");
        }
        if places.is_empty() {
            bail!("{shown} has no calls{told}");
        }
        if spec.shuffle {
            places.shuffle(&mut random_stream(setting.seed, Purpose::Shuffle, 0));
        }
        Ok(Self {
            spec: spec.clone(),
            seed: setting.seed,
            endpoint: setting.endpoint,
            ignore_eos: setting.ignore_eos.unwrap_or(false),
            file: Mutex::new(File::open(&spec.path).with_context(|| format!("cannot open {shown}"))?),
            places,
            distinct: prompts.len() as u64,
            skipped: bad,
            lost: OnceLock::new(),
        })
    }

    fn read_again(&self, place: Place) -> Result<line::Entry> {
        let mut bytes = vec![0; place.bytes as usize];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(place.offset))?;
        file.read_exact(&mut bytes)?;
        drop(file);
        read(&bytes, &self.spec, self.endpoint).map_err(anyhow::Error::msg)
    }
}

/// A line that has an answer length, given or to be drawn.
fn read(bytes: &[u8], spec: &FileSpec, endpoint: Endpoint) -> Result<line::Entry, String> {
    let entry = line::read(bytes, endpoint, spec.turns)?;
    if entry.max_tokens.is_none() && spec.output.is_none() {
        return Err("gives no `max_tokens`; `out=` gives one to all lines without".to_owned());
    }
    Ok(entry)
}

impl Workload for FileOfCalls {
    fn len(&self) -> Option<u64> {
        self.spec.repeat.map(|times| times.saturating_mul(self.places.len() as u64))
    }

    fn call(&self, id: CallId) -> Option<Call> {
        if self.len().is_some_and(|calls| id.0 >= calls) {
            return None;
        }
        let place =
            self.places[usize::try_from(id.0 % self.places.len() as u64).expect("an index is a usize")];
        let entry = match self.read_again(place) {
            Ok(entry) => entry,
            Err(why) => {
                let why = format!("line {} could not be read again ({why}): the file changed", place.line);
                let _the_first_one_stays = self.lost.set(why);
                return None;
            }
        };
        let drawn = || {
            let mut random = random_stream(self.seed, Purpose::AnswerLength, id.0);
            self.spec.output.as_ref().map_or(1, |lengths| lengths.draw(&mut random))
        };
        Some(Call {
            id,
            max_tokens: entry.max_tokens.unwrap_or_else(drawn),
            ignore_eos: self.ignore_eos,
            after: Vec::new(),
            session: None,
            prompt_tokens: match &entry.prompt {
                Prompt::Tokens(ids) => u32::try_from(ids.len()).ok(),
                Prompt::Text(_) | Prompt::Chat(_) => None,
            },
            prompt: entry.prompt,
        })
    }

    fn describe(&self) -> String {
        let mut shown =
            format!("{} ({} lines, {} distinct prompts", self.spec, self.places.len(), self.distinct);
        if self.skipped > 0 {
            shown.push_str(&format!(", {} bad lines left out", self.skipped));
        }
        if let Some(why) = self.lost.get() {
            shown.push_str(&format!("; ended early: {why}"));
        }
        shown + ")"
    }
}
