//! Evictions, and the disruption budgets that limit them.

use std::time::Duration;

use serde_json::{Value, json};
use world::kubernetes::spec::KubeTimings;

use super::client::{Client, MERGE, pod, seconds, workload};

fn budget(spec: Value) -> Value {
    let mut budget = json!({
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "app": "web" } } },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        budget["spec"][field] = value.clone();
    }
    budget
}

async fn evict(client: &Client, name: &str, options: Value) -> (u16, Value) {
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
    client.call("POST", &path, json!({ "metadata": { "name": name }, "deleteOptions": options })).await
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_as_many_go_as_it_says() {
    let table = [
        (json!({ "minAvailable": 3 }), 1),
        (json!({ "minAvailable": 4 }), 0),
        (json!({ "minAvailable": 0 }), 4),
        (json!({ "minAvailable": "50%" }), 2),
        (json!({ "maxUnavailable": 1 }), 1),
        (json!({ "maxUnavailable": 0 }), 0),
        (json!({ "maxUnavailable": "30%" }), 2),
    ];
    for (spec, expected) in table {
        let client = Client::new(&["w1"]);
        client.apply(&workload("Deployment", "web", 4));
        seconds(5.0).await;
        client.apply(&budget(spec.clone()));
        seconds(1.0).await;
        let mut gone = 0;
        for (name, ..) in client.pods() {
            let (status, body) = evict(&client, &name, Value::Null).await;
            match status {
                201 => gone += 1,
                429 => {
                    assert_eq!(body["details"]["causes"][0]["reason"], "DisruptionBudget", "{spec}");
                    assert!(body["details"]["retryAfterSeconds"].is_null(), "{spec}");
                }
                other => panic!("{spec}: {other} {body}"),
            }
        }
        assert_eq!(gone, expected, "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_may_go_when_a_replacement_is_ready() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("Deployment", "web", 2));
    client.apply(&budget(json!({ "maxUnavailable": 1 })));
    seconds(5.0).await;
    let pods = client.pods();
    assert_eq!(evict(&client, &pods[0].0, Value::Null).await.0, 201);
    assert_eq!(evict(&client, &pods[1].0, Value::Null).await.0, 429);
    seconds(5.0).await;
    assert_eq!(evict(&client, &pods[1].0, Value::Null).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn evictions_are_refused_for_what_they_name_and_use_up_the_budget_all_the_same() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("StatefulSet", "web", 2));
    seconds(10.0).await;
    client.apply(&budget(json!({ "minAvailable": 1 })));
    seconds(1.0).await;
    assert_eq!(evict(&client, "none", Value::Null).await.0, 404);
    assert_eq!(evict(&client, "web-0", json!({ "dryRun": ["All"] })).await.0, 201, "uses up no budget");
    assert_eq!(evict(&client, "web-0", json!({ "preconditions": { "uid": "other" } })).await.0, 409);
    assert_eq!(evict(&client, "web-1", Value::Null).await.0, 429);
    let status =
        client.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web").await["status"].clone();
    assert_eq!(
        (&status["disruptionsAllowed"], status["disruptedPods"]["web-0"].is_string()),
        (&json!(0), true)
    );
}

#[tokio::test(start_paused = true)]
async fn two_budgets_for_one_pod_are_an_error_without_a_reason() {
    let client = Client::new(&["w1"]);
    client.apply(&pod("web", "100m", Value::Null));
    let mut second = budget(json!({ "minAvailable": 0 }));
    second["metadata"]["name"] = json!("second");
    client.apply(&second);
    client.apply(&budget(json!({ "minAvailable": 0 })));
    seconds(5.0).await;
    let (status, body) = evict(&client, "web", Value::Null).await;
    assert_eq!((status, body.get("reason")), (500, None));
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_end_or_go_are_evicted_whatever_the_budget_says() {
    let client = Client::new(&["w1"]);
    let state = |name: &str, cpu: &str| {
        let mut one = pod(name, cpu, Value::Null);
        one["metadata"]["labels"]["app"] = json!("web");
        one
    };
    client.apply(&state("waits", "100"));
    client.apply(&state("ended", "100m"));
    client.apply(&state("goes", "100m"));
    client.apply(&state("runs", "100m"));
    seconds(5.0).await;
    client.apply(&budget(json!({ "minAvailable": 9 })));
    assert!(client.kube.patch_by_hand(
        "Pod",
        "default",
        "ended",
        &json!({ "status": { "phase": "Succeeded" } })
    ));
    client.kube.remove("Pod", "default", "goes");
    seconds(0.1).await;
    for (name, expected) in [("waits", 201), ("ended", 201), ("goes", 201), ("runs", 429)] {
        assert_eq!(evict(&client, name, Value::Null).await.0, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_not_looked_at_asks_for_patience() {
    let slow = KubeTimings { budget: Duration::from_secs(10), ..KubeTimings::default() };
    let client = Client::with_timings(&["w1"], slow);
    client.apply(&pod("web", "100m", Value::Null));
    seconds(5.0).await;
    client.apply(&budget(json!({ "minAvailable": 0 })));
    let (status, body) = evict(&client, "web", Value::Null).await;
    assert_eq!((status, &body["details"]["retryAfterSeconds"]), (429, &json!(10)));
    let told = body["details"]["causes"][0]["message"].as_str().expect("text");
    assert!(told.ends_with("is still being processed by the server."), "{told}");
    seconds(11.0).await;
    assert_eq!(evict(&client, "web", Value::Null).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_cannot_be_counted_on_forbids_and_says_that_it_is_the_budget() {
    // The controller is slow, so that it does not correct the status before the eviction.
    let slow = KubeTimings { budget: Duration::from_secs(10), ..KubeTimings::default() };
    let client = Client::with_timings(&["w1"], slow);
    client.apply(&workload("Deployment", "web", 2));
    client.apply(&budget(json!({ "minAvailable": 1 })));
    seconds(25.0).await;
    let name = client.pods()[0].0.clone();
    let many: serde_json::Map<String, Value> =
        (0..2001).map(|number| (format!("p{number}"), json!("2026-01-01T00:00:00Z"))).collect();
    for (status, said) in [
        (json!({ "disruptionsAllowed": -1 }), "pdb disruptions allowed is negative"),
        (
            json!({ "disruptionsAllowed": 1, "disruptedPods": many }),
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ),
    ] {
        let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web/status";
        let (status, body) = client.send("PATCH", path, MERGE, &json!({ "status": status })).await;
        assert_eq!(status, 200, "{body}");
        let (status, body) = evict(&client, &name, Value::Null).await;
        assert_eq!(status, 403, "{body}");
        assert_eq!(body["message"], format!("poddisruptionbudget.policy \"web\" is forbidden: {said}"));
        assert_eq!(body["details"]["kind"], "poddisruptionbudget");
        assert_eq!(body["details"]["causes"][0]["reason"], "DisruptionBudget");
    }
}
