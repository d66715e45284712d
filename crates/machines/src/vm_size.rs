//! The options that set a VM's size.

/// The option that sets the number of vCPUs of a VM.
pub(super) const VCPUS: &str = "vcpus";

/// The option that sets the maximum number of vCPUs of a VM. It is also the default of [`VCPUS`].
pub(super) const CORES: &str = "cores";

/// The option that sets the memory of a VM, in MiB.
pub(super) const MEMORY: &str = "memory";
