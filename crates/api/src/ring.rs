//! The last requests' accounts.
//!
//! **Invariant:** bounded in number and in bytes, and each account is seen by its own tenant only.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ledger::record::{ChoiceRecord, OriginTokens};
use ledger::{Cause, Charge, Record, RequestId, Unit};

use crate::authorize::Tenant;

/// Closed accounts, newest last.
pub struct Ring {
    entries: Mutex<Entries>,
    records_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Entries {
    queue: VecDeque<Entry>,
    bytes: usize,
}

struct Entry {
    tenant: Tenant,
    record: Arc<Record>,
    bytes: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Ring::new(Ring::RECORDS_MAX, Ring::BYTES_MAX)
    }
}

impl Ring {
    /// Accounts kept, where nothing else is configured.
    pub const RECORDS_MAX: usize = 256;
    /// Their bytes, about.
    pub const BYTES_MAX: usize = 64 << 20;

    /// An empty ring.
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Ring { entries: Mutex::default(), records_max, bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a closed account; the oldest make room. One that is too large alone is not kept.
    pub fn push(&self, tenant: Tenant, record: Arc<Record>) {
        let bytes = weight(&record);
        if bytes > self.bytes_max || self.records_max == 0 {
            return;
        }
        let mut entries = self.lock();
        while entries.queue.len() >= self.records_max || entries.bytes + bytes > self.bytes_max {
            let Some(oldest) = entries.queue.pop_front() else { break };
            entries.bytes -= oldest.bytes;
        }
        entries.bytes += bytes;
        entries.queue.push_back(Entry { tenant, record, bytes });
    }

    /// The account of a tenant's request.
    pub fn get(&self, tenant: Tenant, id: RequestId) -> Option<Arc<Record>> {
        let entries = self.lock();
        let found = entries.queue.iter().rev().find(|entry| entry.tenant == tenant && entry.record.id == id);
        found.map(|entry| Arc::clone(&entry.record))
    }

    /// A tenant's newest accounts, newest first.
    pub fn recent(&self, tenant: Tenant, count: usize) -> Vec<Arc<Record>> {
        let entries = self.lock();
        let own = entries.queue.iter().rev().filter(|entry| entry.tenant == tenant);
        own.take(count).map(|entry| Arc::clone(&entry.record)).collect()
    }
}

/// About how many bytes a record takes.
fn weight(record: &Record) -> usize {
    let choices = record.choices.iter().map(|choice| {
        size_of::<ChoiceRecord>() + charges(&choice.stages) + choice.units.iter().map(unit).sum::<usize>()
    });
    size_of::<Record>()
        + record.model.len()
        + record.refusal.as_ref().map_or(0, String::len)
        + charges(&record.stages)
        + charges(&record.hidden)
        + record.prompt.by_origin.len() * size_of::<OriginTokens>()
        + record.tokens.iter().map(unit).sum::<usize>()
        + choices.sum::<usize>()
        + record.ignored.iter().map(|key| size_of::<String>() + key.len()).sum::<usize>()
}

fn unit(unit: &Unit) -> usize {
    size_of::<Unit>() + charges(&unit.gap)
}

fn charges(charges: &[Charge]) -> usize {
    charges.iter().map(|charge| size_of::<Charge>() + charge.cause.as_ref().map_or(0, named)).sum()
}

fn named(cause: &Cause) -> usize {
    match cause {
        Cause::NoFreeBlocks { holders, .. } => holders.len() * size_of::<RequestId>(),
        Cause::TokenBudget { prefill_of, .. } | Cause::StepTime { prefill_of, .. } => {
            prefill_of.len() * size_of::<RequestId>()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ledger::{Outcome, PromptAccount};

    use super::*;

    fn record(id: u64, model: &str) -> Arc<Record> {
        Arc::new(Record {
            schema: Record::SCHEMA,
            id: RequestId(id),
            model: model.into(),
            outcome: Outcome::Finished,
            status: 200,
            refusal: None,
            began_unix_ns: 0,
            e2e_ns: 0,
            ttft_ns: None,
            stages: Vec::new(),
            hidden: Vec::new(),
            prompt: PromptAccount::default(),
            tokens: Vec::new(),
            tokens_dropped: 0,
            completion_tokens: 0,
            choices: Vec::new(),
            ignored: Vec::new(),
            open: false,
            overhead_ns: 0,
        })
    }

    fn ids(ring: &Ring) -> Vec<u64> {
        ring.recent(Tenant::default(), 99).iter().map(|record| record.id.0).collect()
    }

    #[test]
    fn the_oldest_leave_when_there_are_too_many() {
        let ring = Ring::new(3, usize::MAX);
        (1..=5).for_each(|id| ring.push(Tenant::default(), record(id, "m")));
        assert_eq!(ids(&ring), [5, 4, 3]);
    }

    #[test]
    fn the_oldest_leave_when_they_are_too_large() {
        let ring = Ring::new(100, 5000);
        (1..=3).for_each(|id| ring.push(Tenant::default(), record(id, &"m".repeat(1500))));
        assert_eq!(ids(&ring), [3, 2], "two of about 1,900 bytes fit into 5,000");
        ring.push(Tenant::default(), record(4, &"m".repeat(9000)));
        assert_eq!(ids(&ring), [3, 2], "one that is too large alone drives nobody out");
    }
}
