//! Indexes of the pods: the waiting pods, the pods on each node, and the resources that the pods on each node
//! use.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    object::{self, Key, list, text},
    quantity,
};

/// Resource amounts in thousandths of their unit, by resource name.
pub(super) type Amounts = BTreeMap<String, i128>;

/// The facts about a pod that the scheduler uses.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Requests.
    pub requests: Amounts,
    /// Host ports with their protocol.
    pub ports: Vec<(i64, String)>,
    /// Priority.
    pub priority: i64,
    /// Everything that decides where the pod fits, as one string. Pods with equal strings fit the same nodes.
    pub class: String,
}

/// The resources that the pods on a node use.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// Requests.
    pub requests: Amounts,
    /// The number of pods.
    pub count: i128,
    /// How many pods use each host port.
    pub ports: BTreeMap<(i64, String), usize>,
}

impl Usage {
    /// Adds a pod.
    pub fn put_on(&mut self, facts: &Facts) {
        self.count += 1;
        for (resource, amount) in &facts.requests {
            *self.requests.entry(resource.clone()).or_default() += amount;
        }
        for port in &facts.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
    }

    /// Removes a pod.
    pub fn take_off(&mut self, facts: &Facts) {
        self.count -= 1;
        for (resource, amount) in &facts.requests {
            if let Some(taken) = self.requests.get_mut(resource) {
                *taken -= amount;
            }
        }
        for port in &facts.ports {
            if let Some(times) = self.ports.get_mut(port) {
                *times -= 1;
                if *times == 0 {
                    self.ports.remove(port);
                }
            }
        }
    }
}

/// The indexes.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_node: BTreeMap<String, BTreeSet<Key>>,
    waiting: BTreeMap<Key, Arc<Facts>>,
    counted: BTreeMap<Key, (String, Arc<Facts>)>,
    usage: BTreeMap<String, Usage>,
    shy: BTreeSet<Key>,
    /// The nominated node of each pod that waits for preempted pods to end.
    nominated: BTreeMap<Key, String>,
}

impl Pods {
    /// The pods bound to a node, including finished pods.
    pub fn on(&self, node: &str) -> Vec<Key> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// Whether a pod waits for the scheduler.
    pub fn is_waiting(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// The pods that wait for the scheduler.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, &Arc<Facts>)> {
        self.waiting.iter()
    }

    /// The pods that use resources of a node.
    pub fn counted_on(&self, node: &str) -> Vec<(Key, Arc<Facts>)> {
        let keys = self.by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), self.counted.get(key)?.1.clone()))).collect()
    }

    /// Returns the node's usage as it applies to placing this pod. It includes the resources that are
    /// reserved for other waiting pods of the same or a higher priority.
    pub fn usage_for(&self, node: &str, key: &Key, facts: &Facts) -> Option<Cow<'_, Usage>> {
        let usage = self.usage.get(node).map(Cow::Borrowed);
        let promised = self.nominated.iter().filter(|(other, place)| *place == node && *other != key);
        let promised = promised.filter_map(|(other, _)| self.waiting.get(other));
        promised.filter(|other| other.priority >= facts.priority).fold(usage, |usage, other| {
            let mut usage = usage.map(Cow::into_owned).unwrap_or_default();
            usage.put_on(other);
            Some(Cow::Owned(usage))
        })
    }

    /// Returns a node's usage, without the resources that are reserved for waiting pods.
    pub fn usage(&self, node: &str) -> Option<&Usage> {
        self.usage.get(node)
    }

    /// Bound pods whose anti-affinity keeps other pods away.
    pub fn shy(&self) -> impl Iterator<Item = &Key> {
        self.shy.iter()
    }

    /// Updates the indexes after a change to a pod.
    pub fn note(&mut self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        let known =
            self.waiting.remove(key).or_else(|| self.counted.get(key).map(|(_, facts)| facts.clone()));
        if let Some((node, facts)) = self.counted.remove(key) {
            self.take_off(&node, &facts);
        }
        if let Some(node) = old.map(|old| text(old, "/spec/nodeName")).filter(|node| !node.is_empty())
            && let Some(keys) = self.by_node.get_mut(node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(node);
            }
        }
        self.shy.remove(key);
        self.nominated.remove(key);
        let Some(new) = new else { return };
        let node = text(new, "/spec/nodeName");
        let ended = matches!(text(new, "/status/phase"), "Succeeded" | "Failed");
        if !node.is_empty() {
            self.by_node.entry(node.into()).or_default().insert(key.clone());
        }
        if ended {
            return;
        }
        let same = old.is_some_and(|old| {
            old["spec"] == new["spec"] && old["metadata"]["labels"] == new["metadata"]["labels"]
        });
        let facts = match known {
            Some(facts) if same => facts,
            _ => Arc::new(facts(new)),
        };
        if node.is_empty() {
            if !object::is_terminating(new) && text(new, "/spec/schedulerName") == "default-scheduler" {
                self.waiting.insert(key.clone(), facts);
                let nominated = text(new, "/status/nominatedNodeName");
                if !nominated.is_empty() {
                    self.nominated.insert(key.clone(), nominated.into());
                }
            }
            return;
        }
        if !list(new, "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution")
            .is_empty()
        {
            self.shy.insert(key.clone());
        }
        self.put_on(node, &facts);
        self.counted.insert(key.clone(), (node.into(), facts));
    }

    fn put_on(&mut self, node: &str, facts: &Facts) {
        self.usage.entry(node.into()).or_default().put_on(facts);
    }

    fn take_off(&mut self, node: &str, facts: &Facts) {
        let Some(usage) = self.usage.get_mut(node) else { return };
        usage.take_off(facts);
        if usage.count == 0 {
            self.usage.remove(node);
        }
    }
}

/// The requests of a pod, as kube-scheduler computes them (`PodRequests`): the sum of containers and
/// sidecars. If an init container and the sidecars before it request more, that amount replaces the sum. The
/// overhead is added in both cases.
pub(super) fn requests(pod: &Value) -> Amounts {
    let of = |container: &Value| amounts(&container["resources"]["requests"]);
    let mut total = Amounts::new();
    for container in list(pod, "/spec/containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(pod, "/spec/initContainers") {
        let mut now = sidecars.clone();
        add(&mut now, &of(container));
        if container["restartPolicy"] == "Always" {
            sidecars.clone_from(&now);
            add(&mut total, &of(container));
        }
        raise(&mut peak, &now);
    }
    raise(&mut total, &peak);
    add(&mut total, &amounts(&pod["spec"]["overhead"]));
    total
}

/// A map of quantities.
pub(super) fn amounts(map: &Value) -> Amounts {
    let fields = map.as_object().into_iter().flatten();
    fields
        .filter_map(|(resource, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            Some((resource.clone(), quantity::milli(&text)?))
        })
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        *total.entry(resource.clone()).or_default() += amount;
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (resource, amount) in least {
        let slot = total.entry(resource.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

fn facts(pod: &Value) -> Facts {
    let spec = &pod["spec"];
    let containers = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
    let ports = containers
        .flat_map(|container| list(container, "/ports"))
        .filter_map(|port| {
            let host = if spec["hostNetwork"] == true { &port["containerPort"] } else { &port["hostPort"] };
            let number = host.as_i64().filter(|number| *number > 0)?;
            Some((number, port["protocol"].as_str().unwrap_or("TCP").to_owned()))
        })
        .collect();
    let requests = requests(pod);
    let parts = [
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
        "resourceClaims",
        "schedulingGates",
    ];
    let mut class = format!("{requests:?}{ports:?}{}", pod["metadata"]["namespace"]);
    for part in parts {
        class += &spec[part].to_string();
    }
    // Only spread constraints and affinity depend on the pod's own labels.
    if !spec["topologySpreadConstraints"].is_null() || !spec["affinity"].is_null() {
        class += &pod["metadata"]["labels"].to_string();
    }
    class += &spec["preemptionPolicy"].to_string();
    Facts { requests, ports, priority: spec["priority"].as_i64().unwrap_or(0), class }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::requests;

    #[test]
    fn an_init_container_raises_the_requests_and_a_sidecar_adds_to_them() {
        let pod = json!({ "spec": {
            "containers": [{ "resources": { "requests": { "cpu": "500m" } } }],
            "initContainers": [
                { "restartPolicy": "Always", "resources": { "requests": { "cpu": "100m" } } },
                { "resources": { "requests": { "cpu": "2", "memory": "1Ki" } } },
            ],
            "overhead": { "cpu": "10m" },
        }});
        let total = requests(&pod);
        assert_eq!(total.get("cpu"), Some(&2110));
        assert_eq!(total.get("memory"), Some(&1_024_000));
    }
}
