//! The power of entire hosts: what a decision reads about it, what is remembered, and what is decided.

use super::host_key::HostKey;
use super::text_id::PoolName;
use crate::vmid::Vmid;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::machine::Host;

/// What is known of the hosts that may be switched off. What is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerFacts {
    /// The hosts' votes in the quorum, including hosts that are off: `quorum_votes` of corosync. Votes of a
    /// `QDevice` are left out, to be on the safe side.
    pub votes: BTreeMap<HostKey, u32>,
    /// The hosts that may be switched off, by their names.
    pub hosts: BTreeMap<HostKey, HostFacts>,
}

/// What is known of a host that may be switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostFacts {
    /// Its API answers.
    pub answers: bool,
    /// Unmanaged VMs and containers on it that might be running: those not known to be stopped, those with a
    /// task in progress, and those under the HA manager.
    pub others: BTreeSet<Vmid>,
    /// VMs that were managed machines until recently. They are gone, but older data on guests may still
    /// include them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub going: BTreeSet<Vmid>,
    /// VMs and containers of its cluster that are being migrated. One that is moving to this host is shown on
    /// its old host until it has arrived.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub migrating: BTreeSet<Vmid>,
    /// Another reason to keep it on, in words.
    pub stays_on: Option<String>,
}

/// The progress of switching a host off or on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PowerStep {
    /// Its machines are being removed, and no new ones are placed on it.
    #[default]
    Emptying,
    /// It was asked to shut down.
    ShuttingDown,
    /// It is off, and the daemon switched it off.
    Off,
    /// It was asked to start.
    Waking,
}

/// What is remembered of a host that the daemon switches off and on. If nothing is remembered, a host that is
/// off was switched off by another client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerMemory {
    /// The progress.
    pub step: PowerStep,
    /// When this step began.
    pub since: Timestamp,
    /// When it was last asked to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The host as it was after the last managed machine had left it: the room that it has once it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Host>,
    /// The pools whose machines can be created on it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub reached_by: BTreeSet<PoolName>,
    /// Those pools in `reached_by` that have no template of their own on it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub across: BTreeSet<PoolName>,
}

/// The verdict on a host that may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum HostOutcome {
    /// It is on, and is needed.
    Needed,
    /// It is on but not needed, and will be shut down when its time and its turn come.
    Idle,
    /// Its machines are being removed, so that it can be shut down.
    Emptied,
    /// Nothing is left on it: this round asks it to shut down.
    SwitchOff,
    /// It was asked to shut down, and is not off yet.
    GoingOff,
    /// It is off until it is needed.
    Off,
    /// This round asks it to start.
    Wake,
    /// It was asked to start, and cannot be used yet.
    Waking,
    /// It failed to shut down or start, and is left alone for a while.
    GivenUp,
    /// Another client switched it off.
    NotOurs,
}

crate::codes!(
    HostOutcome {
        Needed => "Needed",
        Idle => "Idle",
        Emptied => "Emptied",
        SwitchOff => "SwitchOff",
        GoingOff => "GoingOff",
        Off => "Off",
        Wake => "Wake",
        Waking => "Waking",
        GivenUp => "GivenUp",
        NotOurs => "NotOurs",
    }
);

/// The verdict on a host that may be switched off.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostVerdict {
    /// The host.
    pub host: HostKey,
    /// The verdict.
    pub verdict: HostOutcome,
    /// Why, in words.
    pub message: String,
    /// When this began; for an idle host, when it ceased to be needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The earliest time at which an idle host is shut down, or the deadline for a host to shut down or
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}
