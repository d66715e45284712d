//! Nodes: how they join, fall silent and disappear, and what becomes of their pods.

use std::time::Duration;

use serde_json::{Value, json};
use world::guest::control_plane::ControlPlane;

use super::client::{Client, join, pod, seconds, token, workload};

fn taints(client: &Client, node: &str) -> String {
    let node = client.kube.get("Node", "", node).expect("the node");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut taints: Vec<String> =
        taints.iter().map(|one| format!("{}:{}", word(&one["key"]), word(&one["effect"]))).collect();
    taints.sort();
    taints.join(" ").replace("node.kubernetes.io/", "")
}

fn ready(client: &Client, node: &str) -> String {
    let node = client.kube.get("Node", "", node).expect("the node");
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|one| one["type"] == "Ready");
    found.and_then(|one| one["status"].as_str().map(String::from)).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_appears_not_ready_and_keeps_its_startup_taint() {
    let client = Client::new(&[]);
    client.apply(&token("aaaaaa", &[]));
    seconds(0.1).await;
    client.kube.join(join("w9", "aaaaaa")).await.expect("joined");
    assert!(client.kube.get("Node", "", "w9").is_none(), "the join returns before the Node exists");
    seconds(0.95).await;
    assert_eq!(
        (ready(&client, "w9").as_str(), taints(&client, "w9").as_str()),
        ("False", "not-ready:NoSchedule startup:NoSchedule")
    );
    seconds(1.0).await;
    assert_eq!(
        (ready(&client, "w9").as_str(), taints(&client, "w9").as_str()),
        ("True", "startup:NoSchedule")
    );
    let node = client.kube.get("Node", "", "w9").expect("there");
    assert_eq!(
        node["status"]["nodeInfo"]["systemUUID"], "aaaaaaaa-0000-4000-8000-000000000002",
        "lower case"
    );
    assert_eq!(node["metadata"]["labels"]["pool"], "a");
    let lease = || client.kube.get("Lease", "kube-node-lease", "w9").is_some();
    assert!(!lease());
    seconds(9.0).await;
    assert!(lease());
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_unknown_tainted_and_emptied_as_tolerations_run_out() {
    let client = Client::new(&["w1"]);
    let short = json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }]);
    client.apply(&pod("short", "100m", json!({ "tolerations": short })));
    client.apply(&pod("long", "100m", Value::Null));
    let ever = json!([{ "operator": "Exists" }]);
    client.apply(&pod("ever", "100m", json!({ "tolerations": ever })));
    seconds(20.0).await;
    client.kube.set_kubelet_silent("w1", true);
    seconds(36.0).await;
    assert_eq!(ready(&client, "w1"), "True");
    seconds(12.0).await;
    assert_eq!(
        (ready(&client, "w1").as_str(), taints(&client, "w1").as_str()),
        ("Unknown", "unreachable:NoExecute unreachable:NoSchedule")
    );
    let going = |name: &str| {
        let pod = client.kube.get("Pod", "default", name).expect("still there");
        pod["metadata"]["deletionTimestamp"].is_string()
    };
    seconds(6.0).await;
    assert_eq!([going("short"), going("long"), going("ever")], [true, false, false]);
    seconds(300.0).await;
    assert_eq!(
        [going("short"), going("long"), going("ever")],
        [true, true, false],
        "deleted pods stay while the kubelet is silent"
    );
    client.kube.set_kubelet_silent("w1", false);
    seconds(20.0).await;
    assert_eq!((ready(&client, "w1").as_str(), taints(&client, "w1").as_str()), ("True", ""));
    let left: Vec<String> = client.pods().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(left, ["ever"]);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_are_failed_and_go_after_a_while() {
    let client = Client::new(&["w1", "w2"]);
    client.kube.patch_by_hand("Node", "", "w2", &json!({ "spec": { "unschedulable": true } }));
    client.apply(&workload("Deployment", "web", 1));
    let mut held = pod("held", "100m", Value::Null);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.apply(&held);
    seconds(15.0).await;
    client.kube.power_lost(
        client.kube.get("Node", "", "w1").expect("there")["status"]["nodeInfo"]["systemUUID"]
            .as_str()
            .expect("text"),
    );
    assert_eq!(client.call("DELETE", "/api/v1/nodes/w1", Value::Null).await.0, 200);
    seconds(0.1).await;
    assert!(client.kube.get("Lease", "kube-node-lease", "w1").is_none(), "the Lease is removed at once");
    seconds(39.0).await;
    assert_eq!(client.pods().len(), 2, "the pods stay for a while");
    seconds(10.0).await;
    let held = client.kube.get("Pod", "default", "held").expect("held by its finalizer");
    assert_eq!(held["status"]["phase"], "Failed");
    let conditions = held["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|one| one["reason"] == "DeletionByPodGC"));
    let web: Vec<_> = client.pods().into_iter().filter(|(name, ..)| name.starts_with("web")).collect();
    assert_eq!((web.len(), web[0].2.as_str()), (1, "Pending"), "the controller has created another pod");
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_under_its_kubelet_comes_back_only_with_a_restart() {
    let client = Client::new(&["w1"]);
    seconds(15.0).await;
    let old = client.kube.get("Node", "", "w1").expect("there");
    client.kube.patch_by_hand("Node", "", "w1", &json!({ "metadata": { "labels": { "mine": "yes" } } }));
    client.kube.remove("Node", "", "w1");
    seconds(75.0).await;
    assert!(client.kube.get("Node", "", "w1").is_none());
    client.kube.restart_kubelet("w1");
    seconds(3.0).await;
    let new = client.kube.get("Node", "", "w1").expect("back");
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    assert!(new["metadata"]["labels"]["mine"].is_null(), "labels that other clients set are lost");
}

#[tokio::test(start_paused = true)]
async fn a_cordon_becomes_a_taint_and_goes_with_it() {
    let client = Client::new(&["w1"]);
    let watch = client.watch(
        "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dw1&timeoutSeconds=9",
        Duration::from_secs(3),
    );
    seconds(1.0).await;
    for cordon in [json!(true), Value::Null] {
        client.kube.patch_by_hand("Node", "", "w1", &json!({ "spec": { "unschedulable": cordon } }));
        seconds(0.1).await;
        let expected = if cordon.is_null() { "" } else { "unschedulable:NoSchedule" };
        assert_eq!(taints(&client, "w1"), expected);
    }
    let seen = watch.await.expect("events").len();
    assert_eq!(seen, 5, "added, cordoned, tainted, uncordoned, untainted");
}
