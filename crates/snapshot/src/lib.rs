//! Snapshot files, which `plan` and `explain` read and `snapshot` writes.
//!
//! A YAML stream or JSON of Kubernetes objects as `kubectl get -o yaml` prints them, single or in Lists, in
//! any order, and three optional documents of our own: `ProxmoxInventory`, `AutoscalerState` and
//! `KubernetesCluster`, which has the version of the control plane.
//!
//! Successive snapshots of one cluster are mostly the same: [`changes`] computes the differences, object by
//! object and field by field, and a [`Fold`] reassembles the snapshots.

mod autoscaler_documents;
mod changes;
mod document;
mod fold;
mod patch;
mod read;
mod write;

pub use changes::{Changes, changes};
pub use fold::{Fold, FoldError};
pub use read::{SnapshotError, read};
pub use write::{WriteError, write};
