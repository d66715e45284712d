//! Draws from the seed which pools' machines have a PCI device, and how many devices each host has. `room`
//! checks that the machines on a host never need more devices than the host has.

use fastrand::Rng;
use world::proxmox::VmView;
use world::proxmox::spec::{ClusterSpec, Grant, VmSpec};

use crate::simulate::drawn::places::HOSTS;
use crate::simulate::drawn::pool_shape::{PoolShape, State};

/// The name of the resource mapping that contains all devices.
const MAPPING: &str = "gpu";
/// The PCI addresses of the devices on their hosts.
const SLOTS: [&str; 2] = ["0000:01:00", "0000:41:00"];
/// The VM option that adds a device: key and value.
const HELD: (&str, &str) = ("hostpci0", "mapping=gpu");

/// How many devices each host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Devices([usize; HOSTS.len()]);

impl Devices {
    /// Draws the number of devices on each host, and the pools whose machines have one. Machines of pools
    /// that suspend machines have no device, because Proxmox VE cannot suspend a VM with a device.
    pub fn draw(random: &mut Rng, pools: &mut [PoolShape]) -> Self {
        for pool in pools.iter_mut() {
            let suspends = pool.warm.is_some_and(|warm| warm.state == State::Suspended);
            pool.device = random.u8(..4) == 0 && !suspends;
        }
        let devices = HOSTS.map(|_| random.usize(..=SLOTS.len()));
        if pools.iter().any(|pool| pool.device) { Self(devices) } else { Self::default() }
    }

    /// The number of devices on a host.
    pub fn on(self, host: &str) -> usize {
        HOSTS.iter().position(|one| *one == host).and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }
}

/// The configuration table that gives each of a pool's machines one device.
pub fn written() -> String {
    format!("[[pool.pci]]\nmapping = \"{MAPPING}\"\n")
}

/// Adds the devices to the hosts, and allows the token to use them.
pub fn allow(cluster: &mut ClusterSpec, devices: Devices) {
    let all = HOSTS
        .into_iter()
        .flat_map(|host| SLOTS.into_iter().take(devices.on(host)).map(move |slot| (host, slot)));
    let all: Vec<(String, String)> = all.map(|(host, slot)| (host.to_owned(), slot.to_owned())).collect();
    if all.is_empty() {
        return;
    }
    cluster.pci.push((MAPPING.to_owned(), all));
    let access = &mut cluster.access;
    access.roles.insert("Devices".into(), vec!["Mapping.Use".into()]);
    access.roles.entry("KasWorker".into()).or_default().push("VM.Config.HWType".into());
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, role) = (format!("/mapping/pci/{MAPPING}"), "Devices".into());
        access.grants.push(Grant { path, who: who.into(), role, propagate: false });
    }
}

/// Whether a VM has a device, or would be started with one.
pub fn has_one(vm: &VmView) -> bool {
    vm.config.contains_key(HELD.0)
}

/// Adds a device to some of the unmanaged VMs that the token can see, if any host has devices.
pub fn give(vm: &mut VmSpec, devices: Devices) {
    if devices != Devices::default() && vm.pool.is_some() && vm.vmid.is_multiple_of(3) {
        vm.config.insert(HELD.0.to_owned(), HELD.1.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::drawn::{rules::Bootstrap, settings, warm};

    #[test]
    fn devices_are_where_pools_ask_for_them_and_suspend_nothing() {
        let mut seen = [false; 3];
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let mut pools = settings::pools(&mut random);
            warm::draw(&mut random, Bootstrap::Kubeadm, &mut pools);
            let devices = Devices::draw(&mut random, &mut pools);
            let given = pools.iter().filter(|pool| pool.device);
            let suspends = |pool: &&PoolShape| pool.warm.is_some_and(|warm| warm.state == State::Suspended);
            assert_eq!(given.clone().filter(suspends).count(), 0, "{pools:?}");
            assert!(given.clone().next().is_some() || devices == Devices::default(), "{devices:?}");
            let drawn = [
                given.clone().count() > 1,
                given.count() > 0 && devices.on("pve1") == 0,
                devices.on("pve2") == SLOTS.len(),
            ];
            seen.iter_mut().zip(drawn).for_each(|(seen, drawn)| *seen |= drawn);
        }
        assert_eq!(seen, [true; 3]);
    }
}
