//! How the end of a machine is asked for, and how it ended.

use tokio::time::Instant;

use super::kept_node::Kept;

/// How a VM is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The guest is asked to shut down, and has its time. With when its Node was seen empty: `None` if it was
    /// not looked at in this run, as after a restart in the midst of it. `cut_short` if its drain ended
    /// because its VM was off: it is removed only while it stays off.
    Graceful { emptied: Option<Instant>, cut_short: bool },
    /// Its plug is pulled: nothing depends on it.
    Abrupt,
}

/// How the end of a VM ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// Nothing of it is left.
    Gone,
    /// It runs on: its guest is this Node again, and serves, for this reason.
    Serves(Kept),
    /// The same, for what passes by itself, or is mended by an administrator.
    ServesForNow(Kept),
}
