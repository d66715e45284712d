//! Pools whose machines may have several sizes.

use model::Plan;
use model::plan::PodOutcome;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, inventory, pod_verdict};

/// Machines of 2, 4 and 16 cores with 4 GiB for each core.
fn three_sizes(more: &str) -> Config {
    let text = format!(
        "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"16GiB\"\n\
         sizes = [{{ cores = 16, memory = \"64GiB\" }}, {{ cores = 2, memory = \"8GiB\" }}]\n{more}\n"
    );
    settings::parse("test", &text, Needs::Plan).unwrap()
}

/// Returns the numbers of cores, in ascending order, of the machines that pods with these requests get, and
/// the plan.
fn made(config: &Config, cpus: &[&str]) -> (Vec<u32>, Plan) {
    let mut cluster = Cluster::new();
    for (number, cpu) in cpus.iter().enumerate() {
        cluster = cluster.pod(&format!("p{number}"), cpu, "");
    }
    let plan = cluster.plan(config);
    let mut cores: Vec<u32> =
        plan.scale_up.iter().flat_map(|one| &one.machines).map(|machine| machine.cores).collect();
    cores.sort_unstable();
    (cores, plan)
}

#[test]
fn the_set_of_machines_that_wastes_least_is_taken() {
    let cases: [(&[&str], &[u32]); 9] = [
        (&["1"], &[2]),
        (&["2"], &[2]),
        (&["3"], &[4]),
        (&["5"], &[16]),
        (&["2", "2"], &[4]),
        (&["2", "2", "2"], &[2, 4]),
        (&["15", "1"], &[16]),
        (&["16", "1"], &[2, 16]),
        (&["4", "4", "4", "4", "3"], &[4, 16]),
    ];
    let config = three_sizes("");
    for (pods, expected) in cases {
        let (cores, plan) = made(&config, pods);
        assert_eq!(cores, expected, "{pods:?}");
        assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode), "{pods:?}");
        assert_eq!(plan.scale_up.len(), 1, "the plan lists the pool once");
    }
}

#[test]
fn what_fits_only_the_largest_size_is_said_of_that() {
    let (cores, plan) = made(&three_sizes(""), &["20"]);
    assert!(cores.is_empty());
    assert_eq!((plan.pods[0].verdict, plan.pods[0].reasons().len()), (PodOutcome::NoPoolFits, 1));
    assert!(plan.pods[0].reasons()[0].message.contains("16"), "{:?}", plan.pods[0].reasons());
}

#[test]
fn large_machines_serve_more_pods_where_few_machines_may_be() {
    let mut config = three_sizes("");
    config.pools[0].max = 1;
    let (cores, plan) = made(&config, &["2", "2", "2", "2", "2", "2"]);
    assert_eq!(cores, [16]);
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode));
}

#[test]
fn a_limit_of_cores_leaves_the_sizes_that_it_allows() {
    let (cores, plan) = made(&three_sizes("max_cores = 7"), &["3", "2", "1"]);
    assert!(cores.iter().sum::<u32>() <= 7, "{cores:?}");
    assert!(plan.pods.iter().filter(|pod| pod.verdict == PodOutcome::NewNode).count() >= 2, "{cores:?}");
    let (cores, plan) = made(&three_sizes("max_cores = 7"), &["8"]);
    assert!(cores.is_empty());
    assert_eq!(plan.pods[0].verdict, PodOutcome::PoolAtMax);
}

#[test]
fn a_machine_on_its_way_offers_what_its_own_size_does() {
    let config = three_sizes("");
    for (cores, memory, expected) in
        [(2, 8, PodOutcome::NewNode), (4, 16, PodOutcome::UpcomingNode), (16, 64, PodOutcome::UpcomingNode)]
    {
        let machine = format!(
            "{{name: w0, pool: w, vmid: 9101, host: pve1, cores: {cores}, memory: {memory}Gi, phase: Booting}}"
        );
        let world = inventory(&machine).replace("memory: 32Gi", "memory: 320Gi");
        let plan = Cluster::new().with(&world).pod("p", "3", "").plan(&config);
        assert_eq!(pod_verdict(&plan, "d/p"), expected, "{cores} cores");
    }
}

#[test]
fn a_minimum_is_reached_with_the_smallest_size() {
    let mut config = three_sizes("");
    config.pools[0].min = 2;
    assert_eq!(made(&config, &[]).0, [2, 2]);
}
