//! Custom resources: served once their definition exists, and validated against its schema.

use serde_json::{Value, json};

use crate::client::{Client, MERGE, STRATEGIC};

const BUFFERS: &str = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers";
const DEFINITION: &str = include_str!("../../../../tests/crds/capacitybuffers.yaml");

fn with_definition() -> Client {
    let client = Client::new(&[]);
    client.apply(&serde_saphyr::from_str::<Value>(DEFINITION).expect("the definition"));
    client
}

fn buffer(spec: Value) -> Value {
    json!({ "kind": "CapacityBuffer", "metadata": { "name": "b" }, "spec": spec })
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_there_with_its_definition() {
    let client = Client::new(&[]);
    for path in [BUFFERS, "/apis/autoscaling.x-k8s.io/v1beta1", "/apis/autoscaling.x-k8s.io"] {
        assert_eq!(client.call("GET", path, Value::Null).await.0, 404, "{path}");
    }
    assert!(!client.get("/apis").await.to_string().contains("autoscaling.x-k8s.io"));
    let client = with_definition();
    let resources = client.get("/apis/autoscaling.x-k8s.io/v1beta1").await;
    assert_eq!(resources["resources"][0]["name"], "capacitybuffers");
    assert_eq!(resources["resources"][1]["name"], "capacitybuffers/status");
    assert_eq!(client.call("GET", BUFFERS, Value::Null).await.0, 200);
    assert!(client.get("/apis").await.to_string().contains("autoscaling.x-k8s.io"));
}

#[tokio::test(start_paused = true)]
async fn what_the_schema_forbids_is_refused_and_what_it_does_not_know_is_dropped() {
    let template = json!({ "name": "t" });
    let scalable = json!({ "kind": "Deployment", "name": "web" });
    let table = [
        (json!({ "podTemplateRef": template, "replicas": 1 }), ""),
        (json!({ "podTemplateRef": template, "limits": { "cpu": 4, "memory": "1Gi" } }), ""),
        (json!({ "scalableRef": scalable }), ""),
        (json!({}), ""),
        (json!({ "podTemplateRef": template }), "replicas or limits must also be set"),
        (json!({ "podTemplateRef": template, "scalableRef": scalable, "replicas": 1 }), "but not both"),
        (
            json!({ "scalableRef": scalable, "replicas": -1 }),
            "spec.replicas in body should be greater than or equal to 0",
        ),
        (json!({ "scalableRef": scalable, "replicas": "2" }), "must be of type integer"),
        (json!({ "scalableRef": { "name": "web" } }), "spec.scalableRef.kind: Required value"),
        (json!({ "podTemplateRef": { "name": "" }, "replicas": 1 }), "should be at least 1 chars long"),
        (
            json!({ "scalableRef": scalable, "limits": { "cpu": "much" } }),
            "spec.limits.cpu in body should match",
        ),
    ];
    for (spec, expected) in table {
        let client = with_definition();
        let (status, body) = client.call("POST", BUFFERS, buffer(spec.clone())).await;
        if expected.is_empty() {
            assert_eq!(status, 201, "{spec}: {body}");
            assert_eq!(body["spec"]["provisioningStrategy"], "buffer.x-k8s.io/active-capacity");
            assert_eq!(body["metadata"]["generation"], 1);
        } else {
            assert_eq!(status, 422, "{spec}: {body}");
            let message = body["message"].as_str().expect("a message");
            assert!(message.contains(expected), "{spec}: {message}");
        }
    }
    let client = with_definition();
    let (_, made) = client.call("POST", BUFFERS, buffer(json!({ "replicas": 1, "unknown": 1 }))).await;
    assert!(made["spec"]["unknown"].is_null() && made["spec"]["replicas"] == 1, "{made}");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_apart_and_over_the_version_that_was_read() {
    let client = with_definition();
    let (_, made) = client.call("POST", BUFFERS, buffer(json!({ "replicas": 1 }))).await;
    let (path, status) = (format!("{BUFFERS}/b"), format!("{BUFFERS}/b/status"));
    let condition = json!({
        "type": "Provisioning", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-11-21T00:00:00Z",
    });
    let change = |version: &Value, condition: &Value| {
        json!({
            "metadata": { "resourceVersion": version }, "spec": { "replicas": 9 },
            "status": { "replicas": 1, "podTemplateRef": null, "conditions": [condition] },
        })
    };
    let version = &made["metadata"]["resourceVersion"];
    assert_eq!(client.send("PATCH", &status, STRATEGIC, &change(version, &condition)).await.0, 415);
    let mut wrong = condition.clone();
    wrong["status"] = json!("Maybe");
    assert_eq!(client.send("PATCH", &status, MERGE, &change(version, &wrong)).await.0, 422);
    let (code, written) = client.send("PATCH", &status, MERGE, &change(version, &condition)).await;
    assert_eq!(
        (code, &written["spec"]["replicas"], &written["metadata"]["generation"]),
        (200, &json!(1), &json!(1))
    );
    assert_eq!(written["status"], json!({ "replicas": 1, "conditions": [condition] }));
    assert_eq!(client.send("PATCH", &status, MERGE, &change(version, &condition)).await.0, 409);
    // A patch of the object itself does not change the status.
    let (_, changed) =
        client.send("PATCH", &path, MERGE, &json!({ "spec": { "replicas": 2 }, "status": {} })).await;
    assert_eq!((&changed["status"]["replicas"], &changed["metadata"]["generation"]), (&json!(1), &json!(2)));
}
