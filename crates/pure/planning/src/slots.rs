//! Determines which slots are free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;

use model::{PoolName, Slot, Vmid};
use settings::Config;

/// What occupies slots.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// For each cluster (the prefix of its hosts' names), the VMIDs of records and of all guests that Proxmox
    /// VE reports.
    pub vmids: BTreeMap<String, BTreeSet<Vmid>>,
    /// Addresses of records and Nodes.
    pub addresses: BTreeSet<IpAddr>,
}

/// The free slots of each pool: first those never used, then those that have been free the longest. A slot is
/// not available if another VM or Node has its VMID or address.
pub fn free(
    config: &Config,
    taken: &Taken,
    freed: impl Fn(&PoolName, &Slot) -> Option<Timestamp>,
) -> BTreeMap<PoolName, Vec<Slot>> {
    let pools = config.pools.iter().map(|pool| {
        let vmids = taken.vmids.get(pool.prefix.as_str());
        let mut slots: Vec<Slot> = pool
            .slots()
            .into_iter()
            .filter(|slot| vmids.is_none_or(|vmids| !vmids.contains(&slot.vmid)))
            .filter(|slot| slot.addresses().all(|address| !taken.addresses.contains(&address)))
            .collect();
        slots.sort_by_key(|slot| (freed(&pool.name, slot), slot.vmid));
        (pool.name.clone(), slots)
    });
    pools.collect()
}
