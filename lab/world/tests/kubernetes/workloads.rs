//! Workload controllers, owner references, and the scale subresource.

use serde_json::{Value, json};

use super::client::{Client, MERGE, pod, seconds, workload};

fn running(client: &Client) -> usize {
    client.pods().iter().filter(|(_, _, phase)| phase == "Running").count()
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_workload_gets_its_pods_and_loses_them_with_itself() {
    // Each row: kind, replicas, running pods after 20 s, existing pods after 20 s.
    let table = [
        ("Deployment", 3, 3, 3),
        ("ReplicaSet", 2, 2, 2),
        ("StatefulSet", 3, 3, 3),
        ("DaemonSet", 0, 2, 2),
        ("Job", 2, 0, 2),
    ];
    for (kind, replicas, run, there) in table {
        let client = Client::new(&["w1", "w2"]);
        client.apply(&workload(kind, "web", replicas));
        seconds(20.0).await;
        assert_eq!((running(&client), client.pods().len()), (run, there), "{kind}");
        client.kube.remove(kind, "default", "web");
        seconds(40.0).await;
        assert_eq!(client.pods().len(), 0, "{kind}: the pods are deleted with their owner");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_and_leaves_its_pods_as_they_ended() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("Job", "work", 2));
    seconds(20.0).await;
    assert!(client.pods().iter().all(|(_, _, phase)| phase == "Succeeded"));
    let job = client.kube.get("Job", "default", "work").expect("there");
    assert_eq!(
        (&job["status"]["succeeded"], &job["status"]["conditions"][0]["type"]),
        (&json!(2), &json!("Complete"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_job_has_done_stays_done_when_its_pod_goes() {
    let client = Client::new(&["w1"]);
    let mut job = workload("Job", "work", 2);
    job["spec"]["parallelism"] = json!(1);
    client.apply(&job);
    let done = || client.pods().into_iter().find(|(_, _, phase)| phase == "Succeeded");
    let mut first = done();
    for _ in 0..200 {
        if first.is_some() {
            break;
        }
        seconds(0.1).await;
        first = done();
    }
    client.kube.remove("Pod", "default", &first.expect("one has succeeded").0);
    seconds(40.0).await;
    let job = client.kube.get("Job", "default", "work").expect("there");
    assert_eq!(
        (&job["status"]["succeeded"], &job["status"]["conditions"][0]["type"]),
        (&json!(2), &json!("Complete"))
    );
    assert_eq!(client.pods().len(), 1, "the deleted pod is not replaced");
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_goes_one_by_one_and_replaces_a_pod_only_when_it_is_gone() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("StatefulSet", "db", 3));
    seconds(1.0).await;
    assert_eq!(client.pods().len(), 1, "the second pod waits for the first");
    seconds(10.0).await;
    let names: Vec<String> = client.pods().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let old = client.kube.get("Pod", "default", "db-1").expect("there")["metadata"]["uid"].clone();
    client.kube.remove("Pod", "default", "db-1");
    seconds(0.3).await;
    assert_eq!(client.kube.get("Pod", "default", "db-1").expect("still there")["metadata"]["uid"], old);
    seconds(5.0).await;
    assert_ne!(client.kube.get("Pod", "default", "db-1").expect("a new one")["metadata"]["uid"], old);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_replaces_a_pod_as_soon_as_it_is_to_go() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("Deployment", "web", 2));
    seconds(5.0).await;
    let first = client.pods()[0].0.clone();
    client.kube.remove("Pod", "default", &first);
    seconds(0.1).await;
    assert_eq!(client.pods().len(), 3, "the old pod is being deleted, and a new one exists");
    seconds(5.0).await;
    assert_eq!((client.pods().len(), running(&client)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_scale_subresource_shows_and_sets_the_replicas() {
    let client = Client::new(&["w1"]);
    for (kind, plural) in [("Deployment", "deployments"), ("StatefulSet", "statefulsets")] {
        client.apply(&workload(kind, plural, 1));
        seconds(5.0).await;
        let path = format!("/apis/apps/v1/namespaces/default/{plural}/{plural}/scale");
        let scale = client.get(&path).await;
        assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
        assert_eq!(scale["status"]["selector"], format!("app={plural}"));
        let (status, _) = client.send("PATCH", &path, MERGE, &json!({ "spec": { "replicas": 3 } })).await;
        assert_eq!(status, 200);
        let mut stale = scale.clone();
        stale["spec"]["replicas"] = json!(9);
        assert_eq!(client.call("PUT", &path, stale).await.0, 409);
        seconds(10.0).await;
        assert_eq!(client.get(&path).await["status"]["replicas"], 3, "{kind}");
    }
    assert_eq!(
        client.call("GET", "/apis/apps/v1/namespaces/default/daemonsets/x/scale", Value::Null).await.0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_where_that_is_asked_for_and_finalizers_hold() {
    let client = Client::new(&["w1"]);
    client.apply(&workload("ReplicaSet", "web", 2));
    let mut held = pod("held", "100m", Value::Null);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.apply(&held);
    seconds(5.0).await;
    let path = "/apis/apps/v1/namespaces/default/replicasets/web";
    assert_eq!(client.call("DELETE", path, json!({ "propagationPolicy": "Orphan" })).await.0, 200);
    client.kube.remove("Pod", "default", "held");
    seconds(60.0).await;
    let left: Vec<(String, String)> =
        client.pods().into_iter().map(|(name, _, phase)| (name, phase)).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(left[0], ("held".to_owned(), "Succeeded".to_owned()), "ended, but held");
    assert!(client.kube.patch_by_hand(
        "Pod",
        "default",
        "held",
        &json!({ "metadata": { "finalizers": null } })
    ));
    seconds(1.0).await;
    assert_eq!(client.pods().len(), 2);
}
