//! Resource mappings of PCI devices, and the devices in a VM's configuration.

use model::Vmid;
use runtime::boxed;
use serde_json::Value;

use super::answer::text_of;
use super::client::{Client, Lane, encode};
use super::error::Error;
use super::property::{Properties, stem};
use super::vm_config::VmConfig;
use model::pci::Held;

/// A datacenter-wide resource mapping for PCI devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciMapping {
    /// Its id.
    pub id: String,
    /// The mapping's entries: each consists of a host and the address of a device on that host. Proxmox VE
    /// treats each entry as one device.
    pub devices: Vec<(String, String)>,
    /// The error that a host found when it checked the mapping, if any. If there is one, a VM that uses the
    /// mapping does not start on that host.
    pub problem: Option<String>,
}

impl Client {
    /// The resource mappings that the token can see (`Mapping.Use`, `Mapping.Audit` or `Mapping.Modify` on
    /// `/mapping/pci/ID`). If `checked_on` names a host, that host checks the mappings against its devices.
    ///
    /// # Errors
    /// Returns an error if the call fails, or its answer is not a list.
    #[boxed]
    pub async fn pci_mappings(&self, checked_on: Option<&str>) -> Result<Vec<PciMapping>, Error> {
        let query: Vec<(&str, String)> =
            checked_on.map(|host| ("check-node", host.to_owned())).into_iter().collect();
        let data = self.get(Lane::Free, "/cluster/mapping/pci", &query).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET PCI mappings", "no list"))?;
        Ok(rows.iter().filter_map(mapping).collect())
    }

    /// The host devices that a VM is using or, if it is stopped, would use when it starts.
    ///
    /// # Errors
    /// Returns an error if the token cannot read the VM's configuration (`VM.Audit`), or the call fails.
    #[boxed]
    pub async fn devices_of(&self, host: &str, vmid: Vmid) -> Result<Vec<Held>, Error> {
        let path = format!("/nodes/{}/qemu/{vmid}/config", encode(host));
        // `current` leaves out changes that take effect only at the VM's next start.
        let query = [("current", "1".to_owned())];
        let data = self.get(Lane::Free, &path, &query).await?;
        let config = VmConfig::read(&data).ok_or_else(|| Error::malformed(&path, "no configuration"))?;
        Ok(config.held_devices(vmid))
    }
}

fn mapping(row: &Value) -> Option<PciMapping> {
    let entries = row.get("map").and_then(Value::as_array).into_iter().flatten();
    let checks = row.get("checks").and_then(Value::as_array).into_iter().flatten();
    let error = |check: &&Value| text_of(check, "severity").as_deref() == Some("error");
    Some(PciMapping {
        id: text_of(row, "id")?,
        devices: entries.filter_map(|entry| device(entry.as_str()?)).collect(),
        problem: checks
            .filter(error)
            .find_map(|check| text_of(check, "message"))
            .map(|text| text.trim().to_owned()),
    })
}

/// Returns the host and the address of an entry such as `node=pve1,path=0000:01:00,id=10de:2204`.
fn device(entry: &str) -> Option<(String, String)> {
    let part = |name: &str| Properties::of("map", entry).get(name).map(ToOwned::to_owned);
    Some((part("node")?, part("path")?))
}

impl VmConfig {
    /// The host devices that a VM with this configuration holds while it runs.
    pub fn held_devices(&self, vmid: Vmid) -> Vec<Held> {
        let devices = self.all().filter(|(key, _)| is_device(key));
        devices.flat_map(|(key, value)| held(vmid, key, value)).collect()
    }

    /// The keys of the options that assign host devices.
    pub fn device_keys(&self) -> Vec<&str> {
        self.all().map(|(key, _)| key).filter(|key| is_device(key)).collect()
    }
}

fn is_device(key: &str) -> bool {
    stem(key) == "hostpci" && key != "hostpci"
}

/// The devices in a `hostpciN` value. A mapping counts as one device. Otherwise, each address is a device, so
/// `host=0000:01:00.0;0000:01:00.1` contains two. The prefix `host=` is optional.
fn held(vmid: Vmid, key: &str, value: &str) -> Vec<Held> {
    let parts = Properties::of(key, value);
    if let Some(mapping) = parts.get("mapping") {
        return vec![Held { vmid, mapping: Some(mapping.to_owned()), address: None }];
    }
    let addresses = parts.get("host").unwrap_or_default().split(';');
    let one = |address: &str| Held { vmid, mapping: None, address: Some(address.to_owned()) };
    addresses.filter(|address| !address.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mapping_is_read_with_what_is_wrong_with_it() {
        let row = json!({
            "id": "gpu", "type": "pci", "description": "the large ones",
            "map": [
                "id=10de:2204,iommugroup=14,node=pve1,path=0000:01:00,subsystem-id=10de:1467",
                "node=pve2,path=0000:41:00.0;0000:41:00.1,id=10de:2204", "broken",
            ],
            "checks": [
                {"severity": "warning", "message": "No mapping for node pve3."},
                {"severity": "error", "message": "Invalid configuration: 'id' does not match\n"},
            ],
        });
        let read = mapping(&row).unwrap();
        let devices = [("pve1", "0000:01:00"), ("pve2", "0000:41:00.0;0000:41:00.1")];
        assert_eq!(read.devices, devices.map(|(host, path)| (host.to_owned(), path.to_owned())));
        assert_eq!(read.problem.as_deref(), Some("Invalid configuration: 'id' does not match"));
        assert_eq!(mapping(&json!({"map": []})), None);
    }

    #[test]
    fn what_a_vm_holds_is_read_from_its_configuration() {
        let config = VmConfig::read(&json!({
            "hostpci0": "mapping=gpu,pcie=1", "hostpci1": "0000:02:00,x-vga=1", "hostpci10": "host=03:00.0;03:00.1",
            "hostpci2": "pcie=1,0000:04:00.0", "hostpciX": "mapping=no", "net0": "virtio",
        }));
        let held: Vec<String> = config
            .unwrap()
            .held_devices(Vmid(101))
            .into_iter()
            .map(|one| one.mapping.or(one.address).unwrap())
            .collect();
        assert_eq!(held, ["gpu", "0000:02:00", "03:00.0", "03:00.1", "0000:04:00.0"]);
    }
}
