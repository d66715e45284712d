//! The number of a VM in its Proxmox VE cluster.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The first number above all VMIDs that Proxmox VE allows (`pve-vmid` of pve-common).
const BEYOND: u32 = 1_000_000_000;

/// A VMID: the number of a VM in its Proxmox VE cluster. A bare-metal machine has a number above all VMIDs,
/// so that a list can contain both VMs and bare-metal machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Vmid(pub u32);

impl Vmid {
    /// The VMIDs that Proxmox VE allows.
    pub const RANGE: std::ops::RangeInclusive<u32> = 100..=BEYOND - 1;

    /// Turns any 64 bits, such as a hash of the machine's name, into the number of a bare-metal machine.
    pub fn of_bare_metal(bits: u64) -> Self {
        Self(BEYOND + u32::try_from(bits % u64::from(u32::MAX - BEYOND)).unwrap_or(0))
    }

    /// Whether this is the number of a bare-metal machine, which has no meaning in Proxmox VE.
    pub fn is_bare_metal(self) -> bool {
        self.0 >= BEYOND
    }
}

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Vmid {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_metal_machine_has_a_number_that_no_vm_can_have() {
        for bits in [0, 1, u64::from(u32::MAX), u64::MAX] {
            let vmid = Vmid::of_bare_metal(bits);
            assert!(vmid.is_bare_metal() && !Vmid::RANGE.contains(&vmid.0), "{vmid}");
        }
        assert!(!Vmid(*Vmid::RANGE.start()).is_bare_metal() && !Vmid(*Vmid::RANGE.end()).is_bare_metal());
    }

    #[test]
    fn it_is_written_as_its_number() {
        let vmid: Vmid = "9101".parse().unwrap();
        assert_eq!(vmid, Vmid(9101));
        assert_eq!((vmid.to_string(), format!("{vmid:>6}")), ("9101".to_owned(), "  9101".to_owned()));
        assert_eq!(serde_json::to_string(&vmid).unwrap(), "9101");
        assert_eq!(serde_json::from_str::<Vmid>("9101").unwrap(), vmid);
    }
}
