//! How many calls the daemon makes, and how much time it adds to what Proxmox VE, the guest and Kubernetes
//! take.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use world::kubernetes::KubeEvent;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
/// One node must cause fewer Proxmox VE calls than this, from its clone to its removal. The VM's
/// configuration is read at most every half minute.
const LIFE: usize = 37;
/// Calls to Proxmox VE in a minute in which nothing happens: two lists and the quorum every ten seconds, and
/// each configuration twice.
const IDLE: usize = 30;

/// The calls to Proxmox VE since this time, except the regular lists.
fn asked_since(stage: &Stage, since: Timestamp) -> Vec<String> {
    let calls = stage.pve.calls();
    let lists = ["/cluster/resources", "/cluster/status", "/cluster/tasks"];
    let since = calls.into_iter().filter(|call| call.time > since && !lists.contains(&call.path.as_str()));
    since.map(|call| format!("{} {} {}", call.method, call.path, call.status)).collect()
}

fn quick() -> String {
    ONE_POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]")
}

async fn one_life(stage: &Stage) {
    stage.kube.scale("default", "web", 1);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("the token is gone", SOON, |stage| stage.leftovers().len() == 1).await;
    stage.kube.scale("default", "web", 0);
    stage
        .until("nothing is left", SOON, |stage| {
            stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_whole_life_of_a_node_costs_proxmox_few_calls() {
    for probing in [true, false] {
        let mut stage = Stage::new(&quick());
        stage.probes = probing;
        stage.start();
        stage.deploy("web", 0, "1500m", "1Gi");
        stage.until("rounds run", SOON, |stage| stage.status().ready).await;
        // From the first machine's life, the daemon learns how long a boot and a join take.
        one_life(&stage).await;
        let since = stage.now();
        one_life(&stage).await;
        let asked = asked_since(&stage, since);
        assert!(asked.len() < LIFE, "probing {probing}: {} calls: {asked:#?}", asked.len());
        // The guest is shut down gracefully, not stopped.
        let power = |end: &str| asked.iter().any(|call| call.contains(end));
        assert!(power("/status/shutdown ") && !power("/status/stop "), "{asked:#?}");
        println!("probing {probing}: {} calls for a node's life", asked.len());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_minute_costs_proxmox_few_calls() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 3).await;
    tokio::time::sleep(SOON).await;
    for _ in 0..20 {
        let since = stage.now();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let calls = stage.pve.calls().into_iter().filter(|call| call.time > since).count();
        assert!(calls < IDLE, "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_asked_for_soon_after_a_pod_cannot_be_scheduled() {
    let mut stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    let mut events = stage.kube.events();
    stage.deploy("web", 1, "1500m", "1Gi");
    let since = loop {
        if let KubeEvent::PodUnschedulable { at, .. } = events.recv().await.unwrap() {
            break at;
        }
    };
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let clone = stage.pve.calls().into_iter().find(|call| call.path.ends_with("/clone")).unwrap();
    let waited = clone.time.duration_since(since);
    assert!(waited < SignedDuration::from_millis(300), "{waited:?}");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_maximum_counts_from_the_next_round_on() {
    let stage = Stage::running(&ONE_POOL.replace("max = 5", "max = 1"));
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.reload(ONE_POOL);
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
}
