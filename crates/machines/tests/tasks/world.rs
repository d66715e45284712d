//! The environment of machines' tasks: an embedded Proxmox VE, and the part of the Kubernetes API that the
//! tasks use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::Method;
use jiff::SignedDuration;
use kubernetes::{Cluster, Recorder, Versioned, Watches};
use machines::{self, Context, Ending, KnownFacts, MachineReport, NoProbe, Pace, Registry, Templates};
use model::machine::Intent;
use model::{Record, Slot, Vmid};
use proxmox::marker::Marker;
use proxmox::{Client, CloneRequest, Settings, Upid};
use runtime::clock::TokioClock;
use runtime::fence::Fence;
use serde_json::{Value, json};
use settings::{Config, Needs, parse};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use world::proxmox::Pve;

use crate::fake::{self, Asked, Reply, refusal};
use crate::support;

const CONFIG: &str = r#"
cluster = "home"

[proxmox]
endpoints = ["https://127.0.0.1:8006"]
token_id = "autoscaler@pve!agent"
token_file = "/none"
ca_file = "/none"
resource_pool = "k8s-workers"

[[pool]]
name = "workers"
template = "k8s-worker"
min = 0
max = 20
cores = 2
memory = "4GiB"
vmids = "9101-9130"
"#;

type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// Three sets of objects, each by name: ConfigMaps, Nodes, and pods. Evictions of the pods are refused
/// because of a disruption budget.
#[derive(Clone, Default)]
pub struct Store(Objects, Objects, Objects);

impl Store {
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    /// The values of a label on the ConfigMaps.
    pub fn labels(&self, key: &str) -> Vec<String> {
        let maps = self.0.lock().unwrap();
        maps.values().filter_map(|map| Some(map["metadata"]["labels"][key].as_str()?.to_owned())).collect()
    }

    /// Adds or replaces a Node with this `systemUUID`. `ready` is the status of its `Ready` condition.
    pub fn put_node(&self, name: &str, uuid: &str, ready: &str) {
        let node = json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" },
            "status": {
                "conditions": [{ "type": "Ready", "status": ready }],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.0", "machineID": "",
                    "operatingSystem": "linux", "osImage": "", "systemUUID": uuid,
                },
            },
        });
        self.1.lock().unwrap().insert(name.to_owned(), node);
    }

    /// Marks a Node as one that is being drained.
    pub fn taint_node(&self, name: &str) {
        let taint = json!({ "key": "pve-autoscaler/being-deleted", "effect": "NoSchedule" });
        if let Some(node) = self.1.lock().unwrap().get_mut(name) {
            node["spec"] = json!({ "unschedulable": true, "taints": [taint] });
        }
    }

    /// Adds a ReplicaSet's pod to this Node. Evictions of the pod are refused.
    pub fn put_kept_pod(&self, name: &str, node: &str) {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true });
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": { "name": name, "namespace": "d", "uid": format!("uid-{name}"), "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        self.2.lock().unwrap().insert(name.to_owned(), pod);
    }

    /// The answer to a request for the list of pods or for an eviction; `None` for any other request.
    fn pods(&self, asked: &Asked) -> Option<Reply> {
        if asked.path.ends_with("/eviction") {
            return Some(refusal(429, "TooManyRequests", "it would violate the pod's disruption budget"));
        }
        let items: Vec<Value> = self.2.lock().unwrap().values().cloned().collect();
        let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items });
        (asked.path == "/api/v1/pods").then(|| Reply::Json(200, list))
    }

    pub fn has_node(&self, name: &str) -> bool {
        self.1.lock().unwrap().contains_key(name)
    }

    fn node(&self, method: &Method, name: &str) -> Option<Reply> {
        let mut nodes = self.1.lock().unwrap();
        let node = if *method == Method::DELETE { nodes.remove(name) } else { nodes.get(name).cloned() };
        node.map(|node| Reply::Json(200, node))
    }

    fn answer(&self, asked: &Asked) -> Reply {
        if asked.query.contains("watch=true") {
            return Reply::Silence;
        }
        if let Some(reply) = self.pods(asked) {
            return reply;
        }
        let node = asked.path.strip_prefix("/api/v1/nodes/");
        if let Some(reply) = node.and_then(|name| self.node(&asked.method, name)) {
            return reply;
        }
        let path = "/api/v1/namespaces/pve-autoscaler/configmaps";
        let name = asked.path.strip_prefix(path).map(|rest| rest.trim_start_matches('/').to_owned());
        let Some(name) = name else {
            return match asked.method {
                Method::GET if !asked.path.starts_with("/api/v1/nodes/") => Reply::Json(
                    200,
                    json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] }),
                ),
                _ => refusal(404, "NotFound", "the server could not find the requested resource"),
            };
        };
        let mut maps = self.0.lock().unwrap();
        let mut stored = asked.body.clone();
        match asked.method {
            Method::POST => {
                let name = stored["metadata"]["name"].as_str().unwrap().to_owned();
                if maps.contains_key(&name) {
                    return refusal(409, "AlreadyExists", "it exists");
                }
                stored["metadata"]["uid"] = format!("uid-{name}").into();
                stored["metadata"]["resourceVersion"] = "1".into();
                maps.insert(name, stored.clone());
                Reply::Json(201, stored)
            }
            Method::PUT => {
                let Some(known) = maps.get(&name) else {
                    return refusal(404, "NotFound", "the ConfigMap does not exist");
                };
                let version = &known["metadata"]["resourceVersion"];
                if stored["metadata"]["resourceVersion"] != *version {
                    return refusal(409, "Conflict", "it was changed");
                }
                let next = version.as_str().unwrap().parse::<u32>().unwrap() + 1;
                stored["metadata"]["resourceVersion"] = next.to_string().into();
                maps.insert(name, stored.clone());
                Reply::Json(200, stored)
            }
            Method::DELETE => match maps.remove(&name) {
                Some(gone) => Reply::Json(200, gone),
                None => refusal(404, "NotFound", "the ConfigMap does not exist"),
            },
            _ if name.is_empty() => {
                let items: Vec<Value> = maps.values().cloned().collect();
                Reply::Json(
                    200,
                    json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items }),
                )
            }
            _ => match maps.get(&name) {
                Some(map) => Reply::Json(200, map.clone()),
                None => refusal(404, "NotFound", "the ConfigMap does not exist"),
            },
        }
    }
}

/// Everything that a machine's task uses, and the channel for its reports.
pub struct World {
    pub pve: Pve,
    pub store: Store,
    pub context: Context,
    pub reports: mpsc::UnboundedSender<MachineReport>,
    pub told: mpsc::UnboundedReceiver<MachineReport>,
}

impl World {
    /// A world whose configuration was changed by `change`.
    pub async fn new(pve: Pve, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = parse("config.toml", CONFIG, Needs::Plan).unwrap();
        change(&mut config);
        let settings =
            Settings { linked_clones: 3, full_clones: 2, ..support::settings(&["https://127.0.0.1:8006"]) };
        let proxmox = Client::new(support::in_process(&pve), settings, &support::secret()).unwrap();
        let store = Store::default();
        let answering = store.clone();
        let (kubernetes, _): (Cluster, _) = fake::cluster(move |asked| answering.answer(asked));
        let templates = Templates::default();
        // The list of guests contains names only after the first update of the statistics.
        tokio::time::sleep(std::time::Duration::from_secs(15)).await;
        let seen = proxmox.resources().await.unwrap();
        templates.refresh(&proxmox, &config, &seen).await.unwrap();
        let (reports, told) = mpsc::unbounded_channel();
        let config = Arc::new(config);
        let context = Context {
            live: tokio::sync::watch::channel(config.clone()).1,
            config,
            proxmox,
            watches: Watches::start(&kubernetes, &CancellationToken::new()),
            recorder: Recorder::new(kubernetes.clone(), "test"),
            kubernetes,
            clock: Arc::new(TokioClock::starting_at("2026-11-21T00:00:00Z".parse().unwrap())),
            probe: Arc::new(NoProbe),
            registry: Registry::default(),
            pace: Pace::default(),
            templates,
            creating: Arc::new(Semaphore::new(10)),
            cluster_facts: KnownFacts::default(),
            controllers: Arc::new(|_| Err("there is none".to_owned())),
            fence: Fence::open(),
            pause: tokio::sync::watch::channel(None).1,
        };
        Self { pve, store, context, reports, told }
    }

    /// Sets the daemon's clock ahead of the hosts' clocks by this much.
    pub fn ahead(&mut self, by: SignedDuration) {
        self.context.clock = Arc::new(TokioClock::starting_at(self.context.clock.now() + by));
    }

    /// The record of a new machine of the pool.
    pub fn record(&self, vmid: Vmid) -> Record {
        let created = self.context.clock.now();
        Record {
            id: format!("m-{vmid}").into(),
            name: format!("workers-{vmid}"),
            slot: Slot { vmid, ..Slot::default() },
            created,
            ..Record::example()
        }
    }

    /// A stored record of a machine whose creation failed.
    pub async fn failed(&self, vmid: Vmid) -> Versioned<Record> {
        self.failed_with(vmid, None).await
    }

    /// Like [`Self::failed`], but with the task that the machine was waiting for.
    pub async fn failed_with(&self, vmid: Vmid, task: Option<&Upid>) -> Versioned<Record> {
        let intent = Intent::Discard { reason: "a test".to_owned(), since: self.context.clock.now() };
        let record = Record { intent, task: task.map(ToString::to_string), ..self.record(vmid) };
        self.context.kubernetes.create_record(&record).await.unwrap()
    }

    /// The stored records, as a new leader finds them.
    pub async fn stored(&self) -> Vec<Versioned<Record>> {
        self.context.kubernetes.list_records().await.unwrap().readable
    }

    /// Creates the VM of the machine with [`support::VMID`].
    pub async fn ours(&self) {
        let upid = self.begin_clone().await;
        assert!(support::done(&self.context.proxmox, &upid).await.is_success());
    }

    /// Begins to create the VM of the machine with [`support::VMID`], and returns the clone task.
    pub async fn begin_clone(&self) -> Upid {
        self.ask_for_clone().await.unwrap()
    }

    /// Requests the VM of the machine with [`support::VMID`]. The request is sent even if the caller does not
    /// await the returned handle.
    pub fn ask_for_clone(&self) -> JoinHandle<Upid> {
        let machine = self.record(support::VMID).id;
        let marker = Marker {
            cluster: "home".to_owned(),
            region: None,
            pool: "workers".into(),
            machine,
            kubernetes: None,
        };
        let request =
            CloneRequest { description: marker.describe("for no node"), ..support::clone_request() };
        let proxmox = self.context.proxmox.clone();
        tokio::spawn(async move { proxmox.clone_vm(&request).await.unwrap() })
    }

    /// Resumes the only machine, as after a start of the daemon. Returns how its task ended.
    pub async fn go_on(&mut self) -> Ending {
        let stored = self.stored().await.pop().unwrap();
        self.go_on_with(stored).await
    }

    /// Like [`Self::go_on`], but with a record that was read earlier.
    pub async fn go_on_with(&mut self, stored: Versioned<Record>) -> Ending {
        tokio::spawn(machines::adopt(self.context.clone(), stored, self.reports.clone())).await.unwrap();
        self.told.recv().await.unwrap().ending
    }
}
