//! Storages that are slow, or that report wrong usage.

use super::{Pve, spec::StorageSpec, state::State};

impl Pve {
    /// Sets the rate, in bytes per second, at which full clones are copied to a storage. `None` restores the
    /// default rate.
    pub fn set_storage_rate(&self, storage: &str, rate: Option<u64>) {
        if let Some(spec) = self.state().storages.get_mut(storage) {
            spec.copy_rate = rate;
        }
    }

    /// Makes a storage report this many used bytes, regardless of its content. `None` makes it report its
    /// real usage again.
    pub fn set_storage_claim(&self, storage: &str, used: Option<u64>) {
        let mut state = self.state();
        if let Some(used) = used {
            state.claims.insert(storage.to_owned(), used);
        } else {
            state.claims.remove(storage);
        }
    }
}

impl State {
    /// The used bytes that a storage reports.
    pub fn storage_shown(&self, storage: &StorageSpec, node: &str) -> u64 {
        let claim = self.claims.get(&storage.id).copied();
        claim.unwrap_or_else(|| self.storage_used(storage, node))
    }
}
