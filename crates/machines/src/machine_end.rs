//! How the end of a machine is requested, and how it ended.

use tokio::time::Instant;

use super::kept_node::Kept;

/// How a VM is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The guest is asked to shut down, and has its time. `emptied` is when its Node was seen empty: `None`
    /// if this run did not check, as after a restart in between. `cut_short` if its drain ended because its
    /// VM was off: then it is only removed while it stays off.
    Graceful { emptied: Option<Instant>, cut_short: bool },
    /// Its power is cut: nothing depends on it.
    Abrupt,
}

/// How the end of a VM ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// Nothing is left of it.
    Gone,
    /// It keeps running: its guest is this Node again, which stays in service for this reason.
    Serves(Kept),
    /// The same, but for a reason that goes away by itself or that an administrator fixes.
    ServesForNow(Kept),
}
