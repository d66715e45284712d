//! Uses the embedded Kubernetes as the Kubernetes cluster of a test's `Bench`.

use std::path::Path;
use std::time::Duration;

use lab::clusters::{Clusters, Proxmox};
use serde_json::{Value, json};
use world::guest::GuestFaults;
use world::kubernetes::Kube;
use world::kubernetes::spec::{KubeSpec, KubeTimings};
use world::proxmox::spec::ClusterSpec;
use world::serve::Serving;

use crate::shared::bench::{self, Kubernetes, LONG_AGO, cluster};

/// A bench with the embedded Kubernetes.
pub type Bench = bench::Bench<Lab>;

/// The embedded Kubernetes.
pub struct Lab {
    /// The embedded Kubernetes.
    pub kube: Kube,
    _serving: Serving,
}

/// Another pool, with larger nodes.
pub const LARGE: &str = r#"
[[pool]]
name = "large"
max = 3
cores = 8
memory = "16GiB"
template = "k8s-worker-local"
vmids = "9200-9209"
addresses = "127.11.10.31-127.11.10.40"
prefix = 8
bridge = "vmbr0"
"#;

/// The test cluster, with these faults in the guest of each clone.
pub fn faulty(faults: &GuestFaults) -> ClusterSpec {
    let mut cluster = cluster();
    for vm in &mut cluster.vms {
        vm.faults = faults.clone();
    }
    cluster
}

impl Kubernetes for Lab {
    const LONG: Duration = Duration::from_mins(1);

    async fn start(directory: &Path, cluster: ClusterSpec) -> Option<(Proxmox, Self)> {
        let clusters = Clusters::start(directory, cluster, spec()).await.unwrap();
        Some((clusters.proxmox, Self { kube: clusters.kube, _serving: clusters.serving }))
    }

    async fn apply(&self, object: &Value) {
        self.kube.apply(object).unwrap();
    }

    async fn scale(&self, name: &str, replicas: u32) {
        assert!(self.kube.scale("default", name, replicas));
    }

    async fn set_away(&self, away: bool) {
        self.kube.set_away(away);
    }

    async fn replace_authority(&self, (pem, hash): (String, String)) -> (String, String) {
        self.kube.replace_authority(pem, hash)
    }

    async fn expire(&self, secret: &str) {
        let patch = json!({ "data": { "expiration": LONG_AGO } });
        // The Secret may be gone already, because its machine has joined or was given up.
        self.kube.patch_by_hand("Secret", "kube-system", secret, &patch);
    }

    fn list(&self, kind: &str) -> Vec<Value> {
        self.kube.list(kind).iter().map(|object| Value::clone(object)).collect()
    }

    fn other_nodes(&self) -> &[&str] {
        &["cp1"]
    }

    fn secrets(&self) -> Vec<String> {
        vec![KubeSpec::DEMO_ADMIN_TOKEN.to_owned()]
    }
}

fn spec() -> KubeSpec {
    let ms = Duration::from_millis;
    let timings = KubeTimings {
        pod_start: ms(50),
        pod_ready: ms(50),
        pod_stop: ms(50),
        register: ms(100),
        ready: ms(100),
        lease: ms(300),
        heartbeat: ms(500),
        kubelet_restart: ms(100),
        monitor_grace: ms(2000),
        pod_gc: ms(2000),
        ..KubeTimings::default()
    };
    KubeSpec { timings, ..KubeSpec::demo() }
}
