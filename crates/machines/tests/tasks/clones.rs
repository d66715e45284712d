//! Tests how many clones run at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use machines::{self, BackoffTarget, Ending};
use model::Vmid;
use settings::CloneKind;
use world::proxmox::{Event, TaskFault};

use crate::support;
use crate::world::World;

/// Creates one machine for each VMID, all concurrently. Returns the number of clones, and the largest number
/// of clones that ran at the same time.
async fn at_a_time(vmids: std::ops::Range<u32>, kind: CloneKind) -> (usize, usize) {
    let world = World::new(support::pve(), |config| config.pools[0].clone = kind).await;
    let mut events = world.pve.events();
    for vmid in vmids.clone() {
        let (context, record) = (world.context.clone(), world.record(Vmid(vmid)));
        tokio::spawn(machines::create(context, record, world.reports.clone()));
    }
    let (mut running, mut all, mut most) = (BTreeSet::new(), 0, 0);
    while all < vmids.len() || !running.is_empty() {
        let event = tokio::time::timeout(Duration::from_mins(30), events.recv()).await.unwrap().unwrap();
        match event {
            Event::TaskStarted { upid } if upid.contains(":qmclone:") => {
                running.insert(upid);
                all += 1;
            }
            Event::TaskEnded { upid, exit } if running.remove(&upid) => assert_eq!(exit, "OK"),
            _ => {}
        }
        most = most.max(running.len());
    }
    (all, most)
}

#[tokio::test(start_paused = true)]
async fn so_many_linked_clones_of_one_storage_are_made_at_a_time_and_no_more() {
    assert_eq!(at_a_time(9101..9109, CloneKind::Linked).await, (8, 3));
}

#[tokio::test(start_paused = true)]
async fn full_clones_have_a_limit_of_their_own() {
    assert_eq!(at_a_time(9101..9107, CloneKind::Full).await, (6, 2));
}

#[tokio::test(start_paused = true)]
async fn the_host_is_to_blame_where_it_lacks_what_a_vm_needs_to_start() {
    let gone = "Configuration file 'nodes/pve1/qemu-server/9101.conf' does not exist";
    for (said, expected) in [
        ("bridge 'vmbr1' does not exist", BackoffTarget::HostOrPool),
        ("start failed: QEMU exited with code 1", BackoffTarget::HostOrPool),
        (gone, BackoffTarget::Other),
    ] {
        let mut world = World::new(support::pve(), |_| {}).await;
        world.pve.inject_task("qmstart", TaskFault::Fails(said.to_owned()));
        let record = world.record(Vmid(9101));
        tokio::spawn(machines::create(world.context.clone(), record, world.reports.clone()));
        let ending = world.told.recv().await.unwrap().ending;
        let Ending::Failed { reason, blame } = ending else { panic!("{ending:?}") };
        assert!(blame == expected && reason.contains(said), "{blame:?}: {reason}");
    }
}
