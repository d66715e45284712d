//! Two Proxmox VE clusters whose hosts have the same names and whose machines have the same VMIDs. What
//! happens in one cluster does not affect the other.

use std::time::Duration;

use pve_autoscaler::observability::Order;
use pve_autoscaler::pinning::topology::{HostNode, Topology};
use serde_json::json;
use world::kubernetes::metal::MetalSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;

use crate::stage::{ONE_POOL, Stage, name};

const SOON: Duration = Duration::from_mins(3);
const REGION: &str = "topology.kubernetes.io/region";

/// A configuration with one pool in each of two regions. The pools have the same VMIDs, but different
/// addresses.
fn two(more: &str) -> String {
    let (head, pool) = ONE_POOL.split_once("[[pool]]").unwrap();
    let head = head.replacen("[proxmox]", "[proxmox]\nregion = \"west\"", 1);
    let (proxmox, rest) = head.split_once("[kubernetes]").unwrap();
    let table = proxmox.split_once("[proxmox]").unwrap().1;
    let also = table.replace("\"west\"", "\"east\"").replace("127.0.0.1", "10.20.0.11");
    let label = format!("labels = {{ \"{REGION}\" = \"{{{{ region }}}}\", host = \"{{{{ host }}}}\" }}");
    let west = format!("[[pool]]{pool}region = \"west\"\n{label}\n");
    let east = west
        .replace("\"workers\"", "\"distant\"")
        .replace("\"west\"", "\"east\"")
        .replace("10.10.10.", "10.20.20.");
    format!("{proxmox}[[proxmox.also]]{also}[kubernetes]{rest}{more}{west}{east}")
}

/// Both clusters, without a running daemon.
fn stage(more: &str) -> (Stage, Pve) {
    let mut stage = Stage::new(&two(more));
    let east = stage.another_cluster(ClusterSpec::demo());
    stage.regions.push(("east".to_owned(), east.clone()));
    (stage, east)
}

fn deploy(stage: &Stage, name: &str, replicas: u32, region: &str) {
    stage.deploy_with(name, replicas, "1500m", "1Gi", &json!({ "nodeSelector": { REGION: region } }));
}

fn machines(pve: &Pve) -> Vec<u32> {
    pve.vmids().into_iter().filter(|vmid| (9100..=9109).contains(vmid)).collect()
}

fn nodes(stage: &Stage, region: &str) -> Vec<String> {
    let nodes = stage.kube.list("Node");
    let here = nodes.iter().filter(|node| node["metadata"]["labels"][REGION] == region);
    here.map(|node| name(node)).collect()
}

/// One node with one pod in each region.
async fn one_each(more: &str) -> (Stage, Pve) {
    let (mut stage, east) = stage(more);
    stage.start();
    deploy(&stage, "near", 1, "west");
    deploy(&stage, "far", 1, "east");
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    stage.until("the tokens are gone", SOON, |stage| stage.leftovers().len() == 2).await;
    (stage, east)
}

const QUICK: &str = "[scale_down]\nunneeded_time = \"1m\"\nunready_time = \"2m\"\ndelay_after_add = \"0s\"\n";

#[tokio::test(start_paused = true)]
async fn each_region_grows_for_the_pods_that_ask_for_it_and_loses_its_own() {
    let (stage, east) = one_each(QUICK).await;
    // The same VMID exists once in each cluster.
    assert_eq!((machines(&stage.pve), machines(&east)), (vec![9100], vec![9100]));
    assert_eq!((nodes(&stage, "west").len(), nodes(&stage, "east").len()), (1, 1));
    let mark = |pve: &Pve| pve.config_of(9100, "description").unwrap();
    assert!(mark(&stage.pve).contains(" region=west pool=workers "), "{}", mark(&stage.pve));
    assert!(mark(&east).contains(" region=east pool=distant "), "{}", mark(&east));
    let hosts: Vec<model::HostKey> = stage.status().machines.iter().map(|one| one.host.clone()).collect();
    assert!(hosts.iter().any(|host| host.starts_with("east/pve")), "{hosts:?}");
    assert!(hosts.iter().any(|host| host.starts_with("pve")), "{hosts:?}");
    // The label contains the host's own name, without the region.
    let far = stage.kube.list("Node");
    let far = far.iter().find(|node| node["metadata"]["labels"][REGION] == "east").unwrap();
    assert!(far["metadata"]["labels"]["host"].as_str().unwrap().starts_with("pve"));
    assert_eq!(stage.status().hosts.len(), 6);
    stage.kube.scale("default", "far", 0);
    stage.until("the far machine is gone", SOON * 2, |_| machines(&east).is_empty()).await;
    stage.until("the far machine's record is gone", SOON, |stage| stage.leftovers().len() == 1).await;
    assert_eq!((machines(&stage.pve), stage.running_pods()), (vec![9100], 1));
}

/// Whether the Node in region `east` and its machine's record still exist, and at least one pod runs.
fn held(stage: &Stage, node: &str) -> bool {
    nodes(stage, "east") == [node]
        && stage.leftovers().iter().any(|one| one == "machine-distant-9100")
        && stage.running_pods() >= 1
}

#[tokio::test(start_paused = true)]
async fn a_region_out_of_reach_keeps_its_nodes_and_the_other_goes_on() {
    let (stage, east) = one_each(QUICK).await;
    let node = nodes(&stage, "east")[0].clone();
    east.set_away(true);
    stage.until("it is said", SOON, |stage| stage.status().problems.contains_key("region east")).await;
    // No pod needs the node, and its kubelet is silent. If the region could be reached, the node would be
    // removed.
    stage.kube.scale("default", "far", 0);
    stage.kube.set_kubelet_silent(&node, true);
    deploy(&stage, "near-too", 1, "west");
    stage.until("the other region grows", SOON, |stage| machines(&stage.pve).len() == 2).await;
    deploy(&stage, "far-too", 1, "east");
    stage.throughout("all is held", Duration::from_mins(30), |stage| held(stage, &node)).await;
    let status = stage.status();
    let pool = status.pools.iter().find(|pool| pool.name == "distant").unwrap();
    assert!(pool.backoff.as_ref().unwrap().contains("region `east` cannot be acted on"), "{pool:?}");
    let waits = status.pods.iter().find(|pod| pod.pod.contains("far-too")).unwrap();
    assert!(waits.why.contains("region `east`"), "{waits:?}");
    let kept = status.nodes.iter().find(|one| one.name == node).unwrap();
    assert_eq!(kept.verdict, "PoolUnhealthy", "{kept:?}");
    stage.kube.scale("default", "near-too", 0);
    stage.until("the other region shrinks", SOON * 2, |stage| machines(&stage.pve) == [9100]).await;
    assert!(held(&stage, &node), "{}", stage.scene());
    stage.kube.set_kubelet_silent(&node, false);
    east.set_away(false);
    stage.until("both pods run", SOON * 2, |stage| stage.running_pods() == 2).await;
    let seen = |stage: &Stage| !stage.status().problems.contains_key("region east");
    stage.until("the region is seen again", SOON, seen).await;
}

#[tokio::test(start_paused = true)]
async fn the_ghost_of_a_node_is_left_alone_while_its_region_is_not_seen() {
    let (stage, east) = one_each("").await;
    let node = nodes(&stage, "east")[0].clone();
    east.set_away(true);
    stage.until("it is said", SOON, |stage| stage.status().problems.contains_key("region east")).await;
    stage.kube.set_kubelet_silent(&node, true);
    stage.kube.remove("Node", "", &node);
    let there = |stage: &Stage| stage.leftovers().len() == 2 && stage.status().machines.len() == 2;
    stage.throughout("the Node's machine is kept", Duration::from_mins(45), there).await;
    east.set_away(false);
    assert_eq!(machines(&east), [9100]);
}

#[tokio::test(start_paused = true)]
async fn a_region_without_quorum_gets_no_decision_and_the_other_does() {
    let (stage, east) = one_each(QUICK).await;
    let node = nodes(&stage, "east")[0].clone();
    east.set_quorum(false);
    stage.until("it is said", SOON, |stage| stage.status().problems.contains_key("region east")).await;
    stage.kube.scale("default", "far", 0);
    stage.kube.scale("default", "near", 2);
    deploy(&stage, "far-too", 3, "east");
    stage.until("the other region grows", SOON, |stage| machines(&stage.pve).len() == 2).await;
    stage.throughout("all is held", Duration::from_mins(10), |stage| held(stage, &node)).await;
    // The daemon began nothing in the region without quorum, so nothing failed there.
    assert_eq!(machines(&east), [9100]);
    assert_eq!(stage.leftovers().len(), 3);
    east.set_quorum(true);
    stage.until("all pods run", SOON * 2, |stage| stage.running_pods() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_for_one_region_stops_only_that_one() {
    let (mut stage, east) = stage("");
    east.change_access(|access| access.tokens.iter_mut().for_each(|token| token.enabled = false));
    stage.start();
    deploy(&stage, "far", 1, "east");
    deploy(&stage, "near", 1, "west");
    let took = stage.until("the near pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert!(took < Duration::from_mins(2), "{took:?}");
    let problem = stage.status().problems.get("region east").cloned().unwrap_or_default();
    assert!(problem.contains("Authentication failed"), "{problem}");
    stage.throughout("no machine is made in region east", SOON, |_| machines(&east).is_empty()).await;
    east.change_access(|access| access.tokens.iter_mut().for_each(|token| token.enabled = true));
    stage.until("the far pod runs", SOON, |stage| stage.running_pods() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_cannot_be_made_in_one_region_hold_up_none_in_the_other() {
    let (mut stage, east) = stage("[limits]\nmax_parallel_creates = 1\n");
    stage.start();
    stage.until("both are seen", SOON, |stage| stage.status().hosts.len() == 6).await;
    deploy(&stage, "far", 1, "east");
    stage.until("one is begun", SOON, |_| machines(&east).len() == 1).await;
    east.set_away(true);
    deploy(&stage, "near", 1, "west");
    stage.until("the near pod runs", SOON, |stage| stage.running_pods() == 1).await;
    east.set_away(false);
    stage.until("the far pod runs", Duration::from_mins(30), |stage| stage.running_pods() == 2).await;
    stage.until("nothing is left over", SOON * 2, |stage| stage.leftovers().len() == 2).await;
    assert_eq!((machines(&stage.pve).len(), machines(&east).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn another_instance_goes_on_with_the_machines_of_each_region() {
    let (mut stage, east) = stage(QUICK);
    for host in ["pve1", "pve2"] {
        stage.start_on(host);
    }
    deploy(&stage, "near", 1, "west");
    deploy(&stage, "far", 1, "east");
    let begun = |stage: &Stage| machines(&stage.pve).len() == 1 && machines(&east).len() == 1;
    stage.until("both are begun", SOON, begun).await;
    let leader = stage.leaders()[0].to_owned();
    stage.kill_on(&leader);
    stage.until("both pods run", SOON * 2, |stage| stage.running_pods() == 2).await;
    assert_eq!((machines(&stage.pve).len(), machines(&east).len()), (1, 1));
    stage.kube.scale("default", "far", 0);
    stage.until("the far machine is gone", SOON * 2, |_| machines(&east).is_empty()).await;
    assert_eq!(machines(&stage.pve).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_before_there_were_regions_belongs_to_the_first_cluster() {
    let mut stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.until("the token is gone", SOON, |stage| stage.leftovers().len() == 1).await;
    stage.stop().await;
    // The same VMID belongs to an unmanaged VM in the new cluster.
    let east = stage.another_cluster(ClusterSpec::demo());
    let mut spec = world::proxmox::spec::VmSpec::template(9100, "pve1", "k8s-worker", "shared");
    spec.config.remove("template");
    assert!(east.create_by_hand(spec));
    stage.regions.push(("east".to_owned(), east.clone()));
    stage.reload(&two(QUICK));
    stage.start();
    stage.throughout("it serves", Duration::from_mins(5), |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    stage.until("the west VM is removed", SOON * 2, |stage| machines(&stage.pve).is_empty()).await;
    stage.until("the west VM's record is gone", SOON, |stage| stage.leftovers().is_empty()).await;
    assert_eq!(machines(&east), [9100]);
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_region_that_the_configuration_has_no_more_are_left_alone() {
    let (mut stage, east) = one_each("").await;
    stage.stop().await;
    stage.regions.clear();
    stage.reload(ONE_POOL);
    stage.start();
    stage
        .throughout("nothing is touched", Duration::from_mins(30), |stage| {
            machines(&east) == [9100] && stage.leftovers().iter().any(|one| one == "machine-distant-9100")
        })
        .await;
    assert_eq!(nodes(&stage, "east").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_removal_is_decided_for_a_machine_whose_region_the_configuration_has_no_more() {
    let (mut stage, east) = one_each("").await;
    stage.stop().await;
    stage.regions.clear();
    // In the new configuration, the machine's pool is in another region.
    let pool = ONE_POOL.replace("\"workers\"", "\"distant\"").replace("10.10.10.", "10.20.20.");
    stage.reload(&pool.replace("[[pool]]", &format!("{QUICK}[[pool]]")));
    stage.start();
    stage.kube.scale("default", "far", 0);
    let far = nodes(&stage, "east").remove(0);
    stage
        .throughout("nothing is touched", Duration::from_mins(10), |stage| {
            machines(&east) == [9100] && nodes(stage, "east") == [far.clone()]
        })
        .await;
    let decisions = stage.status().decisions;
    let removals: Vec<_> = decisions.iter().filter(|one| one.what.starts_with(&format!("- {far}"))).collect();
    assert!(removals.is_empty(), "{removals:?}");
}

/// A pool of one bare-metal machine.
const METAL: &str = "[[pool]]\nname = \"metal\"\nmax = 1\ncores = 8\nmemory = \"32GiB\"\nlabels = { kind = \"metal\" }\n\
    [[pool.machine]]\nname = \"metal-1\"\n[pool.machine.redfish]\nendpoint = \"https://metal-1\"\n\
    user = \"power\"\npassword_file = \"/unused\"\nca = \"system\"\n";

/// One node in the Proxmox VE cluster of the `[proxmox]` section, and one bare-metal node.
async fn with_metal(more: &str) -> (Stage, String) {
    let (mut stage, _) = stage(more);
    stage.reload(&(two(more) + METAL));
    stage.kube.add_metal(MetalSpec::worker("metal-1", 8, 32));
    stage.start();
    deploy(&stage, "near", 1, "west");
    let metal = json!({ "nodeSelector": { "kind": "metal" } });
    stage.deploy_with("heavy", 1, "1500m", "1Gi", &metal);
    stage.until("both pods run", SOON * 2, |stage| stage.running_pods() == 2).await;
    stage.until("the token is gone", SOON, |stage| stage.leftovers().len() == 2).await;
    let near = nodes(&stage, "west").remove(0);
    (stage, near)
}

fn retire(node: &str) -> Order {
    Order::Retire { node: node.to_owned(), reason: String::new() }
}

fn is_off(stage: &Stage) -> bool {
    !stage.kube.metal_is_on("metal-1").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_there_already_is_retired_while_proxmox_is_not_seen() {
    let (stage, _) = with_metal("").await;
    stage.pve.set_away(true);
    stage.until("it is said", SOON, |stage| stage.status().problems.contains_key("proxmox")).await;
    stage.kube.scale("default", "heavy", 0);
    stage.order("pve1", retire("metal-1")).await;
    stage.until("it is off", SOON, is_off).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_there_already_waits_for_no_vm_on_its_way_out() {
    let (stage, near) = with_metal("[limits]\nmax_parallel_retires = 1\n").await;
    stage.kube.scale("default", "near", 0);
    stage.kube.scale("default", "heavy", 0);
    stage.order("pve1", retire(&near)).await;
    let going = |stage: &Stage| stage.status().machines.iter().any(|one| one.phase == "Stopping");
    stage.until("the VM is being stopped", SOON, going).await;
    stage.pve.set_quorum(false);
    stage.order("pve1", retire("metal-1")).await;
    stage.until("it is off", SOON, is_off).await;
    assert_eq!(machines(&stage.pve), [9100]);
}

#[tokio::test(start_paused = true)]
async fn a_helper_is_not_asked_for_machines_of_a_host_of_the_same_name_in_another_region() {
    let pinned = format!("{}hosts = [\"pve1\"]\n[pool.pinning]\ncpus = \"dedicated\"\n", two(""));
    let (mut stage, east) = stage("");
    stage.reload(&pinned);
    let cores = (0..8).map(|core| [core].into_iter().collect()).collect();
    stage.helpers.enable("pve1", Topology { nodes: vec![HostNode { id: 0, memory: 64 << 10, cores }] });
    stage.start();
    deploy(&stage, "far", 1, "east");
    let waits = |stage: &Stage| {
        let maps = stage.kube.list("ConfigMap");
        maps.iter().any(|map| map["metadata"]["labels"]["pve-autoscaler/pins-on"] == "pve1")
    };
    stage.until("the machine waits for its CPUs", SOON, waits).await;
    assert_eq!(machines(&east), [9100]);
    let silent = |stage: &Stage| !stage.status().problems.contains_key("pinning");
    stage.throughout("the west host's helper is not called", Duration::from_secs(50), silent).await;
}
