//! The possible memory sizes of a VM with memory hotplug.
//!
//! qemu-server starts such a VM with 1 GiB and plugs DIMMs until the size is reached: 32 DIMMs of 512 MiB,
//! then 32 of twice that size, and so on for eight sizes (`foreach_dimm` in its `Memory.pm`). qemu-server
//! rounds up a size that DIMMs cannot reach exactly.

/// The initial memory of every VM with memory hotplug, in bytes.
pub const FIRST: i64 = 1 << 30;
/// The size of the smallest DIMM, in bytes.
const SMALLEST: i64 = 512 << 20;
/// The maximum number of DIMMs of each size.
const EACH: i64 = 32;
/// The number of different DIMM sizes.
const SIZES: usize = 8;

/// The smallest possible memory size of at least this many bytes. `None` if DIMMs cannot provide this much
/// memory.
pub fn at_least(bytes: i64) -> Option<i64> {
    let (mut floor, mut dimm) = (FIRST, SMALLEST);
    if bytes <= floor {
        return Some(floor);
    }
    for _ in 0..SIZES {
        let top = floor + EACH * dimm;
        if bytes <= top {
            let above = bytes - floor;
            return Some(floor + above.div_euclid(dimm) * dimm + if above % dimm == 0 { 0 } else { dimm });
        }
        (floor, dimm) = (top, dimm * 2);
    }
    None
}

/// Whether the memory of a VM can have exactly this size.
pub fn is_size(bytes: i64) -> bool {
    at_least(bytes) == Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;
    const GIB: i64 = 1 << 30;

    #[test]
    fn sizes_are_those_that_dimms_add_up_to() {
        for (wanted, size) in [
            (0, Some(GIB)),
            (GIB, Some(GIB)),
            (GIB + 1, Some(GIB + 512 * MIB)),
            (2000 * MIB, Some(2 * GIB)),
            (17 * GIB, Some(17 * GIB)),
            (17 * GIB + 1, Some(18 * GIB)),
            (17 * GIB + 512 * MIB, Some(18 * GIB)),
            (49 * GIB, Some(49 * GIB)),
            (50 * GIB, Some(51 * GIB)),
            (114 * GIB, Some(117 * GIB)),
            (4081 * GIB, Some(4081 * GIB)),
            (4082 * GIB, None),
        ] {
            assert_eq!(at_least(wanted), size, "{wanted}");
        }
        assert!(is_size(16 * GIB) && is_size(32 * GIB));
        assert!(!is_size(64 * GIB), "above 49 GiB, each DIMM has 2 GiB");
    }
}
