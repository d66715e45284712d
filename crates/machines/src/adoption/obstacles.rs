//! What prevents the adoption of a worker: problems with its Node, its VM and disks, or its future pool.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Candidate, Found};
use crate::node;
use model::node::Node;
use model::snapshot::{BEING_DELETED_TAINT, POOL_LABEL};
use model::{Record, Slot};
use proxmox::VmConfig;
use proxmox::marker::Description;
use settings::{Config, DiskSize, Pool};

/// The labels and taints of control plane nodes.
pub(super) const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// What prevents the Node from being adopted.
pub(super) fn of_node(pool: &Pool, found: &Found) -> Vec<String> {
    let node = &found.node;
    let mut against = Vec::new();
    if CONTROL_PLANE
        .iter()
        .any(|key| node.labels.contains_key(*key) || node.taints.iter().any(|taint| taint.key == *key))
    {
        against.push("it is a control plane node".to_owned());
    }
    if node.deleted.is_some() || node.taints.iter().any(|taint| taint.key == BEING_DELETED_TAINT) {
        against.push("it is being deleted".to_owned());
    }
    if !node::is_ready(node) {
        against.push("it is not ready".to_owned());
    }
    if node.system_uuid.is_empty() {
        against.push("its kubelet reports no systemUUID, which is needed to find its VM".to_owned());
    }
    match node.labels.get(POOL_LABEL) {
        Some(other) if *other != pool.name => {
            against.push(format!("its label {POOL_LABEL} assigns it to pool `{other}`"));
        }
        _ => {}
    }
    if !found.namesakes.is_empty() {
        let ids: Vec<_> = found.namesakes.iter().map(ToString::to_string).collect();
        against.push(format!("another guest has the same name: {}", ids.join(", ")));
    }
    against
}

/// Why no VM was found for the Node, and what may help.
pub(super) fn unseen(config: &Config, node: &Node) -> String {
    let resource_pool = config.proxmox.as_ref().and_then(|table| table.resource_pool.as_deref());
    let help = resource_pool.map_or_else(String::new, |name| {
        format!(
            "; machines must be in the resource pool `{name}`: as root on a host, `pvesh set /pools/{name} \
             --vms VMID` adds a VM"
        )
    });
    format!(
        "no VM that the token can see has the node's systemUUID {} as its SMBIOS uuid{help}",
        node.system_uuid
    )
}

/// What prevents the VM from being adopted in its current state.
pub(super) fn of_vm(
    config: &Config,
    vm: &Candidate,
    known: Option<&Record>,
    pools: &BTreeSet<String>,
) -> Vec<String> {
    let (vmid, host) = (vm.guest.vmid, &vm.guest.host);
    let mut against = Vec::new();
    let mut no = |so: bool, why: String| {
        if so {
            against.push(why);
        }
    };
    match vm.config.owner() {
        Description::Ours(marker) if known.is_none_or(|record| record.id != marker.machine) => {
            let what = format!(
                "VM {vmid} bears the mark of machine {} of cluster `{}`",
                marker.machine, marker.cluster
            );
            no(true, format!("{what}: remove the first line of its notes if that machine no longer exists"));
        }
        Description::BeingCloned => no(true, format!("VM {vmid} is being cloned")),
        Description::BeingDestroyed => no(true, format!("VM {vmid} is being destroyed")),
        Description::Ours(_) | Description::Foreign => {}
    }
    no(vm.config.is_template(), format!("VM {vmid} is a template"));
    let lock = vm.config.lock().or(vm.status.lock.as_deref());
    no(lock.is_some(), format!("VM {vmid} is locked ({})", lock.unwrap_or_default()));
    let ha =
        format!("VM {vmid} is managed by HA: `ha-manager remove vm:{vmid}` on {host} removes it from HA");
    no(vm.status.ha_managed, ha);
    let snapshot = vm.config.get("parent");
    no(
        snapshot.is_some(),
        format!(
            "VM {vmid} has snapshots (the last is `{}`), which would be destroyed with it",
            snapshot.unwrap_or_default()
        ),
    );
    no(
        vm.config.is_set("protection"),
        format!(
            "VM {vmid} is protected and could never be destroyed: run `qm set {vmid} --protection 0` on \
                {host}"
        ),
    );
    no(vm.status.power != proxmox::Power::Running, format!("VM {vmid} is not running"));
    if let Some(wanted) = config.proxmox.as_ref().and_then(|table| table.resource_pool.as_deref()) {
        let there = vm.guest.pool.as_deref();
        let what = if pools.contains(wanted) || there.is_some() {
            let help = format!("as root on a host, `pvesh set /pools/{wanted} --vms {vmid}` adds it");
            format!("VM {vmid} is not in the resource pool `{wanted}`: {help}")
        } else {
            let token = config.proxmox.as_ref().map(|table| table.token_id.as_str()).unwrap_or_default();
            let user = token.split('!').next().unwrap_or_default();
            format!(
                "the token cannot see whether VM {vmid} is in the resource pool `{wanted}`, because it \
                 lacks Pool.Audit on /pool/{wanted}: run `pveum acl modify /pool/{wanted} --users {user} \
                 --tokens '{token}' --roles ROLE`, where ROLE is a role with Pool.Audit"
            )
        };
        no(there != Some(wanted), what);
    }
    against
}

/// Describes the disks that would be destroyed with the VM although the pool does not name them. The main
/// disk, EFI and TPM disks, and the cloud-init and CD-ROM drives are not included.
pub(crate) fn of_disks(pool: &Pool, config: &VmConfig) -> Vec<String> {
    let main = pool.disk.as_ref().map_or("scsi0", |DiskSize { device, .. }| device.as_str());
    let cloud_init = config.cloudinit_drive();
    let expected = |key: &str| {
        key == main || Some(key) == cloud_init || pool.extra_disks.iter().any(|disk| disk.device == key)
    };
    let unused = |key: &str| key.strip_prefix("unused").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let drives: Vec<&str> = config
        .drives()
        .filter(|drive| !expected(drive.key) && !drive.is_cdrom())
        .map(|drive| drive.key)
        .collect();
    let left: Vec<&str> = config.all().map(|(key, _)| key).filter(|key| unused(key)).collect();
    drives
        .into_iter()
        .filter(|key| !key.starts_with("efidisk") && !key.starts_with("tpmstate"))
        .chain(left)
        .map(|key| {
            format!(
                "its disk `{key}` would be destroyed with it: detach the disk, or list it in \
            the pool's `extra_disks`"
            )
        })
        .collect()
}

/// Returns the VM's slot. Its VMID must be one of the pool's, and its addresses must be those of that VMID.
/// Returns an error if the VM uses an address of another slot, because a machine in that slot would get the
/// same address.
pub(super) fn slot(
    config: &Config,
    pool: &Pool,
    found: &Found,
    vm: &Candidate,
    known: Option<&Record>,
) -> Result<Slot, String> {
    if let Some(record) = known {
        return Ok(record.slot.clone());
    }
    let vmid = vm.guest.vmid;
    let slot = pool.slots().into_iter().find(|slot| slot.vmid == vmid).ok_or_else(|| {
        format!(
            "VMID {vmid} has no slot in pool `{}`: add it to `vmids`, and its address at the same position \
             in `addresses`",
            pool.name
        )
    })?;
    let of_node: BTreeSet<IpAddr> =
        found.node.internal_ips.iter().filter_map(|own| own.parse().ok()).collect();
    // A Node reports only the addresses that its kubelet uses.
    let own: BTreeSet<IpAddr> = of_node.iter().copied().chain(vm.config.static_addresses()).collect();
    let first = slot.address.filter(|address| !of_node.contains(address));
    if let Some(address) = first.or_else(|| slot.addresses().find(|address| !own.contains(address))) {
        let own: Vec<String> = own.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the slot of VMID {vmid} in pool `{}` has the address {address}, but the node has {}",
            pool.name,
            own.join(", ")
        ));
    }
    let here = config.pools.iter().filter(|other| other.region == pool.region);
    for other in here.flat_map(|other| other.slots().into_iter().map(move |slot| (&other.name, slot))) {
        let (name, other) = other;
        if (name, other.vmid) != (&pool.name, vmid)
            && let Some(address) = other.addresses().find(|address| own.contains(address))
        {
            return Err(format!(
                "its address {address} belongs to the slot of VMID {} in pool `{name}`",
                other.vmid
            ));
        }
    }
    Ok(slot)
}

/// Why the VM cannot become one of the pool's machines.
pub(super) fn of_pool(pool: &Pool, found: &Found, vm: &Candidate) -> Vec<String> {
    let (name, vmid) = (&pool.name, vm.guest.vmid);
    let mut against = Vec::new();
    let of_pool = found.records.iter().filter(|record| record.pool == *name).count();
    if of_pool >= pool.max as usize {
        against.push(format!("pool `{name}` has {of_pool} machines, and its `max` is {}", pool.max));
    }
    // Each region has its own VMIDs. A record that names no region may belong to any region.
    let here = |record: &&Record| match (&record.region, &pool.region) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => true,
    };
    let mut records = found.records.iter().filter(here);
    if let Some(other) = records.find(|record| record.slot.vmid == vmid) {
        against.push(format!("the slot of VMID {vmid} is occupied by machine `{}`", other.name));
    }
    let map = format!("machine-{name}-{vmid}");
    if found.unreadable.contains(&map) {
        against.push(format!("the slot of VMID {vmid} is closed: its record `{map}` cannot be read"));
    }
    if found.records.iter().any(|record| record.name == found.node.name) {
        against.push(format!("a machine called `{}` already exists", found.node.name));
    }
    if vm.config.get("name") != Some(found.node.name.as_str()) {
        let own = vm.config.get("name").unwrap_or("?");
        against.push(format!("VM {vmid} is called `{own}`: a machine and its node must have the same name"));
    }
    if !pool.hosts.is_empty() && !pool.hosts.iter().any(|host| *host == *vm.guest.host) {
        against.push(format!("it is on {}, which is not one of the pool's `hosts`", vm.guest.host));
    }
    against
}
