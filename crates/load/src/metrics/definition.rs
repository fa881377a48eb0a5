//! The table of metrics: what each is the difference of, in which unit, and in one sentence.
//!
//! **Invariant:** a name means one pair of boundaries. `docs/load-definitions.md` prints this table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A moment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    Intended,
    Sent,
    Headers,
    FirstByte,
    FirstToken,
    FirstAnswerToken,
    /// Each chunk that carries tokens, and the one before it.
    ChunkBefore,
    Chunk,
    /// The longest of several gaps is meant.
    LastToken,
    LastByte,
    /// Durations that the server tells of itself.
    ServerBegin,
    ServerEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Ms,
    TokensPerS,
}

impl Unit {
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Ms => "ms",
            Unit::TokensPerS => "tok/s",
        }
    }

    /// Whether a larger value is better.
    pub fn larger_is_better(self) -> bool {
        self == Unit::TokensPerS
    }
}

/// A metric's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Definition {
    pub name: &'static str,
    pub from: Boundary,
    pub to: Boundary,
    pub unit: Unit,
    /// Several values a call (one for each gap), or one.
    pub many: bool,
    /// Needs to see tokens come one after another, so that an answer in one piece has none.
    pub streamed: bool,
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($variant:ident $name:literal $from:ident $to:ident $unit:ident $many:literal $streamed:literal $meaning:literal,)*) => {
        /// A metric of calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric {
            $(#[doc = $meaning] $variant,)*
        }

        impl Metric {
            pub const ALL: &[Metric] = &[$(Metric::$variant),*];

            pub const fn definition(self) -> Definition {
                match self {
                    $(Metric::$variant => Definition {
                        name: $name,
                        from: Boundary::$from,
                        to: Boundary::$to,
                        unit: Unit::$unit,
                        many: $many,
                        streamed: $streamed,
                        meaning: $meaning,
                    },)*
                }
            }
        }
    };
}

metrics! {
    // name, from, to, unit, many values a call, needs a stream, meaning
    Lag "lag" Intended Sent Ms false false "How late the call was handed to the socket.",
    Headers "headers" Intended Headers Ms false false "Until the answer's head was read.",
    HeadersSent "headers_sent" Sent Headers Ms false false "The same from sending.",
    FirstByte "first_byte" Intended FirstByte Ms false false "Until the first byte of the answer's body, whatever it says.",
    FirstByteSent "first_byte_sent" Sent FirstByte Ms false false "The same from sending.",
    Ttft "ttft" Intended FirstToken Ms false true "Time to first token: until the first frame that carries a token of any channel.",
    TtftSent "ttft_sent" Sent FirstToken Ms false true "The same from sending.",
    Ttfat "ttfat" Intended FirstAnswerToken Ms false true "Time to first answer token: as TTFT, reasoning, tool calls and refusals left out.",
    TtfatSent "ttfat_sent" Sent FirstAnswerToken Ms false true "The same from sending.",
    Itl "itl" ChunkBefore Chunk Ms true true "Inter-token latency per token: the gap before a chunk, in equal parts for each token that it carries.",
    ItlChunk "itl_chunk" ChunkBefore Chunk Ms true true "Inter-token latency per chunk: the gap before each chunk after the first, whatever it carries.",
    Tbt "tbt" ChunkBefore Chunk Ms true true "Time between tokens as they are delivered: a chunk's first token waited for the whole gap, the others not at all.",
    TbtMax "tbt_max" ChunkBefore Chunk Ms false true "A call's longest gap between chunks: its worst stall.",
    Tpot "tpot" FirstToken LastToken Ms false true "Time per output token: from first to last token, over the tokens behind the first chunk.",
    OutputSpeed "output_speed" FirstToken LastToken TokensPerS false true "Tokens behind the first chunk, over the time from first to last token, as its user sees it.",
    PrefillSpeed "prefill_speed" ServerBegin ServerEnd TokensPerS false false "Prompt tokens that were not cached, over the server's prefill time; over TTFT from sending where no prefill time is told, and said so.",
    DecodeSpeed "decode_speed" ServerBegin ServerEnd TokensPerS false false "Tokens behind the first chunk, over the time that the server says it decoded for this call, waits left out.",
    E2e "e2e" Intended LastToken Ms false false "End to end: until the last token (the last byte of an answer that has none).",
    E2eSent "e2e_sent" Sent LastToken Ms false false "The same from sending.",
    StreamEnd "stream_end" Intended LastByte Ms false false "Until the last byte, usage frames and terminator included.",
    StreamEndSent "stream_end_sent" Sent LastByte Ms false false "The same from sending.",
}

impl Metric {
    pub const fn name(self) -> &'static str {
        self.definition().name
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Metric::ALL
            .iter()
            .find(|metric| metric.name() == name)
            .copied()
            .ok_or_else(|| format!("no metric is named {name:?}"))
    }
}
