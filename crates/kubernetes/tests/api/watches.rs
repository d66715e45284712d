//! Watches: objects that arrive, changes that trigger a round, and an API server that becomes unreachable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubernetes::Watches;
use model::KubernetesVersion;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::fake::{Asked, Log, Reply, cluster, refusal};

/// An API server whose objects are stored by collection path. Tests can send events to its watches.
#[derive(Clone, Default)]
pub struct Server(pub Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<String, Vec<Value>>,
    pub watches: BTreeMap<String, mpsc::UnboundedSender<Value>>,
    pub refused: BTreeMap<String, (u16, &'static str)>,
    pub version: Option<String>,
    /// Whether CapacityBuffers are served.
    pub buffers: bool,
    /// Whether ProvisioningRequests are served.
    pub requests: bool,
    /// Whether PodGroups are served.
    pub pod_groups: bool,
    /// How long the API server takes to list Deployments.
    pub slow: Duration,
    pub down: bool,
}

impl Server {
    pub fn start(&self) -> (Watches, Log) {
        let server = self.clone();
        let (cluster, log) = cluster(move |asked| server.answer(asked));
        (Watches::start(&cluster, &CancellationToken::new()), log)
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let mut state = self.0.lock().unwrap();
        if state.down {
            return Reply::Refused;
        }
        if let Some((code, reason)) = state.refused.get(&asked.path) {
            return refusal(*code, reason, "no");
        }
        if asked.path == "/version" {
            let version = state.version.as_deref().unwrap_or("v1.36.2");
            return Reply::Json(200, about(version));
        }
        if asked.path == "/apis/autoscaling.x-k8s.io/v1" {
            return api(state.requests, &asked.path, "provisioningrequests");
        }
        if asked.path == "/apis/scheduling.k8s.io/v1beta1" {
            return api(state.pod_groups, &asked.path, "podgroups");
        }
        if asked.path == "/apis/autoscaling.x-k8s.io/v1beta1" {
            return api(state.buffers, &asked.path, "capacitybuffers");
        }
        if asked.query.contains("watch=true") {
            let (sender, receiver) = mpsc::unbounded_channel();
            state.watches.insert(asked.path.clone(), sender);
            return Reply::Stream(receiver);
        }
        let items = state.objects.get(&asked.path).cloned().unwrap_or_default();
        let list = json!({
            "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "10" }, "items": items,
        });
        if asked.path == DEPLOYMENTS { Reply::Late(state.slow, list) } else { Reply::Json(200, list) }
    }

    pub fn hold(&self, path: &str, objects: Vec<Value>) {
        self.0.lock().unwrap().objects.insert(path.to_owned(), objects);
    }

    pub fn refuse(&self, path: &str, code: u16, reason: &'static str) {
        self.0.lock().unwrap().refused.insert(path.to_owned(), (code, reason));
    }

    pub fn allow(&self, path: &str) {
        self.0.lock().unwrap().refused.remove(path);
    }

    pub async fn say(&self, path: &str, kind: &str, object: Value) {
        let watch = self.0.lock().unwrap().watches.get(path).cloned().expect("no watch is open");
        watch.send(json!({ "type": kind, "object": object })).unwrap();
        sleep(Duration::from_millis(1)).await;
    }

    /// Ends all watches. If `down` is true, new connections are refused from then on; otherwise, they are
    /// accepted again.
    pub fn down(&self, down: bool) {
        let mut state = self.0.lock().unwrap();
        state.down = down;
        state.watches.clear();
    }
}

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

fn node(name: &str, version: u32, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string() },
        "status": { "conditions": [{ "type": "Ready", "status": ready }], "allocatable": { "cpu": "2" } },
    })
}

fn pod(name: &str, version: u32, cpu: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "demo", "uid": name, "resourceVersion": version.to_string() },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
    })
}

fn about(version: &str) -> Value {
    json!({
        "major": "1", "minor": "0", "gitVersion": version, "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    })
}

/// The response that lists the resources of an API group, if the group is served.
fn api(served: bool, path: &str, plural: &str) -> Reply {
    if !served {
        return refusal(404, "NotFound", "no");
    }
    let one = json!({ "name": plural, "singularName": "", "namespaced": true, "kind": "", "verbs": ["list", "watch"] });
    let version = path.trim_start_matches("/apis/");
    let all =
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [one] });
    Reply::Json(200, all)
}

pub async fn synced(watches: &Watches) {
    timeout(Duration::from_mins(1), watches.synced()).await.expect("never synced");
    sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_and_what_comes_later_is_in_the_snapshot() {
    let server = Server::default();
    server.hold(NODES, vec![node("b", 1, "True"), node("a", 2, "True")]);
    server.hold("/api/v1/namespaces", vec![json!({ "metadata": { "name": "demo" } })]);
    let (watches, log) = server.start();
    synced(&watches).await;
    server.say(PODS, "ADDED", pod("web", 11, &json!("1"))).await;
    server.say(NODES, "DELETED", node("b", 12, "True")).await;
    let snapshot = watches.snapshot();
    assert_eq!(snapshot.nodes.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(snapshot.pods[0].requests.cpu_milli, 1000);
    assert_eq!(snapshot.namespaces[0].name, "demo");
    assert!(watches.node("a").is_some() && watches.pod("demo", "web").is_some());
    assert!(watches.is_current() && watches.problems().is_empty());
    assert!(log.all().iter().any(|asked| asked.query.contains("limit=500")));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_of_the_control_plane_is_noticed_and_worth_a_round() {
    let server = Server::default();
    let mut runs = pod("web", 1, &json!("1"));
    runs["spec"]["nodeName"] = json!("a");
    runs["spec"]["overhead"] = json!({ "cpu": "500m" });
    runs["status"] = json!({ "phase": "Running", "allocatedResources": { "cpu": "1500m" },
                             "resources": { "requests": { "cpu": "1" } } });
    server.hold(PODS, vec![runs]);
    let (watches, _) = server.start();
    synced(&watches).await;
    assert_eq!(watches.snapshot().kubernetes, KubernetesVersion::V1_36);
    assert_eq!(watches.snapshot().pods[0].requests.cpu_milli, 1500);
    let mut changed = watches.changed();
    changed.mark_unchanged();
    sleep(Duration::from_mins(10)).await;
    assert!(!changed.has_changed(), "the version has not changed");
    server.0.lock().unwrap().version = Some("v1.37.2".to_owned());
    sleep(Duration::from_mins(2)).await;
    assert!(changed.has_changed());
    assert_eq!(watches.snapshot().kubernetes, KubernetesVersion::V1_37);
    assert_eq!(
        watches.snapshot().pods[0].requests.cpu_milli,
        2000,
        "the pod is counted by the rules of 1.37"
    );
    // During an upgrade of several API servers, one may be unreachable. The known version is kept.
    server.refuse("/version", 503, "ServiceUnavailable");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(watches.snapshot().kubernetes, KubernetesVersion::V1_37);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_hides_its_version_is_taken_for_the_newest_and_the_problem_is_named() {
    for (code, version) in [(403, None), (200, Some("latest".to_owned()))] {
        let server = Server::default();
        if code == 403 {
            server.refuse("/version", code, "Forbidden");
        }
        server.0.lock().unwrap().version = version;
        let (watches, _) = server.start();
        synced(&watches).await;
        assert_eq!(watches.snapshot().kubernetes, KubernetesVersion::NEWEST);
        let problems = watches.problems();
        assert_eq!(problems.iter().map(|one| one.kind).collect::<Vec<_>>(), ["/version"], "{problems:?}");
        assert!(watches.is_current());
    }
}

#[tokio::test(start_paused = true)]
async fn only_events_that_matter_are_worth_a_round() {
    let server = Server::default();
    server.hold(NODES, vec![node("a", 1, "True")]);
    let (watches, _) = server.start();
    synced(&watches).await;
    let mut changed = watches.changed();
    changed.mark_unchanged();
    server.say(NODES, "MODIFIED", node("a", 11, "True")).await;
    assert!(!changed.has_changed(), "a heartbeat triggers no round");
    assert_eq!(watches.node("a").unwrap().resource_version, "11");
    server.say(NODES, "MODIFIED", node("a", 12, "Unknown")).await;
    assert!(changed.has_changed(), "a node that becomes silent triggers a round");
    changed.mark_unchanged();
    server.say(PODS, "ADDED", pod("web", 13, &json!("1"))).await;
    assert!(changed.has_changed(), "a new pod triggers a round");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_is_skipped_and_named_and_its_last_good_version_stays() {
    let server = Server::default();
    server.hold(
        PODS,
        vec![pod("bad", 1, &json!("much")), pod("good", 2, &json!("1")), pod("worse", 3, &json!({}))],
    );
    let (watches, _) = server.start();
    synced(&watches).await;
    let names =
        |watches: &Watches| watches.snapshot().pods.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&watches), ["good"]);
    let problems: Vec<_> = watches.problems().into_iter().map(|problem| problem.what).collect();
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains("demo/bad") && problems[1].contains("demo/worse"), "{problems:?}");
    server.say(PODS, "MODIFIED", pod("good", 12, &json!("broken"))).await;
    assert_eq!(names(&watches), ["good"]);
    server.say(PODS, "MODIFIED", pod("bad", 13, &json!("1"))).await;
    assert_eq!(names(&watches), ["bad", "good"]);
    server.say(PODS, "DELETED", pod("good", 14, &json!("1"))).await;
    assert_eq!(watches.problems().len(), 1, "{:?}", watches.problems());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_new_list() {
    let server = Server::default();
    server.hold(NODES, vec![node("a", 1, "True")]);
    let (watches, _) = server.start();
    synced(&watches).await;
    server.hold(NODES, vec![node("c", 20, "True")]);
    let gone = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 4521 (4536)", "reason": "Expired", "code": 410,
    });
    server.say(NODES, "ERROR", gone).await;
    sleep(Duration::from_secs(1)).await;
    assert!(watches.node("a").is_none() && watches.node("c").is_some());
    assert!(watches.is_current());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_lost_for_a_while_heals_and_what_was_known_stays_meanwhile() {
    let server = Server::default();
    server.hold(NODES, vec![node("a", 1, "True")]);
    let (watches, log) = server.start();
    synced(&watches).await;
    let mut changed = watches.changed();
    changed.mark_unchanged();
    server.down(true);
    let before = log.all().len();
    sleep(Duration::from_mins(10)).await;
    assert!(watches.node("a").is_some());
    assert!(!watches.is_current());
    assert!(watches.problems().iter().any(|problem| problem.kind == "Node" && problem.essential));
    assert!(log.all().len() - before < 17 * 40, "no back-off: {} calls", log.all().len() - before);
    assert!(!changed.has_changed());
    server.hold(NODES, vec![node("a", 1, "True"), node("d", 30, "True")]);
    server.down(false);
    let begun = Instant::now();
    timeout(Duration::from_mins(1), changed.changed()).await.expect("the watches did not recover");
    assert!(begun.elapsed() <= Duration::from_secs(40), "{:?}", begun.elapsed());
    sleep(Duration::from_secs(40)).await;
    assert!(watches.node("d").is_some());
    assert!(watches.is_current() && watches.problems().is_empty(), "{:?}", watches.problems());
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_not_served_or_forbidden_are_reported_and_block_nothing() {
    let server = Server::default();
    server.refuse("/apis/storage.k8s.io/v1/csinodes", 404, "NotFound");
    server.refuse("/apis/resource.k8s.io/v1/resourceslices", 404, "NotFound");
    server.refuse("/apis/batch/v1/jobs", 403, "Forbidden");
    let (watches, _) = server.start();
    synced(&watches).await;
    let kinds: Vec<_> =
        watches.problems().into_iter().map(|problem| (problem.kind, problem.essential)).collect();
    assert_eq!(kinds, [("CSINode", false), ("Job", false)]);
    assert!(watches.is_current());
    // A kind that is not served does not indicate a missing right.
    sleep(Duration::from_mins(5)).await;
    let unseen: Vec<_> = watches.unseen().into_iter().map(|problem| problem.kind).collect();
    assert_eq!(unseen, ["Job"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_while_pods_are_forbidden() {
    let server = Server::default();
    server.refuse(PODS, 403, "Forbidden");
    let (watches, _) = server.start();
    sleep(Duration::from_mins(10)).await;
    assert!(!watches.is_synced());
    assert!(watches.problems().iter().any(|problem| problem.kind == "Pod" && problem.essential));
    server.allow(PODS);
    synced(&watches).await;
    assert!(watches.problems().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_may_not_be_started_does_not_list_without_end() {
    let server = Server::default();
    let inner = server.clone();
    let (cluster, log) = cluster(move |asked| {
        if asked.path == NODES && asked.query.contains("watch=true") {
            return refusal(403, "Forbidden", "nodes is forbidden: cannot watch");
        }
        inner.answer(asked)
    });
    let _watches = Watches::start(&cluster, &CancellationToken::new());
    sleep(Duration::from_mins(10)).await;
    let lists = log.all().iter().filter(|asked| asked.path == NODES).count();
    assert!(lists < 80, "{lists} calls");
}

#[tokio::test(start_paused = true)]
async fn watches_end_with_the_last_clone() {
    let server = Server::default();
    let (watches, log) = server.start();
    synced(&watches).await;
    drop(watches);
    let before = log.all().len();
    sleep(Duration::from_mins(5)).await;
    assert_eq!(log.all().len(), before);
}
