//! Finds Nodes whose host or zone labels do not match the current host and zone of their VMs. This happens
//! when Proxmox VE or an administrator moves a VM, or when a host is assigned to a different zone.

use std::collections::BTreeMap;

use super::Daemon;
use machines::MachineView;
use model::PoolName;
use model::machine::Phase;
use observability::{GaugeValues, names};
use settings::{Config, Pool, ZoneLabels};

/// The name of this problem in the status.
pub(super) const ABOUT: &str = "zones";
/// The maximum number of Nodes that the problem text names.
const NAMED: usize = 20;

/// A Node whose host or zone label does not match the current host or zone of its VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Astray {
    pool: PoolName,
    words: String,
}

/// The problem text for all Nodes with stale labels; `None` if there are none.
pub(super) fn problem_text(all: &[Astray]) -> Option<String> {
    let mut named: Vec<String> = all.iter().take(NAMED).map(|one| one.words.clone()).collect();
    if all.len() > NAMED {
        named.push(format!("and {} more", all.len() - NAMED));
    }
    (!named.is_empty()).then(|| named.join("; "))
}

/// Sets the metrics for Nodes with stale labels.
pub(super) fn measure(config: &Config, all: &[Astray], seen: &mut GaugeValues) {
    for pool in config.pools.iter().filter(|pool| pool.tells_hosts()) {
        seen.put(names::ASTRAY, &[&pool.name], 0.0);
    }
    for one in all {
        seen.count(names::ASTRAY, &[&one.pool]);
    }
}

impl Daemon {
    /// Finds all Nodes with stale labels, and logs each of them, unless it was logged recently.
    pub(super) fn look_at_zones(&mut self, config: &Config, views: &[MachineView]) {
        let told = config.pools.iter().filter(|pool| pool.tells_hosts());
        let pools: BTreeMap<&str, &Pool> = told.map(|pool| (pool.name.as_str(), pool)).collect();
        self.astray.clear();
        for view in views.iter().filter(|view| view.phase == Phase::Ready && !pools.is_empty()) {
            let Some(pool) = pools.get(view.record.pool.as_str()) else { continue };
            let Some(node) = machines::node_of(&self.watches, &view.record) else { continue };
            let there = machines::astray(&view.record, pool, &node);
            if there.is_empty() {
                continue;
            }
            let labels = there.iter().map(|(key, now)| {
                let says = node.labels.get(key).map_or("", String::as_str);
                format!("{key}={says}, but the machine is in {now}")
            });
            let labels: Vec<String> = labels.collect();
            let follows = match pool.zone_labels {
                ZoneLabels::Birth => "the label stays (`zone_labels = \"birth\"`)",
                ZoneLabels::Follow => "the label follows",
            };
            let (name, host) = (&node.name, &view.record.host);
            let words = format!(
                "the VM of {name} is on {host}, and its Node is labeled {}: {follows}",
                labels.join("; ")
            );
            self.said.once(&words, || tracing::warn!(machine = %view.record.name, "{words}"));
            self.astray.push(Astray { pool: pool.name.clone(), words });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_named_and_the_others_counted() {
        let all: Vec<Astray> =
            (0..22).map(|one| Astray { pool: "w".into(), words: format!("n{one}") }).collect();
        assert_eq!(problem_text(&[]), None);
        assert_eq!(problem_text(&all[..2]), Some("n0; n1".to_owned()));
        assert!(problem_text(&all).is_some_and(|words| words.ends_with("n19; and 2 more")));
    }
}
