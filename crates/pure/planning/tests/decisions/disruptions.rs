//! Limits on removals, times at which removals are allowed, and minima that apply at certain times.

use model::Plan;
use model::plan::NodeOutcome;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, LEAVING, inventory, machine, node_verdict, removed};

/// Pool `w` and other pools with these disruption rules. The time is noon.
fn under(rules: &str) -> Config {
    let pool = |name: &str, own: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n{own}\n\
             allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n"
        )
    };
    let text = format!("{rules}\n{}{}", pool("w", ""), pool("other", ""));
    settings::parse("test", &text, Needs::Plan).unwrap()
}

fn idle() -> Cluster {
    Cluster::new().idle("w0", "w").idle("w1", "w").idle("x0", "other").idle("x1", "other")
}

fn said(plan: &Plan, node: &str) -> String {
    plan.nodes.iter().find(|one| one.node == node).and_then(|one| one.message.clone()).unwrap_or_default()
}

#[test]
fn a_removal_must_be_allowed_by_all_rules_that_speak_of_it() {
    let table = |fields: &str| format!("[[disruption]]\n{fields}\n");
    for (rules, goes) in [
        (String::new(), 4),
        (table("max_nodes = 3"), 3),
        (table("max_nodes = 0"), 0),
        (table("max_nodes = 0\npools = [\"w\"]"), 2),
        (table("max_nodes = 1\npools = [\"w\"]") + &table("max_nodes = 1\npools = [\"other\"]"), 2),
        (table("max_nodes = 3") + &table("max_nodes = 0\npools = [\"w\"]"), 2),
        (table("max_nodes = 0\nreasons = [\"drifted\"]"), 4),
        (table("max_nodes = 0\nreasons = [\"empty\"]"), 0),
        (table("windows = [{ start = \"0 11 * * *\", duration = \"2h\" }]"), 4),
        (table("windows = [{ start = \"0 13 * * *\", duration = \"2h\" }]"), 0),
        (table("windows = [{ start = \"0 13 * * *\", duration = \"2h\", time_zone = \"Asia/Tokyo\" }]"), 0),
        (table("windows = [{ start = \"0 20 * * *\", duration = \"2h\", time_zone = \"Asia/Tokyo\" }]"), 4),
        (table("closed = [{ start = \"0 11 * * *\", duration = \"2h\" }]"), 0),
        (table("closed = [{ start = \"0 13 * * *\", duration = \"2h\" }]"), 4),
    ] {
        let plan = idle().plan(&under(&rules));
        assert_eq!(removed(&plan).len(), goes, "{rules}");
    }
}

#[test]
fn a_node_outside_its_window_says_when_the_next_opens_and_its_time_goes_on() {
    let rules = "[[disruption]]\nwindows = [{ start = \"0 2 * * *\", duration = \"1h\" }]\n";
    let plan = idle().plan(&under(rules));
    assert_eq!(node_verdict(&plan, "w0"), NodeOutcome::CoolingDown);
    assert_eq!(
        said(&plan, "w0"),
        "outside the windows of `[[disruption]]`; the next one opens at 2026-01-02T02:00:00Z"
    );
    assert!(plan.nodes.iter().all(|one| one.since.is_some()));
}

#[test]
fn nodes_on_their_way_out_count_and_lost_ones_are_bound_by_nothing_that_does_not_name_them() {
    let rules = "[[disruption]]\nmax_nodes = 1\n";
    let busy = idle().node("w9", "w", LEAVING, "True");
    assert_eq!(removed(&busy.plan(&under(rules))), Vec::<&str>::new());
    // A node whose removal has begun counts towards the limit even before the API shows its taint.
    for (phase, goes) in [("Ready", 1), ("Draining", 0), ("Stopping", 0), ("Deleting", 0)] {
        let plan = idle().idle("w9", "w").with(&inventory(&machine("w9", phase, true))).plan(&under(rules));
        assert_eq!(removed(&plan).len(), goes, "{phase}");
    }
    // The VM of a machine that is being deleted was started again, and has registered a Node without the
    // daemon's label.
    let again = "apiVersion: v1\nkind: Node\nmetadata: {name: w9, labels: {kubernetes.io/hostname: w9}}\n\
                 status: {allocatable: {cpu: 4, memory: 16Gi, pods: 10}}";
    let started = idle().with(again).with(&inventory(&machine("w9", "Deleting", false)));
    assert_eq!(removed(&started.plan(&under(rules))), Vec::<&str>::new());
    // Only a disk of the machine is left.
    let cleared = idle().with(&inventory(&machine("w9", "Clearing", false)));
    assert_eq!(removed(&cleared.plan(&under(rules))).len(), 1);
    let lost = Cluster::new().node("w0", "w", "", "False").idle("w1", "w");
    let none = "[[disruption]]\nmax_nodes = 0\n";
    assert_eq!(removed(&lost.plan(&under(none))), ["w0"]);
    assert_eq!(removed(&lost.plan(&under(&format!("{none}reasons = [\"unready\", \"empty\"]\n")))).len(), 0);
}

/// If an operator has requested the removal of a node but the removal has to wait, the node stays in service
/// with its pods.
#[test]
fn a_wish_that_only_waits_holds_up_no_removal() {
    // Nodes with pods that fit neither another node nor a new one.
    let wished = |names: &[&str]| {
        let nodes = names
            .iter()
            .fold(Cluster::empty(), |all, name| all.large(name, 8).pod(&format!("p-{name}"), "7", name));
        nodes.replace("annotations: {", "annotations: {pve-autoscaler/retire: memory, ")
    };
    let rules = "[[disruption]]\nmax_nodes = 1\n";
    assert_eq!(removed(&idle().and(&wished(&["w9"])).plan(&under(rules))).len(), 1);
    // The number of nodes that wait for their removal equals the number of drains allowed at a time.
    let busy = Cluster::new().idle("x0", "other").idle("x1", "other").pod("a", "1", "x0").pod("b", "1", "x1");
    let plan = busy.and(&wished(&["w5", "w6", "w7", "w8"])).plan(&under(""));
    assert_eq!(removed(&plan).len(), 1, "{:#?}", plan.nodes);
    // A removal that has begun counts towards the limit.
    let begun = wished(&["w9"]).replace("taints: []", &format!("taints: [{LEAVING}]"));
    assert_eq!(removed(&idle().and(&begun).plan(&under(rules))).len(), 0);
}

#[test]
fn a_pool_has_its_scheduled_minimum_at_the_time() {
    for (start, made, goes) in [("0 11 * * *", 1, 0), ("0 13 * * *", 0, 1)] {
        let text = format!(
            "[[pool]]\nname = \"w\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
             allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n\
             [[pool.schedule]]\nmin = 2\nstart = \"{start}\"\nduration = \"2h\"\n"
        );
        let config = settings::parse("test", &text, Needs::Plan).unwrap();
        let plan = Cluster::new().idle("w0", "w").plan(&config);
        let machines: usize = plan.scale_up.iter().map(|pool| pool.machines.len()).sum();
        assert_eq!((machines, removed(&plan).len()), (made, goes), "{start}");
    }
}
