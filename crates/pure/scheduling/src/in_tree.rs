//! In-tree disks that CSI drivers handle in place of Kubernetes' own code (`k8s.io/csi-translation-lib`): the
//! driver that handles a disk, the handle of its volume, and the nodes that can use it.

use std::collections::BTreeSet;

use model::selector::{Labels, NodeSelector, NodeSelectorTerm, Operator, Requirement};
use model::storage::{InTreeDisk, InTreeKind};
use model::workload::PersistentVolume;

const ZONE: (&str, &str) = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
const REGION: (&str, &str) = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");

/// The error for an in-tree disk that cannot be described as a CSI volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Untranslatable;

/// The CSI driver that handles disks of this kind.
pub(super) fn driver(kind: InTreeKind) -> &'static str {
    match kind {
        InTreeKind::AwsElasticBlockStore => "ebs.csi.aws.com",
        InTreeKind::AzureDisk => "disk.csi.azure.com",
        InTreeKind::Cinder => "cinder.csi.openstack.org",
        InTreeKind::GcePersistentDisk => "pd.csi.storage.gke.io",
        InTreeKind::PortworxVolume => "pxd.portworx.com",
    }
}

/// The name of the in-tree plugin for disks of this kind, as used in StorageClasses and CSINodes.
pub(super) fn plugin(kind: InTreeKind) -> &'static str {
    match kind {
        InTreeKind::AwsElasticBlockStore => "kubernetes.io/aws-ebs",
        InTreeKind::AzureDisk => "kubernetes.io/azure-disk",
        InTreeKind::Cinder => "kubernetes.io/cinder",
        InTreeKind::GcePersistentDisk => "kubernetes.io/gce-pd",
        InTreeKind::PortworxVolume => "kubernetes.io/portworx-volume",
    }
}

/// The driver that creates the volumes of a StorageClass with this provisioner, and whether the driver
/// replaces an in-tree plugin. `None` if the volumes count against no limit.
pub(super) fn provisioned_by(provisioner: &str) -> Option<(&str, bool)> {
    if let Some(kind) = InTreeKind::ALL.into_iter().find(|kind| plugin(*kind) == provisioner) {
        return Some((driver(kind), true));
    }
    // Azure File and vSphere volumes have CSI drivers too, but kube-scheduler does not count these volumes.
    let uncounted = ["", "kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"].contains(&provisioner);
    (!uncounted).then_some((provisioner, false))
}

/// The volume handle of a disk that a pod names directly.
pub(super) fn handle_in_pod(disk: &InTreeDisk) -> Result<String, Untranslatable> {
    match disk.kind {
        InTreeKind::GcePersistentDisk => Ok(google_disk("zones/UNSPECIFIED", &disk.identity)),
        _ => handle(disk, &Labels::new()),
    }
}

/// The volume handle of a PersistentVolume's disk. `labels` are the labels of the PersistentVolume.
pub(super) fn handle(disk: &InTreeDisk, labels: &Labels) -> Result<String, Untranslatable> {
    match disk.kind {
        InTreeKind::AwsElasticBlockStore => amazon_disk(&disk.identity),
        InTreeKind::GcePersistentDisk => {
            let label = [ZONE.1, ZONE.0].into_iter().filter_map(|key| labels.get(key));
            let zones: Vec<&str> =
                label.map(String::as_str).find(|value| !value.is_empty()).unwrap_or("").split("__").collect();
            let place = match zones.as_slice() {
                [""] => "zones/UNSPECIFIED".to_owned(),
                [zone] => format!("zones/{zone}"),
                several => format!("regions/{}", google_region(several)?),
            };
            Ok(google_disk(&place, &disk.identity))
        }
        InTreeKind::AzureDisk if disk.unmanaged => Err(Untranslatable),
        InTreeKind::AzureDisk | InTreeKind::Cinder | InTreeKind::PortworxVolume => Ok(disk.identity.clone()),
    }
}

fn google_disk(place: &str, name: &str) -> String {
    format!("projects/UNSPECIFIED/{place}/disks/{name}")
}

/// The region that all zones belong to. Zones have names of the form `LOCALE-REGION-ZONE`.
fn google_region(zones: &[&str]) -> Result<String, Untranslatable> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts.as_slice() else { return Err(Untranslatable) };
        regions.insert(format!("{locale}-{region}"));
    }
    let mut regions = regions.into_iter();
    regions.next().filter(|_| regions.next().is_none()).ok_or(Untranslatable)
}

/// The plain volume id: `vol-1` for `vol-1`, `aws:///vol-1` or `aws://ZONE/vol-1`.
fn amazon_disk(identity: &str) -> Result<String, Untranslatable> {
    let Some(rest) = identity.strip_prefix("aws://") else { return Ok(identity.to_owned()) };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let volume = path.trim_matches('/');
    let plain = volume.starts_with("vol-") && !volume.contains('/');
    if plain { Ok(volume.to_owned()) } else { Err(Untranslatable) }
}

/// The nodes that can use the disk's volume, in terms of the driver's topology labels.
pub(super) fn node_affinity(
    volume: &PersistentVolume,
    disk: &InTreeDisk,
) -> Result<Option<NodeSelector>, Untranslatable> {
    handle(disk, &volume.labels)?;
    let topology = match disk.kind {
        InTreeKind::AwsElasticBlockStore => "topology.ebs.csi.aws.com/zone",
        InTreeKind::GcePersistentDisk => "topology.gke.io/zone",
        InTreeKind::Cinder => "topology.cinder.csi.openstack.org/zone",
        InTreeKind::AzureDisk | InTreeKind::PortworxVolume => return Ok(volume.node_affinity.clone()),
    };
    let mut affinity = volume.node_affinity.clone();
    let old = speaks_old_labels(volume);
    let (zone, region) = if old { (ZONE.1, REGION.1) } else { (ZONE.0, REGION.0) };
    if names_a_value(affinity.as_ref(), zone) {
        rename(affinity.as_mut(), zone, topology);
    } else if let Some(label) = volume.labels.get(zone) {
        let zones: BTreeSet<&str> =
            label.split("__").map(str::trim).filter(|zone| !zone.is_empty()).collect();
        if !zones.is_empty() {
            require(affinity.get_or_insert_default(), topology, &zones);
        }
    }
    if old && names_a_value(affinity.as_ref(), region) {
        rename(affinity.as_mut(), region, REGION.0);
    }
    Ok(affinity)
}

/// Whether the volume states its zone with the old label (`failure-domain.beta.kubernetes.io/zone`): in its
/// node affinity or, if the node affinity states no zone, in the volume's labels.
fn speaks_old_labels(volume: &PersistentVolume) -> bool {
    let required =
        |key: &str| expressions(volume.node_affinity.as_ref()).any(|requirement| requirement.key == key);
    if required(ZONE.0) {
        return false;
    }
    required(ZONE.1) || !volume.labels.contains_key(ZONE.0) && volume.labels.contains_key(ZONE.1)
}

fn expressions(affinity: Option<&NodeSelector>) -> impl Iterator<Item = &Requirement> {
    affinity.into_iter().flat_map(|one| &one.terms).flat_map(|term| &term.match_expressions)
}

fn names_a_value(affinity: Option<&NodeSelector>, key: &str) -> bool {
    expressions(affinity).any(|one| one.key == key && !one.values.is_empty())
}

fn rename(affinity: Option<&mut NodeSelector>, from: &str, to: &str) {
    let terms = affinity.into_iter().flat_map(|one| &mut one.terms);
    for one in terms.flat_map(|term| &mut term.match_expressions).filter(|one| one.key == from) {
        to.clone_into(&mut one.key);
    }
}

fn require(affinity: &mut NodeSelector, key: &str, values: &BTreeSet<&str>) {
    if affinity.terms.is_empty() {
        affinity.terms.push(NodeSelectorTerm::default());
    }
    for term in &mut affinity.terms {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        term.match_expressions.push(Requirement { key: key.to_owned(), operator: Operator::In, values });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(kind: InTreeKind, identity: &str) -> InTreeDisk {
        InTreeDisk { kind, identity: identity.to_owned(), unmanaged: false }
    }

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn amazons_disks_go_by_their_last_part() {
        let called = |identity: &str| handle_in_pod(&disk(InTreeKind::AwsElasticBlockStore, identity));
        assert_eq!(called("vol-1"), Ok("vol-1".to_owned()));
        assert_eq!(called("any"), Ok("any".to_owned()));
        assert_eq!(called("aws:///vol-1"), Ok("vol-1".to_owned()));
        assert_eq!(called("aws://eu-1a/vol-1/"), Ok("vol-1".to_owned()));
        assert_eq!(called("aws://eu-1a/other"), Err(Untranslatable));
        assert_eq!(called("aws://vol-1"), Err(Untranslatable));
    }

    #[test]
    fn googles_disks_carry_their_place_but_not_in_a_pod() {
        let one = disk(InTreeKind::GcePersistentDisk, "pd");
        let of = |zones: &str| handle(&one, &labels(&[("topology.kubernetes.io/zone", zones)]));
        assert_eq!(of("a-b-c"), Ok("projects/UNSPECIFIED/zones/a-b-c/disks/pd".to_owned()));
        assert_eq!(of("a-b-c__a-b-d"), Ok("projects/UNSPECIFIED/regions/a-b/disks/pd".to_owned()));
        assert_eq!(of("a-b-c__a-x-d"), Err(Untranslatable));
        assert_eq!(of("z1__z2"), Err(Untranslatable));
        assert_eq!(handle_in_pod(&one), handle(&one, &Labels::new()));
    }

    #[test]
    fn zones_of_volumes_become_those_of_the_driver() {
        let volume = |labels: Labels, key: Option<&str>| PersistentVolume {
            labels,
            node_affinity: key.map(|key| {
                let mut selector = NodeSelector::default();
                require(&mut selector, key, &BTreeSet::from(["z1"]));
                selector
            }),
            ..PersistentVolume::default()
        };
        let keys = |volume: &PersistentVolume, kind| {
            let affinity = node_affinity(volume, &disk(kind, "d")).unwrap();
            expressions(affinity.as_ref()).map(|one| one.key.clone()).collect::<Vec<_>>()
        };
        let amazon = InTreeKind::AwsElasticBlockStore;
        let by_affinity = volume(Labels::new(), Some(ZONE.1));
        assert_eq!(keys(&by_affinity, amazon), ["topology.ebs.csi.aws.com/zone"]);
        assert_eq!(keys(&by_affinity, InTreeKind::AzureDisk), [ZONE.1]);
        let by_label = volume(labels(&[(ZONE.0, "z1__z2")]), None);
        assert_eq!(keys(&by_label, InTreeKind::Cinder), ["topology.cinder.csi.openstack.org/zone"]);
        let region = volume(labels(&[(ZONE.1, "z1")]), Some(REGION.1));
        assert_eq!(keys(&region, amazon), [REGION.0, "topology.ebs.csi.aws.com/zone"]);
        assert_eq!(keys(&volume(Labels::new(), None), amazon), Vec::<String>::new());
    }
}
