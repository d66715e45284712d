//! The promises that follow from a run's own settings, as the checker describes them. They are drawn together
//! with the text of the settings, and never read from the daemon's configuration.

use std::time::Duration;

use jiff::Timestamp;
use world::proxmox::rights::TagAccess;

use crate::simulate::drawn::devices::Devices;
use crate::simulate::drawn::hours::Hours;
use crate::simulate::drawn::inherited::Inherited;
use crate::simulate::drawn::pool_shape::Reserved;
use crate::simulate::drawn::power::Power;
use crate::simulate::drawn::volumes::Volumes;

/// Reasons for removal that a rule applies to: the name in the settings, and the text by which a record's
/// reason is recognized.
pub const REASONS: [(&str, &str); 5] = [
    ("empty", "no pod on it has to move"),
    ("underutilized", "its pods fit elsewhere"),
    ("consolidation", "fewer or smaller machines suffice"),
    ("drifted", "created from settings that have changed"),
    ("expired", "older than allowed"),
];

/// One `[[disruption]]`.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The reasons for removal to which the rule applies.
    pub reasons: Vec<&'static str>,
    /// The pools to which the rule applies. If empty, it applies to all pools.
    pub pools: Vec<&'static str>,
    /// The maximum number of nodes that may be removed at the same time.
    pub most: Option<usize>,
    /// Removals are allowed only at these times.
    pub open: Option<Hours>,
    /// Removals are never allowed at these times.
    pub closed: Option<Hours>,
}

impl Rule {
    /// Whether the rule applies to a pool.
    pub fn is_of(&self, pool: &str) -> bool {
        self.pools.is_empty() || self.pools.contains(&pool)
    }

    /// Whether the rule applies to the reason in a record.
    pub fn speaks_of(&self, reason: &str) -> bool {
        REASONS.iter().any(|(name, words)| reason.contains(words) && self.reasons.contains(name))
    }

    /// Whether the rule forbids all removals at this time.
    pub fn is_shut(&self, now: Timestamp) -> bool {
        self.closed.as_ref().is_some_and(|hours| hours.is_now(now))
            || self.open.as_ref().is_some_and(|hours| !hours.is_now(now))
    }
}

/// How VMs become nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    /// `kubeadm join` with a token for each machine.
    Kubeadm,
    /// A K3s agent.
    K3s,
    /// A command with a secret on its standard input.
    Command,
    /// The machines join by themselves.
    Nothing,
}

/// The limits on removals, which reduce the effect of a mistake.
#[derive(Clone, Copy, Debug)]
pub struct Brakes {
    /// The maximum number of removals within an hour, across all pools.
    pub in_an_hour: usize,
    /// The maximum percentage of a pool that may be removed at a time. One node is always allowed.
    pub share: usize,
}

/// All rules that apply to a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How VMs become nodes.
    pub bootstrap: Bootstrap,
    /// The rules of `[[disruption]]`.
    pub disruptions: Vec<Rule>,
    /// `scale_down.max_removals_per_hour` and `max_removal_percentage`.
    pub brakes: Brakes,
    /// `replace.drift`.
    pub drift: bool,
    /// `replace.unready_after`.
    pub unready_after: Option<Duration>,
    /// The host on which no new machines are placed.
    pub closed_host: Option<&'static str>,
    /// The resources of a host that machines must not use.
    pub reserved: Option<Reserved>,
    /// PCI devices of the hosts.
    pub devices: Devices,
    /// `proxmox.count_stopped`.
    pub count_stopped: bool,
    /// Hosts that may be switched off.
    pub power: Option<Power>,
    /// Databases whose volumes are attached to nodes.
    pub volumes: Option<Volumes>,
    /// Whether other clients, networks and storages interfere.
    pub hindered: bool,
    /// Options of the templates that machines must not keep.
    pub inherited: Inherited,
    /// The datacenter's options for tags.
    pub tags: TagAccess,
}

impl Rules {
    /// The rules that apply to a removal.
    pub fn about(&self, pool: &str, reason: &str) -> impl Iterator<Item = &Rule> {
        self.disruptions.iter().filter(move |rule| rule.is_of(pool) && rule.speaks_of(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_again_by_the_clock_of_their_zone() {
        let hours = Hours { every: 4, at: 30, minutes: 60, zone: "Europe/Berlin" };
        for (now, expected) in [
            ("2026-11-21T03:29:59Z", false),
            ("2026-11-21T03:30:00Z", true),
            ("2026-11-21T04:29:59Z", true),
            ("2026-11-21T04:30:00Z", false),
            ("2026-11-21T23:30:00Z", true),
        ] {
            assert_eq!(hours.is_now(now.parse().unwrap()), expected, "{now}");
        }
        let long = Hours { every: 2, at: 50, minutes: 30, zone: "UTC" };
        assert!(long.is_now("2026-11-21T03:10:00Z".parse().unwrap()), "it began at 2:50");
        assert!(!long.is_now("2026-11-21T02:10:00Z".parse().unwrap()), "it began at 0:50");
    }

    #[test]
    fn a_rule_speaks_of_what_records_say() {
        let rule =
            Rule { reasons: vec!["expired"], pools: vec!["small"], most: Some(1), open: None, closed: None };
        assert!(rule.speaks_of("it is older than allowed") && rule.is_of("small"));
        assert!(!rule.speaks_of("it was unready for too long") && !rule.is_of("large"));
    }
}
