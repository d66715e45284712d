//! The state of one decision to scale up: the pending pods, where they were placed, and the planned machines.
//! This file contains the individual steps that change the state. [`super::scale_up`], and the files to which
//! it refers, decide which steps are taken.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::capacity::{NoRoom, Place, Rooms};
use super::class::Class;
use super::classes::Demands;
use super::gangs::Gangs;
use super::machine_growths::Growths;
use super::placement_search::Search;
use super::pod_place::PodPlace;
use super::prediction_holds::Hold;
use super::view::View;
use super::waiting::Waiting;
use model::Resources;
use model::node::Node;
use model::pod::Pod;
use scheduling::{NodeIndex, Prepared, Refusal, SimNode, World};
use settings::Pool;

/// The state of one decision to scale up.
pub(super) struct Packer<'v, 'a> {
    pub view: &'v mut View<'a>,
    pub rooms: Rooms<'a>,
    pub pods: Vec<Waiting<'a>>,
    pub spots: Vec<PodPlace>,
    /// The planned machines. Their nodes are added to the world in the same order, one directly after the
    /// other.
    pub planned: Vec<Planned>,
    /// A fresh node of each pool.
    pub prototypes: Vec<SimNode>,
    /// What a fresh node of each pool offers.
    pub free: Vec<Resources>,
    /// The DaemonSet pods that run on fresh nodes and repel other pods.
    pub repelling: Vec<Arc<Pod>>,
    /// The cost of a machine of each pool, in millionths: its cores relative to the pool with the most cores,
    /// plus its memory relative to the pool with the most memory.
    pub sizes: Vec<i64>,
    pub demands: Demands,
    /// By group of pods: the restrictions after missed predictions.
    pub holds: BTreeMap<usize, Arc<Hold>>,
    /// The nodes in the world whose machines are being created. The value is the name of the Node if the Node
    /// exists already, or else the name of the machine.
    pub upcoming: BTreeMap<NodeIndex, String>,
    /// Machines that grow in place.
    pub growths: Growths,
    /// Whether some pending pods were not looked at.
    pub cut: bool,
    /// Whether some real pods were not looked at.
    pub spent: bool,
    /// Whether some real pods were not looked at, or have to wait for their turn in a later round.
    pub partial: bool,
    /// Whether the decision may stop as soon as a pod needs more room than there is.
    pub is_enough: bool,
    /// Why pools stay below their minimum, by pool.
    pub short: BTreeMap<String, NoRoom>,
    /// How many of the planned machines are needed to reach their pools' minimum. These machines come first
    /// in `planned`.
    pub of_minimum: usize,
    /// Pending gangs.
    pub gangs: Gangs<'a>,
    /// Planned machines that will not be created, because they were for gangs that a later round looks at.
    pub dropped: BTreeSet<usize>,
}

/// A node that does not exist yet.
pub(super) struct Planned {
    pub pool: usize,
    pub node: NodeIndex,
    pub place: Place,
}

impl<'a> Packer<'_, 'a> {
    /// Undoes all placements, and restores the original world and rooms.
    pub(super) fn start_over(&mut self, (world, rooms): (World, Rooms<'a>)) {
        (self.view.world, self.rooms) = (world, rooms);
        self.spots.fill(PodPlace::None);
        self.planned.clear();
        self.growths = Growths::default();
        self.holds.clear();
        self.short.clear();
        self.cut = false;
    }

    /// The offers of all pools. A pool appears once for each combination of a machine size and a set of hosts
    /// with the same labels.
    pub(super) fn pools(&self) -> &'a [Pool] {
        self.view.offers
    }

    /// The index in `planned` of the machine to which the node belongs, or `None` if the node does not belong
    /// to a planned machine.
    pub(super) fn machine_at(&self, node: NodeIndex) -> Option<usize> {
        let first = self.planned.first()?.node;
        node.checked_sub(first).filter(|number| *number < self.planned.len())
    }

    /// Whether the node belongs to a planned machine that will not be created after all.
    #[inline]
    pub(super) fn is_dropped(&self, node: NodeIndex) -> bool {
        !self.dropped.is_empty() && self.machine_at(node).is_some_and(|number| self.dropped.contains(&number))
    }

    /// Adds a node with its pods to the world.
    pub(super) fn adopt(&mut self, node: &SimNode, mut prepared: Option<&mut Prepared>) -> NodeIndex {
        let world = &mut self.view.world;
        let index = match &mut prepared {
            Some(prepared) => world.add_node_prepared(prepared, node.node.clone()),
            None => world.add_node(node.node.clone()),
        };
        world.expect(index, node);
        for pod in node.pods.iter() {
            match &mut prepared {
                Some(prepared) => world.place_prepared(prepared, pod, index),
                None => world.place(pod, index),
            }
        }
        index
    }

    /// Places as many pods of a class as fit on these nodes.
    pub(super) fn fill(&mut self, class: &mut Class<'a>, nodes: Range<NodeIndex>) {
        if nodes.is_empty() {
            return;
        }
        let mut prepared = self.view.world.prepare(class.sample);
        self.view.allowance.spend(nodes.len());
        if self.view.world.is_plain(class.sample) {
            for at in nodes {
                if class.left() == 0 {
                    return;
                }
                if self.is_closed_to(class, at) {
                    continue;
                }
                if self.view.world.takes(&prepared, at) {
                    let room = self.view.world.room_for(class.sample, at);
                    let count = usize::try_from(room).unwrap_or(usize::MAX).min(class.left());
                    self.put_copies(class, at, count);
                }
            }
            return;
        }
        let mut search = self.search(class, &prepared, nodes);
        while class.left() > 0 {
            if self.view.allowance.is_spent() {
                class.cut = true;
                return;
            }
            let Some(at) = search.next(&self.view.world, &prepared) else { return };
            self.put(class, &mut prepared, at);
        }
    }

    /// Starts a search among these nodes for places for the pods of a class.
    pub(super) fn search(&self, class: &Class<'a>, prepared: &Prepared, nodes: Range<NodeIndex>) -> Search {
        if class.hold.is_none() && self.dropped.is_empty() {
            return Search::among(nodes);
        }
        let open = nodes.filter(|&at| !self.is_closed_to(class, at));
        Search::new(&self.view.world, prepared, open)
    }

    /// Places the next pod of a class on this node.
    pub(super) fn put(&mut self, class: &mut Class<'a>, prepared: &mut Prepared, at: NodeIndex) {
        let index = class.pods[class.done];
        self.view.world.place_prepared(prepared, self.pods[index].pod, at);
        self.spots[index] = PodPlace::Node(at);
        class.done += 1;
    }

    /// Places the next pods of a plain class on this node.
    pub(super) fn put_copies(&mut self, class: &mut Class<'a>, at: NodeIndex, count: usize) {
        let taken = &class.pods[class.done..class.done + count];
        for &index in taken {
            self.spots[index] = PodPlace::Node(at);
        }
        if at < self.view.existing {
            // Scaling down may have to remove these pods from the node again, so each pod is placed
            // individually.
            for &index in taken {
                self.view.world.place(self.pods[index].pod, at);
            }
        } else {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.view.world.place_copies(class.sample, count, at);
        }
        class.done += count;
    }

    /// Plans a node of the pool at this place, and adds it to the world.
    pub(super) fn open(&mut self, pool: usize, place: Place, prepared: Option<&mut Prepared>) -> NodeIndex {
        let settings = &self.pools()[pool];
        let mut node = self.prototypes[pool].clone();
        if self.view.world.tells_hosts_apart() {
            let name = format!("{}-new-{}", settings.name, self.planned.len());
            node.node = Arc::new(relabelled(&node.node, &name));
        }
        let index = self.adopt(&node, prepared);
        self.rooms.take(settings, &place);
        self.planned.push(Planned { pool, node: index, place });
        index
    }

    /// Returns why each pool does not take this pod: either the filter that refuses the pod on a fresh node,
    /// or the reason why no fresh node can be created. If a pool has several sizes, the reason is that of the
    /// smallest size that the pod fits or, if the pod fits none, that of the largest size.
    pub(super) fn refusals(
        &self,
        prepared: &Prepared,
        hold: Option<&Hold>,
    ) -> Vec<(usize, Result<NoRoom, Refusal>)> {
        let mut refusals: Vec<(usize, Result<NoRoom, Refusal>)> = Vec::new();
        for (index, pool) in self.pools().iter().enumerate() {
            let answer = match self.view.world.check_fresh(prepared, &self.prototypes[index]) {
                Err(refusal) => Err(refusal),
                Ok(()) => match self.no_machine(pool, hold) {
                    Some(full) => Ok(full),
                    None => continue,
                },
            };
            match refusals.last_mut().filter(|last| self.pools()[last.0].name == pool.name) {
                None => refusals.push((index, answer)),
                Some(last) if last.1.is_err() => *last = (index, answer),
                Some(_) => {}
            }
        }
        refusals
    }

    /// Why no machine of a pool is created for pods that would fit its nodes.
    fn no_machine(&self, pool: &Pool, hold: Option<&Hold>) -> Option<NoRoom> {
        let missed = |why: &str| NoRoom::Missed(why.to_owned());
        if let Some(why) = hold.and_then(|hold| hold.of_pool(&pool.name)) {
            return Some(missed(why));
        }
        self.rooms.next(pool).err().or_else(|| hold.and_then(Hold::bound).map(missed))
    }
}

/// This node under another name.
pub(super) fn relabelled(node: &Node, name: &str) -> Node {
    let mut node = node.clone();
    name.clone_into(&mut node.name);
    node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    node
}
