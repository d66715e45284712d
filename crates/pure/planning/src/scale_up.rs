//! Scaling up finds room for every pending pod: on existing nodes, on machines that are being created, on
//! machines that grow, or else on new machines.
//!
//! Equal pods form a class and are handled together ([`super::classes`]). Existing and upcoming nodes are
//! filled first. Then [`super::packing`] plans new machines, and [`super::expander`] chooses their pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::capacity::{NoRoom, Place, Rooms};
use super::class::Class;
use super::classes::{self, Demands};
use super::facts::node::{is_young, pool_of, ready};
use super::gangs::Gangs;
use super::groups::Groups;
use super::kind_turns::KindTurns;
use super::machine_growths::Growths;
use super::packer::{Packer, relabelled};
use super::pending::add_leaving;
use super::pod_place::PodPlace;
use super::pod_verdict;
use super::predictions::keep_to_bound;
use super::priorities::Priorities;
use super::scale_up_check::Demand;
use super::scale_up_decision::ScaleUpDecision;
use super::view::View;
use super::{daemons, fresh_node, lost_nodes, requests, upcoming_nodes};
use model::machine::Phase;
use model::node::Node;
use model::plan::{NewMachine, PodOutcome, PodVerdict, PoolGrowth};
use model::pod::Pod;
use model::pod_id::PodId;
use model::quantity;
use model::unfinished::PodTurns;
use scheduling::{NodeIndex, SimNode};

/// What is placed after the real pods: the classes of imagined pods, and, for each gang that is tried
/// separately, its classes.
type Left<'a> = (Vec<Class<'a>>, BTreeMap<usize, Vec<Class<'a>>>);

/// The state after all pods were placed, the groups of pods, and which kinds of pods had their turn.
type Placed<'v, 'a> = (Packer<'v, 'a>, Groups<'a>, KindTurns<'a>);

pub(super) fn decide<'a>(view: &mut View<'a>) -> ScaleUpDecision<'a> {
    let own = view.allowance.clone();
    let (mut packer, groups, turns) = place(view, false);
    packer.view.allowance = packer.view.allowance.and_reasons();
    let (verdicts, on) = pod_verdict::pods(&packer);
    packer.cut |= packer.view.allowance.is_spent();
    packer.view.allowance = own;
    let left = || verdicts.iter().filter(|one| one.verdict == PodOutcome::Unfinished).count();
    let unfinished = turns.next(packer.spent, groups.samples().len(), left);
    packer.into_growth(verdicts, on, unfinished)
}

/// Whether scaling up would create more machines, or leave more pods pending, than `now`. No verdicts or
/// reasons are determined, and no machine grows for the pods.
pub(super) fn asks_more(view: &mut View, now: &Demand) -> bool {
    view.grows = false;
    let (packer, ..) = place(view, now.is_nothing());
    Demand::placed(&packer).exceeds(now)
}

/// Places all pending pods. If `is_enough` is true, may stop as soon as a pod needs more room than there is.
fn place<'v, 'a>(view: &'v mut View<'a>, is_enough: bool) -> Placed<'v, 'a> {
    let (mut pods, mut groups) = (std::mem::take(&mut view.waiting), std::mem::take(&mut view.groups));
    let priorities = Priorities::new(view.snapshot, view.config);
    add_leaving(view, &priorities, &mut pods, &mut groups);
    let turns = KindTurns::take(view, &mut pods, &priorities);
    let gangs = Gangs::find(view, &mut pods, &priorities);
    let prototypes =
        view.offers.iter().map(|pool| fresh_node::node(view, pool, &format!("{}-new", pool.name)));
    let prototypes: Vec<SimNode> = prototypes.collect();
    let mut packer = Packer {
        rooms: Rooms::new(view),
        spots: vec![PodPlace::None; pods.len()],
        pods,
        planned: Vec::new(),
        sizes: super::sizes::costs(view.offers),
        free: prototypes.iter().map(SimNode::free).collect(),
        repelling: daemons::repelling(&prototypes),
        prototypes,
        demands: Demands::default(),
        holds: BTreeMap::new(),
        upcoming: BTreeMap::new(),
        growths: Growths::default(),
        cut: false,
        spent: false,
        partial: false,
        is_enough,
        short: BTreeMap::new(),
        of_minimum: 0,
        gangs,
        dropped: BTreeSet::new(),
        view,
    };
    packer.add_upcoming();
    // Requests and chunks of buffers use the room that real pods leave.
    let imagined = packer.place_with_gangs(groups.samples(), &priorities);
    let (requested, mut chunks): (Vec<Class>, Vec<Class>) =
        imagined.into_iter().partition(|class| requests::is_requested(class.sample));
    packer.cut |= packer.view.allowance.is_spent();
    let spent = packer.cut;
    packer.spent = spent;
    // The real pods that were not looked at may need all the room that is left.
    packer.partial = spent || turns.some_wait();
    packer.view.allowance = packer.view.allowance.and_thought();
    packer.provide(requested);
    if !chunks.is_empty() {
        packer.fill_known(&mut chunks);
        chunks.retain(|class| !class.cut);
        if !packer.partial {
            keep_to_bound(&mut chunks);
            packer.pack(&mut chunks);
        }
    }
    packer.cut |= packer.view.allowance.is_spent();
    packer.fit_sizes();
    (packer, groups, turns)
}

impl<'a> Packer<'_, 'a> {
    /// Places real pods, and plans machines for them. Returns the classes that are to be placed later.
    pub(super) fn place_real(&mut self, samples: &[&'a Arc<Pod>], priorities: &Priorities) -> Left<'a> {
        self.place_nominated();
        let (mut classes, demands) = classes::of(
            &self.pods,
            &self.spots,
            samples,
            priorities,
            &self.view.world,
            &self.prototypes,
            &self.view.allowance,
        );
        self.demands = demands;
        self.hold_back(&mut classes);
        self.demands.compare(&self.prototypes);
        let (imagined, mut classes): (Vec<Class>, Vec<Class>) =
            classes.into_iter().partition(|class| class.sample.chunk);
        let apart = self.gangs.take_apart(&mut classes);
        self.fill_known(&mut classes);
        classes.retain(|class| !class.cut);
        if self.is_enough && self.is_short(&classes) {
            self.cut = true;
            return (Vec::new(), BTreeMap::new());
        }
        self.grow(&mut classes);
        keep_to_bound(&mut classes);
        self.reach_minimum();
        self.of_minimum = self.planned.len();
        self.pack(&mut classes);
        (imagined, apart)
    }

    /// Whether it is certain that a machine will be created or a pod will stay pending. This is the case if a
    /// pod is left over, no machine that could take it is being created, and no gang is waiting to be tried.
    fn is_short(&self, classes: &[Class]) -> bool {
        let mut left = classes.iter().flat_map(|class| &class.pods[class.done..]);
        self.upcoming.is_empty() && self.gangs.all.is_empty() && left.any(|&pod| self.pods[pod].listed)
    }

    fn into_growth(
        self,
        verdicts: Vec<PodVerdict>,
        on: Vec<Vec<PodId>>,
        unfinished: Option<PodTurns>,
    ) -> ScaleUpDecision<'a> {
        let existing = self.view.existing;
        let named: BTreeMap<&str, NodeIndex> =
            (0..existing).map(|at| (&*self.view.snapshot.nodes[at].name, at)).collect();
        // The world contains each starting node twice: as it is now, and as it is expected to be once it is
        // ready.
        let real = |node: NodeIndex| match self.upcoming.get(&node) {
            Some(name) => named.get(name.as_str()).copied(),
            None => (node < existing).then_some(node),
        };
        let placed = self
            .pods
            .iter()
            .zip(&self.spots)
            .filter_map(|(waiting, spot)| match spot {
                PodPlace::Node(node) => Some((waiting.pod, real(*node)?)),
                PodPlace::None => None,
            })
            .collect();
        let homeless = self.pods.iter().zip(&self.spots);
        let homeless = homeless.filter(|(pod, spot)| !pod.listed && **spot == PodPlace::None);
        ScaleUpDecision {
            pools: self.growth(on),
            grown: self.grown(),
            growing: self.growths.nodes,
            verdicts,
            placed,
            upcoming: self.upcoming,
            homeless: homeless.map(|(waiting, _)| waiting.pod).collect(),
            short: self.short.into_iter().map(|(pool, why)| why.of(pool.into())).collect(),
            rooms: self.rooms,
            unfinished,
            cut: self.cut,
        }
    }

    /// The new machines by pool; `on` contains the pods of each machine.
    fn growth(&self, on: Vec<Vec<PodId>>) -> Vec<PoolGrowth> {
        let seed = self.view.snapshot.memory.name_seed;
        let config = self.view.config;
        let mut pools: Vec<PoolGrowth> = config
            .pools
            .iter()
            .map(|pool| PoolGrowth { pool: pool.name.clone(), machines: Vec::new() })
            .collect();
        let made = self.planned.iter().zip(on).enumerate();
        for (planned, pods) in made.filter(|(number, _)| !self.dropped.contains(number)).map(|(_, one)| one) {
            let pool = &self.pools()[planned.pool];
            let slot = planned.place.slot.as_ref();
            let woken = planned.place.woken.as_ref();
            let Some(growth) = pools.iter_mut().find(|one| one.pool == pool.name) else { continue };
            growth.machines.push(NewMachine {
                name: woken
                    .map(|woken| woken.name.clone())
                    .or_else(|| slot.map(|slot| super::names::machine_name(&pool.name, seed, slot))),
                vmid: woken.map(|woken| woken.vmid).or_else(|| slot.map(|slot| slot.vmid)),
                address: slot.and_then(|slot| slot.address),
                further_addresses: slot.map(|slot| slot.further.clone()).unwrap_or_default(),
                host: planned.place.host.clone(),
                storage: planned.place.storage.clone(),
                cores: pool.cores,
                memory: quantity::binary(pool.memory),
                memory_bytes: pool.memory,
                pods,
                woken: woken.map(|woken| woken.state),
            });
        }
        pools.retain(|pool| !pool.machines.is_empty());
        pools
    }

    /// Adds machines without a node, and nodes that have registered but have never been ready, to the world.
    /// They offer what a fresh node of their pool does.
    fn add_upcoming(&mut self) {
        let (snapshot, config) = (self.view.snapshot, self.view.config);
        let machines = snapshot.proxmox.machines.iter().flatten();
        let served: BTreeSet<&str> = machines
            .filter(|machine| machine.phase >= Phase::Ready)
            .filter_map(|machine| machine.node.as_deref())
            .collect();
        for at in 0..self.view.existing {
            let node = self.view.world.node(at).node.clone();
            let Some(pool) = pool_of(&node)
                .and_then(|name| self.offer_of(name, self.view.machines.get(&*node.name).copied()))
            else {
                continue;
            };
            let young = is_young(&node, snapshot, config);
            let starting = upcoming_nodes::is_starting(&node, &self.pools()[pool]);
            // A node that is no longer ready offers nothing, and it is unknown when it will be ready again.
            let comes =
                if was_ready(&node, &served) { starting && ready(&node) } else { starting || !ready(&node) };
            if comes && young && self.view.world.node(at).open {
                let mut soon = relabelled(&self.prototypes[pool].node, &node.name);
                soon.taints = upcoming_nodes::lasting_taints(&node, &self.pools()[pool]);
                soon.unschedulable = node.unschedulable;
                self.view.world.forget(at);
                let index = self.expect_node(soon, pool, Some(at));
                self.upcoming.insert(index, node.name.clone());
            }
        }
        for machine in snapshot.proxmox.machines.iter().flatten() {
            if !upcoming_nodes::is_coming(machine, self.view) {
                continue;
            }
            let Some(pool) = self.offer_of(&machine.pool, Some(machine)) else { continue };
            let node = relabelled(&self.prototypes[pool].node, &machine.name);
            let index = self.expect_node(node, pool, None);
            self.upcoming.insert(index, machine.name.clone());
        }
    }

    /// Places nominated pods on their nodes, because preemption makes room for them.
    fn place_nominated(&mut self) {
        for index in 0..self.pods.len() {
            let waiting = &self.pods[index];
            // If a pod has lost its node, its nomination is ignored, because it names the lost node.
            let looks = waiting.settled.is_none() && waiting.marks.nominated && waiting.pod.node.is_none();
            let nominated = looks.then(|| waiting.pod.nominated_node.as_deref()).flatten();
            let at = nominated
                .and_then(|name| self.view.named.find(name).filter(|&at| self.view.world.node(at).open));
            if let Some(at) = at {
                self.view.world.place(waiting.pod, at);
                self.spots[index] = PodPlace::Node(at);
            }
        }
    }

    /// Plans machines for pools below their minimum, whether pods are pending or not. Lost nodes do not count
    /// towards the minimum.
    fn reach_minimum(&mut self) {
        let lost = lost_nodes::lost(self.view);
        for pool in &self.view.config.pools {
            let min = pool.min + lost.get(pool.name.as_str()).unwrap_or(&0);
            while self.rooms.staying(&pool.name) < min {
                match self.place_of_minimum(&pool.name) {
                    Ok((offer, place)) => drop(self.open(offer, place, None)),
                    Err(why) => {
                        self.short.insert(pool.name.to_string(), why);
                        break;
                    }
                }
            }
        }
    }

    /// Returns a place for a machine that the pool needs to reach its minimum. The machine gets the first
    /// size for which there is a place, on the best host. If there is no place for any size, returns the
    /// reason for the last size.
    fn place_of_minimum(&self, name: &str) -> Result<(usize, Place), NoRoom> {
        let mut best: Option<(usize, usize, Place)> = None;
        let mut refusal = NoRoom::NoSlot;
        for (offer, pool) in self.pools().iter().enumerate().filter(|(_, pool)| pool.name == name) {
            let size = pool.sizes.iter().position(|one| (one.cores, one.memory) == (pool.cores, pool.memory));
            let size = size.unwrap_or(0);
            match self.rooms.next_of_minimum(pool) {
                Ok(place) => {
                    let is_better =
                        |(other, _, best): &(usize, usize, Place)| (size, place.rank) < (*other, best.rank);
                    if best.as_ref().is_none_or(is_better) {
                        best = Some((size, offer, place));
                    }
                }
                Err(why) => refusal = why,
            }
        }
        best.map(|(_, offer, place)| (offer, place)).ok_or(refusal)
    }
}

/// Whether the node has ever been ready. This is known if its machine was ready (the node is among `served`),
/// or if the node is unreachable: the control plane marks a node as unreachable only if it has heard from the
/// kubelet before.
fn was_ready(node: &Node, served: &BTreeSet<&str>) -> bool {
    let unreachable = node.taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable");
    unreachable || served.contains(node.name.as_str())
}
