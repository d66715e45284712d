//! Existing nodes and machines on their way come first: what is there is used before anything is made.
//!
//! * A machine on its way was made for certain pods: as long as these wait it is theirs. So what a plan has
//!   made for each pod is there for it in the next plan, whatever else has come to wait meanwhile.
//! * Pods that few pools' nodes take come before those that any node takes, and those that look at other pods
//!   before those that look at room alone, as on new machines: a pod that fits anywhere takes no room that is
//!   the only one for another.

use std::collections::BTreeMap;
use std::ops::Range;

use super::class::Class;
use super::daemons;
use super::packer::Packer;
use super::waiting::Waiting;
use model::machine::{Machine, Phase};
use scheduling::NodeIndex;

/// The node of the world that was made for a pod, by the pod's place in the list of waiting ones.
type Seats = BTreeMap<usize, NodeIndex>;

impl<'a> Packer<'_, 'a> {
    /// Places what fits on nodes that are there and on machines on their way; pods of higher priority first.
    pub(super) fn fill_known(&mut self, classes: &mut [Class<'a>]) {
        let nodes = 0..self.view.world.nodes().len();
        if classes.is_empty() || nodes.is_empty() {
            return;
        }
        // What is left of the rest makes machines for those that were looked at here.
        let whole = self.view.allowance.clone();
        self.view.allowance = whole.half();
        self.fill_within(classes, nodes);
        self.cut |= classes.iter().any(|class| class.cut);
        self.view.allowance = whole;
    }

    fn fill_within(&mut self, classes: &mut [Class<'a>], nodes: Range<NodeIndex>) {
        let seats = self.seats();
        // Pods can wait for each other's affinity: passes are repeated as long as one places a pod.
        let attracted = classes.iter().any(|class| !class.sample.affinity.pods.is_empty());
        loop {
            let before = left(classes);
            for equal in classes.chunk_by_mut(|a, b| a.priority == b.priority) {
                self.take_seats(equal, &seats);
                // One that was kept from its machine may only wait for others of its kind, spread as they
                // are: no other takes its place.
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

    /// The order in which these classes get what is there.
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

    /// Puts pods on the machines that were made for them, one by one: what one of them waits for may come
    /// with another.
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

    /// Which pods have a machine that was made for them and is on its way or has just come.
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
