//! Snapshot files, which `plan` and `explain` read and `snapshot` writes.
//!
//! A snapshot file is a YAML stream or JSON of Kubernetes objects as `kubectl get -o yaml` prints them,
//! single or in lists, in any order. It may also contain three documents of this project: `ProxmoxInventory`,
//! `AutoscalerState` and `KubernetesCluster`, which states the version of the control plane.
//!
//! Successive snapshots of one cluster are mostly equal. [`changes`] computes the differences, object by
//! object and field by field, and a [`Fold`] rebuilds the snapshots from them.

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
