//! A pending pod.

use std::sync::Arc;

use model::plan::PodOutcome;
use model::pod::Pod;

/// A pending pod.
pub(super) struct Waiting<'a> {
    pub pod: &'a Arc<Pod>,
    /// The group of pods that are equal except for their names: its place in [`super::groups::Groups`].
    pub group: usize,
    /// The outcome, if it is already decided.
    pub settled: Option<PodOutcome>,
    /// Whether the pod gets a verdict. Pods of nodes that are being removed are placed too, but get none.
    pub listed: bool,
}
