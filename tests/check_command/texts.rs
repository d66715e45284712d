//! Compares complete output, as people see it, with stored files, so that any change in wording shows up as a
//! difference. `INSTA_UPDATE=always cargo test --test check_command texts` updates the files.

use std::path::Path;

use crate::bench::Bench;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use pve_autoscaler::observability::{Board, Listener, Order, Orders, Problem, Status};
use pve_autoscaler::runtime::clock::{Clock, SystemClock};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

async fn said(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).envs([("COLUMNS", "100"), ("TZ", "UTC")]);
    let output = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    text(output.stdout) + &text(output.stderr)
}

/// Compares a text with the stored one.
fn is_stored(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/texts"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    // These parts differ from run to run.
    settings.add_filter(r"the last \d+ s ago", "the last N s ago");
    settings.add_filter(r"127\.0\.0\.1:\d+(/?) {2,}", "127.0.0.1:PORT$1  ");
    settings.add_filter(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT");
    settings.add_filter(r"config /\S+/config\.toml +", "config FOLDER/config.toml  ");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[tokio::test]
async fn plans() {
    let example = ["plan", "--config", "examples/config.toml", "--snapshot", "examples/cluster.yaml"];
    is_stored("plan-example", &said(&example).await);
    for case in [
        "drain/blocked-node-does-not-wait",
        "drain/local-storage",
        "scaleup/estimate-limit",
        "scaleup/daemonset-overhead",
        "volumes/more-volumes-than-a-node-takes",
    ] {
        let folder = format!("tests/fixtures/{case}");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder).is_dir(), "{folder}");
        let (config, snapshot) = (format!("{folder}/config.toml"), format!("{folder}/cluster.yaml"));
        let text = said(&["plan", "--config", &config, "--snapshot", &snapshot]).await;
        is_stored(&format!("plan-{}", case.replace('/', "-")), &text);
    }
}

#[tokio::test]
async fn explanations() {
    let of = async |what: &str, name: &str| {
        let example = ["--config", "examples/config.toml", "--snapshot", "examples/cluster.yaml"];
        said(&[&["explain", what, name][..], &example].concat()).await
    };
    is_stored("explain-a-pod-that-gets-a-machine", &of("--pod", "ml/train-1").await);
    is_stored("explain-a-pod-that-no-pool-takes", &of("--pod", "ml/render-0").await);
    is_stored("explain-a-pod-that-runs", &of("--pod", "shop/web-1").await);
    is_stored("explain-a-node-that-is-kept", &of("--node", "workers-k3x9p").await);
}

#[tokio::test]
async fn checks() {
    let bench = Bench::demo().await;
    let config = bench.path("config.toml").display().to_string();
    is_stored("check-all-is-good", &said(&["check", "--config", &config]).await);
    for wrong in ["unknown-key", "wrong-values"] {
        let file = format!("tests/texts/{wrong}.toml");
        is_stored(&format!("check-{wrong}"), &said(&["check", "--config", &file]).await);
    }
}

struct NoOrders;

impl Orders for NoOrders {
    fn follow(&self, order: Order) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { Err(format!("no orders: {order:?}")) })
    }
}

#[tokio::test]
async fn the_status() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("control.sock");
    let board = Board::default();
    let now = SystemClock.now();
    let ago = |seconds: i64| now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap();
    let status: Status = serde_json::from_value(json!({
        "time": now, "instance": "pve1", "mode": "active", "leads": true, "ready": true, 
        "pools": [{"name": "workers", "nodes": 2, "ready": 1, "coming": 1, "min": 1, "max": 10, "slotsFree": 7}],
        "hosts": [{"name": "pve2", "online": true, "power": "Idle", "due": now + SignedDuration::from_secs(330), "why": "no machine is needed there"}],
        "machines": [{
            "name": "workers-a7f2k", "pool": "workers", "vmid": 9101, "host": "pve1", "cores": 4, "memory": 8_589_934_592_i64,
            "address": "10.0.0.11", "phase": "Ready", "since": ago(7230), "created": ago(7400),
            "node": "workers-a7f2k"
        }, {
            "name": "workers-k3x9p", "pool": "workers", "vmid": 9102, "host": "pve1", "cores": 4, "memory": 8_589_934_592_i64,
            "address": "10.0.0.12", "phase": "Booting", "since": ago(310), "created": ago(330),
            "why": "waiting for systemd"
        }],
        "nodes": [{"name": "workers-a7f2k", "pool": "workers", "verdict": "Blocked", "utilization": 0.12,
            "why": "LocalStorageRequested: shop/cache-0"}],
        "pods": [{"pod": "ml/render-0", "verdict": "NoPoolFits", "why": "workers: wants 1 nvidia.com/gpu, 0 free"}]
    }))
    .unwrap();
    board.introduce("pve1", "active", now);
    board.begin(true);
    board.publish(status, None);
    board.problem(&Problem::Kubernetes, "the API server cannot be reached: connection refused");
    board.decided(
        "2026-01-01T11:59:00Z".parse().unwrap(),
        "+ workers-k3x9p on pve1: for ml/train-1".to_owned(),
    );
    let listener = Listener::bind(&path).await.unwrap();
    let serving = tokio::spawn(async move { listener.serve(&board, &NoOrders).await });
    is_stored("status", &said(&["status", "--socket", &path.display().to_string()]).await);
    serving.abort();
}
