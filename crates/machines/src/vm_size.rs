//! The options that set a VM's size.

/// The option for how many vCPUs a VM has.
pub(super) const VCPUS: &str = "vcpus";

/// The option for how many vCPUs a VM may have at most, which is also the default of [`VCPUS`].
pub(super) const CORES: &str = "cores";

/// The option for a VM's memory, in MiB.
pub(super) const MEMORY: &str = "memory";
