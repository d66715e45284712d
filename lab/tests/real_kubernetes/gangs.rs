//! Gangs on the real control plane: its kube-scheduler keeps a PodGroup together, and the daemon creates
//! machines for the entire gang or for none of its pods.

use std::time::Duration;

use serde_json::{Value, json};
use world::kubernetes::samples;

use crate::real::Real;
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster};

/// Whether the control plane serves PodGroups.
pub fn are_served(bench: &Bench<Real>) -> bool {
    !bench.kube.plane.programs().version().starts_with("v1.36.")
}

/// Creates this many pods of the PodGroup `train`. Each pod needs a node of its own.
async fn train(bench: &Bench<Real>, count: u32) {
    let mut pods = samples::deployment("train", count, "1500m", "1Gi");
    pods["spec"]["template"]["spec"]["schedulingGroup"] = json!({ "podGroupName": "train" });
    bench.kube.apply(&pods).await;
}

/// The condition that the real scheduler has set on each pod.
fn said(bench: &Bench<Real>) -> Vec<Value> {
    let condition = |pod: &Value| {
        let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "PodScheduled").unwrap_or(Value::Null)
    };
    bench.kube.list("Pod").iter().map(condition).collect()
}

/// Waits until the daemon reports that this many pods are waiting for their gang, with `words` in the reason.
async fn shown(bench: &Bench<Real>, count: usize, words: &str) {
    let socket = bench.file("control.sock");
    let mut pods = Vec::new();
    for _ in 0..600 {
        if let Ok(status) = pve_autoscaler::observability::ask(std::path::Path::new(&socket)).await {
            pods = status.pods;
            let so = |pod: &&_| is_so(pod, words);
            if pods.len() == count && pods.iter().filter(so).count() == count {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never `{words}`: {pods:?}\n{}", bench.log());
}

fn is_so(pod: &pve_autoscaler::observability::PodStatus, words: &str) -> bool {
    pod.verdict == "AwaitsGang" && pod.why.contains(words)
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_made_for_a_whole_gang_that_the_real_scheduler_then_places() {
    let pool = POOL.replace("max = 3", "max = 2");
    let Some(mut bench) = Bench::<Real>::idle(cluster(), &pool).await else { return };
    if !are_served(&bench) {
        println!("skipped: this version has no PodGroups of v1beta1");
        return;
    }
    bench.start().await;
    // The real scheduler does not consider any of the pods until the group and its minimum number of pods
    // exist.
    train(&bench, 2).await;
    shown(&bench, 2, "is waiting for the pod's PodGroup `default/train`").await;
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": { "name": "train", "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 3 } } },
    });
    bench.kube.apply(&group).await;
    shown(&bench, 2, "its gang needs 3 pods, and kube-scheduler waits until they all exist; 2 exist now")
        .await;
    assert!(said(&bench).iter().all(Value::is_null), "{:?}", said(&bench));
    // The pool's maximum is two machines.
    train(&bench, 3).await;
    shown(&bench, 3, "its gang needs 3 pods to run at the same time, but only 2 would fit").await;
    let refused = |bench: &Bench<Real>| {
        let all = said(bench);
        all.len() == 3 && all.iter().all(|one| one["reason"] == "Unschedulable")
    };
    bench.until("the real scheduler cannot place the gang", refused).await;
    bench.throughout("nothing is made", Duration::from_secs(5), |bench| bench.vms().is_empty()).await;
    bench.stop().await;
    let file = bench.file("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("max = 2", "max = 3")).unwrap();
    bench.start().await;
    bench.until("all pods of the gang run", |bench| bench.running() == 3).await;
    assert_eq!(bench.nodes("workers").len(), 3);
    let placed = json!({ "type": "PodGroupInitiallyScheduled", "status": "True" });
    let path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/train";
    let group = bench.kube.admin.get(path).await.unwrap();
    let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is_placed = |one: &Value| one["type"] == placed["type"] && one["status"] == placed["status"];
    assert!(conditions.iter().any(is_placed), "{group}");
    bench.kube.scale("train", 0).await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
    assert!(!bench.log().contains("prediction"), "{}", bench.log());
}
