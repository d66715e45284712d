//! The hosts' PCI devices by resource mapping, and the VMs that use them.

use crate::vmid::Vmid;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The PCI devices of one host that can be passed to machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPci {
    /// The addresses of the devices in each resource mapping on this host, for example `0000:01:00`. A device
    /// with several functions that belong together has an address such as `0000:01:00.0;0000:01:00.1`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mappings: BTreeMap<String, BTreeSet<String>>,
    /// The mappings with which no VM can be started on this host, each with the reason. A single wrong entry
    /// makes the whole mapping unusable on the host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub broken: BTreeMap<String, String>,
    /// The devices that are assigned to VMs, with one entry for each device. Includes the devices of
    /// unmanaged VMs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
}

/// A device that is assigned to a VM. If it is assigned through a mapping, Proxmox VE does not report which
/// of the mapping's devices it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Held {
    /// The VM.
    pub vmid: Vmid,
    /// The resource mapping through which the device is assigned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
    /// The address of the device, if it is assigned without a mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl HostPci {
    /// Whether no devices are known.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Whether two addresses have a function in common. An address without a function means all functions of the
/// device. An address without a PCI domain means the first domain.
pub fn overlap(one: &str, other: &str) -> bool {
    one.split(';').any(|a| other.split(';').any(|b| same_function(a, b)))
}

fn same_function(one: &str, other: &str) -> bool {
    let parts = |text: &str| {
        let text = if text.matches(':').count() < 2 { format!("0000:{text}") } else { text.to_owned() };
        let (device, function) = match text.split_once('.') {
            Some((device, function)) => (device.to_owned(), Some(function.to_owned())),
            None => (text, None),
        };
        (device.to_lowercase(), function)
    };
    let (one, other) = (parts(one), parts(other));
    one.0 == other.0 && (one.1.is_none() || other.1.is_none() || one.1 == other.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_where_they_share_a_function() {
        for (one, other, expected) in [
            ("0000:01:00", "0000:01:00", true),
            ("0000:01:00.0", "0000:01:00.0", true),
            ("0000:01:00.0", "0000:01:00.1", false),
            ("0000:01:00", "0000:01:00.1", true),
            ("01:00.1", "0000:01:00", true),
            ("0000:01:00.0;0000:01:00.1", "01:00.1", true),
            ("0000:01:00", "0001:01:00", false),
            ("0000:0A:00", "0000:0a:00.0", true),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
            assert_eq!(overlap(other, one), expected, "{other} {one}");
        }
    }
}
