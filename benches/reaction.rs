//! Measures how fast the daemon reacts, and how much time it adds to the time that the machines themselves
//! need. The real daemon runs with the embedded clusters in virtual time, so that the figures do not depend
//! on this computer.
//!
//! `cargo bench --bench reaction` prints the figures. Nothing is asserted.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]
#![expect(dead_code, reason = "the stage is shared with the scenarios, which use all of it")]

#[path = "../tests/scenarios/stage.rs"]
mod stage;

use std::time::Duration;

use jiff::Timestamp;
use world::best;
use world::kubernetes::KubeEvent;
use world::kubernetes::spec::{KubeSpec, KubeTimings};
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage};

/// The number of pods for which the reaction is measured.
const TRIALS: usize = 200;
/// The configuration's default for the maximum number of concurrent linked clones from one storage.
const CLONES: u32 = 4;

fn main() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut waits: Vec<Duration> = runtime().block_on(reactions());
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() * share / 100).min(waits.len() - 1)];
    println!("from \"pod unschedulable\" to the clone request, {TRIALS} single pods at random times:");
    println!("  median {:?}, p99 {:?}, maximum {:?}", at(50), at(99), at(100));
    for nodes in [1, 20] {
        for probing in [true, false] {
            let (took, best) = runtime().block_on(growth(nodes, probing));
            let added = took.saturating_sub(best);
            let how = if probing { "with `probe_port`" } else { "with learned boot times" };
            println!(
                "from \"unschedulable\" to \"running\", {nodes} nodes at once, {how}: {took:?}, of which {best:?} is \
                the minimum and {added:?} was added by the daemon"
            );
        }
    }
}

fn steady() -> ClusterSpec {
    let mut cluster = ClusterSpec::demo();
    cluster.timings.jitter = 0.0;
    cluster
}

/// Measures the daemon's reaction to each of several pods that need a node and are created one after another.
async fn reactions() -> Vec<Duration> {
    let text = ONE_POOL
        .replace("max = 5", "max = 250")
        .replace("9100-9109", "10000-10249")
        .replace("10.10.10.11-10.10.10.20", "10.10.11.1-10.10.11.250")
        .replace("prefix = 24", "prefix = 16")
        .replace("cores = 2", "cores = 1")
        .replace("memory = \"4GiB\"", "memory = \"1GiB\"");
    let mut stage = Stage::of(&text, steady(), KubeSpec::demo());
    stage.start();
    stage.until("rounds run", Duration::from_mins(1), |stage| stage.status().ready).await;
    let mut random = fastrand::Rng::with_seed(5);
    let mut waits = Vec::new();
    for trial in 0..TRIALS {
        tokio::time::sleep(Duration::from_millis(random.u64(30_000..90_000))).await;
        let known = stage.pve.calls().len();
        let mut events = stage.kube.events();
        stage.deploy(&format!("web-{trial}"), 1, "800m", "128Mi");
        let since = unschedulable(&mut events).await;
        let clone = loop {
            let calls = stage.pve.calls();
            if let Some(call) = calls.iter().skip(known).find(|call| call.path.ends_with("/clone")) {
                break call.time;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        // The call is recorded when it is answered, so the duration of the request is subtracted.
        waits.push(between(since, clone).saturating_sub(stage.pve.request_time()));
    }
    waits
}

async fn unschedulable(events: &mut tokio::sync::broadcast::Receiver<KubeEvent>) -> Timestamp {
    loop {
        if let KubeEvent::PodUnschedulable { at, .. } = events.recv().await.unwrap() {
            return at;
        }
    }
}

fn between(since: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(since)).unwrap_or_default()
}

/// Returns the time until all pods run if each pod needs its own node, and the time that this would take in
/// the best case.
async fn growth(nodes: u32, probing: bool) -> (Duration, Duration) {
    let text = ONE_POOL
        .replace("max = 5", "max = 50")
        .replace("9100-9109", "9100-9149")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.11-10.10.10.60");
    let mut stage = Stage::of(&text, steady(), KubeSpec::demo());
    stage.probes = probing;
    stage.start();
    stage.until("rounds run", Duration::from_mins(1), |stage| stage.status().ready).await;
    // The first machine teaches the daemon how long a boot takes.
    stage.deploy("first", 1, "1500m", "1Gi");
    stage.until("it runs", Duration::from_mins(5), |stage| stage.running_pods() == 1).await;
    tokio::time::sleep(Duration::from_secs(33)).await;
    let mut events = stage.kube.events();
    stage.deploy("web", nodes, "1500m", "1Gi");
    let since = unschedulable(&mut events).await;
    let mut last = since;
    let mut running = 0;
    while running < nodes {
        if let KubeEvent::PodRunning { at, .. } = events.recv().await.unwrap() {
            running += 1;
            last = at;
        }
    }
    (
        between(since, last),
        best::to_running(&steady().timings, &KubeTimings::default(), nodes.div_ceil(CLONES)),
    )
}
