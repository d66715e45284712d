//! The world's own time: what no daemon can be faster than.

use std::time::Duration;

use crate::{kubernetes::spec::KubeTimings, proxmox::spec::Timings};

/// From a pod that fits nowhere to its containers' start, if everything is asked for at once and noticed at
/// once: the clones, of which this many `rounds` follow each other, then configuration, start, boot, join,
/// registration and the pod's own start. Without jitter.
pub fn to_running(pve: &Timings, kube: &KubeTimings, rounds: u32) -> Duration {
    let machine =
        pve.linked_clone * rounds + pve.config + pve.start + pve.boot_to_agent + pve.agent_to_running;
    let node = pve.join + kube.register + kube.ready + kube.node_taints;
    machine + node + kube.scheduler + kube.pod_start
}
