//! Tests of leftovers: the disks of a destroyed VM, and the VM that a failed clone left behind.

use std::sync::Arc;
use std::time::Duration;

use machines::{Ending, Templates};
use model::Record;
use proxmox::Upid;
use settings::Config;
use tokio::task::JoinHandle;
use world::proxmox::spec::{ClusterSpec, Grant};
use world::proxmox::{Effect, Fault, Pve, TaskFault};

use crate::lab;
use crate::support::{self, VMID};
use crate::world::World;

/// A world with a managed VM that is to be removed and whose disks cannot be freed.
async fn doomed(pve: Pve) -> World {
    let world = World::new(pve, |_| {}).await;
    world.ours().await;
    world.pve.set_storage_busy("shared", true);
    world.failed(VMID).await;
    world
}

fn stuck(ending: Ending) -> String {
    match ending {
        Ending::Stuck(why) => why,
        other => panic!("{other:?}"),
    }
}

/// A cluster whose token also has rights on VMs outside all pools.
fn seeing() -> Pve {
    let mut spec = ClusterSpec::demo();
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, role) = ("/vms".to_owned(), "KasWorker".to_owned());
        spec.access.grants.push(Grant { path, who: who.to_owned(), role, propagate: true });
    }
    lab::pve(spec)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_on_the_word_of_a_record_that_is_gone() {
    let mut world = World::new(seeing(), |_| {}).await;
    let kubernetes = world.context.kubernetes.clone();
    let read = kubernetes.create_record(&world.record(VMID)).await.unwrap();
    // The record was read while it still existed. The machine has been removed since.
    kubernetes.delete_record(&read).await.unwrap();
    let why = stuck(world.go_on_with(read).await);
    assert!(why.contains("was changed by another client"), "{why}");
    let asked: Vec<_> = world.pve.calls().into_iter().filter(|call| call.method != "GET").collect();
    assert!(asked.is_empty(), "{asked:?}");
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

/// Delays the next clone request: it reaches the host after 20 s.
fn delay_clone(world: &World) {
    let effect = Effect::Delay(Duration::from_secs(20));
    let path = "/nodes/*/qemu/*/clone".to_owned();
    world.pve.inject(Fault { method: "POST".into(), path, times: 1, effect });
}

/// Requests the machine's clone, and returns a second later. The request reaches the host after 20 s.
async fn slow_clone(world: &World) -> JoinHandle<Upid> {
    delay_clone(world);
    let asked = world.ask_for_clone();
    tokio::time::sleep(Duration::from_secs(1)).await;
    asked
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_another_client_asked_for_is_awaited_though_its_machines_time_is_over() {
    let short = |config: &mut Config| config.scale_up.max_node_provision_time = Duration::from_secs(5);
    let mut world = World::new(lab::pve(ClusterSpec::demo()), short).await;
    world.context.kubernetes.create_record(&world.record(VMID)).await.unwrap();
    let asked = slow_clone(&world).await;
    delay_clone(&world);
    let ending = world.go_on().await;
    let over = "becoming a ready node took longer than 5 s";
    assert!(matches!(&ending, Ending::Failed { reason, .. } if reason.contains(over)), "{ending:?}");
    assert_eq!(world.told.recv().await.unwrap().ending, Ending::Discarded);
    assert!(asked.is_finished(), "the clone was awaited");
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_requested_long_ago_and_not_begun_has_its_time() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    // The record may be this old because the machine waited for its turn under another instance, or because
    // this instance's clock is ahead.
    let created = world.context.clock.now() - Duration::from_mins(16);
    let record = Record { created, ..world.record(VMID) };
    world.context.kubernetes.create_record(&record).await.unwrap();
    let ending = world.go_on().await;
    let Ending::Failed { reason, .. } = &ending else {
        panic!("guests do not boot in this test: {ending:?}")
    };
    assert!(!reason.starts_with("the clone failed"), "{reason}");
    assert!(world.pve.calls().iter().any(|call| call.path.ends_with("/clone")));
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_another_client_asked_for_is_awaited_whatever_ends_its_machine() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.context.kubernetes.create_record(&world.record(VMID)).await.unwrap();
    let asked = slow_clone(&world).await;
    let mut config = Config::clone(&world.context.config);
    config.pools[0].name = "others".into();
    world.context.config = Arc::new(config);
    let ending = world.go_on().await;
    let gone = "pool `workers` is no longer in the configuration";
    assert!(matches!(&ending, Ending::Failed { reason, .. } if reason.contains(gone)), "{ending:?}");
    assert_eq!(world.told.recv().await.unwrap().ending, Ending::Discarded);
    assert!(asked.is_finished(), "the clone was awaited");
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_takes_the_vmid_from_a_second_one_may_be_its_own_and_is_awaited() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.context.kubernetes.create_record(&world.record(VMID)).await.unwrap();
    // The daemon was killed before it learned the task's id, and the token may not see the new VM.
    let asked = slow_clone(&world).await;
    let error = "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/9101.conf' failed: File exists";
    world.pve.inject_task("qmclone", TaskFault::Fails(error.to_owned()));
    let ending = world.go_on().await;
    assert_eq!(world.told.recv().await.unwrap().ending, Ending::Discarded);
    assert!(asked.is_finished(), "the clone was awaited");
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
    assert!(matches!(&ending, Ending::Failed { .. }), "{ending:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_configured_vm_is_gone_is_given_up_and_not_made_once_more() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    let smbios_uuid = Some("00000000-0000-4000-8000-000000000001".to_owned());
    let record = Record { smbios_uuid, ..world.record(VMID) };
    world.context.kubernetes.create_record(&record).await.unwrap();
    let ending = world.go_on().await;
    let removed = "the clone failed: its VM was removed by another client";
    assert!(matches!(&ending, Ending::Failed { reason, .. } if reason == removed), "{ending:?}");
    assert_eq!(world.told.recv().await.unwrap().ending, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slot_stays_closed_until_the_disks_of_its_vm_are_gone() {
    let mut world = doomed(seeing()).await;
    let why = stuck(world.go_on().await);
    assert!(world.pve.vm(VMID.0).is_none());
    let left = world.pve.volumes_of(VMID.0);
    assert_eq!(left.len(), 2, "{left:?}");
    for disk in &left {
        assert!(why.contains(&format!("pvesm free {disk}")), "{why}");
    }
    assert!(!why.contains("kubectl"), "{why}");
    assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
    let shown = world.context.registry.all();
    assert_eq!((shown.len(), shown[0].record.slot.vmid, shown[0].note.as_str()), (1, VMID, why.as_str()));

    world.pve.free_by_hand(&left[0]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let why = stuck(world.go_on().await);
    assert!(!why.contains(&left[0]) && why.contains(&left[1]), "{why}");

    world.pve.free_by_hand(&left[1]);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_not_see_left_disks_goes_by_the_log_and_asks_for_a_word() {
    let mut world = doomed(support::pve()).await;
    for _ in 0..2 {
        let why = stuck(world.go_on().await);
        for disk in world.pve.volumes_of(VMID.0) {
            assert!(why.contains(&disk), "{why}");
        }
        let dropped = "kubectl -n pve-autoscaler delete configmap -l pve-autoscaler/machine=";
        // The label identifies the record. So the command never deletes the record of a later machine in the
        // slot, even if it is run late.
        let ids = world.store.labels("pve-autoscaler/machine");
        assert!(ids.len() == 1 && why.ends_with(&format!("{dropped}{}", ids[0])), "{why}");
    }
    assert_eq!(world.store.names(), ["machine-workers-9101"]);
}

#[tokio::test(start_paused = true)]
async fn what_can_no_longer_be_told_is_asked_of_the_administrator() {
    let mut world = doomed(support::pve()).await;
    world.pve.inject_task("qmdestroy", TaskFault::Forgotten);
    // The error occurs in the first run, and again in the run that is resumed after a restart.
    for _ in 0..2 {
        let why = stuck(world.go_on().await);
        assert!(world.pve.vm(VMID.0).is_none());
        assert!(why.contains("pvesm list shared --vmid 9101"), "{why}");
        assert!(
            why.contains("kubectl -n pve-autoscaler delete configmap -l pve-autoscaler/machine="),
            "{why}"
        );
    }
    assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_knows_where_the_disks_of_a_vm_were_that_is_gone() {
    for pve in [support::pve(), seeing()] {
        let mut world = doomed(pve).await;
        world.pve.inject_task("qmdestroy", TaskFault::Forgotten);
        let told = stuck(world.go_on().await);
        assert!(world.pve.vm(VMID.0).is_none());
        // A restarted daemon has not read the template yet.
        world.context.templates = Templates::default();
        assert_eq!(stuck(world.go_on().await), told);
        assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_sees_the_storages_needs_no_log() {
    let mut world = doomed(seeing()).await;
    world.pve.set_storage_busy("shared", false);
    world.pve.inject_task("qmdestroy", TaskFault::Forgotten);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn release_8_leaves_disks_behind_with_a_task_that_ended_well() {
    let mut spec = ClusterSpec { version: "8.4.21".to_owned(), ..ClusterSpec::demo() };
    spec.access = world::proxmox::spec::AccessSpec::least_privilege("8.4.21", &["shared"], &["vmbr0"]);
    let mut world = doomed(lab::pve(spec)).await;
    let why = stuck(world.go_on().await);
    assert!(world.pve.task_exits().iter().all(|(_, exit)| exit.as_deref() == Some("OK")));
    assert!(why.contains("vm-9101-disk-0"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_no_configuration_named_is_found_too() {
    let mut world = doomed(seeing()).await;
    world.pve.set_storage_busy("shared", false);
    // A killed clone task leaves a VM whose configuration does not contain the disk.
    world.pve.set_config_by_hand(VMID.0, "scsi0", None);
    let why = stuck(world.go_on().await);
    assert!(why.contains("vm-9101-disk-0") && !why.contains("cloudinit"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn disks_of_a_stranger_who_took_the_vmid_close_nothing() {
    let mut world = doomed(seeing()).await;
    stuck(world.go_on().await);
    let mut stranger = world::proxmox::spec::VmSpec::machine(VMID.0, "pve2", "stranger");
    stranger.pool = Some("k8s-templates".to_owned());
    assert!(world.pve.create_by_hand(stranger));
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_destruction_that_was_never_recorded_is_found_by_its_task() {
    let mut world = doomed(support::pve()).await;
    // The daemon is killed right after it has requested the destroy task.
    let upid = world.context.proxmox.destroy("pve1", VMID).await.unwrap();
    assert!(support::done(&world.context.proxmox, &upid).await.is_success());
    let why = stuck(world.go_on().await);
    assert!(why.contains("vm-9101-disk-0"), "{why}");
    assert_eq!(world.store.names(), ["machine-workers-9101"]);
}

/// Creates a world in which one daemon waited for a clone until the time limit, and another daemon continued
/// from the record. Also returns how the second daemon's run ended.
async fn left_by_a_clone(fault: TaskFault) -> (World, Ending) {
    let mut world = World::new(support::pve(), |_| {}).await;
    world.pve.inject_task("qmclone", fault);
    let upid = world.begin_clone().await;
    world.failed_with(VMID, Some(&upid)).await;
    let ending = world.go_on().await;
    (world, ending)
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_a_dead_clone_left_keeps_its_record_though_no_token_may_see_it() {
    let (mut world, ending) = left_by_a_clone(TaskFault::Dies(Duration::from_millis(100))).await;
    let vm = world.pve.vm(VMID.0).unwrap();
    assert_eq!((vm.config.get("lock").map(String::as_str), vm.pool), (Some("clone"), None));
    let why = stuck(ending);
    assert!(why.contains("qm destroy 9101"), "{why}");
    assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");

    world.pve.delete_by_hand(VMID.0);
    for disk in world.pve.volumes_of(VMID.0) {
        world.pve.free_by_hand(&disk);
    }
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_failed_before_it_began_leaves_nothing_to_doubt() {
    let error = "can't lock file '/var/lock/qemu-server/lock-9000.conf' - got timeout";
    let (world, ending) = left_by_a_clone(TaskFault::Fails(error.to_owned())).await;
    assert_eq!(ending, Ending::Discarded);
    assert!(world.store.names().is_empty());
}
