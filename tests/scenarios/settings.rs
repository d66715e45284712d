//! A pool's own kubelet settings: they reach the kubelet, the planner takes them into account, and nodes are
//! replaced if they change.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(5);
const RESERVED: &str = "[pool.kubelet]\nserverTLSBootstrap = true\nshutdownGracePeriod = \"it's 30s\"\n\
                        systemReserved = { cpu = \"250m\", memory = \"1Gi\" }\n";

fn node(stage: &Stage, name: &str) -> Value {
    (*stage.kube.get("Node", "", name).unwrap()).clone()
}

#[tokio::test(start_paused = true)]
async fn a_pools_settings_reach_its_kubelets_and_are_reckoned_with_before_there_is_a_node() {
    let mut stage = Stage::new(&format!("{ONE_POOL}{RESERVED}"));
    stage.start();
    // This pod would fit a node of two CPUs if the kubelet reserved nothing.
    stage.deploy("large", 1, "1800m", "1Gi");
    stage.deploy("web", 1, "1700m", "1Gi");
    stage.until("the pod that fits runs", SOON, |stage| stage.running_pods() == 1).await;
    let names = stage.ready_nodes("workers");
    let node = node(&stage, &names[0]);
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
    assert_eq!(node["status"]["allocatable"]["cpu"], "1750m");
    let asked = |stage: &Stage| {
        let all = stage.kube.list("CertificateSigningRequest");
        all.iter().any(|one| one["spec"]["username"] == json!(format!("system:node:{}", names[0])))
    };
    stage.until("its kubelet requests a certificate", SOON, asked).await;
    stage.throughout("only one node is made", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    let pods = stage.status().pods;
    let why = pods.iter().find(|pod| pod.pod.contains("large")).unwrap();
    assert_eq!(why.why, "workers: wants 1800m CPU, 1750m free");
}

#[tokio::test(start_paused = true)]
async fn another_setting_of_kubelets_replaces_their_nodes() {
    let with = |setting: &str| {
        let replaced = ONE_POOL.replace("[[pool]]", "[replace]\ndrift = true\n[[pool]]\nmin = 1");
        format!("{replaced}{setting}")
    };
    let mut stage = Stage::new(&with(RESERVED));
    stage.start();
    stage.until("a node comes", SOON, |stage| stage.ready_nodes("workers").len() == 1).await;
    let old = stage.ready_nodes("workers");
    stage.reload(&with(&RESERVED.replace("250m", "500m")));
    let another = |stage: &Stage| {
        let now = stage.ready_nodes("workers");
        now.len() == 1 && now != old
    };
    stage.until("another node has replaced the old one", Duration::from_hours(1), another).await;
    let name = stage.ready_nodes("workers").remove(0);
    assert_eq!(node(&stage, &name)["status"]["allocatable"]["cpu"], "1500m");
}
