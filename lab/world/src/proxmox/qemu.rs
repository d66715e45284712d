//! The processes of running VMs: how one begins, how it ends, and what follows its end.

use std::time::Duration;

use super::{
    Event, Pve,
    vm::{Machine, Pending, property},
};
use crate::guest::{Guest, Identity, Pace};

/// From the end of a QEMU to the clean-up after it.
pub(super) const CLEAN_UP: Duration = Duration::from_millis(700);
/// Seconds for which the clean-up waits for the end of a QEMU that runs again.
const CLEAN_UP_TRIES: usize = 30;

impl Pve {
    /// Starts a VM's machine and its guest, with pending changes applied.
    pub(super) fn power_on(&self, vmid: u32) {
        let mut state = self.state();
        let timings = state.timings.clone();
        let pace = Pace {
            agent: state.vary(timings.boot_to_agent),
            running: state.vary(timings.agent_to_running),
            join: state.vary(timings.join),
        };
        let pid = state.new_pid();
        let Some(vm) = state.vms.get_mut(&vmid).filter(|vm| vm.machine.is_none()) else { return };
        for (key, pending) in std::mem::take(&mut vm.pending) {
            match pending {
                Pending::Set(value) => vm.config.insert(key, value),
                Pending::Delete => vm.config.remove(&key),
            };
        }
        let ip = vm.get("ipconfig0").unwrap_or_default().to_owned();
        let addresses =
            ["ip", "ip6"].iter().filter_map(|key| property(&ip, key)).filter(|text| text.contains('/'));
        let net = vm.get("net0").unwrap_or_default();
        let identity = Identity {
            uuid: vm.uuid(),
            hostname: vm.name(),
            addresses: addresses.map(String::from).collect(),
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
        let (disk, faults) = (vm.disk.clone(), vm.faults.clone());
        let guest = Guest::boot(identity, disk, faults, pace, self.0.control_plane.clone(), on_join);
        vm.machine = Some(Machine { pid, started: tokio::time::Instant::now(), guest });
        drop(state);
        self.announce(Event::Power { vmid, on: true });
    }

    /// Ends a VM's machine at once.
    pub(super) fn power_cut(&self, vmid: u32) {
        let machine = self.state().vms.get_mut(&vmid).and_then(|vm| {
            let machine = vm.machine.take()?;
            for (key, pending) in std::mem::take(&mut vm.pending) {
                match pending {
                    Pending::Set(value) => vm.config.insert(key, value),
                    Pending::Delete => vm.config.remove(&key),
                };
            }
            Some(machine)
        });
        if let Some(machine) = machine {
            machine.guest.power_off();
            self.announce(Event::Power { vmid, on: false });
            self.clean_up_after(vmid);
        }
    }

    /// What follows each end of QEMU on its host: it takes the VM's lock, and where it finds a new process it waits for that
    /// one's end, with the lock in its hands. Recorded: a start right after a stop locked the VM for 29.4 s.
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
            // A start that is still at work is waited for; what it started was found to be left in peace.
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
