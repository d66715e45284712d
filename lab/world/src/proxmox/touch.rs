//! What administrators do with a VM beside the API that a test plays on, with the tasks that they leave.

use std::collections::BTreeMap;

use super::{
    Pve,
    access::Identity,
    vm::{Inside, Vm},
};

/// What another client does with a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It is destroyed.
    Destroyed,
    /// Its plug is pulled.
    Stopped,
    /// Its reset button is pressed.
    Reset,
    /// It gets another name. `qm set` leaves no task.
    Renamed(String),
    /// It is moved to this host.
    Migrated(String),
    /// It is switched off and made a template.
    Template,
    /// It goes back to a snapshot without memory: it is off then.
    RolledBack,
    /// It can no longer be destroyed.
    Protected,
    /// It gets this SMBIOS uuid and is started again. `qm set` leaves no task.
    Renumbered(String),
    /// It is no longer in a pool. That leaves no task.
    LeftPool,
}

impl Touch {
    /// The kind of task that Proxmox VE leaves of it.
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
    /// Another user, such as `root@pam`, does something with a VM. Must be called inside a tokio runtime.
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

    /// All guests of a host are stopped, as when it is shut down: the task takes this long. Must be called
    /// inside a tokio runtime.
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

    /// A host's pvestatd hangs, as on a storage that does not answer, or is started again.
    pub fn set_pvestatd_silent(&self, node: &str, silent: bool) {
        let mut state = self.state();
        if silent {
            state.silent.entry(node.to_owned()).or_insert_with(|| Some(tokio::time::Instant::now()));
        } else {
            state.silent.remove(node);
        }
    }

    /// A host's pvestatd has said nothing for long enough that the list has forgotten what it said.
    pub fn forget_what_pvestatd_said(&self, node: &str) {
        self.state().silent.insert(node.to_owned(), None);
    }

    /// The guest boots again under the same QEMU; what waits for the VM's next start goes on waiting.
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
