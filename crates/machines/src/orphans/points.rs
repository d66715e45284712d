//! What proves that a VM is an orphan, and what is missing.

use std::time::Duration;

use super::LOOKS;
use model::Vmid;
use model::{MachineId, PoolName};
use thiserror::Error;

/// A proven point: evidence that the VM is an orphan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Proof {
    /// The mark is this cluster's.
    #[error("its notes bear the mark of machine {0} of this cluster")]
    Mark(MachineId),
    /// The uid in the mark is this cluster's.
    #[error("the mark names this Kubernetes cluster ({0})")]
    Kubernetes(String),
    /// There is no uid in the mark.
    #[error("the mark names no Kubernetes cluster: an earlier version wrote it, or the VM was adopted")]
    NoUid,
    /// Its VMID is one of its pool's.
    #[error("VMID {0} is one of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// Its name has the form of a machine's name.
    #[error("`{0}` is a name that the daemon gives to machines")]
    Name(String),
    /// No record belongs to it.
    #[error("no record names it")]
    NoRecord,
    /// No Node belongs to it.
    #[error("no Node has its name, its SMBIOS uuid or one of its addresses")]
    NoNode,
    /// It has been seen unchanged for long enough.
    #[error("it has been seen like this for {} min, {looks} times", .steady.as_secs() / 60)]
    Age {
        /// How long it has been seen unchanged.
        steady: Duration,
        /// How many times it was seen.
        looks: u32,
    },
    /// The cluster is quorate, with its host in it.
    #[error("the Proxmox VE cluster is quorate, with its host in it")]
    Quorum,
    /// No task is working on it.
    #[error("no task is working on it")]
    NoTask,
}

/// A point that is not proven, so that the VM is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// It has no mark.
    #[error("its notes do not begin with our mark")]
    Mark,
    /// The mark is another cluster's.
    #[error("its mark is of cluster `{0}`")]
    OtherCluster(String),
    /// The uid of this Kubernetes cluster is not known yet.
    #[error("the uid of this Kubernetes cluster is not known yet")]
    UidUnknown,
    /// The uid in the mark is another Kubernetes cluster's.
    #[error("its mark names another Kubernetes cluster ({0})")]
    OtherKubernetes(String),
    /// Its pool is not in the configuration.
    #[error("the configuration has no pool `{0}` in its region")]
    NoPool(PoolName),
    /// Its VMID is not one of its pool's.
    #[error("VMID {0} is not in `vmids` of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// Its name does not have the form of a machine's name.
    #[error("`{0}` is not a name of a machine of pool `{1}`")]
    Name(String, PoolName),
    /// Another VM has the same mark.
    #[error("VM {0} bears the same mark: one of them is a copy")]
    Twin(Vmid),
    /// A record belongs to it, or to the VM that it is a copy of.
    #[error("the record of machine `{0}` names it, or it is a copy of that machine's VM")]
    Record(String),
    /// An unreadable record may belong to it.
    #[error("a machine record, perhaps its own, cannot be read")]
    UnreadableRecord,
    /// A Node belongs to it.
    #[error("Node `{0}` has its name, its SMBIOS uuid or one of its addresses")]
    Node(String),
    /// It has no SMBIOS uuid.
    #[error("it has no SMBIOS uuid, which is needed to find its Node")]
    Uuid,
    /// It has not been seen unchanged for long enough.
    #[error(
        "it has been seen like this for {} min, {looks} times: it must be {} min (`orphans_after`) and \
         {LOOKS} times, and each change of the VM and each new leader restarts the count",
        .steady.as_secs() / 60, .after.as_secs() / 60
    )]
    Age {
        /// How long it has been seen unchanged.
        steady: Duration,
        /// How long it must have been seen unchanged.
        after: Duration,
        /// How many times it was seen.
        looks: u32,
    },
    /// It is a template.
    #[error("it is a template")]
    Template,
    /// It is locked.
    #[error("it is locked ({0})")]
    Locked(String),
    /// An administrator has protected it.
    #[error("it is protected (`protection`)")]
    Protected,
    /// It has snapshots.
    #[error("it has snapshots (the last is `{0}`)")]
    Snapshot(String),
    /// It has a disk that machines of its pool do not have.
    #[error("{0}")]
    Disk(String),
    /// HA manages it.
    #[error("HA manages it")]
    Ha,
    /// A task is working on it.
    #[error("a task is working on it ({0})")]
    Task(String),
    /// The token cannot see whether a task is working on it.
    #[error(
        "the token cannot see whether a task is working on it, because it lacks Sys.Audit on the VM's host"
    )]
    TasksHidden,
    /// The cluster is not quorate, or its host is not in it.
    #[error("the Proxmox VE cluster is not quorate, or its host is not in it")]
    Quorum,
}
