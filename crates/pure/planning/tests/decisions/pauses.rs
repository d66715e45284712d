//! Pools that have just changed are left alone for a while.

use model::plan::{NodeOutcome, PodOutcome};
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, node_verdict, pod_verdict, pools, removed};

/// What the daemon remembers about pool `w`. The test's time is noon.
fn state(of_pool: &str) -> String {
    format!("apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\npools: {{w: {{{of_pool}}}}}")
}

#[test]
fn a_pool_grows_again_when_its_pause_is_over() {
    let cases = [
        ("", "lastAdd: 2026-01-01T11:59:59Z", PodOutcome::NewNode),
        ("delay_after_add = \"5m\"", "", PodOutcome::NewNode),
        ("delay_after_add = \"5m\"", "lastAdd: 2026-01-01T11:55:01Z", PodOutcome::BackingOff),
        ("delay_after_add = \"5m\"", "lastAdd: 2026-01-01T11:55:00Z", PodOutcome::NewNode),
        ("delay_after_add = \"5m\"", "lastRemoval: 2026-01-01T11:59:00Z", PodOutcome::NewNode),
        ("stabilization_window = \"5m\"", "lastRemoval: 2026-01-01T11:55:01Z", PodOutcome::BackingOff),
        ("stabilization_window = \"5m\"", "lastAdd: 2026-01-01T11:55:01Z", PodOutcome::BackingOff),
        ("stabilization_window = \"5m\"", "lastAdd: 2026-01-01T11:55:00Z", PodOutcome::NewNode),
    ];
    for (settings, remembered, outcome) in cases {
        let config = pools(0, 9, &format!("[scale_up]\n{settings}\n"));
        // There is only pool `w`.
        let mut only = config.clone();
        only.pools.truncate(1);
        let plan = Cluster::new().with(&state(remembered)).pod("p", "3", "").plan(&only);
        assert_eq!(pod_verdict(&plan, "d/p"), outcome, "{settings} {remembered}");
        let reasons: Vec<_> = plan.pods[0].reasons().iter().map(|one| one.reason).collect();
        let expected = if outcome == PodOutcome::BackingOff { vec!["BackingOff"] } else { Vec::new() };
        assert_eq!(reasons, expected, "{settings} {remembered}");
    }
}

#[test]
fn a_pause_of_one_pool_sends_pods_to_another_and_holds_up_no_minimum() {
    let config = pools(2, 9, "[scale_up]\ndelay_after_add = \"5m\"\n");
    let cluster = Cluster::new().with(&state("lastAdd: 2026-01-01T11:59:00Z"));
    let plan = cluster.idle("w0", "w").pod("a", "4", "w0").pod("p", "4", "").pod("q", "4", "").plan(&config);
    let made: Vec<(&str, usize)> =
        plan.scale_up.iter().map(|one| (one.pool.as_str(), one.machines.len())).collect();
    assert_eq!(made, [("w", 1), ("other", 1)]);
    assert!(plan.pods.iter().all(|pod| pod.verdict == PodOutcome::NewNode));
}

#[test]
fn a_pool_loses_nodes_again_when_its_window_is_over() {
    let config = |window: &str| {
        let settings =
            format!("[scale_down]\ndelay_after_add = \"0s\"\nstabilization_window = \"{window}\"\n");
        pools(0, 9, &settings)
    };
    let cases = [
        ("0s", "lastAdd: 2026-01-01T11:59:59Z", true),
        ("5m", "lastAdd: 2026-01-01T11:55:01Z", false),
        ("5m", "lastRemoval: 2026-01-01T11:55:01Z", false),
        ("5m", "lastRemoval: 2026-01-01T11:55:00Z", true),
        ("5m", "", true),
    ];
    for (window, remembered, goes) in cases {
        let plan = Cluster::new().with(&state(remembered)).idle("w0", "w").plan(&config(window));
        assert_eq!(!removed(&plan).is_empty(), goes, "{window} {remembered}");
        let verdict = if goes { NodeOutcome::Remove } else { NodeOutcome::CoolingDown };
        assert_eq!(node_verdict(&plan, "w0"), verdict, "{window} {remembered}");
    }
}

#[test]
fn windows_are_off_unless_asked_for() {
    let config: Config =
        settings::parse("test", "[[pool]]\nname = \"w\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"", Needs::Plan)
            .unwrap();
    let all = [
        config.scale_up.delay_after_add,
        config.scale_up.stabilization_window,
        config.scale_down.stabilization_window,
    ];
    assert!(all.iter().all(std::time::Duration::is_zero));
    assert!(!config.scale_down.consolidation);
}
