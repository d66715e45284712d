//! Limits the work of one decision. The limit is a number of node checks, not a time, so that the same
//! snapshot leads to the same decision on every computer, and a recorded round can be replayed. The next
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

/// The maximum number of node checks in each part of a decision. One check takes two or three nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Placing pending pods.
    pub growth: u64,
    /// An additional amount for explaining why pods fit nowhere.
    pub reasons: u64,
    /// Finding nodes that can be removed, including all simulations that this requires.
    pub shrinkage: u64,
    /// Deciding about hosts.
    pub power: u64,
}

impl Limits {
    fn total(self) -> u64 {
        [self.reasons, self.shrinkage, self.power].into_iter().fold(self.growth, u64::saturating_add)
    }

    /// These limits, multiplied by `part` / `of` and rounded up.
    fn share(self, part: u64, of: u64) -> Self {
        let share = |limit: u64| {
            let share = (u128::from(limit) * u128::from(part)).div_ceil(u128::from(of.max(1)));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self {
            growth: share(self.growth),
            reasons: share(self.reasons),
            shrinkage: share(self.shrinkage),
            power: share(self.power),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { growth: 600_000_000, reasons: 100_000_000, shrinkage: 600_000_000, power: 200_000_000 }
    }
}

/// If a round decides again, the repeated decision gets at least 1/`LEAST` of the limits, because it could
/// decide nothing without an allowance.
const LEAST: u64 = 4;

/// The number of node checks that a part of a decision may still spend.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    effort: Effort,
    limits: Limits,
    until: u64,
    stop: Stop,
}

impl Allowance {
    /// Creates the allowance of a whole decision, which is unlimited. `limits` restricts only the decision's
    /// parts.
    pub(super) fn new(effort: &Effort, limits: Limits) -> Self {
        Self { effort: effort.clone(), limits, until: u64::MAX, stop: Stop::default() }
    }

    /// Returns this allowance, changed so that it also counts as spent once `stop` is set.
    pub(super) fn unless(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Returns what a round's earlier decisions have left of this allowance for the next decision, but at
    /// least 1/`LEAST` of the limits. Also returns whether the earlier decisions have spent all of it.
    pub(super) fn of_repeat(&self) -> (Self, bool) {
        let whole = self.limits.total();
        let left = whole.saturating_sub(self.effort.spent());
        let limits = self.limits.share(left.max(whole / LEAST), whole);
        (Self { limits, ..self.clone() }, left == 0)
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

    /// Returns an allowance for the imagined pods of requests and buffers: what is left of this allowance,
    /// plus an extra amount, so that the imagined pods do not use up what real pods need.
    pub(super) fn and_thought(&self) -> Self {
        let until = self.until.max(self.effort.spent()).saturating_add(self.limits.growth / 4);
        Self { until, ..self.clone() }
    }

    /// What is left, plus an amount to explain why pods fit nowhere.
    pub(super) fn and_reasons(&self) -> Self {
        let until = self.until.max(self.effort.spent()).saturating_add(self.limits.reasons);
        Self { until, ..self.clone() }
    }

    /// An allowance of this many units from now on, limited to what is left of this allowance.
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

    /// Whether the allowance is used up, or the decision should stop.
    pub(super) fn is_spent(&self) -> bool {
        self.stop.is_set() || self.effort.spent() >= self.until
    }

    pub(super) fn effort(&self) -> &Effort {
        &self.effort
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

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
    fn a_repeated_decision_gets_what_the_others_left_but_not_nothing() {
        let limits = Limits { growth: 100, reasons: 10, shrinkage: 80, power: 10 };
        let whole = Allowance::new(&Effort::default(), limits);
        for (spent, growth, shrinkage, is_spent) in
            [(0, 100, 80, false), (50, 75, 60, false), (100, 25, 20, false), (90, 25, 20, true)]
        {
            whole.spend(spent);
            let (repeat, all) = whole.of_repeat();
            assert_eq!(
                (repeat.of_growth().left(), repeat.of_shrinkage().left(), all),
                (growth, shrinkage, is_spent)
            );
        }
        let boundless = Limits { growth: 60, shrinkage: u64::MAX, ..Limits::default() };
        let whole = Allowance::new(&Effort::default(), boundless);
        whole.spend(1000);
        assert_eq!(whole.of_repeat().0.of_growth().left(), 60);
    }

    /// Many nodes have drifted, and each has a pod that fits nowhere else. Each decision only finds out that
    /// one more of these nodes has to stay.
    #[test]
    fn a_round_spends_no_multiple_of_its_allowance() {
        let owner =
            "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]";
        let pod = |name: &str, spec: &str| {
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d, {owner}}}\n\
                 spec: {{{spec}, containers: [{{name: c, resources: {{requests: {{cpu: 3}}}}}}]}}\n"
            )
        };
        let mut text = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: rs, namespace: d}\nspec: {replicas: 9}\n".to_owned();
        let mut machines = String::new();
        for name in ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"] {
            let _ = write!(
                text,
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pve-autoscaler/pool: w}}}}\n\
                 status: {{allocatable: {{cpu: 4, memory: 16Gi, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}\n"
            );
            text += &pod(&format!("p-{name}"), &format!("nodeName: {name}"));
            text += &pod(&format!("q-{name}"), &format!("nodeName: {name}, nodeSelector: {{disk: fast}}"));
            let _ = write!(
                machines,
                "{{name: {name}, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: Ready, node: {name}, madeOf: {{max_pods: \"50\"}}}}, "
            );
        }
        let _ = write!(
            text,
            "---\napiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{{name: pve1, online: true, cores: 64, memory: 128Gi}}]\nmachines: [{machines}]\n"
        );
        let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                     [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}]}}";
        for number in 0..60 {
            text +=
                &pod(&format!("w-{number:03}"), &format!("{apart}, nodeSelector: {{disk: \"{number}\"}}"));
        }
        let (snapshot, _) = snapshot::read(&text).unwrap();
        let config =
            "[[pool]]\nname = \"w\"\nmax = 20\ncores = 4\nmemory = \"8GiB\"\n[replace]\ndrift = true\n";
        let config = settings::parse("test", config, settings::Needs::Plan).unwrap();
        let limits = Limits { growth: 20_000, reasons: 2000, shrinkage: 2000, power: 0 };
        let effort = Effort::default();
        crate::decided(&snapshot, &config, &Allowance::new(&effort, limits), None);
        assert!(effort.spent() < 2 * limits.total(), "{} of {}", effort.spent(), limits.total());
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
