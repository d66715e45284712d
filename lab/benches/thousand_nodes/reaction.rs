//! Measures the time from the scheduler's report that a pod fits no node until a clone is requested for the
//! pod.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use jiff::Timestamp;
use lab::clusters::Proxmox;
use serde_json::{Value, json};
use tokio::time::Instant;
use world::clock::WorldClock;

use crate::cluster::Cluster;

/// The time limit for each wait, which is far longer than a wait usually takes.
const LIMIT: Duration = Duration::from_mins(1);
/// The pods' label.
const LABEL: &str = "example.com/measured";

/// Creates one pod after another. Returns the measured times, shortest first.
pub async fn measured(cluster: &Cluster, proxmox: &Proxmox, samples: usize) -> Vec<Duration> {
    let (said, heard) = channel();
    let admin = cluster.admin.clone();
    let clock = cluster.clock.clone();
    // A separate watch shows when a pod becomes unschedulable, as the daemon sees it. The times in a pod's
    // conditions are not precise enough, because they are in whole seconds.
    let watching = tokio::spawn(async move {
        let path = format!("/api/v1/namespaces/default/pods?watch=1&labelSelector={LABEL}");
        // A busy API server may end a watch. A new watch begins with the existing pods.
        while let Err(error) = admin.watch(&path, |event| note(&event, &clock, &said)).await {
            println!("  the watch of the benchmark's pods ended and begins again: {error:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut random = fastrand::Rng::with_seed(5);
    let mut waits = Vec::new();
    for sample in 0..samples {
        tokio::time::sleep(Duration::from_millis(random.u64(500..2500))).await;
        let known = clones(proxmox).len();
        let name = format!("measured-{sample}");
        let create = ["create", "--validate=false", "-f", "-"];
        cluster.admin.kubectl(&create, &pod(&name)).await.unwrap();
        let asked = until("a clone is requested", || clones(proxmox).get(known).copied()).await;
        let since = until("the pod is unschedulable", || unschedulable(&heard, &name)).await;
        // The call is recorded when it is answered, so the duration of the request is subtracted.
        let wait = Duration::try_from(asked.duration_since(since)).unwrap_or_default();
        waits.push(wait.saturating_sub(proxmox.pve.request_time()));
    }
    watching.abort();
    waits.sort_unstable();
    waits
}

fn note(event: &Value, clock: &WorldClock, said: &Sender<(String, Timestamp)>) -> bool {
    let pod = &event["object"];
    let conditions = pod["status"]["conditions"].as_array();
    let waits = conditions.into_iter().flatten().any(|one| one["reason"] == "Unschedulable");
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    !waits || said.send((name.to_owned(), clock.now())).is_ok()
}

/// The time at which the watch first showed that this pod is unschedulable.
fn unschedulable(heard: &Receiver<(String, Timestamp)>, name: &str) -> Option<Timestamp> {
    heard.try_iter().find(|(pod, _)| pod == name).map(|(_, at)| at)
}

/// The times at which clones were requested.
fn clones(proxmox: &Proxmox) -> Vec<Timestamp> {
    let calls = proxmox.pve.calls();
    calls.iter().filter(|call| call.path.ends_with("/clone")).map(|call| call.time).collect()
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "still not true after {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn pod(name: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { LABEL: "yes" } },
        "spec": {
            "nodeSelector": { "example.com/for": "reaction" },
            "containers": [{
                "name": "app", "image": "registry.example/app:1",
                "resources": { "requests": { "cpu": "700m", "memory": "128Mi" } },
            }],
        },
    })
    .to_string()
}
