//! One token's way through the stages.

use crate::{Cause, Stage, clock::Ns};

/// A stage that begins at `since` and lasts until the next segment of its timeline begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub stage: Stage,
    pub since: Ns,
    pub cause: Option<Cause>,
}

/// The stages a token went through, in order and without gaps; open-ended until it is delivered.
///
/// **Invariant:** `since` never decreases from one segment to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    segments: Vec<Segment>,
}

impl Timeline {
    /// A timeline that begins in `stage` at `since`.
    pub fn starting(stage: Stage, since: Ns) -> Self {
        let mut timeline = Timeline::default();
        timeline.enter(stage, since);
        timeline
    }

    /// The token leaves the stage it is in and enters `stage`. Entering the stage it is in already changes nothing.
    pub fn enter(&mut self, stage: Stage, now: Ns) {
        self.push(Segment { stage, since: now, cause: None });
    }

    /// The token waits in `stage` because of `cause`. A new cause begins a new segment.
    pub fn wait(&mut self, stage: Stage, cause: Cause, now: Ns) {
        self.push(Segment { stage, since: now, cause: Some(cause) });
    }

    /// Appends what happened next, seen by somebody else (the engine, say). Its stamps may not lie before ours.
    pub fn append(&mut self, next: Timeline) {
        for segment in next.segments {
            self.push(segment);
        }
    }

    fn push(&mut self, mut segment: Segment) {
        if cfg!(feature = "off") {
            return;
        }
        if let Some(last) = self.segments.last() {
            segment.since = segment.since.max(last.since);
            if last.stage == segment.stage && last.cause == segment.cause {
                return;
            }
        }
        self.segments.push(segment);
    }

    /// The segments, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The stage the token is in.
    pub fn current(&self) -> Option<Stage> {
        self.segments.last().map(|segment| segment.stage)
    }

    /// When the timeline begins.
    pub fn begins(&self) -> Option<Ns> {
        self.segments.first().map(|segment| segment.since)
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Each segment with its end, the last one ending at `end`.
    pub fn spans(&self, end: Ns) -> impl Iterator<Item = (&Segment, Ns)> {
        let ends = self.segments.iter().skip(1).map(|next| next.since).chain(std::iter::once(end));
        self.segments.iter().zip(ends)
    }
}
