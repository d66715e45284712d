//! The hosts' PCI devices that the pools can use, and the VMs that use them. Proxmox VE's resource list does
//! not contain devices, so they are queried separately, and only if a pool has a `[[pool.pci]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{HostKey, Vmid};
use runtime::boxed;
use tokio::time::Instant;

use super::host_queries;
use model::machine::Host;
use model::pci::{Held, HostPci};
use proxmox::{Client, ClusterResources, Error, Guest, Kind, PciMapping};
use settings::Config;

/// How often mappings are read again and checked against the hardware.
const MAPPINGS: Duration = Duration::from_mins(1);
/// How often a VM's devices are read. If the VM is restarted with different devices between two readings, the
/// change is only noticed at the next reading.
const GUESTS: Duration = Duration::from_mins(5);

/// The devices of each host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices(BTreeMap<HostKey, HostPci>);

impl Devices {
    /// Adds the devices to the hosts.
    pub fn give(&self, hosts: &mut [Host]) {
        for host in hosts {
            host.pci = self.0.get(&host.name).cloned().unwrap_or_default();
        }
    }
}

/// What is known about devices from earlier queries. Each refresh only queries what may have changed, and a
/// hanging host does not delay the others.
#[derive(Debug, Default)]
pub struct DeviceSurvey {
    mappings: Vec<PciMapping>,
    /// The known mapping faults, by host and mapping.
    broken: BTreeMap<(String, String), String>,
    guests: BTreeMap<Vmid, Holder>,
    /// VMs whose devices are not known yet, each with its host and the reason.
    unread: BTreeMap<Vmid, (String, String)>,
    mappings_due: Option<Instant>,
}

/// A VM's devices, as last read.
#[derive(Debug)]
struct Holder {
    host: String,
    held: Vec<Held>,
    /// Whether the VM was running when its devices were read. A VM's devices are fixed when it starts.
    running: bool,
    /// When the VM's devices have to be read again. Until that succeeds, this entry stays valid.
    due: Instant,
}

impl DeviceSurvey {
    /// Queries the devices again, for at most a few seconds. If that fails, [`Self::found`] returns what is
    /// known.
    ///
    /// # Errors
    /// Returns an error if the mappings could not be read.
    #[boxed]
    pub async fn look(
        &mut self,
        proxmox: &Client,
        config: &Config,
        seen: &ClusterResources,
    ) -> Result<Devices, Error> {
        let wanted: BTreeSet<&str> =
            config.pools.iter().flat_map(|pool| &pool.pci).map(|one| one.mapping.as_str()).collect();
        if wanted.is_empty() {
            *self = Self::default();
            return Ok(Devices::default());
        }
        let counts_stopped = config.proxmox.as_ref().is_some_and(|proxmox| proxmox.count_stopped);
        let to_read = self.expect(counts_stopped, seen);
        let now = Instant::now();
        let due = self.mappings_due.is_none_or(|due| now >= due) || !self.knows(&wanted);
        let mapped = if due { self.look_at_mappings(proxmox, &wanted, seen).await } else { Ok(()) };
        if due && mapped.is_ok() {
            self.mappings_due = Some(now + MAPPINGS);
        }
        self.look_at_guests(proxmox, to_read).await;
        mapped.map(|()| self.found(seen))
    }

    fn knows(&self, wanted: &BTreeSet<&str>) -> bool {
        wanted.iter().all(|id| self.mappings.iter().any(|one| one.id == *id))
    }

    async fn look_at_mappings(
        &mut self,
        proxmox: &Client,
        wanted: &BTreeSet<&str>,
        seen: &ClusterResources,
    ) -> Result<(), Error> {
        let mappings = host_queries::soon("PCI mappings", proxmox.pci_mappings(None)).await?;
        let of_pools = mappings.iter().filter(|one| wanted.contains(one.id.as_str()));
        let hosts = of_pools.flat_map(|one| one.devices.iter().map(|(host, _)| host));
        let online = hosts.filter(|host| seen.hosts.get(*host).is_some_and(|host| host.online));
        let to_check = online.map(|host| (host.clone(), vec![()])).collect();
        let ask = |host: String, ()| async move { proxmox.pci_mappings(Some(&host)).await };
        let mut broken = BTreeMap::new();
        for (host, (), answer) in host_queries::hosts(to_check, ask).await {
            match answer {
                Ok(checked) => broken.extend(checked.into_iter().filter_map(|one| {
                    let on_host = one.devices.iter().any(|(of, _)| *of == host);
                    Some(((host.clone(), one.id), one.problem.filter(|_| on_host)?))
                })),
                // Until the host can be queried, its last known faults are kept. A new fault is then only
                // noticed when a machine starts on the host.
                Err(error) => {
                    tracing::debug!(%host, %error, "its PCI mappings cannot be checked");
                    broken.extend(self.broken.extract_if(.., |(of, _), _| *of == host));
                }
            }
        }
        (self.mappings, self.broken) = (mappings, broken);
        Ok(())
    }

    /// Returns the VMs whose devices have to be read now: VMs that may hold devices and were not read
    /// recently. Stopped VMs are only included with `count_stopped`. Until a VM has been read in its current
    /// state, none of its host's devices are available.
    fn expect<'a>(&mut self, counts_stopped: bool, seen: &'a ClusterResources) -> Vec<&'a Guest> {
        let online = |guest: &Guest| seen.hosts.get(&guest.host).is_some_and(|host| host.online);
        let counts = |guest: &&Guest| {
            let vm = !guest.template && !guest.container && online(guest);
            // A VM that was just created is neither `running` nor `stopped` for a few seconds. Such a VM may
            // use devices, so it is included.
            vm && (!guest.stopped || counts_stopped)
        };
        let there: BTreeMap<Vmid, &Guest> =
            seen.guests.values().filter(counts).map(|guest| (guest.vmid, guest)).collect();
        self.guests.retain(|vmid, known| there.get(vmid).is_some_and(|guest| guest.host == known.host));
        let known =
            |guest: &Guest| self.guests.get(&guest.vmid).filter(|known| known.running == guest.running);
        let unread = there.values().filter(|guest| known(guest).is_none());
        let why = |vmid| format!("the devices of VM {vmid} have not been read yet");
        self.unread = unread.map(|guest| (guest.vmid, (guest.host.clone(), why(guest.vmid)))).collect();
        let fresh = |guest: &Guest| known(guest).is_some_and(|known| Instant::now() < known.due);
        there.into_values().filter(|guest| !fresh(guest)).collect()
    }

    /// Reads the configurations of these VMs.
    async fn look_at_guests(&mut self, proxmox: &Client, to_read: Vec<&Guest>) {
        let mut by_host: BTreeMap<String, Vec<(Vmid, bool)>> = BTreeMap::new();
        for guest in to_read {
            by_host.entry(guest.host.clone()).or_default().push((guest.vmid, guest.running));
        }
        let ask =
            |host: String, (vmid, _): (Vmid, bool)| async move { proxmox.devices_of(&host, vmid).await };
        for (host, (vmid, running), answer) in host_queries::hosts(by_host, ask).await {
            match answer {
                Ok(held) => {
                    let due = Instant::now() + GUESTS;
                    self.guests.insert(vmid, Holder { host, held, running, due });
                    self.unread.remove(&vmid);
                }
                // The VM is gone or no longer visible: later lists will not contain it.
                Err(error) if matches!(error.kind, Kind::Forbidden | Kind::NotFound) => {
                    self.unread.remove(&vmid);
                }
                Err(error) => {
                    tracing::debug!(vmid = vmid.0, %error, "cannot read the devices of a VM");
                    if let Some((_, why)) = self.unread.get_mut(&vmid) {
                        *why = format!("the devices of VM {vmid} cannot be read: {error}");
                    }
                }
            }
        }
    }

    /// What is known about the hosts' devices.
    pub fn found(&self, seen: &ClusterResources) -> Devices {
        let mut hosts: BTreeMap<HostKey, HostPci> =
            seen.hosts.keys().map(|host| (HostKey::from(host.as_str()), HostPci::default())).collect();
        for mapping in &self.mappings {
            for (host, path) in &mapping.devices {
                if let Some(host) = hosts.get_mut(host.as_str()) {
                    host.mappings.entry(mapping.id.clone()).or_default().insert(path.clone());
                }
            }
        }
        for ((host, mapping), problem) in &self.broken {
            if let Some(host) = hosts.get_mut(host.as_str()) {
                host.broken.insert(mapping.clone(), problem.clone());
            }
        }
        for (host, why) in self.unread.values() {
            if let Some(HostPci { mappings, broken, .. }) = hosts.get_mut(host.as_str()) {
                for mapping in mappings.keys() {
                    broken.entry(mapping.clone()).or_insert_with(|| why.clone());
                }
            }
        }
        for Holder { host, held, .. } in self.guests.values() {
            if let Some(host) = hosts.get_mut(host.as_str()) {
                host.held.extend(held.iter().cloned());
            }
        }
        Devices(hosts)
    }
}
