//! The processes of running VMs: their start, their end, and the clean-up afterwards.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Event, Pve,
    answer::Refusal,
    state::State,
    vm::{Inside, Machine, Pending, Vm, property},
};
use crate::{
    guest::{Guest, Identity, Pace},
    qemu::{Blueprint, Hardware, HardwareError, Running},
};

/// The time from the end of a QEMU process to the clean-up after it.
pub(super) const CLEAN_UP: Duration = Duration::from_millis(700);
/// How long the clean-up waits for the end of a new QEMU process, in seconds.
const CLEAN_UP_TRIES: usize = 30;

/// The additional time for which systemd in the guest reports `starting` if cloud-init upgrades packages
/// (Proxmox VE's default) but cannot reach a mirror.
const PACKAGE_UPGRADE: Duration = Duration::from_secs(216);

impl Pve {
    /// Applies a VM's pending changes and starts the VM. If the VM is real, this function returns before the
    /// start is complete.
    pub(super) fn power_on(&self, vmid: u32) {
        match self.0.hardware.clone() {
            None => self.boot_simulated(vmid),
            Some(hardware) => {
                let pve = self.clone();
                tokio::spawn(async move {
                    if let Err(refusal) = pve.boot_real(&hardware, vmid, None).await {
                        tracing::warn!(vmid, "{}", refusal.task_text());
                    }
                });
            }
        }
    }

    /// Like [`Pve::power_on`], but waits until a real VM has started, and returns an error if the start
    /// fails.
    pub(super) async fn power_up(&self, vmid: u32) -> Result<(), Refusal> {
        let Some(hardware) = self.0.hardware.clone() else {
            self.boot_simulated(vmid);
            return Ok(());
        };
        self.boot_real(&hardware, vmid, None).await
    }

    /// Starts the process of a real VM. If `memory` names a volume, the guest resumes from it.
    pub(super) async fn boot_real(
        &self,
        hardware: &Hardware,
        vmid: u32,
        memory: Option<String>,
    ) -> Result<(), Refusal> {
        let blueprint = {
            let mut state = self.state();
            let Some(vm) = state.vms.get_mut(&vmid).filter(|vm| vm.machine.is_none()) else { return Ok(()) };
            // A resumed guest keeps its virtual hardware, so pending changes are not applied.
            if memory.is_none() {
                apply_pending(vm);
            }
            let (config, seed) = (vm.config.clone(), super::seed::seed(vm));
            Blueprint { vmid, config, seed, images: uploaded(&state, vmid), memory }
        };
        let running = hardware.start(blueprint).await.map_err(|error| start_failed(&error))?;
        let machine = Machine {
            pid: running.pid(),
            started: Instant::now(),
            affinity: None,
            inside: Inside::Real(running.clone()),
        };
        match self.state().vms.get_mut(&vmid).filter(|vm| vm.machine.is_none()) {
            Some(vm) => vm.machine = Some(machine),
            None => {
                return Err(Refusal::failed(format!(
                    "VM {vmid} was removed or already started in the meantime"
                )));
            }
        }
        self.announce(Event::Power { vmid, on: true });
        let pve = std::sync::Arc::downgrade(&self.0);
        tokio::spawn(async move {
            running.ended().await;
            if let Some(inner) = pve.upgrade() {
                Self(inner).process_ended(vmid, &running);
            }
        });
        Ok(())
    }

    /// Handles the end of a process, whatever its cause.
    fn process_ended(&self, vmid: u32, running: &Running) {
        let still = self.state().vms.get(&vmid).and_then(|vm| Some(vm.machine.as_ref()?.pid));
        if still == Some(running.pid()) {
            self.power_cut(vmid);
        }
    }

    fn boot_simulated(&self, vmid: u32) {
        let mut state = self.state();
        let timings = state.timings.clone();
        let pace = Pace {
            agent: state.vary(timings.boot_to_agent),
            running: state.vary(timings.agent_to_running),
            join: state.vary(timings.join),
        };
        let pid = state.new_pid();
        let seed = state.vms.get(&vmid).and_then(|vm| uploaded_seed(&state, vm));
        let image = state.network_image.clone();
        let Some(vm) = state.vms.get_mut(&vmid).filter(|vm| vm.machine.is_none()) else { return };
        apply_pending(vm);
        let node = vm.node.clone();
        // A start through the API has already chosen its devices. A start by hand, or together with the host,
        // does nothing if no devices are free.
        if super::pci::take(&mut state, &node, vmid).is_err() {
            return;
        }
        let Some(vm) = state.vms.get_mut(&vmid) else { return };
        if vm.get("boot").is_some_and(|order| order.starts_with("order=net")) {
            for (path, content) in image.into_iter().filter(|(path, _)| vm.disk.read(path).is_none()) {
                vm.disk.write(&path, content);
            }
        }
        let ip = vm.get("ipconfig0").unwrap_or_default().to_owned();
        let addresses =
            ["ip", "ip6"].iter().filter_map(|key| property(&ip, key)).filter(|text| text.contains('/'));
        let (addresses, hostname) = match seed {
            Some(seed) => seed,
            None => (addresses.map(String::from).collect(), vm.name()),
        };
        let net = vm.get("net0").unwrap_or_default();
        let identity = Identity {
            uuid: vm.uuid(),
            hostname,
            addresses,
            mac: net
                .split(',')
                .next()
                .and_then(|model| model.split('=').nth(1))
                .unwrap_or_default()
                .to_lowercase(),
            cpus: vm.cpus(),
            memory: vm.memory(),
            disk: vm.disk_size(),
        };
        let inner = std::sync::Arc::downgrade(&self.0);
        let on_join = Box::new(move || {
            if let Some(inner) = inner.upgrade() {
                Self(inner).announce(Event::GuestJoined { vmid });
            }
        });
        let (disk, mut faults) = (vm.disk.clone(), vm.faults.clone());
        if vm.get("ciupgrade") != Some("0") {
            faults.starting_for += PACKAGE_UPGRADE;
        }
        let guest = Guest::boot(identity, disk, faults, pace, self.0.control_plane.clone(), on_join);
        // `0` is false in Perl, and means no affinity.
        let affinity = vm.get("affinity").filter(|text| *text != "0").map(String::from);
        let inside = Inside::Simulated(guest);
        vm.machine = Some(Machine { pid, started: Instant::now(), affinity, inside });
        drop(state);
        self.announce(Event::Power { vmid, on: true });
    }

    /// Ends a running VM's process or simulated guest immediately.
    pub(super) fn power_cut(&self, vmid: u32) {
        let machine = self.state().vms.get_mut(&vmid).and_then(|vm| {
            let machine = vm.machine.take()?;
            apply_pending(vm);
            Some(machine)
        });
        if let Some(machine) = machine {
            match machine.inside {
                Inside::Simulated(guest) => guest.power_off(),
                Inside::Real(running) => running.kill(),
            }
            self.announce(Event::Power { vmid, on: false });
            self.clean_up_after(vmid);
        }
    }

    /// Runs the clean-up that Proxmox VE runs on the VM's host each time QEMU ends. The clean-up takes the
    /// VM's lock. If a new process already runs, the clean-up keeps the lock until that process ends, for at
    /// most 30 s. In a recording, a start right after a stop locked the VM for 29.4 s.
    fn clean_up_after(&self, vmid: u32) {
        let pve = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CLEAN_UP).await;
            let running_on = || {
                let state = pve.state();
                let vm = state.vms.get(&vmid).filter(|vm| vm.machine.is_some())?;
                state.hosts.get(&vm.node).is_some_and(|host| host.online).then(|| vm.node.clone())
            };
            let Some(node) = running_on() else { return };
            // If a start task is still running, the real clean-up waits for the task to end. In that case, it
            // was observed to leave the new process alone.
            let Ok(_lock) = pve.lock_vm(&node, vmid, Duration::ZERO).await else { return };
            for _ in 0..CLEAN_UP_TRIES {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if running_on().is_none() {
                    return;
                }
            }
        });
    }
}

fn apply_pending(vm: &mut Vm) {
    for (key, pending) in std::mem::take(&mut vm.pending) {
        match pending {
            Pending::Set(value) => vm.config.insert(key, value),
            Pending::Delete => vm.config.remove(&key),
        };
    }
}

fn start_failed(error: &HardwareError) -> Refusal {
    match error {
        HardwareError::NoVolume(_) => Refusal::failed(error.to_string()),
        other => Refusal::failed(format!("start failed: {other}")),
    }
}

/// The uploaded images in a VM's drives.
fn uploaded(state: &State, vmid: u32) -> BTreeMap<String, Bytes> {
    let Some(vm) = state.vms.get(&vmid) else { return BTreeMap::new() };
    let volumes = vm.drives().into_iter().map(|(_, volid, _)| volid).filter(|volid| volid.contains(":iso/"));
    volumes.filter_map(|volid| Some((volid.clone(), state.file(&volid, &vm.node)?.bytes.clone()))).collect()
}

/// The addresses and name of a guest whose seed is in an uploaded image. `None` if there is no such image, or
/// if the VM has a cloud-init drive from Proxmox VE.
fn uploaded_seed(state: &State, vm: &Vm) -> Option<(Vec<String>, String)> {
    let drives = vm.drives();
    if drives.iter().any(|(_, volid, _)| volid.contains("cloudinit")) {
        return None;
    }
    let (_, volid, _) = drives.into_iter().find(|(_, volid, _)| volid.contains(":iso/"))?;
    let (label, files) = super::iso::read(&state.file(&volid, &vm.node)?.bytes)?;
    if label != "cidata" || !files.contains_key("user-data") {
        return None;
    }
    let text = |name: &str| files.get(name).map(|file| String::from_utf8_lossy(file).into_owned());
    let values = |text: String, key: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
        lines
            .map(|value| value.trim().trim_matches('\'').to_owned())
            .filter(|value| !value.is_empty())
            .collect()
    };
    let name = values(text("meta-data")?, "local-hostname:").into_iter().next()?;
    Some((values(text("network-config").unwrap_or_default(), "address:"), name))
}
