//! Orphans: VMs that bear the cluster's mark but have no record. The daemon reports them. It collects them
//! only if the configuration allows this and all conditions hold.

use std::time::Duration;

use model::Vmid;
use observability::OrphanStatus;
use serde_json::json;
use world::proxmox::spec::VmSpec;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(3);
/// The value of `orphans_after`. [`LOOKED`] is longer, so that the daemon reads the VMs several more times
/// once `orphans_after` has passed.
const AFTER: Duration = Duration::from_mins(30);
const LOOKED: Duration = Duration::from_mins(45);
const HOUR: Duration = Duration::from_hours(1);

fn collecting() -> String {
    format!("orphans = \"collect\"\norphans_after = \"30m\"\n{ONE_POOL}")
}

/// Creates an orphan with these changes to its configuration.
fn left_over(stage: &Stage, vmid: Vmid, set: &[(&str, &str)]) {
    let mark = format!("pve-autoscaler/v1 cluster=lab pool=workers machine=m-{vmid}");
    let mut vm = VmSpec::machine(vmid.0, "pve2", "workers-b2x9k");
    vm.pool = Some("k8s-workers".to_owned());
    vm.config.insert("description".to_owned(), mark);
    vm.config.extend(set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    assert!(stage.pve.create_by_hand(vm));
}

fn orphan(stage: &Stage, vmid: Vmid) -> Option<OrphanStatus> {
    stage.status().orphans.into_iter().find(|one| one.vmid == vmid)
}

/// Two machines that were nodes, and whose records and Nodes are gone, as after a restore of etcd.
async fn two_without_records(text: &str) -> (Stage, Vec<u32>) {
    let mut stage = Stage::running(text);
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    let both = stage.vms(9100..=9109);
    assert_eq!(both.len(), 2);
    stage.stop().await;
    stage.kube.scale("default", "web", 0);
    for vmid in &both {
        stage.pve.stop_by_hand(*vmid);
        stage.kube.remove("ConfigMap", "pve-autoscaler", &format!("machine-workers-{vmid}"));
        let name = stage.pve.vm(*vmid).unwrap().config["name"].clone();
        stage.kube.remove("Node", "", &name);
    }
    stage.start();
    (stage, both)
}

#[tokio::test(start_paused = true)]
async fn orphans_are_collected_once_everything_is_proven_and_one_an_hour() {
    let (mut stage, both) = two_without_records(&collecting()).await;
    stage.throughout("both VMs stay", AFTER, |stage| stage.vms(9100..=9109) == both).await;
    stage.until("one VM goes", LOOKED.saturating_sub(AFTER), |stage| stage.vms(9100..=9109).len() == 1).await;
    // The limit of one orphan an hour also holds across a restart.
    stage.stop().await;
    stage.start();
    let left = stage.vms(9100..=9109);
    stage
        .throughout("the other VM stays", HOUR.saturating_sub(SOON), |stage| stage.vms(9100..=9109) == left)
        .await;
    assert!(orphan(&stage, Vmid(left[0])).is_some_and(|one| one.proven), "{:?}", stage.status().orphans);
    stage.until("the other VM is gone", SOON * 2, |stage| stage.vms(9100..=9109).is_empty()).await;
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
    assert!(stage.status().orphans.is_empty());
    let said = stage.kube.list("Event");
    let said: Vec<_> = said.iter().filter(|event| event["reason"] == "OrphanCollected").collect();
    assert_eq!(said.len(), 2, "{said:#?}");
    let decided = stage.status().decisions.iter().filter(|one| one.what.ends_with("is an orphan")).count();
    assert_eq!(decided, 2);
}

#[tokio::test(start_paused = true)]
async fn orphans_are_only_reported_by_default() {
    let (stage, both) = two_without_records(&format!("orphans_after = \"30m\"\n{ONE_POOL}")).await;
    stage.throughout("both VMs stay", HOUR * 2, |stage| stage.vms(9100..=9109) == both).await;
    assert!(both.iter().all(|vmid| orphan(&stage, Vmid(*vmid)).is_some_and(|one| one.proven)));
    let told = stage.status().problems["strangers"].clone();
    assert!(told.contains("This VM is left alone (`pve-autoscaler orphans` shows why)"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_lacks_one_proof_is_left_alone_and_says_which() {
    let mut stage = Stage::new(&collecting());
    let other = "pve-autoscaler/v1 cluster=lab pool=workers machine=m-1 kubernetes=another";
    let gone = "pve-autoscaler/v1 cluster=lab pool=gone machine=m-2";
    let copy = "pve-autoscaler/v1 cluster=lab pool=workers machine=m-9100";
    for (vmid, key, value) in [
        (9101, "protection", "1"),
        (9102, "description", other),
        (9103, "description", gone),
        (9104, "name", "database"),
        (9105, "lock", "backup"),
        (9106, "description", copy),
        (9107, "parent", "before"),
        (9120, "onboot", "0"),
    ] {
        left_over(&stage, Vmid(vmid), &[(key, value)]);
    }
    // VM 9106 bears the mark of VM 9100.
    left_over(&stage, Vmid(9100), &[]);
    left_over(&stage, Vmid(9108), &[]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "db-1"},
        "status": {"nodeInfo": {"systemUUID": "00000000-0000-4000-8000-000000009108"}},
    });
    stage.kube.apply(&node).unwrap();
    stage.start();
    let all = stage.pve.vmids();
    stage.throughout("all VMs stay", HOUR * 2, |stage| stage.pve.vmids() == all).await;
    for (vmid, what) in [
        (9100, "VM 9106 bears the same mark"),
        (9101, "it is protected"),
        (9102, "its mark names another Kubernetes cluster"),
        (9103, "no pool `gone`"),
        (9104, "`database` is not a name"),
        (9105, "it is locked (backup)"),
        (9106, "VM 9100 bears the same mark"),
        (9107, "it has snapshots"),
        (9108, "Node `db-1`"),
        (9120, "VMID 9120 is not in `vmids`"),
    ] {
        let missing = orphan(&stage, Vmid(vmid)).map(|one| one.missing).unwrap_or_default();
        assert!(missing.len() == 1 && missing[0].contains(what), "{vmid}: {missing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_found_out_at_the_last_moment_keeps_an_orphan() {
    let mut stage = Stage::new(&collecting());
    left_over(&stage, Vmid(9101), &[]);
    stage.pve.set_ha(9101, true);
    stage.start();
    let there = |stage: &Stage| stage.pve.vm(9101).is_some();
    stage.throughout("the VM stays", HOUR * 2, there).await;
    stage.pve.set_ha(9101, false);
    stage.until("the VM is gone", HOUR * 2, |stage| stage.pve.vm(9101).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_kept_at_the_last_moment_does_not_keep_the_others() {
    let mut stage = Stage::new(&collecting());
    left_over(&stage, Vmid(9101), &[]);
    left_over(&stage, Vmid(9102), &[("name", "workers-k4m7p")]);
    stage.pve.set_ha(9101, true);
    stage.start();
    stage.until("VM 9102 is gone", HOUR * 3, |stage| stage.pve.vm(9102).is_none()).await;
    assert!(stage.pve.vm(9101).is_some());
    stage.pve.set_ha(9101, false);
    stage.until("VM 9101 is gone, too", HOUR * 3, |stage| stage.pve.vm(9101).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_record_cannot_be_read_is_no_orphan() {
    let stage = Stage::running(&collecting());
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let broken = json!({ "data": { "record": "{" } });
    stage.kube.patch_by_hand("ConfigMap", "pve-autoscaler", "machine-workers-9100", &broken);
    stage.kube.scale("default", "web", 0);
    stage.pve.stop_by_hand(9100);
    let name = stage.pve.vm(9100).unwrap().config["name"].clone();
    stage.kube.remove("Node", "", &name);
    stage.throughout("the VM stays", HOUR * 2, |stage| stage.pve.vm(9100).is_some()).await;
    let missing = orphan(&stage, Vmid(9100)).map(|one| one.missing).unwrap_or_default();
    assert_eq!(missing, ["a machine record, perhaps its own, cannot be read"]);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_is_changed_has_its_time_again() {
    let mut stage = Stage::new(&collecting());
    left_over(&stage, Vmid(9101), &[]);
    stage.pve.start_by_hand(9101);
    stage.start();
    let there = |stage: &Stage| stage.pve.vm(9101).is_some_and(|vm| vm.running);
    stage.throughout("the VM stays", AFTER.saturating_sub(SOON), there).await;
    stage.pve.set_config_by_hand(9101, "tags", Some("looked-at"));
    stage.throughout("the VM stays", AFTER.saturating_sub(SOON), there).await;
    stage.until("the VM is gone", LOOKED, |stage| stage.pve.vm(9101).is_none()).await;
}
