//! Changes that another client, such as an administrator, makes to a VM, and the tasks that Proxmox VE
//! records for these changes.

use std::collections::BTreeMap;

use super::{
    Pve,
    access::Identity,
    vm::{Inside, Vm},
};

/// A change that another client makes to a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The VM is destroyed.
    Destroyed,
    /// The VM's power is cut.
    Stopped,
    /// The VM's reset button is pressed.
    Reset,
    /// The VM is renamed with `qm set`, which creates no task.
    Renamed(String),
    /// The VM is migrated to the host with this name.
    Migrated(String),
    /// The VM is switched off and converted to a template.
    Template,
    /// The VM is rolled back to a snapshot without memory, and is off afterwards.
    RolledBack,
    /// The VM is protected from being destroyed.
    Protected,
    /// The VM's SMBIOS uuid is changed with `qm set`, which creates no task. The VM is stopped before the
    /// change and started afterwards.
    Renumbered(String),
    /// The VM is removed from its pool. Proxmox VE records no task for this.
    LeftPool,
}

impl Touch {
    /// The kind of task that Proxmox VE records for the change.
    fn task(&self) -> Option<&'static str> {
        Some(match self {
            Self::Destroyed => "qmdestroy",
            Self::Stopped => "qmstop",
            Self::Reset => "qmreset",
            Self::Migrated(_) => "qmigrate",
            Self::Template => "qmtemplate",
            Self::RolledBack => "qmrollback",
            Self::Protected => "qmconfig",
            Self::Renamed(_) | Self::Renumbered(_) | Self::LeftPool => return None,
        })
    }
}

impl Pve {
    /// Makes a change to a VM as another user, such as `root@pam`. Must be called inside a tokio runtime.
    pub fn touch(&self, vmid: u32, user: &str, touch: &Touch) {
        let Some(node) = self.vm(vmid).map(|vm| vm.node) else { return };
        if let Some(kind) = touch.task() {
            let who = Identity::person(user);
            self.spawn_worker(&node, kind, &vmid.to_string(), &who, |_| std::future::ready(Ok(())));
        }
        match touch {
            Touch::Destroyed => self.delete_by_hand(vmid),
            Touch::Stopped | Touch::RolledBack => self.stop_by_hand(vmid),
            Touch::Reset => self.press_reset(vmid),
            Touch::Renamed(name) => self.set_config_by_hand(vmid, "name", Some(name)),
            Touch::Migrated(host) => self.migrate_by_hand(vmid, host),
            Touch::Template => {
                self.stop_by_hand(vmid);
                self.set_config_by_hand(vmid, "template", Some("1"));
            }
            Touch::Protected => self.set_config_by_hand(vmid, "protection", Some("1")),
            Touch::Renumbered(uuid) => {
                let old = self.state().vms.get(&vmid).map(Vm::uuid).unwrap_or_default();
                self.stop_by_hand(vmid);
                self.set_config_by_hand(vmid, "smbios1", Some(&format!("uuid={uuid}")));
                self.0.control_plane.uuid_changed(&old, uuid);
                self.start_by_hand(vmid);
            }
            Touch::LeftPool => self.move_to_pool_by_hand(vmid, None),
        }
    }

    /// Stops all guests of a host, as a shutdown of the host does. The `stopall` task runs for `time`. Must
    /// be called inside a tokio runtime.
    pub fn stop_all_by_hand(&self, node: &str, time: std::time::Duration) {
        let running: Vec<u32> = {
            let state = self.state();
            state
                .vms
                .values()
                .filter(|vm| vm.node == node && vm.machine.is_some())
                .map(|vm| vm.vmid)
                .collect()
        };
        let who = Identity::person("root@pam");
        self.spawn_worker(node, "stopall", "", &who, |worker| async move { worker.work(time).await });
        for vmid in running {
            self.spawn_worker(node, "qmshutdown", &vmid.to_string(), &who, |_| std::future::ready(Ok(())));
            self.stop_by_hand(vmid);
        }
    }

    /// Makes a host's pvestatd hang, as if a storage did not answer, or ends the hang.
    pub fn set_pvestatd_silent(&self, node: &str, silent: bool) {
        let mut state = self.state();
        if silent {
            state.silent.entry(node.to_owned()).or_insert_with(|| Some(tokio::time::Instant::now()));
        } else {
            state.silent.remove(node);
        }
    }

    /// Makes a host's pvestatd silent, and lets its earlier reports expire.
    pub fn forget_what_pvestatd_said(&self, node: &str) {
        self.state().silent.insert(node.to_owned(), None);
    }

    /// Boots the guest again under the same QEMU. Changes that wait for the VM's next start keep waiting.
    fn press_reset(&self, vmid: u32) {
        let taken = self.state().vms.get_mut(&vmid).and_then(|vm: &mut Vm| {
            let pending: BTreeMap<_, _> = std::mem::take(&mut vm.pending);
            Some((vm.machine.take()?, pending))
        });
        let Some((machine, pending)) = taken else { return };
        if let Inside::Simulated(guest) = machine.inside {
            guest.power_off();
        }
        self.power_on(vmid);
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            vm.pending = pending;
        }
    }
}
