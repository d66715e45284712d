//! Reasons why a node is kept. Each reason has a stable code. If a pod keeps the node, a text explains what
//! would allow the pod to leave.

use std::fmt;

use serde::{Serialize, Serializer};

/// Why a pod prevents its node from being drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocking {
    /// The controller in the pod's owner reference does not exist.
    ControllerNotFound,
    /// No controller would recreate the pod.
    NotReplicated,
    /// The pod is in `kube-system`, and no disruption budget covers it.
    UnmovableKubeSystemPod,
    /// An annotation on the pod forbids its eviction.
    NotSafeToEvictAnnotation,
    /// The pod has local storage: `hostPath`, or `emptyDir` on disk.
    LocalStorageRequested,
    /// A disruption budget does not currently allow the pod's eviction.
    NotEnoughPdb,
    /// Several disruption budgets select the pod. The API server refuses to evict such pods.
    SeveralPdbs,
}

crate::codes!(
    Blocking {
        ControllerNotFound => "ControllerNotFound",
        NotReplicated => "NotReplicated",
        UnmovableKubeSystemPod => "UnmovableKubeSystemPod",
        NotSafeToEvictAnnotation => "NotSafeToEvictAnnotation",
        LocalStorageRequested => "LocalStorageRequested",
        NotEnoughPdb => "NotEnoughPdb",
        SeveralPdbs => "SeveralPdbs",
    }
);

impl Blocking {
    /// The reason as text: why the pod must stay, and what would allow it to leave.
    pub fn words(self) -> &'static str {
        match self {
            Self::ControllerNotFound => {
                "its controller is gone, so the pod would not be recreated; delete the pod"
            }
            Self::NotReplicated => {
                "no controller would recreate the pod; delete it, or annotate it with \
                    `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"`"
            }
            Self::UnmovableKubeSystemPod => {
                "it is in kube-system, and no disruption budget covers it; create a disruption budget, \
                    or set `skip_nodes_with_system_pods = false`"
            }
            Self::NotSafeToEvictAnnotation => "an annotation forbids its eviction",
            Self::LocalStorageRequested => {
                "it has local storage; annotate the pod with \
                    `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"` to allow its eviction"
            }
            Self::NotEnoughPdb => "a disruption budget does not allow its eviction at the moment",
            Self::SeveralPdbs => {
                "several disruption budgets select it; the API server refuses to evict such a pod"
            }
        }
    }
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The reason for a node's verdict, if the verdict alone does not explain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeReason {
    /// A pod on the node prevents the node's removal, for this reason.
    Pod(Blocking),
    /// The node does not report its allocatable CPU and memory.
    UnexpectedError,
    /// A recent attempt to remove the node was given up.
    RemovalGivenUp,
    /// A CapacityBuffer needs the free room on the node.
    CapacityBuffer,
}

impl NodeReason {
    /// All reasons that do not concern a pod.
    pub const OWN: [Self; 3] = [Self::UnexpectedError, Self::RemovalGivenUp, Self::CapacityBuffer];

    /// The name of the reason in JSON and in messages.
    pub fn code(self) -> &'static str {
        match self {
            Self::Pod(blocking) => blocking.code(),
            Self::UnexpectedError => "UnexpectedError",
            Self::RemovalGivenUp => "RemovalGivenUp",
            Self::CapacityBuffer => "CapacityBuffer",
        }
    }
}

impl fmt::Display for NodeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A reason is serialized as its code.
impl Serialize for NodeReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// A reason is serialized as its code.
impl Serialize for Blocking {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}
