//! The actual state of hosts, storages and guests. Unlike the API's answers, it is never out of date, and
//! reading it needs no privileges.

use super::Pve;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Whether the host has power.
    pub online: bool,
    /// Whether the host is in HA maintenance.
    pub maintenance: bool,
    /// Whether all reports of the host's pvestatd have expired.
    pub silent: bool,
    /// Threads.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Memory in bytes that the host uses outside of its VMs.
    pub own_memory: u64,
}

/// Where a VM is, and the resources that it uses while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestView {
    /// VMID.
    pub vmid: u32,
    /// Its node.
    pub node: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether the VM is a template.
    pub template: bool,
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Its lock.
    pub lock: Option<String>,
    /// Its pool.
    pub pool: Option<String>,
}

/// A storage seen from a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageView {
    /// Size in bytes.
    pub size: u64,
    /// Bytes in use.
    pub used: u64,
    /// Whether all hosts see the same volumes.
    pub shared: bool,
}

impl Pve {
    /// A host.
    pub fn host(&self, node: &str) -> Option<HostView> {
        let state = self.state();
        let host = state.hosts.get(node)?;
        Some(HostView {
            online: host.online,
            maintenance: host.maintenance,
            silent: state.is_silent(node),
            cores: host.spec.cores,
            memory: host.spec.memory,
            own_memory: host.spec.memory_used,
        })
    }

    /// The host CPUs that a running VM was restricted to at its start. `None` if the VM may use all CPUs, or
    /// is not running.
    pub fn runs_on_cpus(&self, vmid: u32) -> Option<String> {
        self.state().vms.get(&vmid)?.machine.as_ref()?.affinity.clone()
    }

    /// All VMs, ordered by VMID.
    pub fn guests(&self) -> Vec<GuestView> {
        let state = self.state();
        let view = |vm: &super::vm::Vm| GuestView {
            vmid: vm.vmid,
            node: vm.node.clone(),
            running: vm.machine.is_some(),
            template: vm.is_template(),
            cores: vm.cpus(),
            memory: vm.memory(),
            lock: vm.get("lock").map(String::from),
            pool: state.pool_of(vm.vmid).map(String::from),
        };
        state.vms.values().map(view).collect()
    }

    /// A storage as a host sees it.
    pub fn storage_on(&self, storage: &str, node: &str) -> Option<StorageView> {
        let state = self.state();
        let spec = state.storages.get(storage).filter(|spec| spec.is_on(node))?;
        Some(StorageView { size: spec.size, used: state.storage_used(spec, node), shared: spec.shared })
    }

    /// The bytes that a VM's own volumes use on a storage.
    pub fn allocated(&self, vmid: u32, storage: &str) -> u64 {
        let state = self.state();
        let own = state.volumes.values().filter(|volume| volume.vmid == vmid && volume.storage == storage);
        own.map(|volume| if volume.parent.is_some() { volume.size / 20 } else { volume.size }).sum()
    }
}
