//! VMs that the daemon cannot see for a while, or that have moved. A VM that the daemon cannot see is not
//! assumed to be gone.

use std::time::Duration;

use model::Vmid;
use tokio::time::Instant;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::spec::ClusterSpec;
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// Revokes the token's rights on the machines' resource pool, or grants them again.
pub fn rights(stage: &Stage, there: bool) {
    let (from, to) = ("/pool/k8s-workers", "/pool/nothing");
    let (from, to) = if there { (to, from) } else { (from, to) };
    stage.pve.change_access(|access| {
        for grant in access.grants.iter_mut().filter(|grant| grant.path == from) {
            to.clone_into(&mut grant.path);
        }
    });
}

async fn with_one_node(text: &str) -> Stage {
    let stage = Stage::running(text);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("the token is gone", SOON, |stage| stage.leftovers().len() == 1).await;
    stage
}

/// One node that is being removed. The destruction of its VM waits for the quorum.
async fn waiting_for_the_quorum() -> Stage {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = with_one_node(&ONE_POOL.replace("[[pool]]", quick)).await;
    stage.kube.scale("default", "web", 0);
    let stops = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the VM is shut down", SOON * 2, stops).await;
    stage.pve.set_quorum(false);
    stage.until("the VM has stopped", SOON * 2, |stage| !stage.pve.vm(9100).unwrap().running).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    stage
}

fn all_gone(stage: &Stage) -> bool {
    stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty()
}

#[tokio::test(start_paused = true)]
async fn a_token_that_loses_its_rights_for_minutes_costs_no_node() {
    let stage = with_one_node(ONE_POOL).await;
    let there = |stage: &Stage| {
        stage.running_pods() == 1 && stage.ready_nodes("workers").len() == 1 && stage.leftovers().len() == 1
    };
    rights(&stage, false);
    stage.throughout("the node serves", Duration::from_mins(5), there).await;
    rights(&stage, true);
    stage.throughout("the node serves on", Duration::from_mins(5), there).await;
    assert_eq!(stage.vms(9100..=9109), [9100]);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_moved_while_its_destruction_waits_is_destroyed_where_it_is() {
    let stage = waiting_for_the_quorum().await;
    let host = stage.pve.vm(9100).unwrap().node;
    stage.pve.migrate_by_hand(9100, if host == "pve1" { "pve2" } else { "pve1" });
    stage.pve.set_quorum(true);
    stage.until("nothing is left", Duration::from_mins(5), all_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_destruction_that_loses_sight_of_its_vm_goes_on_when_it_sees_it_again() {
    let stage = waiting_for_the_quorum().await;
    rights(&stage, false);
    stage.pve.set_quorum(true);
    stage
        .throughout("VM and record stay", Duration::from_mins(2), |stage| {
            stage.vms(9100..=9109).len() == 1 && stage.leftovers().len() == 1
        })
        .await;
    rights(&stage, true);
    stage.until("nothing is left", Duration::from_mins(15), all_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_killed_before_it_heard_of_its_destruction_costs_no_record() {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let mut cluster = ClusterSpec::demo();
    // During the last twentieth of its destruction, the VM is in no resource pool.
    cluster.timings.destroy = Duration::from_secs(100);
    cluster.timings.jitter = 0.0;
    let mut stage = Stage::of(&ONE_POOL.replace("[[pool]]", quick), cluster, KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let effect = Effect::WorkThenDelay(Duration::from_mins(5));
    stage.pve.inject(Fault { method: "DELETE".into(), path: "/nodes/*/qemu/9100".into(), times: 1, effect });
    stage.kube.scale("default", "web", 0);
    stage
        .until("the VM is being destroyed", SOON * 2, |stage| {
            stage.pve.is_worked_on(9100) && stage.kube.list("Node").len() == 1
        })
        .await;
    stage.kill();
    stage
        .until("the VM is in no pool", SOON, |stage| stage.pve.vm(9100).is_some_and(|vm| vm.pool.is_none()))
        .await;
    stage.start();
    let kept = |stage: &Stage| stage.vms(9100..=9109).is_empty() || stage.leftovers().len() == 1;
    stage.throughout("the record outlives the VM", Duration::from_secs(20), kept).await;
    stage.until("nothing is left", SOON, all_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registered_unseen_goes_with_its_machine() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    let joins = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Joining");
    stage.until("the machine joins", SOON, joins).await;
    stage.stall.set(true);
    stage.pve.inject(Fault {
        method: "GET".into(),
        path: "/nodes/*/qemu/*/agent/exec-status".into(),
        times: 1,
        effect: Effect::Answer { status: 501, reason: "no such method".into(), body: String::new() },
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the VM is gone", SOON, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.stall.set(false);
    stage.until("the Node is gone", SOON, |stage| stage.kube.list("Node").len() == 1).await;
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_plug_was_pulled_is_started_again() {
    let stage = with_one_node(&ONE_POOL.replace("max = 5", "min = 1\nmax = 5")).await;
    stage.pve.stop_by_hand(9100);
    stage.until("the VM runs again", SOON, |stage| stage.pve.vm(9100).unwrap().running).await;
    stage.until("the node is ready", SOON * 2, |stage| stage.ready_nodes("workers").len() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9100]);
}

/// Stops a VM about ten seconds after each start, until the condition is met.
async fn dying(stage: &Stage, vmid: Vmid, limit: Duration, is_so: impl Fn(&Stage) -> bool) {
    let begun = Instant::now();
    let mut off = begun;
    while !is_so(stage) {
        assert!(begun.elapsed() < limit, "{}", stage.scene());
        match stage.pve.vm(vmid.0) {
            Some(vm) if vm.running && off.elapsed() >= Duration::from_secs(10) => {
                stage.pve.stop_by_hand(vmid.0);
            }
            Some(vm) if vm.running => {}
            _ => off = Instant::now(),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_dies_again_and_again_keeps_no_other_and_goes_itself() {
    let quick =
        "[scale_down]\nunneeded_time = \"2m\"\nunready_time = \"20m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = with_one_node(&ONE_POOL.replace("[[pool]]", quick)).await;
    stage.deploy("more", 1, "1500m", "1Gi");
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    let gone = |vmid: Vmid| move |stage: &Stage| stage.pve.vm(vmid.0).is_none();
    let restarted = |stage: &Stage| {
        let status = stage.status();
        status.decisions.iter().filter(|one| one.what.ends_with("its VM exists")).count() >= 3
    };
    dying(&stage, Vmid(9100), Duration::from_mins(10), restarted).await;
    stage.kube.scale("default", "more", 0);
    dying(&stage, Vmid(9100), Duration::from_mins(20), gone(Vmid(9101))).await;
    dying(&stage, Vmid(9100), Duration::from_mins(45), gone(Vmid(9100))).await;
    let counted = stage.board().metrics().encode(&stage.status()).unwrap();
    let given_up = r#"pve_autoscaler_machines_removed_total{pool="workers",outcome="GivenUp"} 0"#;
    assert!(counted.contains(given_up), "{counted}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_to_a_node_while_watches_stand_still_keep_it() {
    let quick = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]";
    let stage = with_one_node(&ONE_POOL.replace("[[pool]]", quick)).await;
    stage.kube.scale("default", "web", 0);
    tokio::time::sleep(Duration::from_secs(45)).await;
    stage.stall.set(true);
    stage.kube.scale("default", "web", 1);
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    // The watches are stalled, so for a whole minute, the daemon regards the node as empty.
    stage.throughout("a pod keeps running", Duration::from_mins(2), |stage| stage.running_pods() == 1).await;
    stage.stall.set(false);
    stage.throughout("the node serves", SOON, |stage| stage.vms(9100..=9109) == [9100]).await;
    let cordoned = stage.kube.list("Node").iter().any(|node| node["spec"]["unschedulable"] == true);
    assert!(!cordoned, "{}", stage.scene());
}

/// One node whose machine is given up, because its host has lost power and its Node was deleted.
async fn given_up(text: &str) -> (Stage, String, String) {
    let stage = with_one_node(&text.replace("template = 9000", "template = \"k8s-worker-local\"")).await;
    let (name, host) = (stage.ready_nodes("workers")[0].clone(), stage.pve.vm(9100).unwrap().node);
    stage.pve.power_off_host(&host);
    stage.kube.remove("Node", "", &name);
    let given_up = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Failed");
    stage.until("the machine is given up", Duration::from_mins(30), given_up).await;
    stage.pve.set_away(true);
    stage.pve.power_on_host(&host);
    (stage, name, host)
}

fn node(stage: &Stage, name: &str) -> Option<std::sync::Arc<serde_json::Value>> {
    stage.kube.get("Node", "", name)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registers_again_and_never_is_ready_goes_with_its_machine_in_the_end() {
    let (stage, name, _) = given_up(ONE_POOL).await;
    // The guest starts again with its host. Its new Node is not ready, and the daemon does not see the Node
    // because the watches are stalled.
    stage.stall.set(true);
    stage.kube.set_nodes_never_ready(true);
    stage.until("the Node registers again", SOON, |stage| node(stage, &name).is_some()).await;
    stage.pve.set_away(false);
    stage.throughout("the VM keeps running", Duration::from_mins(15), runs).await;
    stage.stall.set(false);
    stage.until("the VM is gone", Duration::from_mins(30), |stage| stage.pve.vm(9100).is_none()).await;
    stage.until("the Node is gone", SOON, |stage| node(stage, &name).is_none()).await;
}

fn runs(stage: &Stage) -> bool {
    stage.pve.vm(9100).is_some_and(|vm| vm.running)
}

/// Whether the machine's Node is ready and accepts the pool's pods, and a pod runs.
fn serves(stage: &Stage, name: &str) -> bool {
    let open = node(stage, name).is_some_and(|node| {
        node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers"
            && node["spec"]["unschedulable"] != true
            && node["spec"]["taints"].is_null()
    });
    let ready = stage.status().machines.iter().any(|one| one.name == name && one.phase == "Ready");
    open && ready && stage.running_pods() == 1 && runs(stage)
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_given_up_and_is_a_node_again_is_kept() {
    let (stage, name, _) = given_up(ONE_POOL).await;
    stage.until("the Node registers again", SOON, |stage| node(stage, &name).is_some()).await;
    stage.pve.set_away(false);
    stage.until("the machine serves", SOON, |stage| serves(stage, &name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_given_up_and_is_a_node_again_is_kept_before_that_is_ready() {
    let (stage, name, _) = given_up(ONE_POOL).await;
    stage.kube.set_nodes_never_ready(true);
    stage.until("the Node registers again", SOON, |stage| node(stage, &name).is_some()).await;
    stage.pve.set_away(false);
    stage.throughout("the VM keeps running", SOON, runs).await;
    stage.kube.set_nodes_never_ready(false);
    stage.until("the machine serves", SOON, |stage| serves(stage, &name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_moved_counts_where_it_is_before_it_is_followed() {
    let text = ONE_POOL.replace("bridge =", "hosts = [\"pve1\", \"pve2\"]\nmax_per_host = 1\nbridge =");
    let stage = with_one_node(&text).await;
    let host = |stage: &Stage, vmid| stage.pve.vm(vmid).unwrap().node;
    let (before, after) = if host(&stage, 9100) == "pve1" { ("pve1", "pve2") } else { ("pve2", "pve1") };
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.pve.migrate_by_hand(9100, after);
    // After this time, Proxmox VE's lists show the move, and the daemon has read them three times.
    tokio::time::sleep(Duration::from_secs(12)).await;
    stage.deploy("more", 1, "1500m", "1Gi");
    stage.until("both run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!((host(&stage, 9100), host(&stage, 9101)), (after.to_owned(), before.to_owned()));
}
