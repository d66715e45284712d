//! Pods of a PodGroup are bound together or not at all.

use serde_json::{Value, json};

use super::client::{Client, pod, seconds};

fn group(minimum: u32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": { "name": "g", "namespace": "default" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": minimum } } },
    })
}

fn member(name: &str, cpu: &str) -> Value {
    pod(name, cpu, json!({ "schedulingGroup": { "podGroupName": "g" } }))
}

fn bound(client: &Client) -> usize {
    client.pods().iter().filter(|pod| !pod.1.is_empty()).count()
}

fn condition(client: &Client, name: &str) -> Value {
    let pod = client.kube.get("Pod", "default", name).expect("the pod");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == "PodScheduled").unwrap_or(Value::Null)
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_bound_once_its_group_its_pods_and_room_for_its_minimum_are_there() {
    let client = Client::with_pod_groups(&["w1", "w2"]);
    client.apply(&member("a", "3"));
    client.apply(&member("b", "3"));
    seconds(2.0).await;
    assert_eq!((bound(&client), condition(&client, "a")), (0, Value::Null), "there is no group");
    client.apply(&group(3));
    seconds(2.0).await;
    assert_eq!((bound(&client), condition(&client, "a")), (0, Value::Null), "a pod is missing");
    client.apply(&member("c", "3"));
    seconds(2.0).await;
    assert_eq!(bound(&client), 0, "two of three fit");
    assert_eq!(condition(&client, "a")["reason"], "Unschedulable");
    assert_eq!(
        condition(&client, "a")["message"],
        "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    );
    assert!(condition(&client, "c")["message"].as_str().unwrap().contains("2 Insufficient cpu"));
    client.apply(&member("d", "1"));
    seconds(2.0).await;
    assert_eq!(bound(&client), 3, "three of four fit");
    client.apply(&member("e", "1"));
    seconds(2.0).await;
    assert_eq!(bound(&client), 4, "the minimum already runs");
}

#[tokio::test(start_paused = true)]
async fn without_the_gate_the_field_is_dropped() {
    let client = Client::new(&["w1"]);
    client.apply(&member("a", "3"));
    seconds(2.0).await;
    assert_eq!(bound(&client), 1);
    assert!(client.kube.get("Pod", "default", "a").expect("the pod")["spec"]["schedulingGroup"].is_null());
}
