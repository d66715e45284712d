//! The verdict on a pending pod.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::PoolReason;
use crate::gang::{GangReason, GangWait};
use crate::pod_id::PodId;
use crate::prediction::Missed;
use crate::text_id::PoolName;

/// A pending pod's verdict. There can be tens of thousands of verdicts, so they share equal destinations and
/// reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `namespace/name`.
    pub pod: PodId,
    /// The outcome for the pod.
    pub verdict: PodOutcome,
    /// Where the pod can run, if there is such a place.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Arc<Destination>>,
    /// Why the pod stays pending, if its outcome has reasons.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Arc<WhyPending>>,
}

/// Where a pending pod can run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// The pool of the pod's new machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The existing node that the pod fits, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The machine that the pod fits, if that machine is being created, or is a warm machine that is woken
    /// for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// Why a pod is pending.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyPending {
    /// Why no machine is created for the pod, by pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<PoolReason>,
    /// If the verdict is `PredictionMissed`: where the pod was expected, and what kube-scheduler reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<Arc<MissedPrediction>>,
    /// If the verdict is `AwaitsGang`: why the pod's gang is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangWait>,
}

impl PodVerdict {
    /// See [`Destination::pool`].
    pub fn pool(&self) -> Option<&str> {
        self.destination.as_ref()?.pool.as_deref()
    }

    /// See [`Destination::node`].
    pub fn node(&self) -> Option<&str> {
        self.destination.as_ref()?.node.as_deref()
    }

    /// See [`Destination::machine`].
    pub fn machine(&self) -> Option<&str> {
        self.destination.as_ref()?.machine.as_deref()
    }

    /// See [`WhyPending::reasons`].
    pub fn reasons(&self) -> &[PoolReason] {
        self.pending.as_ref().map_or(&[], |why| &why.reasons)
    }

    /// See [`WhyPending::missed`].
    pub fn missed(&self) -> Option<&MissedPrediction> {
        self.pending.as_ref()?.missed.as_deref()
    }

    /// See [`WhyPending::gang`].
    pub fn gang(&self) -> Option<&GangWait> {
        self.pending.as_ref()?.gang.as_ref()
    }

    /// Whether the pod is pending because there is no room for its gang.
    pub fn awaits_room_with_gang(&self) -> bool {
        self.missed().is_none() && self.gang().is_some_and(|gang| gang.reason == GangReason::NoRoom)
    }

    /// Why no machine is created for the pod, as text. Empty if no reason is known, for example because there
    /// is no pool.
    pub fn why(&self) -> String {
        let reasons: Vec<String> =
            self.reasons().iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
        let reasons = match self.missed() {
            Some(missed) if reasons.is_empty() => missed.words(),
            _ => reasons.join("; "),
        };
        match self.gang() {
            Some(gang) if reasons.is_empty() => gang.message.clone(),
            Some(gang) => format!("{} ({reasons})", gang.message),
            None => reasons,
        }
    }
}

/// The verdict on a pending pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum PodOutcome {
    /// A machine is created or woken for the pod.
    NewNode,
    /// The pod fits an existing node.
    ExistingNode,
    /// The pod fits an existing node once the node's machine has grown.
    GrownNode,
    /// The pod fits a machine that is being created.
    UpcomingNode,
    /// The pod would not fit the nodes of any pool.
    NoPoolFits,
    /// The pools whose nodes the pod fits are at their maximum, or have no free slot.
    PoolAtMax,
    /// The pod fits the nodes of some pools, but no host has room for such a machine, or no bare-metal
    /// machine of these pools can be switched on.
    NoHostCapacity,
    /// The pod's priority is below the cut-off (`expendable_pods_priority_cutoff`).
    Expendable,
    /// The pod belongs to a DaemonSet. No machine is created for such pods.
    DaemonSet,
    /// A scheduling gate holds the pod back.
    Gated,
    /// The pod is younger than the configured delay.
    TooYoung,
    /// The pools whose nodes the pod fits are backing off after failures, or have changed recently and get no
    /// new machine yet.
    BackingOff,
    /// kube-scheduler refuses pods like this one on a node on which the planner expected them to fit.
    PredictionMissed,
    /// The round reached its limit before it could check the pod. A later round checks the pod.
    Unfinished,
    /// The pod belongs to a ProvisioningRequest for which there is no room yet.
    AwaitsRequest,
    /// The pod belongs to a gang that kube-scheduler would not place yet. No machine is created for only a
    /// part of a gang.
    AwaitsGang,
}

crate::codes!(
    PodOutcome {
        NewNode => "NewNode",
        ExistingNode => "ExistingNode",
        GrownNode => "GrownNode",
        UpcomingNode => "UpcomingNode",
        NoPoolFits => "NoPoolFits",
        PoolAtMax => "PoolAtMax",
        NoHostCapacity => "NoHostCapacity",
        Expendable => "Expendable",
        DaemonSet => "DaemonSet",
        Gated => "Gated",
        TooYoung => "TooYoung",
        BackingOff => "BackingOff",
        PredictionMissed => "PredictionMissed",
        Unfinished => "Unfinished",
        AwaitsRequest => "AwaitsRequest",
        AwaitsGang => "AwaitsGang",
    }
);

/// A wrong prediction: kube-scheduler refuses pods on a node on which the planner expected them to fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissedPrediction {
    /// The node on which the pods were expected.
    pub node: String,
    /// The node's pool. For a while, no machine is created in this pool for such pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The time at which the wrong prediction was noticed.
    pub at: Timestamp,
    /// The time until which no machine is created in the pool for such pods.
    pub until: Timestamp,
    /// Why the pods were expected on the node.
    pub ours: String,
    /// The message from kube-scheduler.
    pub theirs: String,
}

impl MissedPrediction {
    /// Converts a wrong prediction from the form in which the daemon stores it.
    pub fn of(missed: &Missed) -> Self {
        Self {
            node: missed.node.clone(),
            pool: missed.pool.clone(),
            at: missed.at,
            until: missed.backoff.until,
            ours: missed.ours.clone(),
            theirs: missed.theirs.clone(),
        }
    }

    /// The wrong prediction in one sentence: why the pods were expected on the node, and what kube-scheduler
    /// reported.
    pub fn words(&self) -> String {
        format!("{}; kube-scheduler reports: {}", self.ours, self.theirs)
    }
}
