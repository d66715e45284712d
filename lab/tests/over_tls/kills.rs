//! SIGKILL at random instants of growth and removal.

use std::time::Duration;

use crate::lab_kubernetes::Bench;
use crate::shared::bench::{Kubernetes as _, POOL, cluster};

/// Instants at which the process is killed, half of them while machines come and half while they go, if the
/// environment does not say how many (`KILLS`).
const INSTANTS: u32 = 10;
/// Longer than a round takes to see what is there.
const SETTLED: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn the_process_is_killed_at_random_instants_of_growth_and_removal() {
    let instants = std::env::var("KILLS").map_or(INSTANTS, |text| text.parse().unwrap());
    let mut bench = Bench::new(cluster(), POOL).await.unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    bench.deploy("web", 0, "1500m", "1Gi").await;
    for round in 0..instants.div_ceil(2) {
        bench.kube.kube.scale("default", "web", 2);
        disturbed(&mut bench, &mut random, 1500).await;
        bench.until(&format!("both pods run in round {round}"), |bench| bench.running() == 2).await;
        // Neither half-made nor made twice.
        bench.until(&format!("each has one machine in round {round}"), |bench| made(bench) == [2; 3]).await;
        bench
            .throughout("each has one machine", SETTLED, |bench| {
                bench.running() == 2 && made(bench) == [2; 3]
            })
            .await;
        bench.kube.kube.scale("default", "web", 0);
        disturbed(&mut bench, &mut random, 4000).await;
        bench.until(&format!("nothing is left in round {round}"), Bench::is_clean).await;
    }
    bench.stop().await;
}

/// How many VMs, records and Nodes there are of the pool's machines.
fn made(bench: &Bench) -> [usize; 3] {
    let records = bench.leftovers().iter().filter(|name| name.starts_with("machine-")).count();
    let nodes = bench.kube.kube.list("Node").len() - bench.kube.other_nodes().len();
    [bench.vms().len(), records, nodes]
}

/// Kills the daemon within this many milliseconds, and starts it again.
async fn disturbed(bench: &mut Bench, random: &mut fastrand::Rng, within: u64) {
    tokio::time::sleep(Duration::from_millis(random.u64(..within))).await;
    bench.kill().await;
    bench.launch();
}
