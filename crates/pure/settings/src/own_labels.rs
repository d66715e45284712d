//! The labels that a kubelet may set on its own Node, and the taint that the Node starts with.

use model::node::{Taint, TaintEffect};
use model::snapshot::STARTING_TAINT;

/// Domains in which a kubelet may set any label itself (NodeRestriction). It may set no other labels in
/// `kubernetes.io` and `k8s.io`, except for [`OWN_LABELS`].
const OWN_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Individual labels in `kubernetes.io` that a kubelet may set itself.
const OWN_LABELS: [&str; 9] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Returns the taint with which a node starts. It keeps pods away until the daemon has checked the Node's
/// labels and taints.
pub fn starting_taint() -> Taint {
    Taint {
        key: STARTING_TAINT.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
        time_added: None,
    }
}

/// Whether a kubelet may set this label on its own Node. The daemon sets all other labels through the API
/// once the Node exists.
pub fn may_set_itself(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return true };
    let below = |domain: &str| {
        prefix == domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if !below("kubernetes.io") && !below("k8s.io") {
        return true;
    }
    OWN_LABELS.contains(&key) || OWN_PREFIXES.iter().any(|own| below(own))
}

/// A taint in the form in which it is passed to a kubelet: `key=value:Effect`.
pub fn taint_text(taint: &Taint) -> String {
    let effect = match taint.effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    };
    format!("{}={}:{effect}", taint.key, taint.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_gives_itself_only_the_labels_that_it_may() {
        let cases = [
            ("pool", true),
            ("pve-autoscaler/pool", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/anything", true),
            ("custom.node.kubernetes.io/x", true),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/x", false),
            ("mykubernetes.io/x", true),
            ("x.k8s.io/y", false),
        ];
        for (key, may) in cases {
            assert_eq!(may_set_itself(key), may, "{key}");
        }
    }
}
