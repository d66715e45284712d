//! Lets running machines grow in place, before other machines are created for pending pods.
//!
//! * A machine that is already growing counts with its future size, for pods that fit nowhere else. Until it
//!   has grown, no pods are moved to it, and it is not removed.
//! * For each pod, the machine that has to grow least is chosen. If several are equal, one that grows anyway
//!   is preferred. A machine grows no more than its pods need.
//! * A machine can only grow if it was created for that. If it was created before `[pool.grow]` was set, or
//!   with another `max_cores`, it keeps its size.
//! * Simulations for other decisions plan no growth: nodes are removed only if no machine would have to grow
//!   for their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::class::Class;
use super::facts::machine::ByNode;
use super::facts::node::{pool_of, ready};
use super::limits::Shape;
use super::machine_growths::Candidate;
use super::packer::Packer;
use super::view::View;
use model::machine::{Machine, Phase, guest_sees};
use model::node::Node;
use model::plan::{GrownMachine, GrownSize};
use model::pod::Pod;
use model::pod_id::PodId;
use model::resources::Resources;
use model::{dimms, quantity};
use scheduling::{NodeIndex, Prepared};
use settings::{Grow, Pool};

impl<'a> Packer<'_, 'a> {
    /// Places pods on machines that are already growing if the pods fit only the future size. Then plans the
    /// growth of other machines.
    pub(super) fn grow(&mut self, classes: &mut [Class<'a>]) {
        self.expect_growth(classes);
        if !self.view.grows || classes.iter().all(|class| class.left() == 0) {
            return;
        }
        let mut candidates = self.candidates();
        let settings: Vec<&Pool> = self.view.config.pools.iter().collect();
        // While pods are tried, each node offers its maximum size. How much of that the machine needs is
        // computed afterwards.
        let mut daemons = Vec::new();
        for one in &candidates {
            self.extend(one.node, one.gain(settings[one.pool], one.most), 1);
            daemons.extend(self.admit_daemons(one.node));
        }
        for class in classes.iter_mut().filter(|class| class.left() > 0) {
            self.grow_for(class, &mut candidates);
        }
        for one in &candidates {
            self.extend(one.node, one.gain(settings[one.pool], one.most), -1);
            self.extend(one.node, one.gain(settings[one.pool], one.to), 1);
        }
        candidates.retain(|one| one.to != one.from);
        // No machine grows for DaemonSets' pods alone.
        for (pod, at) in daemons {
            if !candidates.iter().any(|one| one.node == at) {
                self.view.world.remove(&pod, at);
            }
        }
        self.growths.nodes.extend(candidates.iter().map(|one| one.node));
        self.growths.planned = candidates;
    }

    /// Places DaemonSets' pods on a node that had no room for them until now. They get the additional room
    /// before all other pods.
    fn admit_daemons(&mut self, node: NodeIndex) -> Vec<(Arc<Pod>, NodeIndex)> {
        let world = &mut self.view.world;
        let waiting = self.view.daemons.without_room.iter().filter(|(_, at)| *at == node);
        let mut admitted = Vec::new();
        for (pod, at) in waiting {
            if world.takes(&world.prepare(pod), node) {
                world.place(pod, node);
                admitted.push((pod.clone(), *at));
            }
        }
        admitted
    }

    fn extend(&mut self, node: NodeIndex, (cpu_milli, memory): (i64, i64), times: i64) {
        self.view.world.extend(node, cpu_milli * times, memory * times);
    }

    /// Places pods that fit nowhere else. These pods use the room that machines will offer once they have
    /// grown.
    fn expect_growth(&mut self, classes: &mut [Class<'a>]) {
        let snapshot = self.view.snapshot;
        let machines = snapshot.proxmox.machines.iter().flatten();
        let growing: BTreeMap<&str, &Machine> = machines
            .filter(|machine| machine.growing.is_some() && machine.phase == Phase::Ready)
            .filter_map(|machine| Some((machine.node.as_deref()?, machine)))
            .collect();
        if growing.is_empty() {
            return;
        }
        for at in 0..self.view.existing {
            let node = &snapshot.nodes[at];
            let Some(machine) = growing.get(node.name.as_str()) else { continue };
            let Some(before) = &machine.growing else { continue };
            self.growths.nodes.insert(at);
            if before.failed.is_some() {
                continue;
            }
            // Pods do not wait for a machine that has been growing for longer than `max_node_provision_time`.
            let age = snapshot.time.duration_since(before.since).unsigned_abs();
            if age > self.view.config.scale_up.max_node_provision_time {
                continue;
            }
            let seen = if node.capacity.cpu_milli > 0 { &node.capacity } else { &node.allocatable };
            let missing = before.missing((machine.cores, machine.memory), seen);
            self.extend(at, missing, 1);
            self.admit_daemons(at);
            for class in classes.iter_mut().filter(|class| class.left() > 0) {
                let before = class.done;
                self.fill(class, at..at + 1);
                self.growths.pods.extend(&class.pods[before..class.done]);
            }
        }
    }

    /// The machines that may grow, ordered by node name.
    fn candidates(&self) -> Vec<Candidate> {
        let view = &*self.view;
        let machines = &view.machines;
        let deaf = self.deaf(machines);
        let candidate = |at: NodeIndex| {
            let node = &view.snapshot.nodes[at];
            let machine = *machines.get(node.name.as_str())?;
            let (number, grow) = pool(view, node, machine)?;
            let own = &view.config.pools[number];
            let from = Shape::from(machine);
            let takes_cpus = !deaf.contains(&kind(machine)) && !lacks_cpus(machine, node);
            let cores = if takes_cpus { grow.max_cores.max(from.cores) } else { from.cores };
            let memory =
                if lacks_memory(machine, node) { from.memory } else { grow.max_memory.max(from.memory) };
            let most = Shape { cores, memory };
            let may = view.world.node(at).open
                && ready(node)
                && !node.unschedulable
                && most != from
                && self.rooms.may_grow(own, &machine.host);
            may.then(|| Candidate {
                node: at,
                machine: machine.name.clone(),
                host: machine.host.clone(),
                pool: number,
                from,
                to: from,
                most,
                offered: node.allocatable.clone(),
                capacity: node.capacity.memory.max(node.allocatable.memory),
                pods: Vec::new(),
            })
        };
        (0..view.existing).filter_map(candidate).collect()
    }

    /// The pairs of a pool and a template that have at least one guest that did not use its hot-plugged CPUs.
    /// The pair's other guests are assumed not to use theirs either. A machine is ignored if its Node lacks
    /// CPUs for another reason.
    fn deaf<'m>(&self, machines: &ByNode<'m>) -> BTreeSet<Kind<'m>> {
        let nodes = self.view.snapshot.nodes.iter().take(self.view.existing);
        let machines = nodes.filter_map(|node| machines.get(node.name.as_str()));
        machines.filter(|machine| machine.takes_no_cpus).map(|machine| kind(machine)).collect()
    }

    /// Places as many pods of a class as possible by letting machines grow. Pods of nodes that are being
    /// removed come last in the class, and no machine grows for them.
    fn grow_for(&mut self, class: &mut Class<'a>, candidates: &mut [Candidate]) {
        let mut prepared = self.view.world.prepare(class.sample);
        let plain = self.view.world.is_plain(class.sample);
        let mut refused: BTreeSet<usize> = BTreeSet::new();
        loop {
            if self.waiting_of(class) == 0 {
                return;
            }
            let mut ranked: Vec<(i64, bool, usize, Shape)> = candidates
                .iter()
                .enumerate()
                .filter(|(number, one)| !refused.contains(number) && !self.is_closed_to(class, one.node))
                .filter_map(|(number, one)| {
                    let to = self.size_for(one, &class.sample.requests)?;
                    Some((one.cost(to), one.to == one.from, number, to))
                })
                .collect();
            ranked.sort_by_key(|(cost, stands, number, _)| (*cost, *stands, *number));
            let found = ranked.into_iter().find(|(_, _, number, _)| {
                let verdict = self.view.world.check(&prepared, candidates[*number].node);
                if verdict.as_ref().is_err_and(scheduling::Refusal::lasts) {
                    refused.insert(*number);
                }
                verdict.is_ok()
            });
            let Some((cost, _, number, to)) = found else { return };
            let one = &mut candidates[number];
            self.give(class, &mut prepared, one, to, plain);
            // Only this machine has changed. So it is still the best choice if letting it grow again costs no
            // more than before.
            while plain && self.waiting_of(class) > 0 {
                let next = self.size_for(one, &class.sample.requests).filter(|to| one.cost(*to) <= cost);
                let Some(to) = next.filter(|_| self.view.world.check(&prepared, one.node).is_ok()) else {
                    break;
                };
                self.give(class, &mut prepared, one, to, plain);
            }
        }
    }

    /// The number of the class's unplaced pods for which machines may grow.
    fn waiting_of(&self, class: &Class<'a>) -> usize {
        class.pods[class.done..].iter().take_while(|&&pod| self.pods[pod].listed).count()
    }

    /// Plans a machine's growth. Then places as many pods of the class on its node as fit, or only one if the
    /// pods are not plain.
    fn give(
        &mut self,
        class: &mut Class<'a>,
        prepared: &mut Prepared,
        one: &mut Candidate,
        to: Shape,
        plain: bool,
    ) {
        let own = &self.view.config.pools[one.pool];
        self.rooms.grow(own, &one.host, one.to, to);
        one.to = to;
        let before = class.done;
        if plain {
            let room = usize::try_from(self.room_in(one, &class.sample.requests)).unwrap_or(0);
            self.put_copies(class, one.node, room.clamp(1, self.waiting_of(class)));
        } else {
            self.put(class, prepared, one.node);
        }
        let placed = &class.pods[before..class.done];
        one.pods.extend(placed);
        self.growths.pods.extend(placed);
    }

    /// The smallest size at which a machine's node has room for one more pod with these requests, or `None`
    /// if that size exceeds a limit.
    fn size_for(&self, one: &Candidate, wanted: &Resources) -> Option<Shape> {
        let used = &self.view.world.node(one.node).used;
        let own = &self.view.config.pools[one.pool];
        let mut to = one.to;
        if wanted.cpu_milli > 0 {
            let short = used.cpu_milli.saturating_add(wanted.cpu_milli).saturating_sub(one.offered.cpu_milli);
            let cores = u32::try_from(short.max(0).saturating_add(999) / 1000).ok()?;
            to.cores = to.cores.max(one.from.cores.checked_add(cores)?);
        }
        if wanted.memory > 0 {
            let short = used.memory.saturating_add(wanted.memory).saturating_sub(one.offered.memory);
            to.memory = to.memory.max(one.memory_for(own, short)?);
        }
        let allowed = to.cores <= one.most.cores && to.memory <= one.most.memory;
        (allowed && self.rooms.holds_grown(own, &one.host, one.to, to)).then_some(to)
    }

    /// How many pods with these requests fit a machine's future size.
    fn room_in(&self, one: &Candidate, wanted: &Resources) -> i64 {
        let own = &self.view.config.pools[one.pool];
        let (most, gets) = (one.gain(own, one.most), one.gain(own, one.to));
        let mut free = self.view.world.node(one.node).free();
        free.cpu_milli -= most.0 - gets.0;
        free.memory -= most.1 - gets.1;
        free.copies(wanted)
    }

    /// The machines that will grow, sorted by name.
    pub(super) fn grown(&self) -> Vec<GrownMachine> {
        let mut grown: Vec<GrownMachine> = self.growths.planned.iter().map(|one| self.words(one)).collect();
        grown.sort_by(|a, b| a.machine.cmp(&b.machine));
        grown
    }

    fn words(&self, one: &Candidate) -> GrownMachine {
        let own = &self.view.config.pools[one.pool];
        let pods: Vec<PodId> = one.pods.iter().map(|&pod| PodId::of(self.pods[pod].pod)).collect();
        let more = match pods.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let first = pods.first().map(ToString::to_string).unwrap_or_default();
        let most = size(one.most);
        GrownMachine {
            machine: one.machine.clone(),
            pool: own.name.clone(),
            node: self.view.snapshot.nodes[one.node].name.clone(),
            from: size(one.from),
            to: size(one.to),
            reason: format!(
                "for {first}{more}, because no node has room; the machine may grow to at most {}",
                most.words()
            ),
            pods,
        }
    }
}

impl Candidate {
    /// How much more the machine's node offers at this size than at its current size, in thousandths of a CPU
    /// and in bytes of memory.
    fn gain(&self, pool: &Pool, to: Shape) -> (i64, i64) {
        let cpu = (i64::from(to.cores) - i64::from(self.from.cores)) * 1000;
        (cpu, self.gained_memory(pool, to.memory))
    }

    /// How many more bytes the machine's node offers if the machine has this much memory. The kubelet may
    /// reserve a share of the total memory.
    fn gained_memory(&self, pool: &Pool, to: i64) -> i64 {
        let plugged = guest_sees(to - self.from.memory);
        let kept = |memory: i64| pool.kubelet.kept_memory(memory);
        plugged - (kept(self.capacity + plugged) - kept(self.capacity)).max(0)
    }

    /// The smallest memory size at which the machine's node offers `short` more bytes than now.
    fn memory_for(&self, pool: &Pool, short: i64) -> Option<i64> {
        let mut memory = self.from.memory;
        while self.gained_memory(pool, memory) < short {
            let least = self.from.memory.checked_add(short)?.max(memory.checked_add(1)?);
            memory = dimms::at_least(least).filter(|memory| *memory <= self.most.memory)?;
        }
        Some(memory)
    }

    /// How much the machine would still have to grow to reach this size: the sum of cores and memory, each in
    /// millionths of its maximum.
    fn cost(&self, to: Shape) -> i64 {
        let part = |more: i64, most: i64| more.saturating_mul(1_000_000) / most.max(1);
        part(i64::from(to.cores) - i64::from(self.to.cores), i64::from(self.most.cores))
            + part((to.memory - self.to.memory) >> 20, self.most.memory >> 20)
    }
}

/// Whether the machine has failed to grow and its Node does not report all of its CPUs. Even if the reason is
/// unknown, such a machine gets no more CPUs.
fn lacks_cpus(machine: &Machine, node: &Node) -> bool {
    let reported = node.capacity.cpu_milli;
    machine.grow_backoff.is_some() && reported > 0 && reported < i64::from(machine.cores) * 1000
}

/// Like [`lacks_cpus`], but for memory. A Node may report up to a tenth plus 256 MiB less than the machine's
/// memory, because the kernel reserves some. Also true if the Node has ever failed to report memory that was
/// plugged in.
fn lacks_memory(machine: &Machine, node: &Node) -> bool {
    let kept = machine.memory / 10 + (256 << 20);
    let reported = node.capacity.memory;
    let lacks = machine.grow_backoff.is_some() && reported > 0 && machine.memory - reported > kept;
    lacks || machine.takes_no_memory
}

/// A pool and a template.
type Kind<'m> = (&'m str, Option<&'m String>);

fn kind(machine: &Machine) -> Kind<'_> {
    (&machine.pool, machine.made_of.get("template"))
}

/// If the machine may grow now, returns the index of its pool in the configuration, and the limits of its
/// growth.
fn pool<'v>(view: &View<'v>, node: &Node, machine: &Machine) -> Option<(usize, &'v Grow)> {
    let name = pool_of(node).filter(|name| *name == machine.pool)?;
    let number = view.config.pools.iter().position(|pool| pool.name == name)?;
    let own = &view.config.pools[number];
    let grow = own.grow.as_ref()?;
    let made_so = machine.made_of.get("grow").is_some_and(|made| *made == grow.words());
    let still = machine.phase == Phase::Ready && machine.growing.is_none() && machine.cores > 0;
    let rests = machine.grow_backoff.as_ref().is_some_and(|backoff| backoff.runs(view.snapshot.time));
    (made_so && still && !rests).then_some((number, grow))
}

fn size(shape: Shape) -> GrownSize {
    let memory = quantity::binary(shape.memory);
    GrownSize { cores: shape.cores, memory, memory_bytes: shape.memory }
}
