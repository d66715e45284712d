//! What an operator asks while the daemon works.

use serde_json::Value;
use tokio::process::Command;

use crate::lab_kubernetes::Bench;
use crate::shared::bench::{POOL, cluster};

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
async fn a_plan_knows_the_machines_that_are_on_their_way() {
    let mut slow = cluster();
    slow.timings.boot_to_agent = std::time::Duration::from_secs(3);
    let mut bench = Bench::new(slow, POOL).await.unwrap();
    bench.deploy("web", 1, "1500m", "1Gi").await;
    bench.until("a VM is being made", |bench| !bench.vms().is_empty()).await;
    let config = bench.file("config.toml");
    let plan = bench.ask(&["plan", "--config", &config, "--output", "json"]).await;
    assert_eq!(plan["pods"][0]["verdict"], "UpcomingNode", "{plan}");
    let socket = bench.file("control.sock");
    let status = bench.ask(&["status", "--socket", &socket, "--output", "json"]).await;
    assert_eq!(status["machines"].as_array().map(Vec::len), Some(1), "{status}");
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    bench.stop().await;
}
