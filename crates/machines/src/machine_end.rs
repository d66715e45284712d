//! How the end of a machine is requested, and how it ended.

use tokio::time::Instant;

use super::kept_node::Kept;

/// How a VM is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The guest is asked to shut down, and gets time to do so.
    ///
    /// `emptied` is when its Node was seen empty; `None` if this run has not checked that, for instance after
    /// a restart of the daemon. `cut_short` is true if the drain ended early because the VM was off. Such a
    /// VM is only removed while it stays off.
    Graceful { emptied: Option<Instant>, cut_short: bool },
    /// The VM's power is cut, because nothing that runs on it is needed.
    Abrupt,
}

/// How the removal of a machine ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    /// Its record was dropped, because nothing is left to remove.
    Gone,
    /// The machine keeps running: its Node stays in service for the given reason.
    Serves(Kept),
    /// Like [`Self::Serves`], but the reason goes away by itself or is fixed by an administrator.
    ServesForNow(Kept),
}
