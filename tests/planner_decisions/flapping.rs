//! What goes must not be asked for again.

use pve_autoscaler::model::plan::NodeOutcome;

use crate::cluster::{Cluster, node_verdict, pools, removed};

/// Free are 2 CPUs on w0 and so many on w1; w2 has pods of 1.5, 1 and 1 CPUs. The search for nodes that can go fills the
/// fuller one first, w1. Scaling up fills in the order of names, w0: then one of 1 CPU is left over where w1 has no 2 free.
fn three(on_w1: &str) -> Cluster {
    Cluster::new()
        .idle("w0", "w")
        .idle("w1", "w")
        .sized("w2", "w", "8", "", "True")
        .pod("a", "2", "w0")
        .pod("b", on_w1, "w1")
        .pod("c", "1500m", "w2")
        .pod("d", "1", "w2")
        .pod("e", "1", "w2")
}

#[test]
fn a_node_without_which_a_machine_would_be_asked_for_stays() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    assert_eq!(removed(&three("2").plan(&config)), ["w2"]);
    let plan = three("2500m").plan(&config);
    assert_eq!(removed(&plan), Vec::<&str>::new());
    let kept = plan.nodes.iter().find(|node| node.node == "w2").unwrap();
    assert_eq!(kept.verdict, NodeOutcome::NoPlaceToMovePods);
    assert_eq!(kept.message.as_deref(), Some("without it, a new machine would be asked for"));
}

#[test]
fn a_node_that_is_needed_holds_up_no_other() {
    let config = pools(0, 9, "[scale_down]\nutilization_threshold = 0.45\n");
    let elsewhere = "{key: dedicated, effect: NoSchedule}";
    let plan = three("2500m")
        .node("g0", "other", elsewhere, "True")
        .node("g1", "other", elsewhere, "True")
        .plan(&config);
    assert_eq!(removed(&plan), ["g0", "g1"]);
    assert_eq!(node_verdict(&plan, "w2"), NodeOutcome::NoPlaceToMovePods);
}
