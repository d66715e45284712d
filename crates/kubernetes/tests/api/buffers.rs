//! Tests CapacityBuffers and ProvisioningRequests, and the objects that are watched only while a buffer or
//! request refers to them.

use std::time::Duration;

use kubernetes::Watches;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fake::Log;
use crate::watches::{DEPLOYMENTS, Server, synced};

const BUFFERS: &str = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers";
const TEMPLATES: &str = "/api/v1/podtemplates";

fn buffer(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": { "name": name, "namespace": "demo", "uid": name, "resourceVersion": "1" }, "spec": spec,
    })
}

/// A Deployment in the namespace `demo`.
fn deployment(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "demo", "resourceVersion": "2" },
        "spec": {
            "replicas": 3, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main" }] } },
        },
    })
}

/// The names of the buffers in the snapshot.
fn seen(watches: &Watches) -> Vec<String> {
    watches.snapshot().buffers.iter().map(|buffer| buffer.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn of_what_buffers_refer_to_templates_are_kept_and_of_nothing_else() {
    let server = Server::default();
    server.0.lock().unwrap().buffers = true;
    let web = json!({ "scalableRef": { "apiGroup": "apps", "kind": "Deployment", "name": "web" }, "percentage": 50 });
    server.hold(BUFFERS, vec![buffer("share", &web)]);
    server.hold(DEPLOYMENTS, vec![deployment("web"), deployment("other")]);
    let (watches, log) = server.start();
    synced(&watches).await;
    let templates = |watches: &Watches| {
        let all = watches.snapshot().controllers;
        all.iter().map(|one| (one.name.clone(), one.template.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(templates(&watches), [("other".to_owned(), false), ("web".to_owned(), true)]);
    assert_eq!(seen(&watches), ["share"]);
    assert!(log.all().iter().all(|asked| asked.path != TEMPLATES), "no buffer refers to a PodTemplate");
    // The buffer is left out until its template has been looked up.
    let mut changed = watches.changed();
    changed.mark_unchanged();
    server.hold(TEMPLATES, Vec::new());
    server
        .say(BUFFERS, "ADDED", buffer("fixed", &json!({ "podTemplateRef": { "name": "t" }, "replicas": 1 })))
        .await;
    assert!(changed.has_changed());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(seen(&watches), ["fixed", "share"]);
    assert!(log.all().iter().any(|asked| asked.path == TEMPLATES));
    // Writing a status does not trigger a round.
    changed.mark_unchanged();
    let mut told = buffer("share", &web);
    (told["metadata"]["resourceVersion"], told["status"]) = (json!("9"), json!({ "replicas": 2 }));
    server.say(BUFFERS, "MODIFIED", told).await;
    assert!(!changed.has_changed());
    assert_eq!(watches.snapshot().buffers[1].resource_version, "9");
    server.say(DEPLOYMENTS, "MODIFIED", deployment("other")).await;
    assert!(!changed.has_changed());
    let mut more = deployment("web");
    more["spec"]["replicas"] = json!(5);
    server.say(DEPLOYMENTS, "MODIFIED", more).await;
    assert!(changed.has_changed());
    assert!(watches.problems().is_empty(), "{:?}", watches.problems());
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_templates_the_others_go_on_and_the_problem_is_named() {
    let server = Server::default();
    server.0.lock().unwrap().buffers = true;
    server.refuse(TEMPLATES, 403, "Forbidden");
    let fixed = buffer("fixed", &json!({ "podTemplateRef": { "name": "t" }, "replicas": 1 }));
    server.hold(BUFFERS, vec![fixed, buffer("neither", &json!({ "replicas": 1 }))]);
    let (watches, _) = server.start();
    synced(&watches).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(seen(&watches), ["neither"]);
    let unseen: Vec<_> = watches.unseen().into_iter().map(|problem| problem.kind).collect();
    assert_eq!(unseen, ["PodTemplate"]);
    assert!(watches.is_current());
    server.allow(TEMPLATES);
    sleep(Duration::from_mins(6)).await;
    assert_eq!(seen(&watches), ["fixed", "neither"]);
}

#[tokio::test(start_paused = true)]
async fn buffers_are_forgotten_when_they_are_served_no_more() {
    let server = Server::default();
    server.0.lock().unwrap().buffers = true;
    server.hold(BUFFERS, vec![buffer("neither", &json!({ "replicas": 1 }))]);
    let (watches, log) = server.start();
    synced(&watches).await;
    assert_eq!(seen(&watches), ["neither"]);
    server.0.lock().unwrap().buffers = false;
    server.refuse(BUFFERS, 404, "NotFound");
    sleep(Duration::from_mins(6)).await;
    assert_eq!(seen(&watches), Vec::<String>::new());
    let before = log.all().iter().filter(|asked| asked.path == BUFFERS).count();
    sleep(Duration::from_mins(20)).await;
    assert_eq!(log.all().iter().filter(|asked| asked.path == BUFFERS).count(), before);
    assert!(watches.problems().is_empty() && watches.is_current());
}

const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests";

/// A request for one pod of a template.
fn request(name: &str, template: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": { "name": name, "namespace": "demo", "uid": name, "resourceVersion": "1" },
        "spec": {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "podSets": [{ "podTemplateRef": { "name": template }, "count": 1 }],
        },
    })
}

fn pod_template(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": name, "namespace": "demo", "resourceVersion": "1" },
        "template": { "spec": { "containers": [{ "name": "main" }] } },
    })
}

/// The names of the requests and of the templates in the snapshot.
fn asked(watches: &Watches) -> (Vec<String>, Vec<String>) {
    let snapshot = watches.snapshot();
    let requests = snapshot.requests.expect("requests are served");
    let requests = requests.iter().map(|one| one.name.clone()).collect();
    (requests, snapshot.pod_templates.iter().map(|one| one.name.clone()).collect())
}

fn names(requests: &[&str], templates: &[&str]) -> (Vec<String>, Vec<String>) {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    (owned(requests), owned(templates))
}

#[tokio::test(start_paused = true)]
async fn there_is_no_request_whose_template_may_be_missing_from_an_old_list_alone() {
    let server = Server::default();
    server.0.lock().unwrap().requests = true;
    server.hold(TEMPLATES, vec![pod_template("t1")]);
    server.hold(REQUESTS, vec![request("r1", "t1")]);
    let (watches, _) = server.start();
    synced(&watches).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(asked(&watches), names(&["r1"], &["t1"]));
    // Without a request, templates are not watched. When the next request arrives, the templates that were
    // known before may be outdated, so they are not used.
    server.say(REQUESTS, "DELETED", request("r1", "t1")).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(asked(&watches), names(&[], &[]));
    server.refuse(TEMPLATES, 503, "ServiceUnavailable");
    server.say(REQUESTS, "ADDED", request("r2", "t2")).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(asked(&watches), names(&[], &[]));
    server.hold(TEMPLATES, vec![pod_template("t1"), pod_template("t2")]);
    server.allow(TEMPLATES);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(asked(&watches), names(&["r2"], &["t1", "t2"]));
    // While templates cannot be read, requests with known templates remain visible.
    server.refuse(TEMPLATES, 503, "ServiceUnavailable");
    server.0.lock().unwrap().watches.remove(TEMPLATES);
    sleep(Duration::from_secs(5)).await;
    server.say(REQUESTS, "ADDED", request("r3", "t3")).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(asked(&watches), names(&["r2"], &["t1", "t2"]));
    // Once templates can be read again, the template of `r3` is known to be missing, so the snapshot contains
    // the request.
    server.allow(TEMPLATES);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(asked(&watches), names(&["r2", "r3"], &["t1", "t2"]));
}

#[tokio::test(start_paused = true)]
async fn references_that_change_all_the_time_keep_no_kind_from_being_seen() {
    let server = Server::default();
    {
        let mut state = server.0.lock().unwrap();
        (state.buffers, state.slow) = (true, Duration::from_secs(3));
    }
    server.hold(DEPLOYMENTS, vec![deployment("other"), deployment("web-59")]);
    let (watches, log) = server.start();
    sleep(Duration::from_millis(100)).await;
    let one = |number: u32| {
        let reference = json!({ "apiGroup": "apps", "kind": "Deployment", "name": format!("web-{number}") });
        buffer(&format!("b-{number}"), &json!({ "scalableRef": reference, "percentage": 50 }))
    };
    for number in 0..60 {
        server.say(BUFFERS, "ADDED", one(number)).await;
        if number > 0 {
            server.say(BUFFERS, "DELETED", one(number - 1)).await;
        }
        sleep(Duration::from_secs(1)).await;
        assert!(watches.is_synced() || number < 5, "{number}");
    }
    let lists = |log: &Log| {
        log.all()
            .iter()
            .filter(|asked| asked.path == DEPLOYMENTS && !asked.query.contains("watch=true"))
            .count()
    };
    assert!((5..=14).contains(&lists(&log)), "{} lists", lists(&log));
    sleep(Duration::from_secs(15)).await;
    let kept: Vec<_> =
        watches.snapshot().controllers.iter().map(|one| (one.name.clone(), one.template.is_some())).collect();
    assert_eq!(kept, [("other".to_owned(), false), ("web-59".to_owned(), true)]);
    assert_eq!(seen(&watches), ["b-59"]);
    let before = lists(&log);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(lists(&log), before, "the references have not changed");
}
