//! Turns the plan into tasks. The plan contains all decisions. This module only starts the work, and enforces
//! the limits on removals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;

use super::Daemon;
use super::build_snapshot::shown_timer;
use machines::{Context, MachineView, Usable};
use model::machine::{Growing, Phase, STORED_ON, WarmState};
use model::plan::{GrownMachine, NewMachine, Plan, Removal, RemovalReason, Unkept};
use model::pod_id::PodId;
use model::snapshot::{POOL_LABEL, UNNEEDED_SINCE};
use model::{MachineId, PoolName, Record, Slot, Snapshot};
use observability::Problem;
use settings::{Config, Mode, Size};

/// How many Node annotations are written at a time.
const ANNOTATIONS_AT_A_TIME: usize = 8;
/// How long a round waits for the annotations.
const ANNOTATING: Duration = Duration::from_secs(3);
/// The maximum number of pods that a record names. It exceeds a kubelet's usual pod limit, so that usually
/// all of a machine's pods are named: the planner reserves room on the machine for the named pods.
const PODS_NAMED: usize = 250;

/// A node that is removed in this round.
pub(super) struct PendingRemoval {
    view: MachineView,
    reason: String,
    /// The plan's reason; `None` if an operator ordered the removal.
    decided: Option<RemovalReason>,
}

impl Daemon {
    /// Carries out the plan. Returns false if nothing may be started. In that case, the timers of unneeded
    /// nodes do not start either.
    pub(super) async fn act(&mut self, config: &Arc<Config>, snapshot: &Snapshot, plan: &Plan) -> bool {
        let wishes = self.wishes(config, snapshot);
        let idle = plan.scale_up.is_empty()
            && plan.grow.is_empty()
            && plan.scale_down.is_empty()
            && wishes.is_empty();
        let begins =
            !(idle && plan.keep.is_empty() && plan.unkept.is_empty()) || super::host_power::begins(plan);
        if self.switch.paused().is_some()
            || (begins && config.mode == Mode::Active && !self.may_begin().await)
        {
            // Even if nothing may be started, the timers of nodes that are needed are cleared.
            self.annotate(snapshot, plan, Option::is_none).await;
            return false;
        }
        self.speak(snapshot, plan);
        if config.mode == Mode::Observe {
            self.overlay = timers(plan).map(|(node, since)| (node.to_owned(), since)).collect();
            self.unshown.clear();
            self.remember_idle_hosts(plan, snapshot.time);
            return true;
        }
        let now = snapshot.time;
        for growth in &plan.scale_up {
            for machine in &growth.machines {
                match machine.woken {
                    Some(_) => self.wake(config, machine, now),
                    None => self.make(config, &growth.pool, machine, None, now),
                }
            }
        }
        for grown in &plan.grow {
            self.grow(config, grown, now);
        }
        for growth in &plan.keep {
            let pool = config.pools.iter().find(|pool| pool.name == growth.pool);
            for machine in &growth.machines {
                self.make(config, &growth.pool, machine, pool.map(|pool| pool.warm.state), now);
            }
        }
        for unkept in &plan.unkept {
            self.keep_no_longer(config, unkept, now);
        }
        let wished = |(view, reason)| PendingRemoval { view, reason, decided: None };
        let mut going: Vec<PendingRemoval> = wishes.into_iter().map(wished).collect();
        for removal in &plan.scale_down {
            going.extend(self.may_go(config, removal, &going, now));
        }
        self.take_back(config, going, now).await;
        self.switch_hosts(config, snapshot, plan).await;
        self.annotate(snapshot, plan, |_| true).await;
        true
    }

    /// Creates a machine that becomes a node or is kept warm.
    fn make(
        &mut self,
        config: &Arc<Config>,
        pool: &PoolName,
        machine: &NewMachine,
        warm: Option<WarmState>,
        now: Timestamp,
    ) {
        let (Some(name), Some(vmid)) = (&machine.name, machine.vmid) else {
            tracing::error!(
                pool = pool.as_str(),
                "the plan contains a machine without a slot; ignoring the machine"
            );
            return;
        };
        let physical = config.pools.iter().any(|one| one.name == *pool && one.is_physical());
        let (prefix, host) = (machine.host.region(), machine.host.host());
        let found = if physical {
            Some(Usable::default())
        } else {
            self.regions.get(prefix).and_then(|region| region.templates.pick(pool, host))
        };
        let Some(template) = found else {
            tracing::warn!(pool = pool.as_str(), host = %machine.host, "none of the pool's templates can be cloned to the host");
            return;
        };
        let region = config.pools.iter().find(|one| one.name == *pool).and_then(|one| one.region.clone());
        let slot = Slot {
            vmid,
            machine: physical.then(|| name.clone()),
            address: machine.address,
            further: machine.further_addresses.clone(),
        };
        let id = uuid::Builder::from_random_bytes(std::array::from_fn(|_| self.random.u8(..))).into_uuid();
        let record = Record {
            region,
            template: template.vmid,
            template_host: template.host.clone(),
            cores: machine.cores,
            memory: machine.memory_bytes,
            storages: template.storages(),
            pods: named(machine),
            warm,
            made_of: made_of(config, pool, machine, &template.print),
            ..Record::new(id.to_string().into(), pool.clone(), name.clone(), slot, host.to_owned(), now)
        };
        let Some(context) = self.context(config, &record) else { return };
        let pods = machine.pods.join(", ");
        let words = if physical { "switching on a machine" } else { "creating a machine" };
        tracing::info!(machine = %name, pool = pool.as_str(), vmid = vmid.0, host = %machine.host, pods, "{words}");
        if let Some(state) = warm {
            let what = format!("+ {name} on {}: kept {} ahead of demand", machine.host, state.name());
            self.board.decided(now, what);
        } else {
            let place =
                if physical { "is being switched on".to_owned() } else { format!("on {}", machine.host) };
            self.board.decided(now, format!("+ {name} {place}: {}", made_for(&machine.pods)));
            self.asked_for(pool, &record.id, machine, now);
        }
        // The machine is registered before its task begins, so that the next round counts it.
        self.registry.put(MachineView::requested(record.clone(), now));
        self.spawn(machines::create(context, record, self.reports.clone()));
    }

    fn asked_for(&mut self, pool: &PoolName, id: &MachineId, machine: &NewMachine, now: Timestamp) {
        self.memory.grew(pool, now);
        let since = self.waiting.earliest(&machine.pods);
        self.board.metrics().asked_for(pool, id, !machine.pods.is_empty(), since);
    }

    /// Asks a machine that is kept warm to join.
    fn wake(&mut self, config: &Arc<Config>, machine: &NewMachine, now: Timestamp) {
        let Some(view) = self.kept_warm(machine.name.as_deref()) else { return };
        let Some(context) = self.context(config, &view.record) else { return };
        let (pool, pods) = (view.record.pool.clone(), machine.pods.join(", "));
        tracing::info!(machine = %view.record.name, pool = pool.as_str(), pods, "asking a warm machine to join");
        self.board
            .decided(now, format!("+ {} is being woken: {}", view.record.name, made_for(&machine.pods)));
        self.asked_for(&pool, &view.record.id, machine, now);
        // Registered before the task begins, so that the next round waits for the machine.
        let mut shown = view.clone();
        (shown.phase, shown.since, shown.record.warm) = (Phase::Requested, now, None);
        "being asked to join".clone_into(&mut shown.note);
        self.registry.put(shown);
        self.spawn(machines::wake(context, view.stored(), named(machine), self.reports.clone()));
    }

    /// Makes a running machine larger.
    fn grow(&mut self, config: &Arc<Config>, grown: &GrownMachine, now: Timestamp) {
        let Some(view) = self.registry.of_node(&grown.node) else { return };
        let Some(node) = machines::node_of(&self.watches, &view.record) else { return };
        let same = (view.record.cores, view.record.memory) == (grown.from.cores, grown.from.memory_bytes);
        if view.busy || view.phase != Phase::Ready || !same {
            return;
        }
        let Some(context) = self.context(config, &view.record) else { return };
        let pods = grown.pods.join(", ");
        let (from, to) = (grown.from.words(), grown.to.words());
        tracing::info!(machine = %grown.machine, pool = %grown.pool, from, to, pods, "growing a running machine");
        self.board.decided(
            now,
            format!("~ {} grows from {from} to {to}: {}", grown.machine, made_for(&grown.pods)),
        );
        self.memory.grew(&grown.pool, now);
        self.board.metrics().grows(&grown.pool);
        let before = Growing {
            cores: view.record.cores,
            memory: view.record.memory,
            node_cpu_milli: node.capacity.cpu_milli,
            node_memory: node.capacity.memory,
            since: now,
            failed: None,
        };
        let size = Size { cores: grown.to.cores, memory: grown.to.memory_bytes };
        // Registered before the task begins, so that the next round counts the new size.
        let mut shown = view.clone();
        shown.record.growing = Some(before.clone());
        (shown.record.cores, shown.record.memory) = (size.cores, size.memory);
        self.registry.put(shown);
        self.spawn(machines::grow(context, view.stored(), before, size, self.reports.clone()));
    }

    /// Removes a machine that was kept warm. It was never a node, so only its VM has to be removed.
    fn keep_no_longer(&mut self, config: &Arc<Config>, unkept: &Unkept, now: Timestamp) {
        let Some(view) = self.kept_warm(Some(&unkept.machine)) else { return };
        if self.retires_enough(config, &view.record, &[], now)
            || self.regions.unseen_of(config, &view.record, now).is_some()
        {
            return;
        }
        let Some(context) = self.context(config, &view.record) else { return };
        let reason = unkept.reason.clone();
        tracing::info!(machine = %unkept.machine, reason, "a machine is no longer kept warm");
        self.board.decided(now, format!("- {}: {reason}", unkept.machine));
        self.retiring(context, &view, reason, now);
    }

    /// The warm machine with this name, if no task is working on it.
    fn kept_warm(&self, name: Option<&str>) -> Option<MachineView> {
        let waits =
            |view: &MachineView| !view.busy && view.phase == Phase::Warm && view.record.warm.is_some();
        self.registry.all().into_iter().find(|view| Some(view.record.name.as_str()) == name && waits(view))
    }

    /// Returns the removal that the plan requests, or `None` if the machine is busy or a limit is reached.
    /// `going`: the other removals of this round.
    fn may_go(
        &mut self,
        config: &Config,
        removal: &Removal,
        going: &[PendingRemoval],
        now: Timestamp,
    ) -> Option<PendingRemoval> {
        let view = self.registry.of_node(&removal.node)?;
        let goes = going.iter().any(|one| one.view.record.id == view.record.id);
        if goes || view.busy || view.phase != Phase::Ready {
            return None;
        }
        // The pool may now be in a different region from the machine.
        if let Some(why) = self.regions.unseen_of(config, &view.record, now) {
            self.said.once(&format!("unseen {}", view.record.name), || {
                tracing::warn!(node = %removal.node, why, "not removing a node now");
            });
            return None;
        }
        if let Some(most) = config.scale_down.max_removals_per_hour
            && self.memory.removals() + going.len() >= most as usize
        {
            self.said.once("brake", || {
                tracing::warn!(
                    most,
                    "removing no more nodes for now: `scale_down.max_removals_per_hour` is reached"
                );
            });
            return None;
        }
        if self.retires_enough(config, &view.record, going, now) {
            return None;
        }
        if self.share_is_going(config, &view.record.pool, going) {
            self.said.once(&format!("share {}", view.record.pool), || {
                tracing::info!(
                    pool = view.record.pool.as_str(),
                    "removing no more nodes of this pool for now: as many as \
                        `scale_down.max_removal_percentage` allows are already being removed"
                );
            });
            return None;
        }
        Some(PendingRemoval { view, reason: why(removal), decided: Some(removal.reason) })
    }

    /// Removes nodes. The removals are first counted towards the hourly limit and the count is stored, so
    /// that an instance that takes over after a crash knows about each removal.
    async fn take_back(&mut self, config: &Arc<Config>, going: Vec<PendingRemoval>, now: Timestamp) {
        if going.is_empty() {
            return;
        }
        if !self.memory.shrinks(going.len(), now).await {
            let what = "no node is removed: the removal count for the hourly limit cannot be stored";
            self.said.once("brake not stored", || tracing::warn!("{what}"));
            return self.board.problem(&Problem::Kubernetes, what);
        }
        for PendingRemoval { view, reason, decided } in going {
            // The machine may have changed while the count was being stored.
            let view =
                self.registry.get(&view.record.id).filter(|view| !view.busy && view.phase == Phase::Ready);
            if let Some(view) = view {
                self.retire(config, view, reason, decided, now);
            }
        }
    }

    /// Whether `max_parallel_retires` is reached in a record's cluster. Removals that were decided in this
    /// round are included, even though their tasks have not begun. Each cluster has its own count, and so do
    /// bare-metal machines, so that an unavailable cluster does not hold up the others.
    pub(super) fn retires_enough(
        &self,
        config: &Config,
        record: &Record,
        going: &[PendingRemoval],
        now: Timestamp,
    ) -> bool {
        let cluster =
            |record: &Record| (record.is_physical(), config.prefix(record.region.as_deref()).to_owned());
        let here = cluster(record);
        let under_way = |view: &MachineView| view.busy || view.since == now;
        let leaves =
            |view: &&MachineView| under_way(view) && leaves(view.phase) && cluster(&view.record) == here;
        let also = going.iter().filter(|one| cluster(&one.view.record) == here).count();
        let leaving = self.registry.all().iter().filter(leaves).count() + also;
        leaving >= config.limits.max_parallel_retires as usize
    }

    fn retire(
        &mut self,
        config: &Arc<Config>,
        view: MachineView,
        reason: String,
        decided: Option<RemovalReason>,
        now: Timestamp,
    ) {
        let Some(context) = self.context(config, &view.record) else { return };
        let node = view.node.as_deref().unwrap_or(&view.record.name);
        tracing::info!(node, reason, "removing a node");
        self.board.decided(now, format!("- {node}: {reason}"));
        self.board.metrics().taken_back(&view.record.pool, decided);
        self.retiring(context, &view, reason, now);
    }

    fn retiring(&self, context: Context, view: &MachineView, reason: String, now: Timestamp) {
        // The removal is registered before its task begins, so that the next round leaves the machine alone.
        let mut shown = view.clone();
        shown.phase = Phase::Draining;
        shown.since = now;
        shown.note.clone_from(&reason);
        self.registry.put(shown);
        self.spawn(machines::retire(context, view.stored(), reason, self.reports.clone()));
    }

    /// Whether the maximum share of a pool is already being removed, including the removals of this round.
    /// Machines that never became nodes are left out.
    fn share_is_going(&self, config: &Config, pool: &str, going: &[PendingRemoval]) -> bool {
        let views = self.registry.all();
        let of_pool = || views.iter().filter(|view| view.record.pool == pool && view.record.warm.is_none());
        let leaves = |view: &&MachineView| leaves(view.phase) && !view.record.was_never_a_node();
        let leaving = of_pool().filter(leaves).count();
        let nodes = leaving + of_pool().filter(|view| view.phase == Phase::Ready).count();
        let also = going.iter().filter(|one| one.view.record.pool == pool).count();
        leaving + also >= config.scale_down.most_at_once(nodes)
    }

    /// Annotates each Node with the time at which it became unneeded, so that the time survives a restart.
    /// The time is also kept in `unshown` until the Node shows it, because the Node may still show an
    /// outdated time.
    async fn annotate(
        &mut self,
        snapshot: &Snapshot,
        plan: &Plan,
        wanted: impl Fn(&Option<Timestamp>) -> bool,
    ) {
        let wanted: BTreeMap<&str, Option<Timestamp>> =
            timers(plan).filter(|(_, since)| wanted(since)).collect();
        let changes = snapshot.nodes.iter().filter_map(|node| {
            if !node.labels.contains_key(POOL_LABEL) {
                return None;
            }
            let since = wanted.get(node.name.as_str())?;
            let same = shown_timer(node) == *since
                && node.annotations.contains_key(UNNEEDED_SINCE) == since.is_some()
                && !self.unshown.contains_key(&node.name);
            (!same).then(|| (node.name.clone(), *since))
        });
        let changes: Vec<(String, Option<Timestamp>)> = changes.collect();
        self.unshown.extend(changes.iter().cloned());
        let kubernetes = &self.kubernetes;
        let write = |(node, since): (String, Option<Timestamp>)| async move {
            let since = since.map(|since| since.to_string());
            let written = kubernetes.annotate_node(&node, UNNEEDED_SINCE, since.as_deref()).await;
            if let Err(error) = written {
                tracing::debug!(%error, node, "a node's timer could not be written; the next round tries again");
            }
        };
        let written = futures::stream::iter(changes).for_each_concurrent(ANNOTATIONS_AT_A_TIME, write);
        if tokio::time::timeout(ANNOTATING, written).await.is_err() {
            tracing::debug!("not enough time to write the timers of all nodes; the next round continues");
        }
    }
}

/// Returns the pods that a new machine's record names.
fn named(machine: &NewMachine) -> Vec<String> {
    machine.pods.iter().take(PODS_NAMED).map(ToString::to_string).collect()
}

/// The settings and the template from which a machine is created, in the form in which its record stores
/// them.
fn made_of(config: &Config, pool: &str, machine: &NewMachine, template: &str) -> BTreeMap<String, String> {
    let Some(pool) = config.pools.iter().find(|one| one.name == pool) else { return BTreeMap::new() };
    let mut all = pool.made_of();
    if pool.is_physical() {
        return all;
    }
    all.insert("size".to_owned(), Size { cores: machine.cores, memory: machine.memory_bytes }.words());
    all.insert("template".to_owned(), template.to_owned());
    all.extend(machine.storage.clone().map(|storage| (STORED_ON.to_owned(), storage)));
    all
}

/// The time at which each node became unneeded; `None` if it is needed.
fn timers(plan: &Plan) -> impl Iterator<Item = (&str, Option<Timestamp>)> {
    plan.nodes.iter().map(|verdict| (verdict.node.as_str(), verdict.since))
}

pub(super) fn leaves(phase: Phase) -> bool {
    matches!(phase, Phase::Draining | Phase::Stopping | Phase::Deleting)
}

fn made_for(pods: &[PodId]) -> String {
    match pods {
        [] => "for the pool's minimum, or to replace a node that is being removed".to_owned(),
        [one] => format!("for {one}"),
        [first, rest @ ..] => format!("for {first} and {} more", rest.len()),
    }
}

/// A removal's reason, in words.
pub(super) fn why(removal: &Removal) -> String {
    let used = (removal.utilization * 100.0).round();
    match removal.reason {
        RemovalReason::Empty => "no pod on it has to move".to_owned(),
        RemovalReason::Underutilized => format!("{used} % used, and its pods fit elsewhere"),
        RemovalReason::Unready => "it was unready for too long".to_owned(),
        RemovalReason::Consolidation => "fewer or smaller machines suffice".to_owned(),
        RemovalReason::Drifted => "it was created from settings that have changed".to_owned(),
        RemovalReason::Expired => "it is older than allowed".to_owned(),
        RemovalReason::Maintenance => "its host is in maintenance".to_owned(),
        RemovalReason::HostOff => "its host is to be switched off".to_owned(),
    }
}
