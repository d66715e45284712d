//! Names of new machines: the pool and a suffix that no earlier machine is likely to have had.

use model::names::{SUFFIX_LENGTH, SUFFIX_LETTERS};
use model::{Slot, Vmid};

/// The name of the machine in this slot: the name that the slot has already, or else a new one.
pub(super) fn machine_name(pool: &str, seed: u64, slot: &Slot) -> String {
    slot.machine.clone().unwrap_or_else(|| machine(pool, seed, slot.vmid))
}

/// A new name for the machine in this slot: the same seed and slot give the same name.
fn machine(pool: &str, seed: u64, vmid: Vmid) -> String {
    // SplitMix64 spreads the bits of its input evenly.
    let mut state = seed ^ u64::from(vmid.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut suffix = String::new();
    for _ in 0..SUFFIX_LENGTH {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let at = usize::try_from(mixed % SUFFIX_LETTERS.len() as u64).unwrap_or(0);
        suffix.push(char::from(SUFFIX_LETTERS[at]));
    }
    format!("{pool}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_follows_from_seed_and_slot_alone() {
        assert_eq!(machine("workers", 1, Vmid(9101)), machine("workers", 1, Vmid(9101)));
        let names: BTreeSet<_> =
            (0..20).flat_map(|seed| (9100..9150).map(move |vmid| machine("w", seed, Vmid(vmid)))).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| model::names::is_machine_of("w", name)));
    }
}
