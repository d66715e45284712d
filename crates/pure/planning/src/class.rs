//! A class: pods that are equal but for their names are handled together.

use std::sync::Arc;

use super::prediction_holds::Hold;
use model::pod::Pod;

/// Pods that are equal but for their names.
#[derive(Clone, Debug)]
pub(super) struct Class<'a> {
    /// One of them.
    pub sample: &'a Arc<Pod>,
    /// Their places in the list of waiting pods, in its order.
    pub pods: Vec<usize>,
    pub priority: i32,
    /// How many are placed: the first ones.
    pub done: usize,
    /// Which pools' nodes they accept, by the pools' order, whatever room is there: a row of
    /// [`super::classes::Demands`].
    pub demands: usize,
    /// What a missed prediction keeps from them.
    pub hold: Option<Arc<Hold>>,
    /// Not all nodes that are there were asked: no machine is made for them before that.
    pub cut: bool,
}

impl Class<'_> {
    pub(super) fn left(&self) -> usize {
        self.pods.len() - self.done
    }
}
