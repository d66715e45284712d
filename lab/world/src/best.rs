//! The time that the simulated world itself takes: a lower bound for every daemon.

use std::time::Duration;

use crate::{kubernetes::spec::KubeTimings, proxmox::spec::Timings};

/// Returns the time from a pod that fits nowhere to the start of its containers, if everything is noticed and
/// requested at once: `rounds` clones one after another, then configuration, start, boot, join, registration
/// and the pod's own start. Without jitter.
pub fn to_running(pve: &Timings, kube: &KubeTimings, rounds: u32) -> Duration {
    let machine =
        pve.linked_clone * rounds + pve.config + pve.start + pve.boot_to_agent + pve.agent_to_running;
    let node = pve.join + kube.register + kube.ready + kube.node_taints;
    machine + node + kube.scheduler + kube.pod_start
}
