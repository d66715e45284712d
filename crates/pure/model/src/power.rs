//! The power of whole hosts: what a decision reads of it, what is remembered, and what is decided.

use super::host_key::HostKey;
use super::text_id::PoolName;
use crate::vmid::Vmid;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::machine::Host;

/// What is known of the hosts that may be switched off. Nothing is where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerFacts {
    /// The hosts' votes in the quorum, those of hosts that are off included: `quorum_votes` of corosync.
    /// Votes of a `QDevice` are left out, on the safe side.
    pub votes: BTreeMap<HostKey, u32>,
    /// The hosts that may be switched off, by their names.
    pub hosts: BTreeMap<HostKey, HostFacts>,
}

/// What is known of one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostFacts {
    /// Its API answers.
    pub answers: bool,
    /// VMs and containers there that are unmanaged and may run: those that are not known to be stopped, those
    /// with a task at work, and those of the HA manager.
    pub others: BTreeSet<Vmid>,
    /// VMs that were our machines until a moment ago: they are gone, and what is seen may be older than that.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub going: BTreeSet<Vmid>,
    /// VMs and containers of its cluster that are being migrated: one that comes to it is shown by its old
    /// host until it is there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub migrating: BTreeSet<Vmid>,
    /// Why it has to stay on besides, in words.
    pub stays_on: Option<String>,
}

/// How far the switching of a host has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PowerStep {
    /// Its machines leave it; nothing new is put there.
    #[default]
    Emptying,
    /// It was asked to shut down.
    ShuttingDown,
    /// It is off, and was switched off by us.
    Off,
    /// It was asked to come up.
    Waking,
}

/// What is remembered of a host that we switch. Without it a host that is off was switched off by another
/// client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerMemory {
    /// How far it has come.
    pub step: PowerStep,
    /// Since when.
    pub since: Timestamp,
    /// When it was last asked to come up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The host as it was once our machines no longer ran there: the room that it has once it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Host>,
    /// The pools whose machines can be made there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub reached_by: BTreeSet<PoolName>,
    /// Those of them that have no template of their own there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub across: BTreeSet<PoolName>,
}

/// What holds for a host that may be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum HostOutcome {
    /// It is on, and has to be.
    Needed,
    /// It is on and could be done without: it waits for its time, or for its turn.
    Idle,
    /// Its machines leave it.
    Emptied,
    /// Nothing is left on it: it is shut down now.
    SwitchOff,
    /// It was asked to shut down.
    GoingOff,
    /// It is off until it is needed.
    Off,
    /// It is asked to come up now.
    Wake,
    /// It was asked to come up.
    Waking,
    /// It did not do what it was asked: it is left alone for a while.
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

/// The verdict of such a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostVerdict {
    /// The host.
    pub host: HostKey,
    /// What holds for it.
    pub verdict: HostOutcome,
    /// Why, in words.
    pub message: String,
    /// Since when: of an idle host, since when it could be done without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When an idle host goes at the earliest, and by when one that was asked has to have done it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}
