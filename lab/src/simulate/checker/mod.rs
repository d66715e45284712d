//! Checks that the daemon keeps its promises. The checker has its own view of the clusters. It checks each
//! call that a daemon makes, and the state of the clusters at every tick. It relies only on what the daemon
//! writes into the clusters, never on the daemon's code.

pub mod memory;
pub mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use stage::Call;
use tokio::time::Instant;
use world::proxmox::VmView;

use crate::simulate::checker::memory::{
    Asleep, Braked, Figures, Lies, LookedAt, Missing, Sights, Stood, Told, Touched, Turns,
};
use crate::simulate::checker::objects::{name, uuid};
use crate::simulate::drawn::settings::DISKS;
use crate::simulate::log::Log;
use crate::simulate::world::World;

/// How long a call about a VM may be in progress. This is slightly longer than the longest delay that a fault
/// causes.
const ASKED: Duration = Duration::from_secs(21);
/// How long the daemon may rely on a check of a VM's owner.
const PROVEN: Duration = Duration::from_secs(3);

/// Checks the promises. Clones of a checker share its state.
#[derive(Clone)]
pub struct Checker {
    pub world: World,
    pub log: Log,
    promises: &'static [&'static dyn Promise],
    inner: Arc<Mutex<Inner>>,
}

/// A promise of the daemon.
pub trait Promise: Sync {
    /// Handles a daemon's call when it arrives.
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        let _ = (checker, who, call);
    }

    /// Checks what must be true at any time.
    fn throughout(&self, checker: &Checker) {
        let _ = checker;
    }
}

#[derive(Default)]
pub struct Inner {
    /// Unmanaged VMs and the state in which they must remain.
    pub foreign: BTreeMap<u32, VmView>,
    pub violations: Vec<String>,
    pub secrets: BTreeSet<String>,
    pub looked_at: LookedAt,
    pub no_quorum_since: Option<Instant>,
    pub unready_since: BTreeMap<String, Instant>,
    pub asked: BTreeMap<u32, Instant>,
    pub proven: BTreeMap<u32, Instant>,
    pub disturbed: BTreeMap<&'static str, Instant>,
    /// VMs that an administrator started. If such a VM is a warm machine, it may join.
    pub started: BTreeSet<u32>,
    /// The disk size that each pool's machines should have, in GiB.
    pub disks: BTreeMap<&'static str, u32>,
    pub turns: Turns,
    pub brakes: Braked,
    /// POST requests with an unknown outcome, by the VMID that they concern.
    pub unsure: BTreeMap<u32, String>,
    /// The location and state of VMs, hosts and storages, and the time of the last change.
    pub sights: Sights,
    /// Disks whose VM no longer exists.
    pub disks_left: BTreeSet<String>,
    /// Machines whose removal was ordered.
    pub told: Told,
    /// Hosts that were asked to shut down.
    pub asleep: Asleep,
    /// Storages that report wrong numbers.
    pub lies: Lies,
    /// The right that the daemon's token currently lacks, if any.
    pub missing: Missing,
    /// The periods during which everything was frozen.
    pub stood: Stood,
    /// How many times a daemon was started.
    pub runs: u64,
    /// VMs that other clients protect or hide.
    pub touched: Touched,
    /// Counts of clones, removed VMs, evictions and other actions.
    pub figures: Figures,
}

impl Inner {
    /// Called after everything was frozen for this time. The freeze does not count towards the age of calls
    /// in progress or of earlier reads.
    pub fn delay_what_is_on_its_way(&mut self, time: Duration) {
        for at in self.asked.values_mut().chain(self.proven.values_mut()) {
            *at += time;
        }
        self.turns.delay_the_pause(time);
    }
}

impl Checker {
    /// Creates a checker that knows the unmanaged VMs that exist from the start.
    pub fn new(world: &World, log: &Log, promises: &'static [&'static dyn Promise]) -> Self {
        let foreign = world.foreign.iter().filter_map(|vmid| Some((*vmid, world.pve.vm(*vmid)?))).collect();
        let disks = world.pools.iter().map(|pool| (pool.name, DISKS[0])).collect();
        let inner = Arc::new(Mutex::new(Inner { foreign, disks, ..Inner::default() }));
        Self { world: world.clone(), log: log.clone(), promises, inner }
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a promise was broken.
    pub fn violated(&self, what: &str) {
        self.log.say("VIOLATED", what);
        self.inner().violations.push(what.to_owned());
    }

    /// The promises that were broken so far.
    pub fn violations(&self) -> Vec<String> {
        self.inner().violations.clone()
    }

    /// How many times another daemon took the lead.
    pub fn hand_overs(&self) -> u64 {
        self.inner().turns.hand_overs
    }

    /// The number of actions so far.
    pub fn figures(&self) -> Figures {
        self.inner().figures
    }

    /// Returns the VMIDs of the daemon's VMs: all VMs in a pool's VMID range, except unmanaged ones.
    pub fn ours(&self) -> Vec<u32> {
        let foreign = self.foreigners();
        let ours = |vmid: &u32| self.world.pool_of(*vmid).is_some() && !foreign.contains(vmid);
        self.world.pve.vmids().into_iter().filter(ours).collect()
    }

    /// The VMIDs of unmanaged VMs.
    pub fn foreigners(&self) -> BTreeSet<u32> {
        self.inner().foreign.keys().copied().collect()
    }

    /// Whether the VMID's pool would still have enough VMIDs for its maximum if another client took this
    /// VMID.
    pub fn may_be_taken(&self, vmid: u32) -> bool {
        let Some(pool) = self.world.pool_of(vmid) else { return false };
        let there = self.foreigners().into_iter().filter(|one| pool.vmids.contains(one)).count();
        there + pool.max < pool.vmids.clone().count()
    }

    /// Called when an administrator has created this VM.
    pub fn made_by_hand(&self, vmid: u32) {
        if let Some(vm) = self.world.pve.vm(vmid) {
            self.inner().foreign.insert(vmid, vm);
        }
    }

    /// Called when an administrator has created this VM in place of a managed one.
    pub fn taken_over(&self, vmid: u32) {
        self.inner().figures.taken += 1;
        self.made_by_hand(vmid);
    }

    /// Whether the VM with this VMID is unmanaged.
    pub fn is_foreign(&self, vmid: u32) -> bool {
        self.inner().foreign.contains_key(&vmid)
    }

    /// Called when an administrator removes one of their own VMs.
    pub fn removed_by_hand(&self, vmid: u32) {
        self.inner().foreign.remove(&vmid);
    }

    /// Called when an administrator starts this VM.
    pub fn started_by_hand(&self, vmid: u32) {
        self.inner().started.insert(vmid);
    }

    /// Called when an administrator removes this VM.
    pub fn deleted_by_hand(&self, vmid: u32) {
        if self.is_foreign(vmid) {
            self.violated(&format!("a report asks an administrator to destroy the unmanaged VM {vmid}"));
        }
        self.disturb(vmid);
    }

    /// Called when an administrator deletes this Node.
    pub fn node_deleted_by_hand(&self, node: &str) {
        if let Some(vmid) = self.ours().into_iter().find(|vmid| self.node_of(*vmid).as_deref() == Some(node))
        {
            self.disturb(vmid);
        }
    }

    fn disturb(&self, vmid: u32) {
        if let Some(pool) = self.world.pool_of(vmid) {
            self.inner().disturbed.insert(pool.name, Instant::now());
        }
    }

    /// Whether a daemon's request may still affect the VM with this VMID, because the request is in progress
    /// or about to be sent. If an unmanaged VM took the VMID now, the request would also affect that VM.
    pub fn is_asked_about(&self, vmid: u32) -> bool {
        let inner = self.inner();
        let within =
            |times: &BTreeMap<u32, Instant>, time| times.get(&vmid).is_some_and(|at| at.elapsed() < time);
        within(&inner.asked, ASKED) || within(&inner.proven, PROVEN)
    }

    /// The number of daemon starts plus the number of terms that the checker has seen in the Lease. The sum
    /// changes whenever a daemon may have begun a new term.
    pub fn terms(&self) -> u64 {
        let inner = self.inner();
        inner.runs + inner.turns.terms
    }

    /// Called when a daemon is started.
    pub fn run_begins(&self) {
        self.inner().runs += 1;
    }

    /// Returns the name of the Node whose `systemUUID` equals the VM's SMBIOS uuid.
    pub fn node_of(&self, vmid: u32) -> Option<String> {
        let uuid = uuid(&self.world.pve.vm(vmid)?)?;
        let nodes = self.world.kube.list("Node");
        let node = nodes.iter().find(|node| node["status"]["nodeInfo"]["systemUUID"] == uuid.as_str())?;
        Some(name(node).to_owned())
    }

    /// The stored record of the machine in a slot.
    pub fn record(&self, vmid: u32) -> Option<Value> {
        let pool = self.world.pool_of(vmid)?.name;
        let map = self.world.kube.get("ConfigMap", "pve-autoscaler", &format!("machine-{pool}-{vmid}"))?;
        serde_json::from_str(map["data"]["record"].as_str()?).ok()
    }

    /// Whether the slot's record contains a VM uuid, by which the VM can be identified even if its notes are
    /// gone.
    pub fn is_known_by_uuid(&self, vmid: u32) -> bool {
        self.record(vmid).is_some_and(|record| record["smbiosUuid"].is_string())
    }

    /// Called when a daemon's call arrives.
    pub fn sees(&self, who: &str, call: Call<'_>) {
        for promise in self.promises {
            promise.on_call(self, who, &call);
        }
    }

    /// Checks everything.
    pub fn tick(&self) {
        for promise in self.promises {
            promise.throughout(self);
        }
    }
}
