//! The closed list of stages, in the order of the line.

use serde::{Deserialize, Serialize};

macro_rules! stages {
    ($($variant:ident $name:literal $doc:literal,)*) => {
        /// Where a token can be between the request's first byte in and its own delivery.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum Stage {
            $(#[doc = $doc] $variant,)*
        }

        impl Stage {
            /// All stages, in the order of the line.
            pub const ALL: &[Stage] = &[$(Stage::$variant),*];

            /// The stage's name as every view prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Stage::$variant => $name,)* }
            }

            /// What happens in the stage, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Stage::$variant => $doc,)* }
            }
        }
    };
}

stages! {
    Accept "accept" "From the request's first byte to its parsed head.",
    ReadBody "read_body" "Reading the request's body off the socket.",
    Parse "parse" "JSON to a validated request.",
    Authorize "authorize" "Checking the API key.",
    Throttle "throttle" "Held by a rate or concurrency limit.",
    Route "route" "Choosing the model or replica.",
    Connect "connect" "Reaching the chosen replica.",
    Render "render" "Chat template to prompt text.",
    FetchMedia "fetch_media" "Fetching images named by the prompt.",
    Tokenize "tokenize" "Prompt text to token ids.",
    EncodeVision "encode_vision" "Images to embeddings.",
    Handoff "handoff" "From submission until the engine has picked the request up.",
    Queue "queue" "In the engine, not yet scheduled for the first time.",
    Prefill "prefill" "In a step that computes a part of the prompt.",
    PrefillWait "prefill_wait" "Prompt partly computed, between its steps.",
    Decode "decode" "In a step that computes the next token.",
    DecodeWait "decode_wait" "Running, between its decode steps.",
    Preempted "preempted" "Put back for lack of KV blocks, until it runs again.",
    Communicate "communicate" "Waiting for other devices inside a step.",
    Sample "sample" "Logits to a token.",
    Return "return" "From the engine's outbox to the request's task.",
    Detokenize "detokenize" "Token to text: characters, stop strings, parsers.",
    Write "write" "Text to the client's socket, the client's own slowness included.",
    Opaque "opaque" "Inside a foreign engine that does not say more.",
    Unattributed "unattributed" "Claimed by no stage; zero by construction inside a process.",
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Stage {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Stage::ALL
            .iter()
            .copied()
            .find(|stage| stage.name() == name)
            .ok_or_else(|| format!("unknown stage {name:?}"))
    }
}
