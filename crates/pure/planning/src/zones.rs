//! Pools whose labels differ between hosts (`{{ host }}`, `{{ zone }}`). Each set of hosts with equal labels
//! is a separate offer, so that a pod that requires a zone, or is spread over zones, is planned for the right
//! offer.

use std::collections::{BTreeMap, BTreeSet};

use model::selector::Labels;
use model::{HostKey, Snapshot};
use settings::Pool;

/// Returns the pool once for each set of hosts whose machines have the same labels. If the pool's labels do
/// not depend on the host, returns the pool unchanged.
pub(super) fn split(pool: Pool, snapshot: &Snapshot) -> Vec<Pool> {
    let mut groups: BTreeMap<Labels, Vec<HostKey>> = BTreeMap::new();
    if pool.tells_hosts() {
        for host in hosts(&pool, snapshot) {
            groups.entry(pool.labels_on(&host)).or_default().push(host);
        }
    }
    // The pool is moved, not cloned: there may be thousands of pools, and each is a large value.
    if groups.is_empty() {
        return vec![if pool.labels_vary() { Pool { labels: pool.labels_anywhere(), ..pool } } else { pool }];
    }
    groups.into_iter().map(|(labels, hosts)| Pool { labels, hosts, ..pool.clone() }).collect()
}

/// Returns the hosts that the pool's machines may be on: those that Proxmox VE reports or, if these are
/// unknown, those that the pool names. A host that the daemon has switched off is included even if it is not
/// known whether the template can be cloned there, because a host is woken only for offers that include it.
fn hosts(pool: &Pool, snapshot: &Snapshot) -> BTreeSet<HostKey> {
    let reach = snapshot.memory.pools.get(&pool.name).and_then(|memory| memory.reach.as_ref());
    let power = |name: &HostKey| snapshot.memory.hosts.get(name)?.power.as_ref();
    let awaited = |name: &HostKey| power(name).is_some_and(|power| power.reached_by.contains(&pool.name));
    let reached = |name: &HostKey| reach.is_none_or(|reach| reach.contains(name)) || awaited(name);
    let allowed = |name: &HostKey| pool.may_be_on(name) && reached(name);
    match &snapshot.proxmox.hosts {
        Some(seen) => seen.iter().map(|host| host.name.clone()).filter(allowed).collect(),
        None if pool.hosts.is_empty() => BTreeSet::from([pool.host_key("pve")]),
        None => pool.hosts.iter().cloned().collect(),
    }
}
