//! Measures how soon a pod runs: without a warm machine, and with a warm machine in each state. The figures
//! are for docs/internals/performance.md.
//!
//! `WARM_TIMES=3 cargo test --test real_vms -- --nocapture real_machines times::` measures each figure three
//! times. Other test runs skip these measurements.

use std::time::Duration;

use tokio::time::Instant;

use crate::place;
use crate::scene::{SOON, Scene, VMID, WORKLOAD};
use crate::stage::{BOOT, Firmware};

/// The environment variable that says how many times each figure is measured. If it is unset, nothing is
/// measured.
const TIMES: &str = "WARM_TIMES";
/// How long the daemon is left alone after a machine has reached its warm state.
const QUIET: Duration = Duration::from_secs(5);

/// The initial state, the pool's settings, and the log text that shows that a warm machine is waiting (`None`
/// if there is no warm machine).
const ROWS: [(&str, &str, Option<&str>); 5] = [
    ("nothing; full clone", "clone = \"full\"\n", None),
    ("nothing; linked clone", "", None),
    ("kept stopped", "warm = { count = 1, state = \"stopped\" }\n", Some("kept stopped")),
    ("kept suspended", "warm = { count = 1, state = \"suspended\" }\n", Some("kept suspended")),
    ("kept booted", "warm = { count = 1, state = \"booted\" }\n", Some("kept booted")),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs only in a separate namespace"]
async fn a_pod_runs_sooner_the_warmer_its_machine_was() {
    let Some(image) = place::image() else { return };
    let times: Option<u32> = std::env::var(TIMES).ok().and_then(|text| text.parse().ok());
    let Some(times) = times else {
        eprintln!("skipped: {TIMES} is not set to the number of measurements");
        return;
    };
    for (before, pool, waits) in ROWS {
        for _ in 0..times {
            let pool = format!("template = \"k8s-worker\"\n{pool}");
            let scene = Scene::new(&image, Firmware::Bios, &pool).await;
            if let Some(words) = waits {
                let kept = async || scene.said().contains(words).then_some(());
                scene.until("a machine waits", BOOT, kept).await;
            }
            tokio::time::sleep(QUIET).await;
            let started = Instant::now();
            scene.admin.apply(WORKLOAD).await.unwrap();
            let asked = started.elapsed();
            scene.until("a VM runs", BOOT, async || scene.stage.pve.vm(VMID.0)?.running.then_some(())).await;
            let runs = started.elapsed();
            scene.until("the Node is ready", BOOT, async || scene.node(true).await).await;
            let ready = started.elapsed();
            scene.until("the pod runs on the Node", SOON, async || scene.pod_runs().await).await;
            let all = started.elapsed();
            eprintln!(
                "{before}: the VM runs after {runs:.1?}, the Node is ready after {ready:.1?}, the pod runs after {all:.1?} \
                 (of which kubectl took {asked:.1?})"
            );
            // Without this, the VM's process would outlive the scene and use processor time.
            scene.stage.hardware.kill(VMID.0);
        }
    }
}
