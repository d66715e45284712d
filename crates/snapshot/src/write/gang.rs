//! PodGroups.

use serde_json::Value;

use super::fields::Fields;
use model::gang::PodGroup;

/// A PodGroup. If its pods share claims, one claim named `shared` stands for all of them.
pub(super) fn pod_group(group: &PodGroup) -> Value {
    let metadata = Fields::named(&group.namespace, &group.name).time("creationTimestamp", group.created);
    let policy = match group.minimum {
        Some(minimum) => Fields::default().with("gang", Fields::default().with("minCount", minimum)),
        None => Fields::default().with("basic", Fields::default()),
    };
    let topology = group.topology.iter().map(|key| Fields::default().with("key", key.as_str()));
    let claims = group.shares_claims.then(|| Fields::default().with("name", "shared"));
    let spec = Fields::default()
        .with("schedulingPolicy", policy)
        .some("priority", group.priority)
        .some("preemptionPolicy", group.never_preempts.map(in_words))
        .some("parentCompositePodGroupName", group.parent.as_deref())
        .part("schedulingConstraints", Fields::default().list("topology", topology))
        .list("resourceClaims", claims);
    Fields::object("scheduling.k8s.io/v1beta1", "PodGroup")
        .part("metadata", metadata)
        .part("spec", spec)
        .into()
}

fn in_words(never_preempts: bool) -> &'static str {
    if never_preempts { "Never" } else { "PreemptLowerPriority" }
}
