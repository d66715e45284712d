//! Checks that the embedded control plane reports a failed join with the same errors as kubeadm's own code on
//! the real control plane.

use std::time::Duration;

use serde_json::{Value, json};
use world::clock::WorldClock;
use world::guest::control_plane::{ControlPlane, JoinFailure, JoinRequest};
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;

use crate::real::Real;
use crate::shared::bench::{Kubernetes as _, LONG_AGO, cluster};

const GOOD: &str = "abcdef.0123456789abcdef";
const EXPIRED: &str = "expire.0123456789abcdef";
const UNKNOWN: &str = "absent.0123456789abcdef";

/// A join that must fail, and kubeadm's error message.
struct Case {
    token: &'static str,
    hash: Option<String>,
    name: &'static str,
    said: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |token, hash, name, said| Case { token, hash, name, said };
    let wrong = format!("sha256:{}", "f".repeat(64));
    let unsigned = "could not find a JWS signature in the cluster-info ConfigMap for token ID";
    vec![
        case(
            GOOD,
            Some(wrong),
            "fresh",
            "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys",
        ),
        case(UNKNOWN, None, "fresh", unsigned),
        case(EXPIRED, None, "fresh", unsigned),
        case(
            GOOD,
            None,
            "cp1",
            "a Node with name \"cp1\" and status \"Ready\" already exists in the cluster",
        ),
    ]
}

/// A bootstrap token like those that `kubeadm token create` creates.
fn token(token: &str, expiration: Option<&str>) -> Value {
    let (id, secret) = token.split_once('.').unwrap();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "stringData": {
            "token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    if let Some(expiration) = expiration {
        object["data"] = json!({ "expiration": expiration });
    }
    object
}

fn request(case: &Case, endpoint: &str) -> JoinRequest {
    let trust = case
        .hash
        .as_ref()
        .map_or("unsafeSkipCAVerification: true".to_owned(), |hash| format!("caCertHashes: [\"{hash}\"]"));
    // The default discovery timeout is five minutes.
    let configuration = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ntimeouts: {{ discovery: 8s }}\n\
         discovery: {{ bootstrapToken: {{ apiServerEndpoint: \"{endpoint}\", token: {}, {trust} }} }}\n\
         nodeRegistration: {{ name: {} }}\n",
        case.token, case.name
    );
    JoinRequest {
        system_uuid: "0badc0de-0000-4000-8000-000000000001".to_owned(),
        api_server: endpoint.to_owned(),
        token: case.token.to_owned(),
        ca_cert_hashes: case.hash.iter().cloned().collect(),
        node_name: case.name.to_owned(),
        addresses: vec!["10.10.10.11".to_owned()],
        cpus: 2,
        memory: 4 << 30,
        disk: 20 << 30,
        node_labels: Vec::new(),
        taints: Vec::new(),
        provider_id: None,
        max_pods: None,
        kubelet_patch: None,
        configuration,
    }
}

fn judge(who: &str, case: &Case, end: Result<(), JoinFailure>) {
    let Err(failure) = end else {
        panic!("{who}: the join succeeded instead of failing with `{}`", case.said)
    };
    let said = failure.stderr;
    assert!(said.contains("error: error execution phase ") && said.contains(case.said), "{who}: {said}");
    assert_eq!(failure.exit_code, 1, "{who}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_says_of_a_failing_join_what_the_embedded_control_plane_says() {
    let directory = tempfile::TempDir::new().unwrap();
    let Some((_proxmox, real)) = Real::start(directory.path(), cluster()).await else { return };
    real.apply(&token(GOOD, None)).await;
    real.apply(&token(EXPIRED, Some(LONG_AGO))).await;
    // The signer processes a new token a moment after it is created.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for case in cases() {
        judge("real", &case, real.guests.join(request(&case, real.plane.endpoint())).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_embedded_control_plane_says_of_a_failing_join_what_kubeadm_says() {
    let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
    let spec = KubeSpec::demo();
    let endpoint = spec.endpoint.clone();
    let kube = Kube::new(spec, clock, 3);
    kube.apply(&token(GOOD, None)).unwrap();
    kube.apply(&token(EXPIRED, Some(LONG_AGO))).unwrap();
    // After this time, the control plane's own Node is ready and the tokens are signed.
    tokio::time::sleep(Duration::from_mins(1)).await;
    for case in cases() {
        judge("embedded", &case, kube.join(request(&case, &endpoint)).await);
    }
}
