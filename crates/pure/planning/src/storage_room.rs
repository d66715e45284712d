//! CSI drivers that have not reported yet how much room there is for new volumes.
//!
//! A driver's provisioner publishes CSIStorageCapacities only for zones with a node that runs the driver.
//! None exists for a fresh node in another zone, even if there is enough room. The planner treats the room as
//! unknown and plans the node. The outcome is checked as for every machine.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::facts::time::is_young;
use model::Snapshot;
use model::selector::{LabelSelector, Labels};
use model::workload::CsiNode;
use scheduling::selector::labels_match;
use settings::Config;

/// For each CSI driver, the nodes to which its published capacities apply.
#[derive(Debug, Default)]
pub(super) struct StorageRoom<'a>(BTreeMap<&'a str, Published<'a>>);

#[derive(Debug, Default)]
struct Published<'a> {
    /// The nodes to which each capacity applies.
    nodes: Vec<&'a LabelSelector>,
    /// The labels by which these nodes are selected.
    keys: BTreeSet<&'a str>,
    /// The values of these labels on nodes that have run the driver for longer than its provisioner needs to
    /// report.
    zones: BTreeSet<Vec<Option<&'a str>>>,
}

impl<'a> StorageRoom<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, config: &Config) -> Self {
        let mut room = BTreeMap::new();
        for driver in snapshot.csi_drivers.iter().filter(|driver| driver.storage_capacity) {
            let classes: BTreeSet<&str> = snapshot
                .storage_classes
                .iter()
                .filter(|class| class.provisioner == driver.name)
                .map(|class| class.name.as_str())
                .collect();
            let capacities = snapshot.storage_capacities.iter();
            let nodes: Vec<&LabelSelector> = capacities
                .filter(|one| classes.contains(one.class.as_str()))
                .filter_map(|one| one.nodes.as_ref())
                .collect();
            let keys = nodes.iter().flat_map(|nodes| &nodes.requirements).map(|one| one.key.as_str());
            let mut published = Published { keys: keys.collect(), nodes, zones: BTreeSet::new() };
            published.zones = published.settled(snapshot, config, &driver.name);
            room.insert(driver.name.as_str(), published);
        }
        Self(room)
    }

    /// The drivers whose room on a node with these labels is unknown.
    pub(super) fn unknown_on(&self, labels: &Labels) -> BTreeSet<String> {
        let unknown = self.0.iter().filter(|(_, published)| published.is_silent_on(labels));
        unknown.map(|(driver, _)| (*driver).to_owned()).collect()
    }
}

impl<'a> Published<'a> {
    /// The zones of nodes that have run the driver for longer than its provisioner needs to report.
    fn settled(
        &self,
        snapshot: &'a Snapshot,
        config: &Config,
        driver: &str,
    ) -> BTreeSet<Vec<Option<&'a str>>> {
        let runs = |node: &&CsiNode| node.limits.contains_key(driver);
        let with: BTreeSet<&str> = snapshot
            .csi_nodes
            .iter()
            .map(AsRef::as_ref)
            .filter(runs)
            .map(|node| node.name.as_str())
            .collect();
        let old =
            |created: Option<Timestamp>| !created.is_some_and(|created| is_young(created, snapshot, config));
        let nodes = snapshot.nodes.iter().filter(|node| with.contains(&*node.name) && old(node.created));
        nodes.map(|node| self.zone(&node.labels)).collect()
    }

    fn zone<'n>(&self, labels: &'n Labels) -> Vec<Option<&'n str>> {
        self.keys.iter().map(|key| labels.get(*key).map(String::as_str)).collect()
    }

    /// Whether the driver may still report its room on nodes with these labels. False if a node of the same
    /// zone has run the driver for longer than its provisioner needs to report, or if the labels lack one of
    /// the driver's topology keys. Also false for a driver that reports every node separately: its report for
    /// a fresh node cannot be known.
    fn is_silent_on(&self, labels: &Labels) -> bool {
        let zone = self.zone(labels);
        !zone.is_empty()
            && !self.keys.contains("kubernetes.io/hostname")
            && zone.iter().all(Option::is_some)
            && !self.nodes.iter().any(|nodes| labels_match(nodes, labels))
            && !self.zones.contains(&zone)
    }
}
