//! Storages that are slow, or say of themselves what is not so.

use super::{Pve, spec::StorageSpec, state::State};

impl Pve {
    /// Says at how many bytes a second full clones are copied to a storage; none: at the rate of all.
    pub fn set_storage_rate(&self, storage: &str, rate: Option<u64>) {
        if let Some(spec) = self.state().storages.get_mut(storage) {
            spec.copy_rate = rate;
        }
    }

    /// Has a storage say that this many of its bytes are used, whatever there is on it; none: it tells the
    /// truth again.
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
    /// What a storage says that is used of it.
    pub fn storage_shown(&self, storage: &StorageSpec, node: &str) -> u64 {
        let claim = self.claims.get(&storage.id).copied();
        claim.unwrap_or_else(|| self.storage_used(storage, node))
    }
}
