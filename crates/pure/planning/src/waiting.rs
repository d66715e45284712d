//! A pending pod.

use std::sync::Arc;

use model::digest::Marks;
use model::plan::PodOutcome;
use model::pod::Pod;

/// A pending pod.
pub(super) struct Waiting<'a> {
    pub pod: &'a Arc<Pod>,
    /// The index in [`super::groups::Groups`] of the pod's group: the pods that are equal except for their
    /// names.
    pub group: usize,
    /// The outcome, if it is already decided.
    pub settled: Option<PodOutcome>,
    /// [`model::digest::Digest::marks`].
    pub marks: Marks,
    /// Whether the pod receives a verdict. Pods of nodes that are being removed are placed too, but receive
    /// none.
    pub listed: bool,
}
