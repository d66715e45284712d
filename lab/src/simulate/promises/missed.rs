//! Finds pods whose work would be lost if their node lost power. Pods that tolerate all taints come back to a
//! cordoned node as soon as they are evicted, as with the real kube-scheduler. If such a pod was bound after
//! the machine's removal was ordered, it may still be running when the machine stops. All other pods must be
//! gone by then.

use std::sync::Arc;

use jiff::Timestamp;
use pve_autoscaler::runtime::clock::Clock as _;
use serde_json::Value;

use crate::simulate::checker::Checker;
use crate::simulate::checker::objects::name;

impl Checker {
    /// The names of the pods on a node whose work would be lost if the node lost power.
    pub fn serving(&self, node: &str) -> Vec<String> {
        self.missed(node).iter().map(|pod| name(pod).to_owned()).collect()
    }

    pub fn missed(&self, node: &str) -> Vec<Arc<Value>> {
        let mut pods = self.at_work(node);
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    /// Pods on a node that are being deleted and whose grace period has not ended.
    pub fn ending(&self, node: &str) -> Vec<Arc<Value>> {
        let now = self.world.clock.now();
        let mut pods = self.at_work(node);
        pods.retain(|pod| {
            let end = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
            end.is_some_and(|end: Timestamp| end > now)
        });
        pods
    }

    fn at_work(&self, node: &str) -> Vec<Arc<Value>> {
        let mut pods = self.world.kube.list("Pod");
        pods.retain(|pod| {
            pod["spec"]["nodeName"] == node
                && matches!(pod["status"]["phase"].as_str(), Some("Running" | "Pending"))
                && pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet"
        });
        pods
    }

    /// Called when the daemon orders the removal of a machine. The daemon repeats the order if it was lost or
    /// undone.
    pub fn begins_to_go(&self, name: &str) {
        let now = self.world.clock.now();
        self.inner().told.0.insert(name.to_owned(), now);
    }

    /// Whether a pod may end together with the machine of this record.
    pub fn may_go_down(&self, pod: &Value, record: &Value) -> bool {
        if pod["spec"]["tolerations"].as_array().is_none_or(|all| !all.iter().any(is_for_all)) {
            return false;
        }
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut bound = conditions.filter(|one| one["type"] == "PodScheduled" && one["status"] == "True");
        let came = bound.next().and_then(|one| one["lastTransitionTime"].as_str()?.parse().ok());
        let told = record["name"].as_str().and_then(|name| self.inner().told.0.get(name).copied());
        // No removal order is recorded for a machine that is given up before it becomes a node.
        let given_up = record["intent"]["kind"] == "discard";
        // Condition times have a resolution of one second.
        let later = |(told, came): (Timestamp, Timestamp)| told.as_second() <= came.as_second();
        given_up || told.zip(came).is_some_and(later)
    }
}

fn is_for_all(toleration: &Value) -> bool {
    toleration["operator"] == "Exists" && toleration["key"].is_null() && toleration["effect"].is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_names_neither_key_nor_effect_is_for_all_taints() {
        for (toleration, expected) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "operator": "Exists", "key": "a" }), false),
            (json!({ "key": "a", "value": "b" }), false),
        ] {
            assert_eq!(is_for_all(&toleration), expected, "{toleration}");
        }
    }
}
