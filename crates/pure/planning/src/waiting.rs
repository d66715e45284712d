//! A pod that waits for a node.

use std::sync::Arc;

use model::plan::PodOutcome;
use model::pod::Pod;

/// A pod that waits.
pub(super) struct Waiting<'a> {
    pub pod: &'a Arc<Pod>,
    /// Which pods it is equal to but for its name: its place in [`super::groups::Groups`].
    pub group: usize,
    /// Decided already, without looking for room.
    pub settled: Option<PodOutcome>,
    /// It gets a verdict. Pods that will have to leave a node on its way out are placed too, but not listed.
    pub listed: bool,
}
