//! The pools' randomly drawn networks, and the rights to use them.

use fastrand::Rng;
use world::proxmox::Pve;
use world::proxmox::rights::TagAccess;
use world::proxmox::spec::{ClusterSpec, Grant};

use crate::simulate::drawn::pool_shape::{Network, OF_TEMPLATES, PoolShape};

/// A bridge that only some pools use.
const SECOND: &str = "vmbr1";

/// The tag that the daemon adds to its machines.
const TAG: &str = "pve-autoscaler";

/// Draws the pools' networks and the datacenter's tag options, which allow the machines' tag.
pub fn draw(random: &mut Rng, pools: &mut [PoolShape]) -> TagAccess {
    for pool in pools {
        let bridge = if random.u8(..3) == 0 { SECOND } else { OF_TEMPLATES };
        pool.network = Network { bridge, vlan: (random.u8(..3) == 0).then(|| random.u16(40..44)) };
    }
    let word = ["free", "free", "existing", "list"][random.usize(..4)];
    let listed = if word == "free" { Vec::new() } else { vec![TAG.to_owned()] };
    let registered = if random.u8(..4) == 0 { vec!["k8s".to_owned()] } else { Vec::new() };
    TagAccess { user_allow: word.to_owned(), user_allow_list: listed, registered }
}

/// Adds the second bridge to the hosts. Grants the token the rights to use the pools' networks, in addition
/// to its right to use the templates' network.
pub fn allow(cluster: &mut ClusterSpec, pools: &[PoolShape]) {
    for host in &mut cluster.hosts {
        host.bridges.push(SECOND.to_owned());
    }
    let paths: std::collections::BTreeSet<String> = pools.iter().map(|pool| pool.network.path()).collect();
    for path in paths.into_iter().filter(|path| *path != Network::PLAIN.path()) {
        for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
            let (path, role) = (path.clone(), "KasNet".to_owned());
            cluster.access.grants.push(Grant { path, who: who.to_owned(), role, propagate: false });
        }
    }
}

/// Revokes the token's right to a network, or restores it.
pub fn rights(pve: &Pve, path: &str, there: bool) {
    let away = format!("{path}-not");
    let (from, to) = if there { (away.as_str(), path) } else { (path, away.as_str()) };
    pve.change_access(|access| {
        for grant in access.grants.iter_mut().filter(|grant| grant.path == from) {
            to.clone_into(&mut grant.path);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::drawn::settings;

    #[test]
    fn each_pool_has_a_network_and_the_token_the_rights_to_it_alone() {
        let mut seen = [false; 4];
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            let tags = draw(&mut random, &mut pools);
            let mut cluster = ClusterSpec::demo();
            allow(&mut cluster, &pools);
            for pool in &pools {
                let path = pool.network.path();
                let granted = cluster.access.grants.iter().filter(|grant| grant.path == path);
                assert_eq!(granted.count(), 2, "{path}");
            }
            let network = |is: fn(Network) -> bool| pools.iter().any(|pool| is(pool.network));
            let now = [
                network(|one| one.bridge == SECOND && one.vlan.is_none()),
                network(|one| one.vlan.is_some()),
                tags.user_allow == "list",
                !tags.registered.is_empty(),
            ];
            seen.iter_mut().zip(now).for_each(|(seen, now)| *seen |= now);
        }
        assert_eq!(seen, [true; 4]);
    }
}
