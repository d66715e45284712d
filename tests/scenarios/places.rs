//! What the daemon reports in Kubernetes itself: the status ConfigMap and events.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use world::kubernetes::spec::KubeSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// The status ConfigMap's version, its annotation, and its text parsed as YAML.
fn status(stage: &Stage) -> Option<(String, String, Value)> {
    let maps = stage.kube.list("ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == "cluster-autoscaler-status")?;
    assert_eq!(map["metadata"]["namespace"], "pve-autoscaler");
    let updated = &map["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/last-updated"];
    let updated = updated.as_str().unwrap_or_default();
    let text = map["data"]["status"].as_str().unwrap();
    let version = map["metadata"]["resourceVersion"].as_str().unwrap();
    Some((version.to_owned(), updated.to_owned(), serde_saphyr::from_str(text).unwrap()))
}

fn group(stage: &Stage) -> Value {
    status(stage).map_or(Value::Null, |(_, _, status)| status["nodeGroups"][0].clone())
}

/// The reason and note of each event about objects of this kind.
async fn events(stage: &Stage, kind: &str) -> Vec<(String, String)> {
    let request = Request::get("/apis/events.k8s.io/v1/events")
        .header("authorization", format!("Bearer {}", KubeSpec::DEMO_ADMIN_TOKEN))
        .body(Bytes::new())
        .unwrap();
    let body = stage.kube.handle(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap();
    let words = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let about = list["items"].as_array().unwrap().iter().filter(|event| event["regarding"]["kind"] == kind);
    about.map(|event| (words(event, "reason"), words(event, "note"))).collect()
}

/// Waits for an event about an object of this kind, with this reason and these words.
async fn said(stage: &Stage, kind: &str, reason: &str, words: &str, limit: Duration) {
    let waiting = async {
        while !events(stage, kind).await.iter().any(|(one, note)| one == reason && note.contains(words)) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let heard = tokio::time::timeout(limit, waiting).await;
    assert!(heard.is_ok(), "no {reason} with `{words}` in {:?}", events(stage, kind).await);
}

#[tokio::test(start_paused = true)]
async fn the_status_config_map_follows_a_scale_up_and_a_scale_down() {
    let stage = Stage::running(ONE_POOL);
    stage.until("the pool is shown", SOON, |stage| group(stage)["name"] == "workers").await;
    let (_, updated, first) = status(&stage).unwrap();
    assert_eq!(first["autoscalerStatus"], "Running");
    assert_eq!(first["time"], Value::from(updated.clone()));
    assert!(updated.starts_with("2026-11-21 00:00:") && updated.ends_with(" +0000 UTC"), "{updated}");
    assert_eq!(first["clusterWide"]["health"]["status"], "Healthy");
    assert_eq!(first["nodeGroups"][0]["scaleUp"]["status"], "NoActivity");
    assert_eq!(first["nodeGroups"][0]["health"]["maxSize"], 5);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pool grows", SOON, |stage| group(stage)["scaleUp"]["status"] == "InProgress").await;
    let growing = group(&stage);
    assert_eq!(growing["health"]["nodeCounts"]["unregistered"], 1);
    assert_eq!(growing["health"]["cloudProviderTarget"], 1);
    stage
        .until("the pool has a node", SOON, |stage| {
            group(stage)["health"]["nodeCounts"]["registered"]["ready"] == 1
                && group(stage)["scaleUp"]["status"] == "NoActivity"
        })
        .await;
    stage.kube.scale("default", "web", 0);
    stage
        .until("the node could go", SOON, |stage| group(stage)["scaleDown"]["status"] == "CandidatesPresent")
        .await;
    let late = group(&stage)["scaleDown"].clone();
    assert_eq!(late["candidates"], 1);
    assert!(late["lastTransitionTime"].as_str().unwrap() > "2026-11-21T00:00:05Z", "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_stays_the_same_is_written_every_few_minutes_only() {
    let stage = Stage::running(ONE_POOL);
    stage.until("the pool is shown", SOON, |stage| group(stage)["name"] == "workers").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let version = status(&stage).unwrap().0;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(status(&stage).unwrap().0, version);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_ne!(status(&stage).unwrap().0, version);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_wrote_or_removed_is_written_again() {
    let mut stage = Stage::new(ONE_POOL);
    stage
        .kube
        .apply(&json!({
            "kind": "ConfigMap",
            "metadata": { "name": "cluster-autoscaler-status", "namespace": "pve-autoscaler" },
            "data": { "status": "old: true" },
        }))
        .unwrap();
    stage.start();
    stage.until("the status is replaced", SOON, |stage| group(stage)["name"] == "workers").await;
    stage.kube.remove("ConfigMap", "pve-autoscaler", "cluster-autoscaler-status");
    stage.until("the status is back", Duration::from_mins(6), |stage| status(stage).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn events_say_what_happens_to_pods_and_nodes_and_why() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "900m", "1Gi");
    stage.deploy("huge", 1, "64", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    said(&stage, "Pod", "TriggeredScaleUp", "Pool workers", SOON).await;
    said(&stage, "Pod", "NotTriggerScaleUp", "workers: ", SOON).await;
    said(&stage, "Node", "NoScaleDown", "fit on no other node", SOON).await;
    stage.kube.scale("default", "web", 0);
    said(&stage, "Node", "ScaleDown", "Removing the node", Duration::from_mins(12)).await;
}
