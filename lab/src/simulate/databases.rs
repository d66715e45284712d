//! A StatefulSet that grows and shrinks, with volumes that are attached to nodes.

use fastrand::Rng;
use serde_json::{Value, json};
use world::kubernetes::Kube;

use super::drawn::pool_shape::PoolShape;
use super::drawn::volumes::Volumes;
use super::log::Log;
use super::workload::FITS;

/// The name of the StatefulSet.
pub const NAME: &str = "db";

/// The StatefulSet of one run.
pub struct Databases {
    kube: Kube,
    random: Rng,
    most: u32,
}

impl Databases {
    /// Creates the StatefulSet with its volumes but without pods. Returns `None` if the seed has no
    /// databases.
    ///
    /// # Errors
    /// Returns an error if the cluster rejects an object, which is a bug in the simulation.
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

    /// Changes the number of replicas in about a quarter of the calls.
    pub fn step(&mut self, log: &Log) {
        if self.random.u8(..4) == 0 {
            let replicas = self.random.u32(0..=self.most);
            log.say("workload", &format!("scales {NAME} to {replicas} replicas"));
            self.scale(replicas);
        }
    }

    /// Scales the StatefulSet to zero for the rest of the run.
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

/// A volume, and the claim of the same name that is bound to it.
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
