//! Kills the daemon with SIGKILL at random moments while nodes are added and removed.

use std::time::Duration;

use crate::lab_kubernetes::Bench;
use crate::shared::bench::{Kubernetes as _, POOL, cluster};

/// The default number of kills, half of them while machines are created and half while they are removed. The
/// environment variable `KILLS` overrides it.
const INSTANTS: u32 = 10;
/// How long the expected state must last. This is longer than the daemon needs for one round.
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
        // No machine may be half created or created twice.
        bench.until(&format!("each pod has a machine in round {round}"), |bench| made(bench) == [2; 3]).await;
        bench
            .throughout("each pod has a machine", SETTLED, |bench| {
                bench.running() == 2 && made(bench) == [2; 3]
            })
            .await;
        bench.kube.kube.scale("default", "web", 0);
        disturbed(&mut bench, &mut random, 4000).await;
        bench.until(&format!("nothing is left in round {round}"), Bench::is_clean).await;
    }
    bench.stop().await;
}

/// The number of VMs, records and Nodes of the pool's machines.
fn made(bench: &Bench) -> [usize; 3] {
    let records = bench.leftovers().iter().filter(|name| name.starts_with("machine-")).count();
    let nodes = bench.kube.kube.list("Node").len() - bench.kube.other_nodes().len();
    [bench.vms().len(), records, nodes]
}

/// Kills the daemon after up to `within` milliseconds, and starts it again.
async fn disturbed(bench: &mut Bench, random: &mut fastrand::Rng, within: u64) {
    tokio::time::sleep(Duration::from_millis(random.u64(..within))).await;
    bench.kill().await;
    bench.launch();
}
