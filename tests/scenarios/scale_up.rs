//! Pods that cannot be scheduled get nodes.

use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

#[tokio::test(start_paused = true)]
async fn a_pool_scales_from_zero_for_a_pod_that_fits_nowhere() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", Duration::from_mins(2), |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("workers").len(), 1);
    assert_eq!(stage.vms(9100..=9109), [9100]);
}
