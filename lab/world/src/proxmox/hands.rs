//! Functions with which a test or a live display changes and inspects the cluster without using its API.

use std::time::Duration;

use jiff::Timestamp;
use tokio::{sync::broadcast, time::Instant};

use super::{
    Event, Pve, WebImage,
    spec::{AccessSpec, VmSpec},
    state::{State, Volume},
    vm::{HaRequest, Machine, Pending, Vm},
};
use crate::guest::{Guest, GuestFaults};

/// The maximum number of calls that the log keeps.
const LOG: usize = 100_000;

/// One call in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When the call was answered.
    pub time: Timestamp,
    /// Method.
    pub method: String,
    /// Path below `/api2/json`.
    pub path: String,
    /// The HTTP status, or 0 if there was no answer.
    pub status: u16,
    /// The caller's token. Empty if there is none.
    pub token: String,
}

/// The effect of a fault on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call is not carried out, and the client receives this answer.
    Answer {
        /// HTTP status.
        status: u16,
        /// Reason phrase.
        reason: String,
        /// Body.
        body: String,
    },
    /// The call is carried out, and the client receives 596 after 30 seconds.
    WorkThenTimeOut,
    /// The call is carried out, and the connection ends without an answer.
    WorkThenLose,
    /// The call is not carried out, and the connection ends without an answer.
    Lose,
    /// The call is carried out after this delay.
    Delay(Duration),
    /// The call is carried out, and its answer is delayed. The data may be out of date when the client
    /// receives it.
    WorkThenDelay(Duration),
}

/// A fault for the next matching calls. Its path is relative to `/api2/json`.
pub type Fault = crate::fault::Fault<Effect>;

/// The effect of a fault on a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFault {
    /// The worker fails with this error before it has done anything.
    Fails(String),
    /// The worker does its work, but fails with this error, as if a later step had failed.
    FailsLate(String),
    /// The worker does its work, and logs this warning.
    Warns(String),
    /// The worker is killed after this time, and nothing is cleaned up.
    Dies(Duration),
    /// The worker does its work, but its task is then forgotten, as if its host had lost its task logs.
    Forgotten,
}

/// A VM as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmView {
    /// Its node.
    pub node: String,
    /// Its config.
    pub config: std::collections::BTreeMap<String, String>,
    /// Whether it runs.
    pub running: bool,
    /// Its pool.
    pub pool: Option<String>,
    /// Whether its guest has joined a cluster. Always false for a real guest.
    pub joined: bool,
}

impl State {
    /// Removes and returns the fault for the next worker of this kind.
    pub(super) fn take_task_fault(&mut self, kind: &str) -> Option<TaskFault> {
        let at = self.task_faults.iter().position(|(wanted, _)| wanted == kind)?;
        Some(self.task_faults.remove(at).1)
    }

    pub(super) fn record(&mut self, record: CallRecord) {
        if self.calls.len() >= LOG {
            self.calls.pop_front();
        }
        self.calls.push_back(record);
    }
}

impl Pve {
    /// Cuts a host's power. Its VMs and workers end immediately.
    pub fn power_off_host(&self, node: &str) {
        let (vms, tasks) = {
            let mut state = self.state();
            if let Some(host) = state.hosts.get_mut(node).filter(|host| host.online) {
                host.online = false;
                host.off_since = Some(Instant::now());
                host.on_since = None;
                host.timed_out = false;
            }
            let vms: Vec<u32> = state.vms.values().filter(|vm| vm.node == node).map(|vm| vm.vmid).collect();
            let tasks = state.tasks.values().filter(|task| task.running() && task.upid.node == node);
            (vms, tasks.map(|task| task.upid.to_string()).collect::<Vec<_>>())
        };
        for upid in tasks {
            self.kill_task(&upid);
        }
        for vmid in vms {
            self.power_cut(vmid);
        }
    }

    /// Marks a host as having been off ever since it was added to the cluster.
    pub fn was_never_up(&self, node: &str) {
        self.power_off_host(node);
        if let Some(host) = self.state().hosts.get_mut(node) {
            host.never_up = true;
        }
    }

    /// Sets how many votes are expected for a quorum (`pvecm expected`).
    pub fn expect_votes(&self, votes: usize) {
        self.state().expected_votes = Some(votes);
    }

    /// Marks the HA manager as having been active before, so that it reports the state of each host.
    pub fn run_ha(&self) {
        self.state().ha_runs = true;
    }

    /// Restores a host's power. Its VMs with `onboot` start, except templates.
    pub fn power_on_host(&self, node: &str) {
        let starting: Vec<u32> = {
            let mut state = self.state();
            if let Some(host) = state.hosts.get_mut(node) {
                (host.online, host.never_up) = (true, false);
                host.off_since = None;
                host.on_since = Some(Instant::now());
                host.booted = Instant::now();
            }
            let vms = state.vms.values().filter(|vm| vm.node == node && !vm.is_template());
            vms.filter(|vm| vm.get("onboot") == Some("1")).map(|vm| vm.vmid).collect()
        };
        for vmid in starting {
            self.power_on(vmid);
        }
    }

    /// Sets how much memory, in bytes, a host uses apart from its VMs.
    pub fn set_memory_used(&self, node: &str, bytes: u64) {
        if let Some(host) = self.state().hosts.get_mut(node) {
            host.spec.memory_used = bytes;
        }
    }

    /// Changes users, tokens, roles and grants.
    pub fn change_access(&self, change: impl FnOnce(&mut AccessSpec)) {
        change(&mut self.state().access);
    }

    /// Sets who may use which tags (datacenter options).
    pub fn restrict_tags(&self, tags: super::rights::TagAccess) {
        self.state().tags = tags;
    }

    /// Whether there are any grants on a path.
    pub fn has_grants_on(&self, path: &str) -> bool {
        self.state().access.grants.iter().any(|grant| grant.path == path)
    }

    /// Makes the cluster lose its quorum, regardless of which hosts are up, or ends this state.
    pub fn set_quorum(&self, quorate: bool) {
        self.state().quorum_forced_away = !quorate;
    }

    /// Starts or ends the HA maintenance of a host.
    pub fn set_maintenance(&self, node: &str, maintenance: bool) {
        let mut state = self.state();
        state.ha_runs = true;
        if let Some(host) = state.hosts.get_mut(node) {
            host.maintenance = maintenance;
        }
    }

    /// Makes a VM an HA resource, or removes it from HA.
    pub fn set_ha(&self, vmid: u32, managed: bool) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            let now =
                if vm.machine.is_some() { HaRequest::Started } else { HaRequest::Stopped(Duration::ZERO) };
            vm.ha = managed.then_some(now);
        }
    }

    /// How long a plain request takes, without jitter.
    pub fn request_time(&self) -> std::time::Duration {
        self.state().timings.request
    }

    /// Makes this host answer the API as if it had booted without corosync: its copy of the configuration
    /// contains only its own VMs. `None` restores corosync.
    pub fn set_without_corosync(&self, node: Option<&str>) {
        self.state().without_corosync = node.map(ToOwned::to_owned);
    }

    /// Makes every connection fail, or succeed again.
    pub fn set_away(&self, away: bool) {
        self.state().away = away;
    }

    /// Adds a fault for the next matching calls.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Adds a fault for the next worker of a kind, such as `qmclone`.
    pub fn inject_task(&self, kind: &str, fault: TaskFault) {
        self.state().task_faults.push((kind.to_owned(), fault));
    }

    /// Whether any fault still waits for a matching call.
    pub fn has_faults(&self) -> bool {
        !self.state().faults.is_empty()
    }

    /// Removes all faults that wait for a call or a worker.
    pub fn forget_faults(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.task_faults.clear();
    }

    /// Whether the cluster is quorate.
    pub fn is_quorate(&self) -> bool {
        self.state().quorate()
    }

    /// Whether a host has power.
    pub fn is_online(&self, node: &str) -> bool {
        self.state().hosts.get(node).is_some_and(|host| host.online)
    }

    /// Whether a task runs for a VM. Also true while any clone task runs, because a clone task's id names the
    /// template.
    pub fn is_worked_on(&self, vmid: u32) -> bool {
        let (state, id) = (self.state(), vmid.to_string());
        state.tasks.values().any(|task| task.running() && task.upid.id == id)
            || state.tasks.values().any(|task| task.running() && task.upid.kind == "qmclone")
    }

    /// Creates a VM by hand. If the VMID is taken, returns false and changes nothing.
    pub fn create_by_hand(&self, spec: VmSpec) -> bool {
        let running = spec.running;
        let vmid = spec.vmid;
        {
            let mut state = self.state();
            if state.vms.contains_key(&vmid) {
                return false;
            }
            state.add(spec);
        }
        if running {
            self.power_on(vmid);
        }
        true
    }

    /// Sets a key of a VM's config by hand (`lock`, `name`, `description` …), or removes the key if `value`
    /// is `None`.
    pub fn set_config_by_hand(&self, vmid: u32, key: &str, value: Option<&str>) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            match value {
                Some(value) => vm.config.insert(key.to_owned(), value.to_owned()),
                None => vm.config.remove(key),
            };
        }
    }

    /// Sets a key of a VM's config by hand. The new value is pending until the VM's next start.
    pub fn set_for_next_start_by_hand(&self, vmid: u32, key: &str, value: &str) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            vm.pending.insert(key.to_owned(), Pending::Set(value.to_owned()));
        }
    }

    /// Moves a VM to another pool, or out of all pools, as an administrator does.
    pub fn move_to_pool_by_hand(&self, vmid: u32, pool: Option<&str>) {
        let mut state = self.state();
        for (name, one) in &mut *state.pools {
            one.members.remove(&vmid);
            if pool == Some(name.as_str()) {
                one.members.insert(vmid);
            }
        }
    }

    /// Moves a VM, running or not, to another host by hand. Its disks on local storages move with it.
    pub fn migrate_by_hand(&self, vmid: u32, node: &str) {
        let mut state = self.state();
        let Some(vm) = state.vms.get_mut(&vmid) else { return };
        let from = std::mem::replace(&mut vm.node, node.to_owned());
        let own = |(_, place): &(String, String), volume: &Volume| volume.vmid == vmid && *place == from;
        let local: Vec<_> = state.volumes.extract_if(.., |key, volume| own(key, volume)).collect();
        state
            .volumes
            .extend(local.into_iter().map(|((volid, _), volume)| ((volid, node.to_owned()), volume)));
    }

    /// Starts a VM by hand if it is off and not locked, and its host is on.
    pub fn start_by_hand(&self, vmid: u32) {
        let off = {
            let state = self.state();
            let vm = state.vms.get(&vmid).filter(|vm| vm.machine.is_none() && vm.get("lock").is_none());
            vm.is_some_and(|vm| state.hosts.get(&vm.node).is_some_and(|host| host.online))
        };
        if off {
            self.power_on(vmid);
        }
    }

    /// Cuts a VM's power by hand, without a shutdown.
    pub fn stop_by_hand(&self, vmid: u32) {
        self.power_cut(vmid);
    }

    /// Removes a VM by hand, running or not, with the volumes that its configuration names.
    pub fn delete_by_hand(&self, vmid: u32) {
        self.power_cut(vmid);
        let mut state = self.state();
        let vm = state.vms.remove(&vmid);
        let named: Vec<String> = vm.iter().flat_map(Vm::named_volumes).collect();
        state.volumes.retain(|(volid, _), volume| volume.vmid != vmid || !named.contains(volid));
        if let Some(hardware) = &self.0.hardware {
            for volid in &named {
                hardware.free_disk(volid);
            }
        }
        for pool in state.pools.values_mut() {
            pool.members.remove(&vmid);
        }
    }

    /// Makes every attempt to free a volume on the storage fail, or lets such attempts succeed again.
    pub fn set_storage_busy(&self, storage: &str, busy: bool) {
        let mut state = self.state();
        if busy {
            state.busy_storages.insert(storage.to_owned());
        } else {
            state.busy_storages.remove(storage);
        }
    }

    /// Fills a storage up on all hosts, as a user might, or restores its former usage.
    pub fn set_storage_full(&self, storage: &str, full: bool) {
        let mut state = self.state();
        let before = state.filled_storages.remove(storage);
        let Some(spec) = state.storages.get_mut(storage) else { return };
        spec.used = before.unwrap_or(spec.used);
        if full {
            let before = std::mem::replace(&mut spec.used, spec.size);
            state.filled_storages.insert(storage.to_owned(), before);
        }
    }

    /// The volumes that belong to a VMID, whether or not the VM exists.
    pub fn volumes_of(&self, vmid: u32) -> Vec<String> {
        let state = self.state();
        state
            .volumes
            .iter()
            .filter(|(_, volume)| volume.vmid == vmid)
            .map(|((id, _), _)| id.clone())
            .collect()
    }

    /// Returns the volumes whose VM does not exist. Each is described by its VMID, and by a text that names
    /// the volume and its host.
    pub fn volumes_without_vm(&self) -> Vec<(u32, String)> {
        let state = self.state();
        let alone = state.volumes.iter().filter(|(_, volume)| !state.vms.contains_key(&volume.vmid));
        alone.map(|((id, place), volume)| (volume.vmid, format!("{id} on {place:?}"))).collect()
    }

    /// Makes a base image the parent of a volume, as in a linked clone.
    pub fn link_by_hand(&self, volid: &str, base: &str) {
        for ((id, _), volume) in &mut *self.state().volumes {
            if id == volid {
                volume.parent = Some(base.to_owned());
            }
        }
    }

    /// Removes a volume as `pvesm free` does.
    pub fn free_by_hand(&self, volid: &str) {
        let mut state = self.state();
        state.volumes.retain(|(id, _), _| id != volid);
        state.files.retain(|(id, _), _| id != volid);
        drop(state);
        if let Some(hardware) = &self.0.hardware {
            hardware.free_disk(volid);
        }
    }

    /// Sets the faults inside a VM. They apply from its next start, and to its future clones.
    pub fn set_guest_faults(&self, vmid: u32, faults: GuestFaults) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            vm.faults = faults;
        }
    }

    /// Writes a file to a VM's disk. Later clones contain it, too.
    pub fn write_to_disk(&self, vmid: u32, path: &str, content: &str) {
        if let Some(vm) = self.state().vms.get(&vmid) {
            vm.disk.write(path, content.as_bytes().to_vec());
        }
    }

    /// Adds a file to the image that network-booted guests write to disk.
    pub fn serve_network_boot(&self, path: &str, content: &str) {
        self.state().network_image.insert(path.to_owned(), content.as_bytes().to_vec());
    }

    /// Returns the content of a file on a VM's disk.
    pub fn read_from_disk(&self, vmid: u32, path: &str) -> Option<String> {
        let content = self.state().vms.get(&vmid)?.disk.read(path)?;
        Some(String::from_utf8_lossy(&content).into_owned())
    }

    /// Publishes an image at a URL from which hosts can download it.
    pub fn publish(&self, url: &str, image: WebImage) {
        self.state().web.insert(url.to_owned(), image);
    }

    /// The files on all storages: volume id, and the host if the storage is not shared.
    pub fn files(&self) -> Vec<(String, String)> {
        self.state().files.keys().cloned().collect()
    }

    /// Returns the content of an uploaded file.
    pub fn read_file(&self, volid: &str, node: &str) -> Option<bytes::Bytes> {
        self.state().file(volid, node).map(|file| file.bytes.clone())
    }

    /// Makes a running guest's agent silent for a while.
    pub fn silence_agent(&self, vmid: u32, time: Duration) {
        let state = self.state();
        let machine = state.vms.get(&vmid).and_then(|vm| vm.machine.as_ref());
        if let Some(guest) = machine.and_then(Machine::simulated) {
            guest.silence_agent(time);
        }
    }

    /// The last calls, oldest first.
    pub fn calls(&self) -> Vec<CallRecord> {
        self.state().calls.iter().cloned().collect()
    }

    /// Returns the present state of a VM.
    pub fn vm(&self, vmid: u32) -> Option<VmView> {
        let state = self.state();
        let vm = state.vms.get(&vmid)?;
        Some(VmView {
            node: vm.node.clone(),
            config: vm.config.clone(),
            running: vm.machine.is_some(),
            pool: state.pool_of(vmid).map(String::from),
            joined: vm.machine.as_ref().and_then(Machine::simulated).is_some_and(Guest::joined),
        })
    }

    /// Whether a VM still has the node, the pool and the config that it had in `then`.
    pub fn is_as(&self, vmid: u32, then: &VmView) -> bool {
        let state = self.state();
        let now = state.vms.get(&vmid);
        now.is_some_and(|now| now.node == then.node && now.config == then.config)
            && state.pool_of(vmid) == then.pool.as_deref()
    }

    /// How long a VM has been running. `None` if it is not running.
    pub fn runs_for(&self, vmid: u32) -> Option<std::time::Duration> {
        let state = self.state();
        let machine = state.vms.get(&vmid)?.machine.as_ref()?;
        Some(machine.started.elapsed())
    }

    /// One value of a VM's config.
    pub fn config_of(&self, vmid: u32, key: &str) -> Option<String> {
        self.state().vms.get(&vmid)?.config.get(key).cloned()
    }

    /// The keys of a VM's config whose changes wait for the next start.
    pub fn waits_for_start(&self, vmid: u32) -> Vec<String> {
        self.state().vms.get(&vmid).map(|vm| vm.pending.keys().cloned().collect()).unwrap_or_default()
    }

    /// The change counters of VMs, of pools and of volumes. If a counter has not changed, none of the objects
    /// that it covers has changed.
    pub fn changes(&self) -> [u64; 3] {
        let state = self.state();
        [state.vms.changes(), state.pools.changes(), state.volumes.changes()]
    }

    /// The ids of all VMs.
    pub fn vmids(&self) -> Vec<u32> {
        self.state().vms.keys().copied().collect()
    }

    /// Every task's id with its exit status, oldest first.
    pub fn task_exits(&self) -> Vec<(String, Option<String>)> {
        let state = self.state();
        let exit = |upid: &String| state.tasks.get(upid).and_then(|task| task.exit.clone());
        state.task_order.iter().map(|upid| (upid.clone(), exit(upid))).collect()
    }

    /// The addresses of all guests that accept TCP connections.
    pub fn open_guests(&self) -> Vec<String> {
        let state = self.state();
        let guests = state.vms.values().filter_map(|vm| vm.machine.as_ref()?.simulated());
        guests
            .filter(|guest| guest.accepts_tcp())
            .flat_map(|guest| &guest.identity().addresses)
            .map(|address| address.split('/').next().unwrap_or(address).to_owned())
            .collect()
    }

    /// Whether a TCP connection to this address (without port) would succeed because the guest's sshd is up.
    pub fn guest_tcp_open(&self, address: &str) -> bool {
        let state = self.state();
        state.vms.values().filter_map(|vm| vm.machine.as_ref()?.simulated()).any(|guest| {
            let own = &guest.identity().addresses;
            own.iter().any(|own| own.split('/').next() == Some(address)) && guest.accepts_tcp()
        })
    }

    /// Subscribes to all future events.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.events.subscribe()
    }
}
