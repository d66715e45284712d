//! Checks whether pods can request the devices that pools declare, and whether nodes have these devices.

use std::collections::BTreeMap;

use super::findings::{Answer, Line};
use crate::cli::exit::SUCCESS;
use model::Snapshot;
use settings::{Config, Pool};

pub(super) fn check(config: &Config, snapshot: &Snapshot, answer: &mut Answer) {
    let unlike = planning::unlike_declared(snapshot, config);
    for pool in config.pools.iter().filter(|pool| !pool.resource_slices.is_empty()) {
        let say = |line: Line| line.key("device").of(&pool.name);
        let wrong = if snapshot.device_classes.is_empty() {
            let message = "there is no DeviceClass with which a pod could request these devices";
            let help = "the driver's Helm chart installs a DeviceClass; `resource.k8s.io/v1` requires \
                Kubernetes 1.34 or newer";
            Some(Line::doubtful("declared devices", message).help(help))
        } else {
            unlike.get(&pool.name).map(|words| {
                let help = "fix `[[pool.device]]` or the driver: if the pool has a node, the planner \
                    uses the node's actual devices, otherwise the declared ones";
                Line::doubtful("declared devices", words.clone()).help(help)
            })
        };
        let good = || Line::good("declared devices", declared_text(pool));
        answer.say(say(wrong.unwrap_or_else(good)), SUCCESS);
    }
}

/// The declared devices in words, e.g. `2 of gpu.example.com, 1 of nic.example.com per machine`.
fn declared_text(pool: &Pool) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in &pool.resource_slices {
        *counts.entry(&slice.driver).or_default() += slice.devices.len();
    }
    let counts = counts.iter().map(|(driver, count)| format!("{count} of {driver}"));
    format!("{} per machine", counts.collect::<Vec<_>>().join(", "))
}
