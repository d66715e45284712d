//! Limits how many nodes may be removed at a time, and when (`[[disruption]]`). A removal must be allowed by
//! every rule that applies to it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::facts::node::{is_leaving, pool_of};
use model::Snapshot;
use model::machine::Phase;
use model::plan::RemovalReason;
use settings::{Config, Disruption, Window};

/// The removals that the rules still allow in a round.
pub(super) struct Allowed<'a> {
    rules: Vec<Rule<'a>>,
}

struct Rule<'a> {
    settings: &'a Disruption,
    /// Why the rule allows no removal at this time, or `None` if it allows removals.
    shut: Option<String>,
    /// How many nodes of the rule's pools are being removed.
    leaving: usize,
}

impl<'a> Allowed<'a> {
    pub(super) fn new(snapshot: &Snapshot, config: &'a Config) -> Self {
        if config.disruptions.is_empty() {
            return Self { rules: Vec::new() };
        }
        let leaving = leaving(snapshot);
        let rule = |settings: &'a Disruption| Rule {
            settings,
            shut: shut(settings, snapshot.time),
            leaving: leaving
                .iter()
                .filter(|(pool, _)| concerns(settings, pool))
                .map(|(_, count)| count)
                .sum(),
        };
        Self { rules: config.disruptions.iter().map(rule).collect() }
    }

    fn about(&self, reason: RemovalReason, pool: &str) -> impl Iterator<Item = &Rule<'a>> {
        self.rules
            .iter()
            .filter(move |rule| rule.settings.reasons.contains(&reason) && concerns(rule.settings, pool))
    }

    /// Why no node of the pool may be removed for this reason at this time, or `None` if removals are
    /// allowed.
    pub(super) fn shut(&self, reason: RemovalReason, pool: &str) -> Option<String> {
        self.about(reason, pool).find_map(|rule| rule.shut.clone())
    }

    /// Why no other node of the pool may be removed for this reason now. Either the rules allow no removal at
    /// this time, or enough nodes are already being removed.
    pub(super) fn refuses(&self, reason: RemovalReason, pool: &str) -> Option<String> {
        self.shut(reason, pool).or_else(|| {
            let mut most = self.about(reason, pool).filter_map(|rule| Some((rule, rule.settings.max_nodes?)));
            let (_, most) = most.find(|(rule, most)| rule.leaving >= *most)?;
            Some(match most {
                0 => "`[[disruption]]` allows none".to_owned(),
                most => format!("waiting for its turn: `[[disruption]]` allows {most} at a time"),
            })
        })
    }

    /// Counts a node of the pool as being removed.
    pub(super) fn take(&mut self, pool: &str) {
        for rule in self.rules.iter_mut().filter(|rule| concerns(rule.settings, pool)) {
            rule.leaving += 1;
        }
    }
}

/// How many nodes of each pool are being removed. A machine whose Node is already deleted counts until its VM
/// is gone. Leftovers of the VM, such as a disk, do not count.
pub(super) fn leaving(snapshot: &Snapshot) -> BTreeMap<&str, usize> {
    let mut leaving: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for node in &snapshot.nodes {
        // If a restarted guest's Node lacks the daemon's label, its machine is counted below.
        if let Some(pool) = pool_of(node) {
            names.insert(&node.name);
            *leaving.entry(pool).or_default() += usize::from(is_leaving(node));
        }
    }
    for machine in snapshot.proxmox.machines.iter().flatten() {
        // A warm machine was never a node.
        let leaves = machine.warm.is_none()
            && matches!(machine.phase, Phase::Draining | Phase::Stopping | Phase::Deleting);
        if leaves && !names.contains(machine.node.as_ref().unwrap_or(&machine.name).as_str()) {
            *leaving.entry(&machine.pool).or_default() += 1;
        }
    }
    leaving
}

fn concerns(settings: &Disruption, pool: &str) -> bool {
    settings.pools.is_empty() || settings.pools.iter().any(|one| one == pool)
}

/// Why the settings allow no removal at this time, or `None` if they allow removals.
fn shut(settings: &Disruption, now: Timestamp) -> Option<String> {
    let open = |windows: &[Window]| windows.iter().filter_map(|one| one.open_until(now)).max();
    if let Some(until) = open(&settings.closed) {
        return Some(format!("`[[disruption]]` is closed until {until}"));
    }
    if settings.windows.is_empty() || open(&settings.windows).is_some() {
        return None;
    }
    let next = settings.windows.iter().filter_map(|one| one.opens(now)).min();
    Some(match next {
        Some(next) => format!("outside the windows of `[[disruption]]`; the next one opens at {next}"),
        None => "outside the windows of `[[disruption]]`".to_owned(),
    })
}
