//! Pods that are equal except for their names share a number.

use std::sync::Arc;

use super::priorities::Priorities;
use model::digest::Fingerprint;
use model::pod::Pod;
use scheduling::numbers::Numbers;

/// Groups of pods that are equal except for their names. Each group has a number.
#[derive(Default)]
pub(super) struct Groups<'a> {
    numbers: Numbers,
    samples: Vec<&'a Arc<Pod>>,
    /// For each group, whether its pods are expendable.
    expendable: Vec<bool>,
    last: Option<(Fingerprint, usize)>,
}

impl<'a> Groups<'a> {
    /// The number of the pod's group, and whether its pods are expendable.
    /// `class` is [`model::digest::Digest::class`] of the pod.
    pub(super) fn number(
        &mut self,
        pod: &'a Arc<Pod>,
        class: Fingerprint,
        priorities: &Priorities,
    ) -> (usize, bool) {
        // Pods with the same owner are usually next to each other in the list.
        if let Some((_, number)) = self.last.filter(|last| last.0 == class) {
            return (number, self.expendable[number]);
        }
        let next = self.samples.len();
        let number = self.numbers.get_or_insert(class, next);
        if number == next {
            self.samples.push(pod);
            self.expendable.push(priorities.expendable(pod));
        }
        self.last = Some((class, number));
        (number, self.expendable[number])
    }

    /// One pod of each group.
    pub(super) fn samples(&self) -> &[&'a Arc<Pod>] {
        &self.samples
    }
}
