//! Snapshot files: what `plan` and `explain` read and `snapshot` writes.
//!
//! A YAML stream or JSON of Kubernetes objects as `kubectl get -o yaml` prints them, single or in Lists, in any order, and
//! two optional documents of our own: `ProxmoxInventory` and `AutoscalerState`.

mod own;
mod read;
mod write;

pub use read::{SnapshotError, read};
pub use write::{WriteError, write};
