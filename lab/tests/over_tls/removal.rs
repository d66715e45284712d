//! Shrinking.

use std::time::Duration;

use world::kubernetes::samples;

use crate::bench::{Bench, POOL, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_after_the_unneeded_time_and_not_before() {
    let mut bench = Bench::new(cluster(), POOL).await;
    bench.deploy("web", 1, "1500m", "1Gi");
    bench.until("the pod runs", |bench| bench.running() == 1).await;
    bench.clusters.kube.scale("default", "web", 0);
    bench
        .throughout("the node stays", Duration::from_millis(1900), |bench| bench.nodes("workers").len() == 1)
        .await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_refuses_for_a_while_and_then_allows() {
    let mut bench = Bench::new(cluster(), POOL).await;
    bench.deploy("big", 2, "1500m", "1Gi");
    bench.until("both run", |bench| bench.running() == 2).await;
    bench.deploy("small", 2, "200m", "256Mi");
    bench.until("all run", |bench| bench.running() == 4).await;
    bench.clusters.kube.apply(&samples::budget("small", 2)).unwrap();
    bench.clusters.kube.scale("default", "big", 1);
    bench.throughout("both nodes stay", Duration::from_secs(6), |bench| bench.vms().len() == 2).await;
    bench.clusters.kube.apply(&samples::budget("small", 1)).unwrap();
    bench.until("one node is left", |bench| bench.vms().len() == 1).await;
    bench.until("all run", |bench| bench.running() == 3).await;
    bench.stop().await;
}
