//! PCI devices for a pool's machines: a host gets at most as many machines as it has free devices.

use model::plan::PodOutcome;
use model::{Plan, Vmid};
use proptest::prelude::*;
use settings::{self, Config, Needs};

use crate::cluster::Cluster;

/// Pool `w`, whose machines get a GPU each.
fn pool(more: &str) -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 9\ncores = 8\nmemory = \"16GiB\"\nplacement = \"spread\"\n{more}\n\
         [[pool.pci]]\nmapping = \"gpu\"\nresource = \"nvidia.com/gpu\"\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// A pod that needs a GPU.
fn gpu_pod(cluster: Cluster, name: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: d\n  \
         ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}}]\n\
         spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1, nvidia.com/gpu: 1}}}}}}]}}"
    ))
}

/// This many pods, hosts `a` and `b` with these devices, and machines.
fn cluster(pods: usize, a: &str, b: &str, machines: &str) -> Cluster {
    let host = |name: &str, pci: &str| format!("{{name: {name}, cores: 64, memory: 512Gi, pci: {{{pci}}}}}");
    let inventory = format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{}, {}]\nmachines: [{machines}]",
        host("a", a),
        host("b", b)
    );
    (0..pods).fold(Cluster::new(), |all, number| gpu_pod(all, &format!("p{number}"))).with(&inventory)
}

fn hosts(plan: &Plan) -> Vec<&str> {
    plan.scale_up.iter().flat_map(|one| &one.machines).map(|machine| machine.host.as_str()).collect()
}

fn refusal(plan: &Plan) -> String {
    let left = plan.pods.iter().find(|pod| pod.verdict == PodOutcome::NoHostCapacity).unwrap();
    left.reasons()[0].message.clone()
}

const ONE: &str = "mappings: {gpu: [\"0000:01:00\"]}";
const TWO: &str = "mappings: {gpu: [\"0000:01:00\", \"0000:41:00\"]}";

#[test]
fn each_machine_takes_a_free_device_of_its_host() {
    let plan = cluster(5, TWO, &format!("{TWO}, held: [{{vmid: 300, mapping: gpu}}]"), "").plan(&pool(""));
    assert_eq!(hosts(&plan), ["a", "b", "a"]);
    let said = refusal(&plan);
    for part in
        ["a has 0 of 2 devices of `gpu` left, but a machine needs 1", "b has 0 of 2 devices of `gpu` left"]
    {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

#[test]
fn a_host_without_the_mapping_or_with_other_hardware_takes_none() {
    let broken = format!("{ONE}, broken: {{gpu: \"another device\"}}");
    let plan = cluster(1, "", &broken, "").plan(&pool(""));
    assert!(hosts(&plan).is_empty());
    let said = refusal(&plan);
    for part in [
        "a has no device of the mapping `gpu`",
        "b cannot provide devices from the mapping `gpu`: another device",
    ] {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

#[test]
fn what_was_learnt_before_does_not_hide_the_device() {
    // A device plugin that reports no devices on a ready node is believed only if the node is old.
    let old = "apiVersion: v1\nkind: Node\nmetadata: {name: w-1, labels: {pve-autoscaler/pool: w}, creationTimestamp: CREATED}\n\
         status:\n  allocatable: {cpu: 8, memory: 15Gi, pods: 110}\n  conditions: [{type: Ready, status: \"True\"}]";
    let machine = "{name: w-1, pool: w, vmid: 101, host: a, cores: 8, memory: 16Gi, phase: Ready, node: w-1}";
    for (created, expected) in [("2026-01-01T02:00:00Z", vec!["b"]), ("2026-01-01T11:58:00Z", vec![])] {
        let cluster = cluster(1, TWO, TWO, machine).with(&old.replace("CREATED", created));
        assert_eq!(hosts(&cluster.plan(&pool(""))), expected, "{created}");
    }
}

#[test]
fn a_stopped_machine_that_waits_keeps_its_device_and_goes_where_others_have_it() {
    let waits =
        "{name: w-1, pool: w, vmid: 101, host: a, cores: 8, memory: 16Gi, phase: Warm, warm: stopped}";
    let config = pool("warm = { count = 2 }");
    let plan = cluster(0, ONE, "", waits).plan(&config);
    assert!(plan.keep.is_empty(), "{:?}", plan.keep);
    // The machine is asked to join, unless another VM has taken the device in the meantime.
    let woken = cluster(1, ONE, "", waits).plan(&config);
    assert_eq!(hosts(&woken), ["a"]);
    let taken = cluster(1, &format!("{ONE}, held: [{{vmid: 300, mapping: gpu}}]"), "", waits).plan(&config);
    assert!(hosts(&taken).is_empty());
    let gone = |plan: &Plan| -> Vec<String> { plan.unkept.iter().map(|one| one.reason.clone()).collect() };
    assert_eq!(gone(&taken), ["other VMs use its devices on its host a"]);
    // A broken mapping may work again later, so the machine is kept.
    let broken = cluster(1, &format!("{ONE}, broken: {{gpu: \"another device\"}}"), "", waits).plan(&config);
    assert_eq!((hosts(&broken), gone(&broken)), (vec![], vec![]));
    assert_eq!(gone(&woken), Vec::<String>::new());
}

#[test]
fn of_two_machines_that_wait_for_one_device_one_goes() {
    let waits = |name: &str, vmid: Vmid| {
        format!(
            "{{name: {name}, pool: w, vmid: {vmid}, host: a, cores: 8, memory: 16Gi, phase: Warm, warm: stopped}}"
        )
    };
    let plan = cluster(0, ONE, ONE, &[waits("w-1", Vmid(101)), waits("w-2", Vmid(102))].join(", "))
        .plan(&pool("warm = { count = 2 }"));
    assert_eq!(plan.unkept.len(), 1, "{:?}", plan.unkept);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any number of devices and any VMs that use them, no host gets more machines than it has free
    /// devices, and no device remains free while a pod waits for one.
    #[test]
    fn no_device_is_promised_twice_and_none_is_forgotten(
        pods in 0..7_usize,
        devices in proptest::array::uniform2(0..4_usize),
        held in proptest::array::uniform2(0..3_usize),
        ours in proptest::array::uniform2(0..2_usize),
    ) {
        let side = |at: usize| {
            let all: Vec<String> = (0..devices[at]).map(|bus| format!("\"0000:{bus:02x}:00\"")).collect();
            let held: Vec<String> =
                (0..held[at]).map(|number| format!("{{vmid: {}, mapping: gpu}}", 300 + number)).collect();
            format!("mappings: {{gpu: [{}]}}, held: [{}]", all.join(", "), held.join(", "))
        };
        let coming = (0..2).filter(|at| ours[*at] > 0).map(|at| format!(
            "{{name: w-{at}, pool: w, vmid: {}, host: {}, cores: 8, memory: 16Gi, phase: Cloning}}", 101 + at, ["a", "b"][at]
        ));
        let coming = coming.collect::<Vec<_>>();
        let plan = cluster(pods, &side(0), &side(1), &coming.join(", ")).plan(&pool(""));
        let made = hosts(&plan);
        let mut free = 0;
        for (at, name) in ["a", "b"].iter().enumerate() {
            let count = made.iter().filter(|host| *host == name).count();
            let left = devices[at].saturating_sub(held[at]).saturating_sub(ours[at]);
            prop_assert!(count <= left, "{count} machines on {name}, which has {left} free devices");
            free += left - count;
        }
        let waiting = pods.saturating_sub(coming.len()).saturating_sub(made.len());
        prop_assert!(waiting == 0 || free == 0, "{waiting} pods are pending although {free} devices are free");
    }
}
