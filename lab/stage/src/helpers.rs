//! Stand-ins for the helpers that give machines dedicated CPUs, one for each host on which the helper is
//! enabled. They decide like the real helper, and write the result into the embedded Proxmox VE as root.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use pve_autoscaler::pinning::choice::{Taken, choose, keeps};
use pve_autoscaler::pinning::topology::Topology;
use pve_autoscaler::pinning::{Answer, Astray, Cpus, Door, DoorError, Request, SOCKET, VmFile, settings};
use pve_autoscaler::proxmox::marker::Description;
use pve_autoscaler::settings::Config;
use tokio::sync::watch;
use world::proxmox::Pve;

/// The hosts on which the helper is enabled, with the topology that their kernels report. Clones of this
/// value share the list.
#[derive(Clone, Debug, Default)]
pub struct Helpers(Arc<Mutex<BTreeMap<String, Topology>>>);

impl Helpers {
    /// Enables the helper on a host.
    pub fn enable(&self, host: &str, topology: Topology) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(host.to_owned(), topology);
    }

    /// Disables the helper on a host.
    pub fn disable(&self, host: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(host);
    }

    fn on(&self, host: &str) -> Option<Topology> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

/// The connection from the daemon on one host to the helper on that host.
pub(crate) struct HelperDoor {
    pub helpers: Helpers,
    pub host: String,
    pub pve: Pve,
    pub config: watch::Receiver<Arc<Config>>,
}

impl Door for HelperDoor {
    fn ask(&self, request: Request) -> BoxFuture<'_, Result<Answer, DoorError>> {
        let answer = match self.helpers.on(&self.host) {
            Some(topology) => Ok(self.answer(&topology, &request)),
            None => {
                Err(DoorError::Unreachable { path: SOCKET.into(), source: Error::from(ErrorKind::NotFound) })
            }
        };
        Box::pin(async move { answer })
    }
}

impl HelperDoor {
    fn answer(&self, topology: &Topology, request: &Request) -> Answer {
        match request {
            Request::Pin { vmid, machine } => {
                self.pin(topology, *vmid, machine).unwrap_or_else(|reason| Answer::Refused { reason })
            }
            Request::Runs {} => Answer::Runs { astray: self.astray(topology) },
            Request::Look {} => Answer::Free { cpus: Vec::new() },
        }
    }

    fn astray(&self, topology: &Topology) -> Vec<Astray> {
        let mut all = Cpus::default();
        topology.nodes.iter().flat_map(|node| &node.cores).for_each(|core| all.add(core));
        let here = self.pve.vmids().into_iter().filter_map(|vmid| Some((vmid, self.pve.vm(vmid)?)));
        let found = here.filter(|(_, vm)| vm.running && vm.node == self.host).filter_map(|(vmid, vm)| {
            let on = match self.pve.runs_on_cpus(vmid) {
                Some(text) => text.parse().ok()?,
                None => all.clone(),
            };
            Astray::found(vmid, vm.config.get("name")?, vm.config.get("affinity")?, &on)
        });
        found.collect()
    }

    fn pin(&self, topology: &Topology, vmid: u32, machine: &str) -> Result<Answer, String> {
        let vm = self.pve.vm(vmid).filter(|vm| vm.node == self.host).ok_or("the VM is not on this host")?;
        let file = file(&vm.config);
        let Description::Ours(owner) = file.owner() else {
            return Err("the VM's notes do not contain the mark".to_owned());
        };
        if owner.machine != machine || vm.running {
            return Err("the VM belongs to a different machine, or it is running".to_owned());
        }
        let config = self.config.borrow().clone();
        let pool = config.pools.iter().find(|pool| pool.name == owner.pool);
        let pinning =
            pool.and_then(|pool| pool.pinning.as_ref()).ok_or("the VM's pool has no `[pool.pinning]`")?;
        let wish = settings::wish(pinning, &file)
            .ok_or("the VM's configuration contains no valid cores or memory")?;
        let taken = self.taken(vmid);
        let chosen = match keeps(topology, &taken, &wish, &file.affinity()) {
            Some(kept) => kept,
            None => choose(topology, &taken, &wish).map_err(|error| error.to_string())?,
        };
        let arguments = settings::arguments(&settings::keys(pinning, &chosen), &file);
        for pair in arguments.chunks(2) {
            if let [key, value] = pair {
                match key.trim_start_matches("--") {
                    "delete" => value.split(',').for_each(|key| self.pve.set_config_by_hand(vmid, key, None)),
                    key => self.pve.set_config_by_hand(vmid, key, Some(value)),
                }
            }
        }
        Ok(Answer::Pinned { affinity: chosen.cpus.to_string(), changed: !arguments.is_empty() })
    }

    fn taken(&self, but: u32) -> Taken {
        let mut taken = Taken::default();
        let others = self.pve.vmids().into_iter().filter(|vmid| *vmid != but);
        for vm in others.filter_map(|vmid| self.pve.vm(vmid)).filter(|vm| vm.node == self.host) {
            let file = file(&vm.config);
            if file.is_template() {
                continue;
            }
            taken.cpus.add(&file.affinity());
            for (node, mib) in file.bound_memory() {
                *taken.memory.entry(node).or_default() += mib;
            }
        }
        taken
    }
}

/// A VM's configuration, in the form of the file on its host.
fn file(config: &BTreeMap<String, String>) -> VmFile {
    let mut text = String::new();
    for (key, value) in config {
        let lines = if key == "description" { value.lines().collect() } else { vec![value.as_str()] };
        let before = if key == "description" { "#".to_owned() } else { format!("{key}: ") };
        for line in lines {
            let _ = writeln!(text, "{before}{line}");
        }
    }
    VmFile::read(&text)
}
