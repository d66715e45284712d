//! Applies the plan to simulated machines, with the same limits as the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Simulation;
use super::members::Id;
use model::machine::{Machine, Phase};
use model::plan::PodOutcome;
use model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use model::{Plan, PoolName};

impl Simulation {
    /// Carries out the plan.
    pub(super) fn act(&mut self, plan: &Plan, now: Timestamp) {
        self.figures.decisions += 1;
        self.memory.last_round = Some(now);
        self.memory.unfinished = plan.unfinished.clone();
        let hour = SignedDuration::from_hours(1);
        self.memory.removals.retain(|time| now.duration_since(*time) < hour);
        self.count_refusals(plan);
        for growth in &plan.scale_up {
            for machine in &growth.machines {
                match machine.woken {
                    Some(_) => self.wake(&growth.pool, machine, now),
                    None => self.make(&growth.pool, machine, None, now),
                }
            }
        }
        for grown in &plan.grow {
            self.grow(grown, now);
        }
        for growth in &plan.keep {
            let state = self.config.pools.iter().find(|pool| pool.name == growth.pool);
            let state = state.map(|pool| pool.warm.state);
            for machine in &growth.machines {
                self.make(&growth.pool, machine, state, now);
            }
        }
        for unkept in &plan.unkept {
            self.retire(&unkept.machine, now);
        }
        self.take_back(plan, now);
        self.write_timers(plan);
        self.due = plan.nodes.iter().filter_map(|node| node.removable_at).filter(|due| *due > now).min();
    }

    fn take_back(&mut self, plan: &Plan, now: Timestamp) {
        let settings = self.config.scale_down.clone();
        let mut going: Vec<String> = Vec::new();
        for removal in &plan.scale_down {
            let Some(machine) = self.machine_of(&removal.node) else { continue };
            let (name, pool, phase) = (machine.name.clone(), machine.pool.clone(), machine.phase);
            let begun = self.memory.removals.len() + going.len();
            let leaving = |which: &dyn Fn(&Machine) -> bool| {
                let also = going.iter().filter_map(|one| self.machines.get(one));
                self.leaving(which) + also.filter(|one| which(&one.machine)).count()
            };
            // The limit on parallel removals applies to each Proxmox VE cluster separately. It also applies
            // to bare-metal machines and VMs separately.
            let here = self.cluster_of(&pool);
            let of_cluster = |machine: &Machine| self.cluster_of(&machine.pool) == here;
            if phase != Phase::Ready
                || settings.max_removals_per_hour.is_some_and(|most| begun >= most as usize)
                || leaving(&of_cluster) >= self.config.limits.max_parallel_retires as usize
            {
                continue;
            }
            let of_pool = |machine: &Machine| machine.pool == pool && machine.warm.is_none();
            let leaving = leaving(&of_pool);
            let ready = self
                .machines
                .values()
                .filter(|one| of_pool(&one.machine) && one.machine.phase == Phase::Ready);
            let nodes = ready.count() + self.leaving(of_pool);
            if leaving < settings.most_at_once(nodes) {
                going.push(name);
            }
        }
        self.memory.removals.extend(std::iter::repeat_n(now, going.len()));
        for name in going {
            self.retire(&name, now);
        }
    }

    fn leaving(&self, which: impl Fn(&Machine) -> bool) -> usize {
        let leaves = |machine: &Machine| machine.phase > Phase::Ready && which(machine);
        self.machines.values().filter(|one| leaves(&one.machine)).count()
    }

    /// Returns whether the pool's machines are bare metal, and the pool's Proxmox VE cluster.
    fn cluster_of(&self, pool: &PoolName) -> Option<(bool, &str)> {
        let pool = self.config.pools.iter().find(|one| one.name == *pool)?;
        Some((pool.is_physical(), pool.prefix.as_str()))
    }

    fn machine_of(&self, node: &str) -> Option<&Machine> {
        let mut machines = self.machines.values().map(|one| &one.machine);
        machines.find(|machine| machine.node.as_deref() == Some(node))
    }

    /// Annotates nodes with the time at which they became unneeded.
    fn write_timers(&mut self, plan: &Plan) {
        for verdict in &plan.nodes {
            let Some(node) = self.nodes.get_mut(&verdict.node) else { continue };
            let since = verdict.since.map(|since| since.to_string());
            if !node.labels.contains_key(POOL_LABEL) || node.annotations.get(UNNEEDED_SINCE) == since.as_ref()
            {
                continue;
            }
            let annotations = &mut Arc::make_mut(node).annotations;
            annotations.remove(UNNEEDED_SINCE);
            annotations.extend(since.map(|since| (UNNEEDED_SINCE.to_owned(), since)));
        }
    }

    /// Counts each pod once for each verdict that denied it a machine.
    fn count_refusals(&mut self, plan: &Plan) {
        use PodOutcome::{
            DaemonSet, ExistingNode, Gated, GrownNode, NewNode, TooYoung, Unfinished, UpcomingNode,
        };
        let served = BTreeSet::from([
            DaemonSet,
            ExistingNode,
            Gated,
            GrownNode,
            NewNode,
            TooYoung,
            Unfinished,
            UpcomingNode,
        ]);
        let refused = plan.pods.iter().filter(|verdict| !served.contains(&verdict.verdict));
        let refused: BTreeMap<&str, PodOutcome> =
            refused.map(|verdict| (&*verdict.pod, verdict.verdict)).collect();
        self.hopeless = !refused.is_empty();
        if refused.is_empty() {
            return;
        }
        let waiting = self.members.iter().filter(|(_, member)| member.waits());
        let found = waiting.filter_map(|(id, member)| Some((*id, *refused.get(&*member.pod.digest().id)?)));
        let found: Vec<(Id, PodOutcome)> = found.collect();
        for (id, verdict) in found {
            let first = self.members.get_mut(&id).is_some_and(|member| member.refused.insert(verdict));
            if first {
                *self.figures.refusals.entry(format!("{verdict:?}")).or_default() += 1;
            }
        }
    }
}
