//! The real `kubectl` against the embedded Kubernetes, over TLS. Skipped if there is no `kubectl`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use world::{
    clock::WorldClock,
    kubernetes::{
        Kube,
        spec::{KubeSpec, KubeTimings, NodeSpec},
    },
    serve::{serve_https, tls::ServerTls},
};

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: pause, resources: {requests: {cpu: 100m}}}]
";

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("kubectl-test-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs kubectl. Returns whether it succeeded, and its output on both streams.
fn kubectl(home: &Path, line: &str) -> (bool, String) {
    let output = Command::new("kubectl")
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .current_dir(home)
        .args(line.split(' '))
        .output()
        .expect("kubectl runs");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// The commands, in order. For each: its arguments, whether it succeeds, and parts of its expected output.
const SESSION: &[(&str, bool, &[&str])] = &[
    ("get nodes,pods -A", true, &["node/cp1", "node/w1", "Ready"]),
    ("get nodes -o wide", true, &["INTERNAL-IP", "containerd://"]),
    ("api-resources", true, &["deployments", "poddisruptionbudgets"]),
    ("auth can-i create pods/eviction", true, &["yes"]),
    ("apply -f deployment.yaml", true, &["deployment.apps/web created"]),
    ("rollout status deployment/web --timeout=20s", true, &["successfully rolled out"]),
    ("apply -f deployment.yaml", true, &["deployment.apps/web unchanged"]),
    ("wait --for=condition=Ready pod -l app=web --timeout=20s", true, &["condition met"]),
    ("create deployment two --image=pause", true, &["deployment.apps/two created"]),
    ("scale deployment web --replicas=3", true, &["deployment.apps/web scaled"]),
    ("rollout status deployment/web --timeout=20s", true, &["successfully rolled out"]),
    ("get deployment web", true, &["3/3"]),
    ("get all", true, &["deployment.apps/web", "replicaset.apps/web-", "pod/web-"]),
    ("describe node w1", true, &["KubeletReady", "RegisteredNode", "web-", "cpu                300m (7%)"]),
    (
        "describe pod -l app=web",
        true,
        &["Controlled By:  ReplicaSet/web-", "Successfully assigned default/web-"],
    ),
    ("get events", true, &["Scheduled", "node/w1"]),
    ("logs deployment/web", false, &["they write no logs"]),
    (
        "create pdb web --selector=app=web --min-available=3",
        true,
        &["poddisruptionbudget.policy/web created"],
    ),
    ("cordon w1", true, &["node/w1 cordoned"]),
    ("drain w1 --timeout=1s", false, &["would violate the pod's disruption budget"]),
    ("delete pdb web", true, &["deleted"]),
    ("drain w1 --timeout=20s", true, &["node/w1 drained"]),
    ("get pods -l app=web", true, &["Pending"]),
    ("uncordon w1", true, &["node/w1 uncordoned"]),
    ("rollout status deployment/web --timeout=20s", true, &["successfully rolled out"]),
    ("taint node w1 a=b:NoSchedule", true, &["node/w1 tainted"]),
    ("create namespace n1", true, &["namespace/n1 created"]),
    ("delete namespace n1", true, &["deleted"]),
    ("delete deployment web two", true, &["\"web\" deleted", "\"two\" deleted"]),
    ("delete node w1", true, &["\"w1\" deleted"]),
    ("get node w1", false, &["nodes \"w1\" not found"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_kubectl_goes_as_against_a_real_cluster() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        println!("skipped: there is no kubectl");
        return;
    }
    let tls = ServerTls::for_loopback("Kubernetes").expect("certificates");
    let fast = Duration::from_millis(50);
    let spec = KubeSpec {
        ca_pem: tls.ca_pem.clone(),
        nodes: vec![NodeSpec::control_plane("cp1"), NodeSpec::worker("w1", 4, 8)],
        timings: KubeTimings { pod_start: fast, pod_ready: fast, pod_stop: fast, ..KubeTimings::default() },
        ..KubeSpec::demo()
    };
    let kube = Kube::new(spec, WorldClock::starting_at("2026-11-21T00:00:00Z".parse().expect("a time")), 1);
    let api = kube.clone();
    let handler = move |request| {
        let api = api.clone();
        async move { api.handle(request).await }
    };
    let serving = serve_https(handler, "127.0.0.1:0".parse().expect("address"), &tls).await.expect("bound");
    let scratch = Scratch::new();
    let url = format!("https://{}", serving.address());
    fs::write(scratch.0.join("kubeconfig"), kube.kubeconfig(&url)).expect("written");
    fs::write(scratch.0.join("deployment.yaml"), DEPLOYMENT).expect("written");
    for (line, succeeds, parts) in SESSION {
        let home = scratch.0.clone();
        let ran = tokio::task::spawn_blocking(move || kubectl(&home, line)).await.expect("ran");
        assert_eq!(ran.0, *succeeds, "kubectl {line}: {}", ran.1);
        for part in *parts {
            assert!(ran.1.contains(part), "kubectl {line}: no {part:?} in {}", ran.1);
        }
    }
}
