//! Who goes first among those that wait.
//!
//! Classes first, the lowest number before the others; but for each [`Limits::aging_ns`](crate::Limits) that a class has had
//! nobody admitted, its first one counts as one class better, so that none waits for ever. Within a class, what was preempted
//! is finished first; then the tenants take turns such that whoever has been served least, in nanoseconds of the machine over
//! its weight, comes next. Of one tenant's sequences that with the earliest deadline is first, and one without a deadline is
//! due [`DUE_NS`] after its arrival: so they stay in the order of arrival where nobody has deadlines, and a deadline gets a
//! tenant nothing that is another tenant's.
//!
//! A tenant that was away is counted up to the least served of those that are there when it returns: nobody saves up service.
//! (Virtual token counters: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024; here in time, not tokens.)

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ledger::clock::Ns;

/// When a sequence without a deadline counts as due, from its arrival.
const DUE_NS: u64 = 30_000_000_000;

/// Tenants that are remembered while they have nothing here.
const AWAY_MAX: usize = 1024;

/// What one tenant has been served.
#[derive(Debug)]
pub(crate) struct Tenant {
    weight: u64,
    /// Nanoseconds over the weight.
    served: AtomicU64,
}

impl Tenant {
    /// Puts `ns` of the machine's time down to the tenant.
    pub fn charge(&self, ns: u64) {
        self.served.fetch_add(ns / self.weight, Relaxed);
    }

    pub fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }
}

/// All tenants, and when classes had their turns.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    tenants: HashMap<Option<Arc<str>>, Arc<Tenant>>,
    /// When somebody of a class was last admitted.
    turns: BTreeMap<i8, Ns>,
}

impl Shares {
    /// The account of the tenant of a sequence that arrives; held by the sequence for as long as it lives.
    pub fn enter(&mut self, name: Option<&Arc<str>>, weight: u32) -> Arc<Tenant> {
        let key = name.cloned();
        if let Some(tenant) = self.tenants.get(&key)
            && is_here(tenant)
        {
            return tenant.clone();
        }
        // Those that are away and below the floor would be lifted to it anyway: they need not be remembered.
        let floor =
            self.tenants.values().filter(|tenant| is_here(tenant)).map(|tenant| tenant.served()).min();
        self.tenants
            .retain(|_, tenant| is_here(tenant) || floor.is_some_and(|floor| tenant.served() > floor));
        if self.tenants.len() >= AWAY_MAX {
            self.tenants.retain(|_, tenant| is_here(tenant));
        }
        let served = self.tenants.get(&key).map_or(0, |tenant| tenant.served()).max(floor.unwrap_or(0));
        let tenant = Arc::new(Tenant { weight: u64::from(weight.max(1)), served: AtomicU64::new(served) });
        self.tenants.insert(key, tenant.clone());
        tenant
    }

    /// Somebody of `class` is admitted.
    pub fn had_its_turn(&mut self, class: i8, now: Ns) {
        self.turns.insert(class, now);
    }

    /// The order of service of `claims`, as indexes, each with the class that it counts as. `aging_ns` is 0 where classes
    /// never get better.
    pub fn order(&self, claims: &[Claim<'_>], now: Ns, aging_ns: u64) -> Vec<(usize, i8)> {
        let mut classes: BTreeMap<i8, Class<'_>> = BTreeMap::new();
        for (index, claim) in claims.iter().enumerate() {
            classes.entry(claim.class).or_default().add(index, claim);
        }
        let Some(best) = classes.keys().next().copied() else { return Vec::new() };
        // What each class's first one counts as: better by one for each time that it had no turn.
        let aged = |class: i8, members: &Class<'_>| -> i8 {
            let since = members.oldest.max(self.turns.get(&class).copied().unwrap_or(0));
            let better = now.saturating_sub(since).checked_div(aging_ns).unwrap_or(0);
            i8::try_from(i64::from(class).saturating_sub_unsigned(better)).unwrap_or(i8::MIN).max(best)
        };
        // A class's first one, where it counts as better, then whole classes: (rank, all of it, class).
        let mut parts: Vec<(i8, bool, i8)> = Vec::with_capacity(2 * classes.len());
        for (class, members) in &mut classes {
            members.arrange();
            let rank = aged(*class, members);
            if rank < *class {
                parts.push((rank, false, *class));
            }
            parts.push((*class, true, *class));
        }
        parts.sort_unstable();
        let mut ranked = Vec::with_capacity(claims.len());
        for (rank, all, class) in parts {
            let members = classes.get_mut(&class).expect("it is one of the classes");
            let wanted = if all { usize::MAX } else { 1 };
            ranked.extend(std::iter::from_fn(|| members.next()).take(wanted).map(|index| (index, rank)));
        }
        ranked
    }
}

/// Sequences hold it as well as the list does.
fn is_here(tenant: &Arc<Tenant>) -> bool {
    Arc::strong_count(tenant) > 1
}

/// A sequence that waits, as far as it decides who is first.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    pub class: i8,
    /// It ran before and lost its blocks.
    pub preempted: bool,
    pub tenant: &'a Arc<Tenant>,
    /// Larger for later arrivals.
    pub arrival: u64,
    pub arrived: Ns,
    pub deadline: Option<Ns>,
    /// Nanoseconds that its prompt will take.
    pub price_ns: u64,
}

/// Those of one class.
#[derive(Default)]
struct Class<'a> {
    oldest: Ns,
    /// By arrival.
    preempted: BinaryHeap<Reverse<(u64, usize)>>,
    tenants: HashMap<*const Tenant, Turns<'a>>,
    /// Tenants by what they will have been served when their next one is taken, then by its arrival.
    next: BinaryHeap<Reverse<(u64, u64, *const Tenant)>>,
}

/// What one tenant has in one class.
struct Turns<'a> {
    tenant: &'a Tenant,
    /// Due, arrival, index, price.
    claims: VecDeque<(Ns, u64, usize, u64)>,
}

impl<'a> Class<'a> {
    fn add(&mut self, index: usize, claim: &Claim<'a>) {
        let first = self.preempted.is_empty() && self.tenants.is_empty();
        self.oldest = if first { claim.arrived } else { self.oldest.min(claim.arrived) };
        if claim.preempted {
            self.preempted.push(Reverse((claim.arrival, index)));
            return;
        }
        let due = claim.deadline.unwrap_or(claim.arrived.saturating_add(DUE_NS));
        let turns = self
            .tenants
            .entry(Arc::as_ptr(claim.tenant))
            .or_insert_with(|| Turns { tenant: claim.tenant, claims: VecDeque::new() });
        turns.claims.push_back((due, claim.arrival, index, claim.price_ns));
    }

    fn arrange(&mut self) {
        for (key, turns) in &mut self.tenants {
            turns.claims.make_contiguous().sort_unstable();
            let (_, arrival, ..) = turns.claims[0];
            self.next.push(Reverse((turns.tenant.served(), arrival, *key)));
        }
    }

    fn next(&mut self) -> Option<usize> {
        if let Some(Reverse((_, index))) = self.preempted.pop() {
            return Some(index);
        }
        let Reverse((served, _, key)) = self.next.pop()?;
        let turns = self.tenants.get_mut(&key)?;
        let (_, _, index, price) = turns.claims.pop_front()?;
        if let Some((_, arrival, ..)) = turns.claims.front() {
            let served = served.saturating_add(price / turns.tenant.weight);
            self.next.push(Reverse((served, *arrival, key)));
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    struct Crowd {
        shares: Shares,
        /// Class, tenant, arrival, deadline.
        claims: Vec<(i8, Arc<Tenant>, Ns, Option<Ns>)>,
    }

    impl Crowd {
        fn new() -> Self {
            Crowd { shares: Shares::default(), claims: Vec::new() }
        }

        fn comes(&mut self, class: i8, tenant: &str, arrived: Ns) -> Arc<Tenant> {
            self.comes_with_deadline(class, tenant, arrived, None)
        }

        fn comes_with_deadline(
            &mut self,
            class: i8,
            tenant: &str,
            arrived: Ns,
            deadline: Option<Ns>,
        ) -> Arc<Tenant> {
            let weight = if tenant == "heavy" { 3 } else { 1 };
            let tenant = self.shares.enter(Some(&tenant.into()), weight);
            self.claims.push((class, tenant.clone(), arrived, deadline));
            tenant
        }

        fn order(&self, now: Ns) -> Vec<(usize, i8)> {
            let claims: Vec<Claim<'_>> = self
                .claims
                .iter()
                .enumerate()
                .map(|(index, (class, tenant, arrived, deadline))| Claim {
                    class: *class,
                    preempted: false,
                    tenant,
                    arrival: index as u64,
                    arrived: *arrived,
                    deadline: *deadline,
                    price_ns: 10,
                })
                .collect();
            self.shares.order(&claims, now, 10 * SECOND)
        }

        fn indexes(&self, now: Ns) -> Vec<usize> {
            self.order(now).into_iter().map(|(index, _)| index).collect()
        }
    }

    #[test]
    fn equal_claims_are_served_as_they_came() {
        let mut crowd = Crowd::new();
        for at in 0..5 {
            crowd.comes(0, "one", at);
        }
        assert_eq!(crowd.indexes(10), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn tenants_take_turns_however_many_claims_they_have() {
        let mut crowd = Crowd::new();
        for at in 0..4 {
            crowd.comes(0, "many", at);
        }
        let few = crowd.comes(0, "few", 4);
        assert_eq!(crowd.indexes(10), [0, 4, 1, 2, 3]);
        few.charge(25);
        assert_eq!(crowd.indexes(10), [0, 1, 2, 4, 3], "what was served counts");
    }

    #[test]
    fn a_heavier_tenant_gets_more() {
        let mut crowd = Crowd::new();
        for at in 0..6 {
            crowd.comes(0, "light", at);
        }
        for at in 6..12 {
            crowd.comes(0, "heavy", at);
        }
        let heavy = crowd.indexes(20).iter().take(8).filter(|index| **index >= 6).count();
        assert_eq!(heavy, 6, "three of four: {:?}", crowd.indexes(20));
    }

    #[test]
    fn classes_go_first_and_old_ones_are_not_forgotten() {
        let mut crowd = Crowd::new();
        crowd.comes(5, "one", 0);
        crowd.comes(5, "one", 1);
        crowd.comes(0, "one", 2);
        crowd.comes(-3, "one", 3);
        assert_eq!(crowd.order(10), [(3, -3), (2, 0), (0, 5), (1, 5)]);
        // Sixty seconds are worth six classes: the first of class 5 counts as -1.
        let later = 65 * SECOND;
        crowd.claims[2].2 = later;
        crowd.claims[3].2 = later;
        assert_eq!(crowd.order(later), [(3, -3), (0, -1), (2, 0), (1, 5)]);
        crowd.shares.had_its_turn(5, later);
        assert_eq!(crowd.order(later + 1), [(3, -3), (2, 0), (0, 5), (1, 5)], "it had its turn");
        let ranks: Vec<i8> = crowd.order(300 * SECOND).into_iter().map(|(_, rank)| rank).collect();
        assert_eq!(ranks, [-3, -3, -3, 5], "nobody counts as better than the best there is");
    }

    #[test]
    fn deadlines_order_what_one_tenant_has_and_nothing_else() {
        let mut crowd = Crowd::new();
        crowd.comes(0, "one", 0);
        crowd.comes_with_deadline(0, "one", 1, Some(SECOND));
        crowd.comes_with_deadline(0, "one", 2, Some(SECOND / 2));
        crowd.comes(0, "two", 3);
        assert_eq!(crowd.indexes(10), [2, 3, 1, 0]);
    }

    #[test]
    fn who_returns_has_saved_nothing_up_and_is_not_forgotten_too_soon() {
        let mut shares = Shares::default();
        let stays = shares.enter(Some(&"stays".into()), 1);
        stays.charge(1_000);
        let away = shares.enter(Some(&"away".into()), 1);
        assert_eq!(away.served(), 1_000);
        away.charge(500);
        drop(away);
        assert_eq!(shares.enter(Some(&"away".into()), 1).served(), 1_500, "leaving does not clear a debt");
        stays.charge(5_000);
        assert_eq!(shares.enter(Some(&"away".into()), 1).served(), 6_000, "nor earns it a credit");
        drop(stays);
        assert_eq!(shares.enter(Some(&"new".into()), 1).served(), 0, "a new busy time begins");
        assert!(shares.tenants.len() <= 1);
    }
}
