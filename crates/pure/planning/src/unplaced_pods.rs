//! Checks whether the pods of a node that is being drained still have a place to go. Other pods may have
//! taken the room that the plan reserved for them.

use std::cmp::Reverse;
use std::sync::Arc;

use super::allowance::{Allowance, Limits};
use super::budgets::Budgets;
use super::drain::Rules;
use super::facts::node::ready;
use super::pods_by_node::PodsByNode;
use super::view::View;
use super::{expected_taints, sizes, sorted};
use model::Snapshot;
use model::pod::Pod;
use scheduling::{Effort, NodeIndex, World};
use settings::Config;

/// Maximum number of pending pods that are placed first. The remaining pending pods are assumed to find no
/// room on existing nodes.
const WAITING: usize = 100;

/// For a node that is being removed, returns the name of its first pod that would fit no other ready node at
/// present. Returns `None` if all pods fit, if the node is not in the snapshot, or if a pod on the node must
/// stay.
///
/// Pending pods come first, because kube-scheduler already has them in its queue. Machines that are being
/// created do not count: it is not known whether they will become nodes.
pub fn homeless(snapshot: &Snapshot, config: &Config, node: &str) -> Option<String> {
    let pods = PodsByNode::new(&snapshot.pods, snapshot, config);
    let mut sorted = sorted(snapshot);
    expected_taints::expect_taints(&mut sorted);
    let snapshot = &sorted;
    let offers = &sizes::offers(config, snapshot);
    let mut view =
        View::new(snapshot, &pods, config, offers, &Allowance::new(&Effort::default(), Limits::default()));
    let at = snapshot.nodes.iter().position(|one| one.name == node)?;
    let rules = Rules::new(snapshot, &config.scale_down);
    // The drain itself checks for pods that must stay.
    let leaving = rules.evictions(view.on[at].bound.iter(), Budgets::new(snapshot), |_| false).ok()?;
    let mut moves: Vec<Arc<Pod>> = leaving.evict.into_iter().filter(|pod| !pod.is_finished()).collect();
    moves.sort_by_key(|pod| Reverse((pod.requests.cpu_milli, pod.requests.memory)));
    view.world.close(at);
    for pod in &moves {
        view.world.remove(pod, at);
    }
    let places: Vec<NodeIndex> = (0..view.existing)
        .filter(|other| view.world.node(*other).open && ready(&snapshot.nodes[*other]))
        .collect();
    let waiting: Vec<&Arc<Pod>> =
        view.waiting.iter().filter(|one| one.settled.is_none()).map(|one| one.pod).take(WAITING).collect();
    for pod in waiting {
        settle(&mut view.world, pod, &places);
    }
    moves.iter().find(|pod| !settle(&mut view.world, pod, &places)).map(|pod| pod.id())
}

/// Places a pod on the first node that takes it. Returns false if no node does.
fn settle(world: &mut World, pod: &Arc<Pod>, places: &[NodeIndex]) -> bool {
    let prepared = world.prepare(pod);
    let found = places.iter().copied().find(|at| world.check(&prepared, *at).is_ok());
    if let Some(at) = found {
        world.place(pod, at);
    }
    found.is_some()
}
