//! Lists, watches, patches, Leases.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, JSON, MERGE, STRATEGIC, seconds};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Five ConfigMaps, `a` to `e`, the first two with the label `half=one`.
fn five() -> Client {
    let client = Client::new(&[]);
    for (number, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let half = if number < 2 { "one" } else { "two" };
        client.apply(&json!({
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "default", "labels": { "half": half } },
        }));
    }
    client
}

fn names(list: &Value) -> String {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect::<Vec<_>>().join("")
}

#[tokio::test(start_paused = true)]
async fn a_list_is_restricted_by_selectors_and_cut_by_limits() {
    let client = five();
    let table = [
        ("", "abcde"),
        ("?labelSelector=half%3Done", "ab"),
        ("?labelSelector=half!%3Done", "cde"),
        ("?labelSelector=half%20in%20(one,two),half%20notin%20(two)", "ab"),
        ("?labelSelector=!half", ""),
        ("?fieldSelector=metadata.name%3Dc", "c"),
        ("?fieldSelector=metadata.name!%3Dc", "abde"),
        ("?limit=2", "ab"),
        ("?limit=2&resourceVersion=0", "abcde"),
    ];
    for (query, expected) in table {
        let list = client.get(&format!("{MAPS}{query}")).await;
        assert_eq!(names(&list), expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_until_it_is_forgotten() {
    let client = five();
    let first = client.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let next =
        format!("{MAPS}?limit=2&continue={}", first["metadata"]["continue"].as_str().expect("a token"));
    client.kube.remove("ConfigMap", "default", "c");
    let second = client.get(&next).await;
    assert_eq!(names(&second), "cd", "as it was at the version of the first page");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    client.kube.expire_resource_versions();
    let (status, gone) = client.call("GET", &next, Value::Null).await;
    assert_eq!((status, &gone["reason"]), (410, &json!("Expired")));
    let on = gone["metadata"]["continue"].as_str().expect("a token to continue with");
    let rest = client.get(&format!("{MAPS}?limit=9&continue={on}")).await;
    assert_eq!(names(&rest), "de");
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_changes_in_order_and_marks_its_place() {
    let client = five();
    let version =
        client.get(MAPS).await["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=75&resourceVersion={version}");
    let all = client.watch(&path, Duration::from_secs(80));
    let selected = client.watch(
        &format!("{MAPS}?watch=1&timeoutSeconds=5&resourceVersion={version}&labelSelector=half%3Done"),
        Duration::from_secs(9),
    );
    seconds(1.0).await;
    for (name, half) in [("a", "two"), ("c", "one"), ("b", "one")] {
        let patch = json!({ "metadata": { "labels": { "half": half } } });
        assert!(client.kube.patch_by_hand("ConfigMap", "default", name, &patch));
    }
    client.kube.remove("ConfigMap", "default", "e");
    let told = |events: Vec<(f64, String, Value)>| -> Vec<String> {
        events
            .into_iter()
            .map(|(time, of, object)| {
                format!("{time:.0} {of} {}", object["metadata"]["name"].as_str().unwrap_or(""))
            })
            .collect()
    };
    // An object that no longer matches the selector is reported as deleted, and one that begins to match as
    // added. A patch without effect causes no event.
    assert_eq!(told(selected.await.expect("events")), ["1 DELETED a", "1 ADDED c"]);
    let expected = ["1 MODIFIED a", "1 MODIFIED c", "1 DELETED e", "60 BOOKMARK ", "73 BOOKMARK "];
    assert_eq!(told(all.await.expect("events")), expected);
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_what_is_there_unless_it_names_a_version() {
    let client = five();
    let table = [
        ("", 5, ""),
        ("&resourceVersion=0", 5, ""),
        ("&resourceVersion=0&allowWatchBookmarks=true", 6, "BOOKMARK"),
        ("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6, "BOOKMARK"),
        ("&resourceVersion=999999", 0, ""),
    ];
    for (query, count, last) in table {
        let path = format!("{MAPS}?watch=1&timeoutSeconds=9{query}");
        let events = client.watch(&path, Duration::from_millis(500)).await.expect("events");
        assert_eq!(events.len(), count, "{query}");
        if let Some((_, of, object)) = events.last().filter(|_| !last.is_empty()) {
            assert_eq!(of, last, "{query}");
            assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{query}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_forgotten_is_told_in_the_stream_and_as_a_status() {
    let client = five();
    let old = client.get(MAPS).await["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let open = client.watch(&format!("{MAPS}?watch=1&resourceVersion={old}"), Duration::from_secs(9));
    seconds(1.0).await;
    client.kube.expire_resource_versions();
    assert!(open.await.expect("events").is_empty(), "an open watch ends without an event");
    let path = format!("{MAPS}?watch=1&resourceVersion={old}");
    let events = client.watch(&path, Duration::from_secs(9)).await.expect("events");
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].1.as_str(), &events[0].2["code"], &events[0].2["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    let table = [
        (format!("?resourceVersion={old}&resourceVersionMatch=Exact"), 410),
        (format!("?resourceVersion={old}&resourceVersionMatch=NotOlderThan"), 200),
        (format!("?resourceVersion={old}"), 200),
        ("?resourceVersion=99999999".to_owned(), 504),
        ("?resourceVersion=x".to_owned(), 400),
    ];
    for (query, expected) in table {
        assert_eq!(client.call("GET", &format!("{MAPS}{query}"), Value::Null).await.0, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn patches_of_each_type_change_what_they_name() {
    let taint = |key: &str| json!({ "key": key, "effect": "NoSchedule" });
    let table = [
        (MERGE, json!({ "spec": { "taints": [taint("new")] } }), 200, json!(["new"])),
        (MERGE, json!({ "spec": { "taints": null } }), 200, json!([])),
        (STRATEGIC, json!({ "spec": { "taints": [taint("new")] } }), 200, json!(["new"])),
        (
            JSON,
            json!([{ "op": "add", "path": "/spec/taints/-", "value": taint("new") }]),
            200,
            json!(["old", "new"]),
        ),
        (
            JSON,
            json!([{ "op": "test", "path": "/spec/taints/0/key", "value": "old" }, { "op": "remove", "path": "/spec/taints/0" }]),
            200,
            json!([]),
        ),
        (
            JSON,
            json!([{ "op": "test", "path": "/spec/taints/0/key", "value": "other" }]),
            422,
            json!(["old"]),
        ),
        (
            MERGE,
            json!({ "metadata": { "resourceVersion": "1" }, "spec": { "taints": null } }),
            409,
            json!(["old"]),
        ),
        (MERGE, json!({ "metadata": { "uid": "x" } }), 422, json!(["old"])),
        (STRATEGIC, json!({ "spec": { "taints": [taint("a b")] } }), 422, json!(["old"])),
        (STRATEGIC, json!({ "spec": { "taints": [taint("a"), taint("a")] } }), 422, json!(["old"])),
        ("application/json", json!({ "spec": {} }), 415, json!(["old"])),
    ];
    for (media, patch, expected, keys) in table {
        let client = Client::new(&["w1"]);
        assert!(client.kube.patch_by_hand(
            "Node",
            "",
            "w1",
            &json!({ "spec": { "taints": [taint("old")] } })
        ));
        let (status, body) = client.send("PATCH", "/api/v1/nodes/w1", media, &patch).await;
        assert_eq!(status, expected, "{patch}: {body}");
        let node = client.get("/api/v1/nodes/w1").await;
        let found: Vec<&Value> =
            node["spec"]["taints"].as_array().into_iter().flatten().map(|one| &one["key"]).collect();
        assert_eq!(json!(found), keys, "{patch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_by_one_and_every_write_of_it_needs_its_version() {
    let client = Client::new(&[]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = |holder: &str, version: Option<&str>, time: &str| {
        json!({
            "metadata": { "name": "x", "namespace": "kube-system", "resourceVersion": version },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": time },
        })
    };
    let now = "2026-11-21T00:00:00.000000Z";
    let (status, made) = client.call("POST", leases, lease("a", None, now)).await;
    assert_eq!(status, 201);
    assert_eq!(client.call("POST", leases, lease("b", None, now)).await.0, 409, "only the first create wins");
    let first = made["metadata"]["resourceVersion"].as_str();
    let table = [
        (lease("a", None, now), 422),
        (lease("a", first, "2026-11-21T00:00:00Z"), 400),
        (lease("a", first, "2026-11-21T00:00:00.000000000Z"), 400),
        (lease("b", first, now), 200),
        (lease("a", first, now), 409),
    ];
    for (body, expected) in table {
        let (status, answer) = client.call("PUT", &format!("{leases}/x"), body).await;
        assert_eq!(status, expected, "{answer}");
    }
    assert_eq!(client.get(&format!("{leases}/x")).await["spec"]["holderIdentity"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_delete_minds_its_preconditions_and_a_body_hides_the_query() {
    let client = five();
    let uid = client.get(&format!("{MAPS}/a")).await["metadata"]["uid"].clone();
    let table = [
        ("a", "", json!({ "preconditions": { "uid": "other" } }), 409, true),
        ("a", "", json!({ "preconditions": { "resourceVersion": "1" } }), 409, true),
        ("a", "?dryRun=All", Value::Null, 200, true),
        ("a", "", json!({ "dryRun": ["All"], "preconditions": { "uid": uid } }), 200, true),
        ("a", "?dryRun=All", json!({ "preconditions": { "uid": uid } }), 200, false),
    ];
    for (name, query, body, expected, stays) in table {
        let (status, _) = client.call("DELETE", &format!("{MAPS}/{name}{query}"), body.clone()).await;
        assert_eq!(status, expected, "{query} {body}");
        assert_eq!(client.kube.get("ConfigMap", "default", name).is_some(), stays, "{query} {body}");
    }
}
