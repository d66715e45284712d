//! VMs that HA manages, and VMs that an administrator moved.

use machines::Ending;
use model::Record;
use model::machine::Intent;
use world::proxmox::TaskFault;
use world::proxmox::spec::{ClusterSpec, VmSpec};

use crate::lab;
use crate::support::VMID;
use crate::world::World;

/// A world with a running managed VM that is to be removed.
async fn doomed() -> World {
    let world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    let upid = world.context.proxmox.start("pve1", VMID).await.unwrap();
    assert!(crate::support::done(&world.context.proxmox, &upid).await.is_success());
    world.failed(VMID).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_ha_manages_is_destroyed_once_ha_has_stopped_it() {
    let mut world = doomed().await;
    world.pve.set_ha(VMID.0, true);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none());
    assert!(world.store.names().is_empty());
    let ends = world.pve.task_exits();
    assert!(ends.iter().all(|(_, exit)| exit.as_deref() == Some("OK")), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_moved_by_hand_is_followed_to_its_host() {
    let mut world = doomed().await;
    world.pve.migrate_by_hand(VMID.0, "pve3");
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none());
    assert!(world.pve.volumes_of(VMID.0).is_empty());
    let destruction = world.pve.task_exits().pop().unwrap().0;
    assert!(destruction.starts_with("UPID:pve3:") && destruction.contains(":qmdestroy:"), "{destruction}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_recovered_from_a_dead_host_is_followed_though_a_task_was_at_work_there() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    let upid = world.begin_clone().await;
    assert!(crate::support::done(&world.context.proxmox, &upid).await.is_success());
    world.failed_with(VMID, Some(&upid)).await;
    world.pve.power_off_host("pve1");
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    world.pve.migrate_by_hand(VMID.0, "pve3");
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none());
    assert!(world.store.names().is_empty());
}

/// A world with the record of a machine that is to be removed. The machine's host has left the cluster
/// together with the VM.
async fn of_a_host_that_left(change: impl FnOnce(Record) -> Record) -> World {
    let world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    let since = world.context.clock.now() - std::time::Duration::from_mins(5);
    let intent = Intent::Discard { reason: "a test".to_owned(), since };
    let record = change(Record { host: "pve9".to_owned(), intent, ..world.record(VMID) });
    world.context.kubernetes.create_record(&record).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_host_has_left_the_cluster_is_forgotten() {
    let task = "UPID:pve9:0000C3A0:0001D4B2:6920C1A0:qmdestroy:9101:autoscaler@pve!agent:";
    for task in [Some(task.to_owned()), None] {
        let mut world = of_a_host_that_left(|record| Record { task, ..record }).await;
        assert_eq!(world.go_on().await, Ending::Discarded);
        assert!(world.store.names().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_whose_file_a_host_that_left_has_left_behind_is_told() {
    let mut world = of_a_host_that_left(|record| record).await;
    world.pve.create_by_hand(VmSpec {
        pool: Some("k8s-workers".to_owned()),
        ..VmSpec::machine(VMID.0, "pve9", "w")
    });
    // Waits until the list of guests shows the VM.
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
    assert!(why.contains("the folder /etc/pve/nodes/pve9 exists"), "{why}");
    world.pve.delete_by_hand(VMID.0);
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    assert_eq!(world.go_on().await, Ending::Discarded);
}

#[tokio::test(start_paused = true)]
async fn what_a_host_that_has_left_may_have_left_on_a_shared_storage_is_told() {
    let storages = ["shared".to_owned(), "local-lvm".to_owned()].into();
    let mut world = of_a_host_that_left(|record| Record { storages, ..record }).await;
    let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
    assert!(
        why.contains("on shared; its slot stays closed") && why.contains("pvesm list shared --vmid"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_destroyed_leaves_no_doubt_about_a_host_that_it_was_on_and_that_has_left() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    let since = world.context.clock.now();
    let intent = Intent::Discard { reason: "a test".to_owned(), since };
    let record = Record { left_hosts: ["pve9".to_owned()].into(), intent, ..world.record(VMID) };
    world.context.kubernetes.create_record(&record).await.unwrap();
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none());
    assert!(world.store.names().is_empty());
}

/// The task of a clone that was running on a host that has left the cluster.
const LOST_CLONE: &str = "UPID:pve9:0000C3A0:0001D4B2:6920C1A0:qmclone:9000:autoscaler@pve!agent:";

#[tokio::test(start_paused = true)]
async fn a_clone_in_doubt_on_a_host_that_has_left_the_cluster_is_at_work_no_more() {
    let mut world = of_a_host_that_left(|record| {
        let template_host = record.host.clone();
        Record { template_host, clone_in_doubt: true, ..record }
    })
    .await;
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_clone_whose_templates_host_has_left_the_cluster_is_not_awaited() {
    for storages in [vec![], vec!["shared".to_owned()]] {
        let in_view = storages.is_empty();
        let mut world = of_a_host_that_left(|record| Record {
            template_host: "pve9".to_owned(),
            host: "pve1".to_owned(),
            task: Some(LOST_CLONE.to_owned()),
            storages: storages.into_iter().collect(),
            ..record
        })
        .await;
        match world.go_on().await {
            Ending::Discarded => assert!(in_view && world.store.names().is_empty()),
            Ending::Stuck(why) => assert!(!in_view && why.contains("pvesm list shared --vmid"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_a_clone_on_a_lost_host_may_have_left_is_an_administrators() {
    for host in ["pve9", "pve1"] {
        let mut world = of_a_host_that_left(|record| {
            let template_host = record.host.clone();
            Record { template_host, host: host.to_owned(), task: Some(LOST_CLONE.to_owned()), ..record }
        })
        .await;
        // The VM is not in a pool yet, so the token cannot see who owns it.
        world.pve.inject_task("qmclone", TaskFault::Dies(std::time::Duration::from_millis(100)));
        let upid = world.begin_clone().await;
        crate::support::done(&world.context.proxmox, &upid).await;
        let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
        assert!(why.contains("was interrupted") && why.contains("qm destroy 9101"), "{host}: {why}");
        assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_runs_on_with_a_host_that_has_left_the_cluster_keeps_its_node_and_slot() {
    let uuid = "00000000-0000-4000-8000-000000000001";
    for (host, left) in [("pve9", None), ("pve1", Some("pve9"))] {
        let mut world = of_a_host_that_left(|record| {
            let left_hosts = left.into_iter().map(ToOwned::to_owned).collect();
            Record { host: host.to_owned(), left_hosts, smbios_uuid: Some(uuid.to_owned()), ..record }
        })
        .await;
        world.store.put_node("workers-9101", uuid, "True");
        // The error occurs in the first run, and again in the run that is resumed after a restart.
        for _ in 0..2 {
            let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
            assert!(why.contains("Node workers-9101 still reports"), "{why}");
            assert!(why.contains("on pve9: qm stop 9101") && why.contains("kubectl"), "{why}");
            assert!(world.store.has_node("workers-9101"));
            assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
        }
        world.store.put_node("workers-9101", uuid, "Unknown");
        assert_eq!(world.go_on().await, Ending::Discarded);
        assert!(!world.store.has_node("workers-9101") && world.store.names().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_host_without_quorum_does_not_list_is_not_taken_for_gone() {
    for host in ["pve9", "pve1"] {
        let mut world = of_a_host_that_left(|record| Record { host: host.to_owned(), ..record }).await;
        world.pve.set_quorum(false);
        let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
        assert!(why.contains("not quorate"), "{why}");
        assert_eq!(world.stored().await[0].record.host, host, "the record is unchanged");
        world.pve.set_quorum(true);
        assert_eq!(world.go_on().await, Ending::Discarded);
        assert!(world.store.names().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_a_host_without_corosync_does_not_know_keeps_its_record() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.pve.migrate_by_hand(VMID.0, "pve2");
    let since = world.context.clock.now();
    let intent = Intent::Discard { reason: "a test".to_owned(), since };
    let record = Record { host: "pve2".to_owned(), intent, ..world.record(VMID) };
    world.context.kubernetes.create_record(&record).await.unwrap();
    world.pve.set_without_corosync(Some("pve1"));
    let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was forgotten") };
    assert!(why.contains("not quorate"), "{why}");
    let record = world.stored().await.pop().unwrap().record;
    assert_eq!((record.host.as_str(), record.left_hosts.len()), ("pve2", 0), "the record is unchanged");
    world.pve.set_without_corosync(None);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

/// A world with a running VM whose SMBIOS uuid differs from the one in its record. `reports` maps the VM's
/// current uuid to the uuid that the Node reports.
async fn of_another_uuid(reports: impl FnOnce(&str) -> String) -> World {
    let world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    let upid = world.context.proxmox.start("pve1", VMID).await.unwrap();
    assert!(crate::support::done(&world.context.proxmox, &upid).await.is_success());
    let smbios = world.pve.config_of(VMID.0, "smbios1").unwrap();
    let present = smbios.split(',').find_map(|part| part.strip_prefix("uuid=")).unwrap().to_owned();
    let name = format!("workers-{VMID}");
    let since = world.context.clock.now();
    let record = Record {
        intent: Intent::Discard { reason: "a test".to_owned(), since },
        smbios_uuid: Some("00000000-0000-4000-8000-000000000001".to_owned()),
        node_uid: Some(format!("uid-{name}")),
        ..world.record(VMID)
    };
    world.context.kubernetes.create_record(&record).await.unwrap();
    world.store.put_node(&name, &reports(&present), "True");
    world
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_serves_with_another_uuid_keeps_its_vm() {
    let mut world = of_another_uuid(ToOwned::to_owned).await;
    let ending = world.go_on().await;
    assert!(matches!(&ending, Ending::GivenUp(why) if why.contains("it is a Node again")), "{ending:?}");
    assert!(world.pve.vm(VMID.0).unwrap().running);
    let record = world.stored().await.pop().unwrap().record;
    let smbios = world.pve.config_of(VMID.0, "smbios1").unwrap();
    assert!(smbios.contains(&record.smbios_uuid.unwrap()), "the record has the VM's new uuid");
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_not_stopped_while_its_node_is_heard_of_as_another_machine() {
    let other = "00000000-0000-4000-8000-000000000002";
    let mut world = of_another_uuid(|_| other.to_owned()).await;
    let Ending::Stuck(why) = world.go_on().await else { panic!("the machine was removed") };
    assert!(why.contains(other) && why.contains("kubectl delete node workers-9101"), "{why}");
    assert!(world.pve.vm(VMID.0).unwrap().running && world.store.has_node("workers-9101"));
    world.store.put_node("workers-9101", other, "Unknown");
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none());
}

/// The Node already has the taint of an earlier drain.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_found_by_another_uuid_is_drained_before_its_vm_is_shut_down() {
    let mut world = of_another_uuid(ToOwned::to_owned).await;
    let name = format!("workers-{VMID}");
    let mut stored = world.stored().await.pop().unwrap();
    stored.record.intent = Intent::Retire { reason: "a test".to_owned(), since: world.context.clock.now() };
    world.context.kubernetes.update_record(&mut stored).await.unwrap();
    world.store.taint_node(&name);
    world.store.put_kept_pod("web-0", &name);
    let ending = world.go_on().await;
    assert!(matches!(&ending, Ending::GivenUp(why) if why.contains("d/web-0")), "{ending:?}");
    assert!(world.pve.vm(VMID.0).unwrap().running, "the VM keeps running, because its pod cannot be evicted");
}
