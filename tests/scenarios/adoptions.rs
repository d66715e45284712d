//! Workers that the daemon did not create are adopted into a pool, and are then treated like any other
//! machine.

use std::time::Duration;

use pve_autoscaler::kubernetes::Cluster;
use pve_autoscaler::machines::adoption::{self, Judgement};
use pve_autoscaler::observability::Order;
use pve_autoscaler::proxmox::Client;
use pve_autoscaler::settings::{Config, Needs, parse};
use serde_json::json;
use stage::Wire;
use world::kubernetes::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(3);

/// An operator's own access to both clusters.
struct Operator {
    config: Config,
    client: Client,
    cluster: Cluster,
}

impl Operator {
    fn new(stage: &Stage, text: &str) -> Self {
        let wire = Wire::counting(stage.calls.clone());
        let config = parse("lab.toml", text, Needs::Run).unwrap();
        Self { config, client: wire.proxmox(&stage.pve).unwrap(), cluster: wire.kubernetes(&stage.kube) }
    }

    async fn judge(&self, stage: &Stage, node: &str) -> Judgement {
        let found = adoption::look(&self.client, &self.cluster, node).await.unwrap();
        adoption::judge(&self.config, &self.config.pools[0], &found, "adopted-1", stage.now())
    }

    async fn adopt(&self, stage: &Stage, node: &str) {
        let Judgement::May(adoption) = self.judge(stage, node).await else { panic!("it may not") };
        adoption::carry_out(&self.client, &self.cluster, &self.config, &adoption).await.unwrap();
    }
}

/// Unneeded nodes are removed after two minutes.
fn quick() -> String {
    ONE_POOL
        .replace("[[pool]]\n", "[scale_down]\nunneeded_time = \"2m\"\ndelay_after_add = \"0s\"\n[[pool]]\n")
}

/// A stage with a running daemon, and a worker that has no record, no mark and no label of a pool.
async fn with_a_foreign_worker() -> (Stage, String, u32) {
    let mut stage = Stage::running(&quick());
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let node = stage.ready_nodes("workers").remove(0);
    let vmid = stage.vms(9100..=9109)[0];
    stage.stop().await;
    stage.kube.remove("ConfigMap", "pve-autoscaler", &format!("machine-workers-{vmid}"));
    let bare = json!({ "metadata": { "labels": { "pve-autoscaler/pool": null }, "annotations": null } });
    assert!(stage.kube.patch_by_hand("Node", "", &node, &bare));
    stage.pve.set_config_by_hand(vmid, "description", Some("made by hand"));
    stage.pve.set_config_by_hand(vmid, "tags", Some("theirs"));
    stage.start();
    stage.until("the daemon leads", SOON, |stage| !stage.leaders().is_empty()).await;
    (stage, node, vmid)
}

fn is_there(stage: &Stage, node: &str) -> bool {
    stage.kube.list("Node").iter().any(|one| name(one) == node)
}

#[tokio::test(start_paused = true)]
async fn a_foreign_worker_is_left_alone_until_it_is_adopted_and_then_goes_as_any_other() {
    let (stage, node, vmid) = with_a_foreign_worker().await;
    let operator = Operator::new(&stage, &quick());
    stage.kube.scale("default", "web", 0);
    stage
        .throughout("the worker is not a machine", Duration::from_mins(20), |stage| {
            is_there(stage, &node)
                && stage.pve.vm(vmid).is_some_and(|vm| vm.running)
                && stage.status().machines.is_empty()
        })
        .await;
    stage.kube.scale("default", "web", 1);
    operator.adopt(&stage, &node).await;
    assert_eq!(operator.judge(&stage, &node).await, Judgement::Already(node.clone()));
    let notes = stage.pve.config_of(vmid, "description").unwrap();
    assert!(notes.starts_with("pve-autoscaler/v1 cluster=") && notes.ends_with("\nmade by hand"), "{notes}");
    assert_eq!(stage.pve.config_of(vmid, "tags").as_deref(), Some("pve-autoscaler;theirs"));
    stage.order("pve1", Order::Reread).await;
    stage.until("the worker is a node", SOON, |stage| stage.ready_nodes("workers").contains(&node)).await;
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.throughout("the worker serves", Duration::from_mins(10), |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the worker is removed", Duration::from_mins(10), |stage| stage.pve.vm(vmid).is_none()).await;
    assert!(!is_there(&stage, &node));
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_adopted_at_another_host_counts_for_its_pools_maximum_at_once() {
    let (stage, node, vmid) = with_a_foreign_worker().await;
    let one = quick().replace("max = 5", "max = 1");
    stage.reload(&one);
    // The operator adopts the worker from another host, so the daemon is not notified.
    Operator::new(&stage, &one).adopt(&stage, &node).await;
    stage.deploy("more", 1, "1500m", "1Gi");
    let alone = |stage: &Stage| stage.vms(9100..=9109) == [vmid];
    stage.throughout("no other machine is made", Duration::from_mins(4), alone).await;
    assert_eq!(stage.status().machines.len(), 1, "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_beside_an_adopted_worker_while_its_record_cannot_be_read() {
    let (stage, node, vmid) = with_a_foreign_worker().await;
    let one = quick().replace("max = 5", "max = 1");
    stage.reload(&one);
    let operator = Operator::new(&stage, &one);
    let Judgement::May(adoption) = operator.judge(&stage, &node).await else { panic!("it may not") };
    stage.kube.inject(Fault {
        method: "GET".to_owned(),
        path: "/api/v1/namespaces/pve-autoscaler/configmaps".to_owned(),
        times: 5,
        effect: Effect::Lose,
    });
    adoption::carry_out(&operator.client, &operator.cluster, &operator.config, &adoption).await.unwrap();
    stage.deploy("more", 1, "1500m", "1Gi");
    let alone = |stage: &Stage| stage.vms(9100..=9109) == [vmid];
    stage.throughout("no other machine is made", Duration::from_mins(4), alone).await;
    assert_eq!(stage.status().machines.len(), 1, "{}", stage.scene());
    assert!(stage.status().problems.is_empty(), "{:?}", stage.status().problems);
}

#[tokio::test(start_paused = true)]
async fn a_pools_label_that_another_client_set_costs_one_look_at_the_records() {
    let (stage, node, _) = with_a_foreign_worker().await;
    let listed = |stage: &Stage| {
        let calls = stage.kube.calls();
        calls.iter().filter(|call| call.method == "GET" && call.path.contains("/configmaps?")).count()
    };
    let before = listed(&stage);
    let labelled = json!({ "metadata": { "labels": { "pve-autoscaler/pool": "workers" } } });
    assert!(stage.kube.patch_by_hand("Node", "", &node, &labelled));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(listed(&stage), before + 1);
    assert!(stage.status().machines.is_empty(), "{}", stage.scene());
}

#[tokio::test(start_paused = true)]
async fn an_adoption_that_was_torn_off_after_the_record_is_finished_by_repeating_it() {
    let (stage, node, vmid) = with_a_foreign_worker().await;
    let operator = Operator::new(&stage, &quick());
    let Judgement::May(adoption) = operator.judge(&stage, &node).await else { panic!("it may not") };
    operator.cluster.create_record(&adoption.record).await.unwrap();
    stage.order("pve1", Order::Reread).await;
    stage.until("the worker is a machine", SOON, |stage| stage.status().machines.len() == 1).await;
    // This is longer than any machine may take to become ready. The daemon does not regard the adopted
    // machine as late.
    stage
        .throughout("the worker stays", Duration::from_mins(20), |stage| {
            stage.pve.vm(vmid).is_some_and(|vm| vm.running)
        })
        .await;
    let Judgement::May(again) = operator.judge(&stage, &node).await else { panic!("it may not") };
    assert!(again.stored && again.record.id == adoption.record.id);
    operator.adopt(&stage, &node).await;
    assert!(stage.pve.config_of(vmid, "description").unwrap().contains(adoption.record.id.as_str()));
    assert_eq!(stage.vms(9100..=9109), [vmid]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_the_daemon_takes_first_is_not_taken_over() {
    let (stage, node, vmid) = with_a_foreign_worker().await;
    let operator = Operator::new(&stage, &quick());
    let Judgement::May(adoption) = operator.judge(&stage, &node).await else { panic!("it may not") };
    let theirs = pve_autoscaler::model::Record { id: "first".into(), ..adoption.record.clone() };
    operator.cluster.create_record(&theirs).await.unwrap();
    let refused = adoption::carry_out(&operator.client, &operator.cluster, &operator.config, &adoption).await;
    assert!(matches!(refused, Err(adoption::AdoptionError::Record(_))), "{refused:?}");
    assert_eq!(stage.pve.config_of(vmid, "description").as_deref(), Some("made by hand"));
}
