//! Amounts of resources that a node offers or a pod requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts of resources, in the units in which kube-scheduler compares them (`framework.Resource`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// The number of pods: the limit of a node, or 1 for a pod.
    pub pods: i64,
    /// Extended resources, hugepages and attachable volumes by name, in units (hugepages in bytes).
    pub other: BTreeMap<String, i64>,
}

impl Resources {
    /// Adds `more` to every amount, saturating.
    pub fn add(&mut self, more: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(more.cpu_milli);
        self.memory = self.memory.saturating_add(more.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(more.ephemeral_storage);
        self.pods = self.pods.saturating_add(more.pods);
        for (name, amount) in &more.other {
            let sum = self.other.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Adds the amounts in `more`, multiplied by `times`, saturating.
    pub fn add_times(&mut self, more: &Self, times: i64) {
        let add = |sum: &mut i64, amount: i64| *sum = sum.saturating_add(amount.saturating_mul(times));
        add(&mut self.cpu_milli, more.cpu_milli);
        add(&mut self.memory, more.memory);
        add(&mut self.ephemeral_storage, more.ephemeral_storage);
        add(&mut self.pods, more.pods);
        for (name, amount) in &more.other {
            add(self.other.entry(name.clone()).or_default(), *amount);
        }
    }

    /// The number of pods with these requests that fit into the free resources (`self`). Resources that are
    /// not requested do not count (kube-scheduler's `fitsRequest`).
    pub fn copies(&self, wanted: &Self) -> i64 {
        let times = |wanted: i64, free: i64| if wanted > 0 { (free / wanted).max(0) } else { i64::MAX };
        let other = wanted.other.iter().map(|(name, amount)| {
            let free = self.other.get(name).copied().unwrap_or(0);
            times(*amount, free)
        });
        times(wanted.cpu_milli, self.cpu_milli)
            .min(times(wanted.memory, self.memory))
            .min(times(wanted.ephemeral_storage, self.ephemeral_storage))
            .min(self.pods.max(0))
            .min(other.min().unwrap_or(i64::MAX))
    }

    /// Whether a pod with these requests fits into the free resources (`self`), that is, whether
    /// [`Resources::copies`] is at least one.
    pub fn fits(&self, wanted: &Self) -> bool {
        let fits = |wanted: i64, free: i64| wanted <= 0 || wanted <= free;
        fits(wanted.cpu_milli, self.cpu_milli)
            && fits(wanted.memory, self.memory)
            && fits(wanted.ephemeral_storage, self.ephemeral_storage)
            && self.pods > 0
            && wanted
                .other
                .iter()
                .all(|(name, amount)| fits(*amount, self.other.get(name).copied().unwrap_or(0)))
    }

    /// Subtracts `less` from every amount, saturating; the result may be negative.
    pub fn subtract(&mut self, less: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(less.cpu_milli);
        self.memory = self.memory.saturating_sub(less.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_sub(less.ephemeral_storage);
        self.pods = self.pods.saturating_sub(less.pods);
        for (name, amount) in &less.other {
            let rest = self.other.entry(name.clone()).or_default();
            *rest = rest.saturating_sub(*amount);
        }
    }

    /// Raises every amount to the amount in `other`, if that is larger.
    pub fn raise_to(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        self.pods = self.pods.max(other.pods);
        for (name, amount) in &other.other {
            let most = self.other.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::Strategy;
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    fn amounts() -> impl Strategy<Value = Resources> {
        (-1..4_i64, -1..4_i64, -1..3_i64, -1..3_i64, -1..3_i64).prop_map(
            |(cpu, memory, storage, pods, gpus)| {
                let other = (gpus != 0).then(|| ("gpu".to_owned(), gpus)).into_iter().collect();
                Resources { cpu_milli: cpu, memory, ephemeral_storage: storage, pods, other }
            },
        )
    }

    proptest! {
        #[test]
        fn what_fits_has_room_for_a_copy(free in amounts(), wanted in amounts()) {
            prop_assert_eq!(free.fits(&wanted), free.copies(&wanted) > 0);
        }
    }
}
