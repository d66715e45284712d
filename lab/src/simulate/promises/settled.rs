//! The state that the cluster must reach once there are no more faults and the daemon has had enough time.

use serde_json::Value;

use crate::simulate::checker::Checker;
use crate::simulate::checker::objects::{is_kept, is_ready, name, uuid};
use crate::simulate::drawn::inherited::kept_of_template;
use crate::simulate::drawn::pool_shape::PoolShape;
use crate::simulate::promises::volumes::OUT_OF_SERVICE;
use crate::simulate::workload::FITS;

impl Checker {
    /// Returns descriptions of everything that has not reached its final state yet. If `idle` is set, the
    /// workload has ended, so each pool must shrink to its minimum.
    pub fn unsettled(&self, idle: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let ours = self.ours();
        for vmid in &ours {
            wrong.extend(self.machine(*vmid));
        }
        wrong.extend(self.records());
        wrong.extend(self.nodes(idle));
        wrong.extend(self.waiting_pods());
        wrong.extend(self.held_up());
        let kube = &self.world.kube;
        let tokens = kube.list("Secret").into_iter().map(|one| name(&one).to_owned());
        wrong.extend(
            tokens
                .filter(|name| name.starts_with("bootstrap-token-") && !self.world.is_prepared(name))
                .map(|name| format!("the Secret {name} is left over")),
        );
        wrong.extend(self.seeds_left());
        let foreign = self.foreigners();
        for pool in &self.world.pools {
            let number = self.members(pool);
            let min = self.minimum(pool);
            if (number < min && self.has_room(pool, true)) || (idle && number > min) {
                wrong.push(format!("pool {} has {number} machines, but its minimum is {min}", pool.name));
            }
            wrong.extend(self.keeps_badly(pool));
            for vmid in pool.vmids.clone().filter(|vmid| !ours.contains(vmid) && !foreign.contains(vmid)) {
                let left = self.world.pve.volumes_of(vmid);
                if !left.is_empty() {
                    wrong.push(format!("volumes of VM {vmid} are left over: {}", left.join(", ")));
                }
            }
        }
        wrong
    }

    /// The number of a pool's machines that are nodes or will become nodes.
    fn members(&self, pool: &PoolShape) -> usize {
        let all = self.ours().into_iter().filter(|vmid| pool.vmids.contains(vmid)).count();
        all - self.kept(pool).len()
    }

    fn machine(&self, vmid: u32) -> Option<String> {
        let vm = self.world.pve.vm(vmid)?;
        let Some(record) = self.record(vmid) else { return Some(format!("VM {vmid} is an orphan")) };
        let id = record["id"].as_str().unwrap_or("?");
        let marked = vm.config.get("description").is_some_and(|text| text.contains(id));
        let same = record["smbiosUuid"].as_str() == uuid(&vm).as_deref();
        if !marked && !same {
            return Some(format!("VM {vmid} is not the machine that its record describes"));
        }
        if record["intent"]["kind"] != "create" {
            return Some(format!("VM {vmid} is still being removed: {}", record["intent"]));
        }
        if let Some(what) = self.world.pool_of(vmid).and_then(|pool| kept_of_template(pool, &vm)) {
            return Some(format!("VM {vmid} {what}"));
        }
        let marked = |text: &String| text.split(';').any(|tag| tag == "pve-autoscaler");
        if !vm.config.get("tags").is_some_and(marked) {
            return Some(format!(
                "VM {vmid} lacks the tag `pve-autoscaler`; its tags are {:?}",
                vm.config.get("tags")
            ));
        }
        if is_kept(&record) {
            return self.waits_badly(vmid, &record);
        }
        if !vm.running {
            return Some(format!("VM {vmid} is not running"));
        }
        if record["host"] != vm.node.as_str() {
            return Some(format!(
                "the record of VM {vmid} names the host {}, but the VM is on {}",
                record["host"], vm.node
            ));
        }
        match self.node_of(vmid) {
            Some(_) => self.has_grown_badly(vmid, &record),
            None => Some(format!("VM {vmid} has no Node")),
        }
    }

    fn records(&self) -> Vec<String> {
        let ours = self.ours();
        let maps = self.world.kube.list("ConfigMap");
        let slots = maps.iter().map(|map| name(map)).filter(|name| name.starts_with("machine-"));
        let vmids = slots.filter_map(|name| name.rsplit('-').next()?.parse::<u32>().ok());
        vmids
            .filter(|vmid| !ours.contains(vmid))
            .map(|vmid| format!("a record of VM {vmid} is left over"))
            .collect()
    }

    fn nodes(&self, idle: bool) -> Vec<String> {
        let ours = self.ours();
        let mut wrong = Vec::new();
        let mut known_nodes: Vec<(String, u32)> =
            ours.iter().filter_map(|vmid| Some((self.node_of(*vmid)?, *vmid))).collect();
        known_nodes.sort();
        for node in self.world.kube.list("Node") {
            let who = name(&node);
            if who == "cp1" || self.world.decoy.as_deref() == Some(who) {
                continue;
            }
            let Some((_, vmid)) = known_nodes.iter().find(|(node, _)| node == who) else {
                wrong.push(format!("Node {who} has no VM"));
                continue;
            };
            if !is_ready(&node) {
                wrong.push(format!("Node {who} is not ready"));
            }
            if node["spec"]["unschedulable"] == true {
                wrong.push(format!("Node {who} is cordoned"));
            }
            wrong.extend(taints(&node).map(|taint| format!("Node {who} has the taint {taint}")));
            let Some(pool) = self.world.pool_of(*vmid) else { continue };
            let number = self.members(pool);
            let needed = !self.serving(who).is_empty();
            if number > self.minimum(pool) && !needed {
                wrong.push(format!("no pod needs Node {who}"));
            }
            // An overdue node stays if its pods may not be moved, or if no replacement is possible because
            // the pool is at its maximum or the hosts are full.
            if idle || (!needed && number < pool.max) {
                wrong.extend(self.overdue(pool, *vmid, &node).filter(|_| self.has_room(pool, false)));
            }
        }
        wrong
    }

    /// Pods that are pending although a pool has room for them.
    fn waiting_pods(&self) -> Vec<String> {
        let pods = self.world.kube.list("Pod");
        let waiting = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"].is_null()
                && pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["phase"] == "Pending"
        });
        let could = |pod: &Value, pool: &PoolShape| {
            let fits = pod["metadata"]["labels"][FITS].as_str().unwrap_or_default();
            let number = self.members(pool);
            fits.split('.').any(|one| one == pool.name) && number < pool.max && self.has_room(pool, true)
        };
        let wrong = waiting.filter_map(|pod| {
            let pool = self.world.pools.iter().find(|pool| could(pod, pool))?;
            Some(format!("{} is pending, but pool {} has room for it", name(pod), pool.name))
        });
        wrong.collect()
    }
}

/// Taints of the daemon that must not remain on a Node.
fn taints(node: &Value) -> impl Iterator<Item = String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let keys = taints.into_iter().filter_map(|taint| Some(taint["key"].as_str()?.to_owned()));
    keys.filter(|key| {
        let ours = ["pve-autoscaler/starting", "pve-autoscaler/being-deleted", "pve-autoscaler/growing"];
        ours.contains(&key.as_str()) || key == OUT_OF_SERVICE
    })
}
