//! The options of a VM that say how large it is.

/// The option that says how many of a VM's `cores` it has.
pub(super) const VCPUS: &str = "vcpus";

/// The option that says how many it may have at most, and has if nothing else is said.
pub(super) const CORES: &str = "cores";

/// The option that says how much memory it has, in MiB.
pub(super) const MEMORY: &str = "memory";
