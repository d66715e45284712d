//! Suspending to disk: the guest's memory becomes a volume, its QEMU ends, and the VM stays locked (`suspended`) until the next
//! start lets the guest go on where it was. The guest's clock stands still meanwhile.
//!
//! As qemu-server does it: the lock is `suspending` while memory is written; the state volume is named in the config
//! (`vmstate`), sized for twice the memory and half a GiB; start and destroy are what a suspended VM allows. No recording tells
//! how long it takes: the third of the memory that a guest uses is written and read as fast as a full clone is made.

use std::time::Duration;

use serde_json::Value;

use super::{
    ApiCall, Event, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    state::Volume,
    task::Worker,
    vm::{Inside, Vm},
};

/// The part of its memory that a guest uses.
const USED: u64 = 3;
/// The lock while memory is written, and afterwards.
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
            return Err(Refusal::NotImplemented("this lab suspends to disk alone".to_owned()));
        }
        {
            let state = self.state();
            call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Config.Disk"])?;
            let vm = state.vm_on(call.node(), call.vmid())?;
            if vm.machine.is_none() {
                return Err(Refusal::failed(format!("VM {} not running", call.vmid())));
            }
            let storage = state_storage(vm).unwrap_or_default();
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
        let (time, guest) = {
            let mut state = self.state();
            let vm = state.vm_on(node, vmid)?;
            vm.check_lock()?;
            let Some(machine) = &vm.machine else {
                return Err(Refusal::failed(format!("VM {vmid} not running")));
            };
            let Inside::Simulated(guest) = &machine.inside else {
                return Err(Refusal::NotImplemented("this lab suspends simulated guests alone".to_owned()));
            };
            let (guest, memory) = (guest.clone(), vm.memory());
            let storage = state_storage(vm).ok_or_else(|| Refusal::failed("no storage for the VM state"))?;
            state.need_writable(vmid, node, worker.upid.pid)?;
            let place = state.place(&storage, node);
            let volid =
                format!("{storage}:vm-{vmid}-state-suspend-{}", state.clock.now().strftime("%Y-%m-%d"));
            let volume = Volume {
                storage,
                size: memory * 2 + (512 << 20),
                vmid,
                parent: None,
                format: "raw".to_owned(),
                ctime: state.clock.now().as_second(),
            };
            state.volumes.insert((volid.clone(), place), volume);
            let vm = state.vm_on_mut(node, vmid)?;
            vm.config.insert("lock".to_owned(), SUSPENDING.to_owned());
            vm.config.insert("vmstate".to_owned(), volid);
            let time = memory_time(memory, state.timings.full_clone_rate);
            (state.vary(time), guest)
        };
        worker.work(time).await?;
        {
            let mut state = self.state();
            let vm = state.vm_on_mut(node, vmid)?;
            guest.freeze();
            vm.frozen = vm.machine.take();
            vm.config.insert("lock".to_owned(), SUSPENDED.to_owned());
        }
        self.announce(Event::Power { vmid, on: false });
        Ok(())
    }

    /// Lets a suspended guest go on: what a start does where there is one. False where there is none.
    pub(super) async fn go_on(&self, worker: &Worker, node: &str, vmid: u32) -> Result<bool, Refusal> {
        let time = {
            let mut state = self.state();
            let vm = state.vm_on(node, vmid)?;
            if !is_suspended(vm) {
                return Ok(false);
            }
            let memory = vm.memory();
            let time = memory_time(memory, state.timings.full_clone_rate);
            state.vary(time)
        };
        worker.log("Resuming suspended VM");
        worker.work(time).await?;
        {
            let mut state = self.state();
            let vm = state.vm_on_mut(node, vmid)?;
            vm.config.remove("lock");
            let volid = vm.config.remove("vmstate").unwrap_or_default();
            vm.machine = vm.frozen.take();
            if let Some(guest) = vm.machine.as_ref().and_then(super::vm::Machine::simulated) {
                guest.thaw();
            }
            state.volumes.retain(|(name, _), _| *name != volid);
        }
        worker.log("Resumed VM, removing state");
        self.announce(Event::Power { vmid, on: true });
        Ok(true)
    }
}

fn memory_time(memory: u64, rate: u64) -> Duration {
    Duration::from_millis(memory / USED * 1000 / rate.max(1))
}

/// Where the state goes: to the storage that the VM names, else to that of its first disk.
fn state_storage(vm: &Vm) -> Option<String> {
    let disk =
        || vm.drives().into_iter().map(|(_, volid, _)| volid).find(|volid| !volid.contains("cloudinit"));
    vm.get("vmstatestorage").map(ToOwned::to_owned).or_else(|| Some(disk()?.split(':').next()?.to_owned()))
}
