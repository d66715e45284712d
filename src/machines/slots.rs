//! Which slots are free. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;

use crate::config::Config;
use crate::model::Slot;

/// What takes slots.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// VMIDs of records, and of all guests that Proxmox shows.
    pub vmids: BTreeSet<u32>,
    /// Addresses of records and Nodes.
    pub addresses: BTreeSet<IpAddr>,
}

/// The free slots of each pool: never used ones first, then the one that has been free for longest. A slot whose VMID or
/// address somebody else has is out of service.
pub fn free(
    config: &Config,
    taken: &Taken,
    freed: impl Fn(&Slot) -> Option<Timestamp>,
) -> BTreeMap<String, Vec<Slot>> {
    let pools = config.pools.iter().map(|pool| {
        let mut slots: Vec<Slot> = pool
            .slots()
            .into_iter()
            .filter(|slot| !taken.vmids.contains(&slot.vmid))
            .filter(|slot| slot.addresses().all(|address| !taken.addresses.contains(&address)))
            .collect();
        slots.sort_by_key(|slot| (freed(slot), slot.vmid));
        (pool.name.clone(), slots)
    });
    pools.collect()
}
