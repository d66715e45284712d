//! Volumes, claims and related objects, indexed once for each decision. They do not change during a decision.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::in_tree::{self, Untranslatable};
use super::volume_restrictions::ONCE;
use model::pod::{Pod, VolumeSource};
use model::storage::{InTreeDisk, InTreeKind};
use model::workload::{CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, VolumeClaim};
use model::{KubernetesVersion, Snapshot};

/// A volume that counts against the limit of a CSI driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counted {
    /// A hash of the driver and the volume handle.
    pub volume: u64,
    /// The driver's number ([`Volumes::driver`]).
    pub driver: u32,
    /// Whether the volume is an in-tree disk. Such a disk counts only if the node has a CSINode.
    pub migrated: bool,
}

/// A pod's volumes that count against the limits of CSI drivers.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounted {
    /// The volumes that can be counted, without duplicates.
    pub counted: Vec<Counted>,
    /// Whether one of the volumes is an in-tree disk that cannot be described as a CSI volume. If
    /// kube-scheduler has to count such a disk, it rejects the node.
    pub untranslatable: bool,
    /// Whether the claim of an ephemeral volume belongs to another pod. If it does, kube-scheduler rejects
    /// the node.
    pub of_another: bool,
}

/// A claim, with precomputed properties that are needed often.
#[derive(Debug)]
pub(super) struct Claim {
    pub object: Arc<VolumeClaim>,
    /// Whether only one pod at a time may use the claim.
    pub once: bool,
    counted: Option<Counted>,
}

/// Volumes, claims and related objects, by name.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: BTreeMap<String, BTreeMap<String, Claim>>,
    persistent: BTreeMap<String, Arc<PersistentVolume>>,
    classes: BTreeMap<String, Arc<StorageClass>>,
    csi_drivers: BTreeMap<String, Arc<CsiDriver>>,
    csi_nodes: BTreeMap<String, Arc<CsiNode>>,
    /// Attached volumes by node, sorted and without duplicates.
    attached: BTreeMap<String, Arc<[Counted]>>,
    /// Volumes that are not reserved for any claim, by class, smallest first.
    free: BTreeMap<String, Vec<Arc<PersistentVolume>>>,
    /// Volumes that are reserved for a claim, by `namespace/name`.
    reserved: BTreeMap<String, Vec<Arc<PersistentVolume>>>,
    /// Storage capacities by class.
    capacities: BTreeMap<String, Vec<Arc<StorageCapacity>>>,
    drivers: Drivers,
    version: KubernetesVersion,
}

/// Names of CSI drivers.
#[derive(Debug, Default)]
struct Drivers {
    names: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Drivers {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let (name, number) = (Arc::<str>::from(name), u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

impl Volumes {
    /// Indexes the volumes of a snapshot.
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut all = Self {
            persistent: snapshot.volumes.iter().map(|one| (one.name.clone(), one.clone())).collect(),
            classes: snapshot.storage_classes.iter().map(|one| (one.name.clone(), one.clone())).collect(),
            csi_drivers: snapshot.csi_drivers.iter().map(|one| (one.name.clone(), one.clone())).collect(),
            csi_nodes: snapshot.csi_nodes.iter().map(|one| (one.name.clone(), one.clone())).collect(),
            version: snapshot.kubernetes,
            ..Self::default()
        };
        for kind in InTreeKind::ALL {
            all.drivers.number(in_tree::driver(kind));
        }
        for object in &snapshot.claims {
            let counted = all.count_claim(object);
            let once = object.access_modes.iter().any(|mode| mode == ONCE);
            let claim = Claim { object: object.clone(), once, counted };
            all.claims.entry(object.namespace.clone()).or_default().insert(object.name.clone(), claim);
        }
        all.sort_out(snapshot);
        all.attach(snapshot);
        all
    }

    fn sort_out(&mut self, snapshot: &Snapshot) {
        for volume in snapshot.volumes.iter().filter(|volume| !volume.deleted) {
            match &volume.claim {
                // Reserved volumes matter only for claims that are not bound yet. Most claims are bound.
                Some(claim) if self.is_waited_for(claim) => {
                    self.reserved.entry(claim.clone()).or_default().push(volume.clone());
                }
                None if volume.available => {
                    self.free.entry(volume.class.clone()).or_default().push(volume.clone());
                }
                _ => {}
            }
        }
        for volumes in self.free.values_mut() {
            volumes.sort_by(|a, b| (a.capacity, &a.name).cmp(&(b.capacity, &b.name)));
        }
        for capacity in &snapshot.storage_capacities {
            self.capacities.entry(capacity.class.clone()).or_default().push(capacity.clone());
        }
    }

    fn is_waited_for(&self, claim: &str) -> bool {
        let named = claim.split_once('/').and_then(|(namespace, name)| self.claim(namespace, name));
        named.is_some_and(|claim| claim.object.volume.is_none())
    }

    fn attach(&mut self, snapshot: &Snapshot) {
        let mut by_node: BTreeMap<&str, Vec<Counted>> = BTreeMap::new();
        for one in snapshot.attachments.iter().filter(|one| !one.attacher.is_empty()) {
            let volume = one.volume.as_ref().and_then(|name| self.persistent.get(name));
            if let Some((_, handle)) = volume.and_then(|volume| volume.csi.as_ref()) {
                let driver = self.drivers.number(&one.attacher);
                let counted = Counted { volume: identity(driver, handle, false), driver, migrated: false };
                by_node.entry(&one.node).or_default().push(counted);
            }
        }
        for (node, mut volumes) in by_node {
            volumes.sort_unstable();
            volumes.dedup();
            self.attached.insert(node.to_owned(), volumes.into());
        }
    }

    pub(super) fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(namespace)?.get(name)
    }

    pub(super) fn persistent(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.persistent.get(name)
    }

    pub(super) fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    pub(super) fn csi_driver(&self, name: &str) -> Option<&CsiDriver> {
        self.csi_drivers.get(name).map(AsRef::as_ref)
    }

    pub(super) fn csi_node(&self, name: &str) -> Option<&Arc<CsiNode>> {
        self.csi_nodes.get(name)
    }

    /// Whether kube-scheduler keeps pods away from nodes that lack a CSI driver (`VolumeLimitScaling`).
    pub(super) fn requires_drivers(&self) -> bool {
        self.version >= KubernetesVersion::V1_37
    }

    /// The volumes that are attached to the node according to VolumeAttachments.
    pub(super) fn attached(&self, node: &str) -> Option<&Arc<[Counted]>> {
        self.attached.get(node)
    }

    /// Returns the class's volumes that are not reserved for any claim, smallest first.
    pub(super) fn free(&self, class: &str) -> &[Arc<PersistentVolume>] {
        self.free.get(class).map_or(&[], Vec::as_slice)
    }

    /// Returns the volumes that are reserved for an unbound claim, by its namespace and name.
    pub(super) fn reserved(&self, claim: &VolumeClaim) -> &[Arc<PersistentVolume>] {
        if self.reserved.is_empty() {
            return &[];
        }
        let key = format!("{}/{}", claim.namespace, claim.name);
        self.reserved.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Whether there are volumes that claims could be bound to.
    pub(super) fn any_to_bind(&self) -> bool {
        !(self.free.is_empty() && self.reserved.is_empty())
    }

    /// The storage capacities of the class.
    pub(super) fn capacities(&self, class: &str) -> &[Arc<StorageCapacity>] {
        self.capacities.get(class).map_or(&[], Vec::as_slice)
    }

    /// The name of the driver with this number.
    pub(super) fn driver(&self, number: u32) -> &Arc<str> {
        &self.drivers.names[number as usize]
    }

    /// Returns the pod's volumes that count against the limits of CSI drivers.
    pub(super) fn mounted(&self, pod: &Pod) -> Mounted {
        let mut all = Mounted::default();
        for volume in &pod.volumes {
            let disk = match &volume.source {
                VolumeSource::Claim { name, ephemeral, .. } => {
                    let Some(claim) = self.claim(&pod.namespace, name) else { continue };
                    if *ephemeral && claim.object.owner_uid.as_ref() != Some(&pod.uid) {
                        all.of_another = true;
                    } else {
                        all.counted.extend(claim.counted);
                    }
                    continue;
                }
                VolumeSource::Exclusive { kind, identity, .. } => InTreeKind::of_field(kind)
                    .map(|kind| InTreeDisk { kind, identity: identity.clone(), unmanaged: false }),
                VolumeSource::InTree(disk) => Some(disk.clone()),
                _ => None,
            };
            match disk.map(|disk| (in_tree::handle_in_pod(&disk), disk.kind)) {
                Some((Ok(handle), kind)) => all.counted.extend(self.in_tree(kind, &handle)),
                Some((Err(Untranslatable), _)) => all.untranslatable = true,
                None => {}
            }
        }
        all.counted.sort_unstable();
        all.counted.dedup_by_key(|one| one.volume);
        all
    }

    fn in_tree(&self, kind: InTreeKind, handle: &str) -> Option<Counted> {
        let driver = *self.drivers.numbers.get(in_tree::driver(kind))?;
        Some(Counted { volume: identity(driver, handle, false), driver, migrated: true })
    }

    /// Returns the claim's volume, in the form in which volumes are counted. If the claim has no volume yet,
    /// the claim itself stands for its future volume.
    fn count_claim(&mut self, claim: &VolumeClaim) -> Option<Counted> {
        let volume = claim.volume.as_ref().and_then(|name| self.persistent.get(name));
        if let Some(volume) = volume {
            if let Some((driver, handle)) = &volume.csi {
                let named = !driver.is_empty() && !handle.is_empty();
                let driver = self.drivers.number(driver);
                return named.then(|| Counted {
                    volume: identity(driver, handle, false),
                    driver,
                    migrated: false,
                });
            }
            let disk = volume.in_tree.as_ref()?;
            let handle = in_tree::handle(disk, &volume.labels).ok().filter(|handle| !handle.is_empty())?;
            return self.in_tree(disk.kind, &handle);
        }
        let class = self.classes.get(claim.class.as_ref()?)?;
        let (driver, migrated) = in_tree::provisioned_by(&class.provisioner)?;
        let driver = self.drivers.number(driver);
        let volume = identity(driver, &format!("{}/{}", claim.namespace, claim.name), true);
        Some(Counted { volume, driver, migrated })
    }
}

/// A number that identifies a volume of the driver. A volume that does not exist yet (`to_be_made`) never has
/// the number of an existing one.
fn identity(driver: u32, handle: &str, to_be_made: bool) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((driver, handle, to_be_made))
}
