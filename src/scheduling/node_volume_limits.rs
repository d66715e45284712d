//! NodeVolumeLimits: how many CSI volumes of a driver a node takes (CSINode's `allocatable.count`).

use std::collections::{BTreeMap, BTreeSet};

use super::refusal::Refusal;
use super::volume_restrictions::{claims, missing};
use super::world::Volumes;
use crate::model::pod::Pod;

/// Driver and what identifies the volume in it.
type Attached = BTreeSet<(String, String)>;

pub(super) fn check<'a>(
    pod: &Pod,
    node: &str,
    others: impl Iterator<Item = &'a Pod>,
    volumes: &Volumes,
) -> Result<(), Refusal> {
    if missing(pod, volumes, true) {
        return Err(Refusal::ClaimMissing { ephemeral: true });
    }
    let Some(limits) = volumes.csi_nodes.get(node).map(|csi| &csi.limits).filter(|limits| !limits.is_empty())
    else {
        return Ok(());
    };
    let mut wanted = Attached::new();
    collect(pod, volumes, &mut wanted);
    if wanted.is_empty() {
        return Ok(());
    }
    let mut attached = Attached::new();
    for other in others {
        collect(other, volumes, &mut attached);
    }
    for attachment in volumes.attachments.iter().filter(|one| one.node == node) {
        let volume = attachment.volume.as_ref().and_then(|name| volumes.persistent.get(name));
        if let Some(csi) = volume.and_then(|volume| volume.csi.clone()) {
            attached.insert(csi);
        }
    }
    let mut more: BTreeMap<&str, i64> = BTreeMap::new();
    for (driver, _) in wanted.difference(&attached) {
        *more.entry(driver).or_default() += 1;
    }
    for (driver, count) in more {
        let present = attached.iter().filter(|(one, _)| one == driver).count();
        let present = i64::try_from(present).unwrap_or(i64::MAX);
        if let Some(Some(limit)) = limits.get(driver)
            && present + count > *limit
        {
            return Err(Refusal::VolumeLimit);
        }
    }
    Ok(())
}

/// The CSI volumes of a pod: bound ones by their handle, unbound ones by the claim, with the class's provisioner.
fn collect(pod: &Pod, volumes: &Volumes, into: &mut Attached) {
    for name in claims(pod) {
        let key = (pod.namespace.clone(), name.to_owned());
        let Some(claim) = volumes.claims.get(&key) else { continue };
        if let Some(Some(volume)) = claim.volume.as_ref().map(|name| volumes.persistent.get(name)) {
            into.extend(volume.csi.clone());
        } else {
            let class = claim.class.as_ref().and_then(|class| volumes.classes.get(class));
            into.extend(class.map(|class| (class.provisioner.clone(), format!("{}/{}", key.0, key.1))));
        }
    }
}
