//! The options that set a VM's size.

/// The option for how many of its `cores` a VM has.
pub(super) const VCPUS: &str = "vcpus";

/// The option for how many it may have at most, which is also the default.
pub(super) const CORES: &str = "cores";

/// The option for its memory, in MiB.
pub(super) const MEMORY: &str = "memory";
