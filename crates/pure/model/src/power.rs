//! Switching entire hosts off and on: the facts that a decision reads, the progress that the daemon
//! remembers, and the verdicts on hosts.

use super::host_key::HostKey;
use super::text_id::PoolName;
use crate::vmid::Vmid;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::machine::Host;

/// The known facts about the hosts that may be switched off. A fact that is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerFacts {
    /// The quorum votes of each host (`quorum_votes` of corosync), including hosts that are off. The votes of
    /// a `QDevice` are left out, to be on the safe side.
    pub votes: BTreeMap<HostKey, u32>,
    /// The hosts that may be switched off.
    pub hosts: BTreeMap<HostKey, HostFacts>,
}

/// The known facts about a host that may be switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostFacts {
    /// Its API answers.
    pub answers: bool,
    /// Unmanaged VMs and containers on the host that might be running: those that are not known to be
    /// stopped, those with a task in progress, and those that the HA manager manages.
    pub others: BTreeSet<Vmid>,
    /// VMs that were managed machines until recently. They are gone, but outdated lists of guests may still
    /// contain them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub going: BTreeSet<Vmid>,
    /// VMs and containers of the host's cluster that are being migrated. Until a guest's migration to this
    /// host is complete, Proxmox VE still reports the guest on its old host.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub migrating: BTreeSet<Vmid>,
    /// Another reason to keep the host on, as text.
    pub stays_on: Option<String>,
}

/// The progress of switching a host off or on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PowerStep {
    /// The host's machines are being removed, and no new ones are placed on it.
    #[default]
    Emptying,
    /// The host was asked to shut down.
    ShuttingDown,
    /// The host is off, and the daemon switched it off.
    Off,
    /// The host was asked to start.
    Waking,
}

/// What the daemon remembers about a host that it switches off and on. If it remembers nothing about a host
/// that is off, another client switched the host off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerMemory {
    /// The progress.
    pub step: PowerStep,
    /// The time at which this step began.
    pub since: Timestamp,
    /// The time at which the host was last asked to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The state of the host after the last managed machine had left it. Decisions use it to predict how much
    /// room the host will have once it is on again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Host>,
    /// The pools whose machines can be created on the host.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub reached_by: BTreeSet<PoolName>,
    /// Those pools in `reached_by` that have no template of their own on the host.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub across: BTreeSet<PoolName>,
}

/// The verdict on a host that may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum HostOutcome {
    /// The host is on, and is needed.
    Needed,
    /// The host is on but not needed. It will be shut down once it has been idle long enough and its turn has
    /// come.
    Idle,
    /// The host's machines are being removed, so that it can be shut down.
    Emptied,
    /// Nothing is left on the host. This round asks it to shut down.
    SwitchOff,
    /// The host was asked to shut down, and is not off yet.
    GoingOff,
    /// The host is off until it is needed.
    Off,
    /// This round asks the host to start.
    Wake,
    /// The host was asked to start, and cannot be used yet.
    Waking,
    /// The host failed to shut down or start, and the daemon does not try again for a while.
    GivenUp,
    /// Another client switched the host off.
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
    /// The time at which the host entered this state. For an idle host, the time at which it ceased to be
    /// needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The earliest time at which an idle host is shut down, or the deadline for a host to shut down or
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}
