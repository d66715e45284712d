//! Volumes: a StatefulSet whose pods have one each, on nodes that may fall silent or lose their power. A
//! machine that is ready gives its volumes back before its plug is pulled; of one that is not they come free
//! once it is off.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use stage::{Call, Side};
use world::kubernetes::Kube;

use super::checker::{Checker, name, uuid};
use super::log::Log;
use super::settings::PoolShape;
use super::workload::FITS;

/// The StatefulSet.
const NAME: &str = "db";
/// The taint of a Node that is off for good.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How long after a host has its power back it may still be said to be off: others are late to notice, and no
/// guest has booted by then.
const COMES_BACK: Duration = Duration::from_secs(10);

/// What was drawn.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// How many pods there are at most.
    most: u32,
    /// `health.out_of_service_after`.
    after: Option<Duration>,
}

impl Volumes {
    /// Every other seed has some.
    pub fn draw(random: &mut Rng) -> Option<Self> {
        let after = random.bool().then(|| Duration::from_mins(random.u64(2..12)));
        random.bool().then(|| Self { most: random.u32(1..=3), after })
    }

    /// The settings' part.
    pub fn written(self) -> String {
        let line = |after: Duration| format!("[health]\nout_of_service_after = \"{}s\"\n", after.as_secs());
        self.after.map(line).unwrap_or_default()
    }
}

/// The StatefulSet of one run.
pub struct Databases {
    kube: Kube,
    random: Rng,
    most: u32,
}

impl Databases {
    /// Puts it there, without a pod, and its volumes. `None` if a seed has none.
    ///
    /// # Errors
    /// The cluster refuses an object, which is a mistake here.
    pub fn begin(
        kube: &Kube,
        pools: &[PoolShape],
        drawn: Option<Volumes>,
        random: Rng,
    ) -> anyhow::Result<Option<Self>> {
        let Some(Volumes { most, .. }) = drawn else { return Ok(None) };
        let mut objects = vec![stateful_set(pools)];
        for number in 0..most {
            objects.extend(volume(&format!("data-{NAME}-{number}")));
        }
        for object in objects {
            kube.apply(&object).map_err(anyhow::Error::msg)?;
        }
        Ok(Some(Self { kube: kube.clone(), random, most }))
    }

    /// Now and then another number of them is wanted.
    pub fn step(&mut self, log: &Log) {
        if self.random.u8(..4) == 0 {
            let replicas = self.random.u32(0..=self.most);
            log.say("workload", &format!("{NAME} has {replicas} replicas"));
            self.scale(replicas);
        }
    }

    /// None is wanted from now on.
    pub fn end(&self) {
        self.scale(0);
    }

    fn scale(&self, replicas: u32) {
        self.kube.patch_by_hand("StatefulSet", "default", NAME, &json!({ "spec": { "replicas": replicas } }));
    }
}

fn stateful_set(pools: &[PoolShape]) -> Value {
    let fits: Vec<&str> = pools.iter().map(|pool| pool.name).collect();
    json!({
        "kind": "StatefulSet",
        "metadata": { "name": NAME, "namespace": "default" },
        "spec": {
            "replicas": 0,
            "serviceName": NAME,
            "selector": { "matchLabels": { "app": NAME } },
            "template": {
                "metadata": { "labels": { "app": NAME, FITS: fits.join(".") } },
                "spec": {
                    "terminationGracePeriodSeconds": 20,
                    "containers": [{
                        "name": "main",
                        "image": "registry.k8s.io/pause",
                        "resources": { "requests": { "cpu": "700m", "memory": "1Gi" } },
                    }],
                },
            },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim_spec("") }],
        },
    })
}

fn claim_spec(volume: &str) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "replicated",
        "resources": { "requests": { "storage": "1Gi" } },
        "volumeName": volume,
    })
}

/// A volume that is bound to the claim of the same name.
fn volume(name: &str) -> [Value; 2] {
    let volume = json!({
        "kind": "PersistentVolume",
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "replicated",
            "capacity": { "storage": "1Gi" },
            "csi": { "driver": "csi.lab.example", "volumeHandle": name },
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": "default", "name": name },
        },
        "status": { "phase": "Bound" },
    });
    let claim = json!({
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" },
        },
        "spec": claim_spec(name),
        "status": { "phase": "Bound" },
    });
    [volume, claim]
}

impl Checker {
    /// A Node is said to be off: then its VM has to be.
    pub(super) fn must_be_off(&self, call: &Call<'_>) {
        let Some(node) = call.path.strip_prefix("/api/v1/nodes/") else { return };
        let changes = call.side == Side::Kubernetes && call.method == "PATCH";
        // What is there already comes along with each change of the others.
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
            self.violated(&format!("Node {node} is said to be off while its VM {vmid} runs"));
        }
    }

    /// Volumes that are attached to a node.
    pub(super) fn attached_to(&self, node: &str) -> Vec<String> {
        let attachments = self.world.kube.list("VolumeAttachment");
        let here = attachments.iter().filter(|one| one["spec"]["nodeName"] == node);
        here.filter_map(|one| one["spec"]["source"]["persistentVolumeName"].as_str().map(ToOwned::to_owned))
            .collect()
    }

    /// Pods that have a place and do not start, because a volume is held elsewhere.
    pub(super) fn held_up(&self) -> Vec<String> {
        let pods = self.world.kube.list("Pod");
        let held = pods.iter().filter(|pod| {
            pod["metadata"]["labels"]["app"] == NAME
                && pod["spec"]["nodeName"].is_string()
                && pod["status"]["phase"] == "Pending"
        });
        held.map(|pod| format!("{} does not start on {}", name(pod), pod["spec"]["nodeName"])).collect()
    }
}
