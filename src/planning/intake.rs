//! One look at every pod: its name, whether it waits, and which pods it is equal to.

use std::sync::Arc;

use super::classes::Groups;
use super::ids::{Id, Ids};
use super::parts;
use super::pending::{self, Waiting};
use crate::model::plan::PodOutcome;
use crate::model::pod::Pod;

/// What the look told.
#[derive(Default)]
pub(super) struct Intake<'a> {
    pub ids: Ids,
    /// Pods that wait, in the order in which they came.
    pub waiting: Vec<Waiting<'a>>,
    /// Equal ones among them.
    pub groups: Groups<'a>,
    /// All others, in the order in which they came.
    pub others: Vec<(Id, &'a Arc<Pod>)>,
}

impl<'a> Intake<'a> {
    /// Looks at all pods; `settled` says what is decided of one that waits without looking for room.
    pub(super) fn of(pods: &'a [Arc<Pod>], settled: impl Fn(&Pod) -> Option<PodOutcome> + Sync) -> Self {
        let mut parts = parts::of(pods, |_, part| Self::of_part(part, &settled)).into_iter();
        let first = parts.next().unwrap_or_default();
        parts.fold(first, Self::with)
    }

    fn of_part(pods: &'a [Arc<Pod>], settled: impl Fn(&Pod) -> Option<PodOutcome>) -> Self {
        let mut intake = Self::default();
        // Their names in one go, the rest in another: that is how they lie in memory.
        let named: Vec<Id> = pods.iter().map(|pod| intake.ids.add(pod)).collect();
        for (pod, id) in pods.iter().zip(named) {
            if pending::waits(pod) {
                let (settled, group) = (settled(pod), intake.groups.number(pod));
                intake.waiting.push(Waiting { pod, id, group, settled, listed: true });
            } else {
                intake.others.push((id, pod));
            }
        }
        intake
    }

    /// The same, with pods that came later.
    fn with(mut self, later: Self) -> Self {
        let moved = self.ids.append(&later.ids);
        let groups: Vec<usize> =
            later.groups.samples().iter().map(|sample| self.groups.number(sample)).collect();
        let waiting = later.waiting.into_iter();
        self.waiting.extend(waiting.map(|one| Waiting {
            id: moved(one.id),
            group: groups[one.group],
            ..one
        }));
        self.others.extend(later.others.into_iter().map(|(id, pod)| (moved(id), pod)));
        self
    }
}
