//! Simulates a cluster under one configuration, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::WhatIf;
use super::binding;
use super::demand::{Event, is_everywhere};
use super::facts::Facts;
use super::figures::Figures;
use super::machines::Sim;
use super::members::{Id, Member, Scale, copy};
use super::power::switch_on;
use super::surroundings::{Others, slots};
use model::machine::{Machine, Phase};
use model::node::{Node, Taint};
use model::pod::{Pod, Scheduling};
use model::prediction::Predictions;
use model::snapshot::{
    GROWING_TAINT, Memory, OUT_OF_SERVICE_TAINT, POOL_LABEL, PoolMemory, STARTING_TAINT, UNNEEDED_SINCE,
};
use model::workload::DisruptionBudget;
use model::{HostKey, Snapshot, Vmid};
use planning::being_deleted;
use scheduling::selector::labels_match;
use settings::Config;

/// The time between decisions while nothing changes and every pending pod has a machine, unless
/// `scan_interval` is longer.
const IDLE: SignedDuration = SignedDuration::from_mins(1);
/// Kubernetes' taints on nodes that are not ready.
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// The seed for machine names.
const SEED: u64 = 0x5eed;

/// The simulation of a cluster under one configuration.
pub struct Simulation {
    pub(super) config: Config,
    pub(super) facts: Arc<Facts>,
    pub(super) what_if: WhatIf,
    /// The last recorded round, without its pods and without the pools' nodes. Hosts that the daemon had
    /// switched off in the record appear as switched on.
    pub(super) around: Snapshot,
    /// The hosts that the daemon had switched off in the last recorded round.
    pub(super) switched_off: BTreeSet<HostKey>,
    pub(super) others: Others,
    /// The recorded DaemonSet pods and static pods on nodes outside all pools.
    standing: Vec<Arc<Pod>>,
    scale: Scale,
    pub(super) members: BTreeMap<Id, Member>,
    pub(super) machines: BTreeMap<String, Sim>,
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    /// The nodes of the first round, as last recorded.
    followed: BTreeMap<String, Arc<Node>>,
    /// The DaemonSet pods and static pods on each node of a pool.
    pub(super) attached: BTreeMap<String, Vec<Arc<Pod>>>,
    pub(super) memory: Memory,
    pub(super) freed: BTreeMap<Vmid, Timestamp>,
    pub(super) made: u64,
    pub(super) figures: Figures,
    now: Timestamp,
    begun: bool,
    decided: Option<Timestamp>,
    /// The time at which the next step of the last decision is due.
    pub(super) due: Option<Timestamp>,
    /// Whether anything has changed since the last decision.
    pub(super) changed: bool,
    /// Whether a pending pod may now fit, because something has changed since the last attempt to bind pods.
    pub(super) room_changed: bool,
    /// Whether the last decision created no machine for some pending pods.
    pub(super) hopeless: bool,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Simulation {
    /// A simulation that has not started.
    pub fn new(config: Config, facts: Arc<Facts>, what_if: WhatIf) -> Self {
        Self {
            scale: Scale::new(what_if.demand),
            config,
            facts,
            what_if,
            around: Snapshot::default(),
            switched_off: BTreeSet::new(),
            others: Others::default(),
            standing: Vec::new(),
            members: BTreeMap::new(),
            machines: BTreeMap::new(),
            nodes: BTreeMap::new(),
            followed: BTreeMap::new(),
            attached: BTreeMap::new(),
            memory: Memory::default(),
            freed: BTreeMap::new(),
            made: 0,
            figures: Figures::default(),
            now: Timestamp::UNIX_EPOCH,
            begun: false,
            decided: None,
            due: None,
            changed: true,
            room_changed: true,
            hopeless: false,
        }
    }

    /// Continues with the next recorded round. `events` are the changes in demand since the previous round.
    pub fn round(&mut self, round: &Snapshot, events: &[Event]) {
        let first = !self.begun;
        if first {
            self.begin(round);
        } else {
            self.advance(round.time);
        }
        self.now = round.time.max(self.now);
        self.look_around(round);
        if !first {
            self.follow_nodes(round);
        }
        for event in events {
            self.happens(event, first);
        }
        if first {
            self.leave_lost_nodes();
        }
        self.settle();
    }

    /// The result, as of the last round.
    pub fn finish(mut self) -> Figures {
        self.figures.until(self.now);
        for member in self.members.values().filter(|member| member.waits()) {
            let waited = member.wait_that_counts(self.now);
            self.figures.still.add_some(waited);
        }
        self.figures
    }

    fn begin(&mut self, round: &Snapshot) {
        self.begun = true;
        self.now = round.time;
        self.memory = round.memory.clone();
        // Predictions about kube-scheduler are not simulated: pods are bound where the planner found that
        // they fit.
        self.memory.predictions = Predictions::default();
        self.begin_hosts();
        for machine in round.proxmox.machines.iter().flatten() {
            if !self.what_if.without.contains(&machine.host) {
                self.adopt(machine, round.time);
            }
        }
        let machines = || self.machines.values().map(|one| &one.machine);
        let serves =
            |node: &str| machines().any(|one| one.phase == Phase::Ready && one.node.as_deref() == Some(node));
        for node in round.nodes.iter().filter(|node| node.labels.contains_key(POOL_LABEL)) {
            let known = machines().any(|one| one.node.as_ref() == Some(&node.name));
            if known {
                let mut node = Node::clone(node);
                if serves(&node.name) {
                    as_if_healthy(&mut node);
                }
                self.nodes.insert(node.name.clone(), Arc::new(node));
            }
        }
        for pod in round.pods.iter().filter(|pod| is_everywhere(pod)) {
            if let Some(node) = pod.node.as_ref().filter(|node| self.nodes.contains_key(*node)) {
                self.attached.entry(node.clone()).or_default().push(pod.clone());
            }
        }
    }

    /// In the first round, makes pods pending if their node is not simulated, for example because its host is
    /// left out ([`WhatIf::without`]). Their wait does not count.
    fn leave_lost_nodes(&mut self) {
        let others: BTreeSet<&str> = self.around.nodes.iter().map(|node| node.name.as_str()).collect();
        let there = |node: &str| self.nodes.contains_key(node) || others.contains(node);
        for member in self.members.values_mut() {
            if member.pod.node.as_deref().is_some_and(|node| !there(node)) {
                member.wait(self.now);
                member.at_first = true;
                self.room_changed = true;
            }
        }
    }

    /// Applies changes that an administrator made in the record to nodes of the first round. A node is no
    /// longer changed once it is being removed in the record or in the simulation.
    fn follow_nodes(&mut self, round: &Snapshot) {
        for recorded in &round.nodes {
            let own = self.nodes.get_mut(&recorded.name).filter(|own| own.uid == recorded.uid);
            let goes = |node: &Node| being_deleted(node) || node.deleted.is_some();
            let Some(own) = own.filter(|own| !goes(own) && !goes(recorded)) else { continue };
            let before = self.followed.insert(own.name.clone(), recorded.clone());
            if before.is_some_and(|before| Arc::ptr_eq(&before, recorded)) {
                continue;
            }
            let mut node = Node { unschedulable: recorded.unschedulable, ..Node::clone(own) };
            node.labels.clone_from(&recorded.labels);
            node.annotations.clone_from(&recorded.annotations);
            node.annotations.remove(UNNEEDED_SINCE);
            let timer = own.annotations.get(UNNEEDED_SINCE).cloned();
            node.annotations.extend(timer.map(|since| (UNNEEDED_SINCE.to_owned(), since)));
            node.taints.clone_from(&recorded.taints);
            as_if_healthy(&mut node);
            if **own != node {
                *own = Arc::new(node);
                (self.changed, self.room_changed) = (true, true);
            }
        }
    }

    fn look_around(&mut self, round: &Snapshot) {
        let mut around = Snapshot { pods: Vec::new(), ..round.clone() };
        self.switched_off = switch_on(&mut around);
        self.others = Others::of_round(&around);
        around.nodes.retain(|node| !node.labels.contains_key(POOL_LABEL));
        let others = |pod: &Pod| {
            let node = pod.node.as_deref();
            node.is_some_and(|name| around.nodes.iter().any(|node| node.name == name))
        };
        let standing = round.pods.iter().filter(|pod| is_everywhere(pod) && others(pod));
        self.standing = standing.cloned().collect();
        // Copies the recorded facts about pools, except for those that depend on the simulation.
        for (name, recorded) in &around.memory.pools {
            let own = self.memory.pools.entry(name.clone()).or_default();
            *own = PoolMemory {
                last_add: own.last_add,
                last_removal: own.last_removal,
                last_removal_failure: None,
                backoff: None,
                failed_on: BTreeMap::new(),
                grow_backoff: None,
                learnt_allocatable: own.learnt_allocatable.take(),
                learnt_sizes: std::mem::take(&mut own.learnt_sizes),
                ..recorded.clone()
            };
        }
        self.around = around;
    }

    fn happens(&mut self, event: &Event, first: bool) {
        self.changed = true;
        match event {
            Event::Born { unit, pod } => self.born(*unit, pod, first),
            Event::Settled { unit, pod } => self.settled(*unit, pod),
            Event::Ungated { unit } => {
                for id in self.scale.of(*unit) {
                    if let Some(member) = self.members.get_mut(&id) {
                        let mut pod = Pod::clone(&member.pod);
                        pod.scheduling = Scheduling::Unschedulable(Some(self.now));
                        (member.pod, member.since) = (Arc::new(pod), self.now);
                    }
                }
                self.room_changed = true;
            }
            Event::Finished { unit, ran } => self.finishes(*unit, *ran),
            Event::Gone { unit } => self.gone_unit(*unit),
        }
    }

    /// Adds a pod that is wanted from now on. In the first round, the pod may already have a node.
    fn born(&mut self, unit: u64, pod: &Arc<Pod>, first: bool) {
        self.room_changed = true;
        for number in 0..self.scale.born(unit, pod) {
            let mut member = self.member(&copy(pod, number));
            if let Some(node) = member.pod.node.clone().filter(|_| first) {
                member.bind(&node, self.now);
            } else {
                // If the recorded pod already has a node, its copies are pending only because the simulation
                // has just started, so their wait does not count.
                member.at_first = first && pod.node.is_some();
                member.wait(if member.at_first { self.now } else { member.since });
            }
            self.members.insert((unit, number), member);
        }
    }

    fn member(&self, pod: &Arc<Pod>) -> Member {
        Member {
            pod: pod.clone(),
            since: pod.created.unwrap_or(self.now).min(self.now),
            waited: false,
            at_first: false,
            bound: None,
            ends: None,
            runs: None,
            refused: BTreeSet::new(),
        }
    }

    /// Handles a pod that runs on a node outside all pools: the pod stays on that node and is not multiplied.
    fn settled(&mut self, unit: u64, pod: &Arc<Pod>) {
        self.room_changed = true;
        for id in self.scale.of(unit).skip(1) {
            self.members.remove(&id);
        }
        self.scale.one(unit);
        let mut member = self.members.remove(&(unit, 0)).unwrap_or_else(|| self.member(pod));
        if member.waits()
            && let Some(seconds) = member.wait_that_counts(self.now)
        {
            self.figures.elsewhere.add(seconds);
        }
        member.bind(pod.node.as_deref().unwrap_or_default(), self.now);
        self.members.insert((unit, 0), member);
    }

    /// Handles a pod that has finished in the record. In the simulation, it runs for the same time once it
    /// has a node.
    fn finishes(&mut self, unit: u64, ran: SignedDuration) {
        for id in self.scale.of(unit) {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.runs = Some(ran);
            if let Some(bound) = member.bound {
                let ends = bound.saturating_add(ran).unwrap_or(Timestamp::MAX);
                member.ends = Some(ends.max(self.now));
            }
        }
    }

    fn gone_unit(&mut self, unit: u64) {
        for id in self.scale.of(unit) {
            let Some(gone) = self.members.remove(&id).filter(Member::waits) else { continue };
            let waited = gone.wait_that_counts(self.now);
            self.figures.without.add_some(waited);
        }
        self.scale.gone(unit);
        self.room_changed = true;
    }

    /// Advances the time to `until`, and handles everything that is due by then.
    fn advance(&mut self, until: Timestamp) {
        while let Some(next) = self.next_event().filter(|next| *next < until) {
            self.now = next.max(self.now);
            self.pass();
            self.settle();
        }
        self.now = until.max(self.now);
        self.pass();
    }

    /// The time of the next event that is not in the record.
    fn next_event(&self) -> Option<Timestamp> {
        let machines = self.machines.values().filter_map(|one| one.due);
        let ends = self.members.values().filter_map(|member| member.ends);
        machines.chain(ends).chain(self.due).chain(self.next_idle()).min()
    }

    /// The time of the next decision if nothing changes.
    fn next_idle(&self) -> Option<Timestamp> {
        let scan = SignedDuration::try_from(self.config.scan_interval).unwrap_or(IDLE);
        let wait = if self.hopeless { scan } else { IDLE.max(scan) };
        self.decided.and_then(|decided| decided.saturating_add(wait).ok())
    }

    /// Completes the machine steps that are due, and drops pods that have finished.
    fn pass(&mut self) {
        let now = self.now;
        let due = |one: &Sim| one.due.filter(|due| *due <= now);
        let mut done: Vec<(Timestamp, String)> =
            self.machines.iter().filter_map(|(name, one)| Some((due(one)?, name.clone()))).collect();
        done.sort();
        for (_, name) in done {
            self.done(&name, now);
        }
        let before = self.members.len();
        self.members.retain(|_, member| member.ends.is_none_or(|ends| ends > now));
        if self.members.len() != before {
            (self.changed, self.room_changed) = (true, true);
        }
    }

    /// Binds pods, makes a decision if one is due, and carries it out.
    fn settle(&mut self) {
        let now = self.now;
        let due = self.due.is_some_and(|due| due <= now) || self.next_idle().is_none_or(|due| due <= now);
        if !self.changed && !self.room_changed && !due {
            return;
        }
        self.bind();
        if self.changed || due {
            self.decide();
            self.bind();
        }
        self.figures.now(&self.snapshot(now), &self.others);
    }

    fn decide(&mut self) {
        let now = self.now;
        (self.changed, self.due, self.decided) = (false, None, Some(now));
        let mut snapshot = self.snapshot(now);
        planning::learn(&mut self.memory, &snapshot, &self.config);
        // Timers normally leave out the time between rounds that are far apart. In a simulation, timers
        // include this time.
        let before = now.saturating_sub(self.config.scan_interval).unwrap_or(now);
        self.memory.last_round =
            Some(self.memory.last_round.map_or(before, |last| last.max(before).min(now)));
        snapshot.memory = self.memory.clone();
        snapshot.memory.name_seed = SEED.wrapping_add(self.figures.decisions);
        let machines = snapshot.proxmox.machines.as_deref().unwrap_or_default();
        snapshot.memory.free_slots = Some(slots(&self.config, &self.around, machines, &self.freed));
        let plan = planning::plan(&snapshot, &self.config);
        self.act(&plan, now);
        self.switch_hosts(&plan, &snapshot);
    }

    fn bind(&mut self) {
        if !std::mem::take(&mut self.room_changed) || !self.members.values().any(Member::waits) {
            return;
        }
        let snapshot = self.snapshot(self.now);
        let bound = binding::bind(&snapshot);
        let ids: BTreeMap<&str, Id> =
            self.members.iter().map(|(id, one)| (one.pod.uid.as_str(), *id)).collect();
        let bound: Vec<(Id, usize)> = bound
            .into_iter()
            .filter_map(|(pod, node)| Some((*ids.get(snapshot.pods[pod].uid.as_str())?, node)))
            .collect();
        for (id, node) in bound {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let node = &snapshot.nodes[node];
            let waited = member.wait_that_counts(self.now);
            member.bind(&node.name, self.now);
            self.changed = true;
            let waits = match node.labels.get(POOL_LABEL) {
                Some(pool) => {
                    let figures = self.figures.pool(pool);
                    figures.pods += 1;
                    &mut figures.waits
                }
                None => &mut self.figures.elsewhere,
            };
            waits.add_some(waited);
        }
        for member in self.members.values_mut().filter(|member| member.waits()) {
            member.waited = true;
        }
    }

    /// The snapshot that a decision would read now.
    pub(super) fn snapshot(&self, now: Timestamp) -> Snapshot {
        let mut snapshot = self.around.clone();
        snapshot.time = now;
        snapshot.nodes.extend(self.nodes.values().cloned());
        snapshot.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let members = self.members.values().map(|member| &member.pod);
        let attached = self.attached.values().flatten();
        snapshot.pods = members.chain(attached).chain(&self.standing).cloned().collect();
        snapshot.pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let machines: Vec<Machine> = self.machines.values().map(|one| one.machine.clone()).collect();
        let recorded = self.around.proxmox.machines.iter().flatten().map(|machine| machine.vmid).collect();
        let proxmox = Arc::make_mut(&mut snapshot.proxmox);
        if let Some(hosts) = &mut proxmox.hosts {
            hosts.retain(|host| !self.what_if.without.contains(&host.name));
            for host in hosts {
                *host = self.others.with(host, &recorded, &machines, &self.config);
                host.online &= !self.is_off(&host.name, now);
            }
        }
        proxmox.machines = Some(machines);
        proxmox.power = self.power_facts(proxmox.hosts.as_deref().unwrap_or_default());
        let pods = std::mem::take(&mut snapshot.pods);
        for budget in &mut snapshot.budgets {
            let allowed = allowed(budget, &pods);
            if budget.disruptions_allowed != allowed {
                Arc::make_mut(budget).disruptions_allowed = allowed;
            }
        }
        snapshot.pods = pods;
        snapshot.memory = self.memory.clone();
        snapshot
    }
}

/// Makes a node ready, and removes the taints that mark nodes as unready, starting, growing or out of
/// service. In a simulation, no machine fails.
fn as_if_healthy(node: &mut Node) {
    for condition in node.conditions.iter_mut().filter(|one| one.kind == "Ready" && one.status != "True") {
        "True".clone_into(&mut condition.status);
    }
    let passes = |taint: &Taint| {
        [GROWING_TAINT, STARTING_TAINT, OUT_OF_SERVICE_TAINT].contains(&taint.key.as_str())
            || NOT_READY.contains(&taint.key.as_str())
    };
    node.taints.retain(|taint| !passes(taint));
}

/// Returns the number of pods that a disruption budget allows to be evicted, given which of the cluster's
/// pods are ready.
fn allowed(budget: &DisruptionBudget, pods: &[Arc<Pod>]) -> i64 {
    let (current, desired) = budget.healthy;
    let Some(selector) = budget.selector.as_ref().filter(|_| current > 0 || desired > 0) else {
        return budget.disruptions_allowed;
    };
    let speaks = |pod: &&Arc<Pod>| {
        pod.ready && pod.namespace == budget.namespace && labels_match(selector, &pod.labels)
    };
    let healthy = i64::try_from(pods.iter().filter(speaks).count()).unwrap_or(i64::MAX);
    (healthy - desired).max(0)
}

#[cfg(test)]
mod tests;
