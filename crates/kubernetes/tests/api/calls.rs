//! Single calls: the request that is sent, and the interpretation of each response.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kubernetes::{Error, ErrorKind, EventKind, Eviction, RecordError, Recorder, Right, Saying};
use model::devices::ResourceSlice;
use model::node::{Taint, TaintEffect};
use model::pod_spec::PodSpec;
use model::snapshot::Memory;
use model::{Pod, Record, Slot, Vmid};
use serde_json::{Value, json};

use crate::fake::{Reply, cluster, refusal};

const CONFIG_MAPS: &str = "/api/v1/namespaces/pve-autoscaler/configmaps";

fn record(id: &str) -> Record {
    let slot = Slot { vmid: Vmid(9100), ..Slot::default() };
    let (pool, name, host) = ("web".to_owned(), "web-x7k2".to_owned(), "pve1".to_owned());
    let record = Record::new(id.into(), pool.into(), name, slot, host, Timestamp::UNIX_EPOCH);
    Record { template: Some(Vmid(9000)), cores: 2, memory: 1 << 31, ..record }
}

fn stored(record: &Record, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "machine-web-9100", "uid": "u-1", "resourceVersion": version },
        "data": { "record": serde_json::to_string(record).unwrap() },
    })
}

#[tokio::test(start_paused = true)]
async fn every_answer_to_an_eviction_is_told_apart() {
    let budget = json!({ "causes": [{ "reason": "DisruptionBudget", "message": "The disruption budget web needs 2" }] });
    let behind = json!({ "causes": [{ "message": "still being processed" }], "retryAfterSeconds": 10 });
    let uid = "Operation cannot be fulfilled on Pod \"web-1\": the UID in the precondition (1) does not match the UID in record (2).";
    let two =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let negative = "poddisruptionbudget.policy \"web\" is forbidden: pdb disruptions allowed is negative";
    let forbidden = json!({ "name": "web", "group": "policy", "kind": "poddisruptionbudget" });
    let mut caused = forbidden.clone();
    let why = "The disruption budget web does not allow evicting pods currently";
    caused["causes"] = json!([{ "reason": "DisruptionBudget", "message": why }]);
    let refused = |message: &str, retry_after| Eviction::Refused { message: message.to_owned(), retry_after };
    let cases = [
        (201, json!({ "status": "Success" }), Eviction::Evicted),
        (
            429,
            json!({ "reason": "TooManyRequests", "details": budget }),
            refused("The disruption budget web needs 2", None),
        ),
        (
            429,
            json!({ "reason": "TooManyRequests", "details": behind }),
            refused("still being processed", Some(Duration::from_secs(10))),
        ),
        (
            403,
            json!({ "reason": "Forbidden", "message": negative, "details": forbidden }),
            refused(negative, None),
        ),
        (
            403,
            json!({ "reason": "Forbidden", "message": negative, "details": caused }),
            refused("The disruption budget web does not allow evicting pods currently", None),
        ),
        (404, json!({ "reason": "NotFound", "message": "pods \"web-1\" not found" }), Eviction::Gone),
        (409, json!({ "reason": "Conflict", "message": uid }), Eviction::Gone),
        (500, json!({ "message": two }), Eviction::Blocked { message: two.to_owned() }),
    ];
    for (code, mut body, expected) in cases {
        body["kind"] = json!("Status");
        body["apiVersion"] = json!("v1");
        body["code"] = json!(code);
        if code >= 400 {
            body["status"] = json!("Failure");
        }
        let (cluster, log) = cluster(move |_| Reply::Json(code, body.clone()));
        let outcome = cluster.evict("demo", "web-1", "u-1", Some(Duration::from_secs(5))).await.unwrap();
        assert_eq!(outcome, expected, "{code}");
        assert_eq!(log.all().len(), 1, "{code}: repeated");
        let asked = log.last();
        assert_eq!(asked.path, "/api/v1/namespaces/demo/pods/web-1/eviction");
        assert_eq!(asked.body["deleteOptions"]["preconditions"]["uid"], "u-1");
        assert_eq!(asked.body["deleteOptions"]["gracePeriodSeconds"], 5);
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_failed_otherwise_is_an_error() {
    let (cluster, _) = cluster(|_| refusal(403, "Forbidden", "pods \"a\" is forbidden"));
    assert_eq!(cluster.evict("demo", "a", "u", None).await.unwrap_err().kind(), ErrorKind::Forbidden);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_answer_ends_at_its_limit() {
    let (cluster, _) = cluster(|_| Reply::Silence);
    let begun = tokio::time::Instant::now();
    let error = cluster.with_limit(Duration::from_secs(3)).cordon("n").await.unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert!(matches!(error, Error::Timeout { .. }) && error.outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn a_node_is_deleted_only_with_its_uid_in_the_body() {
    for (code, reason, good) in [(404, "NotFound", true), (409, "Conflict", false)] {
        let (cluster, log) = cluster(move |_| refusal(code, reason, "no"));
        assert_eq!(cluster.delete_node("n1", "u-9").await.is_ok(), good, "{code}");
        assert_eq!(log.last().method, Method::DELETE);
        assert_eq!(log.last().body["preconditions"], json!({ "uid": "u-9" }));
    }
}

fn node(version: u32, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n1", "resourceVersion": version.to_string() },
        "spec": { "taints": taints },
    })
}

#[tokio::test(start_paused = true)]
async fn a_taint_is_added_over_the_version_that_was_read_and_again_after_a_conflict() {
    let foreign = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
    let reads = AtomicU32::new(0);
    let (cluster, log) = cluster(move |asked| {
        if asked.method == Method::GET {
            return Reply::Json(200, node(reads.fetch_add(1, Ordering::Relaxed) + 1, &foreign));
        }
        match asked.body["metadata"]["resourceVersion"].as_str() {
            Some("2") => Reply::Json(200, node(3, &asked.body["spec"]["taints"])),
            _ => refusal(409, "Conflict", "the object has been modified"),
        }
    });
    let taint =
        Taint { key: "ours".into(), value: String::new(), effect: TaintEffect::NoSchedule, time_added: None };
    cluster.add_taint("n1", &taint).await.unwrap();
    let expected = json!([
        { "key": "gpu", "value": "yes", "effect": "NoSchedule" },
        { "key": "ours", "effect": "NoSchedule" },
    ]);
    assert_eq!(log.last().body["spec"]["taints"], expected);
    assert_eq!(log.all().len(), 4, "read, refused write, read, write");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_is_there_is_not_written_again() {
    let there = json!([{ "key": "ours", "effect": "NoExecute" }]);
    let (cluster, log) = cluster(move |_| Reply::Json(200, node(1, &there)));
    let taint =
        Taint { key: "ours".into(), value: String::new(), effect: TaintEffect::NoExecute, time_added: None };
    cluster.add_taint("n1", &taint).await.unwrap();
    assert_eq!(log.all().len(), 1);
    cluster.remove_taint("n1", &taint).await.unwrap();
    assert_eq!(log.last().body["spec"]["taints"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn for_ever_contended_taints_are_given_up() {
    let (cluster, _) = cluster(|asked| match asked.method {
        Method::GET => Reply::Json(200, node(1, &json!([]))),
        _ => refusal(409, "Conflict", "the object has been modified"),
    });
    let taint =
        Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoSchedule, time_added: None };
    assert!(matches!(cluster.add_taint("n1", &taint).await, Err(Error::Contended { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_is_removed_with_null() {
    let (cluster, log) = cluster(|_| Reply::Json(200, node(1, &json!([]))));
    cluster.annotate_node("n1", "a/b", None).await.unwrap();
    assert_eq!(log.last().body, json!({ "metadata": { "annotations": { "a/b": null } } }));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_claimed_once_and_claiming_it_again_for_the_same_machine_is_no_error() {
    let (cluster, _) = cluster(|asked| match asked.method {
        Method::POST => refusal(409, "AlreadyExists", "configmaps \"machine-web-9100\" already exists"),
        _ => Reply::Json(200, stored(&record("one"), "7")),
    });
    assert_eq!(cluster.create_record(&record("one")).await.unwrap().resource_version, "7");
    let refused = cluster.create_record(&record("two")).await.unwrap_err();
    assert!(matches!(refused, RecordError::SlotTaken { vmid: Vmid(9100), .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_record_is_written_over_the_version_it_is_based_on() {
    let held = Mutex::new(stored(&record("one"), "7"));
    let (cluster, log) = cluster(move |asked| {
        let mut held = held.lock().unwrap();
        if asked.method == Method::PUT {
            if asked.body["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"] {
                return refusal(409, "Conflict", "the object has been modified");
            }
            held["data"] = asked.body["data"].clone();
            held["metadata"]["resourceVersion"] = json!("8");
        }
        if asked.path == CONFIG_MAPS {
            return Reply::Json(
                200,
                json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [*held] }),
            );
        }
        Reply::Json(200, held.clone())
    });
    let mut first = cluster.list_records().await.unwrap().readable.remove(0);
    let mut second = first.clone();
    first.record.task = Some("UPID:pve1:1".to_owned());
    cluster.update_record(&mut first).await.unwrap();
    assert_eq!(first.resource_version, "8");
    second.record.task = Some("UPID:pve1:2".to_owned());
    assert!(matches!(cluster.update_record(&mut second).await, Err(RecordError::Changed { .. })));
    // The answer to the first write was lost: the second write finds that the record is already stored.
    second.record = first.record.clone();
    cluster.update_record(&mut second).await.unwrap();
    assert_eq!(second.resource_version, "8");
    cluster.delete_record(&second).await.unwrap();
    assert_eq!(log.last().body["preconditions"], json!({ "uid": "u-1", "resourceVersion": "8" }));
}

#[tokio::test(start_paused = true)]
async fn records_are_listed_page_by_page_and_an_unreadable_one_keeps_its_slot() {
    let (cluster, log) = cluster(|asked| {
        let (meta, items) = if asked.query.contains("continue=more") {
            let broken = json!({ "metadata": { "name": "machine-web-9101" }, "data": { "record": "{}" } });
            (json!({}), json!([broken, { "metadata": { "name": "machine-web-9102" } }]))
        } else {
            (json!({ "continue": "more" }), json!([stored(&record("one"), "7")]))
        };
        Reply::Json(
            200,
            json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": items }),
        )
    });
    let records = cluster.list_records().await.unwrap();
    assert_eq!(records.readable[0].record, record("one"));
    let slots: Vec<_> = records.unreadable.iter().map(|one| one.vmid).collect();
    assert_eq!(slots, [Some(Vmid(9101)), Some(Vmid(9102))]);
    assert!(log.last().query.contains("labelSelector=app.kubernetes.io%2Fmanaged-by%3Dpve-autoscaler"));
}

#[tokio::test(start_paused = true)]
async fn memory_is_created_first_and_replaced_by_version_afterwards() {
    let (cluster, log) = cluster(|asked| match asked.method {
        Method::GET => refusal(404, "NotFound", "not found"),
        _ => Reply::Json(200, json!({ "metadata": { "name": "autoscaler-state", "resourceVersion": "5" } })),
    });
    let (mut memory, version) = cluster.load_memory().await.unwrap();
    assert_eq!((&memory, &version), (&Memory::default(), &None));
    memory.name_seed = 7;
    let version = cluster.store_memory(&memory, None).await.unwrap();
    assert_eq!(log.last().method, Method::POST);
    cluster.store_memory(&memory, Some(&version)).await.unwrap();
    assert_eq!(log.last().body["metadata"]["resourceVersion"], "5");
    let text = log.last().body["data"]["state"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory);
}

#[tokio::test(start_paused = true)]
async fn brakes_are_stored_also_where_a_config_map_has_no_room_for_all() {
    let (cluster, log) = cluster(|asked| {
        let text = asked.body["data"]["state"].as_str().unwrap_or_default();
        if text.len() > 1 << 20 {
            return refusal(422, "Invalid", "data: Too long: may not be more than 1048576 bytes");
        }
        Reply::Json(200, json!({ "metadata": { "name": "autoscaler-state", "resourceVersion": "5" } }))
    });
    let mut memory = Memory { name_seed: 7, removals: vec![Timestamp::UNIX_EPOCH], ..Memory::default() };
    let slice = ResourceSlice { name: "x".repeat(2 << 20), ..ResourceSlice::default() };
    memory.pools.entry("gpu".into()).or_default().device_slices = vec![slice];
    cluster.store_memory(&memory, None).await.unwrap();
    let text = log.last().body["data"]["state"].as_str().unwrap().to_owned();
    let stored: Memory = serde_json::from_str(&text).unwrap();
    assert_eq!((stored.name_seed, &stored.removals), (7, &memory.removals));
    assert!(stored.pools["gpu"].device_slices.is_empty());
}

fn saying(note: &str) -> Saying {
    Saying {
        kind: EventKind::Normal,
        reason: "NotTriggerScaleUp",
        action: "ScaleUp",
        code: "NoHostCapacity".to_owned(),
        note: note.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_said_once_in_ten_minutes() {
    let (cluster, log) = cluster(|asked| Reply::Json(201, asked.body.clone()));
    let clock = runtime::clock::TokioClock::starting_at(Timestamp::UNIX_EPOCH);
    let recorder = Recorder::new(cluster.with_clock(std::sync::Arc::new(clock)), "pve1");
    let pod = Pod {
        name: "web-1".into(),
        uid: "u-1".into(),
        spec: PodSpec { namespace: "demo".into(), ..PodSpec::default() }.into(),
        ..Pod::default()
    };
    // An event that differs only in its figures is not sent again.
    let free = AtomicU32::new(0);
    let say = || async {
        recorder.event_on_pod(&pod, &saying(&free.fetch_add(4096, Ordering::Relaxed).to_string())).await
    };
    say().await.unwrap();
    say().await.unwrap();
    assert_eq!(log.all().len(), 1);
    let asked = log.last();
    assert_eq!(asked.path, "/apis/events.k8s.io/v1/namespaces/demo/events");
    assert_eq!(asked.body["regarding"]["name"], "web-1");
    assert_eq!(asked.body["eventTime"], "1970-01-01T00:00:00.000000Z");
    tokio::time::advance(Duration::from_mins(11)).await;
    say().await.unwrap();
    assert_eq!(log.all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_named() {
    let (cluster, log) = cluster(|asked| {
        let wanted = &asked.body["spec"]["resourceAttributes"];
        let allowed = wanted["subresource"] != "eviction";
        Reply::Json(201, json!({ "spec": asked.body["spec"], "status": { "allowed": allowed } }))
    });
    let rights = cluster.rights().await.unwrap();
    let missing: Vec<_> = rights.iter().filter(|right| !right.granted).map(Right::words).collect();
    assert_eq!(missing, ["create pods/eviction"]);
    let asks_for_one = |body: &Value| {
        let wanted = &body["spec"]["resourceAttributes"];
        wanted["namespace"] == "kube-public" && wanted["name"] == "cluster-info"
    };
    assert!(log.all().iter().any(|asked| asks_for_one(&asked.body)));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_could_not_be_said_is_said_next_time() {
    let first = AtomicU32::new(0);
    let (cluster, log) = cluster(move |asked| match first.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Refused,
        _ => Reply::Json(201, asked.body.clone()),
    });
    let recorder = Recorder::new(cluster, "pve1");
    let pod = Pod {
        name: "web-1".into(),
        uid: "u-1".into(),
        spec: PodSpec { namespace: "demo".into(), ..PodSpec::default() }.into(),
        ..Pod::default()
    };
    let saying = saying("no pool fits");
    let say = || recorder.event_on_pod(&pod, &saying);
    assert!(say().await.is_err());
    say().await.unwrap();
    assert_eq!(log.all().len(), 2);
}
