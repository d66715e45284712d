//! Pods that cannot be scheduled get nodes.

use std::time::Duration;

use pve_autoscaler::observability::MachineStatus;
use serde_json::json;
use world::guest::GuestFaults;
use world::proxmox::spec::{ClusterSpec, GIB, VmSpec};
use world::proxmox::{Effect, Fault, TaskFault};

use world::kubernetes::spec::KubeSpec;

use crate::out_of_sight::rights;
use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// A pool of at most one machine; the answer to the request that creates its first record is lost.
async fn with_a_lost_answer() -> Stage {
    let stage = Stage::running(&ONE_POOL.replace("max = 5", "max = 1"));
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage.kube.inject(world::kubernetes::Fault {
        method: "POST".to_owned(),
        path: "/api/v1/namespaces/pve-autoscaler/configmaps".to_owned(),
        times: 1,
        effect: world::kubernetes::Effect::WorkThenLose,
    });
    stage.deploy("web", 2, "1500m", "1Gi");
    stage
}

/// After a crash, the next run counts all existing records.
#[tokio::test(start_paused = true)]
async fn a_record_whose_making_had_no_answer_is_the_only_one_before_and_after_a_crash() {
    let mut stage = with_a_lost_answer().await;
    stage.until("a VM is there", SOON, |stage| !stage.vms(9100..=9109).is_empty()).await;
    assert_eq!(stage.leftovers().iter().filter(|name| name.contains("machine-")).count(), 1);
    stage.kill();
    stage.start();
    let most_one = |stage: &Stage| stage.vms(9100..=9109).len() <= 1;
    stage.throughout("there is at most one machine", Duration::from_mins(12), most_one).await;
    assert_eq!(stage.running_pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_making_had_no_answer_makes_no_machine_beyond_the_maximum() {
    let stage = with_a_lost_answer().await;
    stage.until("one pod runs", SOON * 2, |stage| stage.running_pods() == 1).await;
    stage
        .throughout("there is one machine", Duration::from_mins(12), |stage| {
            stage.vms(9100..=9109).len() == 1
        })
        .await;
    // Only the record of the existing machine is left.
    assert_eq!(stage.leftovers().len(), 1, "{:?}", stage.leftovers());
}

/// The record names the template's storages. The daemon looks for leftovers on them even if the template and
/// the VM cannot be read later.
#[tokio::test(start_paused = true)]
async fn a_record_names_the_storages_of_the_template_before_there_is_a_vm() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    let own = |stage: &Stage| stage.leftovers().into_iter().find(|name| name.contains("machine-"));
    stage.until("there is a record", SOON, |stage| own(stage).is_some()).await;
    assert_eq!(stage.vms(9100..=9109), [0; 0]);
    let maps = stage.kube.list("ConfigMap");
    let mut records = maps.iter().filter_map(|map| map["data"]["record"].as_str());
    assert!(records.any(|record| record.contains(r#""storages":["shared"]"#)), "{maps:?}");
}

/// One host with room for one machine, although `memory_overcommit` would allow more.
fn narrow(settings: impl FnOnce(String) -> String) -> Stage {
    let mut spec = ClusterSpec::demo();
    // Of its 14 GiB, the host uses 4 GiB itself, another VM has 2 GiB, and 2 GiB are kept free. This leaves
    // room for one machine of 4 GiB.
    spec.hosts.iter_mut().for_each(|host| host.memory = 14 * GIB);
    let pool = Some("k8s-workers".to_owned());
    let mut other = VmSpec { running: true, pool, ..VmSpec::machine(120, "pve1", "other") };
    other.config.insert("onboot".to_owned(), "1".to_owned());
    spec.vms.push(other);
    let text = ONE_POOL.replace("bridge =", "hosts = [\"pve1\"]\nmemory_overcommit = 4.0\nbridge =");
    let mut stage = Stage::of(&settings(text), spec, KubeSpec::demo());
    stage.start();
    stage
}

/// With these settings, only `memory_overcommit` prevents a second machine: guests may be assigned half of
/// the host's memory.
fn promised(text: String) -> String {
    text.replace("overcommit = 4.0", "overcommit = 0.5").replace("\"4GiB\"", "\"2560MiB\"")
}

/// Deploys another pod once the first machine is in this phase, and asserts that no machine is created for
/// that pod.
async fn none_is_made_beside_one_that_is(phase: &str, stage: &Stage) {
    stage.deploy("web", 1, "1500m", "1Gi");
    let so_far = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == phase);
    stage.until("the first machine has reached the phase", SOON, so_far).await;
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.throughout("there is one machine", SOON, |stage| stage.vms(9100..=9109).len() == 1).await;
    assert_eq!(stage.running_pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_just_started_takes_its_memory_before_the_lists_show_it() {
    none_is_made_beside_one_that_is("Booting", &narrow(|text| text)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_ready_takes_its_memory_before_the_lists_show_it() {
    let stage = narrow(|text| format!("scan_interval = \"5m\"\n{text}"));
    stage.until("the templates are known", SOON, |stage| !stage.status().hosts.is_empty()).await;
    none_is_made_beside_one_that_is("Ready", &stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_and_cannot_be_seen_takes_its_memory() {
    let stage = narrow(promised);
    stage.deploy("web", 1, "1", "1Gi");
    let phase = |stage: &Stage, phase: &str| stage.status().machines.iter().any(|one| one.phase == phase);
    stage.until("one boots", SOON, |stage| phase(stage, "Booting")).await;
    rights(&stage, false);
    stage.until("the machine is given up", SOON, |stage| phase(stage, "Failed")).await;
    let alone = |stage: &Stage| stage.status().machines.len() == 1;
    stage.throughout("no other machine is made", Duration::from_mins(5), alone).await;
    rights(&stage, true);
    stage.until("the pod runs", SOON * 5, |stage| stage.running_pods() == 1).await;
}

/// A host with room for one machine, and two pools. The first pool has these additional settings.
fn narrow_for_two(settings: &str, change: impl FnOnce(String) -> String) -> Stage {
    narrow(|text| {
        let text = change(text);
        let pool = text.split("[[pool]]").nth(1).unwrap_or_default().replace("workers", "others");
        let other = pool
            .replace("9100-9109", "9200-9209")
            .replace("10.10.10.11-10.10.10.20", "10.10.10.21-10.10.10.30");
        format!("{text}{settings}[[pool]]{other}")
    })
}

/// The part of a pod's spec that selects this pool.
fn of(pool: &str) -> serde_json::Value {
    json!({ "nodeSelector": { "pve-autoscaler/pool": pool } })
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_takes_its_memory_when_it_comes_up_with_its_host() {
    // The host is switched on at different points in time, because the machine's removal is retried at
    // intervals, and Proxmox VE renews its lists at intervals.
    for off in (500..560).step_by(6) {
        let stage = narrow_for_two("", promised);
        stage.deploy_with("web", 1, "1500m", "1Gi", &of("workers"));
        let configured = |stage: &Stage| stage.pve.config_of(9100, "onboot").is_some_and(|on| on == "1");
        stage.until("it is configured", SOON, configured).await;
        stage.pve.power_off_host("pve1");
        let given_up = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Failed");
        stage.until("the machine is given up", SOON * 3, given_up).await;
        stage.deploy_with("db", 1, "1500m", "1Gi", &of("others"));
        tokio::time::sleep(Duration::from_secs(off)).await;
        stage.pve.power_on_host("pve1");
        let begun = |stage: &Stage| stage.status().machines.iter().any(|one| one.pool == "others");
        stage.until("a machine of the other pool is made", SOON * 5, begun).await;
        let beside = stage.pve.vm(9100).is_some_and(|vm| vm.running);
        assert!(!beside, "VM 9100 still uses the room after its host was off for {off} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_given_up_takes_its_memory_until_its_vm_is_gone() {
    let stage = narrow_for_two("warm = { count = 1, state = \"suspended\" }\n", |text| text);
    let phase = |stage: &Stage, phase: &str| stage.status().machines.iter().any(|one| one.phase == phase);
    stage.until("one is kept", SOON, |stage| phase(stage, "Warm")).await;
    // After the machine is resumed, its VM is configured to start with its host, which is not possible while
    // the VM is suspended.
    stage.pve.inject_task("qmconfig", TaskFault::Fails("the disk is full".into()));
    stage.deploy_with("web", 1, "1500m", "1Gi", &of("workers"));
    stage.until("the machine is given up", SOON, |stage| phase(stage, "Failed")).await;
    assert!(stage.pve.vm(9100).is_some_and(|vm| vm.running));
    stage.deploy_with("db", 1, "1500m", "1Gi", &of("others"));
    let begun = |stage: &Stage| stage.status().machines.iter().any(|one| one.pool == "others");
    stage.until("a machine of the other pool is made", SOON, begun).await;
    assert!(!stage.pve.vm(9100).is_some_and(|vm| vm.running), "VM 9100 still uses the room");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_an_administrator_starts_before_it_is_configured_is_made_again() {
    let stage = Stage::running(ONE_POOL);
    let (path, effect) = ("/nodes/*/qemu/*/config".to_owned(), Effect::Delay(Duration::from_secs(3)));
    stage.pve.inject(Fault { method: "POST".into(), path, times: 1, effect });
    stage.deploy("web", 1, "1500m", "1Gi");
    let cloned = |stage: &Stage| stage.pve.vm(9100).is_some_and(|vm| !vm.config.contains_key("lock"));
    stage.until("the clone is complete", SOON, cloned).await;
    stage.pve.start_by_hand(9100);
    stage.until("the pod runs", SOON * 2, |stage| stage.running_pods() == 1).await;
    let vms = stage.vms(9100..=9109);
    assert!(vms.len() == 1 && stage.pve.waits_for_start(vms[0]).is_empty(), "{vms:?}");
    assert_eq!(stage.pve.config_of(vms[0], "memory").as_deref(), Some("4096"));
}

#[tokio::test(start_paused = true)]
async fn a_pool_scales_from_zero_for_a_pod_that_fits_nowhere() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.ready_nodes("workers").len(), 1);
    assert_eq!(stage.vms(9100..=9109), [9100]);
    let config = stage.pve.vm(9100).unwrap().config;
    assert_eq!(config["cores"], "2");
    assert_eq!(config["memory"], "4096");
    assert_eq!(config["ipconfig0"], "ip=10.10.10.11/24,gw=10.10.10.1");
    // After the join, the token is deleted, and only the machine's record is left.
    stage.until("the token is gone", SOON, |stage| stage.leftovers() == ["machine-workers-9100"]).await;
}

#[tokio::test(start_paused = true)]
async fn one_round_makes_all_nodes_that_many_pods_need() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 4, "1500m", "1Gi");
    let took = stage.until("four pods run", SOON, |stage| stage.running_pods() == 4).await;
    assert_eq!(stage.ready_nodes("workers").len(), 4);
    // The machines start side by side, not one after the other.
    assert!(took < Duration::from_secs(45), "{took:?}");
    stage.throughout("there are four", SOON, |stage| stage.vms(9100..=9109).len() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn several_pools_grow_at_once_for_pods_that_only_one_of_them_can_take() {
    let text = format!(
        "{ONE_POOL}{}",
        r#"
[[pool]]
name = "large"
max = 3
cores = 8
memory = "16GiB"
template = 9000
vmids = "9200-9209"
addresses = "10.10.10.31-10.10.10.40"
prefix = 24
gateway = "10.10.10.1"
labels = { size = "large" }
taints = ["dedicated=large:NoSchedule"]
"#
    );
    let stage = Stage::running(&text);
    stage.deploy("web", 2, "1500m", "1Gi");
    let spec = json!({
        "nodeSelector": { "size": "large" },
        "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
    });
    stage.deploy_with("db", 2, "6", "4Gi", &spec);
    stage.until("all pods run", SOON, |stage| stage.running_pods() == 4).await;
    assert_eq!((stage.ready_nodes("workers").len(), stage.ready_nodes("large").len()), (2, 2));
    let large = stage.kube.get("Node", "", &stage.ready_nodes("large")[0]).unwrap();
    assert_eq!(large["metadata"]["labels"]["size"], "large");
    assert_eq!(
        large["spec"]["taints"],
        json!([{ "key": "dedicated", "value": "large", "effect": "NoSchedule" }])
    );
}

#[tokio::test(start_paused = true)]
async fn a_pool_at_its_maximum_grows_no_further_and_says_so() {
    let stage = Stage::running(ONE_POOL);
    stage.deploy("web", 9, "1500m", "1Gi");
    stage.until("five pods run", SOON, |stage| stage.running_pods() == 5).await;
    stage
        .throughout("there are five", Duration::from_mins(10), |stage| stage.vms(9100..=9109).len() == 5)
        .await;
    let waiting = stage.status().pods;
    assert_eq!(waiting.len(), 4, "{waiting:?}");
    assert!(waiting.iter().all(|pod| pod.why.contains("max")), "{waiting:?}");
}

/// The demo cluster, with these faults in each clone of its template.
fn faulty(faults: GuestFaults) -> ClusterSpec {
    let mut cluster = ClusterSpec::demo();
    for vm in cluster.vms.iter_mut().filter(|vm| vm.vmid == 9000) {
        vm.faults = faults.clone();
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_vm_whose_agent_never_answers_is_destroyed_and_its_pool_backs_off() {
    let cluster = faulty(GuestFaults { agent_never: true, ..GuestFaults::default() });
    let mut stage = Stage::of(ONE_POOL, cluster, KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("a VM is there", SOON, |stage| stage.vms(9100..=9109) == [9100]).await;
    let gone =
        stage.until("it is gone", Duration::from_mins(12), |stage| stage.vms(9100..=9109).is_empty()).await;
    assert!(gone > Duration::from_mins(5), "the VM outlives the time limit of the agent: {gone:?}");
    stage.until("nothing is left", SOON, |stage| stage.leftovers().is_empty()).await;
    stage
        .throughout("the pool backs off", Duration::from_mins(4), |stage| stage.vms(9100..=9109).is_empty())
        .await;
    let status = stage.status();
    assert!(status.pools[0].backoff.is_some(), "{:?}", status.pools);
    stage
        .until("another VM is created", Duration::from_mins(3), |stage| !stage.vms(9100..=9109).is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_join_that_fails_costs_one_vm_and_says_what_kubeadm_said() {
    let text = "error execution phase preflight: the container runtime is not running".to_owned();
    let cluster = faulty(GuestFaults { join_fails: Some(text), ..GuestFaults::default() });
    let mut stage = Stage::of(ONE_POOL, cluster, KubeSpec::demo());
    stage.start();
    stage.deploy("web", 1, "1", "1Gi");
    stage
        .until("the machine has failed", SOON, |stage| {
            stage
                .status()
                .decisions
                .iter()
                .any(|one| one.what.contains("the container runtime is not running"))
        })
        .await;
    stage
        .until("nothing is left", SOON, |stage| {
            stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_vm_on_one_of_the_vmids_is_left_alone_and_another_one_is_taken() {
    let mut cluster = ClusterSpec::demo();
    cluster.vms.push(VmSpec::machine(9100, "pve2", "unmanaged-vm"));
    let mut stage = Stage::of(ONE_POOL, cluster, KubeSpec::demo());
    stage.start();
    let before = stage.pve.vm(9100);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.vms(9100..=9109), [9100, 9101]);
    assert_eq!(stage.pve.vm(9100), before);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_vm_that_takes_the_vmid_at_the_last_moment_is_left_alone() {
    let stage = Stage::running(ONE_POOL);
    stage.until("two rounds have run", SOON, |stage| stage.status().rounds > 1).await;
    // This VM is created right after the daemon has read Proxmox VE, so only the clone request reveals it.
    assert!(stage.pve.create_by_hand(VmSpec::machine(9100, "pve2", "unmanaged-vm")));
    let before = stage.pve.vm(9100);
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(stage.pve.vm(9100), before);
    assert_eq!(stage.vms(9100..=9109).len(), 2);
    stage.until("one record is left", SOON, |stage| stage.leftovers().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_host_that_goes_offline_get_nodes_on_another() {
    let stage = Stage::running(&ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\""));
    stage.deploy("web", 1, "1", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let vmid = stage.vms(9100..=9109)[0];
    let host = stage.pve.vm(vmid).unwrap().node;
    stage.pve.power_off_host(&host);
    let lost = stage.ready_nodes("workers");
    // The node is unreachable after 47 s, and its pods are deleted 300 s later. Then the new node is created.
    stage
        .until("the pod runs elsewhere", Duration::from_mins(10), |stage| {
            let ready = stage.ready_nodes("workers");
            !ready.is_empty() && ready != lost && stage.running_pods() == 1
        })
        .await;
    let others: Vec<u32> = stage.vms(9100..=9109).into_iter().filter(|other| *other != vmid).collect();
    assert_eq!(others.len(), 1);
    assert_ne!(stage.pve.vm(others[0]).unwrap().node, host);
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_only_template_is_on_a_host_that_is_offline_says_so_and_waits_for_it() {
    let stage = Stage::running(ONE_POOL);
    stage.until("rounds run", SOON, |stage| stage.status().ready).await;
    stage.pve.power_off_host("pve1");
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.deploy("web", 1, "1", "1Gi");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let status = stage.status();
    let why = status.pools[0].backoff.clone().unwrap_or_default();
    assert!(why.contains("while its host is offline"), "{why}");
    assert!(stage.leftovers().is_empty(), "{:?}", stage.leftovers());
    stage.pve.power_on_host("pve1");
    stage.until("the pod runs", Duration::from_mins(4), |stage| stage.running_pods() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_dies_while_it_makes_a_machine_is_not_waited_for() {
    for after in [300, 1000, 5000, 15_000] {
        let stage = Stage::running(&ONE_POOL.replace("template = 9000", "template = \"k8s-worker-local\""));
        stage.deploy("web", 1, "1", "1Gi");
        tokio::time::sleep(Duration::from_millis(after)).await;
        stage.pve.power_off_host("pve1");
        let what = format!("the pod runs elsewhere, pve1 was switched off after {after} ms");
        stage.until(&what, Duration::from_mins(2), |stage| stage.running_pods() == 1).await;
        stage.pve.power_on_host("pve1");
        let settled = |stage: &Stage| stage.vms(9100..=9109).len() == 1 && stage.leftovers().len() == 1;
        let asks =
            |stage: &Stage| stage.status().machines.iter().any(|one| one.why.contains("qm unlock 9100"));
        stage
            .until(
                "only one machine is left, or an administrator is asked",
                Duration::from_mins(25),
                |stage| settled(stage) || asks(stage),
            )
            .await;
        if asks(&stage) {
            // Only an administrator can unlock the daemon's half-finished clone, and no configuration
            // mentions the clone's disk.
            let whole = |one: &MachineStatus| one.why.contains("--destroy-unreferenced-disks 1");
            assert!(stage.status().machines.iter().any(whole), "{}", stage.scene());
            assert_eq!(stage.pve.vm(9100).unwrap().config["lock"], "clone");
            stage.pve.delete_by_hand(9100);
        }
        stage.until("only one machine is left", Duration::from_mins(15), settled).await;
    }
}
