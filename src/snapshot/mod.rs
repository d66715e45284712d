//! Snapshot files: what `plan` and `explain` read and `snapshot` writes.
//!
//! A YAML stream or JSON of Kubernetes objects as `kubectl get -o yaml` prints them, single or in Lists, in any order, and
//! three optional documents of our own: `ProxmoxInventory`, `AutoscalerState` and `KubernetesCluster`, which says the version of the
//! control plane.

mod document;
mod own;
mod read;
mod write;

pub use read::{SnapshotError, read};
pub use write::{WriteError, write};
