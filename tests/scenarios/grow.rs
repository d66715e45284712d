//! Running machines grow before new ones are created: vCPUs and memory are plugged in, the guest brings them
//! online, and the machine's Node reports them.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use serde_json::json;
use world::guest::GuestFaults;

use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(4);
/// Longer than [`SOON`], for conditions that are met only after a back-off.
const LATE: Duration = Duration::from_mins(20);

/// The pool of the scenarios, whose machines may grow to this size.
pub fn growing(cores: u32, memory: &str) -> String {
    format!("{ONE_POOL}[pool.grow]\nmax_cores = {cores}\nmax_memory = \"{memory}\"\n")
}

/// Allows the token to set `hotplug`.
pub fn permit(stage: &Stage) {
    stage.pve.change_access(|access| {
        access.roles.get_mut("KasWorker").unwrap().push("VM.Config.HWType".to_owned());
    });
}

/// A stage with one machine that serves one pod.
pub async fn with_one() -> Stage {
    with_one_of(6).await
}

/// Like [`with_one`], but the machine may grow to this many vCPUs.
async fn with_one_of(cores: u32) -> Stage {
    let mut stage = Stage::new(&growing(cores, "12GiB"));
    permit(&stage);
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage
}

/// The CPUs and memory of the pool's only Node.
fn capacity(stage: &Stage) -> (String, String) {
    capacity_of(stage, 0)
}

/// The CPUs and memory of the pool's n-th Node.
pub fn capacity_of(stage: &Stage, number: usize) -> (String, String) {
    let nodes = stage.kube.list("Node");
    let own: Vec<_> =
        nodes.iter().filter(|node| node["metadata"]["labels"]["pve-autoscaler/pool"] == "workers").collect();
    let text = |what: &str| own[number]["status"]["capacity"][what].as_str().unwrap_or_default().to_owned();
    (text("cpu"), text("memory"))
}

/// The record of the first machine.
pub fn record(stage: &Stage) -> String {
    let maps = stage.kube.list("ConfigMap");
    let record = maps.iter().find(|map| name(map).starts_with("machine-")).unwrap();
    record["data"]["record"].as_str().unwrap().to_owned()
}

/// Whether a Node is closed to pods because its machine is growing.
pub fn is_closed(stage: &Stage) -> bool {
    let nodes = stage.kube.list("Node");
    nodes.iter().any(|node| node["spec"]["taints"].to_string().contains("pve-autoscaler/growing"))
}

pub fn config(stage: &Stage, key: &str) -> String {
    stage.pve.config_of(9100, key).unwrap_or_default()
}

pub fn decided(stage: &Stage, what: &str) -> bool {
    stage.status().decisions.iter().any(|one| one.what.contains(what))
}

#[tokio::test(start_paused = true)]
async fn a_machine_grows_for_a_pod_that_fits_no_node_and_no_other_is_made() {
    let stage = with_one().await;
    let made = ["cores", "vcpus", "numa", "hotplug"].map(|key| config(&stage, key));
    assert_eq!(made, ["6", "2", "1", "network,disk,usb,cpu,memory"].map(String::from));
    let before = capacity(&stage);
    stage.deploy("large", 1, "3", "5Gi");
    stage.until("the Node is closed while its kubelet restarts", SOON, is_closed).await;
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(stage.vms(9100..=9109), [9100], "no other machine was made");
    let after = capacity(&stage);
    assert_ne!(before, after);
    assert_eq!(config(&stage, "vcpus"), after.0, "the Node has what the VM has");
    assert!(decided(&stage, "~ "), "{:#?}", stage.status().decisions);
    stage.until("the growth is over", SOON, |stage| decided(stage, "has grown")).await;
    let record = record(&stage);
    assert!(record.contains(&format!("\"cores\":{}", after.0)) && !record.contains("growing"), "{record}");
    assert!(!is_closed(&stage));
    // The machine's new size is not regarded as drift, and the daemon does not shrink the machine.
    let calm = |stage: &Stage| stage.vms(9100..=9109) == [9100] && stage.running_pods() == 2;
    stage.throughout("the machine serves on", Duration::from_mins(5), calm).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_stays_closed_until_its_kubelet_can_have_seen_what_it_wrote() {
    let stage = with_one().await;
    let before = capacity(&stage);
    stage.deploy("large", 1, "3", "5Gi");
    stage.until("the Node has grown", SOON, |stage| capacity(stage) != before).await;
    stage.throughout("the Node stays closed", Duration::from_secs(4), is_closed).await;
    stage.until("the Node is open again", Duration::from_secs(4), |stage| !is_closed(stage)).await;
}

#[tokio::test(start_paused = true)]
async fn what_one_machine_may_not_become_is_made_again() {
    let stage = with_one().await;
    stage.deploy("many", 8, "1", "1Gi");
    stage.until("all pods run", LATE, |stage| stage.running_pods() == 9).await;
    assert_eq!(config(&stage, "vcpus"), "6", "the first machine has its maximum");
    assert!(stage.vms(9100..=9109).len() > 1);
}

#[tokio::test(start_paused = true)]
async fn what_proxmox_does_not_plug_is_taken_back_and_a_machine_is_made_instead() {
    let stage = with_one().await;
    // An administrator has removed CPUs and memory from `hotplug`.
    stage.pve.set_config_by_hand(9100, "hotplug", Some("network,disk,usb"));
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "for its next start")).await;
    assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new());
    stage.until("another machine takes the pod", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!((config(&stage, "vcpus"), capacity_of(&stage, 0).0), ("2".to_owned(), "2".to_owned()));
    assert_eq!(stage.vms(9100..=9109), [9100, 9101]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_take_up_what_was_plugged_serves_on_with_what_it_has() {
    let mut stage = Stage::new(&growing(6, "12GiB"));
    permit(&stage);
    stage.pve.set_guest_faults(9000, GuestFaults { deaf_to_plugs: true, ..GuestFaults::default() });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "it has 2 of 3 CPUs")).await;
    stage.until("another machine takes the pod", SOON, |stage| stage.running_pods() == 2).await;
    // The CPUs cannot be unplugged, because the guest does not release CPUs that it does not see. The record
    // therefore keeps the VM's larger size.
    assert!(decided(&stage, "VM 9100 keeps 3 cores"), "{:#?}", stage.status().decisions);
    assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new());
    assert!(record(&stage).contains("\"cores\":3"), "{}", record(&stage));
    let machines = stage.status().machines;
    let cores = |name: &str| machines.iter().filter(|one| one.name.contains(name)).count();
    assert_eq!(cores("workers"), 2);
    assert_eq!(config(&stage, "vcpus"), "3");
    assert_eq!(capacity(&stage).0, "2");
}

#[tokio::test(start_paused = true)]
async fn a_vm_into_which_no_cpu_can_be_plugged_stays_as_it_was() {
    let mut stage = Stage::new(&growing(6, "12GiB"));
    permit(&stage);
    stage.pve.set_guest_faults(9000, GuestFaults { plugs_no_cpus: true, ..GuestFaults::default() });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "error hotplugging cpu3")).await;
    assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new());
    assert_eq!(vcpus(&stage), 2);
    assert!(record(&stage).contains("\"cores\":2"), "{}", record(&stage));
    stage.until("another machine takes the pod", SOON, |stage| stage.running_pods() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_node_does_not_report_is_taken_out_of_its_vm_again() {
    let mut stage = Stage::new(&growing(6, "12GiB"));
    permit(&stage);
    let silent = GuestFaults { kubelet_reports_no_more: true, ..GuestFaults::default() };
    stage.pve.set_guest_faults(9000, silent);
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    let had = ["vcpus", "memory"].map(|key| config(&stage, key));
    // No other machine may be created, so the pod keeps waiting.
    stage.reload(&growing(6, "12GiB").replace("max = 5", "max = 1"));
    stage.deploy("large", 1, "1500m", "5Gi");
    stage.until("the CPU is plugged in", SOON, |stage| config(stage, "vcpus") == "3").await;
    stage.until("the growth is given up", LATE, |stage| decided(stage, "as reported by its Node")).await;
    let has = |stage: &Stage| ["vcpus", "memory"].map(|key| config(stage, key));
    assert_eq!(has(&stage), had);
    assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new());
    let record = record(&stage);
    assert!(record.contains("\"cores\":2") && !record.contains("growing"), "{record}");
    assert!(!is_closed(&stage) && stage.running_pods() == 1);
    stage.throughout("no growth is tried again", Duration::from_mins(90), |stage| has(stage) == had).await;
    // An operator can end the back-off.
    stage.order("pve1", Order::Retry { name: Some("workers".to_owned()) }).await;
    stage.until("the growth is tried again", SOON, |stage| config(stage, "vcpus") == "3").await;
}

#[tokio::test(start_paused = true)]
async fn a_growth_that_failed_is_not_repeated_larger() {
    let mut stage = Stage::new(&growing(6, "12GiB"));
    permit(&stage);
    stage.pve.set_guest_faults(9000, GuestFaults { deaf_to_plugs: true, ..GuestFaults::default() });
    stage.start();
    stage.deploy("first", 1, "1", "1Gi");
    stage.until("one pod runs", SOON, |stage| stage.running_pods() == 1).await;
    // No other machine may be created, so the pod keeps waiting.
    stage.reload(&growing(6, "12GiB").replace("max = 5", "max = 1"));
    stage.deploy("large", 1, "1500m", "4Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "it has 2 of 3 CPUs")).await;
    let had = (config(&stage, "vcpus"), config(&stage, "memory"));
    let same = |stage: &Stage| (config(stage, "vcpus"), config(stage, "memory")) == had;
    stage.throughout("the machine does not grow", Duration::from_mins(90), same).await;
    let grows = stage.status().decisions.iter().filter(|one| one.what.starts_with("~ ")).count();
    assert_eq!(grows, 1, "{:#?}", stage.status().decisions);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_would_not_start_with_other_cpus_is_left_alone() {
    let stage = with_one().await;
    let policy = "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1\",\"checksum\":1}";
    stage.pve.write_to_disk(9100, "/var/lib/kubelet/cpu_manager_state", policy);
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the growth is given up", SOON, |stage| decided(stage, "CPU manager policy static")).await;
    assert_eq!(config(&stage, "vcpus"), "2", "nothing was plugged");
    stage.until("another machine takes the pod", SOON, |stage| stage.running_pods() == 2).await;
}

fn vcpus(stage: &Stage) -> u32 {
    config(stage, "vcpus").parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_moved_while_it_grows_is_known_as_it_is_and_never_shrinks() {
    let stage = with_one().await;
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the kubelet starts again", SOON, is_closed).await;
    assert_eq!(vcpus(&stage), 3);
    let to = if stage.pve.vm(9100).unwrap().node == "pve1" { "pve2" } else { "pve1" };
    stage.pve.migrate_by_hand(9100, to);
    stage.until("the growth is over", LATE, |stage| !record(stage).contains("growing")).await;
    stage.until("the Node reports what the VM has", SOON, |stage| capacity(stage).0 == "3").await;
    let record = record(&stage);
    assert!(record.contains("\"cores\":3") && record.contains(&format!("\"host\":\"{to}\"")), "{record}");
    let here = json!({ "nodeSelector": { "kubernetes.io/hostname": stage.pve.config_of(9100, "name") } });
    stage.deploy_with("more", 1, "2500m", "1Gi", &here);
    stage.throughout("the machine never shrinks", LATE, |stage| vcpus(stage) >= 3).await;
    assert!(vcpus(&stage) > 3, "the machine has grown further; {}", stage.scene());
    assert_eq!(stage.running_pods(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_removed_while_it_grows_comes_to_its_end() {
    let stage = with_one().await;
    let before = stage.status().machines[0].name.clone();
    stage.deploy("large", 1, "1500m", "1Gi");
    stage.until("the kubelet starts again", SOON, is_closed).await;
    stage.pve.delete_by_hand(9100);
    let gone = |stage: &Stage| stage.status().machines.iter().all(|one| one.name != before);
    stage.until("the machine is gone", LATE, gone).await;
    stage.until("both pods run elsewhere", LATE, |stage| stage.running_pods() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_was_given_by_hand_stays_when_it_grows() {
    let stage = with_one().await;
    stage.pve.set_config_by_hand(9100, "vcpus", Some("4"));
    stage.deploy("large", 1, "1500m", "5Gi");
    stage.until("the machine has grown", SOON, |stage| decided(stage, "has grown")).await;
    assert_eq!((vcpus(&stage), capacity(&stage).0.as_str()), (4, "4"));
    let record = record(&stage);
    assert!(record.contains("\"cores\":4") && !record.contains("growing"), "{record}");
    assert_eq!(stage.vms(9100..=9109), [9100], "no other machine was made");
}

#[tokio::test(start_paused = true)]
async fn cores_that_were_raised_for_the_next_start_are_none_that_a_machine_has() {
    let stage = with_one_of(2).await;
    assert_eq!(["cores", "vcpus"].map(|key| config(&stage, key)), ["2", ""].map(String::from));
    stage.pve.set_for_next_start_by_hand(9100, "cores", "4");
    stage.deploy("large", 1, "100m", "5Gi");
    let over = |stage: &Stage| decided(stage, "has grown") || decided(stage, "could not grow");
    stage.until("the growth is over", LATE, over).await;
    assert!(decided(&stage, "has grown"), "{:#?}", stage.status().decisions);
    let record = record(&stage);
    assert!(record.contains("\"cores\":2") && !record.contains("growing"), "{record}");
    assert_eq!(
        stage.pve.waits_for_start(9100),
        ["cores"],
        "an administrator's change for the next start stays"
    );
    assert_eq!(stage.vms(9100..=9109), [9100], "no other machine was made");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_at_any_call_of_it_goes_on_where_it_was() {
    let mut last = 0;
    for cut in 0_u64.. {
        let mut stage = with_one().await;
        let calls = stage.calls.load(std::sync::atomic::Ordering::Relaxed);
        stage.kill();
        stage.start_until(calls + 15 + cut * 7);
        stage.deploy("large", 1, "3", "5Gi");
        let over = |stage: &Stage| stage.is_cut() || decided(stage, "has grown");
        stage.until("the daemon is cut off, or the machine has grown", SOON, over).await;
        let grown = !stage.is_cut();
        stage.kill();
        stage.start();
        stage.until(&format!("cut {cut}: both pods run"), LATE, |stage| stage.running_pods() == 2).await;
        stage
            .until(&format!("cut {cut}: growth is over"), LATE, |stage| !record(stage).contains("growing"))
            .await;
        assert_eq!(stage.vms(9100..=9109), [9100], "cut {cut}: no other machine was made");
        assert!(record(&stage).contains(&format!("\"cores\":{}", config(&stage, "vcpus"))), "cut {cut}");
        assert_eq!(stage.pve.waits_for_start(9100), Vec::<String>::new(), "cut {cut}");
        assert!(!is_closed(&stage), "cut {cut}");
        if grown {
            break;
        }
        last = cut;
    }
    assert!(last > 1, "the daemon was cut off during the growth only {last} times");
}
