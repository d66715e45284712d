//! Measures the daemon in a large cluster. The API server, controller manager, scheduler and etcd are
//! **real**. The cluster has 1000 nodes that renew their leases, and 30,000 running pods of Deployments.
//! Proxmox VE is the embedded one. The daemon is a process with the rights of `packaging/rbac.yaml`.
//!
//! `cargo bench -p lab --bench thousand_nodes` prints the figures after five to ten minutes, most of them
//! spent on filling the cluster. `DAEMON=PATH` measures the `pve-autoscaler` at this path instead of the one
//! in `lab`; `NODES`, `PODS` and `SAMPLES` change the size. With `STORM=8000`, 8000 more pods are created
//! within the first minute of the samples, and stay pending. `docs/internals/testing.md` says what is real
//! and what is not.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

mod cluster;
mod daemon;
mod machine;
mod reaction;
mod storm;

use std::time::Duration;

use cluster::Cluster;
use daemon::Daemon;
use tempfile::TempDir;

/// How long the daemon is measured while it has nothing to do.
const STEADY: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() {
    let (nodes, pods, samples) = (number("NODES", 1000), number("PODS", 30_000), number("SAMPLES", 60));
    // The folder contains the control plane's keys and sockets. Its path must be short, because the length of
    // a socket's path is limited.
    let folder = TempDir::with_prefix_in("rig-", "/tmp").unwrap();
    let Some(cluster) = Cluster::filled(folder.path(), nodes, pods).await else { return };
    let proxmox = cluster.proxmox(samples).await;
    let mut daemon = Daemon::start(folder.path());
    let took = daemon.ready().await;
    println!("from the daemon's start until both clusters are known and a round is done: {took:.2?}");
    // Right after the start, the memory allocator and the initial list requests still affect the figures.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = daemon.usage();
    tokio::time::sleep(STEADY).await;
    let after = daemon.usage();
    let share = after.cpu.saturating_sub(before.cpu).as_secs_f64() / STEADY.as_secs_f64() * 100.0;
    println!("with nothing to do for {STEADY:?}: {share:.1} % of a core");
    println!(
        "memory: {} MB resident, of which {} MB are private; at most {} MB so far",
        after.resident, after.own, after.peak
    );

    let storm = number("STORM", 0);
    let coming = (storm > 0).then(|| storm::begin(&cluster, storm));
    let naps = machine::Naps::start();
    let waits = reaction::measured(&cluster, &proxmox, samples).await;
    let late = naps.end();
    let at = |share: usize| waits[(waits.len() * share / 100).min(waits.len() - 1)];
    println!("from \"pod unschedulable\" to the clone request, {} single pods at random times:", waits.len());
    println!("  median {:.0?}, p90 {:.0?}, p99 {:.0?}, maximum {:.0?}", at(50), at(90), at(99), at(100));
    let of = |share: usize| late[(late.len() * share / 1000).min(late.len() - 1)];
    println!(
        "  meanwhile, short sleeps in another process overran by {:.1?} (p99), {:.1?} (p99.9)",
        of(990),
        of(999)
    );
    let (all, within) = machine::record_writes(&cluster).await;
    println!(
        "  {all} new ConfigMaps; number created by the API server within each limit in seconds: {within:?}"
    );
    if let Some(coming) = coming {
        coming.await.unwrap();
        let came = storm::came(&cluster).await;
        println!(
            "{came} of {storm} pods of the storm exist; the daemon lost leadership {} times",
            daemon.lost_terms()
        );
    }
    let end = daemon.usage();
    println!(
        "memory at the end: {} MB resident, of which {} MB are private; at most {} MB so far",
        end.resident, end.own, end.peak
    );
    daemon.stop().await;
}

/// Returns a number from an environment variable.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}
