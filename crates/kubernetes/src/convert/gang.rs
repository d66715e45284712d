//! PodGroups.

use k8s_openapi::api::scheduling::v1beta1 as scheduling;

use super::{ConvertError, text, time};
use model::gang::PodGroup;

/// A PodGroup.
pub fn pod_group(object: &scheduling::PodGroup) -> Result<PodGroup, ConvertError> {
    let (meta, spec) = (&object.metadata, &object.spec);
    let topology = spec.scheduling_constraints.iter().flat_map(|one| one.topology.iter().flatten()).next();
    Ok(PodGroup {
        namespace: meta.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        name: text(meta.name.as_ref()),
        created: time(meta.creation_timestamp.as_ref()),
        minimum: spec.scheduling_policy.gang.as_ref().map(|gang| i64::from(gang.min_count)),
        priority: spec.priority,
        never_preempts: spec.preemption_policy.as_deref().map(|policy| policy == "Never"),
        topology: topology.map(|one| one.key.clone()),
        parent: spec.parent_composite_pod_group_name.clone(),
        shares_claims: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
    })
}
