//! The workload: Deployments with and without budgets that grow and shrink, a DaemonSet, and Jobs that come
//! and go.

use fastrand::Rng;
use serde_json::{Value, json};
use world::kubernetes::Kube;

use super::drawn::pool_shape::PoolShape;
use super::log::Log;

/// The pod label that lists the pools whose machines the pod fits on. The pool names are joined by dots.
pub const FITS: &str = "lab/fits";
/// The largest part of a machine that its pods cannot use, in thousandths of a core and in MiB: the
/// DaemonSet's pod and the kubelet's reserve.
const KEPT: (u32, u32) = (200, 640);

/// The workload of one run.
pub struct Workload {
    kube: Kube,
    random: Rng,
    deployments: Vec<Deployment>,
    jobs: u32,
}

struct Deployment {
    name: String,
    most: u32,
}

impl Workload {
    /// Creates the DaemonSet, the Deployments and their budgets.
    ///
    /// # Errors
    /// Returns an error if the cluster rejects an object, which is a bug in the simulation.
    pub fn begin(kube: &Kube, pools: &[PoolShape], mut random: Rng) -> anyhow::Result<Self> {
        apply(kube, &daemon_set())?;
        let mut deployments = Vec::new();
        for number in 0..random.u32(3..7) {
            let (name, most) = (format!("app-{number}"), random.u32(2..7));
            apply(kube, &deployment(&name, pools, &mut random))?;
            if random.u8(..10) < 6 {
                apply(kube, &budget(&name, most, &mut random))?;
            }
            deployments.push(Deployment { name, most });
        }
        Ok(Self { kube: kube.clone(), random, deployments, jobs: 0 })
    }

    /// Makes one random change to the workload.
    ///
    /// # Errors
    /// Returns an error if the cluster rejects an object, which is a bug in the simulation.
    pub fn step(&mut self, pools: &[PoolShape], log: &Log) -> anyhow::Result<()> {
        if self.random.u8(..10) < 2 {
            self.jobs += 1;
            let name = format!("job-{}", self.jobs);
            log.say("workload", &format!("{name} is created"));
            return apply(&self.kube, &job(&name, pools, &mut self.random));
        }
        let at = self.random.usize(..self.deployments.len());
        let Some(deployment) = self.deployments.get(at) else { return Ok(()) };
        // Half of the changes scale to zero, so that nodes are removed often enough.
        let replicas = if self.random.bool() { 0 } else { self.random.u32(1..=deployment.most) };
        log.say("workload", &format!("scales {} to {replicas} replicas", deployment.name));
        self.kube.scale("default", &deployment.name, replicas);
        Ok(())
    }

    /// Scales all Deployments to zero and removes all Jobs.
    pub fn end(&mut self, log: &Log) {
        log.say("workload", "all pods are removed");
        for deployment in &self.deployments {
            self.kube.scale("default", &deployment.name, 0);
        }
        for number in 1..=self.jobs {
            self.kube.remove("Job", "default", &format!("job-{number}"));
        }
    }
}

fn apply(kube: &Kube, object: &Value) -> anyhow::Result<()> {
    kube.apply(object).map_err(anyhow::Error::msg)?;
    Ok(())
}

/// A pod's requests in thousandths of a core and in MiB, and the names of the pools that the pod fits, joined
/// by dots.
fn size(pools: &[PoolShape], random: &mut Rng) -> (u32, u32, String) {
    let (cpu, memory) = match random.u8(..10) {
        0..=4 => (random.u32(1..8) * 100, random.u32(1..8) * 128),
        5..=7 => (random.u32(8..17) * 100, random.u32(4..12) * 256),
        8 => (random.u32(18..60) * 100, random.u32(4..12) * 1024),
        // No machine has this much CPU.
        _ => (64_000, 1024),
    };
    let fitting =
        pools.iter().filter(|pool| cpu + KEPT.0 <= pool.cores * 1000 && memory + KEPT.1 <= pool.gib * 1024);
    let names: Vec<&str> = fitting.map(|pool| pool.name).collect();
    (cpu, memory, names.join("."))
}

fn template(name: &str, pools: &[PoolShape], random: &mut Rng) -> Value {
    let (cpu, memory, mut fits) = size(pools, random);
    let mut spec = json!({
        "terminationGracePeriodSeconds": random.u32(0..40),
        "containers": [{
            "name": "main",
            "image": "registry.k8s.io/pause",
            "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } },
        }],
    });
    if random.u8(..10) < 3
        && let Some(pool) = pools.get(random.usize(..pools.len()))
    {
        spec["nodeSelector"] = json!({ "pve-autoscaler/pool": pool.name });
        fits = if fits.split('.').any(|one| one == pool.name) { pool.name.to_owned() } else { String::new() };
    }
    if random.u8(..10) < 2 {
        spec["affinity"] = json!({ "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": { "matchLabels": { "app": name } },
            }],
        }});
    }
    if random.u8(..10) == 0 {
        spec["tolerations"] = tolerations();
    }
    json!({ "metadata": { "labels": { "app": name, FITS: fits } }, "spec": spec })
}

fn deployment(name: &str, pools: &[PoolShape], random: &mut Rng) -> Value {
    json!({
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": name } },
            "template": template(name, pools, random),
        },
    })
}

fn budget(name: &str, most: u32, random: &mut Rng) -> Value {
    let (key, value) = match random.u8(..4) {
        0 => ("minAvailable", json!(most.saturating_sub(1).max(1))),
        1 => ("minAvailable", json!("50%")),
        _ => ("maxUnavailable", json!(1)),
    };
    json!({
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { key: value, "selector": { "matchLabels": { "app": name } } },
    })
}

fn job(name: &str, pools: &[PoolShape], random: &mut Rng) -> Value {
    let mut template = template(name, pools, random);
    template["spec"]["restartPolicy"] = json!("Never");
    let pods = random.u32(1..4);
    json!({
        "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "parallelism": pods, "completions": pods, "backoffLimit": 6, "template": template },
    })
}

fn daemon_set() -> Value {
    json!({
        "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{
                    "name": "main",
                    "image": "registry.k8s.io/pause",
                    "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                }]},
            },
        },
    })
}

/// The tolerations of a pod that tolerates all taints.
pub fn tolerations() -> Value {
    json!([{ "operator": "Exists" }])
}
