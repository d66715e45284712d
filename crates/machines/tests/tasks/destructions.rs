//! Tests of events that prevent, delay or interrupt the destruction of a VM.

use std::time::Duration;

use jiff::SignedDuration;
use machines::Ending;
use world::proxmox::spec::{ClusterSpec, Grant, StorageSpec, VmSpec};
use world::proxmox::{Effect, Fault, Pve, TaskFault};

use crate::lab;
use crate::support::VMID;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn nothing_is_destroyed_once_the_quorum_is_lost_between_two_questions() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    // The VM's status is read twice before the VM is destroyed. The quorum is lost while the second answer is
    // on its way.
    let effect = Effect::Delay(Duration::from_secs(5));
    let path = "/nodes/*/qemu/*/status/current".to_owned();
    world.pve.inject(Fault { method: "GET".into(), path, times: 2, effect });
    let pve = world.pve.clone();
    let cut = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        pve.set_quorum(false);
    };
    let (ending, ()) = tokio::join!(world.go_on(), cut);
    assert!(matches!(&ending, Ending::Stuck(why) if why.contains("not quorate")), "{ending:?}");
    let asked: Vec<_> = pve.calls().into_iter().filter(|call| call.method == "DELETE").collect();
    assert!(asked.is_empty(), "{asked:?}");
    pve.set_quorum(true);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(pve.vm(VMID.0).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_started_while_the_quorum_is_asked_for_is_not_destroyed_as_it_runs() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    let effect = Effect::Delay(Duration::from_secs(10));
    world.pve.inject(Fault { method: "GET".into(), path: "/cluster/status".into(), times: 1, effect });
    let pve = world.pve.clone();
    let start = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        pve.start_by_hand(VMID.0);
    };
    let (ending, ()) = tokio::join!(world.go_on(), start);
    assert_eq!(ending, Ending::Discarded);
    let calls = pve.calls().into_iter();
    let asked: Vec<_> = calls.filter(|call| ["DELETE", "POST"].contains(&call.method.as_str())).collect();
    let told: Vec<_> = asked.iter().map(|call| (call.method.as_str(), call.status)).collect();
    assert_eq!(told[1..], [("POST", 200), ("DELETE", 200)], "the VM is stopped first: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destruction_that_was_held_back_is_not_taken_for_an_interrupted_one() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    world.pve.set_quorum(false);
    let ending = world.go_on().await;
    assert!(matches!(&ending, Ending::Stuck(why) if why.contains("not quorate")), "{ending:?}");
    world.pve.set_quorum(true);
    // An administrator removes the VM, and creates another one in its place.
    world.pve.delete_by_hand(VMID.0);
    assert!(world.pve.create_by_hand(VmSpec::machine(VMID.0, "pve1", "taken")));
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_some() && world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_not_taken_for_destroyed_where_a_storage_of_it_is_gone() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    // Versions of qemu-server before 9.1.19 fail with this error, which looks like the error for a missing
    // VM.
    world.pve.inject_task("qmdestroy", TaskFault::Fails("storage 'old' does not exist".to_owned()));
    let ending = world.go_on().await;
    assert!(
        matches!(&ending, Ending::Stuck(why) if why.contains("storage 'old' does not exist")),
        "{ending:?}"
    );
    assert!(world.pve.vm(VMID.0).is_some());
    assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

/// Kills the running destroy task once the VM has the `destroyed` lock.
async fn end_halfway(pve: Pve) {
    let is_halfway =
        || pve.vm(VMID.0).is_some_and(|vm| vm.config.get("lock").is_some_and(|lock| lock == "destroyed"));
    while !is_halfway() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (upid, _) = pve.task_exits().into_iter().rfind(|(upid, _)| upid.contains(":qmdestroy:")).unwrap();
    pve.kill_task(&upid);
}

#[tokio::test(start_paused = true)]
async fn what_an_interrupted_destruction_leaves_is_told_with_what_removes_it() {
    let mut sees_all = ClusterSpec::demo();
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, who, role) = ("/vms".to_owned(), who.to_owned(), "KasWorker".to_owned());
        sees_all.access.grants.push(Grant { path, who, role, propagate: true });
    }
    // While a VM is being destroyed, it is in no pool, so a token with rights only on the pool cannot see it.
    for (spec, answered) in
        [ClusterSpec::demo(), sees_all].into_iter().flat_map(|spec| [(spec.clone(), true), (spec, false)])
    {
        let mut world = World::new(lab::pve(spec), |_| {}).await;
        world.ours().await;
        world.failed(VMID).await;
        let pve = world.pve.clone();
        if !answered {
            pve.inject(without_an_answer());
        }
        let (first, ()) = tokio::join!(world.go_on(), end_halfway(pve.clone()));
        // The error occurs in the first run, and again in the run that is resumed after a restart.
        for ending in [first, world.go_on().await] {
            let removes = "qm unlock 9101 && qm destroy 9101 --purge 1";
            let told = |why: &String| why.contains("destroyed") && why.contains(removes);
            assert!(matches!(&ending, Ending::Stuck(why) if told(why)), "{ending:?}");
            assert_eq!(world.store.names(), ["machine-workers-9101"], "the record holds the slot");
        }
        pve.delete_by_hand(VMID.0);
        assert_eq!(world.go_on().await, Ending::Discarded);
        assert!(world.store.names().is_empty());
    }
}

/// A fault in which the destroy task begins although its caller gets no answer.
fn without_an_answer() -> Fault {
    let path = format!("/nodes/*/qemu/{VMID}");
    Fault { method: "DELETE".into(), path, times: 1, effect: Effect::WorkThenTimeOut }
}

#[tokio::test(start_paused = true)]
async fn a_destruction_of_which_no_answer_told_is_awaited_while_its_vm_is_in_no_pool() {
    let mut spec = ClusterSpec::demo();
    // The last part of the destroy task is running when the caller stops waiting.
    spec.timings.destroy = Duration::from_secs(31);
    spec.timings.jitter = 0.0;
    let mut world = World::new(lab::pve(spec), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    world.pve.inject(without_an_answer());
    let ending = world.go_on().await;
    assert_eq!(ending, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none(), "the record was dropped although the VM still exists");
    assert!(world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_destruction_of_a_former_machine_is_not_taken_for_that_of_this_one() {
    for minutes in [-10, 0, 10] {
        let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
        world.ahead(SignedDuration::from_mins(minutes));
        world.ours().await;
        world.failed(VMID).await;
        assert_eq!(world.go_on().await, Ending::Discarded);
        tokio::time::sleep(Duration::from_mins(1)).await;
        world.ours().await;
        world.failed(VMID).await;
        let pve = world.pve.clone();
        pve.inject(without_an_answer());
        let (ending, ()) = tokio::join!(world.go_on(), end_halfway(pve));
        let is_told = matches!(&ending, Ending::Stuck(why) if why.contains("qm unlock 9101"));
        assert!(is_told, "{minutes}: {ending:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_destruction_of_which_no_answer_told_is_known_though_the_hosts_clock_differs() {
    for minutes in [-10, 0, 10] {
        let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
        world.ahead(SignedDuration::from_mins(minutes));
        world.ours().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.failed(VMID).await;
        let pve = world.pve.clone();
        pve.inject(without_an_answer());
        // Another VM takes the VMID as soon as the VMID is free.
        let taken = async {
            while pve.vm(VMID.0).is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(pve.create_by_hand(VmSpec::machine(VMID.0, "pve1", "taken")));
        };
        let (ending, ()) = tokio::join!(world.go_on(), taken);
        assert_eq!(ending, Ending::Discarded, "{minutes}");
        assert!(pve.vm(VMID.0).is_some() && world.store.names().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_the_host_does_not_have_holds_nothing_of_a_vm() {
    let mut spec = ClusterSpec::demo();
    let elsewhere = spec.storages[0].clone();
    let (id, hosts) = ("zfs-b".to_owned(), vec!["pve2".to_owned()]);
    spec.storages.push(StorageSpec { id, hosts, shared: false, ..elsewhere });
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        let (path, who, role) = ("/storage/zfs-b".to_owned(), who.to_owned(), "KasStorage".to_owned());
        spec.access.grants.push(Grant { path, who, role, propagate: true });
    }
    let mut world =
        World::new(lab::pve(spec), |config| config.pools[0].storages.push("zfs-b".to_owned())).await;
    world.ours().await;
    world.failed(VMID).await;
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(world.pve.vm(VMID.0).is_none() && world.store.names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_destroyed_on_a_host_that_does_not_know_of_its_cluster() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    let alone = r#"{"data":[{"type":"node","name":"pve1","id":"node/pve1","local":1,"online":1}]}"#;
    let effect = Effect::Answer { status: 200, reason: "OK".to_owned(), body: alone.to_owned() };
    world.pve.inject(Fault {
        method: "GET".into(),
        path: "/cluster/status".into(),
        times: usize::MAX,
        effect,
    });
    let ending = world.go_on().await;
    assert!(matches!(&ending, Ending::Stuck(why) if why.contains("not quorate")), "{ending:?}");
    assert!(world.pve.vm(VMID.0).is_some());
    world.pve.forget_faults();
    assert_eq!(world.go_on().await, Ending::Discarded);
}
