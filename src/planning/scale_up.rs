//! Scaling up: room for every pending pod, on existing nodes, on machines on their way, else on new machines.
//!
//! Equal pods form a class and are handled together. Pods that other pods can attract or repel are placed one by one;
//! the others fill what is there and then whole nodes, largest first: one node is filled with what is left (first-fit
//! decreasing), and the same filling is repeated as long as the pods for it last.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pending::{Waiting, waiting};
use super::rooms::{Full, Place, Rooms};
use super::verdict::{self, Spot};
use super::{View, fresh, pool_of, ready};
use crate::config::{Expander, Pool};
use crate::model::machine::Phase;
use crate::model::node::Node;
use crate::model::plan::{NewMachine, PodVerdict, PoolGrowth};
use crate::model::pod::Pod;
use crate::model::quantity;
use crate::model::snapshot::STARTING_TAINT;
use crate::scheduling::{NodeIndex, Prepared, Refusal, SimNode, World};

/// What scaling up decided.
pub(super) struct Growth {
    pub pools: Vec<PoolGrowth>,
    pub verdicts: Vec<PodVerdict>,
    /// Pods that were placed on a node that exists, with their nodes.
    pub placed: Vec<(Arc<Pod>, NodeIndex)>,
}

/// Whether a node carries a taint that goes by itself once it is set up.
fn starting(node: &Node, pool: &Pool) -> bool {
    const OURS: [&str; 2] = [STARTING_TAINT, "node.kubernetes.io/not-ready"];
    let passing = |key: &str| OURS.contains(&key) || pool.startup_taints.iter().any(|taint| taint.key == key);
    node.taints.iter().any(|taint| passing(&taint.key))
}

/// A node that does not exist yet.
pub(super) struct Planned {
    pub pool: usize,
    pub node: NodeIndex,
    pub place: Place,
}

/// Pods that are equal but for their names.
struct Class {
    pods: Vec<usize>,
    priority: i32,
    /// How many are placed: the first ones.
    done: usize,
}

impl Class {
    fn left(&self) -> usize {
        self.pods.len() - self.done
    }
}

/// State of one decision.
pub(super) struct Packer<'v, 'a> {
    pub view: &'v mut View<'a>,
    pub rooms: Rooms,
    pub pods: Vec<Waiting>,
    pub spots: Vec<Spot>,
    pub planned: Vec<Planned>,
    pub prototypes: Vec<SimNode>,
    /// Machines on their way: their nodes in the world.
    pub upcoming: BTreeMap<NodeIndex, String>,
}

pub(super) fn decide(view: &mut View) -> Growth {
    let pods = waiting(view);
    let prototypes =
        view.config.pools.iter().map(|pool| fresh::node(view, pool, &format!("{}-new", pool.name)));
    let mut packer = Packer {
        rooms: Rooms::new(view),
        spots: vec![Spot::None; pods.len()],
        pods,
        planned: Vec::new(),
        prototypes: prototypes.collect(),
        upcoming: BTreeMap::new(),
        view,
    };
    packer.add_upcoming();
    packer.place_nominated();
    let mut classes = packer.classes();
    packer.fill_known(&mut classes);
    packer.reach_minimum();
    packer.pack(&mut classes);
    let verdicts = verdict::pods(&packer);
    packer.into_growth(verdicts)
}

impl Packer<'_, '_> {
    fn pools(&self) -> &[Pool] {
        &self.view.config.pools
    }

    fn into_growth(self, verdicts: Vec<PodVerdict>) -> Growth {
        let existing = self.view.existing;
        let placed = self
            .pods
            .iter()
            .zip(&self.spots)
            .filter_map(|(waiting, spot)| match spot {
                Spot::Node(node) if *node < existing => Some((waiting.pod.clone(), *node)),
                _ => None,
            })
            .collect();
        Growth { pools: self.growth(), verdicts, placed }
    }

    fn growth(&self) -> Vec<PoolGrowth> {
        let mut on: BTreeMap<NodeIndex, Vec<String>> = BTreeMap::new();
        for (waiting, spot) in self.pods.iter().zip(&self.spots) {
            if let (Spot::Node(node), true) = (spot, waiting.listed) {
                on.entry(*node).or_default().push(waiting.pod.id());
            }
        }
        let mut pools = Vec::new();
        for (index, pool) in self.pools().iter().enumerate() {
            let seed = self.view.snapshot.memory.name_seed;
            let machines: Vec<_> = self
                .planned
                .iter()
                .filter(|planned| planned.pool == index)
                .map(|planned| NewMachine {
                    name: planned
                        .place
                        .slot
                        .as_ref()
                        .map(|slot| super::names::machine(&pool.name, seed, slot.vmid)),
                    vmid: planned.place.slot.as_ref().map(|slot| slot.vmid),
                    address: planned.place.slot.as_ref().and_then(|slot| slot.address),
                    host: planned.place.host.clone(),
                    cores: pool.cores,
                    memory: quantity::binary(pool.memory),
                    memory_bytes: pool.memory,
                    pods: on.get(&planned.node).cloned().unwrap_or_default(),
                })
                .collect();
            if !machines.is_empty() {
                pools.push(PoolGrowth { pool: pool.name.clone(), machines });
            }
        }
        pools
    }

    /// Machines without a node, and nodes that registered but are not ready for the first time yet, offer what a fresh
    /// node of their pool does.
    fn add_upcoming(&mut self) {
        let snapshot = self.view.snapshot;
        let startup = self.view.config.scale_up.max_node_provision_time;
        for at in 0..self.view.existing {
            let node = self.view.world.node(at).node.clone();
            let young = node.created.is_some_and(|created| {
                let age = snapshot.time.duration_since(created);
                age.unsigned_abs() < startup
            });
            let Some(pool) =
                pool_of(&node).and_then(|name| self.pools().iter().position(|pool| pool.name == name))
            else {
                continue;
            };
            let coming = !ready(&node) || starting(&node, &self.pools()[pool]);
            if coming && young && self.view.world.node(at).open {
                let mut replacement = self.prototypes[pool].clone();
                replacement.node = Arc::new(relabelled(&self.prototypes[pool].node, &node.name));
                self.view.world.forget(at);
                let index = self.adopt(replacement);
                self.upcoming.insert(index, node.name.clone());
            }
        }
        for machine in snapshot.proxmox.machines.iter().flatten() {
            let name = machine.node.as_ref().unwrap_or(&machine.name);
            let registered = snapshot.nodes.iter().any(|node| node.name == *name);
            let Some(pool) = self.pools().iter().position(|pool| pool.name == machine.pool) else { continue };
            if registered || machine.phase >= Phase::Draining {
                continue;
            }
            let mut node = self.prototypes[pool].clone();
            node.node = Arc::new(relabelled(&self.prototypes[pool].node, &machine.name));
            let index = self.adopt(node);
            self.upcoming.insert(index, machine.name.clone());
        }
    }

    /// Takes a node with the pods that it holds into the world.
    fn adopt(&mut self, node: SimNode) -> NodeIndex {
        let index = self.view.world.add_node(node.node);
        for pod in &node.pods {
            self.view.world.place(pod, index);
        }
        index
    }

    /// A nominated pod has its node: preemption makes the room.
    fn place_nominated(&mut self) {
        for index in 0..self.pods.len() {
            let waiting = &self.pods[index];
            let nominated = waiting.pod.nominated_node.as_deref().filter(|_| waiting.settled.is_none());
            let at = nominated.and_then(|name| {
                let world = &self.view.world;
                (0..self.view.existing).find(|&at| world.node(at).open && world.node(at).node.name == name)
            });
            if let Some(at) = at {
                self.view.world.place(&waiting.pod, at);
                self.spots[index] = Spot::Node(at);
            }
        }
    }

    /// Classes of what is still waiting: by priority, largest first, then in the snapshot's order.
    fn classes(&self) -> Vec<Class> {
        let mut by_key: BTreeMap<ClassKey, usize> = BTreeMap::new();
        let mut classes: Vec<Class> = Vec::new();
        for (index, waiting) in self.pods.iter().enumerate() {
            if waiting.settled.is_some() || self.spots[index] != Spot::None {
                continue;
            }
            let next = classes.len();
            let class = *by_key.entry(ClassKey::new(&waiting.pod)).or_insert(next);
            if class == next {
                classes.push(Class { pods: Vec::new(), priority: waiting.priority, done: 0 });
            }
            classes[class].pods.push(index);
        }
        drop(by_key);
        let most_cpu =
            self.prototypes.iter().map(|one| one.node.allocatable.cpu_milli).max().unwrap_or(0).max(1);
        let most_memory =
            self.prototypes.iter().map(|one| one.node.allocatable.memory).max().unwrap_or(0).max(1);
        let size = |class: &Class| {
            let requests = &self.pods[class.pods[0]].pod.requests;
            let part = |amount: i64, most: i64| i128::from(amount) * 1_000_000 / i128::from(most);
            part(requests.cpu_milli, most_cpu) + part(requests.memory, most_memory)
        };
        classes.sort_by_cached_key(|class| {
            (std::cmp::Reverse(class.priority), std::cmp::Reverse(size(class)), class.pods[0])
        });
        classes
    }

    /// Existing nodes and machines on their way first.
    fn fill_known(&mut self, classes: &mut [Class]) {
        let nodes: Vec<NodeIndex> = (0..self.view.world.nodes().len()).collect();
        self.until_no_progress(classes, |packer, class| packer.fill(class, &nodes));
    }

    /// Repeats passes over the classes as long as one places a pod: pods can wait for each other's affinity.
    fn until_no_progress(&mut self, classes: &mut [Class], mut step: impl FnMut(&mut Self, &mut Class)) {
        let waiting = |classes: &[Class]| classes.iter().map(Class::left).sum::<usize>();
        let attracted = classes.iter().any(|class| !self.pods[class.pods[0]].pod.affinity.pods.is_empty());
        loop {
            let before = waiting(classes);
            for class in classes.iter_mut().filter(|class| class.left() > 0) {
                step(self, class);
            }
            if !attracted || waiting(classes) == before {
                return;
            }
        }
    }

    /// Places as many pods of a class as fit on these nodes, first fit.
    fn fill(&mut self, class: &mut Class, nodes: &[NodeIndex]) {
        let sample = self.pods[class.pods[class.done]].pod.clone();
        let mut prepared = self.view.world.prepare(&sample);
        let lasting = prepared.refusals_last();
        let mut from = 0;
        while class.left() > 0 {
            let fits = |at: &&NodeIndex| {
                self.view.world.node(**at).open && self.view.world.check(&prepared, **at).is_ok()
            };
            let Some(found) = nodes[from..].iter().position(|at| fits(&at)) else { return };
            let at = nodes[from + found];
            if lasting {
                from += found;
            }
            self.put(class, &mut prepared, at);
        }
    }

    fn put(&mut self, class: &mut Class, prepared: &mut Prepared, at: NodeIndex) {
        let index = class.pods[class.done];
        let pod = self.pods[index].pod.clone();
        self.view.world.place_prepared(prepared, &pod, at);
        self.spots[index] = Spot::Node(at);
        class.done += 1;
    }

    /// Pools below their minimum grow whether pods wait or not.
    fn reach_minimum(&mut self) {
        for index in 0..self.pools().len() {
            let pool = &self.pools()[index];
            let (name, min) = (pool.name.clone(), pool.min);
            let leaving = (0..self.view.existing)
                .filter(|&at| pool_of(&self.view.snapshot.nodes[at]) == Some(&name))
                .filter(|&at| super::being_deleted(&self.view.snapshot.nodes[at]))
                .count();
            let leaving = u32::try_from(leaving).unwrap_or(u32::MAX);
            while self.rooms.count(&name).saturating_sub(leaving) < min {
                let Ok(place) = self.rooms.next(&self.pools()[index]) else { break };
                self.open(index, place);
            }
        }
    }

    /// Plans a node of the pool there, and takes it into the world.
    fn open(&mut self, pool: usize, place: Place) -> NodeIndex {
        let name = format!("{}-new-{}", self.pools()[pool].name, self.planned.len());
        let mut node = self.prototypes[pool].clone();
        node.node = Arc::new(relabelled(&self.prototypes[pool].node, &name));
        let index = self.adopt(node);
        let pool_settings = &self.view.config.pools[pool];
        self.rooms.take(pool_settings, &place);
        self.planned.push(Planned { pool, node: index, place });
        index
    }

    /// New machines: first for pods that other pods attract or repel, then for all the others.
    fn pack(&mut self, classes: &mut [Class]) {
        let (mut social, mut plain): (Vec<Class>, Vec<Class>) = (Vec::new(), Vec::new());
        for class in classes.iter_mut() {
            let taken =
                Class { pods: std::mem::take(&mut class.pods), priority: class.priority, done: class.done };
            if taken.left() == 0 {
                continue;
            }
            let sample = &self.pods[taken.pods[taken.done]].pod;
            let list = if self.view.world.prepare(sample).is_plain() { &mut plain } else { &mut social };
            list.push(taken);
        }
        loop {
            let before: usize = social.iter().chain(&plain).map(Class::left).sum();
            for class in social.iter_mut().filter(|class| class.left() > 0) {
                self.pack_one_by_one(class);
            }
            self.pack_plain(&mut plain);
            let after: usize = social.iter().chain(&plain).map(Class::left).sum();
            if after == 0 || after == before {
                return;
            }
        }
    }

    fn pack_one_by_one(&mut self, class: &mut Class) {
        let sample = self.pods[class.pods[class.done]].pod.clone();
        let mut prepared = self.view.world.prepare(&sample);
        let lasting = prepared.refusals_last();
        let mut from = self.view.existing;
        while class.left() > 0 {
            let world = &self.view.world;
            let fits = |at: &NodeIndex| world.node(*at).open && world.check(&prepared, *at).is_ok();
            if let Some(at) = (from..world.nodes().len()).find(fits) {
                if lasting {
                    from = at;
                }
                self.put(class, &mut prepared, at);
                continue;
            }
            if lasting {
                from = world.nodes().len();
            }
            let Some((pool, place)) = self.choose(&prepared, &[(class.left(), sample.clone())]) else {
                return;
            };
            let name = format!("{}-new-{}", self.pools()[pool].name, self.planned.len());
            let mut node = self.prototypes[pool].clone();
            node.node = Arc::new(relabelled(&self.prototypes[pool].node, &name));
            let at = self.view.world.add_node_prepared(&mut prepared, node.node);
            for pod in &node.pods {
                self.view.world.place_prepared(&mut prepared, pod, at);
            }
            self.rooms.take(&self.view.config.pools[pool], &place);
            self.planned.push(Planned { pool, node: at, place });
            self.put(class, &mut prepared, at);
        }
    }

    fn pack_plain(&mut self, classes: &mut [Class]) {
        let opened: Vec<NodeIndex> = (self.view.existing..self.view.world.nodes().len()).collect();
        for class in classes.iter_mut().filter(|class| class.left() > 0) {
            self.fill(class, &opened);
        }
        for first in 0..classes.len() {
            while classes[first].left() > 0 {
                let sample = self.pods[classes[first].pods[classes[first].done]].pod.clone();
                let prepared = self.view.world.prepare(&sample);
                let rest: Vec<_> = classes[first..]
                    .iter()
                    .filter(|class| class.left() > 0)
                    .map(|class| (class.left(), self.pods[class.pods[class.done]].pod.clone()))
                    .collect();
                let Some((pool, place)) = self.choose(&prepared, &rest) else { break };
                self.fill_new(pool, place, &mut classes[first..]);
            }
        }
    }

    /// Opens a node, fills it with what is left, and repeats the same filling while its pods and the room last.
    fn fill_new(&mut self, pool: usize, place: Place, classes: &mut [Class]) {
        let at = self.open(pool, place);
        let mut filling = Vec::new();
        for (number, class) in classes.iter_mut().enumerate().filter(|(_, class)| class.left() > 0) {
            let before = class.done;
            self.fill(class, &[at]);
            if class.done > before {
                filling.push((number, class.done - before));
            }
        }
        if filling.is_empty() {
            return;
        }
        while filling.iter().all(|&(number, count)| classes[number].left() >= count) {
            let Ok(place) = self.rooms.next(&self.view.config.pools[pool]) else { return };
            let at = self.open(pool, place);
            for &(number, count) in &filling {
                let class = &mut classes[number];
                for _ in 0..count {
                    let index = class.pods[class.done];
                    self.view.world.place(&self.pods[index].pod, at);
                    self.spots[index] = Spot::Node(at);
                    class.done += 1;
                }
            }
        }
    }

    /// The pool whose next node suits best, among those with room for a node that takes the pod.
    fn choose(&self, prepared: &Prepared, rest: &[(usize, Arc<Pod>)]) -> Option<(usize, Place)> {
        let world = &self.view.world;
        let mut best: Option<(Score, usize, Place)> = None;
        for (index, pool) in self.pools().iter().enumerate() {
            let node = &self.prototypes[index];
            if world.check_fresh(prepared, node).is_err() {
                continue;
            }
            let Ok(place) = self.rooms.next(pool) else { continue };
            let (pods, waste) = trial(world, node, rest);
            let score = Score {
                rank: match self.view.config.scale_up.expander {
                    Expander::LeastWaste => (0, 0),
                    Expander::MostPods => (0, -i64::try_from(pods).unwrap_or(i64::MAX)),
                    Expander::Priority => (-i64::from(pool.priority), 0),
                },
                waste,
                count: self.rooms.count(&pool.name),
                name: pool.name.clone(),
            };
            if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                best = Some((score, index, place));
            }
        }
        best.map(|(_, index, place)| (index, place))
    }

    /// Why no pool takes this pod, pool by pool: what refuses it on a fresh node, or why there is no fresh node.
    pub(super) fn refusals(&self, pod: &Arc<Pod>) -> Vec<(usize, Result<Full, Refusal>)> {
        let prepared = self.view.world.prepare(pod);
        let pools = self.pools().iter().enumerate();
        pools
            .filter_map(|(index, pool)| {
                match self.view.world.check_fresh(&prepared, &self.prototypes[index]) {
                    Err(refusal) => Some((index, Err(refusal))),
                    Ok(()) => self.rooms.next(pool).err().map(|full| (index, Ok(full))),
                }
            })
            .collect()
    }
}

/// What makes one pool better than another, best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    rank: (i64, i64),
    waste: i64,
    count: u32,
    name: String,
}

/// How many of the waiting pods a fresh node would take, and what it would leave idle: the sum of the idle parts of CPU
/// and memory, in millionths.
fn trial(world: &World, node: &SimNode, rest: &[(usize, Arc<Pod>)]) -> (usize, i64) {
    let mut node = node.clone();
    let mut taken = 0;
    for (count, pod) in rest {
        let prepared = world.prepare(pod);
        for _ in 0..*count {
            if world.check_fresh(&prepared, &node).is_err() {
                break;
            }
            node.hold(pod);
            taken += 1;
            if !pod.affinity.anti.is_empty() || !pod.spread.is_empty() {
                break;
            }
        }
    }
    let offered = &node.node.allocatable;
    let idle = |offered: i64, used: i64| {
        let part = i128::from((offered - used).max(0)) * 1_000_000 / i128::from(offered.max(1));
        i64::try_from(part).unwrap_or(i64::MAX)
    };
    let waste = idle(offered.cpu_milli, node.used.cpu_milli) + idle(offered.memory, node.used.memory);
    (taken, waste)
}

/// The same node under another name.
fn relabelled(node: &Node, name: &str) -> Node {
    let mut node = node.clone();
    name.clone_into(&mut node.name);
    node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    node
}

/// Everything of a pod that scheduling looks at.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey<'p> {
    namespace: &'p str,
    labels: &'p crate::model::selector::Labels,
    requests: &'p crate::model::Resources,
    selector: &'p crate::model::selector::Labels,
    affinity: &'p crate::model::pod::Affinity,
    tolerations: &'p [crate::model::pod::Toleration],
    spread: &'p [crate::model::pod::SpreadConstraint],
    ports: &'p [crate::model::pod::HostPort],
    volumes: &'p [crate::model::pod::Volume],
    priority: (Option<i32>, &'p str),
    devices: bool,
}

impl<'p> ClassKey<'p> {
    fn new(pod: &'p Pod) -> Self {
        Self {
            namespace: &pod.namespace,
            labels: &pod.labels,
            requests: &pod.requests,
            selector: &pod.node_selector,
            affinity: &pod.affinity,
            tolerations: &pod.tolerations,
            spread: &pod.spread,
            ports: &pod.host_ports,
            volumes: &pod.volumes,
            priority: (pod.priority, &pod.priority_class),
            devices: pod.resource_claims,
        }
    }
}
