//! A class: pods that are equal except for their names, and are handled together.

use std::sync::Arc;

use super::prediction_holds::Hold;
use model::pod::Pod;

/// Pods that are equal except for their names.
#[derive(Clone, Debug)]
pub(super) struct Class<'a> {
    /// One of the pods.
    pub sample: &'a Arc<Pod>,
    /// The indexes of the pods in the list of pending pods.
    pub pods: Vec<usize>,
    pub priority: i32,
    /// How many of `pods` have been placed. These are the first ones in the list.
    pub done: usize,
    /// The index of the pods' demands in [`super::classes::Demands`]. The demands determine which pools'
    /// nodes the pods accept, regardless of room.
    pub demands: usize,
    /// The restrictions on these pods after missed predictions, if any.
    pub hold: Option<Arc<Hold>>,
    /// Whether some existing nodes were not checked. No machine is created for the pods until all nodes have
    /// been checked.
    pub cut: bool,
}

impl Class<'_> {
    pub(super) fn left(&self) -> usize {
        self.pods.len() - self.done
    }
}
