//! Promises about Nodes, their pods and their records: they are deleted in the right order, and no two Nodes
//! have the same address.

use std::collections::{BTreeMap, BTreeSet};

use stage::{Call, Side};
use tokio::time::Instant;

use crate::simulate::checker::objects::{is_ready, name, uuid};
use crate::simulate::checker::{Checker, Promise};

/// Nodes and records are deleted only after their VMs, and pods are only evicted.
pub struct Nodes;

impl Promise for Nodes {
    fn on_call(&self, checker: &Checker, _: &str, call: &Call<'_>) {
        let parts: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.side, call.method, parts.as_slice()) {
            (Side::Kubernetes, "DELETE", ["api", "v1", "nodes", node]) => checker.node_deletion(node),
            (Side::Kubernetes, "DELETE", ["api", "v1", "namespaces", _, "pods", pod]) => {
                checker.violated(&format!("pod {pod} is deleted, not evicted"));
            }
            (Side::Kubernetes, "POST", ["api", "v1", "namespaces", _, "pods", _, "eviction"]) => {
                checker.inner().figures.evictions += 1;
            }
            (Side::Kubernetes, "DELETE", ["api", "v1", "namespaces", _, "configmaps", map]) => {
                checker.record_dropped(map);
            }
            _ => {}
        }
    }

    fn throughout(&self, checker: &Checker) {
        checker.readiness();
        checker.addresses_of_nodes();
    }
}

impl Checker {
    fn node_deletion(&self, node: &str) {
        let Some(object) = self.world.kube.get("Node", "", node) else { return };
        let own = object["status"]["nodeInfo"]["systemUUID"].as_str().unwrap_or_default();
        if node == "cp1" || self.world.decoy.as_deref() == Some(node) {
            return self.violated(&format!("Node {node} is deleted, although it belongs to no machine"));
        }
        let vm = self.world.pve.vmids().into_iter().find_map(|vmid| {
            let vm = self.world.pve.vm(vmid)?;
            (uuid(&vm).as_deref() == Some(own)).then_some((vmid, vm))
        });
        if let Some((vmid, _)) = vm.filter(|(_, vm)| vm.running) {
            self.violated(&format!("Node {node} is deleted while its VM {vmid} runs"));
        }
    }

    fn record_dropped(&self, map: &str) {
        let Some(vmid) = map.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()) else { return };
        let ours = self.world.pve.vm(vmid).is_some() && !self.is_foreign(vmid);
        if map.starts_with("machine-") && ours && !self.was_outside(vmid) {
            self.violated(&format!("the record of VM {vmid} is deleted while the VM exists"));
        }
        let machine = self.record(vmid).unwrap_or_default()["name"].as_str().unwrap_or_default().to_owned();
        if self.token_of(&machine) {
            self.violated(&format!(
                "the record of {machine} is deleted while its bootstrap token still exists"
            ));
        }
    }

    fn readiness(&self) {
        let now = self.world.kube.latest_change("Node");
        if std::mem::replace(&mut self.inner().looked_at.nodes, now) == now {
            return;
        }
        let nodes = self.world.kube.list("Node");
        let mut inner = self.inner();
        let unready: BTreeSet<&str> =
            nodes.iter().filter(|node| !is_ready(node)).map(|node| name(node)).collect();
        inner.unready_since.retain(|node, _| unready.contains(node.as_str()));
        for node in unready {
            inner.unready_since.entry(node.to_owned()).or_insert_with(Instant::now);
        }
    }

    fn addresses_of_nodes(&self) {
        let now = self.world.kube.latest_change("Node");
        if std::mem::replace(&mut self.inner().looked_at.addresses, now) == now {
            return;
        }
        let mut nodes: BTreeMap<String, String> = BTreeMap::new();
        for node in self.world.kube.list("Node") {
            let all = node["status"]["addresses"].as_array().into_iter().flatten();
            let internal = all.into_iter().filter(|one| one["type"] == "InternalIP");
            for address in internal.filter_map(|one| one["address"].as_str()) {
                if let Some(other) = nodes.insert(address.to_owned(), name(&node).to_owned()) {
                    self.violated(&format!(
                        "Nodes {other} and {} both have the address {address}",
                        name(&node)
                    ));
                }
            }
        }
    }
}
