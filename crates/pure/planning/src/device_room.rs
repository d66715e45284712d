//! The PCI devices on a host that are available to new machines: the devices in the resource mappings, except
//! those that VMs use.

use std::collections::{BTreeMap, BTreeSet};

use model::machine::{Host, Machine, Phase};
use model::{Vmid, pci};
use settings::{Pci, Pool};

/// What is left of a host's PCI devices.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceRoom {
    /// The devices of each mapping, without those that are passed to VMs by address.
    mappings: BTreeMap<String, BTreeSet<String>>,
    broken: BTreeMap<String, String>,
    /// For each mapping, how many of its devices are or will be used by VMs.
    used: BTreeMap<String, u32>,
}

impl DeviceRoom {
    /// A managed machine's devices count as used from the creation of its record until the machine has
    /// stopped, even before it is started. Devices of unmanaged VMs, and additional devices of managed
    /// machines, count as used if Proxmox VE shows them.
    pub(super) fn new(host: &Host, machines: &[Machine], pools: &[Pool]) -> Self {
        let mut room = Self {
            mappings: host.pci.mappings.clone(),
            broken: host.pci.broken.clone(),
            used: BTreeMap::new(),
        };
        let mut seen: BTreeMap<(Vmid, &str), u32> = BTreeMap::new();
        for held in &host.pci.held {
            if let Some(mapping) = &held.mapping {
                *seen.entry((held.vmid, mapping)).or_default() += 1;
            }
            if let Some(address) = &held.address {
                for devices in room.mappings.values_mut() {
                    devices.retain(|device| !pci::overlap(device, address));
                }
            }
        }
        let mut asked: BTreeMap<(Vmid, &str), u32> = BTreeMap::new();
        for pool in pools.iter().filter(|pool| !pool.pci.is_empty()) {
            let given = pool.made_of().remove("pci");
            let own = machines.iter().filter(|machine| machine.pool == pool.name);
            let here = own.filter(|machine| machine.hosts().any(|one| *one == host.name));
            for machine in here.filter(|machine| asks(machine, given.as_ref())) {
                asked.extend(pool.pci.iter().map(|one| ((machine.vmid, one.mapping.as_str()), one.count)));
            }
        }
        for (key, count) in &asked {
            let both = seen.entry(*key).or_default();
            *both = (*both).max(*count);
        }
        for ((_, mapping), count) in seen {
            *room.used.entry(mapping.to_owned()).or_default() += count;
        }
        room
    }

    /// Which devices the host lacks for one more machine of the pool, or `None` if it has enough.
    pub(super) fn lacks(&self, pool: &Pool) -> Option<String> {
        let mut left = self.clone();
        for one in &pool.pci {
            let mapping = &one.mapping;
            let Some(devices) = self.mappings.get(mapping) else {
                return Some(format!("has no device of the mapping `{mapping}`"));
            };
            if let Some(why) = self.broken.get(mapping) {
                return Some(format!("cannot provide devices from the mapping `{mapping}`: {why}"));
            }
            let free = left.free(one);
            if free < i64::from(one.count) {
                let all = i64::try_from(devices.len()).unwrap_or(i64::MAX) * i64::from(one.per_device);
                let free = free.max(0);
                let count = one.count;
                return Some(format!(
                    "has {free} of {all} devices of `{mapping}` left, but a machine needs {count}"
                ));
            }
            left.hold(one);
        }
        None
    }

    /// Whether a machine of the pool that has not started yet would fail to start because of its devices.
    pub(super) fn starts_none(&self, pool: &Pool) -> bool {
        self.overdrawn(pool) || pool.pci.iter().any(|one| self.broken.contains_key(&one.mapping))
    }

    /// Whether VMs use or will use more devices of one of the pool's mappings than the host has. This happens
    /// if a device is passed to another VM, or if a machine is moved to this host.
    pub(super) fn overdrawn(&self, pool: &Pool) -> bool {
        pool.pci.iter().any(|one| self.free(one) < 0)
    }

    /// Counts one more machine of the pool.
    pub(super) fn take(&mut self, pool: &Pool) {
        for one in &pool.pci {
            self.hold(one);
        }
    }

    fn hold(&mut self, one: &Pci) {
        let used = self.used.entry(one.mapping.clone()).or_default();
        *used = used.saturating_add(one.count);
    }

    /// The number of devices in a mapping that are certainly free. A device may be in several mappings, and
    /// Proxmox VE does not show which of a mapping's devices a VM uses. So a device that is used through
    /// another mapping also counts as used here if it may be in both mappings.
    fn free(&self, one: &Pci) -> i64 {
        let Some(own) = self.mappings.get(&one.mapping) else { return 0 };
        let shared = |other: &str| -> u32 {
            let other = self.mappings.get(other).into_iter().flatten();
            let both = other.filter(|device| own.iter().any(|mine| pci::overlap(mine, device)));
            u32::try_from(both.count()).unwrap_or(u32::MAX)
        };
        let others = self.used.iter().filter(|(mapping, _)| **mapping != one.mapping);
        let lost: i64 = others.map(|(mapping, used)| i64::from(shared(mapping).min(*used))).sum();
        let whole = i64::try_from(own.len()).unwrap_or(i64::MAX).saturating_sub(lost).max(0);
        let used = self.used.get(&one.mapping).copied().unwrap_or(0);
        whole.saturating_mul(i64::from(one.per_device)).saturating_sub(i64::from(used))
    }
}

/// The number of additional machines of the pool for which the host has free devices. A device that a VM has
/// according to Proxmox VE is not free.
pub fn devices_left(pool: &Pool, host: &Host) -> u32 {
    let mut room = DeviceRoom::new(host, &[], std::slice::from_ref(pool));
    let mut count = 0;
    while !pool.pci.is_empty() && room.lacks(pool).is_none() {
        room.take(pool);
        count += 1;
    }
    count
}

/// Whether a machine has, or will have, the devices that its pool passes through. `given` is the description
/// of these devices in the records of new machines. A running machine that was created with different
/// settings only has the devices that Proxmox VE shows.
fn asks(machine: &Machine, given: Option<&String>) -> bool {
    let made_so = || machine.made_of.get("pci") == given;
    machine.phase < Phase::Booting || machine.phase <= Phase::Stopping && made_so()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::pci::{Held, HostPci};
    use settings::Needs;

    fn pools(tables: &str) -> Vec<Pool> {
        let text = format!("[[pool]]\nname = \"w\"\nmax = 9\ncores = 1\nmemory = \"1GiB\"\n{tables}");
        settings::parse("test", &text, Needs::Plan).unwrap().pools
    }

    fn host(mappings: &[(&str, &[&str])], held: &[(Vmid, &str)]) -> Host {
        let devices = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let held = held.iter().map(|(vmid, what)| {
            let (address, mapping) =
                if what.contains(':') { (Some(*what), None) } else { (None, Some(*what)) };
            Held {
                vmid: *vmid,
                mapping: mapping.map(ToOwned::to_owned),
                address: address.map(ToOwned::to_owned),
            }
        });
        let pci = HostPci {
            mappings: mappings.iter().map(|(id, all)| ((*id).to_owned(), devices(all))).collect(),
            held: held.collect(),
            ..HostPci::default()
        };
        Host { name: "a".into(), pci, ..Host::default() }
    }

    const GPU: &str = "[[pool.pci]]\nmapping = \"gpu\"\n";
    const TWO: &[(&str, &[&str])] = &[("gpu", &["0000:01:00", "0000:41:00"])];

    #[test]
    fn a_host_takes_so_many_machines_as_it_has_free_devices() {
        for (tables, mappings, held, expected) in [
            (GPU, TWO, vec![], Ok(2)),
            (GPU, TWO, vec![(Vmid(300), "gpu")], Ok(1)),
            // The VM has the device, or one of the device's functions, passed through by address.
            (GPU, TWO, vec![(Vmid(300), "41:00.0")], Ok(1)),
            (
                GPU,
                TWO,
                vec![(Vmid(300), "0000:41:00"), (Vmid(301), "gpu")],
                Err("has 0 of 1 devices of `gpu` left"),
            ),
            (GPU, TWO, vec![(Vmid(300), "nic"), (Vmid(301), "0000:99:00")], Ok(2)),
            (GPU, &[], vec![], Err("has no device of the mapping `gpu`")),
            ("[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\n", TWO, vec![], Ok(1)),
            (
                "[[pool.pci]]\nmapping = \"gpu\"\ncount = 2\n",
                TWO,
                vec![(Vmid(300), "gpu")],
                Err("has 1 of 2 devices of `gpu` left, but a machine needs 2"),
            ),
            (
                "[[pool.pci]]\nmapping = \"gpu\"\nmdev = \"nvidia-63\"\nper_device = 4\n",
                TWO,
                vec![(Vmid(300), "gpu"), (Vmid(301), "01:00.0")],
                Ok(3),
            ),
            // Two mappings contain the same devices.
            (
                GPU,
                &[("gpu", &["0000:01:00", "0000:41:00"]), ("any", &["0000:01:00.0", "0000:41:00.0"])],
                vec![(Vmid(300), "any")],
                Ok(1),
            ),
            (
                "[[pool.pci]]\nmapping = \"gpu\"\n[[pool.pci]]\nmapping = \"any\"\n",
                &[("gpu", &["0000:01:00", "0000:41:00"]), ("any", &["0000:01:00", "0000:41:00"])],
                vec![],
                Ok(1),
            ),
        ] {
            let pools = pools(tables);
            let mut room = DeviceRoom::new(&host(mappings, &held), &[], &pools);
            let mut count = 0;
            let refusal = loop {
                match room.lacks(&pools[0]) {
                    Some(why) => break why,
                    None => room.take(&pools[0]),
                }
                count += 1;
            };
            match expected {
                Ok(expected) => assert_eq!(count, expected, "{held:?}: {refusal}"),
                Err(expected) => assert!(count == 0 && refusal.contains(expected), "{refusal}"),
            }
        }
    }

    #[test]
    fn our_machines_count_once_from_their_record_until_they_have_stopped() {
        let pools = pools(GPU);
        let machine = |phase: Phase, made: &str| Machine {
            pool: "w".into(),
            vmid: Vmid(101),
            host: "a".into(),
            phase,
            made_of: [("pci".to_owned(), made.to_owned())].into(),
            ..Machine::default()
        };
        let now = pools[0].made_of()["pci"].clone();
        for (phase, made, held, free) in [
            (Phase::Requested, now.as_str(), vec![], 1),
            (Phase::Warm, &now, vec![], 1),
            (Phase::Ready, &now, vec![], 1),
            (Phase::Ready, &now, vec![(Vmid(101), "gpu")], 1),
            (Phase::Stopping, &now, vec![], 1),
            (Phase::Deleting, &now, vec![], 2),
            (Phase::Deleting, &now, vec![(Vmid(101), "gpu")], 1),
            // The machine was created before its pool passed devices through. It runs without a device, or
            // with one from `vm_options`.
            (Phase::Ready, "", vec![], 2),
            (Phase::Ready, "", vec![(Vmid(101), "gpu")], 1),
            (Phase::Configuring, "", vec![], 1),
        ] {
            let machines = [machine(phase, made), Machine { host: "b".into(), ..machine(phase, made) }];
            let room = DeviceRoom::new(&host(TWO, &held), &machines, &pools);
            assert_eq!(room.free(&pools[0].pci[0]), free, "{phase:?} {made:?} {held:?}");
        }
        // The machine was moved to this host, and its record does not say so yet.
        let moved = Machine { host: "b".into(), seen_on: Some("a".into()), ..machine(Phase::Warm, &now) };
        assert_eq!(DeviceRoom::new(&host(TWO, &[]), &[moved], &pools).free(&pools[0].pci[0]), 1);
    }

    #[test]
    fn a_mapping_that_does_not_fit_the_hardware_gives_nothing() {
        let pools = pools(GPU);
        let mut seen = host(TWO, &[]);
        seen.pci.broken.insert("gpu".to_owned(), "hardware changed".to_owned());
        let room = DeviceRoom::new(&seen, &[], &pools);
        assert_eq!(
            room.lacks(&pools[0]).as_deref(),
            Some("cannot provide devices from the mapping `gpu`: hardware changed")
        );
        assert!(room.starts_none(&pools[0]));
    }
}
