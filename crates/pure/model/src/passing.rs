//! Temporary taints: a node starts with them, and another component removes them once the node is ready for
//! pods.
//!
//! Taints with certain keys are always temporary, as in Cluster Autoscaler and Karpenter. A pool can list
//! other temporary taints in `startup_taints`, either individually or by the domain of their keys.

use super::node::{Taint, TaintEffect};
use super::snapshot::STARTING_TAINT;

/// The keys of taints that are always temporary.
const KEYS: [&str; 5] = [
    STARTING_TAINT,
    // The node lifecycle controller keeps these two taints on a node until the kubelet is up and the
    // network has routes.
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    // A kubelet with `--cloud-provider=external` sets this taint, and the cloud controller manager removes
    // it.
    "node.cloudprovider.kubernetes.io/uninitialized",
    // Cilium's agent or operator removes this taint (the default of `agent-not-ready-taint-key`).
    "node.cilium.io/agent-not-ready",
];

/// The key prefixes of taints that are always temporary.
const PREFIXES: [&str; 3] = [
    // The node readiness controller sets and removes these taints.
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
];

/// All taints whose keys have the same domain, for example `example.com/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintDomain {
    /// The prefix of the taints' keys, including the `/`.
    pub prefix: String,
    /// The effect of the taints. `None` means any effect.
    pub effect: Option<TaintEffect>,
}

impl TaintDomain {
    /// Whether the taint's key is in this domain and its effect matches. If the domain specifies no effect,
    /// every effect matches.
    pub fn holds(&self, taint: &Taint) -> bool {
        taint.key.starts_with(&self.prefix) && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

/// Whether a taint with this key is always temporary, even if no pool lists it.
pub fn passes_by_itself(key: &str) -> bool {
    KEYS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_pass_are_known_exactly_and_domains_by_their_beginning() {
        for (key, passes) in [
            ("node.cloudprovider.kubernetes.io/uninitialized", true),
            ("node.cloudprovider.kubernetes.io/shutdown", false),
            ("node.kubernetes.io/network-unavailable", true),
            ("node.kubernetes.io/unreachable", false),
            ("node.kubernetes.io/disk-pressure", false),
            ("readiness.k8s.io/cni", true),
            ("readiness.k8s.io", false),
            ("startup-taint.cluster-autoscaler.kubernetes.io/a", true),
            ("ignore-taint.cluster-autoscaler.kubernetes.io/a", true),
            ("status-taint.cluster-autoscaler.kubernetes.io/a", false),
            ("node.cilium.io/agent-not-ready", true),
            ("example.com/agent-not-ready", false),
        ] {
            assert_eq!(passes_by_itself(key), passes, "{key}");
        }
    }

    #[test]
    fn a_domain_holds_its_own_keys_of_its_effect() {
        let taint =
            |key: &str, effect| Taint { key: key.to_owned(), value: String::new(), effect, time_added: None };
        let any = TaintDomain { prefix: "example.com/".to_owned(), effect: None };
        let one = TaintDomain { effect: Some(TaintEffect::NoExecute), ..any.clone() };
        assert!(any.holds(&taint("example.com/a", TaintEffect::NoSchedule)));
        assert!(!any.holds(&taint("sub.example.com/a", TaintEffect::NoSchedule)));
        assert!(one.holds(&taint("example.com/a", TaintEffect::NoExecute)));
        assert!(!one.holds(&taint("example.com/a", TaintEffect::NoSchedule)));
    }
}
