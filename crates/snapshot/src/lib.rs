//! Snapshot files: what `plan` and `explain` read and `snapshot` writes.
//!
//! A YAML stream or JSON of Kubernetes objects as `kubectl get -o yaml` prints them, single or in Lists, in
//! any order, and three optional documents of our own: `ProxmoxInventory`, `AutoscalerState` and
//! `KubernetesCluster`, which says the version of the control plane.

//!
//! Many snapshots of one cluster, one after the other, are mostly the same: [`changes`] says what makes the
//! next of the last, object by object and field by field, and a [`Fold`] puts them together again.

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
