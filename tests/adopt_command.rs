//! `adopt` as an operator runs it, against the embedded clusters over TLS.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "lab/bench.rs"]
mod bench;
mod lab;

use bench::{Bench, no_secret_in};
use serde_json::Value;
use tokio::process::Command;

impl Bench {
    async fn adopt(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.arg("adopt").args(arguments).env_remove("RUST_LOG");
        command.args(["--config", &self.path("config.toml").display().to_string()]);
        let output = command.output().await.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        no_secret_in(&said);
        (output.status.code().unwrap(), said)
    }
}

#[tokio::test]
async fn what_speaks_against_it_is_said_and_nothing_is_written() {
    let bench = Bench::demo().await;
    let (status, said) = bench.adopt(&["cp1", "--pool", "workers", "--yes"]).await;
    assert_eq!(status, 1, "{said}");
    assert!(
        said.starts_with("cp1 cannot become a machine of pool `workers`:\n  it is a control plane node\n"),
        "{said}"
    );
    assert!(said.contains("`pvesh set /pools/k8s-workers --vms VMID`"), "{said}");
    let (status, said) = bench.adopt(&["cp1", "--pool", "workers", "--output", "json"]).await;
    assert_eq!(status, 1, "{said}");
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["outcome"], "refused");
    let (status, said) = bench.adopt(&["absent", "--pool", "workers"]).await;
    assert_eq!((status, said.as_str()), (1, "error: there is no node `absent`\n"));
    let (status, said) = bench.adopt(&["cp1", "--pool", "others"]).await;
    assert_eq!((status, said.as_str()), (1, "error: the configuration has no pool `others`\n"));
    bench.change("[metrics]", "mode = \"observe\"\n[metrics]");
    let (status, said) = bench.adopt(&["cp1", "--pool", "workers", "--yes"]).await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("`mode = \"observe\"`: no worker can be adopted"), "{said}");
}
