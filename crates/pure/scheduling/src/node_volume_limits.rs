//! NodeVolumeLimits: a node takes only a limited number of CSI volumes of each driver (CSINode's
//! `allocatable.count`). From Kubernetes 1.37 on, the node must also have the CSI drivers of the pod's
//! volumes, if the drivers require this (`preventPodSchedulingIfMissing`).

use std::sync::Arc;

use super::refusal::Refusal;
use super::sim_node::SimNode;
use super::volume_restrictions::missing;
use super::volumes::{Counted, Mounted, Volumes};
use model::pod::Pod;
use model::workload::CsiNode;

/// The volumes on a node. Each volume counts once. The counts are updated when pods are placed or removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// The volumes that pods on the node use, sorted, each with the number of pods that use it.
    used: Vec<(Counted, i64)>,
    /// The volumes that VolumeAttachments name for the node, sorted.
    attached: Option<Arc<[Counted]>>,
    /// For each driver: the total number of volumes on the node.
    present: Vec<(u32, i64)>,
    /// The number of pods with volumes that cannot be counted.
    uncountable: i64,
}

impl Held {
    pub(super) fn new(attached: Option<&Arc<[Counted]>>) -> Self {
        let mut held = Self { attached: attached.cloned(), ..Self::default() };
        for one in attached.into_iter().flat_map(|all| all.iter()) {
            held.add_present(one.driver, 1);
        }
        held
    }

    /// Adds `by` pods with these volumes, or removes them if `by` is negative.
    pub(super) fn count(&mut self, mounted: &Mounted, by: i64) {
        if mounted.of_another || mounted.untranslatable {
            self.uncountable += by;
        }
        for one in &mounted.counted {
            match self.used.binary_search_by_key(&one.volume, |(used, _)| used.volume) {
                Ok(at) => {
                    self.used[at].1 += by;
                    if self.used[at].1 <= 0 {
                        self.used.remove(at);
                        self.changed(one, -1);
                    }
                }
                Err(at) if by > 0 => {
                    self.used.insert(at, (*one, by));
                    self.changed(one, 1);
                }
                Err(_) => {}
            }
        }
    }

    fn changed(&mut self, one: &Counted, by: i64) {
        let attached = self.attached.as_ref();
        if attached.is_none_or(|all| all.binary_search_by_key(&one.volume, |one| one.volume).is_err()) {
            self.add_present(one.driver, by);
        }
    }

    fn add_present(&mut self, driver: u32, by: i64) {
        match self.present.iter_mut().find(|one| one.0 == driver) {
            Some(one) => one.1 += by,
            None => self.present.push((driver, by)),
        }
    }

    fn uses(&self, volume: u64) -> bool {
        self.used.binary_search_by_key(&volume, |(used, _)| used.volume).is_ok()
    }

    fn present(&self, driver: u32) -> i64 {
        self.present.iter().find(|one| one.0 == driver).map_or(0, |one| one.1)
    }
}

/// The refusal of a pod whose ephemeral volume has no claim yet: no node takes such a pod.
pub(super) fn prepare(pod: &Pod, volumes: &Volumes) -> Option<Refusal> {
    missing(pod, volumes, true).then_some(Refusal::ClaimMissing { ephemeral: true })
}

pub(super) fn check(mounted: &Mounted, sim: &SimNode, held: &Held, volumes: &Volumes) -> Result<(), Refusal> {
    let csi = sim.csi.as_deref();
    if mounted.untranslatable && csi.is_some() {
        return Err(Refusal::VolumesUncountable);
    }
    let counts = |one: &&Counted| csi.is_some() || !one.migrated;
    if volumes.requires_drivers() {
        for one in mounted.counted.iter().filter(counts) {
            let driver = volumes.driver(one.driver);
            if volumes.csi_driver(driver).is_some_and(|driver| driver.required_on_node)
                && !csi.is_some_and(|csi| csi.limits.contains_key(&**driver))
            {
                return Err(Refusal::DriverMissing(driver.clone()));
            }
        }
    }
    let Some(csi) = csi.filter(|csi| csi.limits.values().any(Option::is_some)) else { return Ok(()) };
    if mounted.counted.is_empty() {
        return Ok(());
    }
    if held.uncountable > 0 {
        return Err(Refusal::VolumesUncountable);
    }
    within_limits(mounted, csi, held, volumes)
}

/// Checks that the node has room for the pod's volumes that no pod on the node uses yet. A volume that is
/// attached but not used counts twice: kube-scheduler assumes that another pod has just stopped using it.
fn within_limits(mounted: &Mounted, csi: &CsiNode, held: &Held, volumes: &Volumes) -> Result<(), Refusal> {
    let mut more: Vec<(u32, i64)> = Vec::new();
    for one in mounted.counted.iter().filter(|one| !held.uses(one.volume)) {
        match more.iter_mut().find(|(driver, _)| *driver == one.driver) {
            Some((_, count)) => *count += 1,
            None => more.push((one.driver, 1)),
        }
    }
    for (number, count) in more {
        let driver = volumes.driver(number);
        let limit = csi.limits.get(&**driver).copied().flatten();
        if let Some(most) = limit.filter(|most| held.present(number) + count > *most) {
            return Err(Refusal::VolumeLimit { driver: driver.clone(), most });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;
    use model::Snapshot;
    use model::node::Node;
    use model::pod::{Volume, VolumeSource};
    use model::pod_spec::PodSpec;
    use model::workload::{PersistentVolume, StorageClass, VolumeAttachment, VolumeClaim};

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, most: u64) -> usize {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            usize::try_from((z ^ (z >> 31)) % most).unwrap()
        }
    }

    fn snapshot(random: &mut Random) -> Snapshot {
        let named = |kind: &str, number: usize| format!("{kind}{number}");
        let mut all = Snapshot::default();
        for number in 0..3 {
            all.nodes.push(Arc::new(Node { name: named("n", number), ..Node::default() }));
            let class = StorageClass { name: named("class", number), ..StorageClass::default() };
            all.storage_classes.push(Arc::new(StorageClass { provisioner: named("x", number), ..class }));
        }
        for number in 0..8 {
            let driver = named("x", random.below(3));
            // Different volumes may refer to the same disk.
            let csi = Some((driver, named("disk", random.below(6))));
            let volume = PersistentVolume { name: named("v", number), csi, ..PersistentVolume::default() };
            all.volumes.push(Arc::new(volume));
            let class = Some(named("class", random.below(4)));
            let volume = Some(named("v", random.below(9))).filter(|_| random.below(4) > 0);
            let claim = VolumeClaim { name: named("c", number), class, volume, ..VolumeClaim::default() };
            all.claims.push(Arc::new(claim));
            all.attachments.push(Arc::new(VolumeAttachment {
                node: named("n", random.below(3)),
                attacher: named("x", random.below(3)),
                volume: Some(named("v", random.below(9))),
                ..VolumeAttachment::default()
            }));
        }
        all
    }

    fn pod(random: &mut Random, number: usize) -> Arc<Pod> {
        let claim = |random: &mut Random| VolumeSource::Claim {
            name: format!("c{}", random.below(9)),
            ephemeral: random.below(5) == 0,
            read_only: false,
        };
        let volumes = (0..random.below(4)).map(|_| Volume { name: "v".to_owned(), source: claim(random) });
        let spec = PodSpec { volumes: volumes.collect(), ..PodSpec::default() };
        Arc::new(Pod { name: format!("p{number}"), spec: spec.into(), ..Pod::default() })
    }

    /// The node's volumes, counted again from its pods.
    fn recounted(sim: &SimNode, volumes: &Volumes) -> Held {
        let mut held = Held::new(volumes.attached(&sim.node.name));
        for pod in sim.pods.iter() {
            held.count(&volumes.mounted(pod), 1);
        }
        held
    }

    type InOrder = (Vec<(Counted, i64)>, Vec<(u32, i64)>, i64);

    fn in_order(held: &Held) -> InOrder {
        let mut present: Vec<_> = held.present.iter().copied().filter(|one| one.1 != 0).collect();
        present.sort_unstable();
        (held.used.clone(), present, held.uncountable)
    }

    #[test]
    fn what_is_kept_up_is_what_would_be_counted_again() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut world = World::without_pods(&snapshot(&mut random));
            let mut placed: Vec<(Arc<Pod>, usize)> = Vec::new();
            for number in 0..60 {
                if random.below(3) == 0 && !placed.is_empty() {
                    let (pod, node) = placed.swap_remove(random.below(placed.len() as u64));
                    world.remove(&pod, node);
                } else {
                    let (pod, node) = (pod(&mut random, number), random.below(3));
                    world.place(&pod, node);
                    placed.push((pod, node));
                }
                for sim in world.nodes() {
                    assert_eq!(
                        in_order(&sim.held),
                        in_order(&recounted(sim, world.volumes())),
                        "seed {seed}"
                    );
                }
            }
        }
    }

    #[test]
    fn present_is_what_pods_use_or_attachments_name() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut world = World::without_pods(&snapshot(&mut random));
            for number in 0..12 {
                let (pod, node) = (pod(&mut random, number), random.below(3));
                world.place(&pod, node);
            }
            for sim in world.nodes() {
                let attached = world.volumes().attached(&sim.node.name);
                let used = sim.pods.iter().flat_map(|pod| world.volumes().mounted(pod).counted);
                let all: std::collections::BTreeSet<Counted> =
                    used.chain(attached.into_iter().flat_map(|all| all.iter().copied())).collect();
                for driver in 0..10 {
                    let there = all.iter().filter(|one| one.driver == driver).count();
                    assert_eq!(sim.held.present(driver), i64::try_from(there).unwrap(), "seed {seed}");
                }
            }
        }
    }
}
