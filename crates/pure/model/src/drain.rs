//! Why a node stays with its pods: a code of the contract, and words with what would let the pod go.

use std::fmt;

use serde::{Serialize, Serializer};

/// Why a pod keeps its node: which of the drain rules said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocking {
    /// Its controller should exist and does not.
    ControllerNotFound,
    /// No controller would make it again.
    NotReplicated,
    /// A pod of kube-system that no budget covers.
    UnmovableKubeSystemPod,
    /// An annotation of its own.
    NotSafeToEvictAnnotation,
    /// hostPath, or emptyDir on disk.
    LocalStorageRequested,
    /// A disruption budget has no room.
    NotEnoughPdb,
    /// The API server evicts no pod that several budgets select.
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
    /// Why the pod must stay, and what would let it go.
    pub fn words(self) -> &'static str {
        match self {
            Self::ControllerNotFound => {
                "its controller is gone, so that nothing would make it again; delete it"
            }
            Self::NotReplicated => {
                "no controller would make it again; delete it, or annotate it `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"`"
            }
            Self::UnmovableKubeSystemPod => {
                "it is in kube-system and no disruption budget covers it; give it one, or set `skip_nodes_with_system_pods = false`"
            }
            Self::NotSafeToEvictAnnotation => "an annotation on it says so",
            Self::LocalStorageRequested => {
                "it has local storage; annotate the pod `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"` to allow its eviction"
            }
            Self::NotEnoughPdb => "a disruption budget has no room for its eviction",
            Self::SeveralPdbs => {
                "several disruption budgets select it, and the API server evicts no such pod"
            }
        }
    }
}

impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Why a node's verdict is what it is, as far as the verdict leaves that open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeReason {
    /// One of its pods keeps it.
    Pod(Blocking),
    /// The node does not say what it offers.
    UnexpectedError,
    /// A removal of it was given up lately.
    RemovalGivenUp,
    /// A CapacityBuffer needs its room.
    CapacityBuffer,
}

impl NodeReason {
    /// Those that are no pod's.
    pub const OWN: [Self; 3] = [Self::UnexpectedError, Self::RemovalGivenUp, Self::CapacityBuffer];

    /// The contract's name.
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

/// As its code.
impl Serialize for NodeReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

/// As its code.
impl Serialize for Blocking {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}
