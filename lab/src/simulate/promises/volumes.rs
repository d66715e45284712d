//! Promises about the volumes of a StatefulSet's pods, whose nodes may become silent or lose their power. A
//! ready machine is stopped only after its volumes are detached; volumes of an unready machine become free
//! once the machine is off.

use std::time::Duration;

use stage::{Call, Side};

use crate::simulate::checker::objects::{name, uuid};
use crate::simulate::checker::{Checker, Promise};
use crate::simulate::databases::NAME;

/// The taint of a Node whose machine is permanently off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How long a host may still be reported as off after its power has returned. The report lags behind, and no
/// guest boots within this time.
const COMES_BACK: Duration = Duration::from_secs(10);

/// A Node is marked as out of service only if its machine is off.
pub struct Volumes;

impl Promise for Volumes {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        checker.must_be_off(call);
    }
}

impl Checker {
    /// Checks that the VM is off if its Node is marked as out of service.
    pub fn must_be_off(&self, call: &Call<'_>) {
        let Some(node) = call.path.strip_prefix("/api/v1/nodes/") else { return };
        let changes = call.side == Side::Kubernetes && call.method == "PATCH";
        // A write contains all of the Node's taints, even if it changes only another one.
        let says = |text: &str| text.contains(OUT_OF_SERVICE);
        if !changes || !says(&String::from_utf8_lossy(call.body)) {
            return;
        }
        let Some(object) = self.world.kube.get("Node", "", node) else { return };
        if says(&object["spec"]["taints"].to_string()) {
            return;
        }
        let own = object["status"]["nodeInfo"]["systemUUID"].as_str();
        let runs = |vmid: &u32| {
            let running = self.world.pve.runs_for(*vmid).is_some_and(|time| time > COMES_BACK);
            running && self.world.pve.vm(*vmid).is_some_and(|vm| uuid(&vm).as_deref() == own)
        };
        if let Some(vmid) = self.world.pve.vmids().into_iter().find(runs) {
            self.violated(&format!("Node {node} is marked as out of service while its VM {vmid} runs"));
        }
    }

    /// Volumes that are attached to a node.
    pub fn attached_to(&self, node: &str) -> Vec<String> {
        let attachments = self.world.kube.list("VolumeAttachment");
        let here = attachments.iter().filter(|one| one["spec"]["nodeName"] == node);
        here.filter_map(|one| one["spec"]["source"]["persistentVolumeName"].as_str().map(ToOwned::to_owned))
            .collect()
    }

    /// Pods that are bound to a node but do not start, because their volume is attached to another node.
    pub fn held_up(&self) -> Vec<String> {
        let pods = self.world.kube.list("Pod");
        let held = pods.iter().filter(|pod| {
            pod["metadata"]["labels"]["app"] == NAME
                && pod["spec"]["nodeName"].is_string()
                && pod["status"]["phase"] == "Pending"
        });
        held.map(|pod| format!("pod {} does not start on {}", name(pod), pod["spec"]["nodeName"])).collect()
    }
}
