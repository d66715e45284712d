//! Builds a view from a snapshot: which pods are pending, and which pods occupy room on which node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::View;
use crate::allowance::Allowance;
use crate::daemons::{self, Daemons};
use crate::facts::machine::by_node;
use crate::facts::node::being_deleted;
use crate::facts::pod::will_be_made_again;
use crate::groups::Groups;
use crate::learned_allocatable::Statics;
use crate::nodes_by_name::Named;
use crate::pods_by_node::{NodePods, PodsByNode};
use crate::priorities::Priorities;
use crate::storage_room::StorageRoom;
use crate::unbound::UnboundPod;
use crate::waiting::Waiting;
use crate::{csi, fresh_devices, pending, requests};
use model::Snapshot;
use model::pod::Pod;
use scheduling::World;
use settings::{Config, Pool};

impl<'a> View<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        pods: &'a PodsByNode<'a>,
        config: &'a Config,
        offers: &'a [Pool],
        allowance: &Allowance,
    ) -> Self {
        Self::without(snapshot, pods, config, offers, &BTreeSet::new(), allowance)
    }

    /// Like [`Self::new`], but the nodes named in `gone` are no longer in the snapshot. The pods that
    /// controllers create to replace the pods of these nodes are pending, and may trigger a new machine
    /// immediately.
    pub(crate) fn without(
        snapshot: &'a Snapshot,
        pods: &'a PodsByNode<'a>,
        config: &'a Config,
        offers: &'a [Pool],
        gone: &BTreeSet<&str>,
        allowance: &Allowance,
    ) -> Self {
        let mut world = World::without_pods(snapshot);
        world.counts_in(allowance.effort());
        Self::around(world, snapshot, pods, config, offers, gone, allowance)
    }

    fn around(
        world: World,
        snapshot: &'a Snapshot,
        pods: &'a PodsByNode<'a>,
        config: &'a Config,
        offers: &'a [Pool],
        gone: &BTreeSet<&str>,
        allowance: &Allowance,
    ) -> Self {
        let mut view = Self::empty(world, snapshot, pods, config, offers, allowance);
        view.take_in(gone);
        view.place();
        view.settle();
        view
    }

    /// Returns a view without any pods.
    pub(super) fn empty(
        world: World,
        snapshot: &'a Snapshot,
        pods: &'a PodsByNode<'a>,
        config: &'a Config,
        offers: &'a [Pool],
        allowance: &Allowance,
    ) -> Self {
        // The cost of looking at every pod.
        allowance.spend(10 * pods.all().len());
        let mut view = Self {
            snapshot,
            named: Named::new(&snapshot.nodes),
            pods: pods.all(),
            machines: by_node(snapshot.proxmox.machines.as_deref()),
            config,
            offers,
            allowance: allowance.clone(),
            waiting: Vec::with_capacity(pods.unbound().len()),
            groups: Groups::default(),
            world,
            existing: snapshot.nodes.len(),
            grows: false,
            on: Vec::with_capacity(snapshot.nodes.len()),
            by_node: pods,
            annotated: Vec::new(),
            newest: BTreeMap::new(),
            daemons: Daemons::default(),
            statics: Statics::new(),
            drivers: csi::Drivers::new(snapshot, config),
            slices: fresh_devices::Slices::new(snapshot, config),
            storage_room: StorageRoom::new(snapshot, config),
        };
        for set in &snapshot.daemon_sets {
            view.world.announce(&set.pod);
        }
        view
    }

    /// Completes the view once its pods are known. Closes nodes that are being removed, and adds DaemonSet
    /// pods that are expected but do not exist yet.
    pub(super) fn settle(&mut self) {
        for sample in self.groups.samples() {
            self.world.announce(sample);
        }
        for (at, node) in self.snapshot.nodes.iter().enumerate() {
            if being_deleted(node) {
                self.world.close(at);
            }
        }
        self.daemons = Daemons::new(self);
        daemons::expect(self);
    }

    /// Finds out which pods are pending, and on which nodes the others occupy room.
    fn take_in(&mut self, gone: &BTreeSet<&str>) {
        let (snapshot, by_node) = (self.snapshot, self.by_node);
        for (at, node) in snapshot.nodes.iter().enumerate() {
            // If several nodes have the same name, only one of them is given the pods.
            let is_found = self.named.find(&node.name) == Some(at);
            let own = if is_found { by_node.on(&node.name) } else { by_node.on_none() };
            self.on.push(own);
            self.know(&node.name, own);
            own.asking.iter().for_each(|pod| self.world.announce(pod));
        }
        let priorities = Priorities::new(snapshot, self.config);
        self.take_in_unbound(&priorities);
        for (name, own) in by_node.elsewhere(&self.named) {
            self.know(name, own);
            if gone.contains(name) {
                own.bound.iter().for_each(|pod| self.take_in_evicted(pod, &priorities));
            } else {
                own.asking.iter().for_each(|pod| self.world.announce(pod));
            }
        }
    }

    /// Takes in the pods that have no node.
    fn take_in_unbound(&mut self, priorities: &Priorities) {
        for one @ UnboundPod { pod, marks, .. } in self.by_node.unbound() {
            if marks.annotated {
                self.annotated.push(pod);
            }
            if marks.waits {
                self.take_in_waiting(one, priorities);
                continue;
            }
            self.know_daemon(pod);
            if !priorities.expendable(pod) {
                self.world.announce(pod);
            }
        }
    }

    /// Adds what can be learned from the pods on a node: annotations, the newest DaemonSet pods, and the
    /// requests of static pods.
    fn know(&mut self, node: &'a str, pods: &'a NodePods) {
        self.annotated.extend(&pods.annotated);
        pods.daemons.iter().for_each(|pod| self.know_daemon(pod));
        self.statics.extend(pods.statics.as_ref().map(|requests| (node, requests.clone())));
    }

    /// Adds a pod without a node to the pending pods.
    pub(super) fn take_in_waiting(&mut self, one: UnboundPod<'a>, priorities: &Priorities) {
        let UnboundPod { pod, class, marks } = one;
        let (group, expendable) = self.groups.number(pod, class, priorities);
        let settled = pending::settled(one, expendable, self.config, self.snapshot.time)
            .or_else(|| marks.annotated.then(|| requests::awaits(pod, self.snapshot)).flatten());
        self.waiting.push(Waiting { pod, group, settled, marks, listed: true });
    }

    /// Adds a pod of a node that is gone to the pending pods, if its controller will recreate it.
    pub(super) fn take_in_evicted(&mut self, pod: &'a Arc<Pod>, priorities: &Priorities) {
        if will_be_made_again(pod) {
            let digest = pod.digest();
            let (group, _) = self.groups.number(pod, digest.class, priorities);
            self.waiting.push(Waiting { pod, group, settled: None, marks: digest.marks, listed: true });
        }
    }

    fn know_daemon(&mut self, pod: &'a Arc<Pod>) {
        if !pod.digest().marks.daemon {
            return;
        }
        let Some(set) = pod.owner.as_ref().filter(|owner| owner.kind == "DaemonSet") else { return };
        let age = |pod: &'a Arc<Pod>| (pod.created, &pod.digest().id);
        let newest = self.newest.entry(&set.uid).or_insert(pod);
        if age(pod) > age(newest) {
            *newest = pod;
        }
    }

    /// Sorts the pending pods by name, and adds the pods that have a node to the world.
    pub(super) fn place(&mut self) {
        // Pods without a node are in order. Pods of nodes that are gone were added after them.
        if self.waiting.last().is_some_and(|waiting| waiting.pod.node.is_some()) {
            self.waiting.sort_by(|a, b| a.pod.digest().compare(b.pod.digest()));
        }
        for (at, own) in self.on.iter().enumerate() {
            for pod in own.expendable.iter().filter(|pod| !pod.is_finished()) {
                self.world.place_yielding(pod, at);
            }
            self.world.place_all(&own.load, at);
        }
    }
}
