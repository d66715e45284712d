//! A cluster of Kubernetes objects in which plans are carried out.

use std::collections::BTreeSet;

use pve_autoscaler::model::{Plan, Snapshot};
use pve_autoscaler::settings::Config;
use pve_autoscaler::snapshot;
use serde_json::{Value, json};

use crate::judge::{Bindings, Judge};

/// The time of every decision.
const NOW: &str = "2026-01-15T12:00:00Z";
const POOL_LABEL: &str = "pve-autoscaler/pool";

/// A pool and the size of its machines, from which both the pool's table in the configuration and its Nodes
/// are made.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub cores: u32,
    pub gib: u32,
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub pods: u32,
    pub max: u32,
    pub labels: Vec<(String, String)>,
    pub taint: Option<String>,
}

/// The cluster.
#[derive(Clone)]
pub struct Cluster {
    pub pools: Vec<Pool>,
    pub config: Config,
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    /// DaemonSets, ReplicaSets, and all other objects that do not change.
    pub rest: Vec<Value>,
    /// The number of machines created so far, which becomes part of the next machine's name.
    pub made: usize,
}

impl Pool {
    /// The pool's table in the configuration.
    pub fn table(&self) -> String {
        let labels: Vec<String> =
            self.labels.iter().map(|(key, value)| format!("\"{key}\" = \"{value}\"")).collect();
        let taint = self.taint.as_ref().map(|key| format!("taints = [\"{key}=yes:NoSchedule\"]\n"));
        let taint = taint.unwrap_or_default();
        format!(
            "[[pool]]\nname = \"{}\"\nmax = {}\ncores = {}\nmemory = \"{}GiB\"\nlabels = {{ {} }}\n{taint}\
             allocatable = {{ cpu = \"{}m\", memory = \"{}Mi\", pods = {} }}\n",
            self.name,
            self.max,
            self.cores,
            self.gib,
            labels.join(", "),
            self.cpu_milli,
            self.memory_mib,
            self.pods
        )
    }

    /// A Node of the pool, as its kubelet and the daemon create it.
    pub fn node(&self, name: &str) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", POOL_LABEL: self.name,
        });
        for (key, value) in &self.labels {
            labels[key] = json!(value);
        }
        let taints: Vec<Value> = self
            .taint
            .iter()
            .map(|key| json!({"key": key, "value": "yes", "effect": "NoSchedule"}))
            .collect();
        let amounts = json!({
            "cpu": format!("{}m", self.cpu_milli), "memory": format!("{}Mi", self.memory_mib),
            "pods": self.pods.to_string(), "ephemeral-storage": "50Gi",
        });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("node-{name}"), "labels": labels, "creationTimestamp": "2026-01-15T11:50:00Z"},
            "spec": {"taints": taints},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }
}

/// Returns a pod's namespace and name, joined by a slash.
pub fn id(pod: &Value) -> String {
    let of = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", of("namespace"), of("name"))
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

impl Cluster {
    /// Every object.
    pub fn objects(&self) -> Vec<Value> {
        [&self.rest, &self.nodes, &self.pods].into_iter().flatten().cloned().collect()
    }

    /// The cluster as the daemon sees it at `NOW`. Each Node of a pool is a ready machine.
    pub fn snapshot(&self) -> Snapshot {
        let pool = |node: &Value| node["metadata"]["labels"][POOL_LABEL].as_str().map(str::to_owned);
        let machines: Vec<Value> = self
            .nodes
            .iter()
            .filter_map(|node| {
                let pool = self.pools.iter().find(|one| Some(&one.name) == pool(node).as_ref())?;
                let name = &node["metadata"]["name"];
                Some(
                    json!({"name": name, "node": name, "pool": pool.name, "cores": pool.cores, "host": "pve1",
                    "memory": format!("{}Gi", pool.gib), "phase": "Ready"}),
                )
            })
            .collect();
        let inventory = json!({"apiVersion": "pve-autoscaler/v1", "kind": "ProxmoxInventory", "time": NOW, "machines": machines});
        let mut text = inventory.to_string();
        for object in self.objects() {
            text.push('\n');
            text.push_str(&object.to_string());
        }
        let (mut snapshot, time) = snapshot::read(&text).unwrap();
        snapshot.time = time.unwrap();
        snapshot
    }

    /// The pods without a node, except those of DaemonSets.
    pub fn waiting(&self) -> BTreeSet<String> {
        let theirs = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        self.pods.iter().filter(|pod| node_of(pod).is_none() && !theirs(pod)).map(id).collect()
    }

    /// The number of nodes that run no pods except those of DaemonSets.
    pub fn idle(&self) -> usize {
        let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
        let busy = |node: &&Value| {
            let of_daemons = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
            self.pods.iter().any(|pod| node_of(pod) == name(node).as_deref() && !of_daemons(pod))
        };
        self.nodes.iter().filter(|node| !busy(node)).count()
    }

    /// Runs the scheduler until it can place no more pods.
    pub fn schedule(&mut self, judge: &mut Judge, seed: u64) {
        loop {
            let said = judge.bind(&self.objects(), seed);
            let some = !said.bound.is_empty();
            self.take_in(said);
            if !some {
                return;
            }
        }
    }

    fn take_in(&mut self, said: Bindings) {
        self.pods.extend(said.made.into_iter().flatten());
        for pod in &mut self.pods {
            let id = id(pod);
            if let Some(node) = said.bound.get(&id) {
                pod["spec"]["nodeName"] = json!(node);
                pod["status"] =
                    json!({"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]});
            } else if let Some(why) = said.waiting.get(&id) {
                pod["status"] = json!({"phase": "Pending", "conditions":
                    [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]});
            }
        }
    }

    /// The pool of each machine that the plan creates.
    pub fn machines(plan: &Plan) -> Vec<String> {
        let pools = plan.scale_up.iter();
        pools.flat_map(|pool| pool.machines.iter().map(|_| pool.pool.to_string())).collect()
    }

    /// Turns a machine of the pool into a Node.
    pub fn add(&mut self, pool: &str) {
        let pool = self.pools.iter().find(|one| one.name == pool).unwrap();
        self.nodes.push(pool.node(&format!("{}-{}", pool.name, self.made)));
        self.made += 1;
    }

    /// Drains and removes these nodes; the controllers of their pods create new pods.
    pub fn remove(&mut self, names: &BTreeSet<&str>) {
        self.nodes.retain(|node| !node["metadata"]["name"].as_str().is_some_and(|name| names.contains(name)));
        let of_daemons = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        let gone = |pod: &Value| node_of(pod).is_some_and(|node| names.contains(node));
        self.pods.retain(|pod| !(of_daemons(pod) && gone(pod)));
        for pod in &mut self.pods {
            if gone(pod) {
                let name = format!("{}m", pod["metadata"]["name"].as_str().unwrap());
                pod["metadata"]["uid"] = json!(name);
                pod["metadata"]["name"] = json!(name);
                pod["spec"]["nodeName"] = Value::Null;
                pod["status"] = json!({"phase": "Pending"});
            }
        }
    }
}
