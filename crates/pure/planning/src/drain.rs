//! May the pods of a node be evicted? Cluster Autoscaler's drain rules, in its order, without three of its
//! traps: an old kube-system pod does not skip the rules after it, `safe-to-evict` does not skip disruption
//! budgets, and all pods of a node are counted against a budget together.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::annotations::is_kept;
use super::budgets::{Budgets, SEVERAL};
use super::facts::pod::{is_daemon, is_mirror, overdue};
use model::Snapshot;
use model::pod::{Owner, Pod, PodPhase, VolumeSource};
use settings::ScaleDown;

/// What draining a node means.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Pods that need another place.
    pub moves: Vec<Arc<Pod>>,
    /// Pods that are evicted and need none: they are expendable.
    pub expendable: Vec<Arc<Pod>>,
    /// A pod that is waited for before the node may go (`safe-to-evict: "on-completion"`).
    pub awaited: Option<String>,
}

impl Drain {
    /// All pods whose eviction the budgets are asked about.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.moves.iter().chain(&self.expendable)
    }
}

/// The pods of a node that is being drained.
#[derive(Clone, Debug, Default)]
pub struct Evictions {
    /// To be evicted.
    pub evict: Vec<Arc<Pod>>,
    /// On their way out, or to be waited for.
    pub leaving: Vec<Arc<Pod>>,
    /// To be evicted once the others are gone: they are of a later group (`scale_down.drain_priorities`).
    pub later: Vec<Arc<Pod>>,
    /// Pods of DaemonSets that ask to be evicted, last of all.
    pub last: Vec<Arc<Pod>>,
}

impl Evictions {
    /// Puts all but the first group off. `bounds` are the lowest priorities of the second group and of those
    /// after it.
    pub(super) fn in_groups(mut self, bounds: &[i32], priority: impl Fn(&Pod) -> i32) -> Self {
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

    /// How many pods are left.
    pub fn left(&self) -> usize {
        self.evict.len() + self.leaving.len() + self.later.len()
    }
}

/// Why a node cannot be drained.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Blocker {
    pub reason: &'static str,
    pub pod: String,
}

/// Why a pod must stay, in words, and what would let it go.
pub(super) fn rule(reason: &str) -> &'static str {
    match reason {
        "LocalStorageRequested" => {
            "it has local storage; the annotation `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"` on it lets it go"
        }
        "NotSafeToEvictAnnotation" => "an annotation on it says so",
        "NotReplicated" => {
            "no controller would make it again; delete it, or annotate it `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"`"
        }
        "ControllerNotFound" => "its controller is gone, so that nothing would make it again; delete it",
        "UnmovableKubeSystemPod" => {
            "it is in kube-system and no disruption budget covers it; give it one, or set `skip_nodes_with_system_pods = false`"
        }
        SEVERAL => "several disruption budgets select it, and the API server evicts no such pod",
        _ => "the rules of `[scale_down]` keep it",
    }
}

/// What the rules read besides the pod.
pub(super) struct Rules<'a> {
    settings: &'a ScaleDown,
    now: Timestamp,
    controllers: BTreeSet<(&'a str, &'a str, &'a str)>,
}

enum Outcome {
    Skip,
    Finished,
    Move,
    Await,
    Block(&'static str),
}

impl<'a> Rules<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, settings: &'a ScaleDown) -> Self {
        let controllers =
            snapshot.controllers.iter().map(|one| (one.kind.as_str(), &*one.namespace, &*one.name));
        let daemons = snapshot.daemon_sets.iter().map(|one| ("DaemonSet", &*one.namespace, &*one.name));
        Self { settings, now: snapshot.time, controllers: controllers.chain(daemons).collect() }
    }

    /// What draining a node with these pods means.
    pub(super) fn drain(&self, pods: &[&Arc<Pod>], budgets: &Budgets) -> Result<Drain, Blocker> {
        let mut drain = Drain::default();
        for pod in pods {
            match self.judge(pod, budgets) {
                Outcome::Skip | Outcome::Finished => {}
                Outcome::Await => {
                    drain.awaited.get_or_insert_with(|| pod.id());
                }
                Outcome::Move => drain.moves.push((*pod).clone()),
                Outcome::Block(reason) => return Err(Blocker { reason, pod: pod.id() }),
            }
        }
        Ok(drain)
    }

    /// The pods of a node that is being drained, but those that stay until it is gone. A budget without room
    /// no longer blocks anything: it is asked again. Those that stay go all at once, with their machine: what
    /// their budgets have no room for together is waited for.
    pub(super) fn evictions(
        &self,
        pods: &[&Arc<Pod>],
        mut budgets: Budgets,
        stays: impl Fn(&Pod) -> bool,
    ) -> Result<Evictions, Blocker> {
        let mut evictions = Evictions::default();
        for pod in pods {
            match self.judge(pod, &budgets) {
                Outcome::Skip if pod.deletion.is_some() && !overdue(pod, self.now) && !is_daemon(pod) => {
                    evictions.leaving.push((*pod).clone());
                }
                Outcome::Skip if goes_last(pod) && budgets.refusal(pod).is_none() && !stays(pod) => {
                    evictions.last.push((*pod).clone());
                }
                Outcome::Skip => {}
                Outcome::Await => evictions.leaving.push((*pod).clone()),
                // It is being deleted, often with its controller.
                Outcome::Block(_) if pod.deletion.is_some() => evictions.leaving.push((*pod).clone()),
                // Nothing is sent before: the others would have gone for nothing.
                Outcome::Block("NotEnoughPdb") if budgets.several(pod) => {
                    return Err(Blocker { reason: SEVERAL, pod: pod.id() });
                }
                Outcome::Block("NotEnoughPdb") if stays(pod) => evictions.leaving.push((*pod).clone()),
                Outcome::Finished | Outcome::Move if stays(pod) => budgets.take(std::iter::once(*pod)),
                Outcome::Finished | Outcome::Move | Outcome::Block("NotEnoughPdb") => {
                    evictions.evict.push((*pod).clone());
                }
                Outcome::Block(reason) => return Err(Blocker { reason, pod: pod.id() }),
            }
        }
        Ok(evictions)
    }

    fn judge(&self, pod: &Pod, budgets: &Budgets) -> Outcome {
        if is_mirror(pod) || overdue(pod, self.now) {
            return Outcome::Skip;
        }
        let strict = self.settings.skip_nodes_with_custom_controller_pods;
        if strict && pod.owner.as_ref().is_some_and(|owner| self.missing(&pod.namespace, owner)) {
            return Outcome::Block("ControllerNotFound");
        }
        if is_daemon(pod) {
            return Outcome::Skip;
        }
        let safe = annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict");
        // Whatever their restart policy: kube-scheduler counts finished pods nowhere.
        let finished = matches!(pod.phase, PodPhase::Failed | PodPhase::Succeeded);
        if safe != Some("true") {
            if finished {
                return Outcome::Finished;
            }
            if safe == Some("on-completion") {
                return Outcome::Await;
            }
            if let Some(reason) = self.held(pod, safe, strict, budgets) {
                return Outcome::Block(reason);
            }
        }
        if pod.deletion.is_some() {
            // It ends by itself and is made again elsewhere already.
            return Outcome::Skip;
        }
        match budgets.refusal(pod) {
            Some(reason) => Outcome::Block(reason),
            None => Outcome::Move,
        }
    }

    /// The rules that `safe-to-evict: "true"` switches off.
    fn held(&self, pod: &Pod, safe: Option<&str>, strict: bool, budgets: &Budgets) -> Option<&'static str> {
        let replicated = pod.owner.as_ref().is_some_and(|owner| {
            !strict
                || ["ReplicationController", "Job", "ReplicaSet", "StatefulSet"]
                    .contains(&owner.kind.as_str())
        });
        if !replicated {
            return Some("NotReplicated");
        }
        let young = pod
            .created
            .is_none_or(|created| self.now.duration_since(created) < SignedDuration::from_hours(1));
        if self.settings.skip_nodes_with_system_pods
            && pod.namespace == "kube-system"
            && young
            && !budgets.covers(pod)
        {
            return Some("UnmovableKubeSystemPod");
        }
        if safe == Some("false") || is_kept(pod, self.now) {
            return Some("NotSafeToEvictAnnotation");
        }
        if self.settings.skip_nodes_with_local_storage && has_local_storage(pod) {
            return Some("LocalStorageRequested");
        }
        None
    }

    /// Whether the controller should exist and does not. Kinds of other API groups are not looked for.
    fn missing(&self, namespace: &str, owner: &Owner) -> bool {
        let apps = owner.api_version.starts_with("apps/");
        let known = match owner.kind.as_str() {
            "ReplicationController" | "ReplicaSet" | "Job" => true,
            "StatefulSet" | "DaemonSet" => apps,
            _ => false,
        };
        known && !self.controllers.contains(&(owner.kind.as_str(), namespace, owner.name.as_str()))
    }
}

/// The PersistentVolumes of the pods on a node that no drain takes away: those of DaemonSets, and static
/// ones.
pub fn volumes_that_stay(snapshot: &Snapshot, node: &str) -> BTreeSet<String> {
    let here = snapshot.pods.iter().filter(|pod| pod.node.as_deref() == Some(node));
    let claims: BTreeSet<(&str, &str)> = here
        .filter(|pod| (is_daemon(pod) || is_mirror(pod)) && !pod.is_finished())
        .flat_map(|pod| pod.volumes.iter().map(|volume| (&*pod.namespace, &volume.source)))
        .filter_map(|(namespace, source)| match source {
            VolumeSource::Claim { name, .. } => Some((namespace, name.as_str())),
            _ => None,
        })
        .collect();
    let of_them = snapshot.claims.iter().filter(|one| claims.contains(&(&*one.namespace, one.name.as_str())));
    of_them.filter_map(|claim| claim.volume.clone()).collect()
}

/// Whether a DaemonSet's pod is to be evicted, too, once the others are gone. One that is on its way out is
/// not waited for, and in the place of one that tolerates all taints the next would come at once.
fn goes_last(pod: &Pod) -> bool {
    let asks = annotation(pod, "cluster-autoscaler.kubernetes.io/enable-ds-eviction") == Some("true");
    let tolerates_all = || pod.tolerations.iter().any(|one| one.exists && one.key.is_empty());
    let here = !is_mirror(pod) && !pod.is_finished() && pod.deletion.is_none();
    asks && is_daemon(pod) && here && !tolerates_all()
}

fn annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.annotations.get(key).map(String::as_str)
}

/// hostPath, or emptyDir on disk, that no annotation declares to be safe. Names are compared exactly.
fn has_local_storage(pod: &Pod) -> bool {
    let safe =
        annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes").unwrap_or_default();
    pod.volumes.iter().any(|volume| {
        let local =
            matches!(volume.source, VolumeSource::HostPath | VolumeSource::EmptyDir { memory: false });
        local && !safe.split(',').any(|name| !name.is_empty() && name == volume.name)
    })
}
