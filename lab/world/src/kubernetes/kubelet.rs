//! Kubelets. They register Nodes, send heartbeats, and run the pods that are bound to their Nodes.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    kinds::{CSI_NODE, LEASE, NODE},
    object::{self, Key, list},
    quantity,
    spec::NodeSpec,
    state::{State, Work},
};

/// The number of heartbeats between two writes of an unchanged Node status. Each heartbeat renews the Lease.
const STATUS_EVERY: u64 = 30;
/// The memory that the kubelet withholds from pods, in KiB (its default hard eviction threshold).
const EVICTION_MEMORY: i128 = 100 * 1024;

/// The reason why a Node that has just registered is not ready.
const NOT_YET: &str = "KubeletNotReady";

/// One kubelet.
#[derive(Debug)]
pub(super) struct Kubelet {
    pub machine: NodeSpec,
    pub max_pods: u32,
    /// The machine runs.
    pub alive: bool,
    /// The kubelet runs, but cannot reach the API server.
    pub silent: bool,
    /// The uid of the Node that the kubelet considers its own. The kubelet does not touch a Node with another
    /// uid.
    pub node_uid: String,
    pub last_beat: Instant,
    pub beats: u64,
    pub machine_id: String,
    pub boot_id: String,
    /// The fields of the kubelet's own configuration that differ from the cluster's kubelet configuration.
    pub settings: Value,
    /// The name of the kubelet's latest request for a serving certificate.
    pub serving_request: Option<String>,
}

impl State {
    /// Adds a kubelet that will register its Node.
    pub(super) fn add_kubelet(&mut self, machine: NodeSpec, max_pods: u32) {
        let name = machine.name.clone();
        let machine_id = machine.system_uuid.to_lowercase().replace('-', "");
        let boot_id = self.new_uid();
        let kubelet = Kubelet {
            machine,
            max_pods,
            alive: true,
            silent: false,
            node_uid: String::new(),
            last_beat: Instant::now(),
            beats: 0,
            machine_id,
            boot_id,
            settings: Value::Null,
            serving_request: None,
        };
        self.kubelets.insert(name, kubelet);
    }

    /// Whether the kubelet of a node runs and can reach the API server.
    pub(super) fn hears(&self, node: &str) -> bool {
        self.kubelets.get(node).is_some_and(|kubelet| kubelet.alive && !kubelet.silent)
    }

    /// Starts the kubelet, which finds its Node or creates one.
    pub(super) fn register(&mut self, name: &str) {
        let Some(kubelet) = self.kubelets.get(name).filter(|kubelet| kubelet.alive) else { return };
        if kubelet.silent {
            let beat = self.spec.timings.heartbeat;
            self.wake(Work::Register(name.into()), beat);
            return;
        }
        let timings = self.spec.timings.clone();
        let uid = if let Some(node) = self.store.get(&NODE, "", name) {
            self.say_machine(name);
            let now = self.stamp();
            let unknown = object::condition(&node, "Ready").is_some_and(|one| one["status"] == "Unknown");
            if unknown {
                // After a kubelet comes back, its Node does not become Ready immediately.
                self.edit(&NODE, &(String::new(), name.into()), |node| {
                    let message = "PLEG is not healthy: pleg has yet to be successful";
                    set_health(node, ("False", "KubeletNotReady", message), &now);
                });
            }
            object::uid(&node).to_owned()
        } else {
            let node = self.new_node(name);
            object::uid(&self.create(&NODE, node)).to_owned()
        };
        if let Some(kubelet) = self.kubelets.get_mut(name) {
            kubelet.node_uid = uid;
            kubelet.last_beat = Instant::now();
        }
        self.wake(Work::NodeReady(name.into()), timings.ready);
        self.wake(Work::Lease(name.into()), timings.lease);
        self.wake(Work::Beat(name.into()), timings.heartbeat);
        self.wake(Work::Silence(name.into()), timings.monitor_grace);
        self.will_ask_to_serve(name);
        self.resume_pods(name);
    }

    /// Updates the Node with its machine's ids and resources, as a kubelet does when it starts.
    fn say_machine(&mut self, name: &str) {
        let Some(kubelet) = self.kubelets.get(name) else { return };
        let has = capacity(&kubelet.machine, kubelet.max_pods);
        let leaves = allocatable(&kubelet.machine, kubelet.max_pods, &kubelet.settings);
        let (id, uuid) = (kubelet.machine_id.clone(), kubelet.machine.system_uuid.to_lowercase());
        self.edit(&NODE, &(String::new(), name.into()), |node| {
            // Another machine may have used this name before.
            node["status"]["nodeInfo"]["machineID"] = id.clone().into();
            node["status"]["nodeInfo"]["systemUUID"] = uuid.clone().into();
            for (field, amounts) in [("capacity", &has), ("allocatable", &leaves)] {
                for resource in ["cpu", "memory"] {
                    node["status"][field][resource] = amounts[resource].clone();
                }
            }
        });
    }

    /// Sends the kubelet's first complete report.
    pub(super) fn become_ready(&mut self, name: &str) {
        if !self.hears(name) || !self.owns_node(name) {
            return;
        }
        if self.store.get(&CSI_NODE, "", name).is_none()
            && let Some(node) = self.store.get(&NODE, "", name)
        {
            let owner =
                json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": object::uid(&node) });
            let object = json!({
                "metadata": { "name": name, "ownerReferences": [owner] },
                "spec": { "drivers": null },
            });
            self.create(&CSI_NODE, object);
        }
        self.report(name);
    }

    /// Sends one heartbeat: renews the Lease, and occasionally writes the status.
    pub(super) fn beat(&mut self, name: &str) {
        let Some(kubelet) = self.kubelets.get_mut(name).filter(|kubelet| kubelet.alive) else { return };
        kubelet.beats += 1;
        let due = kubelet.beats.is_multiple_of(STATUS_EVERY);
        let heard = !kubelet.silent;
        let heartbeat = self.spec.timings.heartbeat;
        self.wake(Work::Beat(name.into()), heartbeat);
        if !heard || !self.owns_node(name) {
            return;
        }
        let node = self.store.get(&NODE, "", name);
        let unknown =
            node.and_then(|node| object::condition(&node, "Ready").map(|one| one["status"] != "True"));
        if let Some(kubelet) = self.kubelets.get_mut(name) {
            kubelet.last_beat = Instant::now();
        }
        self.wake(Work::Silence(name.into()), self.spec.timings.monitor_grace);
        self.renew(name, false);
        if due || unknown == Some(true) {
            self.report(name);
            self.resume_pods(name);
        }
    }

    /// Renews the Lease, or creates it if `create` is set.
    pub(super) fn renew(&mut self, name: &str, create: bool) {
        if !self.hears(name) || !self.owns_node(name) {
            return;
        }
        let renewed = object::micro_stamp(self.now());
        let key: Key = ("kube-node-lease".into(), name.into());
        if self.store.get(&LEASE, &key.0, name).is_some() {
            self.edit(&LEASE, &key, |lease| lease["spec"]["renewTime"] = json!(renewed));
        } else if create {
            let uid = self.kubelets.get(name).map(|kubelet| kubelet.node_uid.clone());
            let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid });
            let lease = json!({
                "metadata": { "name": name, "namespace": key.0, "ownerReferences": [owner] },
                "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed },
            });
            self.create(&LEASE, lease);
        }
    }

    fn owns_node(&self, name: &str) -> bool {
        let node = self.store.get(&NODE, "", name);
        let known = self.kubelets.get(name).map(|kubelet| kubelet.node_uid.as_str());
        node.is_some_and(|node| Some(object::uid(&node)) == known)
    }

    /// Writes the Node's status as a healthy kubelet does.
    fn report(&mut self, name: &str) {
        if self.nodes_never_ready && self.store.get(&NODE, "", name).is_some_and(|node| is_new(&node)) {
            return;
        }
        let now = self.stamp();
        let (_, status, reason, message) = HEALTHY[3];
        let boot = self.kubelets.get(name).map(|kubelet| kubelet.boot_id.clone());
        self.edit(&NODE, &(String::new(), name.into()), |node| {
            set_health(node, (status, reason, message), &now);
            // The machine may have rebooted.
            node["status"]["nodeInfo"]["bootID"] = json!(boot);
        });
    }

    fn new_node(&self, name: &str) -> Value {
        let Some(kubelet) = self.kubelets.get(name) else { return Value::Null };
        let machine = &kubelet.machine;
        let now = self.stamp();
        let mut labels = json!({
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        });
        for (key, value) in &machine.labels {
            labels[key] = json!(value);
        }
        let mut taints: Vec<Value> = machine.taints.iter().map(|text| taint(text)).collect();
        taints.push(json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }));
        let mut spec = json!({ "taints": taints });
        if let Some(id) = &machine.provider_id {
            spec["providerID"] = json!(id);
        }
        let conditions: Vec<Value> = HEALTHY
            .iter()
            .map(|(of, status, reason, message)| {
                let not_ready = *of == "Ready";
                let status = if not_ready { "False" } else { status };
                let reason = if not_ready { NOT_YET } else { reason };
                let message = if not_ready { "CSINode is not yet initialized" } else { message };
                json!({
                    "type": of,
                    "status": status,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                    "reason": reason,
                    "message": message,
                })
            })
            .collect();
        let mut addresses = vec![json!({ "type": "InternalIP", "address": machine.address })];
        addresses.push(json!({ "type": "Hostname", "address": name }));
        json!({
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            },
            "spec": spec,
            "status": {
                "capacity": capacity(machine, kubelet.max_pods),
                "allocatable": allocatable(machine, kubelet.max_pods, &kubelet.settings),
                "conditions": conditions,
                "addresses": addresses,
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
                "nodeInfo": {
                    "machineID": kubelet.machine_id,
                    "systemUUID": machine.system_uuid.to_lowercase(),
                    "bootID": kubelet.boot_id,
                    "kernelVersion": "6.1.0-56-cloud-amd64",
                    "osImage": "Debian GNU/Linux 12 (bookworm)",
                    "containerRuntimeVersion": "containerd://2.1.9",
                    "kubeletVersion": self.spec.version,
                    "kubeProxyVersion": "",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        })
    }

    /// Adds a Node that exists from the start. It is Ready and has a Lease.
    pub(super) fn add_static_node(&mut self, machine: NodeSpec) {
        let name = machine.name.clone();
        self.add_kubelet(machine, 110);
        self.register(&name);
        self.become_ready(&name);
        self.renew(&name, true);
        self.tend_node(&name);
    }
}

/// Writes the conditions of a healthy Node as its kubelet does, with the given `Ready` condition.
fn set_health(node: &mut Value, ready: (&str, &str, &str), now: &str) {
    for (of, status, reason, message) in HEALTHY {
        let (status, reason, message) = if of == "Ready" { ready } else { (status, reason, message) };
        let condition = json!({
            "type": of,
            "status": status,
            "lastHeartbeatTime": now,
            "reason": reason,
            "message": message,
        });
        object::set_condition(node, condition, now);
    }
}

/// Type, status, reason and message of each condition of a healthy Node.
const HEALTHY: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];

fn capacity(machine: &NodeSpec, max_pods: u32) -> Value {
    json!({
        "cpu": machine.cpus.to_string(),
        "ephemeral-storage": format!("{}Ki", machine.disk / 1024),
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": format!("{}Ki", machine.memory / 1024),
        "pods": max_pods.to_string(),
    })
}

/// The resources that remain for pods: the capacity minus the reservations and the hard eviction threshold
/// (`GetNodeAllocatableReservation` of `pkg/kubelet/cm`).
fn allocatable(machine: &NodeSpec, max_pods: u32, settings: &Value) -> Value {
    let mut amounts = capacity(machine, max_pods);
    let reserved = |resource: &str| -> i128 {
        let tables = ["kubeReserved", "systemReserved"];
        tables.iter().filter_map(|table| quantity::milli(settings[table][resource].as_str()?)).sum()
    };
    let memory = i128::from(machine.memory);
    let eviction = match &settings["evictionHard"] {
        Value::Null => EVICTION_MEMORY * 1024,
        table => match table["memory.available"].as_str() {
            Some(text) => match text.strip_suffix('%') {
                Some(percent) => memory * percent.parse().unwrap_or(0) / 100,
                None => quantity::milli(text).unwrap_or(0) / 1000,
            },
            None => 0,
        },
    };
    let left = (memory - reserved("memory") / 1000 - eviction).max(0);
    amounts["memory"] = json!(format!("{}Ki", left / 1024));
    let cpu = reserved("cpu");
    if cpu > 0 {
        amounts["cpu"] = json!(format!("{}m", (i128::from(machine.cpus) * 1000 - cpu).max(0)));
    }
    amounts["ephemeral-storage"] = json!((machine.disk / 10 * 9).to_string());
    amounts
}

/// Parses a taint that is written as `key=value:Effect`.
fn taint(text: &str) -> Value {
    let (head, effect) = text.rsplit_once(':').unwrap_or((text, "NoSchedule"));
    let (key, value) = head.split_once('=').unwrap_or((head, ""));
    let mut taint = json!({ "key": key, "effect": effect });
    if !value.is_empty() {
        taint["value"] = json!(value);
    }
    taint
}

/// Whether a node has a taint with this key and effect.
pub(super) fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    list(node, "/spec/taints").iter().any(|one| one["key"] == key && one["effect"] == effect)
}

/// Whether a Node has never been Ready since it registered.
fn is_new(node: &Value) -> bool {
    object::condition(node, "Ready")
        .is_some_and(|ready| ready["status"] == "False" && ready["reason"] == NOT_YET)
}
