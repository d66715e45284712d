//! Decisions that depend on the version of the control plane.

use model::Plan;
use model::plan::PodOutcome;

use crate::cluster::{Cluster, of_pool, pod_verdict};

fn cluster(version: &str) -> Cluster {
    Cluster::new()
        .with(&format!("apiVersion: pve-autoscaler/v1\nkind: KubernetesCluster\nversion: {version}"))
}

/// Adds a pending pod with mount options, which require a feature of the kubelet.
fn with_options(cluster: Cluster) -> Cluster {
    cluster.with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: d}\nspec: {containers: [{name: c, volumeMounts: \
         [{name: v, mountPath: /v, bindMountOptions: [noexec]}], resources: {requests: {cpu: 1}}}]}",
    )
}

fn made(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|growth| growth.machines.len()).sum()
}

#[test]
fn a_feature_that_no_kubelet_of_the_pool_declares_makes_no_machine() {
    let plan = with_options(cluster("v1.37.2")).plan(&of_pool("", ""));
    assert_eq!((pod_verdict(&plan, "d/p"), made(&plan)), (PodOutcome::NoPoolFits, 0));
    let reasons = &plan.pods[0].reasons();
    assert!(reasons.iter().any(|one| one.reason == "NodeDeclaredFeatures"), "{reasons:?}");
    // The scheduler of 1.36 does not require the feature.
    let before = with_options(cluster("v1.36.3")).plan(&of_pool("", ""));
    assert_eq!((pod_verdict(&before, "d/p"), made(&before)), (PodOutcome::NewNode, 1));
    // A kubelet in whose settings the feature gate is enabled has the feature.
    let told = of_pool("kubelet = { featureGates = { VolumeBindMountOptions = true } }", "");
    assert_eq!(pod_verdict(&with_options(cluster("v1.37.2")).plan(&told), "d/p"), PodOutcome::NewNode);
}

#[test]
fn a_running_pod_takes_what_the_scheduler_of_the_version_counts() {
    // The pod requests one core, plus half a core as overhead. The resources that the kubelet reports include
    // the overhead too.
    let running = "apiVersion: v1\nkind: Pod\nmetadata: {name: vm, namespace: d}\n\
        spec: {nodeName: a, overhead: {cpu: 500m}, containers: [{name: c, resources: {requests: {cpu: 1}}}]}\n\
        status: {phase: Running, allocatedResources: {cpu: 1500m}, resources: {requests: {cpu: 1}}}";
    let waits = |version: &str| {
        let all = cluster(version).idle("a", "w").with(running).pod("p", "2500m", "");
        pod_verdict(&all.plan(&of_pool("", "")), "d/p")
    };
    assert_eq!(waits("v1.36.3"), PodOutcome::ExistingNode);
    assert_eq!(waits("v1.37.2"), PodOutcome::NewNode);
}
