//! Runs `plan`, `explain` and `snapshot` against live clusters, as an operator does. The clusters are the
//! embedded Proxmox VE and a Kubernetes API that lists a few objects and keeps its watches open.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod lab;

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use world::proxmox::spec::ClusterSpec;
use world::serve::{Body, NoAnswer, full, serve_https, tls::ServerTls};

fn node() -> Value {
    json!({"metadata": {"name": "workers-a", "uid": "n1", "resourceVersion": "1",
                        "labels": {"pve-autoscaler/pool": "workers", "kubernetes.io/hostname": "workers-a"}},
           "status": {"allocatable": {"cpu": "1", "memory": "2Gi", "pods": "110"},
                      "conditions": [{"type": "Ready", "status": "True"}],
                      "nodeInfo": {"architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                                   "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                                   "osImage": "", "systemUUID": "AB"}}})
}

fn pod() -> Value {
    json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "p1", "resourceVersion": "2"},
           "spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hidden"}],
                                    "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]},
           "status": {"phase": "Pending", "conditions": [
               {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

/// Answers a GET with a list. Keeps a watch open without sending anything.
async fn kubernetes(request: Request<Bytes>) -> Result<Response<Body>, NoAnswer> {
    let path = request.uri().path();
    if request.uri().query().unwrap_or_default().contains("watch=true") {
        let silence = futures::stream::pending::<Result<hyper::body::Frame<Bytes>, Infallible>>();
        let body = http_body_util::StreamBody::new(silence).map_err(|never| match never {});
        return Ok(Response::new(Body::new(body)));
    }
    if path.contains("/configmaps/") {
        // No daemon has ever run in this cluster, so none of its ConfigMaps exist.
        let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                          "message": "not found", "code": 404});
        let mut response = Response::new(full(gone.to_string()));
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        return Ok(response);
    }
    let answer = if path == "/version" {
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "",
               "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
    } else {
        let items = match path {
            "/api/v1/nodes" => vec![node()],
            "/api/v1/pods" => {
                vec![pod(), json!({"metadata": {"name": "odd", "namespace": "shop"}, "spec": 7})]
            }
            _ => Vec::new(),
        };
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": items})
    };
    Ok(Response::new(full(answer.to_string())))
}

async fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler")).args(arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn a_live_plan_and_the_plan_of_its_snapshot_agree() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let tls = ServerTls::for_loopback("Both").unwrap();
    let pve = lab::pve(ClusterSpec::demo());
    let handler = move |request| {
        let pve = pve.clone();
        async move { pve.handle(request).await }
    };
    let proxmox = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let kubernetes = serve_https(kubernetes, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let ca = file("ca.pem", &tls.ca_pem);
    let token = file("token", ClusterSpec::DEMO_SECRET);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": format!("https://{}", kubernetes.address()),
                                                "certificate-authority": ca}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    let kubeconfig = file("kubeconfig", &kubeconfig.to_string());
    let config = format!(
        "[proxmox]\nendpoints = [\"https://{}\"]\ntoken_id = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\
         [kubernetes]\nkubeconfig_file = \"{}\"\n[[pool]]\nname = \"workers\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n\
         allocatable = {{ cpu = \"4\", memory = \"7Gi\", pods = 110 }}\n",
        proxmox.address(),
        ClusterSpec::DEMO_TOKEN,
        token.display(),
        ca.display(),
        kubeconfig.display(),
    );
    let config = file("config.toml", &config).display().to_string();
    let now = "2026-11-21T12:00:00Z";
    let live = run(&["plan", "--config", &config, "--now", now, "--output", "json"]).await;
    assert_eq!(live.0, 0, "{}", live.2);
    assert!(
        live.2.contains("warning: Pod: ") && live.2.contains("odd"),
        "a malformed pod is named: {}",
        live.2
    );
    let plan: Value = serde_json::from_str(&live.1).unwrap();
    assert_eq!(plan["scaleUp"][0]["machines"][0]["pods"], json!(["shop/web-1"]), "{plan}");
    let host = plan["scaleUp"][0]["machines"][0]["host"].as_str().unwrap();
    assert!(host.starts_with("pve"), "{host}");

    let written = run(&["snapshot", "--config", &config]).await;
    assert_eq!(written.0, 0, "{}", written.2);
    assert!(!written.1.contains("hidden"), "a snapshot contains no environment variables");
    let snapshot = file("cluster.yaml", &written.1).display().to_string();
    let again =
        run(&["plan", "--config", &config, "--snapshot", &snapshot, "--now", now, "--output", "json"]).await;
    assert_eq!(again.1, live.1, "the same plan, byte for byte");

    for question in [&["--pod", "shop/web-1"][..], &["--all-pods"], &["--node", "workers-a"]] {
        let asked = [&["explain", "--config", &config, "--now", now, "--output", "json"], question].concat();
        let live = run(&asked).await;
        assert_eq!(live.0, 0, "{}", live.2);
        let of_file = run(&[&asked[..], &["--snapshot", &snapshot]].concat()).await;
        assert_eq!(live.1, of_file.1, "{question:?}");
    }
    let (_, text, _) = run(&["explain", "--config", &config, "--now", now, "--pod", "shop/web-1"]).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "shop/web-1",
            "  workers-a     NodeResourcesFit: wants 3 CPU, 1 free",
            "  pool workers  fits a new machine",
            "  decided: a new machine of pool workers is created for it",
        ]
    );
    let (code, _, said) = run(&["explain", "--config", &config, "--pod", "shop/gone"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the cluster has no pod `shop/gone`"), "{said}");
}
