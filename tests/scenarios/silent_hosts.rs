//! A host whose pvestatd reports nothing for minutes. The daemon reports this, and draws no conclusions from
//! values that are missing in the list.

use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

fn silence(stage: &Stage, silent: bool) {
    for host in HOSTS {
        stage.pve.set_pvestatd_silent(host, silent);
    }
}

fn problem(stage: &Stage, words: &str) -> bool {
    stage.status().problems.values().any(|one| one.contains(words))
}

const WAY_OUT: &str = "on pve1: systemctl restart pvestatd";

#[tokio::test(start_paused = true)]
async fn it_is_said_with_the_way_out_and_machines_serve_on() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 2).await;
    let vms = stage.vms(9100..=9109);
    silence(&stage, true);
    stage.until("it is said", Duration::from_mins(6), |stage| problem(stage, WAY_OUT)).await;
    let calm = |stage: &Stage| stage.running_pods() == 2 && stage.vms(9100..=9109) == vms;
    stage.throughout("machines serve on", Duration::from_mins(30), calm).await;
    let status = stage.status();
    assert!(status.problems.values().all(|one| !one.contains("no template is called")), "{}", stage.scene());
    assert!(status.hosts.iter().all(|host| host.online && host.memory > 0), "{:#?}", status.hosts);
    // No new machine is placed on a silent host.
    stage.deploy("more", 1, "1500m", "1Gi");
    stage.throughout("no machine is made", SOON, |stage| stage.vms(9100..=9109) == vms).await;
    silence(&stage, false);
    stage.until("it is over", SOON, |stage| !problem(stage, WAY_OUT)).await;
    stage.until("all pods run", SOON, |stage| stage.running_pods() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn another_host_takes_what_is_new() {
    let stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage.pve.set_pvestatd_silent("pve1", true);
    stage.until("it is said", Duration::from_mins(6), |stage| problem(stage, WAY_OUT)).await;
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_ne!(stage.pve.vm(9100).unwrap().node, "pve1");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_starts_then_says_what_is_wrong() {
    let mut stage = Stage::new(&ONE_POOL.replace("template = 9000", "template = \"k8s-worker\""));
    silence(&stage, true);
    tokio::time::sleep(Duration::from_mins(6)).await;
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("it is said", SOON, |stage| problem(stage, WAY_OUT)).await;
    let waits = |stage: &Stage| {
        let pools = stage.status().pools;
        pools
            .iter()
            .any(|pool| pool.backoff.as_ref().is_some_and(|one| format!("{one:?}").contains("pvestatd")))
    };
    stage.until("the pool's back-off names pvestatd", SOON, waits).await;
    silence(&stage, false);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}
