//! PodGroups, which only some API servers serve.

use std::time::Duration;

use kubernetes::Watches;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::watches::{Server, synced};

const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/podgroups";

fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": { "name": name, "namespace": "demo", "resourceVersion": "2" },
        "spec": spec,
    })
}

/// The names of the PodGroups in the snapshot, with their minima; `None` if the kind is not served.
fn seen(watches: &Watches) -> Option<Vec<(String, Option<i64>)>> {
    let groups = watches.snapshot().pod_groups?;
    Some(groups.iter().map(|group| (group.name.clone(), group.minimum)).collect())
}

#[tokio::test(start_paused = true)]
async fn pod_groups_are_seen_where_they_are_served_and_forgotten_when_they_are_no_more() {
    let server = Server::default();
    let (watches, log) = server.start();
    synced(&watches).await;
    assert_eq!(seen(&watches), None);
    assert!(log.all().iter().all(|asked| asked.path != GROUPS));
    let gang = json!({ "schedulingPolicy": { "gang": { "minCount": 8 } } });
    server.hold(GROUPS, vec![group("g", &gang), group("b", &json!({ "schedulingPolicy": { "basic": {} } }))]);
    server.0.lock().unwrap().pod_groups = true;
    sleep(Duration::from_mins(6)).await;
    assert_eq!(seen(&watches), Some(vec![("b".to_owned(), None), ("g".to_owned(), Some(8))]));
    let mut changed = watches.changed();
    changed.mark_unchanged();
    let smaller = json!({ "schedulingPolicy": { "gang": { "minCount": 4 } } });
    server.say(GROUPS, "MODIFIED", group("g", &smaller)).await;
    assert!(changed.has_changed(), "a gang with a smaller minimum may fit");
    server.0.lock().unwrap().pod_groups = false;
    server.refuse(GROUPS, 404, "NotFound");
    sleep(Duration::from_mins(6)).await;
    assert_eq!(seen(&watches), None);
    assert!(watches.problems().is_empty() && watches.is_current());
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_pod_groups_there_are_none_and_the_problem_is_named() {
    let server = Server::default();
    server.0.lock().unwrap().pod_groups = true;
    server.refuse(GROUPS, 403, "Forbidden");
    let (watches, _) = server.start();
    synced(&watches).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(seen(&watches), None);
    let unseen: Vec<_> = watches.unseen().into_iter().map(|problem| problem.kind).collect();
    assert_eq!(unseen, ["PodGroup"]);
    assert!(watches.is_current());
}
