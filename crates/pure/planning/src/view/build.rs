//! Builds a view from a snapshot: which pods are pending, and which count on which node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Stand, View};
use crate::allowance::Allowance;
use crate::daemons::{self, Daemons};
use crate::facts::machine::by_node;
use crate::facts::node::being_deleted;
use crate::facts::pod::will_be_made_again;
use crate::groups::Groups;
use crate::learned_allocatable::{self, Statics};
use crate::nodes_by_name::Named;
use crate::priorities::Priorities;
use crate::storage_room::StorageRoom;
use crate::waiting::Waiting;
use crate::{csi, fresh_devices, pending, requests};
use model::Snapshot;
use model::pod::Pod;
use scheduling::World;
use settings::{Config, Pool};

impl<'a> View<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        pods: &'a [Arc<Pod>],
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
        pods: &'a [Arc<Pod>],
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
        pods: &'a [Arc<Pod>],
        config: &'a Config,
        offers: &'a [Pool],
        gone: &BTreeSet<&str>,
        allowance: &Allowance,
    ) -> Self {
        let mut view = Self::empty(world, snapshot, pods, config, offers, allowance);
        view.take_in(gone);
        view.put_in_order();
        view.settle();
        view
    }

    /// A view that does not know any pod yet.
    pub(super) fn empty(
        world: World,
        snapshot: &'a Snapshot,
        pods: &'a [Arc<Pod>],
        config: &'a Config,
        offers: &'a [Pool],
        allowance: &Allowance,
    ) -> Self {
        // Every pod will be looked at.
        allowance.spend(10 * pods.len());
        let mut view = Self {
            snapshot,
            named: Named::new(&snapshot.nodes),
            pods,
            machines: by_node(snapshot.proxmox.machines.as_deref()),
            config,
            offers,
            allowance: allowance.clone(),
            waiting: Vec::with_capacity(pods.len()),
            groups: Groups::default(),
            world,
            existing: snapshot.nodes.len(),
            grows: false,
            stands: Vec::with_capacity(pods.len()),
            bound: vec![Vec::new(); snapshot.nodes.len()],
            expendable: vec![Vec::new(); snapshot.nodes.len()],
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

    /// Completes the view once its pods are known: nodes that are being removed are closed, and pods of
    /// DaemonSets that are still to come are added.
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
        let priorities = Priorities::new(self.snapshot, self.config);
        for pod in self.pods {
            if pod.digest().annotated {
                self.annotated.push(pod);
            }
            if pod.digest().waits {
                self.stands.push(Stand::Waits);
                self.take_in_waiting(pod, &priorities);
                continue;
            }
            learned_allocatable::count_static(&mut self.statics, pod);
            self.know_daemon(pod);
            let node = pod.node.as_deref();
            let at = node.and_then(|name| self.named.find(name));
            let expendable = priorities.expendable(pod);
            self.stands.push(at.filter(|_| !expendable).map_or(Stand::Nowhere, Stand::On));
            if expendable {
                // Expendable pods occupy no room, because their room goes to the pods that need it.
                if let Some(at) = at {
                    self.expendable[at].push(pod);
                }
            } else {
                if let Some(at) = at {
                    self.bound[at].push(pod);
                } else if node.is_some_and(|name| gone.contains(name)) {
                    self.take_in_evicted(pod, &priorities);
                    continue;
                }
                self.world.announce(pod);
            }
        }
    }

    /// Adds a pod without a node to the pending pods.
    pub(super) fn take_in_waiting(&mut self, pod: &'a Arc<Pod>, priorities: &Priorities) {
        let (group, expendable) = self.groups.number(pod, priorities);
        let settled = pending::settled(pod, expendable, self.config, self.snapshot.time)
            .or_else(|| requests::awaits(pod, self.snapshot));
        self.waiting.push(Waiting { pod, group, settled, listed: true });
    }

    /// Adds a pod of a node that is gone to the pending pods, if its controller will recreate it.
    pub(super) fn take_in_evicted(&mut self, pod: &'a Arc<Pod>, priorities: &Priorities) {
        if will_be_made_again(pod) {
            let (group, _) = self.groups.number(pod, priorities);
            self.waiting.push(Waiting { pod, group, settled: None, listed: true });
        }
    }

    fn know_daemon(&mut self, pod: &'a Arc<Pod>) {
        if !pod.digest().daemon {
            return;
        }
        let Some(set) = pod.owner.as_ref().filter(|owner| owner.kind == "DaemonSet") else { return };
        let age = |pod: &'a Arc<Pod>| (pod.created, &pod.digest().id);
        let newest = self.newest.entry(&set.uid).or_insert(pod);
        if age(pod) > age(newest) {
            *newest = pod;
        }
    }

    /// Sorts all pods by their names, and puts those with a node into the world.
    fn put_in_order(&mut self) {
        for pods in self.expendable.iter_mut().chain(&mut self.bound) {
            pods.sort_by(|a, b| a.digest().compare(b.digest()));
        }
        self.place();
    }

    /// Sorts pending pods by their names, and puts those with a node, which are already sorted, into the
    /// world.
    pub(super) fn place(&mut self) {
        self.waiting.sort_by(|a, b| a.pod.digest().compare(b.pod.digest()));
        for (at, pods) in self.expendable.iter().enumerate() {
            for pod in pods.iter().filter(|pod| !pod.is_finished()) {
                self.world.place_yielding(pod, at);
            }
        }
        for (at, pods) in self.bound.iter().enumerate() {
            self.world.reserve(at, pods.len());
            for pod in pods.iter().filter(|pod| !pod.is_finished()) {
                self.world.place(pod, at);
            }
        }
    }
}
