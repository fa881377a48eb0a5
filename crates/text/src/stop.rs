//! Stop strings in a stream of text.
//!
//! The match that completes first ends the text; of several that complete together, the one that began first. Text is
//! held back only while it could still become a stop string.
//!
//! **Invariant:** the cost of a byte does not depend on how many stop strings there are, and what is released does not
//! depend on how the text was cut into pieces.

use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use protocol::Refusal;

/// A request's stop strings, compiled once and shared by its choices.
#[derive(Clone, Debug)]
pub struct StopStrings(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    automaton: NFA,
    start: StateID,
    /// For states that stand for the beginning of a stop string, how many bytes of it have been seen; all others: none.
    depths: HashMap<StateID, usize>,
}

impl StopStrings {
    /// Bytes that all stop strings of a request may have together.
    pub const BYTES_MAX: usize = 1 << 18;

    /// Compiles `strings`.
    ///
    /// # Errors
    /// An empty string, or too much text, is a refusal that names `stop`.
    pub fn new(strings: &[String]) -> Result<Self, Refusal> {
        if strings.iter().any(String::is_empty) {
            return Err(Refusal::invalid(
                "stop",
                "has an empty string; it would end every answer before it begins",
            ));
        }
        let bytes: usize = strings.iter().map(String::len).sum();
        if bytes > Self::BYTES_MAX {
            let message = format!("has {bytes} bytes of text; at most {} are taken", Self::BYTES_MAX);
            return Err(Refusal::invalid("stop", message));
        }
        let built = NFA::builder().match_kind(MatchKind::Standard).prefilter(false).build(strings);
        let automaton =
            built.map_err(|error| Refusal::invalid("stop", format!("cannot be compiled: {error}")))?;
        let started = automaton.start_state(Anchored::No);
        let start =
            started.map_err(|error| Refusal::invalid("stop", format!("cannot be compiled: {error}")))?;
        let mut depths = HashMap::with_capacity(bytes);
        for string in strings {
            let mut state = start;
            for (index, byte) in string.bytes().enumerate() {
                state = automaton.next_state(Anchored::No, state, byte);
                depths.insert(state, index + 1);
            }
        }
        Ok(StopStrings(Arc::new(Compiled { automaton, start, depths })))
    }

    /// Begins to match a text.
    pub fn matcher(&self) -> StopMatcher {
        StopMatcher { strings: self.clone(), state: self.0.start, held: String::new() }
    }
}

/// Watches one text for stop strings.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    strings: StopStrings,
    state: StateID,
    /// The longest end of the text so far that begins a stop string.
    held: String,
}

impl StopMatcher {
    /// Takes the next piece of text and appends to `released` what cannot become part of a stop string any more. True
    /// if a stop string was completed; then everything up to it has been released, and nothing follows.
    pub fn push(&mut self, text: &str, released: &mut String) -> bool {
        let Compiled { automaton, depths, .. } = &*self.strings.0;
        for (at, byte) in text.bytes().enumerate() {
            self.state = automaton.next_state(Anchored::No, self.state, byte);
            if !automaton.is_match(self.state) {
                continue;
            }
            let patterns = 0..automaton.match_len(self.state);
            let lengths =
                patterns.map(|index| automaton.pattern_len(automaton.match_pattern(self.state, index)));
            let longest = lengths.max().unwrap_or(0);
            self.held.push_str(&text[..at + 1]);
            released.push_str(&self.held[..self.held.len() - longest]);
            self.held.clear();
            return true;
        }
        self.held.push_str(text);
        let keep = depths.get(&self.state).copied().unwrap_or(0);
        let free = self.held.floor_char_boundary(self.held.len() - keep);
        released.extend(self.held.drain(..free));
        false
    }

    /// Ends the text: what was held is no stop string.
    pub fn finish(&mut self, released: &mut String) {
        released.push_str(&std::mem::take(&mut self.held));
    }
}
