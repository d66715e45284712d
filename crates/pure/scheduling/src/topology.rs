//! Domains: groups of nodes that have the same value for a label. Domains are numbered, and their numbers are
//! the indices into lists of pod counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sim_node::SimNode;
use super::world::NodeIndex;
use model::selector::Labels;

/// Stands for the domain of a node that lacks the label.
const NOWHERE: u32 = u32::MAX;

/// The domains of one label key. They are numbered in the order of the nodes, so their numbers stay valid
/// when nodes are added.
#[derive(Clone, Debug)]
struct Topology {
    key: String,
    numbers: BTreeMap<String, u32>,
    /// By node.
    of: Vec<u32>,
}

/// The domains of all label keys that pods' terms and constraints use. A clone shares them until a node is
/// added.
#[derive(Clone, Debug, Default)]
pub(super) struct Topologies {
    all: Vec<Arc<Topology>>,
}

/// A label key whose values define the domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub name: Arc<str>,
    /// The index of the key's domains. `None` if the key was not announced: its domains are then determined
    /// for each query.
    at: Option<usize>,
}

/// The domain of a node for a label key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// The node lacks the label.
    Nowhere,
    /// The node has the label, but no node in the world has the same value for it.
    New,
    /// The domain with this number.
    Known(usize),
}

impl Topology {
    fn new(key: &str, nodes: &[SimNode]) -> Self {
        let mut topology =
            Self { key: key.to_owned(), numbers: BTreeMap::new(), of: Vec::with_capacity(nodes.len()) };
        for node in nodes {
            topology.add(&node.node.labels);
        }
        topology
    }

    fn add(&mut self, labels: &Labels) {
        let number = match labels.get(&self.key) {
            None => NOWHERE,
            Some(value) => {
                if let Some(&number) = self.numbers.get(value) {
                    number
                } else {
                    let next = u32::try_from(self.numbers.len()).unwrap_or(NOWHERE);
                    self.numbers.insert(value.clone(), next);
                    next
                }
            }
        };
        self.of.push(number);
    }

    fn of(&self, node: NodeIndex) -> Domain {
        match self.of.get(node) {
            Some(&number) if number != NOWHERE => Domain::Known(number as usize),
            _ => Domain::Nowhere,
        }
    }

    fn of_labels(&self, labels: &Labels) -> Domain {
        let Some(value) = labels.get(&self.key) else { return Domain::Nowhere };
        self.numbers.get(value).map_or(Domain::New, |&number| Domain::Known(number as usize))
    }
}

impl Topologies {
    /// Whether the key was announced.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.all.iter().any(|one| one.key == key)
    }

    /// The announced keys, in the order in which they were announced.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|one| one.key.as_str())
    }

    /// Announces a key, so that its domains are stored from now on.
    pub(super) fn announce(&mut self, key: &str, nodes: &[SimNode]) {
        if !self.knows(key) {
            self.all.push(Arc::new(Topology::new(key, nodes)));
        }
    }

    pub(super) fn add_node(&mut self, labels: &Labels) {
        for topology in &mut self.all {
            Arc::make_mut(topology).add(labels);
        }
    }

    pub(super) fn key(&self, name: &str) -> Key {
        Key { name: Arc::from(name), at: self.all.iter().position(|one| one.key == name) }
    }

    /// The domain of a node in the world.
    pub(super) fn of(&self, key: &Key, node: NodeIndex, nodes: &[SimNode]) -> Domain {
        match key.at {
            Some(at) => self.all[at].of(node),
            None => Topology::new(&key.name, nodes).of(node),
        }
    }

    /// The domain of a node with these labels. The node need not be in the world.
    pub(super) fn of_labels(&self, key: &Key, labels: &Labels, nodes: &[SimNode]) -> Domain {
        match key.at {
            Some(at) => self.all[at].of_labels(labels),
            None => Topology::new(&key.name, nodes).of_labels(labels),
        }
    }
}
