//! The environment of the simulated machines: hosts with the load of other guests, and free slots.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use model::machine::{Host, Machine, Phase, Slot, WarmState};
use model::pci::Held;
use model::{HostKey, PoolName, Snapshot, Vmid};
use planning::slots::{Taken, free};
use settings::Config;

/// The first VMID for machines of pools whose configuration contains no VMIDs.
const INVENTED: u32 = 500_000_000;

/// The resources that guests other than the pools' machines use on each host.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// The cores and the memory in bytes that are assigned to other guests, by host. If the assigned amounts
    /// are unknown: no cores, and the memory that other guests use.
    given: BTreeMap<HostKey, (u32, i64)>,
    /// The memory in bytes that other guests use, by host.
    used: BTreeMap<HostKey, i64>,
    /// Whether the recorded hosts report how many cores and how much memory their guests were assigned.
    pub assigned_known: bool,
}

/// Whether the reported use of a host includes this machine.
fn is_on(machine: &Machine) -> bool {
    match machine.phase {
        Phase::Warm => machine.warm == Some(WarmState::Booted),
        phase => (Phase::Booting..=Phase::Stopping).contains(&phase),
    }
}

/// The cores and the memory in bytes that running machines use on a host.
fn taken<'m>(machines: impl Iterator<Item = &'m Machine>, host: &str) -> (u32, i64) {
    let here = machines.filter(|machine| machine.host == host && is_on(machine));
    here.fold((0, 0), |sum, one| (sum.0 + one.cores, sum.1 + one.memory))
}

impl Others {
    /// The load of other guests in a recorded round.
    pub(super) fn of_round(round: &Snapshot) -> Self {
        let mut others = Self::default();
        let machines = || round.proxmox.machines.iter().flatten();
        let hosts = || round.proxmox.hosts.iter().flatten();
        others.assigned_known = hosts().any(|host| host.memory_assigned > 0);
        for host in hosts() {
            let (cores, memory) = taken(machines(), &host.name);
            let used = (host.memory_used - memory).max(0);
            let given = if others.assigned_known {
                (host.cores_assigned.saturating_sub(cores), (host.memory_assigned - memory).max(0))
            } else {
                (0, used)
            };
            others.given.insert(host.name.clone(), given);
            others.used.insert(host.name.clone(), used);
        }
        others
    }

    /// The cores and the memory in bytes that are assigned to other guests on a host. If the assigned amounts
    /// are unknown: no cores, and the memory that other guests use.
    pub(super) fn of(&self, host: &str) -> (u32, i64) {
        self.given.get(host).copied().unwrap_or_default()
    }

    /// Returns a recorded host, with the load and PCI devices of the recorded machines replaced by those of
    /// `machines`.
    pub(super) fn with(
        &self,
        host: &Host,
        recorded: &BTreeSet<Vmid>,
        machines: &[Machine],
        config: &Config,
    ) -> Host {
        let mut host = host.clone();
        let (cores, memory) = taken(machines.iter(), &host.name);
        let given = self.of(&host.name);
        host.memory_used = self.used.get(&host.name).copied().unwrap_or(0).saturating_add(memory);
        if self.assigned_known {
            host.cores_assigned = given.0.saturating_add(cores);
            host.memory_assigned = given.1.saturating_add(memory);
        }
        host.pci.held.retain(|held| !recorded.contains(&held.vmid));
        for machine in machines.iter().filter(|machine| machine.host == host.name && is_on(machine)) {
            let pool = config.pools.iter().find(|pool| pool.name == machine.pool);
            for device in pool.into_iter().flat_map(|pool| &pool.pci) {
                let held = Held { vmid: machine.vmid, mapping: Some(device.mapping.clone()), address: None };
                host.pci.held.extend(std::iter::repeat_n(held, device.count as usize));
            }
        }
        host
    }
}

/// Returns the free slots that `machines` do not use. A slot is not available if, in the recorded round, it
/// was neither free nor used by a machine.
pub(super) fn slots(
    config: &Config,
    round: &Snapshot,
    machines: &[Machine],
    freed: &BTreeMap<Vmid, Timestamp>,
) -> BTreeMap<PoolName, Vec<Slot>> {
    let mut taken = Taken::default();
    let ours: BTreeSet<Vmid> = round.proxmox.machines.iter().flatten().map(|machine| machine.vmid).collect();
    for pool in &config.pools {
        let vmids = taken.vmids.entry(pool.prefix.clone()).or_default();
        vmids.extend(machines.iter().map(|machine| machine.vmid));
        let recorded = round.memory.free_slots.as_ref().and_then(|all| all.get(&pool.name));
        if let Some(known) = recorded {
            let known: BTreeSet<Vmid> =
                known.iter().map(|slot| slot.vmid).chain(ours.iter().copied()).collect();
            // If the recorded round contains none of the pool's VMIDs, nothing is known about them, so they
            // count as free.
            let of_pool: Vec<Vmid> = pool.slots().into_iter().map(|slot| slot.vmid).collect();
            if of_pool.iter().any(|vmid| known.contains(vmid)) {
                vmids.extend(of_pool.into_iter().filter(|vmid| !known.contains(vmid)));
            }
        }
    }
    let mut all = free(config, &taken, |_, slot| freed.get(&slot.vmid).copied());
    for (number, pool) in (0..).zip(&config.pools) {
        if pool.slots().is_empty() {
            let first = INVENTED + number * 100_000;
            let invented = (first..).take(2 * pool.max as usize + 10);
            let free = invented.filter(|vmid| machines.iter().all(|machine| machine.vmid != Vmid(*vmid)));
            all.insert(
                pool.name.clone(),
                free.map(|vmid| Slot { vmid: Vmid(vmid), ..Slot::default() }).collect(),
            );
        }
    }
    all
}
