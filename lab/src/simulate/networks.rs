//! Networks and tags: the bridge and VLAN of each pool and who may use which tags, drawn from the seed, with
//! no right more than that needs; and that no machine of a pool is cloned again and again while a right is
//! missing for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;
use stage::{Call, Side};
use tokio::time::Instant;
use world::proxmox::Pve;
use world::proxmox::rights::TagAccess;
use world::proxmox::spec::{ClusterSpec, Grant};

use super::checker::Checker;
use super::doubt::newid;
use super::settings::PoolShape;

/// The bridge of the templates, for which every user who clones one needs a right.
const OF_TEMPLATES: &str = "vmbr0";
/// One that only some pools use.
const SECOND: &str = "vmbr1";
/// What the daemon marks its machines with.
const TAG: &str = "pve-autoscaler";

/// A refusal is known this long after the settings that met it arrived, with all that may be lost on the way.
const KNOWN: Duration = Duration::from_mins(6);
/// After this time it may be tried again, whatever is known.
const TRIED_AGAIN: Duration = Duration::from_mins(14);

/// The network of a pool's machines.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Its bridge.
    pub bridge: &'static str,
    /// Its VLAN.
    pub vlan: Option<u16>,
}

impl Network {
    /// What holds if nothing is drawn.
    pub const PLAIN: Self = Self { bridge: OF_TEMPLATES, vlan: None };

    /// As a pool's settings have it.
    pub fn written(self) -> String {
        let mut text = format!("bridge = \"{}\"\n", self.bridge);
        if let Some(vlan) = self.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
        }
        text
    }

    /// Where the right to it is granted.
    pub fn path(self) -> String {
        let vlan = self.vlan.map(|vlan| format!("/{vlan}")).unwrap_or_default();
        format!("/sdn/zones/localnetwork/{}{vlan}", self.bridge)
    }
}

/// Draws the pools' networks, and what the datacenter's options say of tags: every word of theirs under which
/// the machines' tag may be used.
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

/// Gives the hosts the bridges, and the token exactly the networks of the pools besides that of the
/// templates.
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

/// Takes the token's right to a network away, or gives it back.
pub fn rights(pve: &Pve, path: &str, there: bool) {
    let away = format!("{path}-not");
    let (from, to) = if there { (away.as_str(), path) } else { (path, away.as_str()) };
    pve.change_access(|access| {
        for grant in access.grants.iter_mut().filter(|grant| grant.path == from) {
            to.clone_into(&mut grant.path);
        }
    });
}

/// A right that every machine of some pools needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The one to the machines' tag.
    Tag,
    /// The one to the network with this path.
    Network(String),
}

/// What is missing, and which pools' machines have met that.
#[derive(Default)]
pub struct Missing {
    what: Option<Right>,
    /// By the pool: which term it was, and when.
    met: BTreeMap<&'static str, (u64, Instant)>,
}

impl Checker {
    /// A right is taken away.
    pub(super) fn right_is_missing(&self, right: Right) {
        self.inner().missing = Missing { what: Some(right), met: BTreeMap::new() };
    }

    /// It is back.
    pub(super) fn right_is_back(&self) {
        self.inner().missing = Missing::default();
    }

    /// The settings of a pool have changed: that is worth another try.
    pub(super) fn is_worth_a_try(&self, pool: &'static str) {
        self.inner().missing.met.remove(pool);
    }

    /// A call arrives as it was sent. The settings of a machine that needs the right are refused, which will
    /// be known; a clone that comes long after that, and too early to be tried again whatever is known,
    /// should not have been made.
    pub(super) fn settings_or_clone_arrive(&self, call: &Call<'_>) {
        if call.side != Side::Proxmox || !self.world.pve.is_quorate() {
            return;
        }
        if let Some(vmid) = newid(call.body).filter(|_| call.path.ends_with("/clone")) {
            self.clone_arrives(vmid);
        } else if let Some(vmid) = vmid_of_settings(call) {
            self.settings_arrive(vmid, &String::from_utf8_lossy(call.body));
        }
    }

    fn settings_arrive(&self, vmid: u32, body: &str) {
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let (network, term) = (pool.network.path(), self.terms());
        let missing = &mut self.inner().missing;
        let refused = missing.what.as_ref().is_some_and(|what| match what {
            Right::Tag => body.contains("tags="),
            Right::Network(path) => *path == network && body.contains("net0="),
        });
        if refused {
            missing.met.entry(pool.name).or_insert((term, Instant::now()));
        }
    }

    fn clone_arrives(&self, vmid: u32) {
        let Some(pool) = self.world.pool_of(vmid) else { return };
        let (name, term) = (pool.name, self.terms());
        let mut inner = self.inner();
        let missing = &mut inner.missing;
        let Some(&(of, first)) = missing.met.get(name) else { return };
        let (since, what) = (first.elapsed(), missing.what.clone());
        if of != term || since >= TRIED_AGAIN {
            missing.met.remove(name);
        } else if since > KNOWN {
            drop(inner);
            self.violated(&format!(
                "a machine of pool {name} is cloned {} s after the settings of one were refused, and a right is still missing: {what:?}",
                since.as_secs(),
            ));
        }
    }
}

/// Whose settings a call writes.
fn vmid_of_settings(call: &Call<'_>) -> Option<u32> {
    let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
    match (call.method, parts.as_slice()) {
        ("PUT" | "POST", ["nodes", _, "qemu", vmid, "config"]) => vmid.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::settings;

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
