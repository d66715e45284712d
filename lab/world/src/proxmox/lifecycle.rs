//! Resizing and destroying.

use std::time::Duration;

use serde_json::Value;

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    config::LOCK_WAIT,
    state::State,
    suspend::is_suspended,
    task::Worker,
    vm::{Inside, parse_size, property, show_size},
};

/// When a VM is destroyed, the last 1/`LAST_PART` of the time passes between freeing the disks and removing
/// the config.
const LAST_PART: u32 = 20;

impl Pve {
    pub(super) fn resize(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        call.who.need(&self.state(), &format!("/vms/{}", call.vmid()), &["VM.Config.Disk"])?;
        let (pve, call) = (self.clone(), call.clone());
        let (node, id, who) = (call.node().to_owned(), call.vmid().to_string(), call.who.clone());
        let upid = self.spawn_worker(&node, "resize", &id, &who, |worker| async move {
            let _lock = pve.lock_vm(call.node(), call.vmid(), LOCK_WAIT).await?;
            let time = {
                let mut state = pve.state();
                let time = state.timings.config;
                state.vary(time)
            };
            worker.work(time).await?;
            let growth = {
                let mut state = pve.state();
                grow(&mut state, &call, worker.upid.pid)?
            };
            pve.grow_real(&call, &growth).await
        });
        Ok(Value::from(upid).into())
    }

    /// Grows the real disk, if the VMs run on real hardware.
    async fn grow_real(&self, call: &ApiCall, (volid, size): &(String, u64)) -> Result<(), Refusal> {
        let Some(hardware) = &self.0.hardware else { return Ok(()) };
        let running = {
            let state = self.state();
            let machine = state.vm_on(call.node(), call.vmid())?.machine.as_ref();
            match machine.map(|machine| machine.inside.clone()) {
                Some(Inside::Real(running)) => Some(running),
                _ => None,
            }
        };
        let drive = call.params.text("disk").unwrap_or_default();
        let grown = hardware.grow_disk(volid, &drive, *size, running.as_ref()).await;
        grown.map_err(|error| Refusal::failed(error.to_string()))
    }

    pub(super) fn destroy(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let (node, vmid) = (call.node().to_owned(), call.vmid());
        {
            let state = self.state();
            call.who.need(&state, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
            if call.params.flag("skiplock") {
                return Err(Refusal::parameter("skiplock", "Only root may use this option."));
            }
            let vm = state.vm_on(&node, vmid)?;
            if vm.get("protection") == Some("1") {
                return Err(Refusal::failed(format!("can't remove VM {vmid} - protection mode enabled")));
            }
            if vm.ha.is_some() && !call.params.flag("purge") {
                let text = "used in HA resources and purge parameter not set.";
                return Err(Refusal::failed(format!("unable to remove VM {vmid} - {text}")));
            }
            if vm.machine.is_some() {
                return Err(Refusal::failed(format!("VM {vmid} is running - destroy failed")));
            }
        }
        let (pve, purge) = (self.clone(), call.params.flag("purge"));
        let upid = self.spawn_worker(
            &node.clone(),
            "qmdestroy",
            &vmid.to_string(),
            &call.who,
            |worker| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                pve.run_destroy(&worker, &node, vmid, purge).await
            },
        );
        Ok(Value::from(upid).into())
    }

    async fn run_destroy(&self, worker: &Worker, node: &str, vmid: u32, purge: bool) -> Result<(), Refusal> {
        let time = {
            let mut state = self.state();
            let vm = state.vm_on(node, vmid)?;
            if !is_suspended(vm) {
                vm.check_lock()?;
            }
            if vm.machine.is_some() {
                return Err(Refusal::failed(format!("VM {vmid} is running - destroy failed")));
            }
            let volumes: Vec<String> = vm.drives().into_iter().map(|(_, volid, _)| volid).collect();
            if let Some(used) =
                volumes.iter().find(|volid| state.volumes.values().any(|v| v.parent.as_ref() == Some(volid)))
            {
                return Err(Refusal::failed(format!(
                    "base volume '{used}' is still in use by linked cloned"
                )));
            }
            let time = state.timings.destroy;
            state.vary(time)
        };
        let last = time / LAST_PART;
        worker.work(time.saturating_sub(last)).await?;
        let kept = self.free_volumes(node, vmid);
        for (volid, why) in kept {
            if why.contains("no quorum") {
                // Without quorum, Proxmox VE tries to lock the shared storage for ten seconds per volume,
                // then gives up.
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            let warns = !self.state().is_release_8();
            let mark = if warns { "WARN: " } else { "" };
            worker.log(format!("{mark}Could not remove disk '{volid}', check manually: {why}"));
        }
        self.state().need_writable(vmid, node, worker.upid.pid)?;
        if purge {
            worker.log(format!("purging VM {vmid} from related configurations.."));
        }
        self.leave_lock(vmid);
        worker.work(last).await?;
        self.state().vms.remove(&vmid);
        Ok(())
    }

    /// Removes everything except a lock from the config of a VM whose disks have been freed, and removes the
    /// VM from its pool.
    fn leave_lock(&self, vmid: u32) {
        let mut state = self.state();
        if let Some(vm) = state.vms.get_mut(&vmid) {
            vm.config = [("lock".to_owned(), "destroyed".to_owned())].into();
        }
        for pool in state.pools.values_mut() {
            pool.members.remove(&vmid);
        }
        state.access.grants.retain(|grant| grant.path != format!("/vms/{vmid}"));
    }

    /// Frees the volumes that the config names. Returns those that could not be freed, each with the reason:
    /// their storage cannot be locked without quorum, or another task uses the volume.
    fn free_volumes(&self, node: &str, vmid: u32) -> Vec<(String, String)> {
        let mut state = self.state();
        let quorate = state.quorate();
        let named: Vec<String> =
            state.vms.get(&vmid).into_iter().flat_map(super::vm::Vm::named_volumes).collect();
        let mut kept = Vec::new();
        for volid in named {
            let storage = volid.split(':').next().unwrap_or_default().to_owned();
            let place = state.place(&storage, node);
            let owned =
                state.volumes.get(&(volid.clone(), place.clone())).is_some_and(|volume| volume.vmid == vmid);
            if owned && state.busy_storages.contains(&storage) {
                kept.push((volid, "dataset is busy".to_owned()));
            } else if owned && !quorate && place.is_empty() {
                kept.push((volid, format!("cfs-lock 'storage-{storage}' error: no quorum!")));
            } else if owned {
                if let Some(hardware) = &self.0.hardware {
                    hardware.free_disk(&volid);
                }
                state.volumes.remove(&(volid, place));
            }
        }
        kept
    }
}

/// Stores a disk's new size. Returns its volume and the new size.
fn grow(state: &mut State, call: &ApiCall, pid: u32) -> Result<(String, u64), Refusal> {
    let (node, vmid) = (call.node(), call.vmid());
    let disk = call.params.text("disk").unwrap_or_default();
    let wanted = call.params.text("size").unwrap_or_default();
    let vm = state.vm_on(node, vmid)?;
    vm.check_lock()?;
    if call.params.text("digest").is_some_and(|digest| digest != vm.digest()) {
        return Err(Refusal::failed("checksum mismatch (file change by other user?)"));
    }
    let text =
        vm.get(&disk).ok_or_else(|| Refusal::failed(format!("disk '{disk}' does not exist")))?.to_owned();
    if text.contains("media=cdrom") {
        return Err(Refusal::failed("you can't resize a cdrom"));
    }
    let volid = text.split(',').next().unwrap_or_default().to_owned();
    let storage = volid.split(':').next().unwrap_or_default().to_owned();
    call.who.need(state, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let before = property(&text, "size").and_then(parse_size).unwrap_or(0);
    let number = parse_size(wanted.trim_start_matches('+')).ok_or_else(|| Refusal::failed("invalid size"))?;
    let after = if wanted.starts_with('+') { before + number } else { number };
    if after < before {
        return Err(Refusal::failed("shrinking disks is not supported"));
    }
    state.need_writable(vmid, node, pid)?;
    let place = state.place(&storage, node);
    if let Some(volume) = state.volumes.get_mut(&(volid.clone(), place)) {
        volume.size = after;
    }
    let changed = text.replace(
        &format!("size={}", property(&text, "size").unwrap_or_default()),
        &format!("size={}", show_size(after)),
    );
    state.vm_on_mut(node, vmid)?.config.insert(disk, changed);
    Ok((volid, after))
}
