//! Scaling up: room for every pending pod, on existing nodes, on machines on their way, on machines that
//! grow, else on new ones.
//!
//! Equal pods form a class and are handled together ([`super::classes`]). What is there is filled first; how
//! new machines are planned is in [`super::packing`], which pool grows in [`super::choosing`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::View;
use super::classes::{self, Class, Demands};
use super::coming;
use super::daemons;
use super::facts::node::{pool_of, ready};
use super::fresh;
use super::gangs::Gangs;
use super::grow::Growths;
use super::kind_turns::KindTurns;
use super::limits;
use super::pending::{Priorities, Waiting, add_leaving};
use super::predictions::{Hold, keep_to_bound};
use super::repair;
use super::requests;
use super::rooms::{Full, Place, Rooms};
use super::search::Search;
use super::verdict::{self, Spot};
use model::machine::Phase;
use model::node::Node;
use model::plan::{GrownMachine, NewMachine, PodOutcome, PodVerdict, PoolGrowth, PoolReason};
use model::pod::Pod;
use model::unfinished::PodTurns;
use model::{Resources, quantity};
use scheduling::{NodeIndex, Prepared, Refusal, SimNode, World};
use settings::Pool;

/// What scaling up decided.
pub(super) struct Growth<'a> {
    pub pools: Vec<PoolGrowth>,
    /// Running machines that are to grow.
    pub grown: Vec<GrownMachine>,
    /// Nodes whose machines grow, now or by this decision.
    pub growing: BTreeSet<NodeIndex>,
    pub verdicts: Vec<PodVerdict>,
    /// Pods that were placed on a node that exists, be it still starting, with their nodes.
    pub placed: Vec<(&'a Arc<Pod>, NodeIndex)>,
    /// Machines on their way: their nodes in the world.
    pub upcoming: BTreeMap<NodeIndex, String>,
    /// Pods of nodes on their way out that find no place.
    pub homeless: Vec<&'a Arc<Pod>>,
    /// Pools that stay below their minimum, and why.
    pub short: Vec<PoolReason>,
    /// What is left for more machines.
    pub rooms: Rooms<'a>,
    /// Pods that were not looked at, and where the next round goes on.
    pub unfinished: Option<PodTurns>,
    /// Not all was looked at that was to be: there may be more that is needed.
    pub cut: bool,
}

/// A node that does not exist yet.
pub(super) struct Planned {
    pub pool: usize,
    pub node: NodeIndex,
    pub place: Place,
}

/// State of one decision.
pub(super) struct Packer<'v, 'a> {
    pub view: &'v mut View<'a>,
    pub rooms: Rooms<'a>,
    pub pods: Vec<Waiting<'a>>,
    pub spots: Vec<Spot>,
    /// New nodes stand next to each other in the world, in this order.
    pub planned: Vec<Planned>,
    /// A fresh node of each pool.
    pub prototypes: Vec<SimNode>,
    /// What it offers.
    pub free: Vec<Resources>,
    /// Pods of DaemonSets on such nodes that keep others away.
    pub repelling: Vec<Arc<Pod>>,
    /// What a machine of each takes from its host: cores and memory in millionths of the largest, summed.
    pub sizes: Vec<i64>,
    pub demands: Demands,
    /// What missed predictions hold back, by the number of the group of pods.
    pub holds: BTreeMap<usize, Arc<Hold>>,
    /// Machines on their way: their nodes in the world.
    pub upcoming: BTreeMap<NodeIndex, String>,
    /// Machines that grow where they are.
    pub growths: Growths,
    /// Not all of what waits was looked at.
    pub cut: bool,
    /// Not all real pods were.
    pub spent: bool,
    /// Nor was it to be: some real pods have no turn in this round.
    pub partial: bool,
    /// Why pools stay below their minimum, by pool.
    short: BTreeMap<String, Full>,
    /// The first this many of the new machines are there for the minimum of their pools.
    pub of_minimum: usize,
    /// Gangs that wait.
    pub gangs: Gangs<'a>,
    /// New machines that are not made: they were for gangs that a later round looks at.
    pub dropped: BTreeSet<usize>,
}

/// Classes of pods in thought, and those of gangs that are tried by themselves.
type Left<'a> = (Vec<Class<'a>>, BTreeMap<usize, Vec<Class<'a>>>);

pub(super) fn decide<'a>(view: &mut View<'a>) -> Growth<'a> {
    let (mut pods, mut groups) = (std::mem::take(&mut view.waiting), std::mem::take(&mut view.groups));
    let priorities = Priorities::new(view.snapshot, view.config);
    add_leaving(view, &priorities, &mut pods, &mut groups);
    let turns = KindTurns::take(view, &mut pods, &priorities);
    let gangs = Gangs::find(view, &mut pods, &priorities);
    let prototypes = view.offers.iter().map(|pool| fresh::node(view, pool, &format!("{}-new", pool.name)));
    let prototypes: Vec<SimNode> = prototypes.collect();
    let mut packer = Packer {
        rooms: Rooms::new(view),
        spots: vec![Spot::None; pods.len()],
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
        short: BTreeMap::new(),
        of_minimum: 0,
        gangs,
        dropped: BTreeSet::new(),
        view,
    };
    packer.add_upcoming();
    // Requests and chunks of buffers get what all pods leave.
    let imagined = packer.place_with_gangs(groups.samples(), &priorities);
    let (requested, mut chunks): (Vec<Class>, Vec<Class>) =
        imagined.into_iter().partition(|class| requests::is_requested(class.sample));
    packer.cut |= packer.view.allowance.is_spent();
    let spent = packer.cut;
    packer.spent = spent;
    // What real pods need that were not looked at is not known: it may be all that is left.
    packer.partial = spent || turns.some_wait();
    let own = packer.view.allowance.clone();
    packer.view.allowance = own.and_thought();
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
    packer.view.allowance = packer.view.allowance.and_reasons();
    let (verdicts, on) = verdict::pods(&packer);
    packer.cut |= packer.view.allowance.is_spent();
    packer.view.allowance = own;
    let left = verdicts.iter().filter(|one| one.verdict == PodOutcome::Unfinished).count();
    let unfinished = turns.next(spent, groups.samples().len(), left);
    packer.into_growth(verdicts, on, unfinished)
}

impl<'a> Packer<'_, 'a> {
    /// Places what waits, and plans machines for it.
    pub(super) fn place_real(&mut self, samples: &[&'a Arc<Pod>], priorities: &Priorities) -> Left<'a> {
        self.place_nominated();
        let (mut classes, demands) = classes::of(
            &self.pods,
            &self.spots,
            samples,
            priorities,
            (&self.view.world, &self.prototypes),
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
        self.grow(&mut classes);
        keep_to_bound(&mut classes);
        self.reach_minimum();
        self.of_minimum = self.planned.len();
        self.pack(&mut classes);
        (imagined, apart)
    }

    /// Takes back all that was placed: these are the world and the rooms of before.
    pub(super) fn start_over(&mut self, (world, rooms): (World, Rooms<'a>)) {
        (self.view.world, self.rooms) = (world, rooms);
        self.spots.fill(Spot::None);
        self.planned.clear();
        self.growths = Growths::default();
        self.holds.clear();
        self.short.clear();
        self.cut = false;
    }

    /// The pools, once for each size of their machines.
    pub(super) fn pools(&self) -> &'a [Pool] {
        self.view.offers
    }

    fn into_growth(
        self,
        verdicts: Vec<PodVerdict>,
        on: Vec<Vec<Arc<str>>>,
        unfinished: Option<PodTurns>,
    ) -> Growth<'a> {
        let existing = self.view.existing;
        let named: BTreeMap<&str, NodeIndex> =
            (0..existing).map(|at| (&*self.view.snapshot.nodes[at].name, at)).collect();
        // A node that is still starting is in the world a second time, as it will be.
        let real = |node: NodeIndex| match self.upcoming.get(&node) {
            Some(name) => named.get(name.as_str()).copied(),
            None => (node < existing).then_some(node),
        };
        let placed = self
            .pods
            .iter()
            .zip(&self.spots)
            .filter_map(|(waiting, spot)| match spot {
                Spot::Node(node) => Some((waiting.pod, real(*node)?)),
                Spot::None => None,
            })
            .collect();
        let homeless = self.pods.iter().zip(&self.spots);
        let homeless = homeless.filter(|(pod, spot)| !pod.listed && **spot == Spot::None);
        Growth {
            pools: self.growth(on),
            grown: self.grown(),
            growing: self.growths.nodes,
            verdicts,
            placed,
            upcoming: self.upcoming,
            homeless: homeless.map(|(waiting, _)| waiting.pod).collect(),
            short: self.short.into_iter().map(|(pool, why)| why.of(pool)).collect(),
            rooms: self.rooms,
            unfinished,
            cut: self.cut,
        }
    }

    /// The new machine that a node of the world stands for.
    pub(super) fn machine_at(&self, node: NodeIndex) -> Option<usize> {
        let first = self.planned.first()?.node;
        node.checked_sub(first).filter(|number| *number < self.planned.len())
    }

    /// Whether it is a new node that is not made.
    #[inline]
    pub(super) fn is_dropped(&self, node: NodeIndex) -> bool {
        !self.dropped.is_empty() && self.machine_at(node).is_some_and(|number| self.dropped.contains(&number))
    }

    /// The new machines by pool; `on` is what goes on each.
    fn growth(&self, on: Vec<Vec<Arc<str>>>) -> Vec<PoolGrowth> {
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
                    .or_else(|| slot.map(|slot| super::names::of(&pool.name, seed, slot))),
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

    /// Machines without a node, and nodes that registered but are not ready for the first time yet, offer
    /// what a fresh node of their pool does.
    fn add_upcoming(&mut self) {
        let (snapshot, config) = (self.view.snapshot, self.view.config);
        let by_node = limits::by_node(snapshot.proxmox.machines.as_deref());
        let machines = snapshot.proxmox.machines.iter().flatten();
        let served: BTreeSet<&str> = machines
            .filter(|machine| machine.phase >= Phase::Ready)
            .filter_map(|machine| machine.node.as_deref())
            .collect();
        for at in 0..self.view.existing {
            let node = self.view.world.node(at).node.clone();
            let Some(pool) =
                pool_of(&node).and_then(|name| self.offer_of(name, by_node.get(&*node.name).copied()))
            else {
                continue;
            };
            let young = node.created.is_some_and(|created| coming::is_young(created, snapshot, config));
            let starting = coming::is_starting(&node, &self.pools()[pool]);
            // One that is no longer ready offers nothing, and it is not known when it will again.
            let comes =
                if was_ready(&node, &served) { starting && ready(&node) } else { starting || !ready(&node) };
            if comes && young && self.view.world.node(at).open {
                let mut soon = relabelled(&self.prototypes[pool].node, &node.name);
                soon.taints = coming::lasting_taints(&node, &self.pools()[pool]);
                soon.unschedulable = node.unschedulable;
                self.view.world.forget(at);
                let index = self.expect_node(soon, pool, Some(at));
                self.upcoming.insert(index, node.name.clone());
            }
        }
        for machine in snapshot.proxmox.machines.iter().flatten() {
            if !coming::is_coming(machine, self.view) {
                continue;
            }
            let Some(pool) = self.offer_of(&machine.pool, Some(machine)) else { continue };
            let node = relabelled(&self.prototypes[pool].node, &machine.name);
            let index = self.expect_node(node, pool, None);
            self.upcoming.insert(index, machine.name.clone());
        }
    }

    /// Takes a node with the pods that it holds into the world.
    pub(super) fn adopt(&mut self, node: &SimNode, mut prepared: Option<&mut Prepared>) -> NodeIndex {
        let world = &mut self.view.world;
        let index = match &mut prepared {
            Some(prepared) => world.add_node_prepared(prepared, node.node.clone()),
            None => world.add_node(node.node.clone()),
        };
        world.expect(index, node);
        for pod in &node.pods {
            match &mut prepared {
                Some(prepared) => world.place_prepared(prepared, pod, index),
                None => world.place(pod, index),
            }
        }
        index
    }

    /// A nominated pod has its node: preemption makes the room.
    fn place_nominated(&mut self) {
        for index in 0..self.pods.len() {
            let waiting = &self.pods[index];
            // One that has lost its node had its nomination there.
            let looks =
                waiting.settled.is_none() && waiting.pod.digest().nominated && waiting.pod.node.is_none();
            let nominated = waiting.pod.nominated_node.as_deref().filter(|_| looks);
            let at = nominated
                .and_then(|name| self.view.named.find(name).filter(|&at| self.view.world.node(at).open));
            if let Some(at) = at {
                self.view.world.place(waiting.pod, at);
                self.spots[index] = Spot::Node(at);
            }
        }
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
        let open = nodes.filter(|&at| !self.is_closed_to(class, at));
        let mut search = Search::new(&self.view.world, &prepared, open);
        while class.left() > 0 {
            if self.view.allowance.is_spent() {
                class.cut = true;
                return;
            }
            let Some(at) = search.next(&self.view.world, &prepared) else { return };
            self.put(class, &mut prepared, at);
        }
    }

    /// Places the next pod of a class.
    pub(super) fn put(&mut self, class: &mut Class<'a>, prepared: &mut Prepared, at: NodeIndex) {
        let index = class.pods[class.done];
        self.view.world.place_prepared(prepared, self.pods[index].pod, at);
        self.spots[index] = Spot::Node(at);
        class.done += 1;
    }

    /// Places the next pods of a plain class.
    pub(super) fn put_copies(&mut self, class: &mut Class<'a>, at: NodeIndex, count: usize) {
        let taken = &class.pods[class.done..class.done + count];
        for &index in taken {
            self.spots[index] = Spot::Node(at);
        }
        if at < self.view.existing {
            // Scaling down may have to take them off again.
            for &index in taken {
                self.view.world.place(self.pods[index].pod, at);
            }
        } else {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.view.world.place_copies(class.sample, count, at);
        }
        class.done += count;
    }

    /// Pools below their minimum grow whether pods wait or not. Lost nodes do not count.
    fn reach_minimum(&mut self) {
        let lost = repair::lost(self.view);
        for index in 0..self.pools().len() {
            let pool = &self.pools()[index];
            let (name, min) = (pool.name.clone(), pool.min + lost.get(pool.name.as_str()).unwrap_or(&0));
            while self.rooms.staying(&name) < min {
                match self.rooms.next_of_minimum(&self.pools()[index]) {
                    Ok(place) => drop(self.open(index, place, None)),
                    Err(why) => {
                        self.short.insert(name.clone(), why);
                        break;
                    }
                }
            }
            // With machines of another size there may have been room.
            if self.rooms.staying(&name) >= min {
                self.short.remove(&name);
            }
        }
    }

    /// Plans a node of the pool there, and takes it into the world.
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

    /// Why no pool takes this pod, pool by pool: what refuses it on a fresh node, or why there is no fresh
    /// node. Of a pool with several sizes the largest that does not take it speaks, if none would.
    pub(super) fn refusals(
        &self,
        prepared: &Prepared,
        hold: Option<&Hold>,
    ) -> Vec<(usize, Result<Full, Refusal>)> {
        let mut refusals: Vec<(usize, Result<Full, Refusal>)> = Vec::new();
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

    /// Why no machine of a pool is made for pods that its nodes would take.
    fn no_machine(&self, pool: &Pool, hold: Option<&Hold>) -> Option<Full> {
        let missed = |why: &str| Full::Missed(why.to_owned());
        if let Some(why) = hold.and_then(|hold| hold.of_pool(&pool.name)) {
            return Some(missed(why));
        }
        self.rooms.next(pool).err().or_else(|| hold.and_then(Hold::bound).map(missed))
    }
}

/// Whether a node has been ready: its machine says so (it is one of those that `served`), or the kubelet has
/// fallen silent, which the control plane notices only of one that it has heard.
fn was_ready(node: &Node, served: &BTreeSet<&str>) -> bool {
    let unreachable = node.taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable");
    unreachable || served.contains(node.name.as_str())
}

/// The same node under another name.
fn relabelled(node: &Node, name: &str) -> Node {
    let mut node = node.clone();
    name.clone_into(&mut node.name);
    node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    node
}
