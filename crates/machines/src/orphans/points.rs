//! What speaks for a VM being an orphan, and what is missing.

use std::time::Duration;

use model::MachineId;
use model::PoolName;
use model::Vmid;
use thiserror::Error;

/// Something that is proven.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Proof {
    /// The mark is this cluster's.
    #[error("its notes bear the mark of machine {0} of this cluster")]
    Mark(MachineId),
    /// So is the uid in it.
    #[error("the mark names this Kubernetes cluster ({0})")]
    Kubernetes(String),
    /// There is none in it.
    #[error("the mark names no Kubernetes cluster: it is of an earlier version")]
    NoUid,
    /// Its VMID is one of its pool's.
    #[error("VMID {0} is one of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// Its name is one that machines get.
    #[error("`{0}` is the name of a machine")]
    Name(String),
    /// No record is of it.
    #[error("no record names it")]
    NoRecord,
    /// No Node is of it.
    #[error("no Node has its name, its SMBIOS uuid or an address of it")]
    NoNode,
    /// It has been so for long enough.
    #[error("it has been seen so for {} min, {looks} times", .steady.as_secs() / 60)]
    Age {
        /// For how long.
        steady: Duration,
        /// How often.
        looks: u32,
    },
    /// The cluster and its host are in order.
    #[error("the Proxmox VE cluster is quorate, with its host in it")]
    Quorum,
    /// Nothing is done to it.
    #[error("no task is at work on it")]
    NoTask,
}

/// Something that is not.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    /// It has no mark.
    #[error("its notes do not begin with our mark")]
    Mark,
    /// The mark is another cluster's.
    #[error("its mark is of cluster `{0}`")]
    OtherCluster(String),
    /// What tells this Kubernetes cluster from others is not known yet.
    #[error("the uid of this Kubernetes cluster is not known yet")]
    UidUnknown,
    /// Another Kubernetes cluster has the same id.
    #[error("its mark names another Kubernetes cluster ({0})")]
    OtherKubernetes(String),
    /// Its pool is not in the configuration.
    #[error("the configuration has no pool `{0}` in its region")]
    NoPool(PoolName),
    /// Its VMID is none of its pool's.
    #[error("VMID {0} is not in `vmids` of pool `{1}`")]
    Vmid(Vmid, PoolName),
    /// Its name is none that machines get.
    #[error("`{0}` is not a name that machines of pool `{1}` get")]
    Name(String, PoolName),
    /// Another VM has the same mark.
    #[error("VM {0} bears the same mark: one of them is a copy")]
    Twin(Vmid),
    /// A record is of it, or of what it is a copy of.
    #[error("the record of machine `{0}` names it, or it is a copy of that")]
    Record(String),
    /// A record cannot be read, and may be its own.
    #[error("a machine record cannot be read, and may be its own")]
    UnreadableRecord,
    /// A Node is of it.
    #[error("Node `{0}` has its name, its SMBIOS uuid or an address of it")]
    Node(String),
    /// It has no SMBIOS uuid.
    #[error("it has no SMBIOS uuid, by which its Node would be found")]
    Uuid,
    /// It has not been so for long enough.
    #[error(
        "it has been seen so for {} min: `orphans_after` is {} min, and each change of the VM, each new leader begins it again",
        .steady.as_secs() / 60, .after.as_secs() / 60
    )]
    Age {
        /// For how long.
        steady: Duration,
        /// For how long it must have been.
        after: Duration,
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
    #[error("it has snapshots, the last is `{0}`")]
    Snapshot(String),
    /// It has a disk that machines of its pool do not have.
    #[error("{0}")]
    Disk(String),
    /// HA manages it.
    #[error("HA manages it")]
    Ha,
    /// A task is at work on it.
    #[error("a task is at work on it ({0})")]
    Task(String),
    /// Whether one is cannot be seen.
    #[error("whether a task is at work on it is not shown to the token, which lacks Sys.Audit on its host")]
    TasksHidden,
    /// The cluster is not quorate, or its host is not in it.
    #[error("the Proxmox VE cluster is not quorate, or its host is not in it")]
    Quorum,
}
