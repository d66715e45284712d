//! The life of simulated machines: a machine is created, becomes a node, and is removed.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Simulation;
use super::members::running;
use model::machine::{Machine, Phase, STORED_ON, WarmState};
use model::node::{Condition, Node, Taint, TaintEffect};
use model::plan::{GrownMachine, NewMachine};
use model::snapshot::{BEING_DELETED_TAINT, POOL_LABEL, UNNEEDED_SINCE};
use model::{Pod, Snapshot};
use scheduling::World;
use settings::{Config, Size};

/// A machine, and when its current step will be done.
#[derive(Clone, Debug)]
pub(super) struct Sim {
    pub machine: Machine,
    pub due: Option<Timestamp>,
}

fn after(now: Timestamp, time: SignedDuration) -> Timestamp {
    now.saturating_add(time.max(SignedDuration::from_secs(1))).unwrap_or(Timestamp::MAX)
}

impl Simulation {
    /// Adds a recorded machine to the simulation, in the state that it had in the first round.
    pub(super) fn adopt(&mut self, machine: &Machine, now: Timestamp) {
        let mut machine = machine.clone();
        machine.growing = None;
        machine.seen_on = None;
        // The time until a machine becomes a node is measured from the request for the machine, not from the
        // start of its current phase.
        let comes = machine.phase < Phase::Ready;
        let since = if comes { machine.wanted_since() } else { machine.since };
        let gone_for = since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        let left = |whole: SignedDuration| after(now, whole.saturating_sub(gone_for));
        let due = match machine.phase {
            Phase::Ready => None,
            Phase::Warm if machine.warm.is_some() => None,
            phase if phase.is_over() || phase == Phase::Failed => return,
            phase if phase > Phase::Ready => Some(left(self.facts.goes_in(&machine.pool))),
            _ => Some(left(self.facts.comes_in(&machine.pool, false))),
        };
        self.machines.insert(machine.name.clone(), Sim { machine, due });
    }

    /// Creates a machine that is to become a node or to be kept warm.
    pub(super) fn make(&mut self, pool: &str, new: &NewMachine, warm: Option<WarmState>, now: Timestamp) {
        self.made += 1;
        let name = new.name.clone().unwrap_or_else(|| format!("{pool}-{}", self.made));
        let machine = Machine {
            name: name.clone(),
            pool: pool.into(),
            vmid: new.vmid.unwrap_or_default(),
            host: new.host.clone(),
            cores: new.cores,
            memory: new.memory_bytes,
            phase: Phase::Cloning,
            since: Some(now),
            requested: Some(now),
            pods: new.pods.iter().map(ToString::to_string).collect(),
            warm,
            made_of: made_of(&self.config, pool, new, &self.around),
            ..Machine::default()
        };
        let due = Some(after(now, self.facts.comes_in(pool, false)));
        self.machines.insert(name, Sim { machine, due });
        if warm.is_none() {
            self.asked_for(pool, now);
        }
    }

    /// Asks a machine that is kept warm to join.
    pub(super) fn wake(&mut self, pool: &str, new: &NewMachine, now: Timestamp) {
        let due = Some(after(now, self.facts.comes_in(pool, true)));
        let Some(sim) = new.name.as_ref().and_then(|name| self.machines.get_mut(name)) else { return };
        let runs = sim.machine.warm.take().is_some_and(WarmState::runs);
        sim.machine.phase = if runs { Phase::Joining } else { Phase::Starting };
        (sim.machine.since, sim.machine.requested, sim.due) = (Some(now), Some(now), due);
        sim.machine.pods = new.pods.iter().map(ToString::to_string).collect();
        self.asked_for(pool, now);
    }

    fn asked_for(&mut self, pool: &str, now: Timestamp) {
        self.memory.pools.entry(pool.into()).or_default().last_add = Some(now);
        self.figures.pool(pool).made += 1;
    }

    /// Makes a running machine larger immediately, because growing takes little time compared with other
    /// steps.
    pub(super) fn grow(&mut self, grown: &GrownMachine, now: Timestamp) {
        let Some(sim) = self.machines.get_mut(&grown.machine) else { return };
        let machine = &mut sim.machine;
        let cores = i64::from(grown.to.cores) - i64::from(machine.cores);
        let memory = grown.to.memory_bytes - machine.memory;
        (machine.cores, machine.memory) = (grown.to.cores, grown.to.memory_bytes);
        if let Some(node) = self.nodes.get_mut(&grown.node) {
            let node = Arc::make_mut(node);
            for amounts in [&mut node.capacity, &mut node.allocatable] {
                amounts.cpu_milli += 1000 * cores;
                amounts.memory += model::machine::guest_sees(memory);
            }
        }
        self.memory.pools.entry(grown.pool.clone()).or_default().last_add = Some(now);
        self.figures.pool(&grown.pool).grown += 1;
        self.room_changed = true;
    }

    /// Completes the current step of a machine.
    pub(super) fn done(&mut self, name: &str, now: Timestamp) {
        self.changed = true;
        let Some(sim) = self.machines.get_mut(name) else { return };
        sim.due = None;
        sim.machine.since = Some(now);
        if sim.machine.phase > Phase::Ready {
            self.gone(name, now);
        } else if sim.machine.warm.is_some() {
            sim.machine.phase = Phase::Warm;
        } else {
            self.joined(name, now);
        }
    }

    /// Adds the ready node of a machine that has joined.
    fn joined(&mut self, name: &str, now: Timestamp) {
        let Some(sim) = self.machines.get_mut(name) else { return };
        sim.machine.phase = Phase::Ready;
        sim.machine.node = Some(name.to_owned());
        let machine = sim.machine.clone();
        let snapshot = self.snapshot(now);
        let node = self.node(&snapshot, &machine, now);
        let sets = snapshot.daemon_sets.iter().filter(|set| World::accepts(&set.pod, &node));
        let pods = sets.filter(|set| set.pod.node.as_ref().is_none_or(|named| *named == node.name));
        let daemons = pods.map(|set| {
            let pod = Pod {
                name: format!("{}-{}", set.name, node.name),
                uid: format!("{}-{}", set.uid, node.name),
                created: Some(now),
                ..set.pod.clone()
            };
            Arc::new(running(&pod, &node.name, now))
        });
        self.attached.insert(name.to_owned(), daemons.collect());
        self.nodes.insert(name.to_owned(), Arc::new(node));
        self.room_changed = true;
    }

    /// The node of a machine, as the planner expects it. If the pool does not set `allocatable` and the
    /// record contains a node of the same pool and size, the new node has the same resources as that node.
    fn node(&self, snapshot: &Snapshot, machine: &Machine, now: Timestamp) -> Node {
        let expected = planning::expected_node(snapshot, &self.config, machine);
        let mut node = expected.unwrap_or_else(|| Node {
            name: machine.name.clone(),
            labels: [(POOL_LABEL.to_owned(), machine.pool.to_string())].into(),
            ..Node::default()
        });
        let declared =
            self.config.pools.iter().any(|pool| pool.name == machine.pool && pool.allocatable.is_some());
        if let Some((capacity, allocatable)) = self.facts.shape(machine).filter(|_| !declared) {
            (node.capacity, node.allocatable) = (capacity.clone(), allocatable.clone());
        }
        node.created = Some(now);
        node.uid.clone_from(&machine.name);
        let ready = ("Ready".to_owned(), "True".to_owned(), Some(now));
        node.conditions = vec![Condition { kind: ready.0, status: ready.1, last_transition: ready.2 }];
        node
    }

    /// Starts the removal of a machine. If the machine is a node, the node's pods become pending.
    pub(super) fn retire(&mut self, name: &str, now: Timestamp) {
        let Some(sim) = self.machines.get_mut(name) else { return };
        let kept = sim.machine.warm.is_some();
        sim.machine.phase = Phase::Draining;
        sim.machine.since = Some(now);
        let pool = sim.machine.pool.clone();
        let node = sim.machine.node.clone();
        sim.due = Some(after(now, self.facts.goes_in(&pool)));
        if kept {
            return;
        }
        self.figures.pool(&pool).removed += 1;
        let Some(node) = node else { return };
        if let Some(node) = self.nodes.get_mut(&node) {
            let node = Arc::make_mut(node);
            node.unschedulable = true;
            node.annotations.remove(UNNEEDED_SINCE);
            let key = BEING_DELETED_TAINT.to_owned();
            node.taints.push(Taint {
                key,
                value: String::new(),
                effect: TaintEffect::NoSchedule,
                time_added: None,
            });
        }
        self.evict(&node, now);
    }

    /// Makes the pods of a node pending again.
    pub(super) fn evict(&mut self, node: &str, now: Timestamp) {
        for member in self.members.values_mut() {
            if member.pod.node.as_deref() == Some(node) {
                member.wait(now);
                self.room_changed = true;
            }
        }
    }

    fn gone(&mut self, name: &str, now: Timestamp) {
        let Some(sim) = self.machines.remove(name) else { return };
        self.freed.insert(sim.machine.vmid, now);
        if sim.machine.warm.is_none() {
            self.memory.pools.entry(sim.machine.pool).or_default().last_removal = Some(now);
        }
        let node = sim.machine.node.unwrap_or(sim.machine.name);
        self.nodes.remove(&node);
        self.attached.remove(&node);
        self.evict(&node, now);
    }
}

/// The settings, template and storage that a new machine is created from. They are the current ones, so the
/// machine does not count as drifted.
fn made_of(
    config: &Config,
    pool: &str,
    new: &NewMachine,
    around: &Snapshot,
) -> std::collections::BTreeMap<String, String> {
    let Some(settings) = config.pools.iter().find(|one| one.name == pool) else {
        return std::collections::BTreeMap::new();
    };
    let mut all = settings.made_of();
    all.insert("size".to_owned(), Size { cores: new.cores, memory: new.memory_bytes }.words());
    let templates = around.memory.pools.get(pool).and_then(|own| own.templates.first());
    all.extend(templates.map(|template| ("template".to_owned(), template.clone())));
    all.extend(new.storage.clone().map(|storage| (STORED_ON.to_owned(), storage)));
    all
}
