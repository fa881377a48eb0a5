//! The charging rule: a request is charged to the stage that its next undelivered token is in.

use crate::record::{Charge, Unit, add, since};
use crate::{Stage, StepId, Timeline, clock::Ns};

/// What one choice of a request has been charged so far.
///
/// Tokens are delivered in units. The time between two deliveries is charged along the timeline of the unit that the
/// client is waiting for; the part of that timeline before the earlier delivery is hidden.
///
/// **Invariant:** the charges always sum to `delivered - opened`.
#[derive(Clone, Debug)]
pub struct Account {
    opened: Ns,
    delivered: Ns,
    first_token: Option<Ns>,
    tokens: usize,
    stages: Vec<Charge>,
    hidden: Vec<Charge>,
    units: Vec<Unit>,
    units_dropped: usize,
}

impl Account {
    /// Units that an account keeps one by one; later ones are only added up.
    pub const UNITS_MAX: usize = 4096;

    /// Opens an account at the request's first byte.
    pub fn open(first_byte: Ns) -> Self {
        Account {
            opened: first_byte,
            delivered: first_byte,
            first_token: None,
            tokens: 0,
            stages: Vec::new(),
            hidden: Vec::new(),
            units: Vec::new(),
            units_dropped: 0,
        }
    }

    /// A unit of `tokens` tokens was handed to the client at `now`, having come along `timeline`.
    pub fn deliver(&mut self, timeline: &Timeline, tokens: usize, step: Option<StepId>, now: Ns) {
        if cfg!(feature = "off") {
            return;
        }
        let from = self.delivered;
        let to = now.max(from);
        let mut gap = Vec::new();
        let mut hidden_ns = 0;
        let begins = timeline.begins().unwrap_or(to).clamp(from, to);
        if begins > from {
            add(&mut gap, Stage::Unattributed, None, begins - from);
        }
        for (segment, end) in timeline.spans(to) {
            // Clipped to the gap: a stamp after the delivery would be charged to nobody's wait.
            let (start, end) = (segment.since.min(to), end.min(to));
            let charged = since(start.max(from), end);
            let overlapped = since(start, end) - charged;
            if charged > 0 {
                add(&mut gap, segment.stage, segment.cause.as_ref(), charged);
            }
            if overlapped > 0 {
                add(&mut self.hidden, segment.stage, segment.cause.as_ref(), overlapped);
                hidden_ns += overlapped;
            }
        }
        debug_assert_eq!(
            gap.iter().map(|charge| charge.ns).sum::<u64>(),
            to - from,
            "a gap is charged in full"
        );
        for charge in &gap {
            add(&mut self.stages, charge.stage, charge.cause.as_ref(), charge.ns);
        }
        self.delivered = to;
        self.tokens += tokens;
        if tokens > 0 && self.first_token.is_none() {
            self.first_token = Some(to);
        }
        if self.units.len() < Self::UNITS_MAX {
            self.units.push(Unit { tokens, delivered_ns: since(self.opened, to), gap, hidden_ns, step });
        } else {
            self.units_dropped += 1;
        }
    }

    /// Charges `stage` up to `now` without delivering anything: a request that ends with no token on its way.
    pub fn settle(&mut self, stage: Stage, now: Ns) {
        if now > self.delivered {
            self.deliver(&Timeline::starting(stage, self.delivered), 0, None, now);
        }
    }

    /// The request's first byte.
    pub fn opened(&self) -> Ns {
        self.opened
    }

    /// The last delivery.
    pub fn delivered(&self) -> Ns {
        self.delivered
    }

    /// First byte in to first token out.
    pub fn ttft_ns(&self) -> Option<u64> {
        self.first_token.map(|moment| since(self.opened, moment))
    }

    /// Tokens delivered.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Charges by stage and cause, in the order of the line; they sum to `delivered - opened`.
    pub fn stages(&self) -> Vec<Charge> {
        in_line_order(&self.stages)
    }

    /// Overlapped time by stage and cause, in the order of the line.
    pub fn hidden(&self) -> Vec<Charge> {
        in_line_order(&self.hidden)
    }

    /// The units kept one by one, and how many were not.
    pub fn units(&self) -> (&[Unit], usize) {
        (&self.units, self.units_dropped)
    }
}

fn in_line_order(charges: &[Charge]) -> Vec<Charge> {
    let mut charges = charges.to_vec();
    charges.sort_by_key(|charge| charge.stage);
    charges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timeline(entries: &[(Stage, Ns)]) -> Timeline {
        let mut timeline = Timeline::default();
        for (stage, since) in entries {
            timeline.enter(*stage, *since);
        }
        timeline
    }

    fn ns(charges: &[Charge], stage: Stage) -> u64 {
        charges.iter().filter(|charge| charge.stage == stage).map(|charge| charge.ns).sum()
    }

    #[test]
    fn work_before_the_previous_delivery_is_hidden_and_the_rest_is_charged() {
        let mut account = Account::open(100);
        account.deliver(
            &timeline(&[(Stage::Accept, 100), (Stage::Prefill, 150), (Stage::Write, 250)]),
            1,
            None,
            300,
        );
        // The second token was decoded from 240 to 280, while the first was being written until 300.
        let second = timeline(&[(Stage::Decode, 240), (Stage::Return, 280), (Stage::Write, 310)]);
        account.deliver(&second, 1, None, 320);
        assert_eq!(ns(&account.stages, Stage::Decode), 0);
        assert_eq!(ns(&account.hidden, Stage::Decode), 40);
        assert_eq!(ns(&account.hidden, Stage::Return), 20);
        assert_eq!(ns(&account.stages, Stage::Return), 10);
        assert_eq!(ns(&account.stages, Stage::Write), 60);
        assert_eq!(account.ttft_ns(), Some(200));
    }

    #[test]
    fn time_that_no_stage_claims_is_unattributed() {
        let mut account = Account::open(0);
        account.deliver(&timeline(&[(Stage::Write, 30)]), 1, None, 40);
        assert_eq!(ns(&account.stages, Stage::Unattributed), 30);
    }

    proptest! {
        #[test]
        fn charges_sum_to_the_whole_for_any_schedule(
            opened in 0u64..1000,
            units in prop::collection::vec((prop::collection::vec((0usize..Stage::ALL.len(), 0u64..5000), 0..8), 0u64..6000, 0usize..3), 0..40),
        ) {
            let mut account = Account::open(opened);
            for (entries, delivered, tokens) in units {
                let entries: Vec<_> = entries.into_iter().map(|(stage, at)| (Stage::ALL[stage], at)).collect();
                account.deliver(&timeline(&entries), tokens, None, delivered);
                let (units, _) = account.units();
                let gap: u64 = units.last().unwrap().gap.iter().map(|charge| charge.ns).sum();
                let before = units.len().checked_sub(2).map_or(0, |index| units[index].delivered_ns);
                prop_assert_eq!(gap, units.last().unwrap().delivered_ns - before);
            }
            let sum: u64 = account.stages().iter().map(|charge| charge.ns).sum();
            prop_assert_eq!(sum, account.delivered() - account.opened());
        }
    }
}
