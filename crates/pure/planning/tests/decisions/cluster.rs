//! A small cluster written as YAML, and helpers that read parts of its plan.

use std::fmt::Write;

use model::plan::{NodeOutcome, PodOutcome};
use model::{Plan, Snapshot};
use planning::plan;
use settings::{self, Config, Needs};

/// A cluster as a YAML stream.
#[derive(Clone)]
pub struct Cluster(String);

impl Cluster {
    pub fn new() -> Self {
        let owner = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: rs, namespace: d}\nspec: {replicas: 9}\n";
        Self(owner.to_owned())
    }

    /// A cluster without any objects.
    pub fn empty() -> Self {
        Self(String::new())
    }

    /// This cluster, with the objects of `other` added.
    pub fn and(mut self, other: &Self) -> Self {
        self.0.push_str(&other.0);
        self
    }

    /// This cluster with some text replaced.
    pub fn replace(self, words: &str, others: &str) -> Self {
        Self(self.0.replace(words, others))
    }

    pub fn with(mut self, document: &str) -> Self {
        let _ = write!(self.0, "---\n{document}\n");
        self
    }

    /// A node of 4 CPUs that has been unneeded for an hour.
    pub fn node(self, name: &str, pool: &str, taint: &str, ready: &str) -> Self {
        self.sized(name, pool, "4", taint, ready)
    }

    pub fn sized(self, name: &str, pool: &str, cpu: &str, taint: &str, ready: &str) -> Self {
        self.shaped(name, pool, (cpu, "16Gi"), taint, ready)
    }

    /// A node of pool `w` with this many cores and 4 GiB for each core.
    pub fn large(self, name: &str, cores: u32) -> Self {
        self.shaped(name, "w", (&cores.to_string(), &format!("{}Gi", cores * 4)), "", "True")
    }

    fn shaped(self, name: &str, pool: &str, (cpu, memory): (&str, &str), taint: &str, ready: &str) -> Self {
        self.with(&format!(
            "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{pve-autoscaler/pool: {pool}, kubernetes.io/hostname: {name}}}\n  \
             annotations: {{pve-autoscaler/unneeded-since: 2026-01-01T11:00:00Z}}\n\
             spec: {{taints: [{taint}]}}\n\
             status:\n  allocatable: {{cpu: {cpu}, memory: {memory}, pods: 10}}\n  conditions: [{{type: Ready, status: \"{ready}\"}}]"
        ))
    }

    pub fn idle(self, name: &str, pool: &str) -> Self {
        self.node(name, pool, "", "True")
    }

    /// A pod of a ReplicaSet; it is pending if `node` is empty.
    pub fn pod(self, name: &str, cpu: &str, node: &str) -> Self {
        let status = "\nstatus: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}";
        let (node, status) =
            if node.is_empty() { (String::new(), "") } else { (format!("nodeName: {node}, "), status) };
        self.with(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
             ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
             spec: {{{node}containers: [{{name: c, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}{status}"
        ))
    }

    /// The snapshot that the planner receives.
    pub fn snapshot(&self) -> Snapshot {
        let (mut snapshot, _) = snapshot::read(&self.0).unwrap();
        snapshot.time = "2026-01-01T12:00:00Z".parse().unwrap();
        snapshot
    }

    pub fn plan(&self, config: &Config) -> Plan {
        plan(&self.snapshot(), config)
    }
}

/// Pool `w` with these limits, pool `other`, and the additional settings in `more`.
pub fn pools(min: u32, max: u32, more: &str) -> Config {
    with_others(min, max, 9, more)
}

pub fn with_others(min: u32, max: u32, others: u32, more: &str) -> Config {
    let pool = |name: &str, min: u32, max: u32| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmin = {min}\nmax = {max}\ncores = 4\nmemory = \"8GiB\"\n\
             allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n"
        )
    };
    let text = format!("{more}\n{}{}", pool("w", min, max), pool("other", 0, others));
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// Pool `w` as the only pool. `own` contains additional settings for the pool, `more` other settings.
pub fn of_pool(own: &str, more: &str) -> Config {
    let text = format!(
        "{more}\n[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n{own}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

pub fn removed(plan: &Plan) -> Vec<&str> {
    plan.scale_down.iter().map(|removal| removal.node.as_str()).collect()
}

pub fn node_verdict(plan: &Plan, node: &str) -> NodeOutcome {
    plan.nodes.iter().find(|verdict| verdict.node == node).unwrap().verdict
}

pub fn pod_verdict(plan: &Plan, pod: &str) -> PodOutcome {
    plan.pods.iter().find(|verdict| &*verdict.pod == pod).unwrap().verdict
}

pub const LEAVING: &str = "{key: pve-autoscaler/being-deleted, effect: NoSchedule}";

pub fn inventory(machines: &str) -> String {
    format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\n\
         hosts: [{{name: pve1, online: true, cores: 64, memory: 32Gi, memoryUsed: 4Gi}}]\nmachines: [{machines}]"
    )
}

pub fn machine(name: &str, phase: &str, node: bool) -> String {
    let node = if node { format!(", node: {name}") } else { String::new() };
    format!("{{name: {name}, pool: w, vmid: 9101, host: pve1, cores: 4, memory: 8Gi, phase: {phase}{node}}},")
}
