//! Determines which nodes can be removed together because their pods find room on the remaining nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::allowance::Allowance;
use model::devices::{ClaimSource, Made, PodClaim};
use model::digest::Fingerprint;
use model::pod::{Pod, Toleration};
use model::selector::Labels;
use scheduling::{NodeIndex, World};

/// A node that could be removed, with its pods.
#[derive(Debug)]
pub(super) struct Candidate {
    pub node: NodeIndex,
    /// Pods that need another place, including pending ones that were placed on it.
    pub pods: Vec<Arc<Pod>>,
    /// The node's pool, as an index into the `spare` list of [`choose`].
    pub pool: usize,
    /// Whether the time from which the node may be removed has passed, and nothing known so far prevents its
    /// removal now. Such a node is looked at before nodes that have to wait.
    pub due: bool,
    /// Whether the time from which the node may be removed has passed, even if something else prevents its
    /// removal. Such a node is looked at before nodes for which this time has not passed. Always false
    /// without consolidation.
    pub ripe: bool,
    /// Whether the node is ready, so that it can take pods as long as it stays.
    pub ready: bool,
    /// Whether no pod on it needs another place.
    pub empty: bool,
    /// The node's CPU relative to the node with the most CPU, plus its memory relative to the node with the
    /// most memory.
    pub size: f64,
    /// How full the node is.
    pub utilization: f64,
    /// The total cost of moving the node's pods, according to their annotations.
    pub cost: i64,
}

/// Pods, and the nodes that they move to.
pub(super) type Moves = Vec<(Arc<Pod>, NodeIndex)>;

/// Nodes that can be removed together, and where each of their pods goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Together {
    /// The nodes, in the order in which they were found to be removable, with the moves of their pods.
    pub nodes: Vec<(NodeIndex, Moves)>,
    /// Candidates that cannot be removed and that take the pods of removable ones.
    pub hosts: BTreeSet<NodeIndex>,
    /// Candidates that were left unexamined.
    pub untried: BTreeSet<NodeIndex>,
    due: usize,
    /// The total size of the removable nodes that are due.
    freed_now: f64,
    freed: f64,
}

impl Together {
    fn better_than(&self, other: &Self) -> bool {
        let more = |a: f64, b: f64| (a - b).abs() > 1e-9 && a > b;
        let less = |a: f64, b: f64| more(b, a);
        self.due > other.due
            || self.due == other.due
                && (more(self.freed_now, other.freed_now)
                    || !less(self.freed_now, other.freed_now) && more(self.freed, other.freed))
    }
}

/// The sort key of candidates, smallest first.
type Order = fn(&Candidate) -> (f64, f64);

/// The orders in which candidates are tried; any of them may give the best result.
const ORDERS: [Order; 3] = [
    |one| (-(one.size * (1.0 - one.utilization)), -one.size),
    |one| (one.utilization, -one.size),
    |one| (one.size, one.utilization),
];

/// Above this many candidates, only the first order is tried.
const MANY: usize = 200;

/// Returns the set of removable candidates that contains the most due nodes ([`Candidate::due`]). Of several
/// such sets, the one that frees the most resources is returned. Due candidates are tried before others,
/// unready ones before ready ones, empty ones before those with pods, and those with a lower moving cost
/// before those with a higher one. A pool gives up no more due nodes than it can spare (`spare`, by pool).
/// Its remaining due nodes, and nodes that are not due, are tried last. Until they are tried, they can take
/// the pods of other candidates.
pub(super) fn choose(
    world: &World,
    candidates: &[Candidate],
    spare: &[u32],
    destinations: &[NodeIndex],
    consolidates: bool,
    allowance: &Allowance,
) -> Together {
    let orders = if candidates.len() > MANY { &ORDERS[..1] } else { &ORDERS[..] };
    let mut best: Option<Together> = None;
    // An empty machine may have been created so that others can be removed. So with consolidation, each order
    // is tried a second time, with empty nodes last.
    let tries = orders.iter().map(|order| (order, true));
    let tries = tries.chain(orders.iter().map(|order| (order, false)).filter(|_| consolidates));
    // Several sort keys may result in the same order. Each order is tried only once.
    let mut tried: BTreeSet<Vec<NodeIndex>> = BTreeSet::new();
    for (order, empty_first) in tries {
        let mut sorted: Vec<&Candidate> = candidates.iter().collect();
        sorted.sort_by(|a, b| {
            // A lost node runs no pods, so it is removed before nodes that run some.
            let key = |one: &Candidate| (!one.due, !one.ripe, one.ready, one.empty != empty_first, one.cost);
            let (x, y) = (order(a), order(b));
            key(a).cmp(&key(b)).then(x.0.total_cmp(&y.0)).then(x.1.total_cmp(&y.1)).then(a.node.cmp(&b.node))
        });
        if !tried.insert(sorted.iter().map(|candidate| candidate.node).collect()) {
            continue;
        }
        if best.is_some() && allowance.is_spent() {
            break;
        }
        let found = try_in_order(world.clone(), &sorted, spare.to_vec(), destinations, allowance);
        if best.as_ref().is_none_or(|best| found.better_than(best)) {
            best = Some(found);
        }
    }
    best.unwrap_or_default()
}

fn try_in_order(
    mut world: World,
    sorted: &[&Candidate],
    mut spare: Vec<u32>,
    destinations: &[NodeIndex],
    allowance: &Allowance,
) -> Together {
    let mut found = Together::default();
    // Nodes that stay anyway take pods first, then the candidates that will be tried last.
    let ready = sorted.iter().rev().filter(|candidate| candidate.ready).map(|candidate| candidate.node);
    let order: Vec<NodeIndex> = destinations.iter().copied().chain(ready).collect();
    let mut hints = Hints::default();
    let mut arrived: BTreeMap<NodeIndex, Vec<Arc<Pod>>> = BTreeMap::new();
    let mut go = |candidate: &Candidate, found: &mut Together| {
        if allowance.is_spent() {
            found.untried.insert(candidate.node);
            return false;
        }
        let mut pods = candidate.pods.clone();
        pods.extend(arrived.get(&candidate.node).into_iter().flatten().cloned());
        let Some(moves) = replace(&mut world, candidate.node, &pods, &order, &mut hints) else {
            if arrived.contains_key(&candidate.node) {
                found.hosts.insert(candidate.node);
            }
            return false;
        };
        arrived.remove(&candidate.node);
        for (pod, to) in &moves {
            arrived.entry(*to).or_default().push(pod.clone());
        }
        found.freed += candidate.size;
        found.nodes.push((candidate.node, moves));
        true
    };
    let mut later = Vec::new();
    for candidate in sorted {
        if !candidate.due || spare[candidate.pool] == 0 {
            later.push(candidate);
        } else if go(candidate, &mut found) {
            spare[candidate.pool] -= 1;
            found.due += 1;
            found.freed_now += candidate.size;
        }
    }
    for candidate in later {
        go(candidate, &mut found);
    }
    settle(&mut found);
    found
}

/// The properties that decide whether a pod fits a node, if other pods do not matter: the CPU, the memory,
/// whether the pod never preempts, its tolerations, its node selector, and the templates of its claims with
/// their namespace.
type Kind = (i64, i64, bool, Vec<Toleration>, Labels, Vec<(String, String)>);

/// For each kind of pod, the number of destinations, counted from the first, that are known to have no room
/// for it.
#[derive(Default)]
struct Hints {
    kinds: BTreeMap<Kind, usize>,
    /// For each class, the index of its kind. `None` if the pods have properties that a kind does not cover.
    by_class: BTreeMap<Fingerprint, Option<usize>>,
    /// For each kind, the number of destinations, counted from the first, that have no room for it.
    full: Vec<usize>,
}

impl Hints {
    /// Returns the index of the pod's kind, or `None` if the pod has properties that a kind does not cover.
    fn kind(&mut self, pod: &Pod) -> Option<usize> {
        *self.by_class.entry(pod.digest().class).or_insert_with(|| {
            let next = self.kinds.len();
            kind(pod).map(|kind| *self.kinds.entry(kind).or_insert(next))
        })
    }

    fn full(&self, kind: usize) -> usize {
        self.full.get(kind).copied().unwrap_or(0)
    }

    fn fill(&mut self, kind: usize, up_to: usize) {
        if self.full.len() <= kind {
            self.full.resize(kind + 1, 0);
        }
        self.full[kind] = up_to;
    }
}

/// Moves the pods of a node elsewhere and closes the node. If a pod finds no place, leaves the world
/// unchanged.
fn replace(
    world: &mut World,
    node: NodeIndex,
    pods: &[Arc<Pod>],
    order: &[NodeIndex],
    hints: &mut Hints,
) -> Option<Moves> {
    world.close(node);
    for pod in pods {
        world.remove(pod, node);
    }
    let known = hints.full.clone();
    let mut moves = Vec::with_capacity(pods.len());
    let mut sorted: Vec<&Arc<Pod>> = pods.iter().collect();
    sorted.sort_by_key(|pod| std::cmp::Reverse((pod.requests.cpu_milli, pod.requests.memory)));
    for pod in sorted {
        let prepared = world.prepare(pod);
        let kind = prepared.is_local(world).then(|| hints.kind(pod)).flatten();
        let from = kind.map_or(0, |kind| hints.full(kind));
        let fits = |at: &NodeIndex| world.takes(&prepared, *at);
        let place = order[from..].iter().position(fits);
        let asked = place.unwrap_or(order.len() - from);
        world.effort().add(u64::try_from(asked).unwrap_or(u64::MAX));
        let Some(found) = place else {
            undo(world, node, pods, &moves);
            hints.full = known;
            return None;
        };
        let to = order[from + found];
        if let Some(kind) = kind {
            hints.fill(kind, from + found);
        }
        // `prepared` is dropped first, so that what it shares with the world does not have to be copied.
        drop(prepared);
        world.place(pod, to);
        moves.push((pod.clone(), to));
    }
    Some(moves)
}

/// The kind of the pod. `None`: the pod has properties that a kind does not cover.
fn kind(pod: &Pod) -> Option<Kind> {
    let requests = &pod.requests;
    let plain = pod.affinity.node.is_none()
        && pod.host_ports.is_empty()
        && requests.other.is_empty()
        && requests.ephemeral_storage == 0
        && pod.features.is_empty();
    let template = |claim: &PodClaim| match &claim.source {
        ClaimSource::Template { template, made: Made::As(_) } => {
            Some((pod.namespace.clone(), template.clone()))
        }
        _ => None,
    };
    let claims = pod.resource_claims.iter().map(template).collect::<Option<Vec<_>>>().filter(|_| plain)?;
    let (tolerations, selector) = (pod.tolerations.clone(), pod.node_selector.clone());
    Some((requests.cpu_milli, requests.memory, pod.never_preempts, tolerations, selector, claims))
}

fn undo(world: &mut World, node: NodeIndex, pods: &[Arc<Pod>], moves: &[(Arc<Pod>, NodeIndex)]) {
    for (pod, to) in moves {
        world.remove(pod, *to);
    }
    for pod in pods {
        world.place(pod, node);
    }
    world.open(node);
}

/// A pod moves several times if a node that it moved to is removed later. Replaces the destination of each of
/// these moves by the last one.
fn settle(found: &mut Together) {
    // All moves of a pod share one object, so its address identifies the pod.
    let mut last: BTreeMap<*const Pod, NodeIndex> = BTreeMap::new();
    for (pod, to) in found.nodes.iter().flat_map(|(_, moves)| moves) {
        last.insert(Arc::as_ptr(pod), *to);
    }
    for (pod, to) in found.nodes.iter_mut().flat_map(|(_, moves)| moves) {
        if let Some(&place) = last.get(&Arc::as_ptr(pod)) {
            *to = place;
        }
    }
}
