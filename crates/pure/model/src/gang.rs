//! Gangs: pods that kube-scheduler places together or not at all (`scheduling.k8s.io/v1beta1`, PodGroup).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A PodGroup. Pods name it in `spec.schedulingGroup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGroup {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `spec.schedulingPolicy.gang.minCount`. `None` if the pods are placed one by one (`basic`).
    pub minimum: Option<i64>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// Whether `spec.preemptionPolicy` is `Never`. `None` if it is not set.
    pub never_preempts: Option<bool>,
    /// `spec.schedulingConstraints.topology[].key`: a node label. The nodes of all the gang's pods must have
    /// the same value for this label.
    pub topology: Option<String>,
    /// `spec.parentCompositePodGroupName`.
    pub parent: Option<String>,
    /// Whether `spec.resourceClaims` names any claims. All pods of the gang share them.
    pub shares_claims: bool,
}

impl PodGroup {
    /// `namespace/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Why the pods of a gang are pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangWait {
    /// The gang's PodGroup, as `namespace/name`.
    pub group: String,
    /// The reason as a code.
    pub reason: GangReason,
    /// The reason as text.
    pub message: String,
}

/// Why no machine is created for a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum GangReason {
    /// The PodGroup of the gang does not exist.
    NoPodGroup,
    /// The gang has fewer pods than its minimum.
    TooFewPods,
    /// There is no room for the gang's minimum number of pods, and not enough machines can be created.
    NoRoom,
    /// kube-scheduler refuses all pods of the gang, because their priorities, preemption policies or
    /// schedulers do not match each other or the PodGroup.
    Mismatch,
    /// The gang needs a feature that the planner does not support.
    NotSupported,
}

crate::codes!(
    GangReason {
        NoPodGroup => "NoPodGroup",
        TooFewPods => "TooFewPods",
        NoRoom => "NoRoom",
        Mismatch => "Mismatch",
        NotSupported => "NotSupported",
    }
);

impl GangReason {
    /// Whether the reason would still apply if the PodGroup and all of the gang's pods existed.
    pub fn lasts(self) -> bool {
        !matches!(self, Self::NoPodGroup | Self::TooFewPods)
    }
}
