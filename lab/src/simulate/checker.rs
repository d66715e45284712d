//! The promises, watched by a reader of the clusters of its own: at each call of the daemon, and all the
//! time. What it knows of the daemon is what it writes into the clusters, not its code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use stage::{Call, Side};
use tokio::time::Instant;
use world::proxmox::VmView;

use super::disks::Lies;
use super::doubt::newid;
use super::leadership::Turns;
use super::log::Log;
use super::missed::Told;
use super::networks::Missing;
use super::power::Asleep;
use super::promises::Braked;
use super::room::Sights;
use super::settings::DISKS;
use super::standing::Stood;
use super::touched::Touched;
use super::warm::is_kept;
use super::world::World;

/// From a look at the quorum, or at a VM, to the call that relies on it, at most.
const JUST_LOOKED: Duration = Duration::from_secs(2);
/// How long a call about a VM may still be on its way: the longest that faults hold one up, and a little.
const ASKED: Duration = Duration::from_secs(21);
/// How long after a VM was asked whose it is something may be done that relies on the answer.
const PROVEN: Duration = Duration::from_secs(3);
/// A pool whose machines an administrator or a fault took away may be below its minimum for as long.
const DISTURBED: Duration = Duration::from_mins(40);

/// Watches. Clones share what is known.
#[derive(Clone)]
pub struct Checker {
    pub(super) world: World,
    pub(super) log: Log,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// VMs that are not the daemon's, as they have to be.
    foreign: BTreeMap<u32, VmView>,
    violations: Vec<String>,
    pub(super) secrets: BTreeSet<String>,
    pub(super) looked_at: LookedAt,
    pub(super) no_quorum_since: Option<Instant>,
    unready_since: BTreeMap<String, Instant>,
    asked: BTreeMap<u32, Instant>,
    proven: BTreeMap<u32, Instant>,
    disturbed: BTreeMap<&'static str, Instant>,
    /// VMs that an administrator started: whatever waits in them may join.
    pub(super) started: BTreeSet<u32>,
    /// The size of the disks that each pool's machines are to have, in GiB.
    pub(super) disks: BTreeMap<&'static str, u32>,
    pub(super) turns: Turns,
    pub(super) brakes: Braked,
    /// POSTs about a VM of which it is not known whether they were carried out.
    pub(super) unsure: BTreeMap<u32, String>,
    /// Where everything is, and since when.
    pub(super) sights: Sights,
    /// Disks of which nothing else is left.
    pub(super) disks_left: BTreeSet<String>,
    /// Machines that were ordered to go.
    pub(super) told: Told,
    /// Hosts that were asked to go off.
    pub(super) asleep: Asleep,
    /// Storages that lie.
    pub(super) lies: Lies,
    /// A right that is missing.
    pub(super) missing: Missing,
    /// When all stood still.
    pub(super) stood: Stood,
    /// Runs of daemons so far.
    runs: u64,
    /// VMs that others hold.
    pub(super) touched: Touched,
    /// Clones asked for, VMs destroyed, pods evicted.
    pub figures: Figures,
}

/// As of when what takes long to look at was looked at: as long as nothing of it changes, there is nothing
/// new to see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LookedAt {
    nodes: u64,
    addresses: u64,
    /// VMs and pools.
    guests: Option<[u64; 2]>,
    /// The Lease and the switch.
    pub(super) turns: [u64; 2],
    /// VMs, volumes and records.
    pub(super) disks: Option<[u64; 3]>,
    pub(super) secrets: (u64, usize),
    /// Secrets, records and VMs.
    pub(super) tokens: Option<[u64; 3]>,
}

/// What was done in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Clones that were asked for.
    pub clones: u64,
    /// Destructions that were asked for.
    pub destructions: u64,
    /// Evictions that were asked for.
    pub evictions: u64,
    /// Machines that were to grow.
    pub growths: u64,
    /// Hosts that were asked to shut down, and that were woken.
    pub sleeps: u64,
    /// The latter.
    pub wakes: u64,
    /// VMs in whose place an administrator made another.
    pub taken: u64,
}

impl Inner {
    /// What is on its way, and what was looked at, is as far as it was this long ago.
    pub(super) fn delay_what_is_on_its_way(&mut self, time: Duration) {
        for at in self.asked.values_mut().chain(self.proven.values_mut()) {
            *at += time;
        }
        self.turns.delay_the_pause(time);
    }
}

impl Checker {
    /// Knows what is foreign from the start.
    pub fn new(world: &World, log: &Log) -> Self {
        let foreign = world.foreign.iter().filter_map(|vmid| Some((*vmid, world.pve.vm(*vmid)?))).collect();
        let disks = world.pools.iter().map(|pool| (pool.name, DISKS[0])).collect();
        let inner = Arc::new(Mutex::new(Inner { foreign, disks, ..Inner::default() }));
        Self { world: world.clone(), log: log.clone(), inner }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
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

    /// How often another daemon took the lead.
    pub fn hand_overs(&self) -> u64 {
        self.inner().turns.hand_overs
    }

    /// What was done so far.
    pub fn figures(&self) -> Figures {
        self.inner().figures
    }

    /// The daemon's VMs: all within the pools' VMIDs that no other client has made.
    pub fn ours(&self) -> Vec<u32> {
        let foreign = self.foreigners();
        let ours = |vmid: &u32| self.world.pool_of(*vmid).is_some() && !foreign.contains(vmid);
        self.world.pve.vmids().into_iter().filter(ours).collect()
    }

    /// VMs that are not the daemon's.
    pub fn foreigners(&self) -> BTreeSet<u32> {
        self.inner().foreign.keys().copied().collect()
    }

    /// Whether another client may take this VMID: as many are left as the pool may have machines.
    pub fn may_be_taken(&self, vmid: u32) -> bool {
        let Some(pool) = self.world.pool_of(vmid) else { return false };
        let there = self.foreigners().into_iter().filter(|one| pool.vmids.contains(one)).count();
        there + pool.max < pool.vmids.clone().count()
    }

    /// An administrator made this VM.
    pub fn made_by_hand(&self, vmid: u32) {
        if let Some(vm) = self.world.pve.vm(vmid) {
            self.inner().foreign.insert(vmid, vm);
        }
    }

    /// An administrator made this VM in the place of one of our VMs.
    pub fn taken_over(&self, vmid: u32) {
        self.inner().figures.taken += 1;
        self.made_by_hand(vmid);
    }

    /// Whether what has this VMID is not the daemon's.
    pub(super) fn is_foreign(&self, vmid: u32) -> bool {
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
            self.violated(&format!("a report asks an administrator to destroy the foreign VM {vmid}"));
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

    /// Whether something that the daemon has asked for may still happen to whatever has this VMID: it may be
    /// on its way, or about to be sent. Neither can be taken back when an unmanaged VM is there by then.
    pub fn is_asked_about(&self, vmid: u32) -> bool {
        let inner = self.inner();
        let within =
            |times: &BTreeMap<u32, Instant>, time| times.get(&vmid).is_some_and(|at| at.elapsed() < time);
        within(&inner.asked, ASKED) || within(&inner.proven, PROVEN)
    }

    /// The terms that daemons have begun, as far as that can be seen: by runs and by the Lease.
    pub(super) fn terms(&self) -> u64 {
        let inner = self.inner();
        inner.runs + inner.turns.terms
    }

    /// A daemon begins.
    pub(super) fn run_begins(&self) {
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

    /// Whether the record of a slot says what its VM is recognised by when its notes are gone.
    pub fn is_known_by_uuid(&self, vmid: u32) -> bool {
        self.record(vmid).is_some_and(|record| record["smbiosUuid"].is_string())
    }

    /// A call of one of the daemons, at the moment at which it arrives.
    pub fn sees(&self, who: &str, call: Call<'_>) {
        self.must_lead(who, &call);
        self.must_not_begin(who, &call);
        self.must_ask_first(&call);
        self.must_not_disrupt(who, &call);
        self.must_have_room(who, &call);
        self.must_be_put_where_planned(&call);
        self.must_mind_seeds(&call);
        self.must_switch_rightly(who, &call);
        self.must_grow_rightly(who, &call);
        self.must_be_off(&call);
        self.must_leave_what_is_protected(&call);
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, parts.as_slice()) {
            (Side::Proxmox, "POST", ["nodes", _, "qemu", _, "clone"]) => self.clone_asked(call.body),
            (Side::Proxmox, "GET", ["nodes", _, "qemu", vmid, "config"]) => {
                if let Ok(vmid) = vmid.parse() {
                    self.inner().proven.insert(vmid, Instant::now());
                }
            }
            (Side::Proxmox, "POST" | "PUT" | "DELETE", ["nodes", host, "qemu", vmid, rest @ ..]) => {
                if let Ok(vmid) = vmid.parse() {
                    self.vm_asked(host, vmid, &call, rest);
                }
            }
            (Side::Kubernetes, "DELETE", ["api", "v1", "nodes", node]) => self.node_deletion(node),
            (Side::Kubernetes, "DELETE", ["api", "v1", "namespaces", _, "pods", pod]) => {
                self.violated(&format!("pod {pod} is deleted, not evicted"));
            }
            (Side::Kubernetes, "POST", ["api", "v1", "namespaces", _, "pods", _, "eviction"]) => {
                self.inner().figures.evictions += 1;
            }
            (Side::Kubernetes, "DELETE", ["api", "v1", "namespaces", _, "configmaps", map]) => {
                self.record_dropped(map);
            }
            _ => {}
        }
    }

    fn clone_asked(&self, body: &[u8]) {
        self.inner().figures.clones += 1;
        let text = String::from_utf8_lossy(body);
        let Some(vmid) = newid(body) else { return self.violated(&format!("a clone without an id: {text}")) };
        self.inner().asked.insert(vmid, Instant::now());
        self.inner().started.remove(&vmid);
        let Some(record) = self.record(vmid) else {
            return self.violated(&format!("VM {vmid} is cloned, and no record says so"));
        };
        let id = record["id"].as_str().unwrap_or("?");
        if !text.contains(id) {
            self.violated(&format!("VM {vmid} is cloned for another machine than its record's"));
        }
    }

    fn vm_asked(&self, host: &str, vmid: u32, call: &Call<'_>, rest: &[&str]) {
        let method = call.method;
        self.inner().asked.insert(vmid, Instant::now());
        let Some(vm) = self.world.pve.vm(vmid).filter(|vm| vm.node == host) else { return };
        if self.is_foreign(vmid) {
            // What says which configuration it is to change is refused for any other.
            if rest == ["config"] && String::from_utf8_lossy(call.body).contains("digest=") {
                return;
            }
            return self.violated(&format!("{method} {} for the foreign VM {vmid}", rest.join("/")));
        }
        match (method, rest) {
            ("DELETE", []) => {
                self.inner().figures.destructions += 1;
                let lost = self.inner().no_quorum_since.is_some_and(|since| since.elapsed() > JUST_LOOKED);
                // It may have come back since everything was last looked at.
                if lost && !self.world.pve.is_quorate() {
                    self.violated(&format!("VM {vmid} is destroyed without quorum"));
                }
                // Proxmox VE itself does not destroy one that is started at that moment.
                let runs = self.world.pve.runs_for(vmid).is_some_and(|time| time > JUST_LOOKED);
                if vm.running && runs && self.world.pve.is_online(host) {
                    self.violated(&format!("VM {vmid} is destroyed while it runs"));
                }
            }
            ("POST", ["status", "shutdown" | "stop"]) if vm.running => self.stop_asked(vmid),
            _ => {}
        }
    }

    /// A VM is about to lose its power: no pod may need it by now.
    fn stop_asked(&self, vmid: u32) {
        let (Some(node), Some(pool)) = (self.node_of(vmid), self.world.pool_of(vmid)) else { return };
        let unready = self.inner().unready_since.get(&node).copied();
        let given_up = self.world.config.scale_down.unready_time;
        let given_up = self.world.rules.unready_after.map_or(given_up, |after| after.min(given_up));
        if unready.is_some_and(|since| since.elapsed() + JUST_LOOKED >= given_up) {
            return;
        }
        let record = self.record(vmid).unwrap_or_default();
        let mut running = self.missed(&node);
        running.retain(|pod| !self.may_go_down(pod, &record));
        if let Some(pod) = running.first() {
            let pod = name(pod);
            self.violated(&format!(
                "VM {vmid} is stopped while {} pods run on {node}, such as {pod}",
                running.len()
            ));
        }
        if let Some(pod) = self.ending(&node).iter().find(|pod| !self.may_go_down(pod, &record)) {
            self.violated(&format!(
                "VM {vmid} is stopped while {} has time left to end on {node}",
                name(pod)
            ));
        }
        let ready = self.world.kube.get("Node", "", &node).is_some_and(|node| is_ready(&node));
        if let (true, [volume, ..]) = (ready, self.attached_to(&node).as_slice()) {
            self.violated(&format!("VM {vmid} is stopped while {volume} is attached to {node}"));
        }
        let disturbed =
            self.inner().disturbed.get(pool.name).is_some_and(|since| since.elapsed() < DISTURBED);
        if record["intent"]["kind"] == "retire" && !disturbed && unready.is_none() {
            let stays = |other: &u32| {
                *other != vmid
                    && pool.vmids.contains(other)
                    && self
                        .record(*other)
                        .is_some_and(|record| record["intent"]["kind"] == "create" && !is_kept(&record))
            };
            let left = self.ours().into_iter().filter(stays).count();
            let min = self.sure_minimum(pool);
            if left < min {
                self.violated(&format!(
                    "VM {vmid} is stopped and leaves {left} of pool {}, whose minimum is {min}",
                    pool.name
                ));
            }
        }
    }

    fn node_deletion(&self, node: &str) {
        let Some(object) = self.world.kube.get("Node", "", node) else { return };
        let uuid = object["status"]["nodeInfo"]["systemUUID"].as_str().unwrap_or_default().to_owned();
        if node == "cp1" || self.world.decoy.as_deref() == Some(node) {
            return self.violated(&format!("Node {node} is deleted, which is no machine's"));
        }
        let vm = self.world.pve.vmids().into_iter().find_map(|vmid| {
            let vm = self.world.pve.vm(vmid)?;
            (self::uuid(&vm).as_deref() == Some(uuid.as_str())).then_some((vmid, vm))
        });
        if let Some((vmid, _)) = vm.filter(|(_, vm)| vm.running) {
            self.violated(&format!("Node {node} is deleted while its VM {vmid} runs"));
        }
    }

    fn record_dropped(&self, map: &str) {
        let Some(vmid) = map.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()) else { return };
        let ours = self.world.pve.vm(vmid).is_some() && !self.is_foreign(vmid);
        if map.starts_with("machine-") && ours && !self.was_outside(vmid) {
            self.violated(&format!("the record of VM {vmid} is dropped while the VM is there"));
        }
        let machine = self.record(vmid).unwrap_or_default()["name"].as_str().unwrap_or_default().to_owned();
        if self.token_of(&machine) {
            self.violated(&format!("the record of {machine} is dropped while its token is there"));
        }
    }

    /// Looks at everything.
    pub fn tick(&self) {
        self.look_at_turns();
        self.look_at_places();
        self.look_at_disks();
        self.look_at_sleepers();
        self.quorum();
        self.readiness();
        self.guests();
        self.addresses_of_nodes();
        self.tokens();
        self.images_of_others_stay();
        self.note_secrets();
    }

    fn quorum(&self) {
        let quorate = self.world.pve.is_quorate();
        let mut inner = self.inner();
        match (quorate, inner.no_quorum_since) {
            (true, _) => inner.no_quorum_since = None,
            (false, None) => inner.no_quorum_since = Some(Instant::now()),
            (false, Some(_)) => {}
        }
    }

    fn readiness(&self) {
        let now = self.world.kube.latest_change("Node");
        if std::mem::replace(&mut self.inner().looked_at.nodes, now) == now {
            return;
        }
        let nodes = self.world.kube.list("Node");
        let mut inner = self.inner();
        let unready: BTreeSet<&str> =
            nodes.iter().filter(|node| !is_ready(node)).map(|node| name(node)).collect();
        inner.unready_since.retain(|node, _| unready.contains(node.as_str()));
        for node in unready {
            inner.unready_since.entry(node.to_owned()).or_insert_with(Instant::now);
        }
    }

    fn guests(&self) {
        let [vms, pools, _] = self.world.pve.changes();
        let now = Some([vms, pools]);
        if std::mem::replace(&mut self.inner().looked_at.guests, now) != now {
            self.foreigners_are_as_they_were();
            self.numbers();
        }
    }

    fn foreigners_are_as_they_were(&self) {
        let changed: Vec<(u32, VmView)> = {
            let inner = self.inner();
            let changed = inner.foreign.iter().filter(|(vmid, then)| !self.world.pve.is_as(**vmid, then));
            changed.map(|(vmid, then)| (*vmid, then.clone())).collect()
        };
        for (vmid, wanted) in changed {
            let now = self.world.pve.vm(vmid);
            self.violated(&format!("the foreign VM {vmid} was {wanted:?} and is {now:?}"));
            self.inner().foreign.remove(&vmid);
        }
    }

    fn numbers(&self) {
        let ours = self.ours();
        let hidden = |vmid: &u32| self.was_outside(*vmid) && self.record(*vmid).is_none();
        for pool in &self.world.pools {
            let number =
                ours.iter().filter(|vmid| !hidden(vmid)).filter(|vmid| pool.vmids.contains(vmid)).count();
            if number > pool.max {
                self.violated(&format!("pool {} has {number} VMs, {} are allowed", pool.name, pool.max));
            }
        }
        let mut addresses: BTreeMap<String, u32> = BTreeMap::new();
        for vmid in ours {
            let config = self.world.pve.config_of(vmid, "ipconfig0").unwrap_or_default();
            let own = config.split(',').filter(|part| part.starts_with("ip=") || part.starts_with("ip6="));
            for address in own {
                if let Some(other) = addresses.insert(address.to_owned(), vmid) {
                    self.violated(&format!("VMs {other} and {vmid} both have {address}"));
                }
            }
        }
    }

    fn addresses_of_nodes(&self) {
        let now = self.world.kube.latest_change("Node");
        if std::mem::replace(&mut self.inner().looked_at.addresses, now) == now {
            return;
        }
        let mut nodes: BTreeMap<String, String> = BTreeMap::new();
        for node in self.world.kube.list("Node") {
            let all = node["status"]["addresses"].as_array().into_iter().flatten();
            let internal = all.into_iter().filter(|one| one["type"] == "InternalIP");
            for address in internal.filter_map(|one| one["address"].as_str()) {
                if let Some(other) = nodes.insert(address.to_owned(), name(&node).to_owned()) {
                    self.violated(&format!("Nodes {other} and {} both have {address}", name(&node)));
                }
            }
        }
    }
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// SMBIOS uuid of a VM, lower case.
pub fn uuid(vm: &VmView) -> Option<String> {
    let text = vm.config.get("smbios1")?;
    Some(text.split(',').find_map(|part| part.strip_prefix("uuid="))?.to_lowercase())
}
