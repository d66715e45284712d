//! The state before a scenario's first call, and the events between its calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use world::{
    guest::control_plane::{ControlPlane, JoinRequest},
    kubernetes::Kube,
};

use super::{
    compare,
    recording::{Entry, Given},
    stage,
};

/// An object that was created outside of the recorded calls, and the time of its creation. If there is no
/// time, the object was created before the scenario.
#[derive(Debug)]
pub struct Made {
    pub at: Option<f64>,
    pub object: Value,
}

/// What a recorded answer or watch event shows about the cluster: the time, the resource version, and the
/// objects.
struct Look {
    at: f64,
    version: u64,
    objects: Vec<Value>,
    made: bool,
    /// The identity of an object that was deleted.
    gone: Option<String>,
}

/// Returns all objects that the recorded calls show, but that neither these calls nor a controller created.
pub fn made_by_hand(scenario: &str, entries: &[Entry], began: Timestamp) -> Vec<Made> {
    let mut looks = looks(entries);
    looks.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut found: Vec<(u64, Made)> = Vec::new();
    for (number, look) in looks.iter().enumerate() {
        if let Some(gone) = &look.gone {
            known.remove(gone);
        }
        for object in &look.objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            let kept = ["Pod", "ConfigMap", "Secret", "VolumeAttachment", "Lease"].contains(&kind);
            let system = object["metadata"]["namespace"].as_str().is_some_and(|one| one.starts_with("kube-"));
            let system = system && kind != "Secret";
            if !kept
                || system
                || compare::is_furniture(object)
                || !known.insert(identity(object))
                || look.made
            {
                continue;
            }
            let made: Option<Timestamp> =
                object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse().ok());
            let old = made.is_some_and(|made| {
                made < began.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap_or(began)
            });
            if !old && object["metadata"]["ownerReferences"].is_array() {
                continue;
            }
            let version = number_of(&object["metadata"]["resourceVersion"]);
            // Assume that the object was created just before the first answer or event that shows its version
            // or a later one. If none before that shows an older version, the object existed before the
            // scenario.
            let there = looks.iter().position(|other| other.version >= version).unwrap_or(number).min(number);
            let earlier = looks.iter().take(there).any(|other| other.version > 0 && other.version < version);
            let at = looks.get(there).filter(|_| earlier && !old).map(|look| look.at - 0.004);
            let mut object = object.clone();
            if at.is_some() && object["metadata"]["deletionTimestamp"].is_string() {
                continue;
            }
            if at.is_some() && kind == "Pod" && object["status"]["phase"] == "Pending" {
                object["status"] = Value::Null;
            }
            found.push((version, Made { at, object }));
        }
    }
    found.sort_by_key(|(version, made)| (made.at.is_some(), *version));
    let mut found: Vec<Made> = found.into_iter().map(|(_, made)| made).collect();
    found.retain(|made| !stage::replaces(scenario, &made.object));
    found.extend(stage::extras(scenario).into_iter().map(|(at, object)| Made { at, object }));
    found
}

/// Kind, namespace and name.
pub fn identity(object: &Value) -> String {
    format!("{} {} {}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
}

fn number_of(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn looks(entries: &[Entry]) -> Vec<Look> {
    let mut looks = Vec::new();
    for entry in entries.iter().filter(|entry| entry.happening().is_none()) {
        if let Some(events) = entry.events() {
            for (at, event) in events {
                let object = event["object"].clone();
                let version = number_of(&object["metadata"]["resourceVersion"]);
                let added = event["type"] == "ADDED";
                // With a selector, `DELETED` may only mean that the object no longer matches the selector.
                let went = event["type"] == "DELETED" && entry.query("labelSelector").is_empty();
                let gone = went.then(|| identity(&object));
                let objects = added.then_some(object).into_iter().collect();
                looks.push(Look { at, version, objects, made: false, gone });
            }
            continue;
        }
        let body = entry.body();
        let version = number_of(&body["metadata"]["resourceVersion"]);
        let kind = body["kind"].as_str().unwrap_or_default();
        let objects = match (kind.strip_suffix("List"), body["items"].as_array()) {
            (Some(kind), Some(items)) => items
                .iter()
                .map(|item| {
                    let mut item = item.clone();
                    item["kind"] = json!(kind);
                    item
                })
                .collect(),
            _ => vec![body.clone()],
        };
        let fine = (200..300).contains(&entry.status());
        if fine && entry.method() != "DELETE" && entry.query("dryRun").is_empty() {
            looks.push(Look {
                at: entry.time(),
                version,
                objects,
                made: entry.method() == "POST",
                gone: None,
            });
        }
    }
    looks
}

/// The namespaces of all calls that were not answered with 404.
pub fn namespaces(entries: &[Entry]) -> BTreeSet<String> {
    let paths = entries.iter().filter(|entry| entry.status() != 404).filter_map(|entry| {
        let (_, rest) = entry.path().split_once("/namespaces/")?;
        Some(rest.split('/').next()?.to_owned())
    });
    paths.filter(|name| name != "none").collect()
}

/// Creates an object as it was recorded, after creating its owner. Notes the uid and version that the object
/// was given instead of the recorded ones.
pub fn make(
    kube: &Kube,
    given: &mut Given,
    owners: &mut BTreeMap<String, String>,
    object: &Value,
    all: &[Made],
) {
    let mut object = object.clone();
    let metadata = object["metadata"].clone();
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        let own = owners.entry(uid).or_insert_with(|| {
            let workload = workload(owner, &metadata, all);
            let made = kube.apply(&workload).expect("a workload");
            made["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
        });
        owner["uid"] = json!(own);
    }
    let fields = object["metadata"].as_object_mut().expect("metadata");
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        fields.remove(field);
    }
    let made = kube.apply(&object).unwrap_or_else(|why| panic!("{}: {why}", identity(&object)));
    given.learn(&json!({ "metadata": metadata }), &json!({ "metadata": made["metadata"] }));
}

/// The workload that an owner reference names, reconstructed from its pods.
fn workload(owner: &Value, metadata: &Value, all: &[Made]) -> Value {
    let pods: Vec<&Value> = all
        .iter()
        .map(|made| &made.object)
        .filter(|pod| {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|one| one["uid"] == owner["uid"]))
        })
        .collect();
    let mut spec = pods.first().map_or(Value::Null, |pod| pod["spec"].clone());
    let daemon = owner["kind"] == "DaemonSet";
    if let Some(fields) = spec.as_object_mut() {
        for field in ["nodeName", "hostname"] {
            fields.remove(field);
        }
        if daemon {
            fields.remove("affinity");
            fields.remove("tolerations");
        }
    }
    let mut labels = metadata["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| key == "app" || key == "pod-template-hash");
    }
    let mut workload = json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "metadata": { "name": owner["name"], "namespace": metadata["namespace"] },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    });
    if !daemon {
        workload["spec"]["replicas"] = json!(pods.len());
    }
    workload
}

/// The SMBIOS uuid of a node's machine.
pub fn machine(node: &str) -> String {
    if node == "worker-1" {
        return "3F9A1C7E-5B2D-4E86-9A10-C0FFEE123456".into();
    }
    let digits: u64 = node.bytes().map(u64::from).sum();
    format!("00000000-0000-4000-8000-{digits:012}")
}

/// The join request that a guest sends to the control plane. `None` if the join fails before the guest sends
/// it.
pub fn join(entry: &Entry, ca_hash: &str) -> Option<JoinRequest> {
    let data = entry.0["input_data"].as_str()?;
    let configuration: Value = serde_saphyr::from_str(data).ok()?;
    let discovery = &configuration["discovery"]["bootstrapToken"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let token = word(&discovery["token"]);
    token.split_once('.')?;
    let registration = &configuration["nodeRegistration"];
    let argument = |name: &str| {
        let arguments = registration["kubeletExtraArgs"].as_array().into_iter().flatten();
        arguments.filter(|one| one["name"] == name).map(|one| word(&one["value"])).next()
    };
    let hashes = discovery["caCertHashes"].as_array().into_iter().flatten().map(|hash| {
        let hash = word(hash);
        if hash.ends_with("0000") { hash } else { ca_hash.to_owned() }
    });
    let labels = argument("node-labels").unwrap_or_default();
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    let taints = registration["taints"].as_array().into_iter().flatten();
    let name = registration["name"].as_str().unwrap_or(entry.path()).to_owned();
    Some(JoinRequest {
        system_uuid: machine(&name),
        api_server: word(&discovery["apiServerEndpoint"]),
        token,
        ca_cert_hashes: hashes.collect(),
        node_name: name,
        addresses: vec![stage::address(entry.path())],
        cpus: 2,
        memory: 1 << 31,
        disk: 10 << 30,
        node_labels: pairs.map(|(key, value)| (key.into(), value.into())).collect(),
        taints: taints
            .map(|one| format!("{}={}:{}", word(&one["key"]), word(&one["value"]), word(&one["effect"])))
            .collect(),
        provider_id: argument("provider-id"),
        max_pods: None,
        kubelet_patch: None,
        configuration: String::new(),
    })
}

/// Repeats an event that happened between two calls.
pub async fn happen(kube: &Kube, scenario: &str, event: &str) {
    let node = match scenario {
        "04-node-join-to-removal" => "worker-1",
        "04b-node-dead-with-pods" => "worker-4",
        _ => "worker-2",
    };
    if event == "VM killed" || event == "reboot" {
        kube.power_lost(&machine(node));
    } else if event == "taint removed from h2" {
        // The call follows.
    } else if event == "victims let go" {
        for name in stage::HELD {
            kube.patch_by_hand("Pod", "s3", name, &json!({ "metadata": { "finalizers": null } }));
        }
    } else if event == "SIGTERM to the API server" || event == "API server starts again" {
        let kube = kube.clone();
        let away = event.starts_with("SIGTERM");
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            if !away {
                kube.expire_resource_versions();
            }
            kube.set_away(away);
        });
    } else if event.starts_with("kubelet of h") {
        let name = event.split_whitespace().nth(2).unwrap_or_default();
        stage::join_hollow(kube, name).await;
    }
}

/// Evicts a node's pods as `kubectl drain --ignore-daemonsets --force` does. If an eviction is refused, tries
/// again after 5 s.
pub fn drain(kube: &Kube, node: &str) {
    let daemon = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
    let pods = kube.list("Pod").into_iter().filter(|pod| pod["spec"]["nodeName"] == node && !daemon(pod));
    for pod in pods.collect::<Vec<_>>() {
        let kube = kube.clone();
        tokio::spawn(async move {
            for _ in 0..12 {
                if evict(&kube, &pod["metadata"]).await != 429 {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
    }
}

async fn evict(kube: &Kube, metadata: &Value) -> u16 {
    let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let body = json!({ "metadata": { "name": name, "namespace": namespace } }).to_string();
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header("authorization", stage::authorization("admin").unwrap_or_default())
        .body(body.into())
        .expect("a request");
    kube.handle(request).await.map_or(0, |response| response.status().as_u16())
}
