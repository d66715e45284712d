//! The preferences of a pod, expressed as kube-scheduler's scores for nodes. Preferences of other pods for
//! this pod are ignored.

use std::collections::BTreeMap;

use super::selector::node_matches;
use super::terms::matches;
use super::world::{NodeIndex, World};
use model::pod::{Pod, PodAffinityTerm, Weighted};
use model::selector::NodeSelector;

/// The maximum value of a score.
const MOST: i64 = 100;
/// The weight of the NodeAffinity and InterPodAffinity scores in the default profile. The score for free
/// resources has a weight of 1.
const WEIGHT: i64 = 2;

/// Returns a score for each of the nodes, based on the pod's preferences. `None` if the pod has no
/// preferences.
pub(super) fn scores(pod: &Pod, nodes: &[NodeIndex], world: &World) -> Option<Vec<i64>> {
    let affinity = &pod.affinity;
    if affinity.node_preferred.is_empty()
        && affinity.pods_preferred.is_empty()
        && affinity.anti_preferred.is_empty()
    {
        return None;
    }
    let mut by_node = vec![0; nodes.len()];
    for Weighted { weight, term } in &affinity.node_preferred {
        let selector = NodeSelector { terms: vec![term.clone()] };
        for (score, at) in by_node.iter_mut().zip(nodes) {
            let node = &world.node(*at).node;
            *score += i64::from(*weight) * i64::from(node_matches(&selector, &node.name, &node.labels));
        }
    }
    let mut by_pods = vec![0; nodes.len()];
    for (terms, sign) in [(&affinity.pods_preferred, 1), (&affinity.anti_preferred, -1)] {
        for Weighted { weight, term } in terms {
            let counts = counts(term, pod, world);
            for (score, at) in by_pods.iter_mut().zip(nodes) {
                let domain = world.node(*at).node.labels.get(&term.topology_key);
                let count = domain.and_then(|domain| counts.get(domain.as_str())).copied().unwrap_or(0);
                *score += sign * i64::from(*weight) * count;
            }
        }
    }
    let (by_node, by_pods) = (scaled(by_node, 0), scaled(by_pods, i64::MAX));
    Some(by_node.zip(by_pods).map(|(node, pods)| WEIGHT * (node + pods)).collect())
}

/// The number of pods that the term selects in each domain.
fn counts<'w>(term: &PodAffinityTerm, pod: &Pod, world: &'w World) -> BTreeMap<&'w str, i64> {
    let mut counts = BTreeMap::new();
    let namespaces = world.around().namespaces;
    let kinds = world.crowd().kinds();
    let kinds = kinds.filter(|(kind, _)| matches(term, &pod.namespace, &kind.pod, namespaces));
    for (at, count) in kinds.flat_map(|(_, stands)| stands.iter()) {
        if let Some(domain) = world.node(at).node.labels.get(&term.topology_key) {
            *counts.entry(domain.as_str()).or_default() += count;
        }
    }
    counts
}

/// Scales scores to the range from 0 to [`MOST`]. The largest score becomes [`MOST`]. The smallest score (or
/// `least`, if that is smaller) becomes 0.
fn scaled(scores: Vec<i64>, least: i64) -> impl Iterator<Item = i64> {
    let least = scores.iter().copied().min().unwrap_or(0).min(least);
    let range = scores.iter().copied().max().unwrap_or(0).saturating_sub(least);
    scores.into_iter().map(move |score| if range > 0 { (score - least) * MOST / range } else { 0 })
}
