//! The fields that similar pods have in common, stored once for all of them.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::devices::{ExtendedRequest, PodClaim};
use super::digest::{Fingerprint, Memo, SpecDigest};
use super::features::Features;
use super::pod::{Affinity, HostPort, Owner, Pod, SpreadConstraint, Toleration, Volume};
use super::resources::Resources;
use super::selector::Labels;

/// The fields that the pods of a controller have in common: most of their metadata and of their `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSpec {
    /// `metadata.namespace`.
    pub namespace: String,
    /// Labels.
    pub labels: Labels,
    /// The annotations that decisions read (see `model::snapshot::KNOWN_ANNOTATIONS`). Others are dropped.
    pub annotations: Labels,
    /// The controller.
    pub owner: Option<Owner>,
    /// `spec.schedulingGroup.podGroupName`: the PodGroup that the pod belongs to, in the pod's namespace.
    pub scheduling_group: Option<String>,
    /// `spec.schedulerName`, `default-scheduler` if absent.
    pub scheduler: String,
    /// `spec.priority`, `None` if absent.
    pub priority: Option<i32>,
    /// `spec.priorityClassName`, empty if absent.
    pub priority_class: String,
    /// `spec.preemptionPolicy: Never`.
    pub never_preempts: bool,
    /// The total requests of the pod, as kube-scheduler computes them (with init containers, sidecars,
    /// pod-level resources, overhead and resizes). `pods` is 1.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// `spec.affinity`.
    pub affinity: Affinity,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologySpreadConstraints`.
    pub spread: Vec<SpreadConstraint>,
    /// The host ports of the containers. With `hostNetwork`, every container port is a host port.
    pub host_ports: Vec<HostPort>,
    /// `spec.volumes`.
    pub volumes: Vec<Volume>,
    /// The kubelet features that the pod needs.
    pub features: Features,
    /// `spec.resourceClaims`.
    pub resource_claims: Vec<PodClaim>,
    /// The requests for extended resources that several of the pod's containers need, with one entry for each
    /// container. If only one container requests a resource, that request is only in `requests`.
    pub extended: Vec<ExtendedRequest>,
    /// `spec.restartPolicy: Always` (the default).
    pub restarts_always: bool,
    /// `spec.terminationGracePeriodSeconds`, 30 if absent.
    pub grace_seconds: i64,
    /// Computed values, the same for all pods with this spec.
    #[serde(skip)]
    pub memo: Memo<SpecDigest>,
}

impl PodSpec {
    /// Returns the computed values that decisions need. Do not change the spec after the first call.
    pub fn digest(&self) -> &SpecDigest {
        self.memo.get_or_init(|| SpecDigest::of(self))
    }
}

impl Deref for Pod {
    type Target = PodSpec;

    fn deref(&self) -> &PodSpec {
        &self.spec
    }
}

/// Mutable access gives the pod its own copy of the spec, and discards the computed values.
impl DerefMut for Pod {
    fn deref_mut(&mut self) -> &mut PodSpec {
        self.memo = Memo::default();
        let spec = Arc::make_mut(&mut self.spec);
        spec.memo = Memo::default();
        spec
    }
}

/// All known specs. Pods with equal specs share one of them: tens of thousands of pods may have only a few
/// hundred different specs.
#[derive(Debug, Default)]
pub struct Specs {
    known: BTreeMap<Key, Weak<PodSpec>>,
    /// If there are more specs than this limit, those that no pod uses are removed. The limit is then set to
    /// twice the number of specs that are left.
    full: usize,
}

/// A fingerprint of the fields that filters read, and the uid of the controller.
type Key = (Fingerprint, String);

impl Specs {
    /// The minimum limit. While there are at most this many specs, unused ones are not removed.
    const FEW: usize = 256;

    /// Makes a pod share the spec of an earlier pod, if the specs are equal.
    pub fn share(&mut self, pod: &mut Pod) {
        let key =
            (pod.spec.digest().class, pod.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default());
        let known = self.known.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| **known == *pod.spec) {
            pod.spec = known;
            return;
        }
        self.known.insert(key, Arc::downgrade(&pod.spec));
        self.sweep();
    }

    fn sweep(&mut self) {
        if self.known.len() <= self.full.max(Self::FEW) {
            return;
        }
        self.known.retain(|_, spec| spec.strong_count() > 0);
        self.full = self.known.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: usize, app: &str, owner: &str) -> Pod {
        let mut pod = Pod { name: name.to_string(), ..Pod::default() };
        pod.labels.insert("app".to_owned(), app.to_owned());
        let (api_version, kind) = ("apps/v1".to_owned(), "ReplicaSet".to_owned());
        pod.owner = Some(Owner { api_version, kind, name: owner.to_owned(), uid: owner.to_owned() });
        pod
    }

    #[test]
    fn equal_specs_are_kept_once() {
        let mut specs = Specs::default();
        let mut all = [pod(0, "a", "x"), pod(1, "a", "x"), pod(2, "b", "x"), pod(3, "a", "y")];
        let before = all.clone();
        for pod in &mut all {
            specs.share(pod);
        }
        assert_eq!(all, before, "the pods are unchanged");
        assert!(Arc::ptr_eq(&all[0].spec, &all[1].spec));
        assert!(!Arc::ptr_eq(&all[0].spec, &all[2].spec), "other labels");
        assert!(!Arc::ptr_eq(&all[0].spec, &all[3].spec), "another controller");
    }

    #[test]
    fn a_change_is_the_pods_own() {
        let mut specs = Specs::default();
        let (mut one, mut other) = (pod(0, "a", "x"), pod(1, "a", "x"));
        specs.share(&mut one);
        specs.share(&mut other);
        let before = one.digest().class;
        other.labels.insert("app".to_owned(), "c".to_owned());
        assert_eq!(one.labels["app"], "a");
        assert_ne!(other.digest().class, before);
        drop(other);
        one.labels.insert("app".to_owned(), "c".to_owned());
        assert_ne!(one.digest().class, before, "computed again, although no other pod shares the spec");
    }

    #[test]
    fn specs_without_pods_are_forgotten() {
        let mut specs = Specs::default();
        for number in 0..10_000 {
            specs.share(&mut pod(number, &number.to_string(), "x"));
        }
        assert!(specs.known.len() <= Specs::FEW + 1, "{}", specs.known.len());
    }
}
