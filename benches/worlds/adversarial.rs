//! Worlds with which a tenant could slow down the daemon for others: ten times the size of large clusters,
//! and pods with more requirements than any real pod needs.

use std::sync::Arc;

use pve_autoscaler::model::Snapshot;
use pve_autoscaler::model::pod::Pod;
use pve_autoscaler::model::selector::{NodeSelector, NodeSelectorTerm, Operator, Requirement};

use crate::clusters::{self, CLUSTER, Cluster, Manner};
use crate::with_claims;

/// The name of a world, and a function that creates its snapshot and settings.
pub type World = (&'static str, fn() -> (Snapshot, String));

/// All adversarial worlds.
pub const WORLDS: [World; 10] = [
    ("100,000 pods, each of a different size, 20 pools", || {
        (own_sizes(100_000, Manner::Plain), clusters::pools(20))
    }),
    ("50,000 pods, each of a different size, that repel each other, 3 pools", || {
        (own_sizes(50_000, Manner::Apart), clusters::pools(3))
    }),
    ("100,000 pods, each of a different app whose pods repel each other", || {
        (own_apps(100_000), clusters::pools(3))
    }),
    ("10,000 sizes of pods, 1200 pools", || (own_sizes(10_000, Manner::Plain), clusters::pools(1200))),
    ("10,000 idle nodes × 20 pods of 20,000 apps whose pods repel each other and are spread", || {
        let nodes = Cluster { nodes: 10_000, apps: 20_000, size: 100, idle: true, ..CLUSTER };
        (Cluster { manner: Manner::Spread, ..nodes }.snapshot(), clusters::pools(3))
    }),
    ("2500 nodes × 20 pods with a claim each, nodes 20 % utilized", || {
        (with_claims(2500, 20, 100, 0), crate::settings())
    }),
    ("100 pods × 5000 terms of anti-affinity, 1000 nodes", || (many_terms(100, 5000), clusters::pools(3))),
    ("1000 pods × 10,000 expressions of node affinity, 1000 nodes, 20 pools", || {
        (many_expressions(1000, 10_000), clusters::pools(20))
    }),
    ("20,000 budgets over 1000 idle nodes", || {
        let nodes = Cluster { size: 100, idle: true, budgets: 20_000, apps: 20_000, ..CLUSTER };
        (nodes.snapshot(), clusters::pools(3))
    }),
    ("10,000 pods that fit nowhere, each for a different reason, 5000 nodes", || {
        (nowhere(10_000), clusters::pools(20))
    }),
];

fn own_sizes(count: usize, manner: Manner) -> Snapshot {
    let size = |number: usize| {
        let number = i64::try_from(number).unwrap();
        (100 + number % 700, 256 + number % 9000)
    };
    clusters::waiting(
        (0..count).map(|number| clusters::pod(number, "app", size(number), manner, None)).collect(),
    )
}

fn own_apps(count: usize) -> Snapshot {
    let app = |number| format!("app-{number:06}");
    let own = |number| clusters::pod(number, &app(number), (200, 200), Manner::Apart, None);
    clusters::waiting((0..count).map(own).collect())
}

/// A cluster with additional pending pods.
fn beside(cluster: Cluster, waiting: impl Iterator<Item = Pod>) -> Snapshot {
    let mut all = cluster.snapshot();
    all.pods.extend(waiting.map(Arc::new));
    all.pods.sort_by_cached_key(|pod| pod.id());
    all
}

fn many_terms(count: usize, terms: usize) -> Snapshot {
    let one = |number: usize| {
        let mut pod = clusters::pod(number, "tenant", (200, 200), Manner::Apart, None);
        let term = pod.affinity.anti[0].clone();
        pod.affinity.anti.extend((0..terms).map(|at| {
            let mut term = term.clone();
            if let Some(selector) = &mut term.selector {
                selector.requirements[0].values = vec![format!("app-{number}-{at}")];
            }
            term
        }));
        pod
    };
    beside(CLUSTER, (0..count).map(one))
}

fn many_expressions(count: usize, expressions: usize) -> Snapshot {
    let one = |number: usize| {
        let mut pod = clusters::pod(number, "tenant", (200, 200), Manner::Plain, None);
        let requirement = |at: usize| Requirement {
            key: format!("example.com/{number}-{at}"),
            operator: Operator::DoesNotExist,
            values: Vec::new(),
        };
        let term = NodeSelectorTerm {
            match_expressions: (0..expressions).map(requirement).collect(),
            ..Default::default()
        };
        pod.affinity.node = Some(NodeSelector { terms: vec![term] });
        pod
    };
    beside(Cluster { size: 500, ..CLUSTER }, (0..count).map(one))
}

fn nowhere(count: usize) -> Snapshot {
    let one = |number: usize| {
        let mut pod = clusters::pod(number, "tenant", (200, 200), Manner::Plain, None);
        pod.node_selector.insert(format!("example.com/{number}"), "yes".to_owned());
        pod
    };
    beside(Cluster { nodes: 5000, ..CLUSTER }, (0..count).map(one))
}
