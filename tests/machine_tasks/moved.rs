//! VMs that HA manages, and VMs that somebody moved.

use pve_autoscaler::machines::Ending;
use world::proxmox::spec::ClusterSpec;

use crate::lab;
use crate::support::VMID;
use crate::world::World;

/// A world with a running VM of ours that is to go.
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
    world.pve.set_ha(VMID, true);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID).is_none());
    assert!(world.store.names().is_empty());
    let ends = world.pve.task_exits();
    assert!(ends.iter().all(|(_, exit)| exit.as_deref() == Some("OK")), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_moved_by_hand_is_followed_to_its_host() {
    let mut world = doomed().await;
    world.pve.migrate_by_hand(VMID, "pve3");
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID).is_none());
    assert!(world.pve.volumes_of(VMID).is_empty());
    let destruction = world.pve.task_exits().pop().unwrap().0;
    assert!(destruction.starts_with("UPID:pve3:") && destruction.contains(":qmdestroy:"), "{destruction}");
}
