//! The checker of the promises, with its own view of the clusters: at each call of the daemon, and all the
//! time. It knows the daemon only by what it writes into the clusters, not by its code.

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

/// How long a call about a VM may still be in progress: a little more than the longest delay by faults.
const ASKED: Duration = Duration::from_secs(21);
/// For how long after the owner of a VM was checked the daemon may rely on the answer.
const PROVEN: Duration = Duration::from_secs(3);

/// Checks the promises. Clones share their knowledge.
#[derive(Clone)]
pub struct Checker {
    pub world: World,
    pub log: Log,
    promises: &'static [&'static dyn Promise],
    inner: Arc<Mutex<Inner>>,
}

/// A promise of the daemon.
pub trait Promise: Sync {
    /// Handles a call of one of the daemons, at the moment at which it arrives.
    fn on_call(&self, checker: &Checker, who: &str, call: &Call<'_>) {
        let _ = (checker, who, call);
    }

    /// Checks what must always hold.
    fn throughout(&self, checker: &Checker) {
        let _ = checker;
    }
}

#[derive(Default)]
pub struct Inner {
    /// Unmanaged VMs, as they must stay.
    pub foreign: BTreeMap<u32, VmView>,
    pub violations: Vec<String>,
    pub secrets: BTreeSet<String>,
    pub looked_at: LookedAt,
    pub no_quorum_since: Option<Instant>,
    pub unready_since: BTreeMap<String, Instant>,
    pub asked: BTreeMap<u32, Instant>,
    pub proven: BTreeMap<u32, Instant>,
    pub disturbed: BTreeMap<&'static str, Instant>,
    /// VMs that an administrator started: a machine that waits in one of them may join.
    pub started: BTreeSet<u32>,
    /// The size of the disks that each pool's machines are to have, in GiB.
    pub disks: BTreeMap<&'static str, u32>,
    pub turns: Turns,
    pub brakes: Braked,
    /// POSTs about a VM that may or may not have been carried out.
    pub unsure: BTreeMap<u32, String>,
    /// Where everything is, and since when.
    pub sights: Sights,
    /// Disks that are all that is left of a VM.
    pub disks_left: BTreeSet<String>,
    /// Machines whose removal was ordered.
    pub told: Told,
    /// Hosts that were asked to shut down.
    pub asleep: Asleep,
    /// Storages that lie.
    pub lies: Lies,
    /// A right that is missing.
    pub missing: Missing,
    /// When everything was frozen.
    pub stood: Stood,
    /// Runs of daemons so far.
    pub runs: u64,
    /// VMs that others hold.
    pub touched: Touched,
    /// Counts of clones, destructions, evictions and the like.
    pub figures: Figures,
}

impl Inner {
    /// Everything was frozen for this long: what is in progress, or was read, is only as old as before.
    pub fn delay_what_is_on_its_way(&mut self, time: Duration) {
        for at in self.asked.values_mut().chain(self.proven.values_mut()) {
            *at += time;
        }
        self.turns.delay_the_pause(time);
    }
}

impl Checker {
    /// Knows unmanaged VMs from the start.
    pub fn new(world: &World, log: &Log, promises: &'static [&'static dyn Promise]) -> Self {
        let foreign = world.foreign.iter().filter_map(|vmid| Some((*vmid, world.pve.vm(*vmid)?))).collect();
        let disks = world.pools.iter().map(|pool| (pool.name, DISKS[0])).collect();
        let inner = Arc::new(Mutex::new(Inner { foreign, disks, ..Inner::default() }));
        Self { world: world.clone(), log: log.clone(), promises, inner }
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise was broken.
    pub fn violated(&self, what: &str) {
        self.log.say("VIOLATED", what);
        self.inner().violations.push(what.to_owned());
    }

    /// Broken promises so far.
    pub fn violations(&self) -> Vec<String> {
        self.inner().violations.clone()
    }

    /// How many times another daemon took the lead.
    pub fn hand_overs(&self) -> u64 {
        self.inner().turns.hand_overs
    }

    /// What has been done so far.
    pub fn figures(&self) -> Figures {
        self.inner().figures
    }

    /// The daemon's VMs: all within the pools' VMIDs that no other client has created.
    pub fn ours(&self) -> Vec<u32> {
        let foreign = self.foreigners();
        let ours = |vmid: &u32| self.world.pool_of(*vmid).is_some() && !foreign.contains(vmid);
        self.world.pve.vmids().into_iter().filter(ours).collect()
    }

    /// Unmanaged VMs.
    pub fn foreigners(&self) -> BTreeSet<u32> {
        self.inner().foreign.keys().copied().collect()
    }

    /// Whether another client may take this VMID: enough must be left for the pool's maximum.
    pub fn may_be_taken(&self, vmid: u32) -> bool {
        let Some(pool) = self.world.pool_of(vmid) else { return false };
        let there = self.foreigners().into_iter().filter(|one| pool.vmids.contains(one)).count();
        there + pool.max < pool.vmids.clone().count()
    }

    /// An administrator created this VM.
    pub fn made_by_hand(&self, vmid: u32) {
        if let Some(vm) = self.world.pve.vm(vmid) {
            self.inner().foreign.insert(vmid, vm);
        }
    }

    /// An administrator created this VM in the place of a managed one.
    pub fn taken_over(&self, vmid: u32) {
        self.inner().figures.taken += 1;
        self.made_by_hand(vmid);
    }

    /// Whether the VM with this VMID is unmanaged.
    pub fn is_foreign(&self, vmid: u32) -> bool {
        self.inner().foreign.contains_key(&vmid)
    }

    /// An administrator removes a VM of their own.
    pub fn removed_by_hand(&self, vmid: u32) {
        self.inner().foreign.remove(&vmid);
    }

    /// An administrator starts this VM.
    pub fn started_by_hand(&self, vmid: u32) {
        self.inner().started.insert(vmid);
    }

    /// An administrator removes this VM.
    pub fn deleted_by_hand(&self, vmid: u32) {
        if self.is_foreign(vmid) {
            self.violated(&format!("a report asks an administrator to destroy the unmanaged VM {vmid}"));
        }
        self.disturb(vmid);
    }

    /// An administrator deletes this Node.
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

    /// Whether a request of the daemon may still affect the VM with this VMID: it may be in progress, or
    /// about to be sent. Neither can be cancelled if an unmanaged VM exists by then.
    pub fn is_asked_about(&self, vmid: u32) -> bool {
        let inner = self.inner();
        let within =
            |times: &BTreeMap<u32, Instant>, time| times.get(&vmid).is_some_and(|at| at.elapsed() < time);
        within(&inner.asked, ASKED) || within(&inner.proven, PROVEN)
    }

    /// The terms that daemons have begun, as far as visible: by runs and by the Lease.
    pub fn terms(&self) -> u64 {
        let inner = self.inner();
        inner.runs + inner.turns.terms
    }

    /// A daemon begins.
    pub fn run_begins(&self) {
        self.inner().runs += 1;
    }

    /// The Node of a VM, by its SMBIOS uuid.
    pub fn node_of(&self, vmid: u32) -> Option<String> {
        let uuid = uuid(&self.world.pve.vm(vmid)?)?;
        let nodes = self.world.kube.list("Node");
        let node = nodes.iter().find(|node| node["status"]["nodeInfo"]["systemUUID"] == uuid.as_str())?;
        Some(name(node).to_owned())
    }

    /// The record of a slot, as it is stored.
    pub fn record(&self, vmid: u32) -> Option<Value> {
        let pool = self.world.pool_of(vmid)?.name;
        let map = self.world.kube.get("ConfigMap", "pve-autoscaler", &format!("machine-{pool}-{vmid}"))?;
        serde_json::from_str(map["data"]["record"].as_str()?).ok()
    }

    /// Whether the record of a slot contains what identifies its VM if the notes are gone.
    pub fn is_known_by_uuid(&self, vmid: u32) -> bool {
        self.record(vmid).is_some_and(|record| record["smbiosUuid"].is_string())
    }

    /// A call of one of the daemons, at the moment at which it arrives.
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
