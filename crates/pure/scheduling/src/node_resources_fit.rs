//! NodeResourcesFit: the node must have enough free resources for the pod's requests (`fitsRequest`).

use super::refusal::Refusal;
use model::resources::Resources;

/// Checks the node's free resources. `served` returns whether devices can be allocated for an extended
/// resource that the node itself does not offer.
pub(super) fn check(
    wanted: &Resources,
    allocatable: &Resources,
    used: &Resources,
    served: &dyn Fn(&str) -> bool,
) -> Result<(), Refusal> {
    if used.pods + 1 > allocatable.pods {
        return Err(Refusal::Pods { most: allocatable.pods });
    }
    let lacks = |wanted: i64, allocatable: i64, used: i64| wanted > 0 && wanted > allocatable - used;
    if lacks(wanted.cpu_milli, allocatable.cpu_milli, used.cpu_milli) {
        return Err(Refusal::Cpu(wanted.cpu_milli, (allocatable.cpu_milli - used.cpu_milli).max(0)));
    }
    if lacks(wanted.memory, allocatable.memory, used.memory) {
        return Err(Refusal::Memory(wanted.memory, (allocatable.memory - used.memory).max(0)));
    }
    if lacks(wanted.ephemeral_storage, allocatable.ephemeral_storage, used.ephemeral_storage) {
        let free = (allocatable.ephemeral_storage - used.ephemeral_storage).max(0);
        return Err(Refusal::EphemeralStorage(wanted.ephemeral_storage, free));
    }
    for (name, amount) in &wanted.other {
        let of = |list: &Resources| list.other.get(name).copied().unwrap_or(0);
        if lacks(*amount, of(allocatable), of(used)) && !(of(allocatable) == 0 && served(name)) {
            return Err(Refusal::Extended(name.clone(), *amount, (of(allocatable) - of(used)).max(0)));
        }
    }
    Ok(())
}
