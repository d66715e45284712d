//! Bare-metal machines: which of them is switched on, or why none is.

use model::Plan;
use serde_json::Value;
use settings::{self, Config, Needs};

use crate::cluster::Cluster;

/// Pool `metal` with these bare-metal machines, which have 8 cores each.
fn pool(machines: &[&str]) -> Config {
    let one = |name: &&str| {
        let closed = if name.ends_with('c') { "closed = true\n" } else { "" };
        format!(
            "[[pool.machine]]\nname = \"{name}\"\n{closed}[pool.machine.redfish]\nendpoint = \"https://{name}\"\nuser = \"u\"\n\
             password_file = \"/x\"\nca = \"system\"\n"
        )
    };
    let all: String = machines.iter().map(one).collect();
    let max = machines.len();
    let text = format!("[[pool]]\nname = \"metal\"\nmax = {max}\ncores = 8\nmemory = \"32GiB\"\n{all}");
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn switched_on(plan: &Plan) -> Vec<String> {
    plan.scale_up.iter().flat_map(|pool| &pool.machines).filter_map(|machine| machine.name.clone()).collect()
}

#[test]
fn machines_are_switched_on_under_their_own_names_and_no_more_than_there_are() {
    let config = pool(&["m1", "m2"]);
    // Proxmox VE has no room, but bare-metal machines need none.
    let none = "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: []\nmachines: []";
    let cluster =
        (0..3).fold(Cluster::new(), |all, number| all.pod(&format!("p{number}"), "5", "")).with(none);
    let plan = cluster.plan(&config);
    assert_eq!(switched_on(&plan), ["m1", "m2"]);
    let json: Value = serde_json::to_value(&plan).unwrap();
    let first = &json["scaleUp"][0]["machines"][0];
    assert_eq!((&first["host"], &first["vmid"]), (&Value::from("m1"), &Value::Null));
    assert_eq!(plan.pods.iter().filter(|pod| !pod.reasons().is_empty()).count(), 1);
}

#[test]
fn a_machine_is_passed_over_for_a_reason_that_is_said() {
    for (machines, state, expected, reason) in [
        (
            &["m1", "m2"][..],
            "pools: {metal: {outOfService: {m1: was not switched on by the daemon}}}",
            &["m2"][..],
            "",
        ),
        (
            &["m1", "m2"],
            "hosts: {m1: {backoff: {until: 2026-01-01T12:05:00Z, reason: no Node}}}",
            &["m2"],
            "",
        ),
        (
            &["m1"],
            "hosts: {m1: {backoff: {until: 2026-01-01T12:05:00Z, reason: no Node}}}",
            &[],
            "m1: no Node",
        ),
        (&["m1"], "hosts: {m1: {backoff: {until: 2026-01-01T11:55:00Z, reason: no Node}}}", &["m1"], ""),
        (&["m1"], "pools: {metal: {outOfService: {m1: cannot be queried}}}", &[], "m1 cannot be queried"),
        (&["m1c"], "nameSeed: 7", &[], "m1c is closed"),
        (&["m1", "m2"], "freeSlots: {metal: [{vmid: 4000000000, machine: m2}]}", &["m2"], ""),
        (&["m1"], "freeSlots: {metal: []}", &[], "the pool has no more machines to switch on"),
    ] {
        let state = format!("apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\n{state}");
        let plan = Cluster::new().pod("p", "5", "").with(&state).plan(&pool(machines));
        assert_eq!(switched_on(&plan), expected, "{state}");
        let said = plan.pods[0].reasons().first().map(|one| one.message.clone()).unwrap_or_default();
        assert!(said.contains(reason), "{state}: {said}");
    }
}

#[test]
fn a_machine_that_has_a_node_is_not_switched_on_a_second_time() {
    let config = pool(&["m1", "m2"]);
    let plan = Cluster::new()
        .sized("m1", "metal", "8", "", "True")
        .pod("q", "5", "m1")
        .pod("p", "5", "")
        .plan(&config);
    assert_eq!(switched_on(&plan), ["m2"]);
}
