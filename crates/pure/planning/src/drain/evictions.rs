//! The pods that are evicted from a node during its drain, group by group.

use std::sync::Arc;

use super::{Blocker, Outcome, Rules};
use crate::budgets::Budgets;
use crate::facts::pod::{is_daemon, is_mirror, overdue};
use model::drain::Blocking;
use model::pod::Pod;

/// The pods of a node that is being drained.
#[derive(Clone, Debug, Default)]
pub struct Evictions {
    /// Pods to evict now.
    pub evict: Vec<Arc<Pod>>,
    /// Pods that are being deleted, or that the drain waits for.
    pub leaving: Vec<Arc<Pod>>,
    /// Pods to evict once the others are gone, because they are in a later group
    /// (`scale_down.drain_priorities`).
    pub later: Vec<Arc<Pod>>,
    /// DaemonSet pods with the annotation `enable-ds-eviction`. They are evicted after all other pods.
    pub last: Vec<Arc<Pod>>,
}

impl Evictions {
    /// Postpones all groups except the first. `bounds` contains the lowest priority of every group except the
    /// first.
    pub(crate) fn in_groups(mut self, bounds: &[i32], priority: impl Fn(&Pod) -> i32) -> Self {
        let group = |pod: &Pod| bounds.partition_point(|bound| *bound <= priority(pod));
        let first = self.evict.iter().chain(&self.leaving).map(|pod| group(pod)).min();
        let (now, later) =
            std::mem::take(&mut self.evict).into_iter().partition(|pod| Some(group(pod)) == first);
        (self.evict, self.later) = (now, later);
        let last = std::mem::take(&mut self.last);
        if self.left() == 0 {
            self.evict = last;
        } else {
            self.later.extend(last);
        }
        self
    }

    /// How many pods are left, other than `last`.
    pub fn left(&self) -> usize {
        self.evict.len() + self.leaving.len() + self.later.len()
    }
}

impl Rules<'_> {
    /// Determines which pods are evicted from a node that is being drained, and which pods the drain waits
    /// for. Pods that stay until the node is gone are left out. They all end at the same time, when their
    /// machine stops, so the drain waits until the budgets allow all of them to end together. If a budget
    /// does not allow an eviction now, the drain continues, and the eviction is retried.
    pub(crate) fn evictions<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p Arc<Pod>>,
        mut budgets: Budgets,
        stays: impl Fn(&Pod) -> bool,
    ) -> Result<Evictions, Blocker> {
        let mut evictions = Evictions::default();
        for pod in pods {
            match self.judge(pod, &budgets) {
                Outcome::Skip if pod.deletion.is_some() && !overdue(pod, self.now) && !is_daemon(pod) => {
                    evictions.leaving.push(pod.clone());
                }
                Outcome::Skip if goes_last(pod) && budgets.refusal(pod).is_none() && !stays(pod) => {
                    evictions.last.push(pod.clone());
                }
                Outcome::Skip => {}
                Outcome::Await => evictions.leaving.push(pod.clone()),
                // The pod is being deleted, often together with its controller.
                Outcome::Block(_) if pod.deletion.is_some() => evictions.leaving.push(pod.clone()),
                // This is checked before any pod is evicted. Otherwise, the drain would evict other pods and
                // then fail.
                Outcome::Block(Blocking::NotEnoughPdb) if budgets.several(pod) => {
                    return Err(Blocker { reason: Blocking::SeveralPdbs, pod: pod.id() });
                }
                Outcome::Block(Blocking::NotEnoughPdb) if stays(pod) => {
                    evictions.leaving.push(pod.clone());
                }
                Outcome::Finished | Outcome::Move if stays(pod) => budgets.take(std::iter::once(pod)),
                Outcome::Finished | Outcome::Move | Outcome::Block(Blocking::NotEnoughPdb) => {
                    evictions.evict.push(pod.clone());
                }
                Outcome::Block(reason) => return Err(Blocker { reason, pod: pod.id() }),
            }
        }
        Ok(evictions)
    }
}

/// Whether a DaemonSet's pod is evicted too, once the other pods are gone. A pod that is being deleted is not
/// waited for. A pod that tolerates all taints is not evicted, because its successor would start immediately.
fn goes_last(pod: &Pod) -> bool {
    let asks = pod
        .annotations
        .get("cluster-autoscaler.kubernetes.io/enable-ds-eviction")
        .is_some_and(|value| value == "true");
    let tolerates_all = || pod.tolerations.iter().any(|one| one.exists && one.key.is_empty());
    let here = !is_mirror(pod) && !pod.is_finished() && pod.deletion.is_none();
    asks && is_daemon(pod) && here && !tolerates_all()
}
