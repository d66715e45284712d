//! Suspending to disk. The guest's memory is written to a volume, its QEMU ends, and the VM stays locked
//! (`suspended`) until the next start resumes the guest. In the meantime, the guest's clock stands still.
//!
//! As in qemu-server, the lock is `suspending` while memory is written. The config names the state volume
//! (`vmstate`), which has room for twice the memory plus 500 MiB. A suspended VM can only be started or
//! destroyed. No recording shows how long suspending takes. The lab assumes that a simulated guest uses a
//! third of its memory, which is written and read at the rate of a full clone. With a real guest, suspending
//! takes as long as QEMU needs.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::{
    ApiCall, Event, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    state::{State, Volume},
    task::Worker,
    vm::{Inside, Vm},
};
use crate::qemu::Running;

/// A simulated guest is assumed to use 1/`USED` of its memory.
const USED: u64 = 3;
/// The values of a VM's lock: while its memory is written, and afterwards.
const SUSPENDING: &str = "suspending";
pub(super) const SUSPENDED: &str = "suspended";

/// Whether a VM's memory is on disk.
pub(super) fn is_suspended(vm: &Vm) -> bool {
    vm.get("lock") == Some(SUSPENDED)
}

impl Pve {
    pub(super) fn suspend(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        self.may_power(call)?;
        if !call.params.flag("todisk") {
            return Err(Refusal::NotImplemented("the lab can suspend a VM only to disk".to_owned()));
        }
        {
            let state = self.state();
            call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Config.Disk"])?;
            let vm = state.vm_on(call.node(), call.vmid())?;
            if vm.machine.is_none() {
                return Err(Refusal::failed(format!("VM {} not running", call.vmid())));
            }
            let storage = state_storage(&state, vm);
            call.who.need(&state, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        }
        let (pve, node, vmid) = (self.clone(), call.node().to_owned(), call.vmid());
        let upid = self.spawn_worker(
            &node.clone(),
            "qmsuspend",
            &vmid.to_string(),
            &call.who,
            |worker| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                pve.run_suspend(&worker, &node, vmid).await
            },
        );
        Ok(Value::from(upid).into())
    }

    async fn run_suspend(&self, worker: &Worker, node: &str, vmid: u32) -> Result<(), Refusal> {
        let (time, inside, volid) = {
            let mut state = self.state();
            let vm = state.vm_on(node, vmid)?;
            vm.check_lock()?;
            let Some(machine) = &vm.machine else {
                return Err(Refusal::failed(format!("VM {vmid} not running")));
            };
            let (inside, memory) = (machine.inside.clone(), vm.memory());
            let storage = state_storage(&state, vm);
            state.need_writable(vmid, node, worker.upid.pid)?;
            let place = state.place(&storage, node);
            let name = format!("vm-{vmid}-state-suspend-{}", state.clock.now().strftime("%Y-%m-%d"));
            let in_files = state.storages.get(&storage).is_some_and(|one| one.kind.is_file_based());
            let volid =
                if in_files { format!("{storage}:{vmid}/{name}.raw") } else { format!("{storage}:{name}") };
            let volume = Volume {
                storage,
                size: memory * 2 + (500 << 20),
                vmid,
                parent: None,
                format: "raw".to_owned(),
                ctime: state.clock.now().as_second(),
            };
            state.volumes.insert((volid.clone(), place), volume);
            let vm = state.vm_on_mut(node, vmid)?;
            vm.config.insert("lock".to_owned(), SUSPENDING.to_owned());
            vm.config.insert("vmstate".to_owned(), volid.clone());
            let nets = vm.config.keys().filter(|key| super::rights::numbered(key, "net"));
            let mtu = nets.map(|net| format!("{net}=1500")).collect::<Vec<_>>().join(",");
            let cpu = vm.get("cpu").unwrap_or("kvm64").to_owned();
            for (key, value) in RUNNING.into_iter().zip([cpu, MACHINE.to_owned(), mtu]) {
                vm.config.insert(key.to_owned(), value);
            }
            let time = memory_time(memory, state.timings.full_clone_rate);
            (state.vary(time), inside, volid)
        };
        match &inside {
            Inside::Simulated(_) => worker.work(time).await?,
            Inside::Real(running) => self.save(node, vmid, running, &volid).await?,
        }
        {
            let mut state = self.state();
            let vm = state.vm_on_mut(node, vmid)?;
            vm.config.insert("lock".to_owned(), SUSPENDED.to_owned());
            if let Inside::Simulated(guest) = inside {
                guest.freeze();
                vm.frozen = vm.machine.take();
            }
        }
        self.announce(Event::Power { vmid, on: false });
        Ok(())
    }

    /// Writes the memory of a real guest. If that fails, the VM stays as it was.
    async fn save(&self, node: &str, vmid: u32, running: &Running, volid: &str) -> Result<(), Refusal> {
        let Some(hardware) = self.0.hardware.clone() else { return Ok(()) };
        if let Err(error) = hardware.save_memory(running, volid).await {
            let mut state = self.state();
            let vm = state.vm_on_mut(node, vmid)?;
            forget(vm);
            state.volumes.retain(|(name, _), _| name != volid);
            return Err(Refusal::failed(error.to_string()));
        }
        // `vm.machine` is cleared first, so that the end of the process is not treated as a loss of power.
        let machine = self.state().vm_on_mut(node, vmid)?.machine.take();
        running.stop().await;
        drop(machine);
        Ok(())
    }

    /// Resumes a suspended VM's guest. Called when a VM is started. Returns false if the VM is not suspended.
    pub(super) async fn go_on(&self, worker: &Worker, node: &str, vmid: u32) -> Result<bool, Refusal> {
        let (time, volid) = {
            let mut state = self.state();
            let vm = state.vm_on(node, vmid)?;
            if !is_suspended(vm) {
                return Ok(false);
            }
            let (memory, volid) = (vm.memory(), vm.get("vmstate").unwrap_or_default().to_owned());
            let time = memory_time(memory, state.timings.full_clone_rate);
            (state.vary(time), volid)
        };
        worker.log("Resuming suspended VM");
        if let Some(hardware) = self.0.hardware.clone() {
            self.boot_real(&hardware, vmid, Some(volid.clone())).await?;
            hardware.free_disk(&volid);
        } else {
            worker.work(time).await?;
        }
        {
            let mut state = self.state();
            let vm = state.vm_on_mut(node, vmid)?;
            forget(vm);
            if let Some(frozen) = vm.frozen.take() {
                if let Some(guest) = frozen.simulated() {
                    guest.thaw();
                }
                vm.machine = Some(frozen);
                self.announce(Event::Power { vmid, on: true });
            }
            state.volumes.retain(|(name, _), _| *name != volid);
        }
        worker.log("Resumed VM, removing state");
        Ok(true)
    }
}

/// The config keys that describe the process whose memory is saved: its CPU, its machine type, and the MTU of
/// its networks.
const RUNNING: [&str; 3] = ["runningcpu", "runningmachine", "running-nets-host-mtu"];
/// The machine type of QEMU in Proxmox VE 9.2.
const MACHINE: &str = "pc-i440fx-10.0+pve1";

/// Removes the traces of a suspension from a VM's config.
fn forget(vm: &mut Vm) {
    for key in ["lock", "vmstate"].into_iter().chain(RUNNING) {
        vm.config.remove(key);
    }
}

fn memory_time(memory: u64, rate: u64) -> Duration {
    Duration::from_millis(memory / USED * 1000 / rate.max(1))
}

/// Returns the storage for a VM's state: the one that its config names, otherwise the storage of one of its
/// disks, otherwise `local`. Shared storages are preferred to local ones, and then file-based storages to all
/// others. CD drives do not count as disks.
fn state_storage(state: &State, vm: &Vm) -> String {
    if let Some(named) = vm.get("vmstatestorage") {
        return named.to_owned();
    }
    let disks = vm.drives().into_iter().filter(|(_, _, text)| !text.contains("media=cdrom"));
    let used: BTreeSet<String> =
        disks.filter_map(|(_, volid, _)| Some(volid.split(':').next()?.to_owned())).collect();
    let known = used.iter().filter_map(|id| state.storages.get(id));
    // As in Proxmox VE, a file-based storage replaces an earlier choice. The result is the last file-based
    // storage, or the first storage if none is file-based.
    let of = |shared: bool| {
        known.clone().filter(|one| one.shared == shared).fold(None, |found, one| match found {
            Some(_) if !one.kind.is_file_based() => found,
            _ => Some(one.id.clone()),
        })
    };
    of(true).or_else(|| of(false)).unwrap_or_else(|| "local".to_owned())
}
