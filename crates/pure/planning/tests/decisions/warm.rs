//! Machines that are kept ahead of demand.

use model::Plan;
use model::machine::WarmState;
use model::plan::PodOutcome;

use crate::cluster::{Cluster, inventory, machine, of_pool, pod_verdict};

/// A machine of pool `w` that is kept warm in the given state.
fn kept(name: &str, phase: &str, state: &str) -> String {
    let plain = machine(name, phase, false);
    plain.replace("},", &format!(", warm: {state}}},"))
}

fn cluster(machines: &[String]) -> Cluster {
    Cluster::new().with(&inventory(&machines.concat()))
}

/// Returns the names of the machines that a plan asks to join, the number of machines that it creates for
/// pods, the number that it creates ahead of demand, and the names of the machines that it no longer keeps
/// warm.
fn told(plan: &Plan) -> (Vec<&str>, usize, usize, Vec<&str>) {
    let grown = || plan.scale_up.iter().flat_map(|pool| &pool.machines);
    (
        grown().filter(|one| one.woken.is_some()).filter_map(|one| one.name.as_deref()).collect(),
        grown().filter(|one| one.woken.is_none()).count(),
        plan.keep.iter().map(|pool| pool.machines.len()).sum(),
        plan.unkept.iter().map(|one| one.machine.as_str()).collect(),
    )
}

#[test]
fn a_warm_machine_is_asked_before_a_new_one_is_made() {
    let machines = [kept("w-a", "Warm", "stopped"), kept("w-b", "Cloning", "stopped")];
    let config = of_pool("warm = { count = 2 }", "");
    for (pods, woken, made) in [(0, vec![], 0), (1, vec!["w-a"], 0), (3, vec!["w-a"], 2)] {
        let cluster =
            (0..pods).fold(cluster(&machines), |all, number| all.pod(&format!("p{number}"), "3", ""));
        let plan = cluster.plan(&config);
        let told = told(&plan);
        assert_eq!((told.0, told.1), (woken, made), "{pods} pods");
        for number in 0..pods {
            assert_eq!(pod_verdict(&plan, &format!("d/p{number}")), PodOutcome::NewNode);
        }
    }
}

#[test]
fn a_machine_that_waits_is_no_node_to_come_until_it_was_asked() {
    let config = of_pool("warm = { count = 1 }", "");
    let waiting = cluster(&[kept("w-a", "Cloning", "stopped")]).pod("p", "3", "").plan(&config);
    assert_eq!(pod_verdict(&waiting, "d/p"), PodOutcome::NewNode);
    assert_eq!(told(&waiting).1, 1);
    let asked = cluster(&[machine("w-a", "Requested", false)]).pod("p", "3", "").plan(&config);
    assert_eq!(pod_verdict(&asked, "d/p"), PodOutcome::UpcomingNode);
}

#[test]
fn the_number_is_kept_within_the_maximum_and_after_what_pods_wait_for() {
    let nine = of_pool("warm = { count = 2 }", "");
    let three = of_pool("warm = { count = 2 }", "").pools[0].clone();
    let mut two = nine.clone();
    two.pools[0] = settings::Pool { max: 2, ..three };
    assert_eq!(told(&cluster(&[]).plan(&nine)).2, 2);
    assert_eq!(told(&cluster(&[kept("w-a", "Booting", "stopped")]).plan(&nine)).2, 1);
    assert_eq!(told(&cluster(&[machine("w-a", "Ready", true)]).plan(&two)).2, 1);
    // A failed machine does not count as a warm machine.
    assert_eq!(told(&cluster(&[kept("w-a", "Failed", "stopped")]).plan(&nine)).2, 2);
    let busy = cluster(&[]).pod("p", "3", "").plan(&nine);
    assert_eq!((told(&busy).1, told(&busy).2), (1, 0));
    // If the plan asks a warm machine to join, it also creates the replacement.
    let woken = cluster(&[kept("w-a", "Warm", "stopped"), kept("w-b", "Warm", "stopped")]).pod("p", "3", "");
    assert_eq!(told(&woken.plan(&nine)), (vec!["w-a"], 0, 1, vec![]));
}

#[test]
fn a_pool_at_its_maximum_still_has_its_warm_machines() {
    let mut config = of_pool("warm = { count = 1 }", "");
    config.pools[0].max = 1;
    // Pending pods can also use a warm machine whose state differs from the pool's current `warm.state`.
    for state in [WarmState::Stopped, WarmState::Booted] {
        config.pools[0].warm.state = state;
        let plan = cluster(&[kept("w-a", "Warm", "booted")]).pod("p", "3", "").plan(&config);
        assert_eq!(told(&plan).0, ["w-a"], "{state:?}");
    }
}

#[test]
fn warm_machines_do_not_count_towards_the_minimum_and_serve_it() {
    let config = of_pool("min = 1\nwarm = { count = 1 }", "");
    assert_eq!(told(&cluster(&[kept("w-a", "Cloning", "stopped")]).plan(&config)).1, 1);
    assert_eq!(told(&cluster(&[kept("w-a", "Warm", "stopped")]).plan(&config)).0, ["w-a"]);
}

#[test]
fn a_stopped_machine_is_woken_only_where_its_host_has_room_for_it() {
    // The host has 32 GiB, and the machine needs 8 GiB.
    for (used, woken) in [("23Gi", 1), ("25Gi", 0)] {
        let full = inventory(&kept("w-a", "Warm", "stopped"))
            .replace("memoryUsed: 4Gi", &format!("memoryUsed: {used}"));
        let config = of_pool("warm = { count = 1 }\nmemory_reserve = \"0GiB\"", "");
        let plan = Cluster::new().with(&full).pod("p", "3", "").plan(&config);
        assert_eq!(told(&plan).0.len(), woken, "{used}");
        // `count_stopped` counts stopped guests only if they are unmanaged.
        let proxmox = "[proxmox]\nendpoints = [\"https://10.0.0.1:8006\"]\ntoken_id = \"a@pve!b\"\n\
                       token_file = \"/unused\"\nca = \"system\"\nresource_pool = \"p\"\ncount_stopped = true\n";
        let strict = of_pool("warm = { count = 1 }\nmemory_reserve = \"0GiB\"", proxmox);
        let plan = Cluster::new().with(&full).pod("p", "3", "").plan(&strict);
        assert_eq!(told(&plan).0.len(), woken, "{used}");
        // The memory of a running machine is already included in the host's used memory.
        let full = full.replace("warm: stopped", "warm: booted");
        let mut config = config;
        config.pools[0].warm.state = WarmState::Booted;
        let plan = Cluster::new().with(&full).pod("p", "3", "").plan(&config);
        assert_eq!(told(&plan).0.len(), 1, "{used}");
    }
}

#[test]
fn one_that_cannot_be_started_makes_room_for_one_elsewhere_where_pods_wait() {
    let mut config = of_pool("warm = { count = 1 }", "");
    config.pools[0].max = 1;
    let elsewhere = ", {name: pve2, online: true, cores: 64, memory: 32Gi, memoryUsed: 4Gi}]";
    for (state, used, other, pods, gone) in [
        ("stopped", "25Gi", elsewhere, 1, vec!["w-a"]),
        ("suspended", "25Gi", elsewhere, 1, vec!["w-a"]),
        // No machine is removed in the following cases: the machine can be started, the machine already runs,
        // no pod is pending, or no other host has room.
        ("stopped", "4Gi", elsewhere, 1, vec![]),
        ("booted", "25Gi", elsewhere, 1, vec![]),
        ("stopped", "25Gi", elsewhere, 0, vec![]),
        ("stopped", "25Gi", "]", 1, vec![]),
    ] {
        let there = inventory(&kept("w-a", "Warm", state))
            .replace("memoryUsed: 4Gi}]", &format!("memoryUsed: {used}}}{other}"));
        config.pools[0].warm.state = match state {
            "booted" => WarmState::Booted,
            "suspended" => WarmState::Suspended,
            _ => WarmState::Stopped,
        };
        let cluster = Cluster::new().with(&there);
        let cluster = if pods > 0 { cluster.pod("p", "3", "") } else { cluster };
        let plan = cluster.plan(&config);
        assert_eq!(told(&plan).3, gone, "{state} {used} {other} {pods}");
    }
    // A pool below its maximum creates another machine without removing one.
    config.pools[0].max = 2;
    let there = inventory(&kept("w-a", "Warm", "stopped"))
        .replace("memoryUsed: 4Gi}]", &format!("memoryUsed: 25Gi}}{elsewhere}"));
    let plan = Cluster::new().with(&there).pod("p", "3", "").plan(&config);
    assert_eq!((told(&plan).1, told(&plan).3), (1, vec![]));
}

#[test]
fn machines_of_old_settings_are_replaced_one_at_a_time() {
    let drifted = |name: &str| kept(name, "Warm", "stopped").replace("},", ", madeOf: {clone: full}},");
    let config = of_pool("warm = { count = 2 }", "");
    let plan = cluster(&[drifted("w-a"), drifted("w-b")]).pod("p", "3", "").plan(&config);
    assert_eq!(told(&plan), (vec![], 1, 0, vec!["w-a"]), "neither is asked to join, one is removed");
    assert!(plan.unkept[0].reason.contains("`clone` was full and is now linked"), "{:?}", plan.unkept);
    let plan = cluster(&[kept("w-a", "Cloning", "stopped"), drifted("w-b")]).plan(&config);
    assert_eq!(told(&plan).3, Vec::<&str>::new(), "another machine is being created");
    let plan = cluster(&[kept("w-a", "Warm", "stopped"), drifted("w-b")]).plan(&config);
    assert_eq!(told(&plan).3, ["w-b"]);
}

#[test]
fn a_machine_that_was_moved_to_where_nothing_is_put_is_made_again() {
    let closed = "[[host]]\nname = \"pve1\"\nclosed = true\n";
    for (hosts, more, gone) in [
        ("", "", vec![]),
        ("hosts = [\"pve1\"]", "", vec![]),
        ("hosts = [\"pve2\"]", "", vec!["w-a"]),
        ("", closed, vec!["w-a"]),
    ] {
        let config = of_pool(&format!("warm = {{ count = 1 }}\n{hosts}"), more);
        let plan = cluster(&[kept("w-a", "Warm", "stopped")]).plan(&config);
        assert_eq!(told(&plan).3, gone, "{hosts} {more}: {:?}", plan.unkept);
    }
}

#[test]
fn more_than_the_pool_keeps_go_and_those_of_gone_pools_too() {
    let three = ["w-a", "w-b", "w-c"].map(|name| kept(name, "Warm", "stopped"));
    for (count, gone) in [(3, vec![]), (2, vec!["w-c"]), (0, vec!["w-c", "w-b", "w-a"])] {
        let plan = cluster(&three).plan(&of_pool(&format!("warm = {{ count = {count} }}"), ""));
        assert_eq!(told(&plan).3, gone, "{count}");
    }
    let other = kept("x-a", "Warm", "stopped").replace("pool: w", "pool: x");
    assert_eq!(told(&cluster(&[other]).plan(&of_pool("", ""))).3, ["x-a"]);
}
