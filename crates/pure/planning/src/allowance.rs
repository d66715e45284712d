//! Limits the work of one decision. The limit is a number of looks at nodes instead of a time, so that the
//! same snapshot leads to the same decision on every computer, and a recorded round can be replayed. The next
//! round continues with the pods and nodes that were not looked at: see [`super::kind_turns`] and
//! [`super::candidate_turns`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scheduling::Effort;

/// Lets another thread stop a decision that is no longer wanted. What was decided so far is discarded.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops the decision at its next step.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the decision should stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The maximum number of looks at nodes for each part of a decision. One look takes two or three nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Placing pending pods.
    pub growth: u64,
    /// An additional amount for explaining why pods fit nowhere.
    pub reasons: u64,
    /// Finding nodes that can be removed, including all simulations for that.
    pub shrinkage: u64,
    /// Deciding about hosts.
    pub power: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { growth: 600_000_000, reasons: 100_000_000, shrinkage: 600_000_000, power: 200_000_000 }
    }
}

/// What a part of a decision may still spend.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    effort: Effort,
    limits: Limits,
    until: u64,
    stop: Stop,
}

impl Allowance {
    /// The allowance of a whole decision. The limits bound its parts.
    pub(super) fn new(effort: &Effort, limits: Limits) -> Self {
        Self { effort: effort.clone(), limits, until: u64::MAX, stop: Stop::default() }
    }

    /// This allowance, which also counts as spent once `stop` is set.
    pub(super) fn unless(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// The part for placing pending pods.
    pub(super) fn of_growth(&self) -> Self {
        self.part(self.limits.growth)
    }

    /// The part for finding nodes that can be removed.
    pub(super) fn of_shrinkage(&self) -> Self {
        self.part(self.limits.shrinkage)
    }

    /// The part for deciding about hosts.
    pub(super) fn of_power(&self) -> Self {
        self.part(self.limits.power)
    }

    /// Half of what is left.
    pub(super) fn half(&self) -> Self {
        self.part(self.until.saturating_sub(self.effort.spent()) / 2)
    }

    /// What is left, plus an amount for imagined pods, so that they do not use up the allowance of real pods.
    pub(super) fn and_thought(&self) -> Self {
        let until = self.until.max(self.effort.spent()).saturating_add(self.limits.growth / 4);
        Self { until, ..self.clone() }
    }

    /// What is left, plus an amount to explain why pods fit nowhere.
    pub(super) fn and_reasons(&self) -> Self {
        let until = self.until.max(self.effort.spent()).saturating_add(self.limits.reasons);
        Self { until, ..self.clone() }
    }

    /// An allowance of this many units from now on, but of no more than what is left of this allowance.
    fn part(&self, units: u64) -> Self {
        Self { until: self.effort.spent().saturating_add(units).min(self.until), ..self.clone() }
    }

    /// Spends this many units.
    pub(super) fn spend(&self, units: usize) {
        self.effort.add(u64::try_from(units).unwrap_or(u64::MAX));
    }

    /// How many units are left.
    pub(super) fn left(&self) -> u64 {
        if self.stop.is_set() { 0 } else { self.until.saturating_sub(self.effort.spent()) }
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.stop.is_set() || self.effort.spent() >= self.until
    }

    pub(super) fn effort(&self) -> &Effort {
        &self.effort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let effort = Effort::default();
        let whole = Allowance::new(&effort, Limits { growth: 100, power: 1000, ..Limits::default() });
        let growth = whole.of_growth();
        let (half, more) = (growth.half(), growth.of_power());
        whole.spend(49);
        assert!(!half.is_spent() && !growth.is_spent());
        whole.spend(1);
        assert!(half.is_spent() && !growth.is_spent() && !more.is_spent());
        more.spend(50);
        assert!(growth.is_spent() && more.is_spent() && !growth.and_reasons().is_spent());
        assert!(!whole.is_spent() && !whole.of_growth().is_spent());
    }

    #[test]
    fn a_stop_ends_all_parts() {
        let stop = Stop::default();
        let whole = Allowance::new(&Effort::default(), Limits::default()).unless(&stop);
        let growth = whole.of_growth();
        assert!(!growth.is_spent() && growth.left() > 0);
        stop.set();
        assert!(growth.is_spent() && growth.left() == 0 && growth.and_reasons().is_spent());
        assert!(whole.is_spent() && whole.half().is_spent());
    }
}
