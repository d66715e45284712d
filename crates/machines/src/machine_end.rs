//! How a machine's removal is requested, and how it ended.

use tokio::time::Instant;

use super::kept_node::Kept;

/// How a VM is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The guest is asked to shut down, and has time to do so.
    ///
    /// `emptied` is the time when the Node was seen empty; `None` if this run has not checked the Node, for
    /// instance after a restart of the daemon. `cut_short` is true if the drain ended early because the VM
    /// was off. Such a VM is only removed if it stays off.
    Graceful { emptied: Option<Instant>, cut_short: bool },
    /// The VM's power is cut, because nothing that runs on it is needed.
    Abrupt,
}

/// How the removal of a machine ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// The machine's record was dropped, because nothing is left to remove.
    Gone,
    /// The machine keeps running: its Node stays in service for the given reason.
    Serves(Kept),
    /// Like [`Self::Serves`], but the reason will go away by itself, or an administrator will fix it.
    ServesForNow(Kept),
}
