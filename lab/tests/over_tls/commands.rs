//! Tests an operator's commands while the daemon is running.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::lab_kubernetes::Bench;
use crate::shared::bench::{Kubernetes, POOL, cluster};

impl Bench {
    /// The standard output of one of the daemon's commands, as JSON.
    async fn ask(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        let output = command.args(["daemon", "--"]).args(arguments).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_pinned_unpinned_and_retired_and_the_history_tells_it() {
    let mut bench = Bench::new(cluster(), POOL).await.unwrap();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    let node = &bench.nodes("workers").remove(0);
    let socket = bench.file("control.sock");
    let give = async |order: &str| {
        let arguments = [order, node, "--socket", &socket, "--output", "json"];
        let answer = bench.ask(&arguments).await;
        assert_eq!(answer, json!({ "order": order, "node": node, "accepted": true }));
    };
    let kept = |bench: &Bench| {
        let nodes = bench.kube.list("Node");
        let found = nodes.iter().find(|one| one["metadata"]["name"] == node.as_str());
        found
            .is_some_and(|one| one["metadata"]["annotations"]["pve-autoscaler/scale-down-disabled"] == "true")
    };
    give("pin").await;
    assert!(kept(&bench));
    give("unpin").await;
    assert!(!kept(&bench));
    give("retire").await;
    bench
        .until("another node has replaced the retired node", |bench| {
            let nodes = bench.nodes("workers");
            nodes.len() == 1 && nodes[0] != *node && bench.running() == 1
        })
        .await;
    let words = format!("- {node}: an operator asked for it");
    let history = bench.ask(&["history", node, "--socket", &socket, "--output", "json"]).await;
    let decisions = history["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|one| one["what"] == words.as_str()), "{history}");
    assert!(decisions.iter().all(|one| one["what"].as_str().unwrap().contains(node)), "{history}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_knows_the_machines_that_are_on_their_way() {
    let mut slow = cluster();
    slow.timings.boot_to_agent = std::time::Duration::from_secs(3);
    let mut bench = Bench::new(slow, POOL).await.unwrap();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("a VM is being created", |bench| !bench.vms().is_empty()).await;
    let config = bench.file("config.toml");
    let plan = bench.ask(&["plan", "--config", &config, "--output", "json"]).await;
    assert_eq!(plan["pods"][0]["verdict"], "UpcomingNode", "{plan}");
    let socket = bench.file("control.sock");
    let status = bench.ask(&["status", "--socket", &socket, "--output", "json"]).await;
    assert_eq!(status["machines"].as_array().map(Vec::len), Some(1), "{status}");
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    bench.stop().await;
}
