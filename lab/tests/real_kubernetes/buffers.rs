//! CapacityBuffers and ProvisioningRequests on the real API server, with the CustomResourceDefinitions that
//! their authors publish.

use std::time::Duration;

use serde_json::{Value, json};
use world::kubernetes::samples;

use crate::real::Real;
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster};

const DEFINITIONS: [&str; 2] = [
    include_str!("../../../tests/crds/capacitybuffers.yaml"),
    include_str!("../../../tests/crds/provisioningrequests.yaml"),
];
const NAMES: [&str; 2] =
    ["crd/capacitybuffers.autoscaling.x-k8s.io", "crd/provisioningrequests.autoscaling.x-k8s.io"];

/// Installs the definitions, a PodTemplate, a buffer of this many chunks described by that template, and a
/// ProvisioningRequest for more pods than can ever fit.
pub async fn install(bench: &Bench<Real>, chunks: u32) {
    let admin = &bench.kube.admin;
    for (definition, name) in DEFINITIONS.into_iter().zip(NAMES) {
        admin.kubectl(&["apply", "--server-side", "-f", "-"], definition).await.unwrap();
        let established = ["wait", "--for=condition=Established", "--timeout=30s", name];
        admin.kubectl(&established, "").await.unwrap();
    }
    let pods = samples::deployment("chunk", 1, "1500m", "1Gi")["spec"]["template"].clone();
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "chunk", "namespace": "default" }, "template": pods,
    });
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": { "name": "spare", "namespace": "default" },
        "spec": { "podTemplateRef": { "name": "chunk" }, "replicas": chunks },
    });
    let request = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": "huge", "namespace": "default" },
        "spec": {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "podSets": [{ "podTemplateRef": { "name": "chunk" }, "count": 99 }],
        },
    });
    for object in [template, buffer, request] {
        admin.apply(&object.to_string()).await.unwrap();
    }
}

/// Removes the definitions and the PodTemplate, because other tests run without these kinds.
pub async fn uninstall(bench: &Bench<Real>) {
    for what in NAMES.into_iter().chain(["podtemplate/chunk"]) {
        bench.kube.admin.kubectl(&["-n", "default", "delete", what, "--ignore-not-found"], "").await.unwrap();
    }
}

/// Waits until the buffer's condition `Provisioning` has this reason, and returns the buffer.
pub async fn told(bench: &Bench<Real>, reason: &str) -> Value {
    says(bench, "capacitybuffers.v1beta1.autoscaling.x-k8s.io/spare", ("Provisioning", reason)).await
}

/// Waits until the daemon has reported that the ProvisioningRequest does not fit. No machines are created for
/// it.
pub async fn answered(bench: &Bench<Real>) {
    let what = "provisioningrequests.v1.autoscaling.x-k8s.io/huge";
    says(bench, what, ("Provisioned", "CapacityIsNotFound")).await;
}

async fn says(bench: &Bench<Real>, what: &str, (kind, reason): (&str, &str)) -> Value {
    let path = ["-n", "default", "get", what, "-o", "json"];
    let mut shown = Value::Null;
    for _ in 0..600 {
        let text = bench.kube.admin.kubectl(&path, "").await.unwrap();
        shown = serde_json::from_str(&text).unwrap();
        let conditions = shown["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|one| one["type"] == kind && one["reason"] == reason) {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("never `{reason}`: {shown}\n{}", bench.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buffer_is_filled_taken_by_pods_and_filled_again() {
    let Some(mut bench) = Bench::<Real>::idle(cluster(), POOL).await else { return };
    install(&bench, 1).await;
    bench.start().await;
    let shown = told(&bench, "FitsExistingCapacity").await;
    answered(&bench).await;
    assert_eq!(bench.nodes("workers").len(), 1);
    assert_eq!(shown["status"]["replicas"], 1);
    assert_eq!(shown["status"]["podTemplateRef"]["name"], "chunk");
    assert_eq!(shown["status"]["podTemplateGeneration"], 1);
    let ready = &shown["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&json!("ReadyForProvisioning"), &json!("True")));
    assert_eq!(ready["observedGeneration"], 1);
    let machines = bench.vms();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let pods = bench.kube.list("Pod");
    let node = pods[0]["spec"]["nodeName"].as_str().unwrap();
    assert!(
        bench.proxmox.pve.vm(machines[0]).unwrap().config["name"] == node,
        "the pod uses the room that the buffer kept"
    );
    told(&bench, "CapacityOnItsWay").await;
    told(&bench, "FitsExistingCapacity").await;
    assert_eq!(bench.nodes("workers").len(), 2);
    bench.kube.scale("web", 0).await;
    bench.until("one node is left", |bench| bench.vms().len() == 1).await;
    bench.kube.admin.kubectl(&["-n", "default", "delete", "capacitybuffer", "spare"], "").await.unwrap();
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
    uninstall(&bench).await;
    let unexpected: Vec<String> =
        bench.warnings().into_iter().filter(|line| line.contains("CapacityBuffer")).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}
