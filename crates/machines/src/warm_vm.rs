//! The VM options of machines that are kept warm.

use proxmox::VmConfig;

/// The lock of a VM whose memory was written to disk. Proxmox VE removes the lock when the VM is started
/// again.
pub const SUSPENDED: &str = "suspended";

/// The option that starts a VM with its host.
pub(super) const ONBOOT: &str = "onboot";

/// The value for [`ONBOOT`], depending on whether the VM starts with its host.
pub(super) fn with_host(starts: bool) -> &'static str {
    if starts { "1" } else { "0" }
}

/// Whether a VM's memory is on disk. Starting such a VM resumes its guest. The VM's lock does not prevent its
/// destruction.
pub(super) fn is_suspended(config: &VmConfig) -> bool {
    config.lock() == Some(SUSPENDED)
}
