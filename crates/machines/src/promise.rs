//! What a host has promised to a VM.

/// The memory and vCPUs that a host has promised to a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// vCPUs.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
}

impl Promise {
    pub(super) fn add(&mut self, other: Self) {
        self.cores = self.cores.saturating_add(other.cores);
        self.memory = self.memory.saturating_add(other.memory);
    }
}
