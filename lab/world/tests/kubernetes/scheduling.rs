//! Which nodes pods are bound to, and what a pod's conditions contain if the pod fits on no node.

use serde_json::{Value, json};

use super::client::{Client, pod, seconds};

/// Two workers: `w1` is in the zone `a`, and `w2` has a taint.
fn two_workers() -> Client {
    let client = Client::new(&["w1", "w2"]);
    client.kube.patch_by_hand("Node", "", "w1", &json!({ "metadata": { "labels": { "zone": "a" } } }));
    let taints = json!([{ "key": "dedicated", "value": "x", "effect": "NoSchedule" }]);
    client.kube.patch_by_hand("Node", "", "w2", &json!({ "spec": { "taints": taints } }));
    client
}

fn condition(client: &Client, name: &str) -> Value {
    let pod = client.kube.get("Pod", "default", name).expect("the pod");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == "PodScheduled").unwrap_or(Value::Null)
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_it_fits() {
    let tolerates = json!([{ "key": "dedicated", "operator": "Exists" }]);
    let zones = |operator: &str, values: &[&str]| {
        let terms =
            json!([{ "matchExpressions": [{ "key": "zone", "operator": operator, "values": values }] }]);
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
    };
    let table = [
        (Value::Null, "w1"),
        (json!({ "nodeSelector": { "zone": "a" } }), "w1"),
        (json!({ "nodeSelector": { "kubernetes.io/hostname": "w2" }, "tolerations": tolerates }), "w2"),
        (json!({ "affinity": zones("In", &["a", "b"]) }), "w1"),
        (json!({ "affinity": zones("DoesNotExist", &[]), "tolerations": tolerates }), "w2"),
        (json!({ "nodeSelector": { "zone": "b" } }), ""),
        (json!({ "affinity": zones("NotIn", &["a"]) }), ""),
        (json!({ "schedulerName": "other" }), ""),
        (json!({ "schedulingGates": [{ "name": "wait" }] }), ""),
    ];
    for (more, node) in table {
        let client = two_workers();
        client.apply(&pod("p", "1", more.clone()));
        seconds(1.0).await;
        assert_eq!(client.pods()[0].1, node, "{more}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_pod_counts_its_reasons_in_the_order_of_their_text() {
    let tail = "no new claims to deallocate, preemption: 0/3 nodes are available:";
    let none = "3 Preemption is not helpful for scheduling.";
    let table = [
        (pod("p", "64", Value::Null), "1 Insufficient cpu, 2 node(s) had untolerated taint(s)", none),
        (
            pod("p", "1", json!({ "nodeSelector": { "zone": "b" } })),
            "1 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated taint(s)",
            none,
        ),
        (
            pod("p", "3500m", Value::Null),
            "1 Insufficient cpu, 2 node(s) had untolerated taint(s)",
            "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.",
        ),
    ];
    for (pod, reasons, preemption) in table {
        let client = two_workers();
        client.apply(&super::client::pod("filler", "1", Value::Null));
        seconds(3.0).await;
        client.apply(&pod);
        seconds(1.0).await;
        let found = condition(&client, "p");
        let expected = format!("0/3 nodes are available: {reasons}. {tail} {preemption}");
        assert_eq!((&found["reason"], &found["message"]), (&json!("Unschedulable"), &json!(expected)));
    }
}

#[tokio::test(start_paused = true)]
async fn gates_are_told_and_pods_of_other_schedulers_are_not_touched() {
    let client = two_workers();
    client.apply(&pod("gated", "1", json!({ "schedulingGates": [{ "name": "wait" }] })));
    client.apply(&pod("other", "1", json!({ "schedulerName": "other" })));
    seconds(1.0).await;
    assert_eq!(condition(&client, "gated")["reason"], "SchedulingGated");
    assert_eq!(condition(&client, "other"), Value::Null);
    assert!(client.kube.patch_by_hand(
        "Pod",
        "default",
        "gated",
        &json!({ "spec": { "schedulingGates": null } })
    ));
    seconds(1.0).await;
    assert_eq!(condition(&client, "gated")["status"], "True");
    let binding = json!({ "metadata": { "name": "other" }, "target": { "kind": "Node", "name": "w1" } });
    let path = "/api/v1/namespaces/default/pods/other/binding";
    assert_eq!(client.call("POST", path, binding.clone()).await.0, 201);
    assert_eq!(client.call("POST", path, binding).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_bound_as_soon_as_there_is_room() {
    let client = two_workers();
    client.apply(&pod("big", "3", Value::Null));
    seconds(1.0).await;
    client.apply(&pod("waits", "3", Value::Null));
    seconds(30.0).await;
    let since = condition(&client, "waits")["lastTransitionTime"].clone();
    client.kube.patch_by_hand("Node", "", "w1", &json!({ "spec": { "unschedulable": true } }));
    seconds(1.0).await;
    let told = condition(&client, "waits");
    assert!(told["message"].as_str().expect("text").contains("1 node(s) were unschedulable"), "{told}");
    assert_eq!(told["lastTransitionTime"], since, "a new message alone is not a transition");
    client.kube.patch_by_hand("Node", "", "w2", &json!({ "spec": { "taints": null } }));
    seconds(0.02).await;
    assert_eq!(condition(&client, "waits")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_higher_priority_gets_the_room_of_others_and_no_more_than_it_needs() {
    let client = Client::new(&["w1", "w2"]);
    for (name, policy) in [("high", "PreemptLowerPriority"), ("polite", "Never")] {
        let class = json!({ "kind": "PriorityClass", "metadata": { "name": name }, "value": 1000, "preemptionPolicy": policy });
        client.apply(&class);
    }
    for (name, node) in [("d", "w2"), ("a", "w1"), ("b", "w1"), ("c", "w1")] {
        let cpu = if node == "w2" { "4" } else { "1200m" };
        client.apply(&pod(name, cpu, json!({ "nodeSelector": { "kubernetes.io/hostname": node } })));
        seconds(5.0).await;
    }
    client.apply(&pod("polite", "1", json!({ "priorityClassName": "polite" })));
    seconds(1.0).await;
    let told = condition(&client, "polite")["message"].as_str().unwrap_or_default().to_owned();
    assert!(told.ends_with("preemption: not eligible due to preemptionPolicy=Never."), "{told}");
    client.apply(&pod("high", "1", json!({ "priorityClassName": "high" })));
    seconds(0.1).await;
    let waits = client.kube.get("Pod", "default", "high").expect("the pod");
    assert_eq!(waits["status"]["nominatedNodeName"], "w1", "the node whose victim started last");
    let victim = client.kube.get("Pod", "default", "c").expect("still going");
    assert!(victim["metadata"]["deletionTimestamp"].is_string());
    let conditions = victim["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|one| one["reason"] == "PreemptionByScheduler"));
    seconds(5.0).await;
    let there: Vec<_> = client.pods().into_iter().map(|(name, node, _)| format!("{name}@{node}")).collect();
    assert_eq!(there, ["a@w1", "b@w1", "d@w2", "high@w1", "polite@"]);
    assert!(
        client.kube.get("Pod", "default", "high").expect("bound")["status"]
            .get("nominatedNodeName")
            .is_none()
    );
}
