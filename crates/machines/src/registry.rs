//! All machines with their phases. The machines' tasks write to the registry; rounds, `status` and metrics
//! read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use kubernetes::Versioned;
use model::machine::{Machine, Phase};
use model::{MachineId, Pod, PoolName, Record, Slot, Vmid};
use runtime::ordered_notify::{Changed, Changes};
use settings::Config;

/// A machine as seen from outside its task.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineView {
    /// Its record.
    pub record: Record,
    /// The resource version and uid of the stored record. Both are empty until the record is stored.
    pub version: (String, String),
    /// Its phase.
    pub phase: Phase,
    /// When the machine entered its current phase.
    pub since: Timestamp,
    /// What the machine is waiting for, or why it is being removed.
    pub note: String,
    /// The name of the machine's Node, if it has one.
    pub node: Option<String>,
    /// Whether a task is working on the machine.
    pub busy: bool,
}

impl MachineView {
    /// A machine that a round has just decided to create. Its record is not stored yet.
    pub fn requested(record: Record, now: Timestamp) -> Self {
        let note = "the record is being written".to_owned();
        let version = (String::new(), String::new());
        Self { record, version, phase: Phase::Requested, since: now, note, node: None, busy: true }
    }

    /// A machine whose record was found. `node` is the name of its Node, if it has one.
    pub fn found(stored: &Versioned<Record>, node: Option<String>, now: Timestamp) -> Self {
        let record = &stored.record;
        let phase = match record.phase() {
            Phase::Requested if node.is_some() => Phase::Ready,
            phase => phase,
        };
        let since =
            if phase == Phase::Clearing { record.vm_gone } else { record.entered.get(&phase).copied() };
        let since = since.unwrap_or(now);
        let version = (stored.resource_version.clone(), stored.uid.clone());
        Self { record: record.clone(), version, phase, since, note: String::new(), node, busy: false }
    }

    /// Sets the phase to `Warm`, for a machine that is kept warm.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.phase = Phase::Warm;
        self.since = self.record.entered.get(&Phase::Warm).copied().unwrap_or(self.since);
        self.note = self
            .record
            .warm
            .map(|state| format!("kept {} until it is needed", state.name()))
            .unwrap_or_default();
        self
    }

    /// The record in its stored form.
    pub fn stored(&self) -> Versioned<Record> {
        let (resource_version, uid) = self.version.clone();
        Versioned { record: self.record.clone(), resource_version, uid }
    }

    /// Returns the machine as part of a round's snapshot. A machine that is being removed but was never a
    /// node is shown as failed, not as leaving its pool.
    pub fn machine(&self, config: &Config) -> Machine {
        let never_served = self.phase == Phase::Deleting && self.record.was_never_a_node();
        Machine {
            name: self.record.name.clone(),
            pool: self.record.pool.clone(),
            vmid: self.record.slot.vmid,
            host: config.host_key(self.record.region.as_deref(), &self.record.host),
            seen_on: None,
            cores: self.record.cores,
            memory: self.record.memory,
            phase: if never_served { Phase::Failed } else { self.phase },
            just_stored: false,
            since: Some(self.since),
            requested: Some(self.record.wanted_since()),
            node: self.node.clone(),
            pods: self.record.pods.clone(),
            warm: self.record.warm,
            growing: self.record.growing.clone(),
            grow_backoff: self.record.grow_backoff.clone(),
            takes_no_cpus: self.record.takes_no_cpus,
            takes_no_memory: self.record.takes_no_memory,
            made_of: self.record.made_of.clone(),
        }
    }
}

#[derive(Debug)]
struct Inner {
    machines: Mutex<BTreeMap<MachineId, MachineView>>,
    /// When each slot was last freed, by pool and VMID.
    freed: Mutex<BTreeMap<PoolName, BTreeMap<Vmid, Timestamp>>>,
    /// Notifications for the tasks of machines whose VMs may have been changed, by machine id.
    doubts: Mutex<BTreeMap<MachineId, Arc<Notify>>>,
    /// Machines whose VMs an administrator has protected, by id.
    protected: Mutex<BTreeSet<MachineId>>,
    /// The pods that will be deleted together with a machine because no other pods are left on its node, by
    /// machine id.
    staying: Mutex<BTreeMap<MachineId, Vec<Arc<Pod>>>>,
    /// When a machine's Node was first found silent while the machine's VM was not visible, by machine id.
    silent: Mutex<BTreeMap<MachineId, Instant>>,
    changed: Changes,
}

/// All machines by id. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

impl Default for Registry {
    fn default() -> Self {
        Self(Arc::new(Inner {
            machines: Mutex::default(),
            freed: Mutex::default(),
            doubts: Mutex::default(),
            protected: Mutex::default(),
            staying: Mutex::default(),
            silent: Mutex::default(),
            changed: Changes::default(),
        }))
    }
}

impl Registry {
    /// All machines, sorted by name.
    pub fn all(&self) -> Vec<MachineView> {
        let mut all: Vec<_> = self.machines().values().cloned().collect();
        all.sort_by(|a, b| a.record.name.cmp(&b.record.name));
        all
    }

    /// The machine whose Node has this name.
    pub fn of_node(&self, node: &str) -> Option<MachineView> {
        self.machines().values().find(|view| view.node.as_deref() == Some(node)).cloned()
    }

    /// The machine with this id.
    pub fn get(&self, id: &MachineId) -> Option<MachineView> {
        self.machines().get(id).cloned()
    }

    /// Subscribes to changes: a machine is added or forgotten, or its phase, Node, task or protection
    /// changes.
    pub fn changed(&self) -> Changed {
        self.0.changed.subscribe()
    }

    /// Returns when this slot of the pool was last freed. Returns `None` if the slot has not been freed since
    /// the daemon started.
    pub fn freed(&self, pool: &PoolName, slot: &Slot) -> Option<Timestamp> {
        let freed = self.0.freed.lock().unwrap_or_else(PoisonError::into_inner);
        freed.get(pool)?.get(&slot.vmid).copied()
    }

    /// Returns the VMIDs of the pool's machines whose records were dropped after `since`.
    pub fn freed_since(&self, pool: &PoolName, since: Timestamp) -> BTreeSet<Vmid> {
        let freed = self.0.freed.lock().unwrap_or_else(PoisonError::into_inner);
        let freed = freed.get(pool).into_iter().flatten();
        freed.filter(|(_, at)| **at > since).map(|(vmid, _)| *vmid).collect()
    }

    /// Notifies a machine's task that the VM has to be checked, because the cluster's list shows an
    /// unexpected state.
    pub fn doubt(&self, id: &MachineId) {
        let doubts = self.0.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = doubts.get(id) {
            task.notify_one();
        }
    }

    /// Notes whether an administrator has protected a machine's VM. A protected VM cannot be removed.
    pub fn protect(&self, id: &MachineId, is_protected: bool) {
        let changed = {
            // The machines stay locked, so that nothing is recorded about a machine that is forgotten in the
            // meantime.
            let machines = self.machines();
            let mut protected = self.protected();
            if is_protected && machines.contains_key(id) {
                protected.insert(id.to_owned())
            } else {
                protected.remove(id)
            }
        };
        if changed {
            self.0.changed.announce();
        }
    }

    /// Calls `judge` with the pods that will be deleted together with other machines. If all remaining pods
    /// on this machine's node will be deleted together with this machine, `judge` returns them, and the
    /// registry stores them. Callers take turns, so a second caller sees the pods that the first one stored.
    pub(super) fn staying<T>(
        &self,
        id: &MachineId,
        judge: impl FnOnce(&[Arc<Pod>]) -> (T, Option<Vec<Arc<Pod>>>),
    ) -> T {
        let mut all = self.0.staying.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(id);
        let others: Vec<Arc<Pod>> = all.values().flatten().cloned().collect();
        let (judged, own) = judge(&others);
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            all.insert(id.to_owned(), own);
        }
        judged
    }

    /// Forgets the pods that were to be deleted together with this machine. This is called when the machine's
    /// node is in service again, or when the pods are gone.
    pub(super) fn none_stay(&self, id: &MachineId) {
        self.0.staying.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Notes whether a machine's Node is silent now. Returns for how long it has been silent without
    /// interruption.
    pub(super) fn silent(&self, id: &MachineId, is_silent: bool) -> Duration {
        // The machines stay locked, so that nothing is recorded about a machine that is forgotten in the
        // meantime.
        let machines = self.machines();
        let mut silent = self.0.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_silent || !machines.contains_key(id) {
            silent.remove(id);
            return Duration::ZERO;
        }
        silent.entry(id.to_owned()).or_insert_with(Instant::now).elapsed()
    }

    /// Whether a machine's VM was protected at the last check.
    pub fn is_protected(&self, id: &MachineId) -> bool {
        self.protected().contains(id)
    }

    /// The notification that [`Self::doubt`] sends to the machine's task.
    pub(super) fn doubts(&self, id: &MachineId) -> Arc<Notify> {
        let mut doubts = self.0.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        doubts.entry(id.to_owned()).or_default().clone()
    }

    /// Claims a machine for a task. Returns false if another task is already working on the machine.
    pub(super) fn claim(&self, id: &MachineId) -> bool {
        match self.machines().get_mut(id) {
            Some(view) if view.busy => false,
            Some(view) => {
                view.busy = true;
                true
            }
            None => true,
        }
    }

    /// Adds or updates a machine.
    pub fn put(&self, view: MachineView) {
        let id = view.record.id.clone();
        let moved = {
            let mut machines = self.machines();
            let before = machines.insert(id, view.clone());
            before.is_none_or(|before| {
                (before.phase, &before.node, before.busy) != (view.phase, &view.node, view.busy)
            })
        };
        if moved {
            self.0.changed.announce();
        }
    }

    pub(super) fn release(&self, id: &MachineId) {
        if let Some(view) = self.machines().get_mut(id) {
            view.busy = false;
        }
        self.0.changed.announce();
    }

    /// Removes a machine from the registry once its record is gone.
    pub fn forget(&self, id: &MachineId, now: Timestamp) {
        let gone = self.machines().remove(id);
        self.0.doubts.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.none_stay(id);
        self.protected().remove(id);
        self.0.silent.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(view) = gone {
            let mut freed = self.0.freed.lock().unwrap_or_else(PoisonError::into_inner);
            freed.entry(view.record.pool).or_default().insert(view.record.slot.vmid, now);
        }
        self.0.changed.announce();
    }

    fn protected(&self) -> MutexGuard<'_, BTreeSet<MachineId>> {
        self.0.protected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<MachineId, MachineView>> {
        self.0.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
