//! The points that prove that a VM is an orphan, and the points that are missing.

use std::time::Duration;

use super::LOOKS;
use model::Vmid;
use model::{MachineId, PoolName};
use thiserror::Error;

/// A proven point: evidence that the VM is an orphan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Proof {
    /// The mark belongs to this cluster.
    #[error("its notes bear the mark of machine {0} of this cluster")]
    Mark(MachineId),
    /// The mark contains the uid of this Kubernetes cluster.
    #[error("the mark names this Kubernetes cluster ({0})")]
    Kubernetes(String),
    /// The mark contains no uid.
    #[error("the mark names no Kubernetes cluster: an earlier version wrote it, or the VM was adopted")]
    NoUid,
    /// The VMID is in one of the pool's VMID ranges.
    #[error("VMID {0} is in `vmids` of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// The name has the form of a machine's name.
    #[error("`{0}` is a name that the daemon gives to machines")]
    Name(String),
    /// No record belongs to the VM.
    #[error("no record refers to it")]
    NoRecord,
    /// No Node belongs to the VM.
    #[error("no Node has its name, its SMBIOS uuid or one of its addresses")]
    NoNode,
    /// The VM has been seen unchanged for long enough.
    #[error("it has been unchanged for {} min and was seen {looks} times", .steady.as_secs() / 60)]
    Age {
        /// How long the VM has been seen unchanged.
        steady: Duration,
        /// How many times the VM was seen.
        looks: u32,
    },
    /// The cluster, including the VM's host, is quorate.
    #[error("the Proxmox VE cluster is quorate, and the VM's host is part of the quorum")]
    Quorum,
    /// No task is working on the VM.
    #[error("no task is working on it")]
    NoTask,
}

/// A point that is not proven. Because of it, the VM is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// The VM has no mark.
    #[error("its notes do not begin with a mark")]
    Mark,
    /// The mark belongs to another cluster.
    #[error("its mark belongs to cluster `{0}`")]
    OtherCluster(String),
    /// The uid of this Kubernetes cluster is not known yet.
    #[error("the uid of this Kubernetes cluster is not known yet")]
    UidUnknown,
    /// The mark contains the uid of another Kubernetes cluster.
    #[error("its mark names another Kubernetes cluster ({0})")]
    OtherKubernetes(String),
    /// The pool that the mark names is not in the configuration.
    #[error("the configuration has no pool `{0}` in its region")]
    NoPool(PoolName),
    /// The VMID is in none of the pool's VMID ranges.
    #[error("VMID {0} is not in `vmids` of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// The name does not have the form of a machine's name.
    #[error("`{0}` is not a name that the daemon gives to machines of pool `{1}`")]
    Name(String, PoolName),
    /// Another VM has the same mark.
    #[error("VM {0} bears the same mark: one of them is a copy")]
    Twin(Vmid),
    /// A record belongs to the VM, or to the VM of which it is a copy.
    #[error("the record of machine `{0}` refers to it, or it is a copy of that machine's VM")]
    Record(String),
    /// An unreadable record may belong to the VM.
    #[error("a machine record, perhaps its own, cannot be read")]
    UnreadableRecord,
    /// A Node belongs to the VM.
    #[error("Node `{0}` has its name, its SMBIOS uuid or one of its addresses")]
    Node(String),
    /// The VM has no SMBIOS uuid.
    #[error("it has no SMBIOS uuid, which is needed to find its Node")]
    Uuid,
    /// The VM has not been seen unchanged for long enough.
    #[error(
        "it has been unchanged for {} min and was seen {looks} times, but {} min (`orphans_after`) and \
            {LOOKS} times are required; any change to the VM or a new leader restarts the count",
        .steady.as_secs() / 60, .after.as_secs() / 60
    )]
    Age {
        /// How long the VM has been seen unchanged.
        steady: Duration,
        /// How long the VM must have been seen unchanged.
        after: Duration,
        /// How many times the VM was seen.
        looks: u32,
    },
    /// The VM is a template.
    #[error("it is a template")]
    Template,
    /// It is locked.
    #[error("it is locked ({0})")]
    Locked(String),
    /// An administrator has protected the VM.
    #[error("it is protected (`protection`)")]
    Protected,
    /// It has snapshots.
    #[error("it has snapshots (the last is `{0}`)")]
    Snapshot(String),
    /// The VM has a disk that machines of its pool do not have.
    #[error("{0}")]
    Disk(String),
    /// HA manages it.
    #[error("HA manages it")]
    Ha,
    /// A task is working on the VM.
    #[error("a task is working on it ({0})")]
    Task(String),
    /// The token cannot see whether a task is working on the VM.
    #[error(
        "the token cannot see whether a task is working on it, because it lacks Sys.Audit on the VM's host"
    )]
    TasksHidden,
    /// The cluster is not quorate, or the VM's host is not part of the quorum.
    #[error("the Proxmox VE cluster is not quorate, or the VM's host is not part of the quorum")]
    Quorum,
}
