//! A client of the embedded Kubernetes, and the objects that it creates.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};
use world::{
    clock::WorldClock,
    guest::control_plane::JoinRequest,
    kubernetes::{
        Kube,
        spec::{KubeSpec, KubeTimings, NodeSpec, ServiceAccountSpec},
    },
};

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON: &str = "application/json-patch+json";

/// A client with a token.
#[derive(Clone)]
pub struct Client {
    pub kube: Kube,
    token: String,
}

impl Client {
    /// A client that acts as the administrator of a new cluster. The cluster has a control-plane node and the
    /// given workers, with 4 CPUs and 8 GiB each.
    pub fn new(workers: &[&str]) -> Self {
        Self::with_timings(workers, KubeTimings::default())
    }

    /// Like [`new`](Self::new), but the cluster supports PodGroups.
    pub fn with_pod_groups(workers: &[&str]) -> Self {
        Self::with(workers, KubeTimings::default(), true)
    }

    /// Like [`new`](Self::new), but with the given timings.
    pub fn with_timings(workers: &[&str], timings: KubeTimings) -> Self {
        Self::with(workers, timings, false)
    }

    fn with(workers: &[&str], timings: KubeTimings, pod_groups: bool) -> Self {
        let mut nodes = vec![NodeSpec::control_plane("cp1")];
        nodes.extend(workers.iter().map(|name| NodeSpec::worker(name, 4, 8)));
        let account = ServiceAccountSpec {
            name: "system:serviceaccount:default:bot".into(),
            token: "bot".into(),
            rules: Vec::new(),
        };
        let spec =
            KubeSpec { nodes, timings, pod_groups, service_accounts: vec![account], ..KubeSpec::demo() };
        let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().expect("a time"));
        Self { kube: Kube::new(spec, clock, 1), token: KubeSpec::DEMO_ADMIN_TOKEN.into() }
    }

    /// A client of the same cluster with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { kube: self.kube.clone(), token: token.into() }
    }

    fn request(&self, method: &str, path: &str, media: &str, body: &str) -> Request<Bytes> {
        Request::builder()
            .method(method)
            .uri(format!("https://lab{path}"))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", media)
            .body(Bytes::from(body.to_owned()))
            .expect("a request")
    }

    /// Makes a call with a body of the given media type. Returns the status and the body of the answer.
    pub async fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = self.request(method, path, media, &body);
        let Ok(response) = self.kube.handle(request).await else { return (0, Value::Null) };
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Makes a call with a JSON body. Returns the status and the body of the answer.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.send(method, path, "application/json", &body).await
    }

    /// The object or list at a path.
    pub async fn get(&self, path: &str) -> Value {
        self.call("GET", path, Value::Null).await.1
    }

    /// Creates or changes an object directly, without an API request.
    pub fn apply(&self, object: &Value) {
        self.kube.apply(object).expect("a valid object");
    }

    /// All pods, each with its name, node and phase.
    pub fn pods(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = self.kube.list("Pod").into_iter();
        pods.map(|pod| {
            (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]), text(&pod["status"]["phase"]))
        })
        .collect()
    }

    /// Reads a watch for the given time. Returns each event with the seconds since the start, its type and
    /// its object.
    pub fn watch(&self, path: &str, time: Duration) -> JoinHandle<Vec<(f64, String, Value)>> {
        let (kube, request) = (self.kube.clone(), self.request("GET", path, "", ""));
        tokio::spawn(async move {
            let began = Instant::now();
            let mut body = kube.handle(request).await.expect("an answer").into_body();
            let mut events = Vec::new();
            while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(began + time, body.frame()).await {
                let event: Value = serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON");
                let of = event["type"].as_str().unwrap_or_default().to_owned();
                events.push((began.elapsed().as_secs_f64(), of, event["object"].clone()));
            }
            events
        })
    }
}

/// Waits for this many seconds.
pub async fn seconds(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// A pod that requests this much CPU. The fields of `more` are added to its spec.
pub fn pod(name: &str, cpu: &str, more: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": cpu } } }] },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// A workload whose pods request 100m of CPU.
pub fn workload(kind: &str, name: &str, replicas: u32) -> Value {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object = json!({
        "apiVersion": group,
        "kind": kind,
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": pod(name, "100m", Value::Null),
        },
    });
    match kind {
        "DaemonSet" => {}
        "Job" => {
            object["spec"]["parallelism"] = json!(replicas);
            object["spec"]["completions"] = json!(replicas);
        }
        _ => object["spec"]["replicas"] = json!(replicas),
    }
    object
}

/// A bootstrap token as kubeadm creates it, with some fields set (`Some`) or removed (`None`).
pub fn token(id: &str, changes: &[(&str, Option<&str>)]) -> Value {
    let mut secret = json!({
        "kind": "Secret",
        "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    let fields = secret["stringData"].as_object_mut().expect("fields");
    for (name, value) in changes {
        match value {
            Some(value) => fields.insert((*name).into(), json!(value)),
            None => fields.remove(*name),
        };
    }
    secret
}

/// The join request of a guest.
pub fn join(name: &str, token_id: &str) -> JoinRequest {
    JoinRequest {
        system_uuid: format!("AAAAAAAA-0000-4000-8000-{:012}", name.len()),
        api_server: KubeSpec::demo().endpoint,
        token: format!("{token_id}.0123456789abcdef"),
        ca_cert_hashes: vec![KubeSpec::demo().ca_hash],
        node_name: name.into(),
        addresses: vec!["10.10.10.11".into()],
        cpus: 4,
        memory: 8 << 30,
        disk: 20 << 30,
        node_labels: vec![("pool".into(), "a".into())],
        taints: vec!["startup=true:NoSchedule".into()],
        provider_id: None,
        max_pods: None,
        kubelet_patch: None,
        configuration: String::new(),
    }
}
