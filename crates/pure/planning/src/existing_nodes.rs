//! Places pods on existing nodes and on machines that are being created, before new machines are planned.
//!
//! * A machine that is being created is reserved for the pods that it was created for, as long as they are
//!   pending. So these pods still have their machine in the next plan, even if other pods have become pending
//!   in the meantime.
//! * As on new machines, pods that only a few pools' nodes accept are placed before pods that any node
//!   accepts. Pods whose placement depends on other pods are placed before pods that need only room. So a pod
//!   that fits anywhere does not take the only place of another pod.

use std::collections::BTreeMap;
use std::ops::Range;

use super::class::Class;
use super::daemons;
use super::packer::Packer;
use super::waiting::Waiting;
use model::machine::{Machine, Phase};
use scheduling::NodeIndex;

/// Maps pending pods to the nodes that were created for them. The key is the pod's index in the list of
/// pending pods.
type Seats = BTreeMap<usize, NodeIndex>;

impl<'a> Packer<'_, 'a> {
    /// Places the pods that fit on existing nodes and on machines that are being created. Pods of higher
    /// priority come first.
    pub(super) fn fill_known(&mut self, classes: &mut [Class<'a>]) {
        let nodes = 0..self.view.world.nodes().len();
        if classes.is_empty() || nodes.is_empty() {
            return;
        }
        // Placing pods on existing nodes may use half of the allowance. The other half is kept for creating
        // machines for the pods that fit no existing node.
        let whole = self.view.allowance.clone();
        self.view.allowance = whole.half();
        self.fill_within(classes, nodes);
        self.cut |= classes.iter().any(|class| class.cut);
        self.view.allowance = whole;
    }

    fn fill_within(&mut self, classes: &mut [Class<'a>], nodes: Range<NodeIndex>) {
        let seats = self.seats();
        // A pod may be pending until a pod to which it has affinity is placed, so passes are repeated as long
        // as one places a pod.
        let attracted = classes.iter().any(|class| !class.sample.affinity.pods.is_empty());
        loop {
            let before = left(classes);
            for equal in classes.chunk_by_mut(|a, b| a.priority == b.priority) {
                self.take_seats(equal, &seats);
                // If a spread constraint prevents a pod from being placed on the machine that was created for
                // it, other pods of its class may have to be placed first. So the pod's class is placed
                // before pods of other classes can take the room on that machine.
                let kept_out =
                    |class: &Class| class.pods[class.done..].iter().any(|pod| seats.contains_key(pod));
                for number in (0..equal.len()).filter(|&number| kept_out(&equal[number])).collect::<Vec<_>>()
                {
                    self.fill_if_allowed(&mut equal[number], nodes.clone());
                    self.take_seats(equal, &seats);
                }
                for number in self.scarce_first(equal) {
                    if equal[number].left() > 0 {
                        self.fill_if_allowed(&mut equal[number], nodes.clone());
                    }
                }
            }
            if !attracted || left(classes) == before || self.view.allowance.is_spent() {
                return;
            }
        }
    }

    fn fill_if_allowed(&mut self, class: &mut Class<'a>, nodes: Range<NodeIndex>) {
        if self.view.allowance.is_spent() {
            class.cut = true;
        } else {
            self.fill(class, nodes);
        }
    }

    /// The order in which these classes are placed on existing nodes.
    fn scarce_first(&self, classes: &[Class<'a>]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..classes.len()).collect();
        if classes.len() > 1 {
            self.view.allowance.spend(classes.len() * self.free.len());
            order.sort_by_cached_key(|&number| {
                let class = &classes[number];
                let suits = self.demands.suits[class.demands].iter().zip(&self.free);
                let pools = suits.filter(|(suits, free)| **suits && free.fits(&class.sample.requests));
                (pools.count(), self.view.world.is_plain(class.sample), number)
            });
        }
        order
    }

    /// Places pods on the machines that were created for them. This is repeated, because one pod may wait for
    /// another that is placed later.
    fn take_seats(&mut self, classes: &mut [Class<'a>], seats: &Seats) {
        if seats.is_empty() {
            return;
        }
        loop {
            let before = left(classes);
            for class in classes.iter_mut().filter(|class| class.left() > 0) {
                self.seat(class, seats);
            }
            let mut waits = classes.iter().flat_map(|class| &class.pods[class.done..]);
            if left(classes) == before || !waits.any(|pod| seats.contains_key(pod)) {
                return;
            }
        }
    }

    fn seat(&mut self, class: &mut Class<'a>, seats: &Seats) {
        let mut prepared = None;
        let mut others = Vec::new();
        for pod in class.pods.split_off(class.done) {
            let Some(&at) = seats.get(&pod) else {
                others.push(pod);
                continue;
            };
            let prepared = prepared.get_or_insert_with(|| self.view.world.prepare(class.sample));
            if !self.is_closed_to(class, at) && self.view.world.takes(prepared, at) {
                class.pods.push(pod);
                self.put(class, prepared, at);
            } else {
                others.push(pod);
            }
        }
        class.pods.append(&mut others);
    }

    /// Maps each pod for which a machine was created to that machine's node. Only machines that are not ready
    /// yet or became ready recently are included.
    fn seats(&self) -> Seats {
        let snapshot = self.view.snapshot;
        let machines = snapshot.proxmox.machines.iter().flatten();
        let machines: BTreeMap<&str, &Machine> = machines
            .filter(|machine| machine.phase < Phase::Draining && !machine.pods.is_empty())
            .map(|machine| (machine.node.as_deref().unwrap_or(&machine.name), machine))
            .collect();
        let coming = self.upcoming.iter().map(|(at, name)| (*at, name.as_str()));
        let there = daemons::young(self.view).into_iter().map(|at| (at, snapshot.nodes[at].name.as_str()));
        let mut made_for: BTreeMap<&str, NodeIndex> = BTreeMap::new();
        for (at, name) in there.chain(coming) {
            let pods = machines.get(name).into_iter().flat_map(|machine| &machine.pods);
            made_for.extend(pods.map(|pod| (pod.as_str(), at)));
        }
        if made_for.is_empty() {
            return Seats::new();
        }
        let seat =
            |(number, waiting): (usize, &Waiting)| Some((number, *made_for.get(&*waiting.pod.digest().id)?));
        self.pods.iter().enumerate().filter_map(seat).collect()
    }
}

fn left(classes: &[Class]) -> usize {
    classes.iter().map(Class::left).sum()
}
