//! Resource mappings of PCI devices: who may see them, which devices a host has, and which running VM holds a
//! device.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    state::State,
    vm::property,
};

/// The privileges that let a user see a mapping.
const SEES: [&str; 3] = ["Mapping.Audit", "Mapping.Modify", "Mapping.Use"];

/// The PCI devices of the cluster.
#[derive(Debug, Default)]
pub struct Pci {
    /// The host and address of each device, by mapping.
    mappings: BTreeMap<String, Vec<(String, String)>>,
    /// Devices that no longer match their mapping.
    changed: BTreeSet<(String, String)>,
    /// The VM that holds a device, by the device's host and address.
    held: BTreeMap<(String, String), u32>,
}

impl Pve {
    /// Creates or replaces a resource mapping. Each of its devices is given by host and address.
    pub fn map_pci(&self, id: &str, devices: &[(&str, &str)]) {
        let devices = devices.iter().map(|(host, path)| ((*host).to_owned(), (*path).to_owned()));
        self.state().pci.mappings.insert(id.to_owned(), devices.collect());
    }

    /// Replaces the device in one of a host's PCI slots, so that mappings of this slot no longer match.
    pub fn change_pci_hardware(&self, host: &str, path: &str) {
        self.state().pci.changed.insert((host.to_owned(), path.to_owned()));
    }

    /// The devices that VMs hold: host, address, VMID.
    pub fn held_pci(&self) -> Vec<(String, String, u32)> {
        let mut state = self.state();
        let_go(&mut state);
        state.pci.held.iter().map(|((host, path), vmid)| (host.clone(), path.clone(), *vmid)).collect()
    }

    pub(super) fn pci_mappings(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let checked = call.params.text("check-node");
        let seen = state.pci.mappings.iter().filter(|(id, _)| {
            SEES.iter().any(|privilege| call.who.has(&state, &format!("/mapping/pci/{id}"), privilege))
        });
        let rows = seen.map(|(id, devices)| {
            let entry = |(host, path): &(String, String)| {
                format!("id=10de:2204,iommugroup=7,node={host},path={path}")
            };
            let mut row = json!({
                "id": id, "type": "pci", "digest": "0", "description": "",
                "map": devices.iter().map(entry).collect::<Vec<_>>(),
            });
            if let Some(node) = &checked {
                row["checks"] = state.pci.checks(id, node);
            }
            row
        });
        Value::Array(rows.collect()).into()
    }
}

impl Pci {
    /// Returns the initial devices, none of which is held.
    pub fn of(mappings: Vec<(String, Vec<(String, String)>)>) -> Self {
        Self { mappings: mappings.into_iter().collect(), ..Self::default() }
    }

    /// Checks a host's entries in a mapping. Returns an error for each device that no longer matches, or a
    /// warning if the mapping has no entry for the host.
    fn checks(&self, id: &str, node: &str) -> Value {
        let own = self.mappings[id].iter().filter(|(host, _)| host == node);
        let wrong = own.clone().filter(|device| self.changed.contains(device));
        let errors = wrong.map(|(_, path)| {
            json!({
                "severity": "error",
                "message": format!("Invalid configuration: {}\n", mismatch(id, path)),
            })
        });
        let nothing = json!({ "severity": "warning", "message": format!("No mapping for node {node}.") });
        if own.count() == 0 { json!([nothing]) } else { Value::Array(errors.collect()) }
    }
}

fn mismatch(id: &str, path: &str) -> String {
    format!("PCI device '{path}' (mapping '{id}'): 'id' does not match for '{id}' (10de:2204 != 10de:2206)")
}

/// Frees the devices of VMs that no longer run.
fn let_go(state: &mut State) {
    let State { vms, pci, .. } = state;
    pci.held.retain(|_, vmid| vms.get(vmid).is_some_and(|vm| vm.machine.is_some()));
}

/// Chooses the devices that a VM starts with: for each mapping, the first device that no VM holds.
pub(super) fn take(state: &mut State, node: &str, vmid: u32) -> Result<(), Refusal> {
    let_go(state);
    state.pci.held.retain(|_, holder| *holder != vmid);
    let vm = state.vm_on(node, vmid)?;
    let wanted: Vec<(String, String)> = vm
        .config
        .iter()
        .filter(|(key, _)| key.starts_with("hostpci"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in wanted {
        let pci = &mut state.pci;
        let Some(id) = property(&value, "mapping") else {
            let path = value.split(',').next().unwrap_or_default().trim_start_matches("host=");
            let slot = (node.to_owned(), path.to_owned());
            if let Some(other) = pci.held.get(&slot) {
                let text = format!("PCI device '{path}' already in use by VMID '{other}'");
                return Err(Refusal::failed(text));
            }
            pci.held.insert(slot, vmid);
            continue;
        };
        let all = pci.mappings.get(id).into_iter().flatten();
        let here: Vec<(String, String)> = all.filter(|(host, _)| host == node).cloned().collect();
        if here.is_empty() {
            return Err(Refusal::failed(format!("PCI device mapping not found for '{id}'")));
        }
        if let Some((_, path)) = here.iter().find(|device| pci.changed.contains(device)) {
            let text =
                format!("PCI device mapping invalid (hardware probably changed): {}", mismatch(id, path));
            return Err(Refusal::failed(text));
        }
        let Some(free) = here.into_iter().find(|device| !pci.held.contains_key(device)) else {
            return Err(Refusal::failed(format!("could not find a free device for '{key}'")));
        };
        pci.held.insert(free, vmid);
    }
    Ok(())
}
