//! Digests: values derived from a pod that every decision needs. They are computed once for each pod, not in
//! each round.
//!
//! Once a pod is in an `Arc`, it does not change. Its digest is computed when the pod arrives, or when the
//! digest is first needed. A clone starts without a digest, because pods are cloned only to be modified.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

use super::devices::PodClaim;
use super::pod::{Pod, Scheduling, Volume};
use super::pod_spec::PodSpec;

/// A hash that identifies data: the first 128 bits of the SHA-256 hash.
///
/// The order of fingerprints has no meaning, and may differ between releases of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u64; 2]);

/// The values derived from one pod, stored compactly because every decision needs them.
#[derive(Clone, Debug)]
pub struct Digest {
    /// `namespace/name`.
    pub id: Box<str>,
    /// A fingerprint that is equal for pods that kube-scheduler's filters treat alike, regardless of their
    /// names and nodes.
    pub class: Fingerprint,
    /// A fingerprint that is equal for pods that the affinity, anti-affinity and topology spread of other
    /// pods cannot tell apart.
    pub seen_as: Fingerprint,
    /// The pod's requirements on other pods (affinity, anti-affinity and topology spread), if any.
    looks: Option<Arc<Looks>>,
    /// The position of `/` in the id, or `FAR` if the position does not fit in a `u8`.
    slash: u8,
    /// Whether certain facts are true of the pod.
    pub marks: Marks,
}

/// Whether certain facts are true of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Whether the pod has no node, and is neither finished nor being deleted.
    pub waits: bool,
    /// Whether the pod has the annotation [`DELAY`].
    pub delayed: bool,
    /// Whether a scheduling gate holds the pod back.
    pub gated: bool,
    /// Whether a node is nominated for the pod, usually because preemption makes room on that node.
    pub nominated: bool,
    /// Whether the pod belongs to a DaemonSet, or is annotated to be treated as if it did.
    pub daemon: bool,
    /// Whether the pod is a mirror pod, which represents a static pod in the API.
    pub mirror: bool,
    /// Whether the pod has annotations that decisions read.
    pub annotated: bool,
}

/// The part of the digest that pods with the same spec share.
#[derive(Clone, Debug)]
pub struct SpecDigest {
    /// [`Digest::class`] of a pod that is not a chunk ([`Pod::chunk`]).
    pub class: Fingerprint,
    /// [`Digest::seen_as`] of a pod that is not being deleted.
    seen_as: Fingerprint,
    looks: Option<Arc<Looks>>,
    delayed: bool,
    daemon: bool,
    mirror: bool,
    annotated: bool,
    /// Whether volumes decide where the pod can run.
    pub has_volumes: bool,
}

/// A pod's requirements on other pods: affinity, anti-affinity and topology spread. They are stored outside
/// the digest, because few pods have any and the digest should fit in a cache line.
#[derive(Clone, Debug)]
pub struct Looks {
    /// A fingerprint that is equal for pods with the same affinity and anti-affinity. `None` if the pod has
    /// neither.
    pub asks: Option<Fingerprint>,
    /// A fingerprint that is equal for pods that must be spread in the same way over the same nodes. `None`
    /// if the pod need not be spread.
    pub spread_as: Option<Fingerprint>,
}

/// Stands for a position of `/` that does not fit in a `u8`. This does not occur in practice: the API allows
/// only shorter namespace names.
const FAR: u8 = u8::MAX;

/// A pod annotation. Its value is the age that the pod must reach before a machine is created for it.
pub const DELAY: &str = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay";

/// A cache for values computed from a pod or its spec. Comparisons ignore it: any two caches are equal.
pub struct Memo<T>(OnceLock<T>);

impl<T> Memo<T> {
    /// Returns the cached value. Computes it first if the cache is empty.
    #[inline]
    pub fn get_or_init(&self, work_out: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(work_out)
    }
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Clone for Memo<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Memo<T> {}

impl<T> fmt::Debug for Memo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Pod {
    /// Returns the pod's digest. Do not change the pod after the first call; change a clone instead.
    #[inline]
    pub fn digest(&self) -> &Digest {
        self.memo.get_or_init(|| Digest::of(self))
    }

    /// Returns the pod's requirements on other pods (affinity, anti-affinity and topology spread), if any. As
    /// with [`Pod::digest`], do not change the pod after the first call.
    #[inline]
    pub fn looks(&self) -> Option<&Looks> {
        self.digest().looks.as_deref()
    }
}

impl Digest {
    fn of(pod: &Pod) -> Self {
        let spec = pod.spec.digest();
        let leaves = pod.deletion.is_some();
        Self {
            id: pod.id().into_boxed_str(),
            slash: u8::try_from(pod.namespace.len()).unwrap_or(FAR),
            class: if pod.chunk { class(&pod.spec, pod.chunk) } else { spec.class },
            seen_as: if leaves { seen_as(&pod.spec, leaves) } else { spec.seen_as },
            looks: spec.looks.clone(),
            marks: Marks {
                waits: pod.node.is_none() && !leaves && !pod.is_finished(),
                gated: pod.scheduling == Scheduling::Gated,
                nominated: pod.nominated_node.is_some(),
                delayed: spec.delayed,
                daemon: spec.daemon,
                mirror: spec.mirror,
                annotated: spec.annotated,
            },
        }
    }

    /// Compares by namespace, then by name.
    #[inline]
    pub fn compare(&self, other: &Self) -> Ordering {
        let (a, b) = (self.id.as_bytes(), other.id.as_bytes());
        // If the namespaces are equally long, comparing the whole ids has the same result as comparing their
        // parts.
        let same = self.slash == other.slash && self.slash != FAR;
        if same { a.cmp(b) } else { self.parts().cmp(&other.parts()) }
    }

    fn parts(&self) -> (&str, &str) {
        let slash = if self.slash == FAR { self.id.find('/') } else { Some(usize::from(self.slash)) };
        self.id.split_at(slash.unwrap_or(0))
    }
}

impl SpecDigest {
    pub(super) fn of(spec: &PodSpec) -> Self {
        let marked = spec.annotations.get("cluster-autoscaler.kubernetes.io/daemonset-pod");
        Self {
            class: class(spec, false),
            seen_as: seen_as(spec, false),
            looks: Looks::of(spec).map(Arc::new),
            delayed: spec.annotations.contains_key(DELAY),
            daemon: spec.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
                || marked.is_some_and(|value| value == "true"),
            mirror: spec.annotations.contains_key("kubernetes.io/config.mirror"),
            annotated: !spec.annotations.is_empty(),
            has_volumes: spec.volumes.iter().any(Volume::decides_place),
        }
    }
}

/// A fingerprint of the pod properties that the affinity, anti-affinity and topology spread rules of other
/// pods depend on.
fn seen_as(spec: &PodSpec, leaves: bool) -> Fingerprint {
    Fingerprint::of(&(&spec.namespace, &spec.labels, &spec.affinity.anti, leaves))
}

/// A fingerprint of all pod properties that scheduling reads. Volume names are left out, because the volume
/// that contains a pod's token has a different name in each pod.
fn class(pod: &PodSpec, chunk: bool) -> Fingerprint {
    let volumes: Vec<_> =
        pod.volumes.iter().filter(|volume| volume.decides_place()).map(|volume| &volume.source).collect();
    let claims: Vec<_> = pod.resource_claims.iter().map(PodClaim::kind).collect();
    let all = (
        (&pod.requests, &pod.namespace, pod.priority, &pod.priority_class),
        (pod.never_preempts, chunk.then_some(&pod.owner), pod.features, claims, &pod.extended),
        &pod.labels,
        (&pod.node_selector, &pod.affinity, &pod.tolerations),
        (&pod.spread, &pod.host_ports),
        volumes,
    );
    match &pod.scheduling_group {
        None => Fingerprint::of(&all),
        Some(group) => Fingerprint::of(&(all, group)),
    }
}

impl Looks {
    fn of(pod: &PodSpec) -> Option<Self> {
        let (affinity, anti) = (&pod.affinity.pods, &pod.affinity.anti);
        let hard: Vec<_> = pod.spread.iter().filter(|one| one.hard).collect();
        let asks = !affinity.is_empty() || !anti.is_empty();
        if !asks && hard.is_empty() {
            return None;
        }
        let keys = hard.iter().flat_map(|one| &one.match_label_keys);
        let values: Vec<_> = keys.map(|key| pod.labels.get(key)).collect();
        let nodes = (&pod.node_selector, &pod.affinity.node, &pod.tolerations);
        Some(Self {
            asks: asks.then(|| Fingerprint::of(&(&pod.namespace, affinity, anti))),
            spread_as: (!hard.is_empty()).then(|| Fingerprint::of(&(&pod.namespace, &hard, values, nodes))),
        })
    }
}

impl Fingerprint {
    /// Returns the first half of the fingerprint, which tables use as a hash. Different fingerprints almost
    /// never have the same first half.
    pub fn part(self) -> u64 {
        self.0[0]
    }

    fn of(what: &impl Hash) -> Self {
        let mut text = Text(Vec::with_capacity(512));
        what.hash(&mut text);
        let digest = Sha256::digest(&text.0);
        let (halves, _) = digest[..16].as_chunks::<8>();
        let mut numbers = [0; 2];
        for (number, half) in numbers.iter_mut().zip(halves) {
            *number = u64::from_le_bytes(*half);
        }
        Self(numbers)
    }
}

/// Collects the bytes to hash, including the lengths and terminators that separate adjacent values.
struct Text(Vec<u8>);

impl Hasher for Text {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{Volume, VolumeSource};

    fn alike(a: &Pod, b: &Pod) -> bool {
        a.digest().class == b.digest().class
    }

    fn with_volume(name: &str, source: VolumeSource) -> Pod {
        let mut pod = Pod::default();
        pod.volumes.push(Volume { name: name.to_owned(), source });
        pod
    }

    #[test]
    fn a_volume_that_goes_wherever_the_pod_goes_sets_no_pod_apart() {
        let one = with_volume("scratch-x7k2p", VolumeSource::HostPath);
        assert!(alike(&one, &with_volume("scratch-9qhzl", VolumeSource::HostPath)));
        assert!(alike(&one, &Pod::default()));
    }

    #[test]
    fn a_claim_sets_pods_apart() {
        let claim =
            |name: &str| VolumeSource::Claim { name: name.to_owned(), ephemeral: false, read_only: false };
        let one = with_volume("data", claim("data-0"));
        assert!(!alike(&one, &with_volume("data", claim("data-1"))));
        assert!(alike(&one, &with_volume("other-name", claim("data-0"))));
    }

    #[test]
    fn what_moves_from_one_field_to_the_next_sets_pods_apart() {
        let named = |namespace: &str, class: &str| {
            let (namespace, priority_class) = (namespace.to_owned(), class.to_owned());
            let spec = PodSpec { namespace, priority_class, ..PodSpec::default() };
            Pod { spec: spec.into(), ..Pod::default() }
        };
        assert!(!alike(&named("ab", "c"), &named("a", "bc")));
        let labelled = |key: &str, value: &str| {
            let mut pod = Pod::default();
            pod.labels.insert(key.to_owned(), value.to_owned());
            pod
        };
        assert!(!alike(&labelled("ab", "c"), &labelled("a", "bc")));
        let mut selecting = Pod::default();
        selecting.node_selector.insert("a".to_owned(), "b".to_owned());
        assert!(!alike(&labelled("a", "b"), &selecting));
    }

    #[test]
    fn a_digest_fits_a_line_of_the_cache() {
        assert!(size_of::<Digest>() <= 64, "{}", size_of::<Digest>());
    }

    #[test]
    fn a_changed_clone_has_a_digest_of_its_own() {
        let pod = Pod { name: "a".to_owned(), ..Pod::default() };
        assert_eq!(&*pod.digest().id, "/a");
        let other = Pod { name: "b".to_owned(), ..pod.clone() };
        assert_eq!(&*other.digest().id, "/b");
        let placed = Pod { node: Some("n".to_owned()), ..pod.clone() };
        assert!(pod.digest().marks.waits && !placed.digest().marks.waits);
        assert_eq!((placed.digest().class, &placed), (pod.digest().class, &placed.clone()));
    }

    #[test]
    fn namespaces_are_compared_before_names() {
        let pod = |namespace: &str, name: &str| {
            let mut pod = Pod { name: name.to_owned(), ..Pod::default() };
            pod.namespace = namespace.to_owned();
            pod
        };
        let far = "c".repeat(300);
        let ordered =
            [pod("a", "z"), pod("a", "zz"), pod("a-b", "a"), pod("b-b", "a"), pod(&far, "a"), pod(&far, "b")];
        for (number, one) in ordered.iter().enumerate() {
            for (other_number, other) in ordered.iter().enumerate() {
                assert_eq!(one.digest().compare(other.digest()), number.cmp(&other_number));
            }
        }
    }
}
