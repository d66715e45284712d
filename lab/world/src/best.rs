//! The time that the simulated world itself needs. No daemon can be faster.

use std::time::Duration;

use crate::{kubernetes::spec::KubeTimings, proxmox::spec::Timings};

/// Returns the shortest possible time from finding that a pod fits nowhere to the start of its containers:
/// `rounds` consecutive clones, then configuration, start, boot, join, registration and the start of the pod.
/// The daemon is assumed to react at once, and there is no jitter.
pub fn to_running(pve: &Timings, kube: &KubeTimings, rounds: u32) -> Duration {
    let machine =
        pve.linked_clone * rounds + pve.config + pve.start + pve.boot_to_agent + pve.agent_to_running;
    let node = pve.join + kube.register + kube.ready + kube.node_taints;
    machine + node + kube.scheduler + kube.pod_start
}
