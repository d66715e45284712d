//! A pending pod.

use std::sync::Arc;

use model::plan::PodOutcome;
use model::pod::Pod;

/// A pending pod.
pub(super) struct Waiting<'a> {
    pub pod: &'a Arc<Pod>,
    /// The group of pods that are equal except for their names: its place in [`super::groups::Groups`].
    pub group: usize,
    /// Already decided, without looking for room.
    pub settled: Option<PodOutcome>,
    /// It gets a verdict. Pods that will have to leave a node that is being removed are placed too, but not
    /// listed.
    pub listed: bool,
}
