//! Ids of calls that come in groups (a conversation, a workflow), of which some go on at the same time.
//!
//! Groups are put into waves of `together`; a wave's calls are all before the next wave's. Within a wave the groups alternate,
//! so that neighbours in the schedule depend on each other as little as can be.

use crate::schedule::CallId;

#[derive(Clone, Copy, Debug)]
pub(super) struct Waves {
    pub groups: u64,
    /// Groups in a wave; the last one may have fewer.
    pub together: u64,
    pub calls_each: u64,
}

/// A wave, as one of its calls sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wave {
    /// The wave's first call.
    pub first_id: u64,
    /// The wave's first group.
    pub first_group: u64,
    /// How many groups it has.
    pub groups: u64,
    /// The call's place in the wave.
    pub place: u64,
}

impl Waves {
    pub fn len(&self) -> u64 {
        self.groups * self.calls_each
    }

    /// None behind the last call.
    pub fn of(&self, id: CallId) -> Option<Wave> {
        if id.0 >= self.len() {
            return None;
        }
        let wave_calls = self.together * self.calls_each;
        let wave = id.0 / wave_calls;
        let first_group = wave * self.together;
        Some(Wave {
            first_id: wave * wave_calls,
            first_group,
            groups: self.together.min(self.groups - first_group),
            place: id.0 % wave_calls,
        })
    }
}
